# limit: 2400
# needs: fio
# long: yes
# The same as the short test of fio, in large: whole disks, written several times over.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

for options in '' '-q 4' '-q 4 --map-block 64K' '-q 2 --logical-block-size 4096 --cache volatile'; do
	# shellcheck disable=SC2086
	add --size 512M --memory 1G $options || bail "a disk is added"
	name="add $options"
	least=$(queue_limit logical_block_size)
	cat >"$work/long.fio" <<END
[global]
direct=1
ioengine=io_uring
iodepth=32
verify=crc32c
verify_fatal=1
verify_backlog=1024
loops=2
stonewall
[$name: 4 KiB]
rw=randwrite
bs=4k
size=96m
[$name: all sizes, four jobs]
rw=randwrite
bsrange=$least-1m
blockalign=$least
numjobs=4
size=96m
offset_increment=128m
[$name: psync, four jobs]
ioengine=psync
rw=randrw
bs=$least
numjobs=4
size=4m
offset_increment=8m
[$name: page cache]
ioengine=psync
direct=0
rw=randwrite
bsrange=$least-256k
blockalign=$least
size=256m
end_fsync=1
[$name: discards]
ioengine=psync
rw=randtrimwrite
bs=64k
size=128m
END
	fio_jobs "$work/long.fio"
	timeout 60 ublk del -n "$id"
done
