# limit: 300
# needs: setpriv unshare mkfs.ext4 http-unix
# Everything that can go wrong has a message of its own, an exit status, and changes nothing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

# What a user sees who asks for what makes no sense: status 2.
usage_error() {
	local what=$1 pattern=$2
	shift 2
	check_fails "$what" 2 "$pattern" timeout 60 ublk "$@"
}
usage_error "unknown option" '--no-such-option' add --no-such-option
usage_error "unknown command" 'no-such-command' no-such-command
usage_error "unknown type" "'floppy'|floppy" add -t floppy
usage_error "size that is no size" 'abc' add --size abc
usage_error "size 0" 'size 0' add --size 0
usage_error "size that is no multiple of the map block" '10000|multiple' add --size 10000
usage_error "size beyond every device" 'at most' add --size 16777215T
usage_error "logical block that is no power of two" '1000|logical' add --logical-block-size 1000
usage_error "map block beyond 64K" '128K|131072|map block' add --map-block 128K
usage_error "map block below the logical block" 'map|logical' add --logical-block-size 4096 --map-block 512
usage_error "queues 0" 'queues 0' add -q 0
usage_error "depth beyond the driver's" 'depth 5000' add -d 5000
usage_error "more memory than there is" 'only .* available' add --memory 64T
usage_error "loop without a file" '-f PATH' add -t loop
usage_error "ram with a file" '-f PATH' add -f /etc/hostname
usage_error "a name like a device's" 'ublkbN' add --name ublkb5
usage_error "segment limit beyond what a descriptor can say" 'segment' add --copy-max-segment-bytes 1G
usage_error "a change that cannot be" 'size=1' set -n 0 size=1
usage_error "a copy of nothing" 'nothing to copy' copy -n 0
check_fails "loop on a file that is not there" 2 'no-such-file' timeout 60 ublk add -t loop -f "$work/no-such-file"
check_fails "copy on a disk that is not there" 1 'no disk 99' ublk copy -n 99 0+4K 1M
check_fails "info of a disk that is not there" 1 'no disk 99' ublk info -n 99
equal "none of these left a disk" "$(ublk list)" ""
equal "or state" "$(find /run/ublk -mindepth 2)" ""

# Without the driver's node. /dev/null stays: programs need it.
without_driver() {
	unshare --mount bash -c '
		mkdir "$0/dev" && mount -t tmpfs none "$0/dev" && touch "$0/dev/null" &&
		mount --bind /dev/null "$0/dev/null" && mount --move "$0/dev" /dev && exec "$@"' "$work" "$@"
}
check_fails "the module is missing" 3 'driver is not loaded' \
	without_driver timeout 60 ublk add
rm -rf "$work/dev"

# An ordinary user, with a program that he can reach and a place for state.
mkdir -p "$work/nobody/bin" "$work/nobody/run" && chmod 755 "$work" "$work/nobody" "$work/nobody/bin"
install -m 755 "$(command -v ublk)" "$work/nobody/bin/ublk"
chown 65534:65534 "$work/nobody/run" && chmod 700 "$work/nobody/run"
as_nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
		env XDG_RUNTIME_DIR="$work/nobody/run" "$work/nobody/bin/ublk" "$@"
}
check_fails "not root" 3 'no permission for /dev/ublk-control' as_nobody add --memory 64M
check "not root, without a block device" test "$(as_nobody add --memory 64M --size 64M --no-ublk --name mine)" = mine
check "which is deleted" as_nobody del -n mine
check_fails "no place for state" 1 'XDG_RUNTIME_DIR' \
	setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all env -u XDG_RUNTIME_DIR "$work/nobody/bin/ublk" add

sysctl -q -w kernel.io_uring_disabled=2
at_exit 'sysctl -q -w kernel.io_uring_disabled=0'
check_fails "io_uring is disabled" 3 'kernel.io_uring_disabled is 2' timeout 60 ublk add
sysctl -q -w kernel.io_uring_disabled=0

# From 6.15 on the driver counts the disks of users who are not root, before that all of them.
limit=/sys/module/ublk_drv/parameters/ublks_max
most=$(cat $limit)
at_exit "echo $most >$limit; chmod 600 /dev/ublk-control"
echo 0 >$limit
chmod 666 /dev/ublk-control
check_fails "the device limit is reached" 1 'limit of ublk devices is reached' as_nobody add --unprivileged --memory 64M
echo "$most" >$limit
chmod 600 /dev/ublk-control

add --size 128M --name mounted --memory 256M || bail "a disk is added"
mkfs.ext4 -q "$disk" && mkdir "$work/mnt" && mount "$disk" "$work/mnt" || bail "it is mounted"
at_exit "mountpoint -q $work/mnt && umount $work/mnt"
check_fails "del of a mounted disk" 1 "mounted on $work/mnt" timeout 60 ublk del -n "$id"
check_fails "copy on a mounted disk" 1 "mounted on $work/mnt" timeout 60 ublk copy -n "$id" 0+4K 64M
check_fails "del of a mounted disk without its server" 1 "mounted on $work/mnt" timeout 60 ublk del -a
check "it is still there" test -s "$work/mnt/lost+found" -o -d "$work/mnt/lost+found"
umount "$work/mnt"
mounted=$id

add --size 128M --name other --memory 256M || bail "a disk in another pool is added"
check_fails "copy from a disk of another pool" 1 'is in pool' \
	timeout 60 ublk copy -n other --from mounted 0+4K 64M
check_fails "copy past the end" 1 'beyond the end' timeout 60 ublk copy -n other 127M+2M 0
check_fails "copy of half a block" 2 'not a multiple of 512' timeout 60 ublk copy -n other 0+100 64M
check_fails "copy onto itself" 1 'overlap' timeout 60 ublk copy -n other 0+64K 32K
check_fails "limit that cannot be" 2 'copy_max|segment|limit' timeout 60 ublk set -n other copy-max-segments=0
check_fails "an API key that is not known" 1 '"error".*unknown field' \
	api PATCH /v1/disks/other/limits '{"copy-max-bytes":"1M"}'
check_fails "an API path that is not there" 1 '"code":"not-found"' api GET /v1/nothing
check_fails "a panic that was not asked for" 1 'not started for tests' \
	api POST /v1/debug/panic '{"thread":"queue"}'
check "the server lives on" ublk info -n other
check "and the other, too" ublk info -n "$mounted"
random "$work/data" 1M
put "$work/data" 0
check "and the disk works" holds "$work/data" 0
