# limit: 600
# long: yes
# needs: fio mkfs.ext4 fsck.ext4
# Faults and power cuts as a kernel sees them: errors by their names, requests that hang and end, a disk with hung requests
# that is deleted, a server that says nothing, caches that follow a power cut, and a file system that lives through some.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

mib=$((1 << 20))
random "$work/one" $mib
random "$work/two" $mib

fault() { timeout 60 ublk fault "$1" -n "$id" "${@:2}"; }
faults() { timeout 60 ublk fault list -n "$id" --json; }

add --size 64M --cache volatile || bail "a disk is added"
put "$work/one" 0
fault add op=write range=1M+1M action=error:MEDIUM count=1 name=medium >/dev/null
check_fails "a write that is struck fails by its error" 1 'No data|Input/output' \
	dd if="$work/one" of="$disk" bs=1M seek=1 oflag=direct conv=notrunc,nocreat status=none
check "and the next one works" put "$work/one" $mib
equal "the rule says what it struck" "$(faults | number struck)" 1
fault add op=copy action=fail-at:0 count=1 name=copy >/dev/null
check_fails "a copy that is struck fails" 1 'segment|medium' timeout 60 ublk copy -n "$id" 0+1M 8M
check "and the next one works" timeout 60 ublk copy -n "$id" 0+1M 8M --verify

# Corruption reads the same again and again, and goes with its rule.
fault add op=copy action=corrupt count=1 name=flip >/dev/null
timeout 60 ublk copy -n "$id" 0+1M 16M
get "$work/bad" $((16 * mib)) $mib
equal "one byte of a corrupt copy differs" "$(cmp -l "$work/one" "$work/bad" | wc -l)" 1
get "$work/again" $((16 * mib)) $mib
check "and the same one again" cmp "$work/bad" "$work/again"
fault del flip
check "without the rule it is as it was" holds "$work/one" $((16 * mib))

# What hangs ends with its rule.
fault add op=read range=32M+1M action=hang name=hang >/dev/null
timeout -k 5 100 dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct,skip_bytes skip=$((32 * mib)) 2>"$work/dd" &
pid=$!
hangs() { faults | tr -d ' \n' | grep -q '"hung":\[[0-9]'; }
check "a read hangs" within 20 hangs
check "others do not" holds "$work/one" 0
fault del hang
check "it ends with its rule" ended 20 "$pid" || kill -KILL "$pid"
wait "$pid"
equal "with an error" "$?" 1

# A power cut: what was flushed is there, what was not is gone, and no cache says otherwise.
put "$work/one" 0
sync "$disk"
put "$work/two" 0
check "a write is there before the power cut" cmp -n $mib "$work/two" "$disk"
check "power cut" timeout 60 ublk power-cut -n "$id"
check "after it the flushed one is, through the page cache" cmp -n $mib "$work/one" "$disk"
check "and past it" holds "$work/one" 0
put "$work/two" 0
check "power cut that keeps all" timeout 60 ublk power-cut -n "$id" --keep all
check "what was written is there" holds "$work/two" 0

# The power fails in the middle of a copy: each block is old or new, and the disk goes on.
put "$work/one" 0
put "$work/two" $((8 * mib))
sync "$disk"
fault add op=copy action=power-cut:7 >/dev/null
check_fails "a copy ends with the power" 1 'segment|I/O error' timeout 60 ublk copy -n "$id" 0+1M 8M
get "$work/mixed" $((8 * mib)) $mib
mixed() {
	local at
	for at in $(seq 0 4096 $((mib - 4096))); do
		cmp -s -i "$at" -n 4096 "$work/mixed" "$work/one" || cmp -s -i "$at" -n 4096 "$work/mixed" "$work/two" || return 1
	done
}
check "each block is old or new" mixed
check "the next copy works" timeout 60 ublk copy -n "$id" 0+1M 8M --verify

# A mounted file system: refused without force, whole with it.
mkfs.ext4 -q -F "$disk" && mkdir "$work/mnt" && mount "$disk" "$work/mnt" || bail "ext4 is mounted"
at_exit 'mountpoint -q $work/mnt && umount $work/mnt'
cp "$work/one" "$work/mnt/one" && sync -f "$work/mnt"
check_fails "a mounted disk keeps its power" 1 'mounted' timeout 60 ublk power-cut -n "$id"
for seed in 1 2 3; do
	cp "$work/two" "$work/mnt/two$seed"
	timeout 60 ublk power-cut -n "$id" --keep "$seed" --force
	note "power cut $seed: $?"
	umount "$work/mnt"
	# What the host had still cached went to the disk after its power came back: the journal is replayed over that.
	timeout 60 fsck.ext4 -f -y "$disk" >/dev/null
	mount "$disk" "$work/mnt" || { not_ok "it is mounted after power cut $seed"; break; }
done
check "what was synced before is whole" cmp "$work/one" "$work/mnt/one"
umount "$work/mnt"
check "the checker finds nothing" fsck.ext4 -f -n "$disk"

# A disk with hung requests is deleted.
fault add action=hang op=write >/dev/null
timeout -k 5 100 dd if="$work/one" of="$disk" bs=4k count=4 oflag=direct conv=notrunc,nocreat 2>"$work/dd" &
pid=$!
check "a write hangs" within 20 hangs
before=$SECONDS
check "del of a disk with a hung request" timeout 60 ublk del -n "$id"
check "takes no long time" test $((SECONDS - before)) -lt 15
check "the write ends" ended 20 "$pid" || kill -KILL "$pid"
check "the disk is gone" no_disk "$id"

# A server that says nothing is killed, and its disk deleted.
add --size 64M || bail "a disk is added"
kill -STOP "$server"
check "del with a silent server" timeout 90 ublk del -n "$id"
check "the server is gone" within 10 gone "$server"
check "the disk is gone" no_disk "$id"
