# limit: 1200
# long: yes
# needs: logwrites dmsetup mkfs.ext4 fsck.ext4 mkfs.xfs xfs_repair
# Everything that reaches a device is logged. Replayed up to any flush, a pool on it opens and holds what was acknowledged
# by then; and a file system on a disk is whole.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

modprobe dm-log-writes || bail "dm-log-writes can be loaded"
# At most so many replays.
: "${times:=40}"

# logged SIZE: the logged device over $under, whose log is $log.
logged() {
	dmsetup create logged --table "0 $(blockdev --getsz "$under") log-writes $under $log" || return 1
	at_exit '[ ! -e /dev/mapper/logged ] || dmsetup remove --retry logged'
}

# points N: at most $times numbers from 1 to N, spread evenly, the last one N.
points() { awk -v n="$1" -v times="$times" 'BEGIN { if (times > n) times = n
	for (i = 1; i <= times; i++) print int(i * n / times) }'; }

# Below a pool.
add --size 40M --cache volatile --pool logs --name under || bail "a device is added"
under=$disk
add --size 1G --pool logs --name log && log=$disk || bail "a device for the log is added"
add --size 40M --pool logs --name replayed && replayed=$disk || bail "a device to replay to is added"
add --size 40M --pool logs --name tried && tried=$disk tried_id=$id || bail "a device to try on is added"
logged || bail "a device is logged"
add -t file -f /dev/mapper/logged --size 16M --name v || bail "a disk on the logged device is added"
check "work with a flush a round" timeout 300 logwrites work "$disk" 1024 1 60 "$work/acks" logged
timeout 60 ublk del -n "$id"
check "the log ends" dmsetup remove --retry logged
flushes=$(logwrites flushes "$log")
note "$flushes flushes, $(wc -l <"$work/acks") changes"
check "a flush a round at least" test "$flushes" -ge 60

at=0 opened=0 verified=0 tried_points=0
for point in $(points "$flushes"); do
	round=$(timeout 60 logwrites replay "$log" "$at" "$point" "$replayed") || { not_ok "replay to flush $point"; break; }
	at=$point
	# As far as a whole pool; before that there is nothing to be acknowledged.
	[ "$round" -gt 0 ] || continue
	tried_points=$((tried_points + 1))
	timeout 60 ublk copy -n "$tried_id" --from replayed 0+40M 0 --fast-only || { not_ok "copy at flush $point"; break; }
	if add -t file -f "$tried" --name v; then
		opened=$((opened + 1))
		if timeout 60 logwrites verify "$disk" 1024 "$work/acks" "$round"; then verified=$((verified + 1)); fi
		timeout 60 ublk del -n "$id"
		timeout 60 ublk check "$tried" >/dev/null || note "flush $point: the check fails"
	else
		note "flush $point, round $round: does not open"
	fi
done
note "$tried_points replays, $opened opened, $verified as acknowledged"
check "enough replays" test "$tried_points" -ge 20
equal "each replay opens" "$opened" "$tried_points"
equal "and holds what was acknowledged" "$verified" "$tried_points"
# The judge sees what is missing: the last replay against a round that it has, with one version too few.
awk '$1 == 60 { $3 = 61 } { print }' "$work/acks" >"$work/wrong"
add -t file -f "$tried" --name v
check_fails "the judge finds a block that is not there" 1 'holds none of the versions' \
	timeout 60 logwrites verify "$disk" 1024 "$work/wrong" 60
timeout 60 ublk del -n "$id"
for name in under log replayed tried; do timeout 60 ublk del -n "$name"; done

# Above a disk.
# above FS SIZE CHECKER...
above() {
	local fs=$1 size=$2 point at=0 clean=0 all=0 n
	shift 2
	add --size "$size" --cache volatile --pool above --name under || { not_ok "$fs: add"; return; }
	under=$disk
	add --size 4G --pool above --name log && log=$disk
	add --size "$size" --pool above --name replayed && replayed=$disk
	add --size "$size" --pool above --name tried && tried=$disk tried_id=$id
	logged || { not_ok "$fs: a disk is logged"; return; }
	"mkfs.$fs" -q /dev/mapper/logged || { not_ok "$fs: mkfs"; return; }
	dmsetup message logged 0 mark made
	mkdir -p "$work/mnt"
	mount /dev/mapper/logged "$work/mnt" || { not_ok "$fs: mount"; return; }
	for n in $(seq 12); do
		head -c $((RANDOM * 3)) /dev/urandom >"$work/mnt/file$((n % 5))"
		[ $((n % 3)) -ne 0 ] || rm "$work/mnt/file$((n % 5))"
		sync -f "$work/mnt"
	done
	umount "$work/mnt"
	dmsetup remove --retry logged
	flushes=$(logwrites flushes "$log")
	# The first ones are those of mkfs.
	for point in $(times=$((times > 40 ? times : 8)) points "$flushes"); do
		timeout 60 logwrites replay "$log" "$at" "$point" "$replayed" >/dev/null || break
		at=$point
		timeout 60 ublk copy -n "$tried_id" --from replayed "0+$size" 0 --fast-only || break
		mount "$tried" "$work/mnt" 2>/dev/null || continue
		all=$((all + 1))
		umount "$work/mnt"
		if "$@" "$tried" >"$work/checked" 2>&1; then clean=$((clean + 1)); else cat "$work/checked"; fi
	done
	note "$fs: $flushes flushes, $all replays mounted, $clean clean"
	check "$fs: enough replays" test "$all" -ge 4
	equal "$fs: the checker finds nothing after any" "$clean" "$all"
	for name in under log replayed tried; do timeout 60 ublk del -n "$name"; done
}

above ext4 64M fsck.ext4 -f -n
above xfs 320M xfs_repair -n
