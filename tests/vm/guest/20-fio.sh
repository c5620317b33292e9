# limit: 400
# needs: fio
# The disk keeps what fio wrote: through both ways of fio and the page cache, with one and four queues, in requests of
# 512 B to 1 MiB, by several jobs at once, and with discards in between.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

cat >"$work/global" <<'END'
[global]
direct=1
ioengine=io_uring
iodepth=16
verify=crc32c
verify_fatal=1
verify_backlog=256
rw=randwrite
stonewall
END
sizes='bssplit=512/25:4k/25:7k/10:64k/20:200k/10:1m/10'
# job NAME SETTING...: a section of a job file. Each works on a place of its own.
job() {
	printf '[%s]\n' "$1"
	shift
	printf '%s\n' "$@"
}

add --size 256M || bail "a disk is added"
{
	cat "$work/global"
	job "one queue, psync, 4 KiB" ioengine=psync bs=4k size=2m
	job "one queue, psync, 512 B" ioengine=psync bs=512 size=256k offset=4m
	job "one queue, io_uring, 512 B to 1 MiB" "$sizes" size=24m offset=8m
	job "one queue, through the page cache" ioengine=psync direct=0 bsrange=512-64k size=8m offset=40m end_fsync=1
	# At an offset beyond its size fio 3.33 does nothing in such a job, and calls it a success.
	job "one queue, with discards" ioengine=psync rw=randtrimwrite bs=16k size=4m
} >"$work/one.fio"
fio_jobs "$work/one.fio"
timeout 60 ublk del -n "$id"

add --size 256M -q 4 || bail "a disk with four queues is added"
equal "the kernel has four queues" "$(find "/sys/block/ublkb$id/mq" -mindepth 1 -maxdepth 1 | wc -l)" 4
{
	cat "$work/global"
	job "four queues, four jobs, 512 B to 128 KiB" bsrange=512-128k numjobs=4 size=6m offset_increment=8m
	job "four queues, four jobs, psync, 4 KiB" ioengine=psync bs=4k numjobs=4 size=1m offset_increment=1m offset=32m
	job "four queues, io_uring, 4 KiB, depth 64" bs=4k iodepth=64 size=8m offset=40m
	job "four queues, io_uring, 512 B to 1 MiB" "$sizes" size=24m offset=48m
	job "four queues, sequential, 1 MiB" rw=write bs=1m iodepth=4 size=32m offset=80m
	job "four queues, reads and writes" rw=randrw bs=8k size=6m offset=120m
	job "four queues, with discards" rw=randtrimwrite bs=16k iodepth=1 size=4m
} >"$work/four.fio"
fio_jobs "$work/four.fio"
timeout 60 ublk del -n "$id"

# The kinds of disk without a map, and those whose map differs.
truncate -s 64M "$work/image"
add -t loop -f "$work/image" || bail "a disk on a file is added"
{
	cat "$work/global"
	job "loop, 512 B to 1 MiB" "$sizes" size=16m
	job "loop, with flushes" bs=4k size=2m fdatasync=16 offset=32m
} >"$work/loop.fio"
fio_jobs "$work/loop.fio"
timeout 60 ublk del -n "$id"
add --size 64M --map-block 64K --cache volatile || bail "a disk with a map block of 64 KiB is added"
{
	cat "$work/global"
	job "map block 64 KiB, parts of blocks" bsrange=512-32k size=4m
	job "volatile cache, with flushes" bs=4k size=2m fdatasync=16 offset=32m
} >"$work/large.fio"
fio_jobs "$work/large.fio"
