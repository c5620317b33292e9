# limit: 900
# needs: dmsetup udevadm ublk-bench dmz-format
# long: yes
# Targets of device mapper on our disks send them what the models of them say: the same requests in the same order where one
# copy is under way at a time, the same in any order and with neighbours merged where several are. So does the engine kcopyd
# of `ublk copy`.
# With arguments, only these parts of the test.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

# What udev reads of a new device would be among what is recorded.
udevadm settle --timeout=30
udevadm control --stop-exec-queue
at_exit 'udevadm control --start-exec-queue'
# dmsetup makes its nodes itself.
export DM_DISABLE_UDEV=1

# Of the devices that are made here.
sectors=$((16 << 11))

# filled VARIABLE: a disk of 80 MiB whose first 16 were written. All are in one pool, whose clock orders what they are sent.
filled() {
	add --pool dm --size 80M || bail "a disk is added"
	dd if=/dev/urandom of="$disk" bs=1M count=16 oflag=direct status=none || bail "it is written"
	eval "$1=$id"
}
filled a
filled b
filled m

# record ID...: begins to record what these disks are sent, from now on.
record() {
	recorded=("$@") traces=()
	local id
	for id; do
		: >"$work/trace.$id"
		ublk trace -n "$id" --format json >>"$work/trace.$id" &
		traces+=($!)
		within 30 began "$id" || bail "requests are recorded"
	done
}
# A read that no part of the test makes.
began() { dd if="/dev/ublkb$1" of=/dev/null bs=4k count=1 skip=4096 iflag=direct status=none && [ -s "$work/trace.$1" ]; }

# stop_recording: it fails when a request is missing.
stop_recording() {
	local pid
	sleep 1
	for pid in "${traces[@]}"; do
		kill -TERM "$pid"
		wait "$pid" || bail "everything is recorded"
	done
}

# sent: what the disks were sent, in order of time: operation, the disk's place among those that are recorded, first sector,
# sectors. The reads of `began` are left out.
sent() {
	local place=0 id
	for id in "${recorded[@]}"; do
		sed -n 's/.*"begun_ns":\([0-9]*\),.*"operation":"\([a-z_]*\)","offset":\([0-9]*\),"length":\([0-9]*\).*/\1 \2 \3 \4/p' \
			"$work/trace.$id" | awk -v place=$place '{ print $1, $2, place, $3 / 512, $4 / 512 }'
		place=$((place + 1))
	done | sort -s -n -k 1,1 | cut -d ' ' -f 2- | grep -v '^read . 32768 8$'
}

# model ARGUMENT...: what the model says that they are sent, as $predicted.
predicted=$work/predicted
model() { ublk-bench model "$@" >"$predicted" || bail "the model runs"; }

# agree SENT: is it what was predicted? A model that predicts nothing predicts nothing right.
agree() { [ -s "$predicted" ] && cmp -s "$predicted" "$1"; }
same() {
	if agree "$2"; then ok "$1"; return; fi
	note "predicted <, sent >; $(wc -l <"$predicted") and $(wc -l <"$2") requests"
	diff "$predicted" "$2" | head -n 40
	not_ok "$1"
}
same_unordered() {
	sort -o "$predicted" "$predicted"
	sort -o "$2" "$2"
	same "$1" "$2"
}
# Of requests, reads and writes that are multiples of so many sectors: metadata of the target are shorter.
whole() { awk -v len="$1" '($1 == "read" || $1 == "write") && $4 % len == 0'; }
# split SECTORS: makes several of each request that is longer, of those predicted and those sent. Jobs and slices of kcopyd
# that begin together are in one plug, where the block layer merges neighbours, unless the worker wakes between them.
split() {
	local file
	for file in "$predicted" "$work/sent"; do
		pieces "$1" <"$file" >"$work/pieces" && mv "$work/pieces" "$file"
	done
}
pieces() { awk -v len="$1" '{ for (at = 0; at < $4; at += len) print $1, $2, $3 + at, len < $4 - at ? len : $4 - at }'; }
moved() { grep -E '^(read|write) '; }

target() { dmsetup create "$@" && at_exit "dmsetup remove --retry $1 2>/dev/null"; }
drop() { check "$1 goes" dmsetup remove --retry "$1"; }
status() { dmsetup status "$1" | grep -q "$2"; }
clear_metadata() { dd if=/dev/zero of="/dev/ublkb$m" bs=1M count=4 oflag=direct status=none; }

clone() {
	if ! modprobe -q dm-clone; then
		skip clone "the kernel has no dm-clone"
		return
	fi
	local batch threshold
	while read -r batch threshold; do
		clear_metadata
		target clone --table "0 $sectors clone /dev/ublkb$m /dev/ublkb$b /dev/ublkb$a 128 1 no_hydration" ||
			bail "a clone is made"
		dmsetup message clone 0 hydration_batch_size "$batch"
		dmsetup message clone 0 hydration_threshold "$threshold"
		record "$a" "$b"
		dmsetup message clone 0 enable_hydration
		check "a clone is hydrated, batches of $batch" within 60 status clone ' 256/256 '
		stop_recording
		sent | whole 128 >"$work/sent"
		model clone --mib 16 --chunk-kib 64 --batch "$batch" --threshold "$threshold"
		if [ "$threshold" -lt $((2 * batch)) ]; then
			same "clone, batches of $batch: the same requests in the same order" "$work/sent"
		else
			split $((batch * 128))
			same_unordered "clone, batches of $batch, several under way: the same requests, split" "$work/sent"
		fi
		drop clone
	done <<<"$(printf '1 1\n4 4\n4 8\n')"
}

mirror() {
	modprobe dm-mirror || bail "the kernel has dm-mirror"
	record "$a" "$b"
	target mirror --table "0 $sectors mirror core 1 1024 2 /dev/ublkb$a 0 /dev/ublkb$b 0 1 handle_errors" ||
		bail "a mirror is made"
	check "a mirror is synchronised" within 60 status mirror ' 32/32 '
	stop_recording
	sent | moved >"$work/sent"
	model mirror --mib 16 --chunk-kib 512
	same "mirror: the same requests in the same order" "$work/sent"
	# The comparison can fail.
	model mirror --mib 16 --chunk-kib 256
	check "canary: regions of half the size are another prediction" differ "$work/sent"
	drop mirror
	get "$work/one" 0 $((16 << 20)) "/dev/ublkb$a" && get "$work/two" 0 $((16 << 20)) "/dev/ublkb$b"
	check "both legs hold the same" cmp "$work/one" "$work/two"
}
differ() { ! agree "$1"; }

# The first 4 KiB of chunk after chunk are written, each of which is copied and recorded before.
snapshot() {
	modprobe dm-snapshot || bail "the kernel has dm-snapshot"
	dd if=/dev/zero of="/dev/ublkb$b" bs=1M count=1 oflag=direct status=none
	target base --table "0 $sectors snapshot-origin /dev/ublkb$a" || bail "an origin is made"
	target snap --table "0 $sectors snapshot /dev/ublkb$a /dev/ublkb$b P 128" || bail "a snapshot is made"
	dmsetup suspend base && dmsetup resume base
	record "$a" "$b"
	parts base 16 || bail "chunks of the origin are written"
	stop_recording
	sent | moved >"$work/sent"
	model snapshot --mib 1 --chunk-kib 64
	same "snapshot: the same requests in the same order" "$work/sent"
	# The same with chunks of 4 KiB, past the end of an area: 256 records.
	drop snap
	dd if=/dev/zero of="/dev/ublkb$b" bs=1M count=1 oflag=direct status=none
	target snap --table "0 $sectors snapshot /dev/ublkb$a /dev/ublkb$b P 8" || bail "another is made"
	dmsetup suspend base && dmsetup resume base
	record "$a" "$b"
	dd if=/dev/zero of=/dev/mapper/base bs=4k count=300 oflag=direct conv=notrunc,nocreat status=none ||
		bail "more than an area of them"
	stop_recording
	sent | moved >"$work/sent"
	model snapshot --mib 2 --chunk-kib 4
	head -n "$(wc -l <"$work/sent")" "$predicted" >"$work/head" && mv "$work/head" "$predicted"
	# Read, copy, records and the write itself; zeroes for the next area.
	equal "snapshot: requests of 300 chunks" "$(wc -l <"$work/sent")" $((300 * 4 + 1))
	same "snapshot: the same when an area of records is full" "$work/sent"
	drop snap
	drop base
}

# parts NAME COUNT: writes the first 4 KiB of so many blocks of 64 KiB in turn.
parts() {
	local block
	for ((block = 0; block < $2; block++)); do
		dd if=/dev/zero of="/dev/mapper/$1" bs=4k count=1 seek=$((block * 16)) oflag=direct conv=notrunc,nocreat status=none ||
			return
	done
}

# Blocks that a snapshot shares are copied before a part of them is written.
thin() {
	modprobe dm-thin-pool || bail "the kernel has dm-thin"
	clear_metadata
	target pool --table "0 $((80 << 11)) thin-pool /dev/ublkb$m /dev/ublkb$a 128 0 1 skip_block_zeroing" ||
		bail "a pool is made"
	dmsetup message pool 0 'create_thin 0'
	target thin --table "0 $sectors thin /dev/mapper/pool 0" || bail "a thin volume is made"
	dd if=/dev/zero of=/dev/mapper/thin bs=64k count=64 oflag=direct conv=notrunc,nocreat status=none
	dmsetup suspend thin && dmsetup message pool 0 'create_snap 1 0' && dmsetup resume thin
	record "$a"
	parts thin 64 || bail "shared blocks are written"
	stop_recording
	sent | moved >"$work/sent"
	model thin --mib 4 --chunk-kib 64
	same "thin: the same requests in the same order" "$work/sent"
	drop thin
	drop pool
}

# A random zone is moved to a sequential one when nothing is asked for: extent by extent, and zeroes between them.
zoned() {
	modprobe dm-zoned || bail "the kernel has dm-zoned"
	local zone=$((4 << 11)) extent extents=(0+128 256+64 800+1536 4608+64) options=()
	add --zoned --zone-size 4M --conventional-zones 8 --size 128M || bail "a zoned disk is added"
	check "it is formatted" dmz-format "$disk" "$zone" 32 24
	target zoned --table "0 $((24 * zone)) zoned $disk" || bail "a zoned target is made"
	check "no random zone is in use" status zoned ' 6/6 random'
	for extent in "${extents[@]}"; do
		dd if=/dev/urandom of=/dev/mapper/zoned bs=$((${extent#*+} * 512)) count=1 iflag=fullblock \
			seek=$((${extent%+*} * 512)) oflag=direct,seek_bytes conv=notrunc,nocreat status=none
		options+=(--extent "$extent")
	done
	check "one is" status zoned ' 5/6 random'
	dd if=/dev/mapper/zoned of="$work/before" bs=1M count=3 iflag=direct status=none
	record "$id"
	check "it is reclaimed" within 120 status zoned ' 6/6 random'
	# Two zones of metadata, the random zones from number 2 on, eight conventional ones in all, two sequential ones reserved.
	stop_recording
	sent | awk -v data=$((2 * zone)) '$3 >= data' >"$work/all"
	moved <"$work/all" >"$work/sent"
	# The longest extent has two slices, of which the second may be read before or after the first is written.
	model zoned --from $((2 * zone)) --to $((10 * zone)) "${options[@]}"
	grep '^write' "$predicted" >"$work/writes" && grep '^write' "$work/sent" >"$work/writes.sent"
	equal "zoned: the same writes in the same order" "$(pieces 1024 <"$work/writes.sent")" "$(pieces 1024 <"$work/writes")"
	split 1024
	same_unordered "zoned: the same requests, in slices" "$work/sent"
	# Of the zone, before zeroes are written since the disk has no Write Zeroes.
	equal "zoned: a report before each of three holes" "$(grep -c '^report_zones' "$work/all")" 3
	dd if=/dev/mapper/zoned of="$work/after" bs=1M count=3 iflag=direct status=none
	check "zoned: the same contents" cmp "$work/before" "$work/after"
	drop zoned
}

# The engine of `ublk copy`: a slice of 512 KiB after the other is read and written.
engine() {
	add --size 64M || bail "a disk is added"
	random "$work/file" $(((5 << 20) + 4096))
	put "$work/file" $((1 << 20))
	record "$id"
	check "engine kcopyd copies a range of a live disk" \
		ublk copy -n "$id" $((1 << 20))+$(((5 << 20) + 4096)) 32M --engine kcopyd --verify
	check "what was copied is there" holds "$work/file" $((32 << 20))
	stop_recording
	sent >"$work/all"
	# Eight slices and two, and the rest; the checks read it too, so that writes alone are counted.
	local slice
	for ((slice = 0; slice < 10; slice++)); do printf 'write 0 %s 1024\n' $(((32 << 11) + slice * 1024)); done >"$predicted"
	printf 'write 0 %s 8\n' $(((32 << 11) + 10240)) >>"$predicted"
	grep '^write' "$work/all" >"$work/sent"
	same_unordered "engine kcopyd: its slices" "$work/sent"
	check_fails "a range onto itself is refused" 1 'overlap' ublk copy -n "$id" 0+1M 512K --engine kcopyd
	check_fails "so is a range beyond the end" 1 '.' ublk copy -n "$id" 0+1M 64M --engine kcopyd
}

for part in ${*:-clone mirror snapshot thin zoned engine}; do "$part"; done
