# What a disk of $size bytes has to hold, kept by dd alone. Sourced after disk.sh, never run.

kib=1024 mib=$((1 << 20)) size=$((16 << 20))
random "$work/random" "$size"

# copied SOURCE LENGTH DESTINATION [FROM]: the same in the model, out of another one if given.
copied() {
	cp "${4:-$work/model}" "$work/source"
	dd if="$work/source" of="$work/model" bs=64k conv=notrunc status=none \
		iflag=skip_bytes,count_bytes oflag=seek_bytes skip="$1" count="$2" seek="$3"
}
# fresh: the disk and its model hold the random bytes, and nothing has been counted.
fresh() {
	cp "$work/random" "$work/model"
	put "$work/model" 0
	udevadm settle -t 20
	ublk stats -n "$id" --reset >"$work/stats"
}
# The whole disk: sources as they were, destinations with what those held before, nothing else changed.
as_model() { holds "$work/model" 0; }
