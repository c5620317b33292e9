# limit: 600
# needs: fio http-unix
# Copies in every mode and by both engines bring just the bytes that the source held, leave everything else as it
# was, and the ledger says exactly what moved where.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
. "$(dirname "$0")/model.sh"

# copy ARGUMENT...: on $id, bounded.
copy() { timeout 90 ublk copy -n "$id" "$@" >"$work/copy.log" 2>&1 || { cat "$work/copy.log"; return 1; }; }
# moved WHAT NAME=BYTES...: the ledger has just these counters of copies, all others are 0.
moved() {
	local what=$1 stats name want
	shift
	stats=$(ublk stats -n "$id" --json)
	for name in remapped copied_hole moved_mode moved_incongruent moved_head_tail bounced door_read door_written; do
		want=0
		for pair in "$@"; do [ "${pair%=*}" != "$name" ] || want=${pair#*=}; done
		[ "$(number "${name}_bytes" <<<"$stats")" = "$want" ] && continue
		note "expected $name $want, the ledger: $(tr -d '\n' <<<"$stats")"
		not_ok "$what"
		return 1
	done
	ok "$what"
}

add --size "$size" --memory 512M || bail "a disk is added"
fresh
check "remap: 1 MiB" copy $((1 * mib))+$mib $((9 * mib))
moved "remap: nothing moves" remapped=$mib
copied $((1 * mib)) $mib $((9 * mib))
check "remap: the disk is as it has to be" as_model
check "the ledger line names it" grep -q -E 'remapped 1 MiB; link read 0 B, written 0 B' "$work/copy.log"
check "one command" grep -q 'in 1 of 1 commands' "$work/copy.log"

fresh
check "remap: head and tail" copy $((1 * mib + 1536))+$mib $((9 * mib + 1536))
moved "remap: just they are moved" remapped=$((mib - 4 * kib)) moved_head_tail=$((4 * kib))
copied $((1 * mib + 1536)) $mib $((9 * mib + 1536))
check "remap: head and tail arrive" as_model
fresh
check "remap: incongruent" copy $((1 * mib + 512))+$((64 * kib)) $((9 * mib))
moved "remap: an incongruent segment is moved" moved_incongruent=$((64 * kib))
copied $((1 * mib + 512)) $((64 * kib)) $((9 * mib))
check "remap: it arrives" as_model
fresh
check "remap: a sector" copy 512+512 $((9 * mib + 512))
moved "remap: a sector is moved" moved_head_tail=512
copied 512 512 $((9 * mib + 512))
check "remap: it arrives alone" as_model

# Destinations one after another, and each with its own; the order is that of the list.
fresh
check "several segments" copy $((1 * mib))+4096 $((3 * mib + 512))+1024 $((5 * mib))+$((64 * kib)) $((9 * mib))
copied $((1 * mib)) 4096 $((9 * mib))
copied $((3 * mib + 512)) 1024 $((9 * mib + 4096))
copied $((5 * mib)) $((64 * kib)) $((9 * mib + 5120))
check "several segments arrive one after another" as_model
fresh
check "--segment" copy --segment 0+8192:$((9 * mib)) --segment $((4 * mib))+512:$((8 * mib + 3584)) \
	--segment $((2 * mib))+$((100 * kib)):$((12 * mib))
moved "--segment: remapped and moved" remapped=$((108 * kib)) moved_incongruent=512
copied 0 8192 $((9 * mib))
copied $((4 * mib)) 512 $((8 * mib + 3584))
copied $((2 * mib)) $((100 * kib)) $((12 * mib))
check "--segment: each arrives at its place" as_model
check "--verify compares" copy --verify 0+8192 $((9 * mib))
check "and says so" grep -q 'compared' "$work/copy.log"

# A hole stays one.
blkdiscard -o $((2 * mib)) -l $mib "$disk"
dd if=/dev/zero of="$work/model" bs=1M seek=2 count=1 conv=notrunc status=none
used=$(usage mapped_bytes)
ublk stats -n "$id" --reset >"$work/stats"
check "a hole" copy $((2 * mib))+$mib $((10 * mib))
moved "a hole: is copied as one" copied_hole=$mib
copied $((2 * mib)) $mib $((10 * mib))
check "a hole: reads zeroes" as_model
equal "a hole: takes no space" "$(usage mapped_bytes)" $((used - mib))

# After a copy source and destination are two.
fresh
copy 0+$mib $((8 * mib))
copied 0 $mib $((8 * mib))
random "$work/new" 12288
put "$work/new" 1536
dd if="$work/new" of="$work/model" bs=512 seek=3 conv=notrunc status=none
check "a write to the source leaves the copy alone" as_model
put "$work/new" $((8 * mib + 8192))
dd if="$work/new" of="$work/model" bs=512 seek=$(((8 * mib + 8192) / 512)) conv=notrunc status=none
check "a write to the copy leaves the source alone" as_model

for mode in memcpy emulate; do
	check "$mode: set" timeout 60 ublk set -n "$id" copy=$mode
	fresh
	check "$mode: copy" copy $((1 * mib))+$mib $((9 * mib))
	case $mode in
	memcpy) moved "$mode: all is moved inside" moved_mode=$mib ;;
	emulate) moved "$mode: all goes through the bounce buffer" bounced=$mib ;;
	esac
	copied $((1 * mib)) $mib $((9 * mib))
	check "$mode: copy of odd sectors" copy $((3 * mib + 512))+$((130 * kib + 512)) $((12 * mib + 1024))
	copied $((3 * mib + 512)) $((130 * kib + 512)) $((12 * mib + 1024))
	check "$mode: the disk is as it has to be" as_model
done
check "off: set" timeout 60 ublk set -n "$id" copy=off
fresh
check_fails "off: a copy is refused" 1 'BLK_STS_NOTSUPP|not supported|switched off' timeout 60 ublk copy -n "$id" 0+4K 8M
check "off: nothing has changed" as_model
check "off: the host can still copy" copy --engine host $((1 * mib + 512))+$mib $((9 * mib))
moved "host: every byte crosses the link twice" door_read=$((mib + size)) door_written=$mib
copied $((1 * mib + 512)) $mib $((9 * mib))
check "host: the disk is as it has to be" as_model
timeout 60 ublk set -n "$id" copy=remap

# The judge of any disk, on the block device.
check "every clause holds that selftest can see" timeout 120 ublk selftest --target "$disk" --scratch 0+8M
fresh
timeout 120 ublk selftest --target "$disk" >"$work/judged" || bail "selftest without a scratch range"
check "without a scratch range it writes nothing" as_model
check "and says what it left out" grep -q 'SKIP needs --scratch' "$work/judged"

# Limits: at the limit is accepted, beyond it is refused as one command and split otherwise.
timeout 60 ublk set -n "$id" copy-max-bytes=256K copy-max-segment-bytes=64K copy-max-segments=4
equal "limits are set live" "$(ublk info -n "$id" --json | number copy_max_segments)" 4
fresh
segments=()
for n in 0 1 2 3; do segments+=(--segment "$((n * mib))+64K:$((8 + n))M"); done
check "one command just at every limit" copy --one-command "${segments[@]}"
for n in 0 1 2 3; do copied $((n * mib)) $((64 * kib)) $(((8 + n) * mib)); done
check "one command: arrives" as_model
refused() { check_fails "$1" 1 "$2" timeout 60 ublk copy -n "$id" --one-command "${@:3}"; }
refused "a segment too many" 'too many copy segments' "${segments[@]}" --segment 4M+512:12M
refused "a segment that is too long" 'copy segment longer' 0+66048 8M
timeout 60 ublk set -n "$id" copy-max-segment-bytes=1M
refused "more bytes than a command takes" 'copy_max_bytes' 0+262656 8M
check "refused commands changed nothing" as_model
check_fails "past the end, in many commands" 1 'beyond the end' timeout 60 ublk copy -n "$id" 0+8M 9M
check "past the end: nothing has changed" as_model
fresh
check "split to the limits" copy $mib+$mib $((9 * mib + 512))
check "into four or five commands" grep -q -E 'in ([45]) of \1 commands' "$work/copy.log"
copied $mib $mib $((9 * mib + 512))
check "split: arrives" as_model
timeout 60 ublk set -n "$id" copy-max-bytes=128M copy-max-segment-bytes=16M copy-max-segments=128

for ranges in "0+64K 32K" "32K+64K 0" "0+64K 0" "0+4096 3584" "0+8192 $mib+512 4096"; do
	# shellcheck disable=SC2086
	check_fails "overlap: $ranges" 1 'overlap' timeout 60 ublk copy -n "$id" $ranges
done
fresh
check_fails "overlap: two destinations" 1 'overlap' \
	timeout 60 ublk copy -n "$id" --segment 0+8K:8M --segment 1M+8K:$((8 * mib + 4096))
check "ranges that only touch" copy 0+65536 65536
copied 0 65536 65536
check "overlap: only the last changed anything" as_model
check_fails "fast only: an incongruent one" 1 'fast|moved' timeout 60 ublk copy -n "$id" --fast-only 512+64K 8M
check_fails "fast only: a head" 1 'fast|moved' timeout 60 ublk copy -n "$id" --fast-only 512+8K $((8 * mib + 512))
check "fast only: nothing has changed" as_model
check "fast only: whole blocks" copy --fast-only 4096+65536 $((8 * mib))
check "fua" copy --fua $((1 * mib))+65536 $((9 * mib))
copied 4096 65536 $((8 * mib))
copied $((1 * mib)) 65536 $((9 * mib))
check "both arrive" as_model
timeout 60 ublk del -n "$id"

# Two volumes of one pool.
add --size "$size" --memory 512M --pool pair --name left || bail "a disk is added"
cp "$work/random" "$work/left"
put "$work/left" 0
left=$id left_disk=$disk
add --size "$size" --pool pair --name right -q 2 || bail "a second disk of the pool is added"
random "$work/random" "$size"
fresh
equal "both are of one server" "$server" "$(listed 7 "$left")"
check "between volumes" copy --from left $((1 * mib + 512))+$mib $((9 * mib + 512))
moved "between volumes: remapped" remapped=$((mib - 4 * kib)) moved_head_tail=$((4 * kib))
copied $((1 * mib + 512)) $mib $((9 * mib + 512)) "$work/left"
check "between volumes: same place" copy --from "$left_disk" $mib+65536 $mib
copied $mib 65536 $mib "$work/left"
check "between volumes: the destination is as it has to be" as_model
check "between volumes: the host engine" copy --engine host --from left 0+$mib $((14 * mib))
copied 0 $mib $((14 * mib)) "$work/left"
check "between volumes: the host brings the same" as_model
get "$work/held" 0 "$size" "$left_disk"
check "between volumes: the source is as it was" cmp "$work/left" "$work/held"
timeout 60 ublk del -n left
check "the source is deleted: the copy stays" as_model
timeout 60 ublk del -n right

add --size "$size" --copy memcpy -t loop -f "$work/left" || bail "a disk on a file is added"
cp "$work/left" "$work/model"
ublk stats -n "$id" --reset >"$work/stats"
check "loop: copy" copy $((1 * mib + 512))+$mib $((9 * mib + 512))
moved "loop: all is moved inside" moved_mode=$mib
copied $((1 * mib + 512)) $mib $((9 * mib + 512))
check "loop: the disk is as it has to be" as_model
timeout 60 ublk del -n "$id"

# An interrupt ends a copy at the next link; what it says is copied, is, and nothing after it.
add --size 128M --memory 512M --copy memcpy --copy-max-bytes 4K --copy-max-segment-bytes 4K || bail "a disk is added"
for at in 0 16 32 48; do put "$work/random" $((at * mib)); done
timeout 90 ublk copy -n "$id" 0+64M 64M >"$work/copy.log" 2>&1 &
copier=$!
within 30 sh -c '[ "$(http-unix /run/ublk/pools/*/control.sock GET "/v1/disks/'"$id"'/copies" | grep -o "\"bytes\":[0-9]*" | tr -dc 0-9)" -gt 0 ]'
# The process that timeout started.
kill -INT "$(pgrep -P "$copier")"
wait "$copier"
equal "interrupt: the copy ends with status 1" $? 1
check "interrupt: it says so" grep -q 'interrupted' "$work/copy.log"
prefix=$(sed -n 's/^copied \([0-9]*\) of 67108864 bytes.*/\1/p' "$work/copy.log")
note "$(cat "$work/copy.log")"
check "interrupt: it names a prefix" test "${prefix:-0}" -gt 0 -a "${prefix:-0}" -lt $((64 * mib))
get "$work/held" 0 $((64 * mib))
head -c "${prefix:-0}" "$work/held" >"$work/prefix"
check "interrupt: the prefix is copied" holds "$work/prefix" $((64 * mib))
# Four commands run at a time.
check "interrupt: nothing is far behind it" zeroes $((64 * mib + ${prefix:-0} + 64 * kib)) $((63 * mib - ${prefix:-0}))
