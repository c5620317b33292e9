# Helpers for tests with the kernel's NVMe/TCP host, sourced after lib.sh and disk.sh.
# shellcheck shell=bash

nvme_host=nqn.2014-08.org.nvmexpress:uuid:5c1e5cde-0000-4000-8000-000000000001
nvme_hostid=5c1e5cde-0000-4000-8000-000000000001
# Where the target listens.
nvme_address=127.0.0.1

# subsystem: the name of the subsystem in what `ublk info --json` prints.
subsystem() { grep -o 'nqn.2014-08.org.nvmexpress:uuid:[0-9a-f-]*' | head -n 1; }
# connect [OPTION...]: a controller of the subsystem $nqn; sets $ctrl to its name.
connect() {
	timeout 90 nvme connect -t tcp -a "$nvme_address" -s 4420 -n "$nqn" -q "$nvme_host" -I "$nvme_hostid" \
		-k 30 -c 1 -l 120 "$@" || return
	within 20 controller && ctrl=$(controller)
}
controller() { grep -l -x -F "$nqn" /sys/class/nvme/nvme*/subsysnqn 2>/dev/null | sed -n '1s|.*/\(nvme[0-9]*\)/.*|\1|p' | grep .; }
disconnect() { timeout 120 nvme disconnect -n "$nqn"; }
no_controller() { ! controller; }
# namespace NSID: its block device.
namespace() {
	local found
	found=$(grep -l -x "$1" /sys/class/nvme/"$ctrl"/nvme*n*/nsid 2>/dev/null | head -n 1)
	[ -n "$found" ] && found=${found%/nsid} && [ -b "/dev/${found##*/}" ] && echo "/dev/${found##*/}"
}
# zeroes_of DEVICE OFFSET LENGTH: are there only zeroes?
zeroes_of() { dd if="$1" bs=64k iflag=direct,skip_bytes,count_bytes skip="$2" count="$3" status=none | cmp -n "$3" - /dev/zero; }

# refused WHAT REGEX COMMAND...: passes when the command fails and its output is something like REGEX.
refused() {
	local what=$1 pattern=$2 output
	shift 2
	if output=$("$@" 2>&1 </dev/null); then
		note "it succeeded: $*"
	elif grep -q -E -- "$pattern" <<<"$output"; then
		ok "$what"
		return 0
	fi
	note "expected /$pattern/ in: $output"
	not_ok "$what"
	return 1
}
