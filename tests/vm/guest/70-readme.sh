# limit: 360
# needs: dd cmp nvme modprobe
# The README's tour works as it is printed: every command of its console blocks, with the output that stands there.
. "$(dirname "$0")/lib.sh"

readme=$(dirname "$0")/../../../README.md
at_exit 'ublk del -n tour --force >/dev/null 2>&1; ublk del -n target --force >/dev/null 2>&1'
at_exit 'timeout 60 nvme disconnect-all >/dev/null 2>&1'

# Numbers differ from run to run, as do the disk's number and the times.
plain() { sed -E 's/[0-9]+(\.[0-9]+)?/N/g'; }

commands=0 number=0 command=''
# finish: run the command, and compare where the README shows what it prints.
finish() {
	[ -n "$command" ] || return 0
	number=$((number + 1))
	case $command in
	disk=*)
		# What follows names the disk by it.
		disk=$(timeout 100 bash -c "$command; printf %s \"\$disk\"" 2>"$work/got")
		export disk
		[ -b "$disk" ]
		;;
	*) timeout 100 bash -c "$command" >"$work/got" 2>&1 ;;
	esac
	local status=$?
	if [ "$status" != 0 ]; then
		note "$(cat "$work/got")"
		# The commands build on each other: the next may write to a file where a disk should be.
		bail "$command"
	elif [ -s "$work/want" ] && [ "$(plain <"$work/want")" != "$(plain <"$work/got")" ]; then
		note "wanted: $(cat "$work/want")"
		note "got: $(cat "$work/got")"
		not_ok "$command"
	else
		ok "$command"
	fi
	command=''
	: >"$work/want"
}

: >"$work/want"
inside=no
while IFS= read -r line; do
	case $inside:$line in
	no:'```console') inside=yes ;;
	yes:'```') inside=no; finish ;;
	yes:'$ '*) finish; command=${line#'$ '}; commands=$((commands + 1)) ;;
	yes:*) printf '%s\n' "$line" >>"$work/want" ;;
	esac
done <"$readme"
[ "$commands" -ge 10 ] && ok "the tour was found" || not_ok "the tour was found"
