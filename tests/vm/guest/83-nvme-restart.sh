# limit: 300
# long: yes
# needs: nvme modprobe acked
# A server of a disk in a file is killed under load of the kernel's NVMe/TCP host and started again: the host connects
# again by itself, no request fails, and every acknowledged block is there.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
. "$(dirname "$0")/nvme.sh"

modprobe nvme-tcp || bail "the host's driver can be loaded"
serve() { timeout 60 ublk add --no-ublk -t file -f "$work/pool" --name kept --size 64M --nvme-tcp 127.0.0.1:4420; }
server() { ublk info -n kept --json | number pid; }
check "a disk in a file is served" serve || bail "there is a disk"
at_exit 'timeout 60 ublk del -n kept'
nqn=$(ublk info -n kept --json | subsystem)
connect -l 240 || bail "the host connects" dmesg
at_exit 'disconnect >/dev/null 2>&1'
within 30 namespace 1 || bail "the host finds the namespace" dmesg
ns=$(namespace 1)
uuid=$(cat "/sys/block/${ns#/dev/}/uuid")
acked "$ns" 4096 4 "$work/stop" >"$work/acked" 2>&1 &
load=$!
writes() { awk '{ print $5 }' "/sys/block/${ns#/dev/}/stat"; }
more_than() { [ "$(writes)" -gt "$1" ]; }
live() { [ "$(cat "/sys/class/nvme/$ctrl/state")" = live ]; }
for round in 1 2 3; do
	before=$(writes)
	check "round $round: there is load" within 60 more_than $((before + 50))
	pid=$(server)
	kill -KILL "$pid"
	check "round $round: the server is dead" within 20 gone "$pid"
	check "round $round: the disk is served again" serve
	check "round $round: the host is connected again" within 90 live
	before=$(writes)
	check "round $round: the load goes on" within 60 more_than $((before + 50))
done
touch "$work/stop"
check "the load ends" within 60 gone "$load" || kill -KILL "$load"
wait "$load"
status=$?
cat "$work/acked"
equal "every acknowledged block is there" "$status" 0
check "no request failed" grep -q ' failed 0 ' "$work/acked"
equal "the namespace is the same" "$(cat "/sys/block/${ns#/dev/}/uuid")" "$uuid"
