# limit: 60
# needs: modprobe
# The guest is what the other tests take for granted: the driver, four processors, room in memory.
. "$(dirname "$0")/lib.sh"

check "ublk_drv is loaded" test -d /sys/module/ublk_drv
check "/dev/ublk-control is there" test -c /dev/ublk-control
equal "four processors are online" "$(nproc)" 4
memory=$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)
check "at least 3.5 GiB of memory" test "$memory" -ge $((3584 * 1024))
check "io_uring is allowed" test "$(cat /proc/sys/kernel/io_uring_disabled)" = 0
