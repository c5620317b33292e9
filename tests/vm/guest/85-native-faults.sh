# limit: 900
# long: yes
# needs: addpart delpart blkzone
# Native copies that fail at a known place: whoever issued them learns how far they came, whatever the order in which their
# commands end, and nothing is changed but what their other commands did.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
. "$(dirname "$0")/zoned.sh"
. "$(dirname "$0")/native.sh"

fault() { timeout 60 ublk fault "$1" -n "$id" "${@:2}" >"$work/fault"; }
hangs() { timeout 60 ublk fault list -n "$id" --json | tr -d ' \n' | grep -q '"hung":\[[0-9]'; }

# Source n has lengths[n] bytes and begins n MiB behind the first byte.
lengths=($((4 * kib)) 512 $((64 * kib)) 1024 $((32 * kib)) 512 $((8 * kib + 512)) $((16 * kib)))
ranges=()
for n in {0..7}; do ranges+=("${n}M+${lengths[n]}"); done
# before N: the bytes of the sources before source N.
before() {
	local sum=0 n
	for ((n = 0; n < $1; n++)); do sum=$((sum + lengths[n])); done
	echo $sum
}
# arrive TO SOURCE...: these, each at its place behind TO.
arrive() {
	local n
	for n in "${@:2}"; do copied $((n * mib)) "${lengths[n]}" $(($1 + $(before "$n"))); done
}
# struck WHAT ERROR DONE TO [OPTION...]: a copy of all sources to TO fails with this error and so much done, all of which
# the model has by then.
struck() {
	if native "${@:5}" "${ranges[@]}" "$4" >"$work/native"; then not_ok "$1: it fails"; else ok "$1: it fails"; fi
	check "$1: with its error" grep -q "$2" "$work/copy.log"
	equal "$1: it says how far it came" "$(done_of "$work/copy.log")" "$3"
	check "$1: so far and no farther" as_model
}

to=$((9 * mib + 512))
add --size "$size" --memory 512M -q 1 || bail "a disk is added"
for door in native native-async; do
	for k in 0 1 5 7; do
		fresh
		fault add op=copy action=fail-at:$k count=1
		# shellcheck disable=SC2046
		arrive $to $(seq 0 $((k - 1)))
		struck "$door, segment $k" 'No data available' "$(before $k)" $to
		fault del
	done
	check "$door: without the rule" native "${ranges[@]}" $to

	fresh
	fault add op=copy action=stop-at:$((4 * kib + 512 + 20 * kib)) count=1
	arrive $to 0 1
	copied $((2 * mib)) $((20 * kib)) $((to + 4 * kib + 512))
	# What readers had cached of the destination goes although the copy fails.
	dd if="$disk" of=/dev/null bs=1M status=none
	struck "$door, inside a segment" 'Input/output error' $((4 * kib + 512 + 20 * kib)) $to
	check "$door, inside a segment: readers see it" cmp "$disk" "$work/model"
	fault del

	# Four commands of two sources; the third fails, the others are done, and how far it came is how far the first of them
	# came that failed, even if it ends before those in front of it.
	check "$door: four commands: set" timeout 60 ublk set -n "$id" copy-max-segments=2
	fresh
	fault add op=copy range=5M+512 action=fail-at:1
	arrive $to 0 1 2 3 4 6 7
	struck "$door, command 3" 'No data available' "$(before 5)" $to
	fresh
	fault add op=copy range=0+512 action=delay:1s
	arrive $to 0 1 2 3 4 6 7
	struck "$door, command 3 before command 1" 'No data available' "$(before 5)" $to
	fresh
	fault add op=copy range=3M+512 action=fail-at:1
	arrive $to 0 1 2 4 6 7
	struck "$door, two commands" 'No data available' "$(before 3)" $to
	fault del
	fresh
	fault add op=copy range=0+512 action=error:IOERR
	arrive $to 2 3 4 5 6 7
	struck "$door, the first command" 'Input/output error' 0 $to
	fault del
	check "$door: one command: set" timeout 60 ublk set -n "$id" copy-max-segments=128
done

# A partition counts from its own start.
door=native
fresh
check "a partition" addpart "$disk" 1 $((mib / 512)) $((15 * mib / 512))
udevadm settle -t 20
fault add op=copy action=fail-at:5 count=1
for n in {0..4}; do copied $(((n + 1) * mib)) "${lengths[n]}" $((mib + to + $(before "$n"))); done
struck "partition" 'No data available' "$(before 5)" $to --node "${disk}p1"
fault del
delpart "$disk" 1

# What is never answered ends with the rule, or with the disk.
fresh
fault add op=copy action=hang
for ending in "fault del" "del"; do
	timeout -k 5 120 ublk copy -n "$id" --door native "${ranges[@]}" $to >"$work/copy.log" 2>&1 &
	copy=$!
	check "hang, $ending: it hangs" within 30 hangs
	# shellcheck disable=SC2086
	timeout 60 ublk $ending -n "$id" >"$work/ending"
	equal "hang, $ending: ends it" $? 0
	check "hang, $ending: the copy ends" ended 60 $copy || kill -KILL $copy
	wait $copy
	equal "hang, $ending: the copy fails" $? 1
	equal "hang, $ending: nothing is done" "$(done_of "$work/copy.log")" 0
	[ "$ending" = del ] || fault add op=copy action=hang
done
check "hang: no task is blocked" within 20 unblocked

# In a zone the pointer stays behind what is done, and the kernel writes on there.
add --size 64M --memory 512M --zoned --zone-size 4M --conventional-zones 4 || bail "a zoned disk is added"
put "$work/random" 0
head -c $((64 * kib)) "$work/random" >"$work/a"
for door in native native-async; do
	zones reset 5
	fault add op=copy action=fail-at:5 count=1
	native "${ranges[@]}" "$(at 5)" >"$work/native"
	equal "$door, zone: it fails" $? 1
	equal "$door, zone: it says how far it came" "$(done_of "$work/copy.log")" "$(before 5)"
	equal "$door, zone: and so does the pointer" "$(state 5)" "oi $(before 5)"
	check "$door, zone: the kernel writes on" put "$work/a" "$(at 5 "$(before 5)")"
	check "$door, zone: and copies" native 0+64K "$(at 5 $(($(before 5) + 64 * kib)))"
	cat "$work/a" "$work/a" >"$work/want"
	check "$door, zone: both are there" holds "$work/want" "$(at 5 "$(before 5)")"
	for n in {0..4}; do tail -c +$((n * mib + 1)) "$work/random" | head -c "${lengths[n]}"; done >"$work/want"
	check "$door, zone: behind what was done" holds "$work/want" "$(at 5)"
	fault del
done
