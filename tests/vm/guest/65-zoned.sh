# limit: 600
# needs: blkzone fio http-unix
# A zoned disk as the kernel sees it: every action, writes at the pointer and nowhere else, the limits, copies into zones
# after which the kernel writes on, and many zones. Without the resync after a copy the kernel cannot go on, which is
# shown too.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
. "$(dirname "$0")/zoned.sh"

kib=1024 mib=$((1 << 20))

attribute() { equal "$1 is $2" "$(queue_limit "$1")" "$2"; }
# copy ARGUMENT...: on $id, bounded.
copy() { timeout 90 ublk copy -n "$id" "$@" >"$work/copy.log" 2>&1 || { cat "$work/copy.log"; return 1; }; }
ublk_zone() { timeout 60 ublk zone "$1" -n "$id" --offset $(($2 * zone)) --count "${3:-1}"; }

random "$work/a" $((64 * kib))
random "$work/b" $((64 * kib))
random "$work/source" $((256 * kib))

add --size 64M --memory 512M --zoned --zone-size 4M --conventional-zones 2 --max-open 4 --max-active 6 ||
	bail "a zoned disk is added"
attribute zoned host-managed
attribute chunk_sectors $((zone / 512))
attribute nr_zones 16
attribute max_open_zones 4
attribute max_active_zones 6
attribute zone_append_max_bytes $mib
equal "all zones are reported" "$(blkzone report "$disk" | grep -c start:)" 16
equal "two of them are conventional" "$(blkzone report "$disk" | grep -c CONVENTIONAL)" 2
equal "a new zone is empty" "$(state 2)" "em 0"

# Every action, and what it leaves.
check "write: at the start" put "$work/a" "$(at 2)"
equal "write: opens the zone" "$(state 2)" "oi $((64 * kib))"
check "close" zones close 2
equal "close: the zone is closed" "$(state 2)" "cl $((64 * kib))"
check "open" zones open 2
equal "open: the zone is open" "$(state 2)" "oe $((64 * kib))"
check "write: on at the pointer" put "$work/b" "$(at 2 $((64 * kib)))"
cat "$work/a" "$work/b" >"$work/both"
check "write: both are there" holds "$work/both" "$(at 2)"
check "write: zeroes above" zeroes "$(at 2 $((128 * kib)))" $((128 * kib))
check_fails "write: below the pointer fails" 1 'Input/output error' put "$work/a" "$(at 2)"
check_fails "write: above it fails, too" 1 'Input/output error' put "$work/a" "$(at 3 $((64 * kib)))"
equal "write: a refused one changes nothing" "$(state 2) $(state 3)" "oe $((128 * kib)) em 0"
check "finish" zones finish 2
equal "finish: the zone is full" "$(state 2)" "fu $zone"
check_fails "finish: no more writes" 1 'Input/output error|No space left' put "$work/a" "$(at 2 $((128 * kib)))"
check "finish: the data stays" holds "$work/both" "$(at 2)"
check "reset" zones reset 2
equal "reset: the zone is empty" "$(state 2)" "em 0"
check "reset: it reads zeroes" zeroes "$(at 2)" $((256 * kib))
check "reset: it can be written from its start" put "$work/b" "$(at 2)"
check "conventional zones are written anywhere" put "$work/a" "$(at 1 $mib)"
check "and again" put "$work/b" "$(at 1 $mib)"
check_fails "they have no actions" 1 'Input/output error|not supported' zones open 1
check "reset of the whole disk" timeout 60 blkzone reset "$disk"
equal "reset of the whole disk: all are empty" "$(blkzone report "$disk" | grep -c '(em)')" 14
check "reset of the whole disk: conventional zones stay" holds "$work/b" "$(at 1 $mib)"

# The limits, with the errors of the block layer.
check "limits: four are opened" zones open 2 4
check_fails "limits: not a fifth" 1 'Too many references' zones open 6
check "limits: closed when nothing is written they are empty" zones close 2 4
equal "limits: as here" "$(state 2)" "em 0"
active() { local n; for n in 2 3 4 5 6 7; do put "$work/a" "$(at $n)" || return; done; }
check "limits: six are active, since two give way to others" active
equal "limits: two of them are closed" "$(blkzone report "$disk" | grep -c '(cl)')" 2
check_fails "limits: not a seventh" 1 'Value too large' put "$work/a" "$(at 8)"
equal "limits: the refused one changed nothing" "$(state 8)" "em 0"
check "limits: a finish makes room" zones finish 2
check "limits: for another" put "$work/a" "$(at 8)"

# The same by the command: the kernel is told, and so goes on.
check "ublk zone finish" ublk_zone finish 3
equal "ublk zone finish: the zone is full" "$(state 3)" "fu $zone"
check "ublk zone reset" ublk_zone reset 3
check "ublk zone reset: the kernel writes from the start" put "$work/b" "$(at 3)"
check "ublk zone open" ublk_zone open 3
check "ublk zone close" ublk_zone close 3
equal "ublk zone close: the zone is closed" "$(state 3)" "cl $((64 * kib))"
check_fails "ublk zone: a conventional one" 1 'Input/output error|not supported' ublk_zone open 0
equal "ublk zone report agrees with the kernel" \
	"$(timeout 60 ublk zone report -n "$id" --offset "$(at 3)" --count 1 | awk 'NR == 2 { print $1, $4, $5 }')" \
	"3 $(at 3 $((64 * kib))) closed"
check "ublk zone set-condition" timeout 60 ublk zone set-condition -n "$id" read-only --offset "$(at 14)" --count 1
check "ublk zone set-condition, offline" timeout 60 ublk zone set-condition -n "$id" offline --offset "$(at 15)" --count 1
equal "the kernel reports both" "$(state 14 | cut -c 1-2) $(state 15 | cut -c 1-2)" "ro of"
check_fails "a read-only zone is not written" 1 'dd:' put "$work/a" "$(at 14)"
check_fails "an offline one is not read" 1 'dd:' get "$work/held" "$(at 15)" 4096
check "reset of the rest" timeout 60 ublk zone reset -n "$id"
equal "reset of the rest: those two stay" "$(blkzone report "$disk" | grep -c -E '\((ro|of)\)')" 2

# Copies into zones. Of a zone that the kernel never wrote it believes whatever it is told.
check "a source in a conventional zone" put "$work/source" 0
length=$((256 * kib))
check "copy: into an empty zone" copy 0+$length "$(at 10)" --verify
equal "copy: opens it" "$(state 10)" "oi $length"
check "copy: arrives" holds "$work/source" "$(at 10)"
check "copy: the kernel writes on" put "$work/a" "$(at 10 $length)"
check "copy: that arrives, too" holds "$work/a" "$(at 10 $length)"
check_fails "copy: off the pointer" 1 'write pointer' timeout 60 ublk copy -n "$id" 0+4K "$(at 10 4096)"
check "copy: many zones into one" copy --segment "$(at 10)+64K:$(at 11)" --segment 0+64K:"$(at 11 $((64 * kib)))"
equal "copy: many zones into one, at its pointer" "$(state 11)" "oi $((128 * kib))"
check "append" copy 0+64K "$(at 10)+64K" "$(at 11)" --append --verify
check "append: says where" grep -q "appended at $(at 11 $((128 * kib)))," "$work/copy.log"
equal "append: one behind the other" "$(state 11)" "oi $((256 * kib))"
head -c $((64 * kib)) "$work/source" >"$work/head"
check "append: arrives" holds "$work/head" "$(at 11 $((128 * kib)))"
check "append: the kernel writes on" put "$work/b" "$(at 11 $((256 * kib)))"

# Zones that the kernel wrote, copied into behind its back.
resynced() {
	local what=$1 number=$2 bytes=$3
	shift 3
	check "resync: $what: the kernel writes" put "$work/a" "$(at "$number")"
	check "resync: $what: a copy behind its back" copy "$@"
	check "resync: $what: the kernel writes on at the new pointer" put "$work/b" "$(at "$number" $((64 * kib + bytes)))"
	head -c "$bytes" "$work/source" | cat "$work/a" - "$work/b" >"$work/model"
	check "resync: $what: everything is there" holds "$work/model" "$(at "$number")"
}
resynced "256 KiB" 4 $length 0+$length "$(at 4 $((64 * kib)))"
resynced "one block" 5 512 0+512 "$(at 5 $((64 * kib)))"
resynced "append" 6 $length 0+$length "$(at 6)" --append
check "resync: no data was written by it" zeroes "$(at 4 $((128 * kib + length)))" $((64 * kib))
timeout 60 ublk zone reset -n "$id"
put "$work/source" 0
check "resync: a full zone: the kernel writes" put "$work/a" "$(at 4)"
check "resync: a full zone: a copy fills it" copy "$(at 1)+$((zone - 64 * kib))" "$(at 4 $((64 * kib)))"
equal "resync: a full zone" "$(state 4)" "fu $zone"
check "resync: a full zone: after a reset it is written again" zones reset 4
check "resync: a full zone: from its start" put "$work/b" "$(at 4)"

# The same without the resync: the disk takes the write at the pointer, the kernel does not let it through.
check "without the resync: the kernel writes" put "$work/a" "$(at 7)"
check "without the resync: a change behind its back" \
	api PUT "/v1/disks/$id/data?offset=$(at 7 $((64 * kib)))&force=true" "@$work/source"
equal "without the resync: the disk's pointer has moved" "$(state 7)" "oi $((64 * kib + length))"
check_fails "without the resync: the kernel does not go on" 1 'Input/output error' \
	put "$work/b" "$(at 7 $((64 * kib + length)))"
check "with it: a copy there" copy 0+512 "$(at 7)" --append
check "with it: the kernel goes on" put "$work/b" "$(at 7 $((64 * kib + length + 512)))"
timeout 60 ublk del -n "$id"

# Data that fio verifies, within the limits of open zones. fio takes the limits from the kernel.
add --size 64M --memory 512M --zoned --zone-size 4M --conventional-zones 2 --max-open 4 --max-active 4 -q 4 ||
	bail "a zoned disk with four queues is added"
cat >"$work/zoned.fio" <<'END'
[global]
zonemode=zbd
direct=1
ioengine=io_uring
iodepth=4
verify=crc32c
verify_fatal=1
offset=8m
stonewall
[zoned, sequential, 64 KiB]
rw=write
bs=64k
size=16m
[zoned, sequential, 4 KiB]
rw=write
bs=4k
size=4m
[zoned, random, four open zones]
rw=randwrite
bs=16k
size=16m
max_open_zones=4
[zoned, four jobs]
rw=write
bs=32k
numjobs=4
size=4m
offset_increment=4m
END
fio_jobs "$work/zoned.fio"
timeout 60 ublk del -n "$id"
add --size 64M --memory 512M --logical-block-size 4K --zoned --zone-size 8M --zone-capacity 6M --max-open 1 ||
	bail "a zoned disk of 4 KiB blocks whose zones are not written whole is added"
equal "the kernel knows the capacity" "$(blkzone report -c 1 "$disk" | grep -o 'cap 0x[0-9a-f]*')" "cap 0x003000"
cat >"$work/capacity.fio" <<'END'
[global]
zonemode=zbd
direct=1
ioengine=psync
verify=crc32c
verify_fatal=1
stonewall
[zoned, capacity below size, one open zone]
rw=write
bs=64k
size=24m
io_size=18m
END
fio_jobs "$work/capacity.fio"
equal "no data is written beyond the capacity" "$(blkzone report "$disk" | grep -c '(fu)')" 3
timeout 60 ublk del -n "$id"

# More zones than the driver's usual buffer can describe.
zone=$mib
add --size 20000M --memory 512M --zoned --zone-size 1M || bail "a disk of 20,000 zones is added"
attribute nr_zones 20000
blkzone report "$disk" >"$work/report"
equal "20,000 zones: each is sequential" "$(grep -c SEQ_WRITE_REQUIRED "$work/report")" 20000
equal "20,000 zones: each begins at its place" \
	"$(grep -o 'start: 0x[0-9a-f]*' "$work/report" | sort -u | wc -l)" 20000
check_fails "20,000 zones: the last is not written off its pointer" 1 'Input/output error' \
	put "$work/a" "$(at 19999 $((64 * kib)))"
equal "20,000 zones: a refused write changes nothing" "$(state 19999)" "em 0"
check "20,000 zones: it is written at its pointer" put "$work/a" "$(at 19999)"
check "20,000 zones: another one is" put "$work/b" "$(at 12345)"
equal "20,000 zones: and so reported" "$(state 19999) $(state 12345) $(state 12346)" "oi 65536 oi 65536 em 0"
equal "20,000 zones: by a report that begins elsewhere, too" \
	"$(blkzone report -o $((12000 * zone / 512)) "$disk" | grep -c '(oi)')" 2
