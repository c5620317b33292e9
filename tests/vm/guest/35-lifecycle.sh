# limit: 420
# needs: fio http-unix
# However a disk ends while it is used, nothing hangs: its users get errors, and what is left can be deleted.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

# over WHAT: fio has ended with errors, no task is blocked.
over() {
	check "$1: the I/O ends" ended 15 "$fio" || kill -KILL "$fio"
	wait "$fio"
	check "$1: with errors" test $? -ne 0
	check "$1: no task is blocked" within 10 unblocked
}

add --size 128M -q 2 || bail "a disk is added"
load 60 --numjobs=2 || bail "fio runs"
check "del under I/O" timeout 40 ublk del -n "$id"
over "del"
check "del: all is gone" no_disk "$id"
check "del: the server, too" gone "$server"

for signal in TERM INT; do
	add --size 128M -q 2 || bail "a disk is added"
	load 60 --numjobs=2 || bail "fio runs"
	log=/run/ublk/pools/$pool/log
	kill -$signal "$server"
	check "SIG$signal: the server ends" ended 40 "$server"
	over "SIG$signal"
	check "SIG$signal: all is gone" no_disk "$id"
	check "SIG$signal: its state, too" test ! -e "$log"
done

add --size 128M -q 2 || bail "a disk is added"
load 60 --numjobs=2 || bail "fio runs"
kill -KILL "$server"
over "SIGKILL"
equal "SIGKILL: the disk is listed as dead" "$(listed 9 "$id")" DEAD
check_fails "SIGKILL: a copy says that the server is dead" 1 'server of disk .* is dead' \
	timeout 30 ublk copy -n "$id" 0+4K 1M
check "SIGKILL: del" timeout 40 ublk del -n "$id"
check "SIGKILL: all is gone" no_disk "$id"
check "SIGKILL: nothing is left of the state" test -z "$(find /run/ublk -mindepth 2)"
before=$id
add --size 64M || bail "a disk is added after it"
equal "SIGKILL: the number is free again" "$id" "$before"
timeout 40 ublk del -n "$id"

# A panic in any thread of the server ends all of it at once.
panic() {
	local thread=$1 cause=$2
	shift 2
	add --size 128M -q 2 --debug "$@" || bail "a disk is added"
	load 60 --numjobs=2 --fdatasync=64 || bail "fio runs"
	local log=/run/ublk/pools/$pool/log
	check "panic in $thread: it is armed" grep -q '{}' <(api POST /v1/debug/panic "{\"thread\":\"$thread\"}")
	# What the thread waits for, in case it is idle.
	timeout 20 sh -c "$cause" >"$work/cause.log" 2>&1
	check "panic in $thread: the server ends" ended 15 "$server"
	over "panic in $thread"
	# `ublk del`, the cause for the driver's thread, goes on without the server, and the log goes with the pool.
	if [ "$thread" = driver ]; then
		check "panic in driver: del names the cause" grep -q 'panic in thread' "$work/cause.log"
	else
		check "panic in $thread: the log names the cause" \
			grep -q -E 'panic in thread [^ ]+ at [a-z/.-]+\.rs:[0-9]+' "$log"
		check "panic in $thread: ublk log shows it" grep -q 'panic in thread' <(ublk log -n "$id")
	fi
	check "panic in $thread: del" timeout 40 ublk del -n "$id"
	check "panic in $thread: all is gone" no_disk "$id"
	note "$(cat "$work/cause.log")"
}
panic queue true
panic worker 'ublk copy -n $(ls /dev/ublkb* | tr -dc 0-9) 0+1M 96M'
panic control 'ublk info -n $(ls /dev/ublkb* | tr -dc 0-9)'
panic driver 'ublk del -n $(ls /dev/ublkb* | tr -dc 0-9)'
