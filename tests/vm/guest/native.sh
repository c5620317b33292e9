# Helpers for the guest tests of a kernel with a copy operation. Sourced after disk.sh, never run; ends the test where
# there is none.
# shellcheck shell=bash

timeout 60 ublk features >"$work/features" || bail "ublk features"
if ! grep -q -P '^\tCOPY ' "$work/features"; then
	skip "native copies" "this kernel has no copy operation"
	exit 0
fi
. "$(dirname "$0")/model.sh"

# native ARGUMENT...: on $id, by $door, bounded.
door=native
native() {
	timeout 90 ublk copy -n "$id" --door "$door" "$@" >"$work/copy.log" 2>&1 || { cat "$work/copy.log"; return 1; }
}
# refused WHAT PATTERN ARGUMENT...
refused() { check_fails "$1" 1 "$2" timeout 90 ublk copy -n "$id" --door "$door" "${@:3}"; }
# The copy commands that the server has had.
commands() { ublk stats -n "$id" --json | number copy; }
# done_of FILE: how far a copy came that printed the file.
done_of() { sed -n 's/^copied \([0-9]*\) of [0-9]* bytes.*/\1/p' "$1"; }
