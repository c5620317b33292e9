# limit: 420
# needs: fio
# The disk keeps what fio wrote: through both ways of fio, one and four queues, all sizes of requests, and with
# discards in between.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

for queues in 1 4; do
	add --size 256M -q "$queues" || bail "a disk with $queues queues is added"
	equal "$queues: the kernel has these queues" \
		"$(find "/sys/block/ublkb$id/mq" -mindepth 1 -maxdepth 1 | wc -l)" "$queues"
	check "$queues: psync, 4 KiB" verify --ioengine=psync --direct=1 --rw=randwrite --bs=4k --size=6m
	check "$queues: io_uring, 4 KiB, depth 32" \
		verify --ioengine=io_uring --iodepth=32 --direct=1 --rw=randwrite --bs=4k --size=16m
	check "$queues: io_uring, 512 B to 1 MiB" \
		verify --ioengine=io_uring --iodepth=16 --direct=1 --rw=randwrite --size=64m \
		--bssplit=512/25:4k/25:7k/10:64k/20:200k/10:1m/10 --bs_unaligned=1 --norandommap --verify_backlog=1 --serialize_overlap=1
	check "$queues: four jobs" \
		verify --ioengine=io_uring --iodepth=8 --direct=1 --rw=randrw --bsrange=512-128k --numjobs=4 \
		--size=12m --offset_increment=16m --serialize_overlap=1
	check "$queues: psync, 512 B" verify --ioengine=psync --direct=1 --rw=randwrite --bs=512 --size=1m
	check "$queues: through the page cache" \
		verify --ioengine=psync --direct=0 --rw=randwrite --bsrange=512-64k --size=24m --end_fsync=1
	check "$queues: with discards" \
		verify --ioengine=psync --direct=1 --rw=randtrimwrite --bs=16k --size=12m --offset=128m
	check "$queues: sequential, 1 MiB" \
		verify --ioengine=io_uring --iodepth=4 --direct=1 --rw=write --bs=1m --size=64m
	check "$queues: del" timeout 60 ublk del -n "$id"
done

# The kinds of disk without a map, and a map block larger than the requests.
truncate -s 64M "$work/image"
add -t loop -f "$work/image" || bail "a disk on a file is added"
check "loop: 512 B to 1 MiB" \
	verify --ioengine=io_uring --iodepth=16 --direct=1 --rw=randwrite --size=32m \
	--bssplit=512/25:4k/25:64k/40:1m/10 --norandommap --verify_backlog=1 --serialize_overlap=1
timeout 60 ublk del -n "$id"
add --size 64M --map-block 64K || bail "a disk with a map block of 64 KiB is added"
check "map block 64 KiB: parts of blocks" \
	verify --ioengine=io_uring --iodepth=16 --direct=1 --rw=randwrite --size=8m --bsrange=512-32k --serialize_overlap=1
timeout 60 ublk del -n "$id"
add --size 64M --logical-block-size 4096 --cache volatile || bail "a disk with a volatile cache is added"
check "volatile cache: with flushes" \
	verify --ioengine=io_uring --iodepth=16 --direct=1 --rw=randwrite --size=8m --bs=4k --fdatasync=16
