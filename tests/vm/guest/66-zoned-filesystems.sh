# limit: 600
# long: yes
# needs: mkfs.f2fs fsck.f2fs mkfs.btrfs btrfs diff
# File systems for zoned disks live on one: they keep a tree of files over a new mount, delete and write until zones
# are used again, and their checkers find nothing. btrfs writes its data by zone append.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

mkdir "$work/mnt" "$work/tree"
(cd /usr && find lib/python3* share/doc include bin -xdev -type f -size -2000k 2>/dev/null |
	head -n 800 | tar -c --no-recursion -T - -f -) | head -c 8M | tar -x -C "$work/tree" 2>/dev/null
random "$work/tree/random" 4M
note "the tree: $(find "$work/tree" | wc -l) files, $(du -sm "$work/tree" | cut -f 1) MB"

same_tree() { diff -r --no-dereference "$work/tree" "$work/mnt/tree"; }
check_f2fs() { fsck.f2fs --dry-run "$disk"; }
check_btrfs() { btrfs check "$disk"; }
mkfs_f2fs() { mkfs.f2fs -f -m "$disk"; }
mkfs_btrfs() { mkfs.btrfs -f -O zoned -d single -m single "$disk"; }
at_exit 'mountpoint -q $work/mnt && umount $work/mnt'
# churn: writes and deletes more than the free zones take.
churn() {
	local n
	for n in 1 2 3 4 5 6; do
		cp -a "$work/tree" "$work/mnt/churn" && sync -f "$work/mnt" && rm -rf "$work/mnt/churn" && sync -f "$work/mnt" || return
	done
}

exercise() {
	local type=$1
	check "$type: mkfs" "mkfs_$type"
	check "$type: mount" mount -t "$type" "$disk" "$work/mnt" || return
	check "$type: a tree is copied" cp -a "$work/tree" "$work/mnt/tree"
	check "$type: files come and go" churn
	check "$type: umount" umount "$work/mnt"
	check "$type: the checker finds nothing" "check_$type"
	check "$type: mount again" mount -t "$type" "$disk" "$work/mnt"
	check "$type: the tree is the same" same_tree
	check "$type: umount at the end" umount "$work/mnt"
	timeout 60 ublk del -n "$id"
}

add --size 512M --memory 1G --zoned --zone-size 4M --conventional-zones 16 || bail "a zoned disk is added"
exercise f2fs
add --size 1G --memory 1G --zoned --zone-size 16M || bail "a zoned disk for btrfs is added"
exercise btrfs
