# limit: 30
# needs: sh no-such-command
# A tool is missing and the skip is not listed, which is a failure.
. "$(dirname "$0")/../guest/lib.sh"

ok "never run"
