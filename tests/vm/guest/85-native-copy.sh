# limit: 600
# needs: addpart delpart python3
# A kernel with a copy operation brings a copy to the server as one command, however many sources it has, cuts what
# exceeds the limits, keeps its page cache out of the way, refuses what it must, and tells how far a failed one came.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

doors() { timeout 60 ublk features | sed -n 's/^copy doors: //p'; }
if ! timeout 60 ublk features | grep -q -P '^\tCOPY '; then
	equal "without the operation only the API copies" "$(doors)" api
fi
. "$(dirname "$0")/native.sh"
equal "features name the doors" "$(doors)" "api native"

# gather: the bytes of 300 sources, one in every 4 KiB, of one to eight sectors.
gather() {
	python3 -c 'import sys
data = sys.stdin.buffer.read()
for n in range(300): sys.stdout.buffer.write(data[n * 4096 : n * 4096 + 512 * (1 + n % 8)])'
}
add --size "$size" --memory 512M || bail "a disk is added"
equal "sysfs: bytes" "$(queue_limit copy_max_bytes)" $((128 * mib))
equal "sysfs: bytes of a source" "$(queue_limit copy_max_segment_bytes)" $((16 * mib))
equal "sysfs: sources" "$(queue_limit copy_max_segments)" 128
check "info names the doors" sh -c "ublk info -n $id | grep -q '^copy doors  *api native$'"

for door in native native-async; do
	fresh
	check "$door: one source" native $mib+$mib $((9 * mib))
	copied $mib $mib $((9 * mib))
	check "$door: the copy has the direction it has to have" as_model
	equal "$door: one command" "$(commands)" 1
	equal "$door: no byte crosses the link" "$(counter door_written_bytes)" 0
	check "$door: the ledger line" grep -q '1 copy command, remapped 1 MiB' "$work/copy.log"

	fresh
	check "$door: sources of unequal length" native 512+512 $((3 * mib))+4096 $((5 * mib + 1024))+$((60 * kib + 512)) 0+512 \
		$((9 * mib + 512))
	copied 512 512 $((9 * mib + 512))
	copied $((3 * mib)) 4096 $((9 * mib + 1024))
	copied $((5 * mib + 1024)) $((60 * kib + 512)) $((9 * mib + 1024 + 4096))
	copied 0 512 $((9 * mib + 1024 + 4096 + 60 * kib + 512))
	check "$door: they arrive one behind the other" as_model
	equal "$door: in one command" "$(commands)" 1

	fresh
	ranges=()
	for n in {0..299}; do
		ranges+=("$((n * 4096))+$((512 * (1 + n % 8)))")
	done
	check "$door: 300 sources in one call" native "${ranges[@]}" $((8 * mib))
	gather <"$work/random" >"$work/part"
	dd if="$work/part" of="$work/model" bs=64k conv=notrunc oflag=seek_bytes seek=$((8 * mib)) status=none
	check "$door: 300 sources arrive" as_model
	equal "$door: at most 128 in a command" "$(commands)" 3
done
door=native

fresh
for ranges in "0+64K 32K" "32K+64K 0" "0+64K 0" "0+4096 3584" "0+8192 $mib+512 4096" "$mib+512 0+8192 4096"; do
	# shellcheck disable=SC2086
	refused "overlap: $ranges" 'refuses the ranges' $ranges
done
for ranges in "0+1 1M" "1+512 1M" "0+512 1048577" "0+0 1M" "$((size - 512))+1024 0" "0+1024 $((size - 512))" \
	"$size+512 0" "18446744073709551104+512 0"; do
	# shellcheck disable=SC2086
	refused "not whole blocks of the disk: $ranges" 'refuses the ranges' $ranges
done
equal "what is refused does not reach the server" "$(commands)" 0
check "what is refused changes nothing" as_model
check "ranges that only touch" native 0+65536 65536
copied 0 65536 65536
check "ranges that only touch: arrive" as_model

# The page cache. A descriptor that is open keeps dirty pages from being written back when another one is closed.
fresh
exec 9<>"$disk"
random "$work/new" 65536
dd if="$work/new" of="$disk" bs=64k seek=$((2 * mib)) oflag=seek_bytes conv=notrunc,nocreat status=none
dd if="$disk" of="$work/old" bs=1M skip=9 count=1 status=none
random "$work/sector" 512
dd if="$work/sector" of="$disk" bs=512 seek=$((9 * mib + 68 * kib)) oflag=seek_bytes conv=notrunc,nocreat status=none
dd if="$work/new" of="$work/model" bs=64k seek=$((2 * mib)) oflag=seek_bytes conv=notrunc status=none
dd if="$work/sector" of="$work/model" bs=512 seek=$((9 * mib + 68 * kib)) oflag=seek_bytes conv=notrunc status=none
check "page cache: a copy" native $((2 * mib))+65536 $((9 * mib + 4 * kib + 512))
copied $((2 * mib)) 65536 $((9 * mib + 4 * kib + 512))
dd if="$disk" of="$work/seen" bs=1M skip=9 count=1 status=none
dd if="$work/model" of="$work/want" bs=1M skip=9 count=1 status=none
check "page cache: readers see the copy" cmp "$work/seen" "$work/want"
exec 9>&-
check "page cache: dirty sources were copied, a dirty neighbour was kept" as_model

# A partition counts from its own start, and is a border.
fresh
check "a partition" addpart "$disk" 1 $((4 * mib / 512)) $((4 * mib / 512))
udevadm settle -t 20
check "partition: a copy" native --node "${disk}p1" 0+65536 $((3 * mib + 512))+4096 $mib
copied $((4 * mib)) 65536 $((5 * mib))
copied $((7 * mib + 512)) 4096 $((5 * mib + 65536))
check "partition: all sources are moved to it" as_model
for ranges in "$((4 * mib))+512 0" "$((4 * mib - 512))+1024 0" "0+512 $((4 * mib))" "4096+512 $((9 * mib))+512 0"; do
	# shellcheck disable=SC2086
	refused "partition: outside: $ranges" 'refuses the ranges' --node "${disk}p1" $ranges
done
check "partition: its last block" native --node "${disk}p1" $((4 * mib - 4096))+4096 0
copied $((8 * mib - 4096)) 4096 $((4 * mib))
check "partition: nothing outside was touched" as_model
delpart "$disk" 1

# Schedulers, with a copy that is four commands for each, and merging switched off.
check "four commands: set" timeout 60 ublk set -n "$id" copy-max-bytes=32K copy-max-segment-bytes=32K
for scheduler in none mq-deadline kyber bfq; do
	fresh
	check "$scheduler: set" sh -c "echo $scheduler >/sys/block/ublkb$id/queue/scheduler"
	check "$scheduler: a copy" native 512+65536 $((3 * mib))+65536 $((9 * mib))
	copied 512 65536 $((9 * mib))
	copied $((3 * mib)) 65536 $((9 * mib + 65536))
	check "$scheduler: it arrives" as_model
	equal "$scheduler: four commands" "$(commands)" 4
done
echo 2 >"/sys/block/ublkb$id/queue/nomerges"
check "nomerges: a copy" native $((4 * mib))+65536 $((12 * mib))
copied $((4 * mib)) 65536 $((12 * mib))
check "nomerges: it arrives" as_model

check "copy off: set" timeout 60 ublk set -n "$id" copy=off
refused "copy off: the disk refuses" 'does not take' 0+4096 $mib
timeout 60 ublk del -n "$id"

# Limits: what is too much is cut, between sources where it can be. Queue depth 1.
add --size "$size" --memory 512M -q 1 -d 1 --copy-max-bytes 128K --copy-max-segment-bytes 64K --copy-max-segments 4 ||
	bail "a disk with small limits is added"
equal "limits: bytes" "$(queue_limit copy_max_bytes)" $((128 * kib))
fresh
ranges=()
for n in {0..7}; do ranges+=("$((n * mib / 2))+48K"); done
check "split: 8 sources of 48 KiB" native "${ranges[@]}" $((9 * mib + 512))
for n in {0..7}; do copied $((n * mib / 2)) $((48 * kib)) $((9 * mib + 512 + n * 48 * kib)); done
check "split: they arrive" as_model
equal "split: two sources a command, none in parts" "$(commands)" 4
fresh
ranges=()
for n in {0..8}; do ranges+=("$((n * mib / 2 + 512))+512"); done
check "split: 9 sources of a sector" native "${ranges[@]}" $((9 * mib))
for n in {0..8}; do copied $((n * mib / 2 + 512)) 512 $((9 * mib + n * 512)); done
check "split: sectors arrive" as_model
equal "split: four sources a command" "$(commands)" 3
fresh
check "split: a source of 1 MiB" native $mib+$mib $((9 * mib + 512))
copied $mib $mib $((9 * mib + 512))
check "split: a long source arrives" as_model
equal "split: a long source is cut at its limit" "$(commands)" 16
timeout 60 ublk del -n "$id"

add --size "$size" --memory 512M --copy off || bail "a disk that does not copy is added"
equal "no copies: sysfs says so" "$(queue_limit copy_max_bytes)" 0
refused "no copies: the device does not take them" 'does not take' 0+4096 $mib
timeout 60 ublk del -n "$id"

# The store runs full in the middle of a copy of eight sources.
add --size 64M --memory 16M --copy memcpy --copy-max-segment-bytes 1M || bail "a disk in little memory is added"
for door in native native-async; do
	ublk stats -n "$id" --reset >"$work/stats"
	blkdiscard "$disk"
	head -c $((12 * mib)) "$work/random" >"$work/twelve"
	put "$work/twelve" 0
	ranges=()
	for n in 7 6 5 4 3 2 1 0; do ranges+=("${n}M+1M"); done
	refused "$door: no space for all of a copy" 'No space' "${ranges[@]}" 32M
	timeout 90 ublk copy -n "$id" --door "$door" "${ranges[@]}" 32M >"$work/copy.log" 2>&1
	done=$(done_of "$work/copy.log")
	check "$door: it says how much is copied" test "${done:-0}" -ge $((2 * mib)) -a "${done:-0}" -lt $((8 * mib))
	for n in 7 6 5 4 3 2 1 0; do dd if="$work/random" bs=1M skip=$n count=1 status=none; done | head -c "${done:-0}" >"$work/prefix"
	check "$door: that much is copied" holds "$work/prefix" $((32 * mib))
	check "$door: the sources are as they were" holds "$work/twelve" 0
done
door=native
timeout 60 ublk del -n "$id"

# Two tasks at once, each with sources and destinations of its own.
add --size "$size" --memory 512M -q 2 || bail "a disk for two tasks is added"
fresh
loop() { # SOURCE DESTINATION
	local n
	for n in {1..20}; do
		timeout 60 ublk copy -n "$id" --door native $(($1 + n * 512))+32K $(($1 + n * 8192))+32K "$2" >/dev/null || return
	done
}
loop 0 $((8 * mib)) &
first=$!
loop $((4 * mib)) $((12 * mib)) &
second=$!
wait "$first"
equal "two tasks: the first" $? 0
wait "$second"
equal "two tasks: the second" $? 0
copied $((20 * 512)) 32768 $((8 * mib))
copied $((20 * 8192)) 32768 $((8 * mib + 32768))
copied $((4 * mib + 20 * 512)) 32768 $((12 * mib))
copied $((4 * mib + 20 * 8192)) 32768 $((12 * mib + 32768))
check "two tasks: each has its own" as_model
