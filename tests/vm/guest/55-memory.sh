# limit: 240
# needs: fio http-unix
# A disk of 1 TiB costs nothing until it is written; beyond its memory writes fail for lack of space, nothing is
# killed, what was written stays, and what is discarded is given back to the system.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

mib=$((1 << 20))
# A field of the server's memory in KiB.
memory() { awk -v field="$1:" '$1 == field { print $2 }' "/proc/$server/status"; }

lines=$(dmesg | wc -l)
before=${EPOCHREALTIME/[.,]/}
add --size 1T --memory 256M || bail "a disk of 1 TiB is added"
note "add --size 1T took $(((${EPOCHREALTIME/[.,]/} - before) / 1000)) ms with its look at the list"
note "the server has $(memory VmRSS) KiB resident, $(memory RssAnon) of them its own"
equal "it has 1 TiB" "$(blockdev --getsize64 "$disk")" $((1 << 40))
check "the server is below 48 MiB" test "$(memory VmRSS)" -lt $((48 << 10))
empty=$(memory VmRSS)

random "$work/data" $((16 * mib))
put "$work/data" 0
put "$work/data" $(((1 << 40) - 16 * mib))
check "both ends hold what was written" holds "$work/data" $(((1 << 40) - 16 * mib))

# From 256 MiB on there is no room: 32 are taken, 224 fit.
fill() {
	timeout 120 dd if=/dev/zero of="$disk" bs=1M count=320 seek=$((1 << 19)) oflag=direct conv=notrunc,nocreat 2>&1
}
check_fails "a write past the memory fails for lack of space" 1 'No space left on device' fill
equal "the pool is full to the last block" "$(usage mapped_bytes)" $((256 * mib))
check "the server is alive" test "$(listed 9 "$id")" = LIVE
check "what was written is there" holds "$work/data" 0
check "at the end, too" holds "$work/data" $(((1 << 40) - 16 * mib))
random "$work/new" $mib
put "$work/new" $mib
check "an overwrite still finds room" holds "$work/new" $mib
check_fails "through the page cache the loss is told at fsync" 1 'No space left|Input/output error' \
	timeout 60 dd if="$work/new" of="$disk" bs=64k seek=$((1 << 30)) oflag=seek_bytes conv=notrunc,nocreat,fsync
check_fails "zeroes that must keep their place need room" 1 'No space left|Input/output error' \
	timeout 60 blkdiscard -z -o $((1 << 30)) -l $mib "$disk"
timeout 60 blkdiscard -o $((1 << 30)) -l $((4 * mib)) "$disk"
check "a copy that shares needs none" timeout 60 ublk copy -n "$id" 0+16M 1G
check_fails "a copy that moves does" 1 'no space' timeout 60 ublk copy -n "$id" 512+8M 2G
full=$(memory VmRSS)
note "the server has $full KiB resident when full"
check "the server holds no more than the cap and some" test "$full" -lt $((256 * 1024 + 64 * 1024))

check "a discard" timeout 60 blkdiscard -o $((1 << 39)) -l $((320 * mib)) "$disk"
equal "gives the space back to the pool" "$(usage mapped_bytes)" $((32 * mib))
given_back() { [ "$(memory VmRSS)" -lt $((empty + 32 * 1024 + 24 * 1024)) ]; }
check "and the memory to the system" within 10 given_back
note "the server has $(memory VmRSS) KiB resident after the discard"
check "then there is room again" timeout 60 dd if=/dev/zero of="$disk" bs=1M count=64 seek=2048 oflag=direct conv=notrunc,nocreat status=none
check "what was written is still there" holds "$work/new" $mib
check "nothing was killed for memory" test -z "$(dmesg | tail -n "+$((lines + 1))" | grep -i -E 'out of memory|oom-kill')"
