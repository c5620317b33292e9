# limit: 600
# long: yes
# needs: nvme modprobe blkzone mkfs.f2fs fsck.f2fs diff fio
# A zoned disk over NVMe/TCP is a zoned namespace of the kernel's host: every action, append and copies by nvme-cli,
# writes at the pointer by the kernel, and f2fs on it. Beside a block device it is read here and written there.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
. "$(dirname "$0")/nvme.sh"

mib=$((1 << 20)) zone=$((4 << 20))
modprobe nvme-tcp || bail "the host's driver can be loaded"
pool=(--pool zones --nvme-tcp 127.0.0.1:4420)
ublk add --no-ublk --name zoned --memory 1G --size 512M --zoned --zone-size 4M --zone-capacity 3M --max-open 16 \
	--max-active 32 "${pool[@]}" >/dev/null || bail "a zoned disk is added"
at_exit 'timeout 60 ublk del -n zoned'
ublk add --no-ublk --name plain --size 128M "${pool[@]}" >/dev/null || bail "a plain disk is added"
at_exit 'timeout 60 ublk del -n plain'
nqn=$(ublk info -n zoned --json | subsystem)
connect || bail "the host connects" dmesg
at_exit 'disconnect >/dev/null 2>&1'
{ within 30 namespace 1 && within 30 namespace 2; } || bail "the host finds both namespaces" dmesg
ns=$(namespace 1) plain=$(namespace 2) disk=$ns
note "zoned $ns, plain $plain"

attribute() { equal "$1" "$(cat "/sys/block/${ns#/dev/}/queue/$1")" "$2"; }
attribute zoned host-managed
attribute chunk_sectors $((zone / 512))
attribute nr_zones 128
attribute max_open_zones 16
attribute max_active_zones 32
attribute zone_append_max_bytes $mib
equal "it can be written" "$(blockdev --getro "$ns")" 0
check "nvme zns list shows it" sh -c 'nvme zns list | grep -q "$1"' - "$ns"
check "nvme zns id-ns" sh -c 'nvme zns id-ns "$1" | grep -q "mor *: *0xf"' - "$ns"
check "nvme zns id-ctrl" sh -c 'nvme zns id-ctrl "$1" | grep -q "zasl *: *8"' - "/dev/$ctrl"
check "nvme zns effects: append is supported" sh -c \
	'test $(($(nvme get-log "$1" -i 5 -l 4096 --csi=2 -b | od -A n -t u4 -j $((1024 + 0x7d * 4)) -N 4) & 3)) = 3' - "/dev/$ctrl"

# state ZONE: its state, and its write pointer in blocks from its start where it has one.
state() {
	local found names=(- EMPTY IMP_OPENED EXP_OPENED CLOSED - - - - - - - - READ_ONLY FULL OFFLINE)
	found=$(nvme zns report-zones "$ns" --start-lba=$(($1 * zone / 512)) --descs=1 |
		sed -n 's/0x//g; s/^SLBA: *\([0-9a-f]*\) *WP: *\([0-9a-f]*\) .*State: *\([0-9a-f]*\)0 .*/0x\3 0x\1 0x\2/p')
	# shellcheck disable=SC2086
	set -- $found
	[ $# -eq 3 ] || return
	if [ "$3" = 0xffffffffffffffff ]; then echo "${names[$1]}"; else echo "${names[$1]} $(($3 - $2))"; fi
}
act() { timeout 60 nvme zns "$1" "$ns" --start-lba=$(($2 * zone / 512)); }
random "$work/a" 65536
check "append" timeout 60 nvme zns zone-append "$ns" --zslba=$((2 * zone / 512)) -z 65536 -d "$work/a"
equal "append: the pointer moves" "$(state 2)" "IMP_OPENED 128"
check "append: again" timeout 60 nvme zns zone-append "$ns" --zslba=$((2 * zone / 512)) -z 65536 -d "$work/a"
check "append: the data is behind the other" holds "$work/a" $((2 * zone + 65536))
for action in 'close-zone CLOSED 256' 'open-zone EXP_OPENED 256' 'finish-zone FULL' 'reset-zone EMPTY 0'; do
	set -- $action
	check "$1" act "$1" 2
	equal "$1: the zone is $2" "$(state 2)" "${action#* }"
done
# The kernel's own writes, in a zone that only it writes.
put_at() { dd if="$1" of="$ns" bs=64k oflag=direct,seek_bytes seek="$2" conv=notrunc,nocreat status=none; }
check "the kernel writes at the pointer" put_at "$work/a" $((4 * zone))
check "and on" put_at "$work/a" $((4 * zone + 65536))
check_fails "and nowhere else" 1 'Input/output error' put_at "$work/a" $((4 * zone + 262144))
check "nvme copy into a zone" timeout 60 nvme copy "$ns" --sdlba=$((6 * zone / 512)) --slbs=$((4 * zone / 512)) --blocks=127
check "nvme copy: arrives" holds "$work/a" $((6 * zone))
equal "nvme copy: the pointer moves" "$(state 6)" "IMP_OPENED 128"
refused "nvme copy: off the pointer" 'ZONE_INVALID_WRITE|Zone Invalid Write|0x1bc|1bc' \
	timeout 60 nvme copy "$ns" --sdlba=$((6 * zone / 512)) --slbs=$((4 * zone / 512)) --blocks=127
check "blkzone reset of the whole disk" timeout 60 blkzone reset "$ns"
equal "every zone is empty" "$(blkzone report "$ns" | grep -c '(em)')" 128

cat >"$work/zbd.fio" <<'END'
[zoned writes]
direct=1
zonemode=zbd
ioengine=io_uring
iodepth=8
rw=randwrite
bs=64k
size=96m
io_size=24m
max_open_zones=8
verify=crc32c
do_verify=1
END
fio_jobs "$work/zbd.fio"
check "blkzone reset again" timeout 60 blkzone reset "$ns"

mkdir "$work/mnt" "$work/tree"
tar -C /usr/share -c doc 2>/dev/null | head -c 6M | tar -x -C "$work/tree" 2>/dev/null
at_exit 'mountpoint -q $work/mnt && umount $work/mnt'
check "f2fs: mkfs, the zoned namespace beside the plain one" mkfs.f2fs -f -m -c "$ns" "$plain"
check "f2fs: mount" mount -t f2fs "$plain" "$work/mnt" && {
	check "f2fs: a tree is copied" cp -a "$work/tree" "$work/mnt/tree"
	check "f2fs: umount" umount "$work/mnt"
	check "f2fs: the checker finds nothing" fsck.f2fs --dry-run "$plain"
	check "f2fs: mount again" mount -t f2fs "$plain" "$work/mnt"
	check "f2fs: the tree is the same" diff -r --no-dereference "$work/tree" "$work/mnt/tree"
	check "f2fs: umount again" umount "$work/mnt"
}
disconnect

# Two doors: the block device writes.
add --size 64M --memory 256M --zoned --zone-size 4M --nvme-tcp 127.0.0.1:4421 || bail "a zoned disk with both doors is added"
nqn=$(ublk info -n "$id" --json | subsystem)
check "the second door connects" timeout 90 nvme connect -t tcp -a 127.0.0.1 -s 4421 -n "$nqn" -q "$nvme_host" -I "$nvme_hostid" -c 1 -l 120
within 20 controller && ctrl=$(controller)
within 30 namespace 1 || bail "the host finds the namespace" dmesg
ns=$(namespace 1)
equal "over NVMe it is read-only" "$(blockdev --getro "$ns")" 1
equal "the block device is not" "$(blockdev --getro "$disk")" 0
check "the block device writes" put "$work/a" 0
disk=$ns
check "and NVMe reads" holds "$work/a" 0
equal "and sees the pointer" "$(state 0)" "IMP_OPENED 128"
refused "append over NVMe is refused" 'rite [Pp]rotected|0x20|420' \
	timeout 60 nvme zns zone-append "$ns" --zslba=0 -z 65536 -d "$work/a"
refused "reset over NVMe is refused" 'rite [Pp]rotected|0x20|420' act reset-zone 0
