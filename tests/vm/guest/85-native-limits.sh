# limit: 600
# needs: python3 ublk-bench
# The limits of copies change while the disk runs, in the kernel as in the server, and no copy fails in between. The native
# door is the usual one of `ublk copy`, with the clauses of the other; `ublk-bench` loads it.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
. "$(dirname "$0")/native.sh"

# limits: of the kernel, as bytes, bytes of a source, sources.
limits() { echo "$(queue_limit copy_max_bytes) $(queue_limit copy_max_segment_bytes) $(queue_limit copy_max_segments)"; }
# set_to BYTES SEGMENT SEGMENTS
set_to() { timeout 60 ublk set -n "$id" copy-max-bytes="$1" copy-max-segment-bytes="$2" copy-max-segments="$3"; }

add --size "$size" --memory 512M --copy-max-bytes 1M --copy-max-segment-bytes 512K --copy-max-segments 8 ||
	bail "a disk is added"
equal "at the start" "$(limits)" "$mib $((512 * kib)) 8"
check "lower: set" set_to 128K 64K 4
equal "lower: the kernel has them" "$(limits)" "$((128 * kib)) $((64 * kib)) 4"
fresh
ranges=()
for n in {0..7}; do ranges+=("$((n * mib / 2))+48K"); done
check "lower: a copy" native "${ranges[@]}" $((9 * mib))
for n in {0..7}; do copied $((n * mib / 2)) $((48 * kib)) $((9 * mib + n * 48 * kib)); done
check "lower: it arrives" as_model
equal "lower: in four commands" "$(commands)" 4
check "higher than at the start: set" set_to 16M 8M 256
equal "higher: the kernel has them" "$(limits)" "$((16 * mib)) $((8 * mib)) 256"
fresh
check "higher: a copy" native 0+2M 3M+2M 8M
copied 0 $((2 * mib)) $((8 * mib))
copied $((3 * mib)) $((2 * mib)) $((10 * mib))
check "higher: it arrives" as_model
equal "higher: in one command" "$(commands)" 1
check "one lower, one higher: set" set_to 16M 64K 200
equal "one lower, one higher: the kernel has them" "$(limits)" "$((16 * mib)) $((64 * kib)) 200"
check_fails "what cannot be is refused" 2 'copy-max-segments 0: must be from 1' timeout 60 ublk set -n "$id" copy-max-segments=0
equal "what cannot be changes nothing" "$(limits)" "$((16 * mib)) $((64 * kib)) 200"
check "off: set" timeout 60 ublk set -n "$id" copy=off
equal "off: the kernel has none" "$(limits)" "0 0 0"
check "off: info names one door" sh -c "ublk info -n $id | grep -q '^copy doors  *api$'"
refused "off: the kernel refuses" 'does not take' 0+4096 $mib
check "on: set" timeout 60 ublk set -n "$id" copy=memcpy
equal "on: the kernel has them again" "$(limits)" "$((16 * mib)) $((64 * kib)) 200"
check "on: a copy" native 0+4096 $mib
check "on: in that mode" grep -q 'moved (mode) 4 KiB' "$work/copy.log"

# Limits that are swept under copies: each command fits those that the server has when it comes.
fresh
copies() {
	local n
	for n in {1..40}; do
		timeout 60 ublk copy -n "$id" --door native-async $((n * 512))+1M $((n * 8192))+1M 8M >"$work/swept" 2>&1 || return
	done
}
copies &
pid=$!
sweeps=0
while ! gone $pid && [ $sweeps -lt 200 ]; do
	set_to 64K 16K 2 && set_to 8M 1M 128 || { not_ok "swept: set"; break; }
	sweeps=$((sweeps + 1))
done
wait $pid
equal "swept: no copy fails" $? 0 || cat "$work/swept"
note "swept $sweeps times"
check "swept: more than once" test "$sweeps" -gt 1
copied $((40 * 512)) $mib $((8 * mib))
copied $((40 * 8192)) $mib $((9 * mib))
check "swept: the last one arrives" as_model
timeout 60 ublk del -n "$id"

add --size "$size" --memory 512M --copy off || bail "a disk that does not copy is added"
equal "added without copies: the kernel has none" "$(limits)" "0 0 0"
check "added without copies: set" timeout 60 ublk set -n "$id" copy=remap
equal "added without copies: the kernel has them" "$(limits)" "$((128 * mib)) $((16 * mib)) 128"

# The usual door, which is the native one unless something is asked for that it has not.
fresh
usual() { timeout 90 ublk copy -n "$id" "$@" >"$work/copy.log" 2>&1 || { cat "$work/copy.log"; return 1; }; }
check "usual door: a copy" usual $mib+64K 8M
copied $mib $((64 * kib)) $((8 * mib))
check "usual door: it is native" grep -q '^copied 65536 of 65536 bytes in 1 of 1 calls' "$work/copy.log"
check "usual door: --fua needs the API" usual $mib+64K 9M --fua
copied $mib $((64 * kib)) $((9 * mib))
check "usual door: it is the API" grep -q '^copied 65536 of 65536 bytes in 1 of 1 commands' "$work/copy.log"
check "usual door: --verify needs the API" usual 2M+64K 10M --verify
copied $((2 * mib)) $((64 * kib)) $((10 * mib))
check "usual door: two destinations" usual --segment 0+64K:11M --segment 64K+64K:12M
copied 0 $((64 * kib)) $((11 * mib))
copied $((64 * kib)) $((64 * kib)) $((12 * mib))
check "usual door: two destinations are two calls" grep -q ' in 2 of 2 calls' "$work/copy.log"
had=$(commands)
check_fails "usual door: an overlap of two calls" 1 'overlap' \
	timeout 60 ublk copy -n "$id" --segment 0+4K:8M --segment 8M+4K:9M
check_fails "usual door: the end of the disk in the second call" 1 'end|capacity|range' \
	timeout 60 ublk copy -n "$id" --segment 0+4K:8M --segment "$((size - 4096))+8K:9M"
equal "usual door: of these the server hears nothing" "$(commands)" "$had"
check "usual door: all of it arrives" as_model

# The load, with its own check of every block.
for door in native native-async; do
	for order in copy randcopy; do
		ublk stats -n "$id" --reset >"$work/stats"
		check "ublk-bench $door $order" timeout 120 ublk-bench copy --filename="$disk" --door=$door --rw=$order \
			--bs=16k --ranges=4 --iodepth=4 --numjobs=2 --verify --output-format=json --output="$work/json"
		equal "ublk-bench $door $order: blocks compared" "$(number blocks <"$work/json")" $((size / 2 / (16 * kib)))
		equal "ublk-bench $door $order: commands" "$(commands)" $((size / 2 / (64 * kib)))
	done
done
check_fails "ublk-bench: the native door is no engine's but the disk's" 2 'engine=device' \
	timeout 60 ublk-bench copy --filename="$disk" --engine=host --door=native
check "copies: off" timeout 60 ublk set -n "$id" copy=off
check_fails "ublk-bench: a disk that does not copy" 1 'does not take it' \
	timeout 60 ublk-bench copy --filename="$disk" --door=native --bs=4k
