# limit: 120
# needs: fio modprobe
# fio works in the guest and can tell good data from bad, shown on the kernel's own memory disk.
. "$(dirname "$0")/lib.sh"

modprobe null_blk nr_devices=1 memory_backed=1 gb=1 || bail "null_blk can be loaded"
at_exit 'rmmod null_blk'
within 5 test -b /dev/nullb0 || bail "null_blk makes a disk"

verify() {
	timeout 60 fio --name=verify --filename=/dev/nullb0 --direct=1 --ioengine=io_uring --iodepth=8 \
		--bs=4k --size=8m --verify=crc32c --verify_fatal=1 "$@"
}
check "fio writes and verifies through io_uring" verify --rw=randwrite --do_verify=1
dd if=/dev/zero of=/dev/nullb0 bs=4k seek=7 count=1 oflag=direct status=none
if verify --rw=randread --verify_only=1 >"$work/log" 2>&1; then
	cat "$work/log"
	not_ok "fio notices an overwritten block"
else
	ok "fio notices an overwritten block"
fi
