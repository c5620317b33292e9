# limit: 400
# long: yes
# needs: mkzonefs
# zonefs, which shows each zone as a file: files are written in order, cut to nothing and filled up, and are what they
# were after a new mount, on zones that are written whole and on such that are not, with and without limits.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

mkdir "$work/mnt"
random "$work/data" $((3 << 20))
head -c $((1 << 20)) "$work/data" >"$work/start"
at_exit 'mountpoint -q $work/mnt && umount $work/mnt'
append() { dd if="$1" of="$2" bs=64k oflag=append,direct conv=notrunc,nocreat status=none; }
size() { stat -c %s "$work/mnt/seq/$1"; }

# exercise WHAT MIB: a disk is there whose zones hold so many MiB.
exercise() {
	local what=$1 capacity=$(($2 << 20)) n
	check "$what: mkzonefs" mkzonefs -f -o perm=644 "$disk"
	check "$what: mount" mount -t zonefs -o explicit-open "$disk" "$work/mnt" || return
	# The first zone is the file system's own.
	equal "$what: a file for each zone" "$(ls "$work/mnt/seq" | wc -l)" $((zones - conventional - (conventional == 0)))
	for n in 0 1 2 3; do
		check "$what: file $n is written" append "$work/start" "$work/mnt/seq/$n"
	done
	check_fails "$what: not over what is there" 1 'Invalid argument|Input/output error' \
		dd if="$work/start" of="$work/mnt/seq/0" bs=64k oflag=direct conv=notrunc,nocreat status=none
	check "$what: it grows at its end" append "$work/start" "$work/mnt/seq/0"
	check "$what: a zone is reset" truncate -s 0 "$work/mnt/seq/1"
	equal "$what: its file is empty" "$(size 1)" 0
	check "$what: and written again" append "$work/data" "$work/mnt/seq/1"
	check "$what: a zone is finished" truncate -s "$capacity" "$work/mnt/seq/2"
	equal "$what: its file is as long as may be" "$(size 2)" "$capacity"
	check "$what: umount" umount "$work/mnt"
	check "$what: mount again" mount -t zonefs "$disk" "$work/mnt" || return
	equal "$what: the sizes are the same" "$(for n in 0 1 2 3 4; do size $n; done | xargs)" \
		"$((2 << 20)) $((3 << 20)) $capacity $((1 << 20)) 0"
	cat "$work/start" "$work/start" >"$work/twice"
	check "$what: what was written in two parts is there" cmp "$work/twice" "$work/mnt/seq/0"
	check "$what: what was written over a reset is there" cmp "$work/data" "$work/mnt/seq/1"
	check "$what: what was finished is there" cmp -n $((1 << 20)) "$work/start" "$work/mnt/seq/2"
	check "$what: umount at the end" umount "$work/mnt"
	timeout 60 ublk del -n "$id"
}
zones=16 conventional=2
add --size 64M --memory 512M --zoned --zone-size 4M --conventional-zones 2 --max-open 14 --max-active 14 || bail "a disk is added"
exercise "limits of 14" 4
zones=8 conventional=0
add --size 512M --memory 512M --zoned --zone-size 64M --zone-capacity 48M || bail "a disk is added"
exercise "capacity below size" 48
