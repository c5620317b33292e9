# limit: 600
# needs: fio mkfs.ext4 fsck.ext4 blkdiscard
# Disks in a file and on a block device keep what was written, share by remapping, give back what is discarded, live
# through a full backing, and flush it as little as they may.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

mib=$((1 << 20))
random "$work/one" $((4 * mib))
random "$work/two" $mib

# reopened WHAT OPTION...: the disk is deleted and opened again.
reopened() {
	local what=$1
	shift
	timeout 60 ublk del -n "$id" || { not_ok "$what: del"; return 1; }
	add "$@" || { not_ok "$what: it is opened again"; return 1; }
}

# What every kind of backing has to do; the rest are the options that open the disk again.
exercise() {
	local what=$1
	shift
	equal "$what: a volatile cache" "$(queue_limit write_cache)" "write back"
	cat >"$work/jobs" <<-END
		[global]
		direct=1
		ioengine=io_uring
		iodepth=8
		size=16m
		offset=32m
		verify=crc32c
		verify_fatal=1
		[$what-random-4k]
		stonewall
		rw=randwrite
		bs=4k
		io_size=8m
		[$what-mixed]
		stonewall
		rw=randwrite
		bssplit=512/30:4k/30:64k/30:512k/10
		io_size=16m
		fdatasync=32
	END
	fio_jobs "$work/jobs"
	put "$work/one" 0
	put "$work/two" 4608
	check "$what: a copy by remapping" timeout 60 ublk copy -n "$id" 0+4M 8M --fast-only
	check "$what: all of it was remapped" test "$(counter remapped_bytes)" -ge $((4 * mib))
	check "$what: a copy by moving" timeout 60 ublk copy -n "$id" 512+2M 16M --verify
	check "$what: blkdiscard" blkdiscard -o $((32 * mib)) -l $((16 * mib)) "$disk"
	check "$what: what is discarded reads as zeroes" zeroes $((32 * mib)) $mib
	reopened "$what" "$@" || return
	check "$what: after opening it again a write is there" holds "$work/two" 4608
	check "$what: and a copy" holds "$work/two" $((8 * mib + 4608))
	check "$what: and the discard" zeroes $((32 * mib)) $((16 * mib))
	check "$what: mkfs" mkfs.ext4 -q -F "$disk"
	reopened "$what" "$@" || return
	check "$what: the checker finds nothing" fsck.ext4 -f -n "$disk"
}

file=$work/disk
add -t file -f "$file" --size 128M || bail "a disk in a file is added"
equal "file: its size" "$(blockdev --getsize64 "$disk")" $((128 * mib))
exercise file -t file -f "$file"
check_fails "file: in use" 1 'in use' ublk add -t file -f "$file" --name other
check "file: del" timeout 60 ublk del -n "$id"
check_fails "file: another size" 1 'has 128 MiB' ublk add -t file -f "$file" --size 64M
check "file: check" ublk check "$file"
check "file: nothing is left in shared memory" test -z "$(find /dev/shm/ublk -mindepth 1 2>/dev/null)"
check "file: export" ublk export "$file" "$work/raw"
equal "file: the image has the size of the disk" "$(stat -c %s "$work/raw")" $((128 * mib))
check "file: import" ublk import "$work/raw" "$work/again"
add -t file -f "$work/again" || bail "the imported disk is added"
check "file: what was imported is the same" cmp "$work/raw" "$disk"
timeout 60 ublk del -n "$id"

# A block device with a volatile cache, whose flushes are counted.
add --size 256M --cache volatile --name backing || bail "a backing device is added"
backing=$disk backing_id=$id
add -t file -f "$backing" --size 128M || bail "a disk on a block device is added"
exercise device -t file -f "$backing"
check_fails "device: is held" 1 'in use|busy' ublk add -t loop -f "$backing"
# The device commits by itself, too, when enough has been discarded: not among what is counted.
settled() { local n; n=$(counter flush "$backing_id"); sleep 1; [ "$(counter flush "$backing_id")" = "$n" ]; }
check "device: nothing is under way" within 30 settled
before=$(counter flush "$backing_id") bytes=$(counter door_written_bytes "$backing_id")
for n in 1 2 3 4 5 6 7 8; do
	dd if="$work/two" of="$disk" bs=4k count=1 oflag=direct,seek_bytes seek=$((n * 4096 * 37)) conv=notrunc,nocreat,fsync status=none
done
flushes=$(($(counter flush "$backing_id") - before))
written=$(($(counter door_written_bytes "$backing_id") - bytes))
note "8 writes of 4 KiB with fsync: $flushes flushes, $written bytes"
check "device: at most two flushes for a write and a flush" test "$flushes" -le 16
check "device: at most 64 KiB of metadata for each" test $((written - 8 * 4096)) -le $((8 * 65536))
check "device: del" timeout 60 ublk del -n "$id"
check "device: check" ublk check "$backing"
head -c 4096 /dev/urandom | dd of="$backing" bs=4k count=1 oflag=direct conv=notrunc,nocreat status=none
check_fails "device: something else is not touched" 1 'something else' ublk add -t file -f "$backing"
timeout 60 ublk del -n backing

# A backing that is full fails the request, and the disk lives.
mkdir "$work/small"
mount -t tmpfs -o size=48m none "$work/small" || bail "a small file system"
at_exit 'mountpoint -q $work/small && umount $work/small'
add -t file -f "$work/small/disk" --size 128M || bail "a disk in a small file system is added"
put "$work/one" 0
check_fails "full: the write fails for space" 1 'No space' \
	dd if=/dev/urandom of="$disk" bs=1M seek=8 count=100 oflag=direct conv=notrunc,nocreat status=none
check "full: what was written is there" holds "$work/one" 0
check "full: discard" blkdiscard -o $((8 * mib)) -l $((120 * mib)) "$disk"
check "full: sync" sync "$disk"
space() { [ "$(df --output=avail -B1 "$work/small" | tail -n 1)" -gt $((8 * mib)) ]; }
check "full: what is discarded is given back" within 20 space
check "full: then there is space again" put "$work/one" $((8 * mib))
check "full: and it is used" holds "$work/one" $((8 * mib))
check "full: del" timeout 60 ublk del -n "$id"
check "full: check" ublk check "$work/small/disk"
