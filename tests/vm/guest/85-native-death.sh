# limit: 600
# A server that is killed in the middle of native copies: whoever waits gets an error with the part that is done, or, with
# a recovery mode that sends it again, a copy that is whole; nothing hangs.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
. "$(dirname "$0")/native.sh"

big=$((128 * mib)) part=$((48 * mib)) to=$((64 * mib))
random "$work/part" $part
dead() { [ "$(listed 9 "$id")" != LIVE ]; }
# inflight: requests that the server has.
inflight() { awk '{ print $1 + $2 }' "/sys/block/ublkb$id/inflight"; }
has_copies() { [ "$(commands)" -gt "$1" ]; }

# begun ADD...: a disk, a copy of many commands under way on it, and the server stopped with some done and some not.
begun() {
	add --size $big --memory 512M --copy memcpy --copy-max-bytes 32K "$@" || return
	put "$work/part" 0
	udevadm settle -t 20
	ublk stats -n "$id" --reset >"$work/stats"
	timeout -k 5 120 ublk copy -n "$id" --door "$door" 0+$part $to >"$work/copy.log" 2>&1 &
	copy=$!
	within 30 has_copies 20 || return
	kill -STOP "$server"
	note "$(inflight) in flight"
	[ "$(inflight)" -gt 0 ]
}
# prefix: is what the copy said to be done there, in the destination? And are the sources as they were?
prefix() {
	done=$(done_of "$work/copy.log")
	note "$(head -n 1 "$work/copy.log")"
	[ "${done:-x}" != x ] && [ $((done % 512)) = 0 ] || return
	get "$work/held" $to "$done" && cmp -n "$done" "$work/held" "$work/part" && holds "$work/part" 0
}

for door in native native-async; do
	# Some copies end before the server is stopped on a fast machine; the test needs one that does not.
	begun || { cat "$work/copy.log"; bail "$door: the server is stopped in mid-copy"; }
	ok "$door: the server is stopped in mid-copy"
	kill -KILL "$server"
	check "$door: the copy ends" ended 60 $copy || kill -KILL $copy
	wait $copy
	equal "$door: it fails" $? 1
	check "$door: with an error and a length" grep -q 'Input/output error' "$work/copy.log"
	check "$door: less than all of it" test "$(done_of "$work/copy.log")" -lt $part
	check "$door: no task is blocked" within 20 unblocked
	check "$door: del" timeout 60 ublk del -n "$id"
	check "$door: all is gone" no_disk "$id"

	begun --user-recovery || { cat "$work/copy.log"; bail "$door, queue: the server is stopped in mid-copy"; }
	kill -KILL "$server"
	check "$door, queue: a dead server is listed" within 20 dead
	check "$door, queue: recovery" timeout 60 ublk recover -n "$id"
	check "$door, queue: the copy ends" ended 90 $copy || kill -KILL $copy
	wait $copy
	status=$?
	# What had not come to the server waits for the new one and may be done by it, what had is failed.
	equal "$door, queue: it fails" $status 1
	check "$door, queue: what it says to be done is" prefix
	check "$door, queue: the disk copies again" native 0+$part $to
	check "$door, queue: and all of it" holds "$work/part" $to
	check "$door, queue: del" timeout 60 ublk del -n "$id"

	begun --user-recovery=reissue || { cat "$work/copy.log"; bail "$door, reissue: the server is stopped in mid-copy"; }
	kill -KILL "$server"
	check "$door, reissue: a dead server is listed" within 20 dead
	check "$door, reissue: recovery" timeout 60 ublk recover -n "$id"
	check "$door, reissue: the copy ends" ended 90 $copy || kill -KILL $copy
	check "$door, reissue: it succeeds" wait $copy || cat "$work/copy.log"
	check "$door, reissue: it is whole" holds "$work/part" $to
	check "$door, reissue: the sources are as they were" holds "$work/part" 0
	equal "$door, reissue: the limits are as they were" "$(queue_limit copy_max_bytes)" $((32 * kib))
	check "$door, reissue: del" timeout 60 ublk del -n "$id"
done
check "no task is blocked in the end" within 20 unblocked
