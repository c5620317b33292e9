# Helpers for the guest tests that make disks, sourced after lib.sh.
# shellcheck shell=bash

# add OPTION...: makes a disk, which goes at the end of the test, and sets $disk to its path, $id to its
# number, $server to the pid of its server and $pool to the name of its pool.
add() {
	disk=$(timeout 60 ublk add "$@") || return
	id=${disk#/dev/ublkb}
	at_exit "timeout 90 ublk del -n $id --force"
	server=$(listed 7 "$id")
	pool=$(ublk list -n "$id" | sed -n 's/.*"pool":"\([^"]*\)".*/\1/p')
}

# listed FIELD ID: a word of the second line of a disk in `ublk list`; 7 is the pid, 9 the state.
listed() { ublk list -n "$2" | awk -v field="$1" 'NR == 2 { print $field }'; }

# number NAME: the first number of this name in the JSON on the standard input.
number() { grep -o "\"$1\": *[0-9]*" | head -n 1 | grep -o '[0-9]*$'; }

# counter NAME [ID]: a counter of the ledger of $id.
counter() { ublk stats -n "${2:-$id}" --json | number "$1"; }

# api METHOD PATH [BODY | @FILE]: a request to the control API of $pool.
api() { timeout 60 http-unix "/run/ublk/pools/$pool/control.sock" "$@"; }

# usage NAME: how the space of $pool is used, in bytes.
usage() { api GET /v1/pool | number "$1"; }

# queue_limit NAME: an attribute of $disk in sysfs.
queue_limit() { cat "/sys/block/ublkb$id/queue/$1"; }

# random FILE BYTES
random() { head -c "$2" /dev/urandom >"$1"; }

# put FILE OFFSET: writes a file to $disk, past the page cache.
put() { dd if="$1" of="$disk" bs=1M oflag=direct,seek_bytes seek="$2" conv=notrunc,nocreat status=none; }

# get FILE OFFSET BYTES [DISK]: reads from $disk, past the page cache.
get() {
	dd if="${4:-$disk}" of="$1" bs=1M iflag=direct,skip_bytes,count_bytes skip="$2" count="$3" status=none
}

# holds FILE OFFSET: does $disk hold the bytes of the file there?
holds() { get "$work/held" "$2" "$(stat -c %s "$1")" && cmp "$1" "$work/held"; }

# zeroes OFFSET BYTES: does $disk hold nothing but zeroes there?
zeroes() { get "$work/held" "$1" "$2" && cmp -n "$2" "$work/held" /dev/zero; }

# fio_jobs FILE: runs the jobs of a fio file on $disk, one after another, and makes a test of each: it verifies what it
# wrote. One run, since fio starts slowly in a guest.
fio_jobs() {
	local name error
	timeout -k 5 300 fio --minimal --allow_file_create=0 --filename="$disk" "$1" >"$work/fio.log" 2>"$work/fio.err"
	while read -r name; do
		# In the terse form the job's name is the third word, its error the fifth and what it wrote the 47th; clones
		# of a job have a line each.
		error=$(awk -F ';' -v name="$name" '$3 == name { print $5 ($47 > 0 ? "" : " and nothing written") }' \
			"$work/fio.log" | sort -u)
		[ "$error" = 0 ] || cat "$work/fio.err"
		equal "fio: $name" "${error:-did not run}" 0
	done < <(sed -n '/^\[global\]/d; s/^\[\(.*\)\]$/\1/p' "$1")
}

# load SECONDS [OPTION...]: fio on $disk in the background, with $fio as its pid; it goes on until an error or the
# end of its time.
load() {
	local seconds=$1
	shift
	unloaded=$(written)
	# A disk that is gone by then must not become a file.
	timeout -k 5 $((seconds + 60)) fio --name=load --filename="$disk" --allow_file_create=0 \
		--rw=randrw --bs=4k --size=64m --direct=1 --ioengine=io_uring --iodepth=16 --time_based --runtime="$seconds" --minimal "$@" \
		>"$work/load.log" 2>&1 &
	fio=$!
	# Past the start of fio itself, which takes a while.
	within 60 busy || { cat "$work/load.log"; return 1; }
}
# The writes that the kernel has counted on $disk.
written() { awk '{ print $5 }' "/sys/block/ublkb$id/stat"; }
busy() { [ "$(written)" -gt $((unloaded + 100)) ]; }
# What they were when the load began; of a new disk, none.
unloaded=0

# ended SECONDS PID: does the process end in time?
ended() { within "$1" gone "$2"; }

# unblocked: is no task in the state D?
unblocked() { ! ps -e -o stat= | grep -q '^D'; }

# no_disk ID: are both nodes gone, and is the disk not listed any more?
no_disk() { [ ! -e "/dev/ublkb$1" ] && [ ! -e "/dev/ublkc$1" ] && ! ublk list | grep -q "dev id $1:"; }
