# limit: 300
# needs: http-unix addpart delpart mkfs.ext4
# A copy beside the block device and the host's page cache: what the host has written and not yet sent is copied,
# what it has cached of the destination does not survive, on the disk and on its partitions; a disk that
# somebody holds is refused. Without the helper that does this the host reads stale data, which is shown too.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

mib=$((1 << 20))
add --size 64M -q 2 || bail "a disk is added"
# The kernel sends cached writes when it sees fit, and all of them when the last user closes: neither here.
writeback=$(cat /proc/sys/vm/dirty_writeback_centisecs)
at_exit "echo $writeback >/proc/sys/vm/dirty_writeback_centisecs"
echo 0 >/proc/sys/vm/dirty_writeback_centisecs
exec 7<>"$disk"

# cached_write FILE OFFSET [NODE]: writes into the page cache of a node; it stays there.
cached_write() {
	dd if="$1" of="${3:-$disk}" bs=64k oflag=seek_bytes seek="$2" conv=notrunc,nocreat status=none
}
# cached_holds FILE OFFSET [NODE]: what an ordinary reader sees.
cached_holds() {
	dd if="${3:-$disk}" of="$work/seen" bs=64k iflag=skip_bytes,count_bytes skip="$2" \
		count="$(stat -c %s "$1")" status=none && cmp "$1" "$work/seen"
}
# device_holds FILE OFFSET: what the disk itself has, asked through the API: direct reads would write back first.
device_holds() {
	local length
	length=$(stat -c %s "$1")
	api GET "/v1/disks/$id/data?offset=$2&length=$length" >"$work/inside" && cmp -s "$1" "$work/inside"
}
copy() { timeout 90 ublk copy -n "$id" "$@"; }
for name in a b c d; do random "$work/$name" $((256 << 10)); done
length=$((256 << 10))

# Written, but only to the host's cache: the disk does not have it, the copy has to bring it.
put "$work/a" 0
cached_write "$work/b" 0
if device_holds "$work/b" 0; then
	not_ok "dirty source: the test has dirty pages"
else
	ok "dirty source: the test has dirty pages"
fi
check "dirty source: the copy" copy 0+$length $((8 * mib))
check "dirty source" holds "$work/b" $((8 * mib))
check "dirty source: an ordinary reader sees it, too" cached_holds "$work/b" $((8 * mib))

# Dirty pages of the destination must not be written over the copy later.
cached_write "$work/c" $((16 * mib))
check "dirty destination: the copy" copy 0+$length $((16 * mib))
check "dirty destination: an ordinary reader sees the copy" cached_holds "$work/b" $((16 * mib))
sync
check "dirty destination" holds "$work/b" $((16 * mib))
check "dirty destination: nothing comes late" device_holds "$work/b" $((16 * mib))

# Clean pages of the destination must not be what a reader sees.
put "$work/c" $((24 * mib))
check "cached clean destination: the test has cached pages" cached_holds "$work/c" $((24 * mib))
check "cached clean destination: the copy" copy 0+$length $((24 * mib))
check "cached clean destination" cached_holds "$work/b" $((24 * mib))

# A page holds eight sectors. One is copied; the dirty ones beside it, of the source's page and of the
# destination's, stay what the host wrote.
put "$work/a" 0
put "$work/c" $((32 * mib))
head -c 4096 "$work/b" >"$work/page.b"
head -c 4096 "$work/d" >"$work/page.d"
cached_write "$work/page.b" 0
cached_write "$work/page.d" $((32 * mib))
check "512-byte copy: the copy" copy 1024+512 $((32 * mib + 1536))
cp "$work/page.d" "$work/page"
dd if="$work/page.b" of="$work/page" bs=512 skip=2 seek=3 count=1 conv=notrunc status=none
check "512-byte copy" cached_holds "$work/page" $((32 * mib))
sync
check "512-byte copy: on the disk, too" holds "$work/page" $((32 * mib))
check "512-byte copy: the source's page, too" holds "$work/page.b" 0

# A partition has pages of its own for the same bytes.
first=$((40 * mib)) second=$((48 * mib))
addpart "$disk" 1 $((first / 512)) $((4 * mib / 512)) || bail "a partition is added"
addpart "$disk" 2 $((second / 512)) $((4 * mib / 512)) || bail "a second one is added"
at_exit "delpart $disk 1; delpart $disk 2"
within 10 test -b "${disk}p2" || bail "the partitions are there"
exec 8<>"${disk}p1" 9<>"${disk}p2"
put "$work/a" $first
put "$work/c" $second
cached_write "$work/b" 0 "${disk}p1"
check "partition node: the test has cached pages" cached_holds "$work/c" 0 "${disk}p2"
check "partition node: the copy" copy $first+$length $second
check "partition node" cached_holds "$work/b" 0 "${disk}p2"
check "partition node: dirty pages of the source's partition are copied" holds "$work/b" $second
cached_write "$work/d" 4096 "${disk}p2"
check "partition node: a copy onto dirty pages of a partition" copy 0+$length $((second + 4096))
get "$work/source" 0 $length
check "partition node: its reader sees the copy" cached_holds "$work/source" 4096 "${disk}p2"
sync
check "partition node: nothing comes late" holds "$work/source" $((second + 4096))
exec 8<&- 9<&-

# What somebody holds.
mkfs.ext4 -q "${disk}p1" && mkdir "$work/mnt" && mount "${disk}p1" "$work/mnt" || bail "a partition is mounted"
at_exit 'mountpoint -q $work/mnt && umount $work/mnt'
put "$work/c" $((24 * mib))
check_fails "claimed disk" 1 "mounted on $work/mnt" copy 0+$length $((24 * mib))
check "claimed disk: nothing has changed" holds "$work/c" $((24 * mib))
check "claimed disk: --force copies" copy --force 0+$length $((24 * mib))
get "$work/source" 0 $length
check "claimed disk: the forced copy arrives" holds "$work/source" $((24 * mib))
umount "$work/mnt"
check "claimed disk: released" copy 0+$length $((24 * mib))

# Without the helper the bytes change below the cache, and the host does not notice.
put "$work/a" $((24 * mib))
check "without the helper: the test has cached pages" cached_holds "$work/a" $((24 * mib))
check_fails "without the helper: refused unless forced" 1 'has a block device' \
	api PUT "/v1/disks/$id/data?offset=$((24 * mib))" "@$work/b"
check "without the helper: the disk is changed below" \
	api PUT "/v1/disks/$id/data?offset=$((24 * mib))&force=true" "@$work/b"
check "without the helper: an ordinary reader sees stale data" cached_holds "$work/a" $((24 * mib))
check "without the helper: a direct reader does not" holds "$work/b" $((24 * mib))
exec 7<&-
timeout 60 ublk del -n "$id"

# The server dies while the host's cached writes are on their way to it.
add --size 512M --memory 1G || bail "a disk is added"
exec 7<>"$disk"
random "$work/large" $((64 * mib))
for at in 0 64 128; do cached_write "$work/large" $((at * mib)); done
copy 0+192M 256M >"$work/copy.log" 2>&1 &
copier=$!
flushing() { api GET "/v1/disks/$id/copies" | grep -q '"state":"writing-back"'; }
check "server killed in mid-flush: the flush is under way" within 20 flushing
kill -KILL "$server"
check "server killed in mid-flush: the copy ends" ended 30 "$copier"
wait "$copier"
check "server killed in mid-flush: with an error" test $? -ne 0
note "$(cat "$work/copy.log")"
exec 7<&-
check "server killed in mid-flush: no helper is left" within 20 sh -c '! pgrep -f coherence-helpe[r]'
check "server killed in mid-flush: no task is blocked" within 10 unblocked
check "server killed in mid-flush: del" timeout 40 ublk del -n "$id"
check "server killed in mid-flush: all is gone" no_disk "$id"
