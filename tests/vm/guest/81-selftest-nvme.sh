# limit: 300
# needs: nvme modprobe setpriv
# `ublk selftest --target /dev/nvmeXnY`: the clauses of SEMANTICS.md by commands of the kernel's NVMe driver, against
# our own disk and against QEMU's emulated controller, which breaks some of them.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/disk.sh"
. "$(dirname "$0")/nvme.sh"

# verdicts FILE: the clauses that do not hold, each with its verdict.
verdicts() { sed -n 's/^not ok [0-9]* - \([0-9.]*\) .*/\1 broken/p; s/^ok [0-9]* - \([0-9.]*\) .*# SKIP.*/\1 skipped/p' "$1"; }
# A kernel that keeps the host's behavior to itself lets nobody enable Copy format 2h, which these clauses are about.
without_2h=$'1.6 skipped\n3.1 skipped'

modprobe nvme-tcp || bail "the host's driver can be loaded"
ublk add --no-ublk --name judged --size 64M --memory 256M --nvme-tcp 127.0.0.1:4420 >/dev/null || bail "a disk is added"
at_exit 'timeout 60 ublk del -n judged'
nqn=$(ublk info -n judged --json | subsystem)
connect || bail "the host connects"
at_exit 'disconnect >/dev/null 2>&1'
within 30 namespace 1 || bail "the host finds the namespace"
ns=$(namespace 1)
timeout 120 ublk selftest --target "$ns" >"$work/reads" 2>&1
equal "our own: reads only" "$(grep -c '^ok' "$work/reads") $(verdicts "$work/reads" | grep -c skipped)" "11 10"
check "our own: no clause is broken" timeout 120 ublk selftest --target "$ns" --scratch 1M+2M
timeout 120 ublk selftest --target "$ns" --scratch 1M+2M >"$work/own" 2>&1
cat "$work/own"
found=$(verdicts "$work/own")
case $found in
'' | "$without_2h") ok "our own: every clause that this kernel lets ask for holds" ;;
*) equal "our own: every clause that this kernel lets ask for holds" "$found" '' ;;
esac
check "what is outside of the scratch range is not touched" zeroes_of "$ns" 0 $((1 << 20))
disconnect
timeout 60 ublk del -n judged

# A disk of a user without privileges, which may have no device but needs none.
mkdir "$work/user" && chown 65534:65534 "$work/user" && chmod 711 "$work" && cp "$(command -v ublk)" "$work/ublk" && chmod 755 "$work/ublk"
as_user() {
	setpriv --reuid 65534 --regid 65534 --clear-groups env -u UBLK_STATE_DIR XDG_RUNTIME_DIR="$work/user" HOME="$work/user" \
		timeout 60 "$work/ublk" "$@"
}
check "a user without privileges serves a disk" as_user add --no-ublk --name own --size 16M --memory 64M --nvme-tcp 127.0.0.1:4420
at_exit 'as_user del -n own >/dev/null 2>&1'
nqn=$(as_user info -n own --json | subsystem)
check "the host connects to it" connect
if within 30 namespace 1; then
	timeout 120 ublk selftest --target "$(namespace 1)" --scratch 1M+2M >"$work/user/verdicts" 2>&1
	check "it copies" grep -q '^ok .* 1.1 ' "$work/user/verdicts"
else
	not_ok "it copies"
fi
disconnect
check "its server is that user's" sh -c 'test "$(stat -c %u "/proc/$1")" = 65534' - "$(as_user info -n own --json | number pid)"
as_user del -n own

modprobe nvme || bail "QEMU's controller has a driver"
at_exit 'modprobe -r nvme'
qemu() {
	local link
	for link in /sys/class/nvme/nvme*; do
		[ "$(cat "$link/transport" 2>/dev/null)" = pcie ] && [ -b "/dev/${link##*/}n1" ] && echo "/dev/${link##*/}n1" && return
	done
	return 1
}
within 30 qemu || bail "QEMU's namespace is there"
timeout 120 ublk selftest --target "$(qemu)" --scratch 1M+2M >"$work/qemu" 2>&1
status=$?
cat "$work/qemu"
note "QEMU: exit status $status"
# Seen with QEMU 7.2, which has no format 2h; later ones have it.
check "QEMU: a refused command has copied its first ranges" grep -q '^not ok .* 2.3 ' "$work/qemu"
equal "QEMU: no other clause is broken but that of overlap" "$(verdicts "$work/qemu" | grep -v -x -e '1.6 skipped' -e '2.3 broken' -e '3.1 .*')" ''
