#!/usr/bin/env bash
# Runs inside the guest: the tests of a plan, one after another, and reports on the serial line.
# usage: guest-agent.sh PLAN BIN_DIR
# PLAN has a line `LIMIT<tab>NAME<tab>PATH<tab>TOOLS` for each test; BIN_DIR comes first in PATH.
#
# Lines that begin with '@ ' are for the host, all others are a test's output:
#   @ ready RELEASE | @ begin NAME | @ ok - WHAT | @ not ok - WHAT | @ skip - WHAT: REASON
#   @ end NAME STATUS | @ missing NAME TOOLS | @ hang NAME | @ done
set -u
plan=$1 bin=$2
export PATH=$bin:$PATH UBLK_BIN=$bin UBLK_AGENT=1 LC_ALL=C
say() { printf '@ %s\n' "$*"; }

# Traces of the kernel have to reach the console, where the host keeps them.
dmesg -n 7
# A task that is blocked for longer than this is reported by the kernel; everything sysrq can do is on.
for setting in kernel.hung_task_timeout_secs=60 kernel.sysrq=1 kernel.panic_on_oops=0; do
	sysctl -q -w "$setting" || exit 1
done
modprobe ublk_drv || exit 1

# What the kernel says when something is wrong with it, whatever the test thinks.
trouble='BUG:|WARNING:|Oops|general protection fault|blocked for more than|soft lockup|rcu.*stall|refcount_t:|UBSAN|kernel BUG|Call Trace'

# Counted in lines of the log, since a test may run for less than the clock's resolution.
dmesg_lines() { dmesg | wc -l; }

disks() { compgen -G '/dev/ublkb*' | grep -E '^/dev/ublkb[0-9]+$'; }

# bounded SECONDS COMMAND...: unlike timeout(1), also returns when the command cannot be killed.
bounded() {
	local deadline=$((SECONDS + $1)) pid
	shift
	"$@" </dev/null &
	pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		if [ "$SECONDS" -ge "$deadline" ]; then
			kill -KILL "$pid"
			echo "still running after its time: $*"
			return 1
		fi
		sleep 0.2
	done
	wait "$pid"
}

left=''
check_after() {
	local since=$1 found disk
	found=$(dmesg | tail -n "+$((since + 1))" | grep -v -i 'sysrq' | grep -E -A 30 "$trouble")
	if [ -n "$found" ]; then
		printf '%s\n' "$found"
		say "not ok - the kernel reported no trouble"
	fi
	for disk in $(disks); do
		# A disk that cannot be deleted is counted once, not after each test that follows.
		[[ " $left " == *" $disk "* ]] || say "not ok - left no disk behind: $disk"
	done
	if [ -n "$(disks)" ] && command -v ublk >/dev/null; then
		bounded 30 ublk del -a --force
	fi
	left=$(disks | tr '\n' ' ')
}

# Runs one test in a session of its own, ends it at its limit and then says what is blocked.
run_one() {
	local limit=$1 name=$2 path=$3 since pid status deadline
	since=$(dmesg_lines)
	say "begin $name"
	setsid bash "$path" </dev/null 3>&1 &
	pid=$!
	deadline=$((SECONDS + limit))
	while kill -0 "$pid" 2>/dev/null; do
		if [ "$SECONDS" -ge "$deadline" ]; then
			hang "$name" "$pid"
			return 1
		fi
		sleep 0.2
	done
	wait "$pid"
	status=$?
	# What the test left running would disturb the next one.
	kill -KILL -- "-$pid" 2>/dev/null
	check_after "$since"
	say "end $name $status"
}

hang() {
	local name=$1
	echo "processes when $name reached its limit:"
	ps -e -o pid,ppid,stat,wchan:24,etimes,args | grep -v -E ' (\[|ps )'
	echo "blocked tasks:"
	echo w >/proc/sysrq-trigger
	sleep 1
	dmesg | tail -n 300 | sed -n '/sysrq: Show Blocked State/,$p'
	say "hang $name"
}

say "ready $(uname -r)"
while IFS=$'\t' read -r limit name path tools <&9; do
	missing=''
	for tool in $tools; do
		command -v "$tool" >/dev/null || missing+=" $tool"
	done
	if [ -n "$missing" ]; then
		say "missing $name$missing"
		continue
	fi
	run_one "$limit" "$name" "$path" || exit 1
done 9<"$plan"
say done
