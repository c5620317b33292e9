# limit: 420
# needs: mkfs.ext4 mkfs.xfs fsck.ext4 xfs_repair fstrim diff
# File systems live on the disk: they keep a tree of files over a new mount, their checkers find nothing, and
# what they trim is given back.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

mkdir "$work/mnt" "$work/tree"
# Some 16 MB of real files of all sizes, with links, modes and times.
(cd /usr && find lib/python3* share/perl* share/doc include bin -xdev \( -type f -size -2000k -o -type l \) 2>/dev/null |
	head -n 1500 | tar -c --no-recursion -T - -f -) | head -c 16M | tar -x -C "$work/tree" 2>/dev/null
random "$work/tree/random" 4M
note "the tree: $(find "$work/tree" | wc -l) files, $(du -sm "$work/tree" | cut -f 1) MB"

same_tree() { diff -r --no-dereference "$work/tree" "$work/mnt/tree"; }
check_ext4() { fsck.ext4 -f -n "$disk"; }
check_xfs() { xfs_repair -n "$disk"; }
at_exit 'mountpoint -q $work/mnt && umount $work/mnt'

exercise() {
	local type=$1
	shift
	check "$type: mkfs" "mkfs.$type" -q "$@" "$disk"
	check "$type: mount" mount -t "$type" "$disk" "$work/mnt" || return
	check "$type: a tree is copied" cp -a "$work/tree" "$work/mnt/tree"
	check "$type: umount" umount "$work/mnt"
	check "$type: the checker finds nothing" "check_$type"
	check "$type: mount again" mount -t "$type" "$disk" "$work/mnt"
	check "$type: the tree is the same" same_tree
	check "$type: the tree is deleted" rm -rf "$work/mnt/tree"
	sync -f "$work/mnt"
	local before after
	before=$(usage mapped_bytes)
	check "$type: fstrim" fstrim "$work/mnt"
	after=$(usage mapped_bytes)
	note "$type: in use before fstrim $before, after it $after"
	check "$type: what is trimmed is given back" test "$after" -lt $((before - (8 << 20)))
	check "$type: umount after fstrim" umount "$work/mnt"
	check "$type: the checker finds nothing after fstrim" "check_$type"
}

add --size 256M || bail "a disk is added"
exercise ext4 -b 4096
timeout 60 ublk del -n "$id"
add --size 512M -q 2 --cache volatile || bail "a disk with a volatile cache is added"
exercise xfs
timeout 60 ublk del -n "$id"
