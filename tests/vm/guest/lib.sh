# Helpers for the guest tests, sourced first: . "$(dirname "$0")/lib.sh"
# shellcheck shell=bash
#
# Every `ok`, `not_ok` and `skip` is one test in the count. `check` and its kin make one from a command.
# All else that a test prints goes to the log and is shown when the test fails.
set -u -o pipefail

# The test points go to the agent beside the output, so that a redirected function still counts.
[ -n "${UBLK_AGENT:-}" ] || exec 3>&1
_point() { printf '@ %s\n' "${1//$'\n'/ }" >&3; }

ok() { _point "ok - $1"; }
not_ok() { _point "not ok - $1"; }
# skip WHAT REASON: allowed only where tests/skips.allow lists it.
skip() { _point "skip - $1: $2"; }
note() { printf '# %s\n' "$*"; }

# bail WHAT [COMMAND...]: for what the rest of the test cannot do without.
bail() {
	local what=$1
	shift
	[ $# -eq 0 ] || "$@"
	not_ok "$what"
	exit 1
}

# check WHAT COMMAND...: passes when the command succeeds.
check() {
	local what=$1 status
	shift
	"$@"
	status=$?
	if [ "$status" -eq 0 ]; then ok "$what"; else
		note "exit status $status: $*"
		not_ok "$what"
	fi
	return "$status"
}

# check_fails WHAT STATUS PATTERN COMMAND...: passes when the command exits with just that status and
# its output (both streams) matches the extended regular expression.
check_fails() {
	local what=$1 want=$2 pattern=$3 output status
	shift 3
	output=$("$@" 2>&1 </dev/null)
	status=$?
	if [ "$status" -eq "$want" ] && grep -q -E -- "$pattern" <<<"$output"; then ok "$what"; return 0; fi
	note "exit status $status, expected $want; expected /$pattern/ in: $output"
	not_ok "$what"
	return 1
}

# equal WHAT GOT WANT
equal() {
	if [ "$2" = "$3" ]; then ok "$1"; return 0; fi
	note "got:      $2"
	note "expected: $3"
	not_ok "$1"
	return 1
}

# within SECONDS COMMAND...: repeat the command until it succeeds; fails when the time is over.
within() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.2
	done
}

# gone PID: has the process ended?
gone() { ! kill -0 "$1" 2>/dev/null; }

# Work folder in the guest's own memory, removed at the end of the test; what a tool leaves where it
# runs ends there too.
work=$(mktemp -d "/tmp/${0##*/}.XXXXXX") && cd "$work" || exit 1

# at_exit COMMAND: run at the end of the test, the last registered first.
_at_exit=()
at_exit() { _at_exit=("$1" "${_at_exit[@]}"); }
_cleanup() {
	local command
	for command in "${_at_exit[@]}"; do eval "$command"; done
	rm -rf "$work"
}
trap _cleanup EXIT
