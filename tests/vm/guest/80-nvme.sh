# limit: 900
# needs: nvme modprobe python3 setpriv fio mkfs.ext4 fsck.ext4 diff
# The kernel's own NVMe/TCP host finds the disks of a pool, connects, and copies on them by remapping; what it writes
# is what the block device beside it reads, and the other way round.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
. "$(dirname "$0")/nvme.sh"

modprobe nvme-tcp || bail "the host's driver can be loaded"

nvme=127.0.0.1:4420

# field NAME COMMAND...: a number of what nvme prints as JSON.
field() { local name=$1; shift; timeout 60 nvme "$@" -o json | number "$name"; }

# raw DEVICE OPCODE NSID CDW10 CDW11 CDW12 [FILE]: a command with the bytes of a file as its data; prints the status
# (0 for success, without "do not retry") and dword 0 of the result.
cat >"$work/raw.py" <<'END'
import ctypes, fcntl, os, struct, sys
device, opcode, nsid, *words = sys.argv[1:7]
data = open(sys.argv[7], "rb").read() if len(sys.argv) > 7 else b""
buffer = ctypes.create_string_buffer(data, max(len(data), 1))
address = ctypes.addressof(buffer) if data else 0
words = [int(word, 0) for word in words]
command = bytearray(struct.pack("<BBHIIIQQIIIIIIIIII", int(opcode, 0), 0, 0, int(nsid), 0, 0, 0, address, 0, len(data),
                                *words, 0, 0, 0, 20000, 0))
file = os.open(device, os.O_RDWR)
try:
    status = fcntl.ioctl(file, 0xC0484E43, command)
except OSError as error:
    print("errno", error.errno)
    sys.exit()
print("%x %d" % (status & 0x7ff, struct.unpack("<I", command[68:72])[0]))
END
raw() { timeout 60 python3 "$work/raw.py" "$@"; }
# ranges FORMAT NSID:SLBA+BLOCKS...: a list of source ranges in $work/list; the namespace counts in format 2.
ranges() {
	python3 - "$work/list" "$@" <<'END'
import struct, sys
with open(sys.argv[1], "wb") as out:
    for text in sys.argv[3:]:
        nsid, rest = text.split(":")
        slba, blocks = rest.split("+")
        nsid = int(nsid) if sys.argv[2] == "2" else 0
        out.write(struct.pack("<IIQHBBHH8x", nsid, 0, int(slba), int(blocks) - 1, 0, 0, 0, 0))
END
}
# copies WHAT "STATUS RESULT" FORMAT SDLBA NSID:SLBA+BLOCKS...: sends Copy to namespace 1.
copies() {
	local what=$1 want=$2 format=$3 to=$4
	shift 4
	ranges "$format" "$@"
	equal "$what" "$(raw "$ns" 0x19 1 "$to" 0 $((format << 8 | ($# - 1))) "$work/list")" "$want"
}

doors=(--nvme-tcp $nvme --discovery 127.0.0.1:8009)
add --size 64M --memory 1G --pool served --name one "${doors[@]}" || bail "a disk with both doors is added"
one=$disk one_id=$id
add --size 64M --pool served --name two "${doors[@]}" || bail "a second disk of the pool is added"
two=$disk two_id=$id
disk=$one id=$one_id
nqn=$(ublk info -n one --json | subsystem)
note "subsystem $nqn, disks $one and $two (number $two_id)"
at_exit 'timeout 60 nvme disconnect -n "$nqn" >/dev/null 2>&1'

discover() { timeout 90 nvme discover -t tcp -a 127.0.0.1 -s "$1" -q "$nvme_host" -I "$nvme_hostid"; }
check "discover finds the subsystem" sh -c 'echo "$1" | grep -q "subnqn: *$2"' - "$(discover 8009)" "$nqn"
check "discover at the port of the subsystem too" sh -c 'echo "$1" | grep -q "trsvcid: *4420"' - "$(discover 4420)"

connect || bail "the host connects" dmesg
ok "the host connects"
both() { namespace 1 && namespace 2; }
within 30 both || bail "the host finds both namespaces" dmesg
ok "the host finds both namespaces"
ns=$(namespace 1) ns2=$(namespace 2)
note "controller $ctrl, namespaces $ns and $ns2"
check "nvme list shows them" sh -c 'nvme list | grep -q "$1.*ublk copy-offload disk"' - "$ns"
equal "the host is listed" "$(ublk info -n one | grep -c "$nvme_host")" 1
equal "the namespaces have their size" "$(blockdev --getsize64 "$ns")" $((64 << 20))

oncs=$(field oncs id-ctrl "/dev/$ctrl")
check "id-ctrl: Copy, Compare, DSM, Write Zeroes, Verify" test $((${oncs:-0} & 0x18d)) -eq $((0x18d))
equal "id-ctrl: one controller a host" "$(field cmic id-ctrl "/dev/$ctrl")" 0
equal "id-ns: MSSRL" "$(field mssrl id-ns "$ns")" 32768
equal "id-ns: MCL" "$(field mcl id-ns "$ns")" 262144
equal "id-ns: MSRC" "$(field msrc id-ns "$ns")" 127
equal "the UUID is that of the disk" "$(cat "/sys/block/${ns#/dev/}/uuid")" \
	"$(ublk info -n one | sed -n 's/^nvme namespace.*uuid //p')"
check "smart-log" timeout 60 nvme smart-log "/dev/$ctrl"
# Entry 19h of the I/O commands: supported (bit 0), and changes contents (bit 1).
copy_effect=$(nvme get-log "/dev/$ctrl" -i 5 -l 4096 -b | od -A n -t u4 -j $((1024 + 0x19 * 4)) -N 4)
equal "the effects log has Copy" $((copy_effect & 3)) 3
check "error-log" timeout 60 nvme error-log "/dev/$ctrl" -e 4

# Both doors see the same.
random "$work/model" $((16 << 20))
disk=$ns
check "written over NVMe" put "$work/model" 0
disk=$one
check "read from the block device" holds "$work/model" 0
random "$work/new" $((1 << 20))
put "$work/new" $((20 << 20))
disk=$ns
check "written to the block device, read over NVMe" holds "$work/new" $((20 << 20))
disk=$one

# Copies of 8 blocks each from all over the model, one behind the other.
expect() {
	local n
	: >"$work/expected"
	for n in "$@"; do dd if="$work/model" bs=512 skip="$n" count=8 status=none >>"$work/expected"; done
}
list() { local IFS=,; echo "$*"; }
ublk stats -n one --reset >"$work/stats"
for count in 1 2 128; do
	sources=() blocks=()
	for ((n = 0; n < count; n++)); do sources+=($(((n * 37 + 5) % 1000 * 16))) blocks+=(7); done
	check "nvme copy: $count ranges" timeout 90 nvme copy "$ns" --sdlba=$((65536 + count * 8)) \
		--slbs="$(list "${sources[@]}")" --blocks="$(list "${blocks[@]}")"
	expect "${sources[@]}"
	check "nvme copy: $count ranges arrive" holds "$work/expected" $(((65536 + count * 8) * 512))
done
equal "nvme copy: by remapping" "$(counter remapped_bytes one)" $((131 * 4096))
check "the source is as it was" holds "$work/model" 0
copies "not aligned" "0 0" 0 $((80000)) 1:3+5 1:1001+7
{ dd if="$work/model" bs=512 skip=3 count=5 status=none; dd if="$work/model" bs=512 skip=1001 count=7 status=none; } \
	>"$work/expected"
check "not aligned: arrives" holds "$work/expected" $((80000 * 512))
check "nvme copy with FUA" timeout 60 nvme copy "$ns" --sdlba=81000 --slbs=0 --blocks=7 --force-unit-access

# Refusals.
many=()
for ((n = 0; n < 129; n++)); do many+=("1:$((n * 8))+1"); done
copies "129 ranges are too many" "183 0" 0 90000 "${many[@]}"
copies "a range above MSSRL" "183 0" 0 90000 1:0+32769
timeout 60 ublk set -n one copy-max-bytes=8K
within 20 sh -c 'test "$(nvme id-ns "$1" -o json | grep -o "\"mcl\":[0-9]*")" = "\"mcl\":16"' - "$ns"
equal "a limit that was changed live is seen" "$(field mcl id-ns "$ns")" 16
copies "more than MCL" "183 0" 0 90000 1:0+9 1:16+8
timeout 60 ublk set -n one copy-max-bytes=128M
copies "a source beyond the end" "80 0" 0 90000 1:131071+2
copies "a destination beyond the end" "80 0" 0 131071 1:0+2
copies "format 1" "2 0" 1 90000 1:0+8
copies "format 2 before it is enabled" "2 0" 2 90000 1:0+8
head -c 512 /dev/zero >"$work/behavior"
printf '\4' | dd of="$work/behavior" bs=1 seek=4 conv=notrunc status=none
formats_2() {
	copies "overlap" "187 0" 2 4 1:0+8
	copies "an unknown namespace" "2 0" 2 90000 9:0+8
	disk=$two
	random "$work/two" $((1 << 20))
	put "$work/two" 0
	disk=$one
	copies "from the other namespace" "0 0" 2 90000 2:0+16 1:8+8
	{ head -c 8192 "$work/two"; dd if="$work/model" bs=512 skip=8 count=8 status=none; } >"$work/expected"
	check "from the other namespace: arrives" holds "$work/expected" $((90000 * 512))
}
if timeout 60 nvme set-feature "/dev/$ctrl" -f 0x16 -v 0 -l 512 -d "$work/behavior" 2>"$work/refused"; then
	ok "format 2 is enabled"
	formats_2
elif grep -q 'Permission denied' "$work/refused"; then
	skip "format 2" "this kernel does not let root set the host's behavior"
else
	not_ok "format 2 is enabled: $(cat "$work/refused")"
fi
check "refused commands changed nothing" holds "$work/model" 0

# A user without privileges may copy on a namespace that he may write.
chmod o+rw "$ns"
chmod -R o+rX "$work"
ranges 0 1:16+8
equal "a user without privileges copies" \
	"$(timeout 60 setpriv --reuid 65534 --regid 65534 --clear-groups python3 "$work/raw.py" "$ns" 0x19 1 91000 0 0 "$work/list")" "0 0"

# The other commands.
dd if="$work/model" bs=512 skip=0 count=8 status=none >"$work/block"
check "compare: the same" timeout 60 nvme compare "$ns" -s 0 -c 7 -z 4096 -d "$work/block"
equal "compare: different" "$(raw "$ns" 0x05 1 8 0 7 "$work/block")" "285 0"
check "verify" timeout 60 nvme verify "$ns" -s 0 -c 2047
check "flush" timeout 60 nvme flush "$ns"
check "write-zeroes" timeout 60 nvme write-zeroes "$ns" -s 100000 -c 15
check "write-zeroes: reads zeroes" zeroes $((100000 * 512)) 8192
check "dsm: deallocate" timeout 60 nvme dsm "$ns" -d -s 90000 -b 16
check "dsm: reads zeroes" zeroes $((90000 * 512)) 8192
check "blkdiscard" blkdiscard -o $((20 << 20)) -l $((1 << 20)) "$ns"
check "blkdiscard: reads zeroes" zeroes $((20 << 20)) $((1 << 20))

cat >"$work/verify.fio" <<'END'
[global]
direct=1
ioengine=io_uring
iodepth=32
verify=crc32c
verify_fatal=1
verify_backlog=256
rw=randwrite
stonewall
[over NVMe, 4 KiB]
bs=4k
size=4m
[over NVMe, 512 B to 1 MiB]
bssplit=512/25:4k/25:7k/10:64k/20:200k/10:1m/10
size=12m
offset=8m
[over NVMe, with discards]
rw=randtrimwrite
bs=16k
size=4m
END
disk=$ns
fio_jobs "$work/verify.fio"

# Past the block layer, by io_uring commands to the character device.
generic=/dev/ng${ns#/dev/nvme}
cat >"$work/passthrough.fio" <<'END'
[passthrough, 4 KiB]
ioengine=io_uring_cmd
cmd_type=nvme
rw=randwrite
bs=4k
size=4m
iodepth=16
verify=crc32c
verify_fatal=1
END
disk=$generic
fio_jobs "$work/passthrough.fio"
disk=$ns

mkdir "$work/mnt" "$work/tree"
tar -C /usr/share -c doc 2>/dev/null | head -c 6M | tar -x -C "$work/tree" 2>/dev/null
at_exit 'mountpoint -q $work/mnt && umount $work/mnt'
check "ext4: mkfs" mkfs.ext4 -q -b 4096 "$ns"
check "ext4: mount" mount "$ns" "$work/mnt" && {
	check "ext4: a tree is copied" cp -a "$work/tree" "$work/mnt/tree"
	check "ext4: umount" umount "$work/mnt"
	check "ext4: the checker finds nothing" fsck.ext4 -f -n "$ns"
	check "ext4: mount again" mount "$ns" "$work/mnt"
	check "ext4: the tree is the same" diff -r --no-dereference "$work/tree" "$work/mnt/tree"
	check "ext4: umount again" umount "$work/mnt"
}

check "disconnect" disconnect
check "disconnect: no controller is left" within 30 no_controller
check "the server has no host" within 10 sh -c '! ublk info -n one | grep -q "$1"' - "$nvme_host"

# Digests, no flow control, two queues.
connect -g -G -d -i 2 || bail "the host connects with digests" dmesg
within 30 namespace 1 && ns=$(namespace 1) disk=$ns
sed -i 's/NVMe/NVMe with digests/; s/size=12m/size=4m/' "$work/verify.fio"
fio_jobs "$work/verify.fio"
ns=$disk
copies "a copy with digests" "0 0" 0 100000 1:0+8 1:64+8

# The host goes under load, and comes again.
disk=$ns
timeout -k 5 120 fio --name=load --filename="$ns" --allow_file_create=0 --rw=randrw --bs=4k --size=32m --direct=1 --ioengine=io_uring \
	--iodepth=16 --time_based --runtime=60 --minimal >"$work/load.log" 2>&1 &
fio=$!
loaded() { [ "$(awk '{ print $5 }' "/sys/block/${ns#/dev/}/stat")" -gt 50 ]; }
check "there is load" within 60 loaded
check "disconnect under load" disconnect
check "disconnect under load: fio ends" within 60 gone "$fio"
check "disconnect under load: no controller is left" within 60 no_controller
check "the server lives" kill -0 "$server"
connect || bail "the host connects again" dmesg
within 30 namespace 1 && disk=$(namespace 1)
random "$work/last" 65536
check "it writes again" put "$work/last" 0
disk=$one
check "and the block device reads it" holds "$work/last" 0
disconnect

# Only hosts that are allowed.
timeout 60 ublk del -n one
timeout 60 ublk del -n two
add --size 16M "${doors[@]}" --allow-host nqn.2014-08.org.nvmexpress:uuid:another || bail "a disk for another host is added"
nqn=$(ublk info -n "$id" --json | subsystem)
check "a host that is not allowed does not find it" sh -c '! echo "$1" | grep -q "$2"' - "$(discover 8009)" "$nqn"
if connect >"$work/log" 2>&1; then
	not_ok "and cannot connect"
else
	ok "and cannot connect"
fi
