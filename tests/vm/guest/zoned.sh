# Helpers for the guest tests of zoned disks, all zones of $zone bytes. Sourced after disk.sh, never run.
# shellcheck shell=bash

zone=$((4 << 20))

# put FILE OFFSET: as in disk.sh, in pieces that are whole blocks: past the page cache, which would write whole pages, and
# below the pointer where that is inside of one.
put() { dd if="$1" of="$disk" bs=64k oflag=direct,seek_bytes seek="$2" conv=notrunc,nocreat status=none; }
# zones ACTION FIRST [COUNT]: has the kernel do something with zones.
zones() { timeout 60 blkzone "$1" -o $(($2 * zone / 512)) -c "${3:-1}" "$disk"; }
# state ZONE: its condition, as blkzone abbreviates it, and the bytes that are written of it.
state() {
	local found
	found=$(blkzone report -o $(($1 * zone / 512)) -c 1 "$disk" |
		sed -n 's/.*wptr 0x\([0-9a-f]*\) .*zcond: *[0-9]*(\(..\)).*/\2 0x\1/p')
	printf '%s %d' "${found% *}" $((${found#* } * 512))
}
# at ZONE [OFFSET]: a byte of a zone.
at() { printf '%d' $(($1 * zone + ${2:-0})); }
