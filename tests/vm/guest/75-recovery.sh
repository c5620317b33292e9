# limit: 900
# needs: fio mkfs.ext4 fsck.ext4 acked
# A server is killed again and again under I/O and recovered: every acknowledged block is there, flushed or not, no
# file system sees an error, nothing hangs; without recovery, and in each of its modes, I/O does what it should.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"

# How many times as often a server is killed under I/O.
: "${factor:=1}"

dead() { [ "$(listed 9 "$id")" != LIVE ]; }

# killed WHAT: the server is killed and the disk recovered; $server is the new one.
killed() {
	local what=$1 old=$server
	kill -KILL "$server"
	within 10 gone "$server" || { not_ok "$what: the server ends"; return 1; }
	if ! timeout 60 ublk recover -n "$id" >"$work/recovered" 2>"$work/err"; then
		cat "$work/err"
		not_ok "$what: recovery"
		return 1
	fi
	server=$(listed 7 "$id")
	if [ "$(cat "$work/recovered")" != "$disk" ] || [ "$(listed 9 "$id")" != LIVE ] || [ "$server" = "$old" ]; then
		ublk list
		not_ok "$what: recovery"
		return 1
	fi
}

# loop WHAT TIMES PID: kills and recovers so often while the process runs.
loop() {
	local what=$1 times=$2 pid=$3 n
	for n in $(seq "$times"); do
		sleep "0.$((RANDOM % 7 + 3))"
		kill -0 "$pid" 2>/dev/null || break
		killed "$what" || return 1
	done
	equal "$what: $times times killed and recovered" "$n" "$times"
}

# Every acknowledged block, by a program that keeps the acknowledgements in its own memory and never flushes.
acknowledged() {
	local what=$1 times=$2 failures=$3 pid status
	shift 3
	add --size 64M "$@" || { not_ok "$what: add"; return; }
	rm -f "$work/stop"
	timeout -k 5 $((180 * factor)) acked "$disk" 8192 4 "$work/stop" >"$work/acked" 2>&1 &
	pid=$!
	within 20 busy || { cat "$work/acked"; not_ok "$what: I/O begins"; }
	loop "$what" "$times" "$pid"
	touch "$work/stop"
	check "$what: the I/O ends" ended 100 "$pid" || kill -KILL "$pid"
	wait "$pid"
	status=$?
	note "$what: $(cat "$work/acked")"
	equal "$what: every acknowledged block is there" "$status" 0
	case $failures in
	no) check "$what: no request fails" grep -q ' failed 0 ' "$work/acked" ;;
	yes) check "$what: requests in flight fail" grep -q -E ' failed [1-9]' "$work/acked" ;;
	esac
	check "$what: no task is blocked" within 10 unblocked
	check "$what: del" timeout 60 ublk del -n "$id"
	check "$what: all is gone" no_disk "$id"
}

acknowledged "reissue in memory" $((3 * factor)) no --user-recovery=reissue -q 2
# Late enough that some are in the server whenever it dies.
acknowledged "queue in memory" $((2 * factor)) yes --user-recovery --latency read=20ms,write=20ms
acknowledged "reissue in a file" $((3 * factor)) no -t file -f "$work/file" -i 1 -q 2
check "the file of a recovered disk" ublk check "$work/file"

# A mounted file system, with files whose sums are kept outside.
add --size 256M -t file -f "$work/ext4" --user-recovery=reissue || bail "a disk for ext4 is added"
check "mkfs" mkfs.ext4 -q "$disk"
mkdir "$work/mnt"
check "mount" mount "$disk" "$work/mnt" || bail "the rest needs it"
at_exit 'mountpoint -q $work/mnt && umount $work/mnt'
files() {
	local n
	for n in $(seq 2000); do
		[ ! -e "$work/stop" ] || break
		head -c $((RANDOM * 4)) /dev/urandom >"$work/one"
		cp "$work/one" "$work/mnt/file$n" || return 1
		[ $((n % 5)) -ne 0 ] || sync -f "$work/mnt" || return 1
		echo "$(sha256sum <"$work/one" | cut -c 1-64)  $work/mnt/file$n" >>"$work/sums"
	done
}
rm -f "$work/stop"
files >"$work/files.log" 2>&1 &
pid=$!
sleep 1
loop "ext4" 5 "$pid"
touch "$work/stop"
check "ext4: the writer ends" ended 60 "$pid" || kill -KILL "$pid"
check "ext4: no write fails" wait "$pid" || cat "$work/files.log"
note "ext4: $(wc -l <"$work/sums") files"
check "ext4: sync" sync -f "$work/mnt"
echo 3 >/proc/sys/vm/drop_caches
check "ext4: every file is whole" sha256sum --quiet -c "$work/sums"
check "ext4: umount" umount "$work/mnt"
check "ext4: the checker finds nothing" fsck.ext4 -f -n "$disk"
check "ext4: del" timeout 60 ublk del -n "$id"

# fio verifies what it wrote, through two more deaths and without any fsync.
add --size 64M --user-recovery=reissue || bail "a disk for fio is added"
timeout -k 5 $((200 * factor)) fio --name=verify --filename="$disk" --rw=randwrite --bs=4k --size=32m --io_size=256m --direct=1 \
	--ioengine=io_uring --iodepth=16 --time_based --runtime=$((15 * factor)) --verify=crc32c --verify_backlog=256 --verify_fatal=1 \
	--minimal >"$work/fio.log" 2>&1 &
fio=$!
within 30 busy
loop "fio" $((2 * factor)) "$fio"
check "fio: verifies" wait "$fio" || tail -n 20 "$work/fio.log"
check "fio: del" timeout 60 ublk del -n "$id"

# What waits for a recovery that does not come ends with del.
add --size 64M --user-recovery --pool p --name one || bail "a disk is added"
add --size 64M --pool p --name two || bail "a second disk of the pool is added"
kill -KILL "$server"
within 10 gone "$server"
check "a dead server is listed" within 20 dead
equal "its disk waits" "$(listed 9 "$id")" QUIESCED
timeout -k 5 100 dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct >"$work/dd" 2>&1 &
pid=$!
sleep 1
check "a read waits" kill -0 "$pid"
check "recover brings the whole pool back" timeout 60 ublk recover -n one
check "the read goes on" ended 20 "$pid" || kill -KILL "$pid"
check "and succeeds" wait "$pid" || cat "$work/dd"
server=$(listed 7 "$id")
kill -KILL "$server"
within 10 gone "$server"
within 20 dead
timeout -k 5 100 dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct >"$work/dd" 2>&1 &
pid=$!
sleep 1
check "del without a server" timeout 60 ublk del -n two
check "what waited ends" ended 20 "$pid" || kill -KILL "$pid"
check "del of the other disk" timeout 60 ublk del -n one
check "nothing is left in shared memory" test -z "$(find /dev/shm/ublk -mindepth 1 2>/dev/null)"

# The recovery of a server that dies in it can be repeated; a loop disk needs no log.
random "$work/image" 16M
add -t loop -f "$work/image" -r 1 || bail "a loop disk is added"
for n in 1 2; do killed "loop disk, time $n" && ok "a loop disk is recovered, time $n"; done
check "the loop disk holds its file" holds "$work/image" 0
check "del of the loop disk" timeout 60 ublk del -n "$id"

if ublk features | grep -q USER_RECOVERY_FAIL_IO; then
	add --size 64M -e 1 || bail "a disk that fails I/O is added"
	kill -KILL "$server"
	within 10 gone "$server"
	within 20 dead
	equal "fail-io: the disk fails I/O" "$(listed 9 "$id")" FAIL_IO
	check_fails "fail-io: a read fails at once" 1 'error' \
		timeout 20 dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct
	check "fail-io: recovery" timeout 60 ublk recover -n "$id"
	check "fail-io: then it is read again" zeroes 0 4096
else
	check_fails "fail-io: is refused by name" 3 'lacks USER_RECOVERY_FAIL_IO' \
		ublk add --size 64M --user-recovery=fail-io
fi
check_fails "a disk without recovery is not recovered" 1 'not made with --user-recovery|no disk' \
	ublk recover -n nobody
