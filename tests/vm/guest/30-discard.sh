# limit: 240
# needs: blkdiscard fallocate http-unix
# What is discarded or written with zeroes reads as zeroes, nothing beside it changes, and its memory is
# given back; up to the longest request that the driver takes.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

mib=$((1 << 20))
add --size 8G --memory 512M || bail "a disk is added"
random "$work/model" 16M

# fill: the disk holds the model in its first 16 MiB, and nothing else.
fill() { timeout 60 blkdiscard "$disk" && put "$work/model" 0; }

# zeroed OFFSET BYTES: the same in the model.
zeroed() {
	dd if=/dev/zero of="$work/model" bs=64k conv=notrunc oflag=seek_bytes iflag=count_bytes \
		seek="$1" count="$2" status=none
}

check "the disk is filled" fill
equal "in use: what was written" "$(usage mapped_bytes)" $((16 * mib))
check "blkdiscard of a range" timeout 60 blkdiscard -o $((2 * mib)) -l $mib "$disk"
zeroed $((2 * mib)) $mib
check "the range reads zeroes, its neighbours do not" holds "$work/model" 0
equal "its memory is given back" "$(usage mapped_bytes)" $((15 * mib))

# Not on the borders of blocks: the kernel cuts these to its granularity or sends them; either way nothing
# outside may change. With -z the zeroes have to be there.
check "blkdiscard -z of a range" timeout 60 blkdiscard -z -o $((4 * mib + 512)) -l $((mib + 1024)) "$disk"
zeroed $((4 * mib + 512)) $((mib + 1024))
check "just that range reads zeroes" holds "$work/model" 0
check "blkdiscard -z of one sector" timeout 60 blkdiscard -z -o $((6 * mib + 1536)) -l 512 "$disk"
zeroed $((6 * mib + 1536)) 512
check "just that sector reads zeroes" holds "$work/model" 0

before=$(usage mapped_bytes)
check "fallocate -z: zeroes that keep the space" timeout 60 fallocate -z -n -o $((8 * mib)) -l $mib "$disk"
zeroed $((8 * mib)) $mib
check "they read zeroes" holds "$work/model" 0
equal "the space is kept" "$(usage mapped_bytes)" "$before"
before=$(usage mapped_bytes)
check "fallocate: a punched hole" timeout 60 fallocate -p -o $((10 * mib)) -l $mib "$disk"
zeroed $((10 * mib)) $mib
check "it reads zeroes" holds "$work/model" 0
equal "and gives its memory back" "$(usage mapped_bytes)" $((before - mib))

# Written again after each of them.
random "$work/again" 1M
for at in 2 4 8 10; do
	put "$work/again" $((at * mib))
	dd if="$work/again" of="$work/model" bs=1M oflag=seek_bytes seek=$((at * mib)) conv=notrunc status=none
done
check "discarded ranges can be written again" holds "$work/model" 0

# A longer range than one request takes: the driver cuts it, and the server answers each piece in full.
longest=$(queue_limit discard_max_bytes)
note "longest discard $longest, write zeroes $(queue_limit write_zeroes_max_bytes)"
check "the limit is below 2 GiB" test "$longest" -lt $((2 << 30)) -a "$longest" -gt $((1 << 30))
put "$work/again" $((longest - mib / 2))
put "$work/again" $(((8 << 30) - mib))
ublk stats -n "$id" --reset >"$work/stats"
check "blkdiscard of the whole disk" timeout 60 blkdiscard "$disk"
# The kernel cuts at 4 GiB as well.
check "in few requests" test "$(counter discard)" -le $(((8 << 30) / longest * 2 + 1))
check "the beginning reads zeroes" zeroes 0 $((16 * mib))
check "where two requests meet, too" zeroes $((longest - mib)) $((2 * mib))
check "and the end" zeroes $(((8 << 30) - mib)) $mib
equal "nothing is in use" "$(usage mapped_bytes)" 0

put "$work/again" $((longest - mib / 2))
put "$work/again" $(((8 << 30) - mib))
ublk stats -n "$id" --reset >"$work/stats"
check "zeroes for the whole disk" timeout 60 fallocate -p -o 0 -l 8G "$disk"
check "in few requests, too" test "$(counter write_zeroes)" -le $(((8 << 30) / longest * 2 + 1))
check "where two requests meet it reads zeroes" zeroes $((longest - mib)) $((2 * mib))
check "and at the end" zeroes $(((8 << 30) - mib)) $mib
equal "nothing is in use after it" "$(usage mapped_bytes)" 0

# Zeroes that may not unmap keep their place, and take it where there was none.
check "blkdiscard -z where nothing is" timeout 60 blkdiscard -z -o $((longest - mib)) -l $((2 * mib)) "$disk"
equal "takes the space" "$(usage mapped_bytes)" $((2 * mib))
check "and reads zeroes" zeroes $((longest - mib)) $((2 * mib))
equal "no request failed" "$(counter failed)" 0

random "$work/image" 16M
cp "$work/image" "$work/model"
add -t loop -f "$work/image" || bail "a disk on a file is added"
check "loop: blkdiscard of a range" timeout 60 blkdiscard -o $((2 * mib)) -l $mib "$disk"
zeroed $((2 * mib)) $mib
check "loop: blkdiscard -z of one sector" timeout 60 blkdiscard -z -o $((6 * mib + 1536)) -l 512 "$disk"
zeroed $((6 * mib + 1536)) 512
check "loop: just these read zeroes" holds "$work/model" 0
sync
check "loop: in the file, too" cmp "$work/model" "$work/image"
check "loop: the file gave the space back" test "$(stat -c '%b' "$work/image")" -le $((15 * mib / 512))
