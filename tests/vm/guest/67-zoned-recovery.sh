# limit: 400
# needs: blkzone fio
# Zones outlive their server: a disk in a file, and one in memory with recovery. The kernel, which lives on, writes on at
# its pointers after the server was killed, a copy follows, and nothing of what was acknowledged is lost.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
. "$(dirname "$0")/zoned.sh"

kib=1024 mib=$((1 << 20))

random "$work/a" $((64 * kib))
random "$work/b" $((64 * kib))
cat "$work/a" "$work/b" >"$work/both"

# What is left behind: zone 2 written, 3 open by command, 4 full by a finish, 5 with a copy in it.
leave() {
	check "$1: a zone is written" put "$work/a" "$(at 2)"
	check "$1: one is opened" zones open 3
	check "$1: one is finished" zones finish 4
	check "$1: one is copied into" timeout 60 ublk copy -n "$id" "$(at 2)+64K" "$(at 5)"
}
# are WHAT CONDITION...: of zones 2 to 5.
are() {
	local what=$1
	shift
	equal "$what: the zones are as they were" "$(for n in 2 3 4 5; do state $n; echo; done | xargs)" "$*"
}
goes_on() {
	check "$1: the kernel writes on" put "$work/b" "$(at 2 $((64 * kib)))"
	check "$1: both are there" holds "$work/both" "$(at 2)"
	check "$1: it writes on behind the copy" put "$work/b" "$(at 5 $((64 * kib)))"
	check "$1: both are there, too" holds "$work/both" "$(at 5)"
	check_fails "$1: a full zone takes no more" 1 'Input/output error|No space left' put "$work/a" "$(at 4)"
	check "$1: a zone is reset" zones reset 4
	check "$1: and written from its start" put "$work/a" "$(at 4)"
}

size=(--size 64M --zoned --zone-size 4M --conventional-zones 2 --max-open 4 --max-active 6)
add "${size[@]}" --memory 512M --user-recovery=reissue || bail "a disk with recovery is added"
leave "recovery"
# Writers are in flight when the server dies; with reissue each is done once or again, at the same place.
cat >"$work/load.fio" <<'END'
[global]
zonemode=zbd
direct=1
ioengine=io_uring
verify=crc32c
verify_fatal=1
offset=24m
size=24m
[recovery-under-load]
rw=write
bs=16k
iodepth=4
END
fio_jobs "$work/load.fio" >"$work/fio.out" 3>"$work/fio.points" &
fio=$!
within 60 sh -c "[ \$(awk '{ print \$5 }' /sys/block/ublkb$id/stat) -gt 100 ]" || not_ok "recovery: fio writes"
for n in 1 2 3; do
	kill -KILL "$server"
	within 10 gone "$server" || not_ok "recovery: the server ends"
	timeout 60 ublk recover -n "$id" >"$work/recovered" 2>&1 || { cat "$work/recovered"; bail "recovery, $n"; }
	server=$(listed 7 "$id")
	sleep 0.7
done
check "recovery: the writers end" ended 200 $fio
cat "$work/fio.out"
cat "$work/fio.points" >&3
are "recovery" "cl 65536 oe 0 fu $zone cl 65536"
goes_on "recovery"
check "recovery: no task is blocked" within 10 unblocked
timeout 60 ublk del -n "$id"

file=$work/disk
add -t file -f "$file" "${size[@]}" || bail "a disk in a file is added"
leave "file"
kill -KILL "$server"
within 10 gone "$server" || not_ok "file: the server ends"
timeout 60 ublk del -n "$id" --force
check "file: check says that its server died" grep -q 'its server died' <(ublk check "$file")
add -t file -f "$file" || bail "it is opened again"
are "file" "cl 65536 oe 0 fu $zone cl 65536"
goes_on "file"
timeout 60 ublk del -n "$id"
add -t file -f "$file" || bail "it is opened a third time"
# No zone is open after a server that ended.
are "file, closed" "cl 131072 em 0 cl 65536 cl 131072"
timeout 60 ublk del -n "$id"
