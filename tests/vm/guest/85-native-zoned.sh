# limit: 400
# needs: blkzone python3
# Native copies on a zoned disk: their destination is a write to a zone, at the pointer and up to its end, in order with
# other writes; after one the kernel writes on. Their sources are only read, and may be reset meanwhile.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
. "$(dirname "$0")/zoned.sh"
. "$(dirname "$0")/native.sh"

reset() { zones reset "$@"; }

head -c $zone "$work/random" >"$work/zone"
head -c $((64 * kib)) "$work/random" >"$work/a"
tail -c $((64 * kib)) "$work/random" >"$work/b"
add --size 64M --memory 512M --zoned --zone-size 4M --conventional-zones 4 --max-open 6 --max-active 8 ||
	bail "a zoned disk is added"
check "info names the doors" sh -c "ublk info -n $id | grep -q '^copy doors  *api native$'"
put "$work/random" 0

for door in native native-async; do
	timeout 60 blkzone reset "$disk"
	ublk stats -n "$id" --reset >"$work/stats"
	check "$door: into an empty zone" native 0+64K 1M+4K "$(at 5)"
	equal "$door: the pointer moves" "$(state 5)" "oi $((68 * kib))"
	head -c $((64 * kib)) "$work/random" >"$work/want"
	tail -c +$((mib + 1)) "$work/random" | head -c 4096 >>"$work/want"
	check "$door: it arrives" holds "$work/want" "$(at 5)"
	equal "$door: in one command" "$(commands)" 1
	check "$door: the kernel writes on" put "$work/b" "$(at 5 $((68 * kib)))"
	check "$door: a copy goes on behind that" native 0+64K "$(at 5 $((132 * kib)))"
	check "$door: behind that" holds "$work/a" "$(at 5 $((132 * kib)))"
	for place in "$(at 5)" "$(at 5 $((200 * kib)))" "$(at 6 512)"; do
		refused "$door: off the pointer: $place" 'Input/output error' 0+64K "$place"
	done
	equal "$door: off the pointer nothing changes" "$(state 5) $(state 6)" "oi $((196 * kib)) em 0"
	check "$door: a source in a zone" native "$(at 5)+64K" "$(at 6)"
	check "$door: it arrives from there" holds "$work/a" "$(at 6)"
	check "$door: two zones in one call" native 0+4M 4M+4M "$(at 8)"
	equal "$door: both are full" "$(state 8) $(state 9)" "fu $zone fu $zone"
	head -c $((2 * zone)) "$work/random" >"$work/want"
	check "$door: and hold what they should" holds "$work/want" "$(at 8)"
	# Cut at the border, not at a source.
	check "$door: a source across the border of two zones" native 1M+3M 8M+4M 0+1M "$(at 10)"
	tail -c +$((mib + 1)) "$work/random" | head -c $((3 * mib)) >"$work/want"
	tail -c +$((8 * mib + 1)) "$work/random" | head -c $((4 * mib)) >>"$work/want"
	head -c $mib "$work/random" >>"$work/want"
	check "$door: it is there" holds "$work/want" "$(at 10)"
	refused "$door: into a full zone" 'Input/output error|No space' 0+64K "$(at 8)"
	check "$door: conventional zones are copied to anywhere" native 0+64K 512K+64K "$(at 3 512)"
	put "$work/random" 0
done

# Two tasks, one place: the pointer is there for one of them.
door=native
wins=0
for n in {1..10}; do
	reset 5
	timeout 60 ublk copy -n "$id" --door native 0+64K "$(at 5)" >"$work/one" 2>&1 &
	one=$!
	timeout 60 ublk copy -n "$id" --door native-async "$((size - 64 * kib))+64K" "$(at 5)" >"$work/two" 2>&1 &
	two=$!
	wait $one
	first=$?
	wait $two
	second=$?
	case $first$second in
	01) want=$work/a ;;
	10) want=$work/b ;;
	*) note "$first $second"; cat "$work/one" "$work/two"; break ;;
	esac
	[ "$(state 5)" = "oi $((64 * kib))" ] && holds "$want" "$(at 5)" || break
	wins=$((wins + 1))
done
equal "two copies to one place: one of them is done, ten times" $wins 10

# Each in its turn, while the other goes on.
reset 5 2
loop() {
	local n
	for n in {0..9}; do
		timeout 60 ublk copy -n "$id" --door native "$2+64K" $(($1 + n * 64 * kib)) >"$work/loop.$1" 2>&1 || return
	done
}
loop "$(at 5)" 0 &
one=$!
loop "$(at 6)" $((size - 64 * kib)) &
two=$!
wait $one
equal "two tasks in two zones: the first" $? 0
wait $two
equal "two tasks in two zones: the second" $? 0
for n in {0..9}; do cat "$work/a"; done >"$work/want"
check "two tasks in two zones: its data" holds "$work/want" "$(at 5)"
for n in {0..9}; do cat "$work/b"; done >"$work/want"
check "two tasks in two zones: their own" holds "$work/want" "$(at 6)"

# The source is reset in mid-copy: what is copied is what was there, or zeroes behind it, and never something else.
check "small commands" timeout 60 ublk set -n "$id" copy=memcpy copy-max-bytes=64K
seen=0
for n in {1..8}; do
	reset 5 2
	put "$work/zone" "$(at 5)"
	timeout 60 ublk copy -n "$id" --door native "$(at 5)+4M" "$(at 6)" >"$work/copy.log" 2>&1 &
	pid=$!
	sleep "0.0$n"
	reset 5
	wait $pid
	done=$(done_of "$work/copy.log")
	get "$work/held" "$(at 6)" "${done:-0}"
	python3 - "$work/held" "$work/zone" <<'PY' || break
import sys
held, zone = (open(name, "rb").read() for name in sys.argv[1:])
block = 4096
for at in range(0, len(held), block):
    piece = held[at : at + block]
    if piece != zone[at : at + block] and any(piece):
        sys.exit(f"something else at {at}")
PY
	note "$(head -n 1 "$work/copy.log")"
	seen=$((seen + 1))
done
equal "a source that is reset meanwhile" $seen 8
check "afterwards a zone is copied to again" sh -c "blkzone reset '$disk' && ublk copy -n $id --door native 0+64K $(at 5)"
check "and holds it" holds "$work/a" "$(at 5)"
