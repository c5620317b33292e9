# limit: 400
# needs: blockdev cmp flock
# Disks come and go, look to the kernel as they were asked for, and show themselves in each format.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

path=$(timeout 60 ublk add 2>"$work/err") || bail "a disk is added" cat "$work/err"
at_exit "timeout 60 ublk del -n $path"
id=${path#/dev/ublkb}
check "add prints the path and nothing else" grep -q -x -E '/dev/ublkb[0-9]+' <<<"$path"
equal "add says nothing on standard error" "$(cat "$work/err")" ""
check "the block device is there" test -b "$path"
check "the character device is there" test -c "/dev/ublkc$id"
equal "it has 1 GiB" "$(blockdev --getsize64 "$path")" $((1 << 30))
equal "logical block" "$(queue_limit logical_block_size)" 512
equal "physical block" "$(queue_limit physical_block_size)" 4096
equal "smallest good request" "$(queue_limit minimum_io_size)" 4096
check "requests of 1 MiB" test "$(queue_limit max_hw_sectors_kb)" -ge 1024
equal "discard granularity" "$(queue_limit discard_granularity)" 4096
check "discards of more than 1 GiB" test "$(queue_limit discard_max_hw_bytes)" -gt $((1 << 30))
check "write zeroes of more than 1 GiB" test "$(queue_limit write_zeroes_max_bytes)" -gt $((1 << 30))
equal "no volatile cache" "$(queue_limit write_cache)" "write through"
equal "one queue" "$(find "/sys/block/ublkb$id/mq" -mindepth 1 -maxdepth 1 | wc -l)" 1
equal "depth 128" "$(cat "/sys/block/ublkb$id/mq/0/nr_tags")" 128

list=$(ublk list -n "$id")
equal "list: the device" "$(sed -n 1p <<<"$list")" \
	"dev id $id: nr_hw_queues 1 queue_depth 128 block size 512 dev_capacity 2097152"
check "list: the 7th word is the pid" test -d "/proc/$(listed 7 "$id")"
equal "list: the 9th word is the state" "$(listed 9 "$id")" LIVE
check "list: a queue" grep -q -E "^	queue 0: tid [0-9]+ affinity\(" <<<"$list"
rublk=$(ublk list --format rublk)
equal "list as rublk: the 11th word is the state" "$(awk 'NR == 2 { print $11 }' <<<"$rublk")" LIVE
equal "list as JSON" "$(ublk list --json | number schema)" 1
equal "list as JSON: the disk" "$(ublk list --json | number id)" "$id"
check "info names the device" grep -q -x -E "block device +$path" <(ublk info -n "$id")
equal "info as JSON" "$(ublk info -n "$path" --json | number schema)" 1
check "features has a number" grep -q -x -E 'ublk_drv features: 0x[0-9a-f]+' <(ublk features)
check "features knows user copy" grep -q -E '	USER_COPY +: 0x80' <(ublk features)
equal "features as JSON" "$(ublk features --json | number schema)" 1
check "log tells of the disk" grep -q "disk ublkb$id is ready" <(ublk log -n "$id")

server=$(listed 7 "$id")
check "the server is in a session of its own" test "$(ps -o sid= -p "$server" | tr -d ' ')" = "$server"
equal "the state is root's alone" "$(stat -c '%a %u' /run/ublk)" "700 0"
equal "nothing in it is open to others" "$(find /run/ublk -perm /077)" ""

# The options that make it again.
ublk info -n "$id" --toml >"$work/disk.toml"
check "del" timeout 60 ublk del -n "$id"
check "both nodes are gone" no_disk "$id"
check "the server has ended" gone "$server"
check "del of what is gone succeeds" timeout 60 ublk del -n "$id"
equal "nothing is left in the state" "$(find /run/ublk -mindepth 2)" ""
check_fails "del without a disk" 2 'ublk del' ublk del
equal "add --config makes it again" "$(timeout 60 ublk add --config "$work/disk.toml")" "$path"
check "del by path" timeout 60 ublk del -n "$path"

cycle() {
	local path number
	for number in {1..10}; do
		path=$(timeout 60 ublk add --size 64M) || return
		dd if=/dev/zero of="$path" bs=64k count=4 oflag=direct conv=nocreat status=none || return
		timeout 60 ublk del -n "$path" || return
		[ ! -e "$path" ] || return
	done
}
check "ten disks come and go" cycle

# A descriptor of the caller does not stay open in the server.
exec 8>"$work/lock"
flock 8
add --size 64M --name first || bail "a named disk is added"
exec 8>&-
check "the server keeps no descriptor of the caller" flock -n "$work/lock" true
first=$disk first_id=$id
check_fails "a name in use" 1 'the name "first" is in use' ublk add --name first
check "the name stands for the disk" ublk info -n first
check_fails "a number in use" 1 "ublk device $first_id exists already" ublk add -n "$first_id"

add --size 96M -n 7 --logical-block-size 4096 -q 4 -d 32 || bail "a disk with 4 queues is added"
equal "the number asked for" "$disk" /dev/ublkb7
equal "logical block 4096" "$(queue_limit logical_block_size)" 4096
equal "four queues" "$(find "/sys/block/ublkb$id/mq" -mindepth 1 -maxdepth 1 | wc -l)" 4
equal "depth 32" "$(cat "/sys/block/ublkb$id/mq/3/nr_tags")" 32
equal "four threads" "$(ublk list -n 7 | awk '/queue/ && /tid/ { print $4 }' | sort -u | wc -l)" 4
equal "each queue has a CPU of its own" \
	"$(cat /sys/block/ublkb7/mq/*/cpu_list | sort | tr '\n' ' ')" "0 1 2 3 "
random "$work/one" 1M
random "$work/two" 1M
put "$work/two" 4096
disk=$first id=$first_id
put "$work/one" 4096
check "two disks at once hold what each was given" holds "$work/one" 4096
disk=/dev/ublkb7 id=7
check "and the other, too" holds "$work/two" 4096
check "del by name" timeout 60 ublk del -n first
check "only that one is gone" test ! -e "$first" -a -b /dev/ublkb7
check "del -a" timeout 60 ublk del -a
check "then all are gone" no_disk 7

add --size 64M --map-block 64K || bail "a disk with a map block of 64 KiB is added"
equal "physical block 64 KiB" "$(queue_limit physical_block_size)" 65536
add --size 64M --read-only || bail "a read-only disk is added"
equal "blockdev knows that it is read-only" "$(blockdev --getro "$disk")" 1
check_fails "a write is refused" 1 'not permitted|Read-only' \
	dd if=/dev/zero of="$disk" bs=4k count=1 oflag=direct conv=notrunc,nocreat
check "a read is not" zeroes 0 65536

random "$work/image" 32M
cp "$work/image" "$work/before"
add -t loop -f "$work/image" || bail "a disk on a file is added"
equal "its size is the file's" "$(blockdev --getsize64 "$disk")" $((32 << 20))
equal "it has a volatile cache" "$(queue_limit write_cache)" "write back"
check "it holds the file" holds "$work/before" 0
put "$work/one" 1536
check "a write reaches it" holds "$work/one" 1536
check_fails "remap needs a map" 2 'copy remap' ublk add -t loop -f "$work/image" --copy remap
sync
check "del of the disk on a file" timeout 60 ublk del -n "$id"
check "the write is in the file" cmp -n 1048576 "$work/one" "$work/image" 0 1536
check "and nothing else changed" cmp -i 1050112 "$work/before" "$work/image"
add -t null --size 1G || bail "a null disk is added"
put "$work/one" 0
check "a null disk reads zeroes" zeroes 0 1048576

timeout 60 ublk add --size 64M --foreground >"$work/out" 2>"$work/err" &
foreground=$!
within 20 grep -q /dev/ublkb "$work/out"
path=$(cat "$work/out")
check "add --foreground prints the path" test -b "$path"
check "and logs to standard error" grep -q 'is ready' "$work/err"
kill -TERM "$foreground"
wait "$foreground"
equal "a signal ends it well" "$?" 0
check "and takes the disk away" no_disk "${path#/dev/ublkb}"
