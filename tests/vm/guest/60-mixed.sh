# limit: 300
# needs: fio http-unix
# All at the same time: two disks of a pool under fio, copies within and between them, limits and modes that change
# under the copies, and in the end one disk is deleted while the other works on.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

mib=$((1 << 20))
add --size 256M -q 2 --pool mixed --memory 1G --name one || bail "a disk is added"
one=$disk one_id=$id
add --size 256M -q 4 --pool mixed --name two || bail "a second disk of the pool is added"
two=$disk two_id=$id
random "$work/data" $((16 * mib))
for disk in "$one" "$two"; do put "$work/data" $((128 * mib)); done

# Each verifies its own half of a disk.
for disk in "$one" "$two"; do
	timeout -k 5 120 fio --name=verify --filename="$disk" --allow_file_create=0 --rw=randrw --bssplit=512/20:4k/50:64k/30 --size=24m \
		--ioengine=io_uring --iodepth=8 --direct=1 --verify=crc32c --verify_fatal=1 --verify_backlog=128 --loops=20 \
		--time_based --runtime=25 --minimal >"$work/fio.${disk##*/}" 2>&1 &
	fios+=($!)
done

# The other half is copied to and fro meanwhile.
copies() {
	local name=$1 other=$2 n=0
	while [ ! -e "$work/stop" ]; do
		n=$((n + 1))
		timeout 60 ublk copy -n "$name" 128M+16M 160M || return
		timeout 60 ublk copy -n "$name" --from "$other" $((128 * mib + 512))+8M 192M || return
	done
	echo "$n" >"$work/copies.$name"
}
copies one two >"$work/copies.log.one" 2>&1 &
first=$!
copies two one >"$work/copies.log.two" 2>&1 &
second=$!
changes() {
	local n
	for n in 1 2 3 4 5; do
		for change in copy=memcpy copy-max-bytes=1M copy=emulate copy-max-segments=1 copy=remap \
			copy-max-segment-bytes=64K copy-max-bytes=128M copy-max-segments=128 copy-max-segment-bytes=16M; do
			timeout 60 ublk set -n one "$change" && timeout 60 ublk set -n two "$change" || return
			[ ! -e "$work/stop" ] || return 0
		done
	done
}
changes >"$work/changes.log" 2>&1 &
changer=$!
sleep 20
touch "$work/stop"
check "limits and modes change under copies" wait "$changer" || cat "$work/changes.log"
check "copies within and from the other disk" wait "$first" || cat "$work/copies.log.one"
check "copies on the second disk" wait "$second" || cat "$work/copies.log.two"
note "rounds of copies: $(cat "$work"/copies.one "$work"/copies.two | tr '\n' ' ')"
for name in one two; do check "more than one round on disk $name" test "$(cat "$work/copies.$name")" -gt 1; done
check "fio verifies on the first disk" wait "${fios[0]}" || tail -n 20 "$work/fio.${one##*/}"
check "fio verifies on the second disk" wait "${fios[1]}" || tail -n 20 "$work/fio.${two##*/}"
for disk in "$one" "$two"; do
	check "the source on ${disk##*/} is as it was" holds "$work/data" $((128 * mib))
	check "the copy on ${disk##*/} is right" holds "$work/data" $((160 * mib))
	tail -c +513 "$work/data" | head -c 8M >"$work/part"
	check "the copy from the other disk to ${disk##*/} is right" holds "$work/part" $((192 * mib))
done

# One goes while both work; the other goes on.
disk=$two id=$two_id
load 60 || bail "fio runs on the second disk"
doomed=$fio
disk=$one id=$one_id
timeout -k 5 120 fio --name=verify --filename="$one" --allow_file_create=0 --rw=randrw --bs=4k --size=16m --ioengine=io_uring --iodepth=8 \
	--direct=1 --verify=crc32c --verify_fatal=1 --verify_backlog=128 --time_based --runtime=10 --minimal \
	>"$work/fio.log" 2>&1 &
other=$!
timeout 60 ublk copy -n two 128M+16M 160M >"$work/copy.log" 2>&1 &
copier=$!
check "one disk of the pool is deleted under I/O" timeout 60 ublk del -n two
check "its users get errors" ended 15 "$doomed"
check "a copy on it ends" ended 15 "$copier"
check "fio on the other disk goes on" wait "$other" || tail -n 20 "$work/fio.log"
check "the server is the same" test "$(listed 7 "$one_id")" = "$server"
check "the other disk still copies" timeout 60 ublk copy -n one 128M+16M 224M
check "the copy is right" holds "$work/data" $((224 * mib))
