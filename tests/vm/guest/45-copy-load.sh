# limit: 300
# needs: stamp
# While writers stamp every sector of both ranges, each copied sector holds a version that its source had during the
# copy, and does not change afterwards unless it is written. `stamp` judges, and is shown to find copies that
# are wrong.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

mib=$((1 << 20))

# stamped OPTION...: writers and copies on $disk.
stamped() {
	timeout -k 5 150 stamp --disk "$disk" --source $((2 * mib))+$mib --destination $((8 * mib)) "$@" >"$work/stamp.log" 2>&1
	local status=$?
	head -n 4 "$work/stamp.log"
	return $status
}

for mode in remap memcpy emulate; do
	add --size 64M -q 2 --copy $mode || bail "a disk is added"
	check "$mode: sectors" stamped --copy "ublk copy -n $id" --copies 16 --seed 1
	timeout 60 ublk del -n "$id"
done
add --size 64M -q 4 || bail "a disk is added"
check "remap: whole blocks" stamped --copy "ublk copy -n $id" --copies 10 --grain 4096 --seed 2
# One at a time: it holds the disk.
check "host: sectors" stamped --copy "ublk copy --engine host -n $id" --copiers 1 --copies 10 --seed 3
timeout 60 ublk del -n "$id"
truncate -s 64M "$work/image"
add -t loop -f "$work/image" || bail "a disk on a file is added"
check "loop: sectors" stamped --copy "ublk copy -n $id" --copies 10 --seed 4
timeout 60 ublk del -n "$id"

# Copiers that are wrong in one way each. They are called as `ublk copy` is: SOURCE+LENGTH... DESTINATION.
add --size 64M || bail "a disk is added"
cat >"$work/wrong" <<'END'
#!/bin/bash
# usage: wrong HOW ID SOURCE+LENGTH... DESTINATION
how=$1 id=$2 to=${*: -1}
set -- "${@:3:$#-3}"
for range; do
	from=${range%+*} length=${range#*+}
	case $how in
	swapped) ublk copy -n "$id" "$to+$length" "$from" ;;
	short) [ "$length" -eq 512 ] || ublk copy -n "$id" "$from+$((length - 512))" "$to" ;;
	shifted) ublk copy -n "$id" "$((from + 512))+$length" "$to" ;;
	lagging)
		[ -e "$0.data" ] || dd if="/dev/ublkb$id" of="$0.data" bs=1M count=4 iflag=direct status=none
		dd if="$0.data" of="/dev/ublkb$id" iflag=skip_bytes,count_bytes skip="$from" count="$length" \
			oflag=direct,seek_bytes seek="$to" bs=64k conv=notrunc,nocreat,nocreat status=none
		;;
	esac || exit
	to=$((to + length))
done
END
chmod +x "$work/wrong"
finds() {
	check_fails "stamp finds $1" 1 '^wrong: .* holds' \
		stamped --copy "$work/wrong $2 $id" --copies 20 --seed 5
	note "$(head -n 3 "$work/stamp.log")"
}
finds "swapped operands" swapped
finds "a lost tail" short
finds "data of the next sector" shifted
finds "data from before the copy" lagging

# A copy that is right and then written once more, late, by a writer that `stamp` does not know.
cat >"$work/late" <<'END'
#!/bin/bash
# usage: late ID SOURCE+LENGTH... DESTINATION
id=$1 to=${*: -1}
shift
ublk copy -n "$id" "$@" || exit
(
	dd if="/dev/ublkb$id" of="$0.data" iflag=direct,skip_bytes,count_bytes skip="$to" count=4096 bs=4096 status=none
	sleep 3
	dd if="$0.data" of="/dev/ublkb$id" oflag=direct,seek_bytes seek="$to" bs=4096 conv=notrunc,nocreat,nocreat status=none
) >/dev/null 2>&1 &
END
chmod +x "$work/late"
check_fails "stamp finds a change after the copy" 1 '^wrong: .* holds' \
	stamped --copy "$work/late $id" --copies 20 --seed 6 --destination-writers 0
# The late writers end before the disk does.
within 20 sh -c "! pgrep -f $work/lat[e]"
exit 0
