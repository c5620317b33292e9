# limit: 30
# Passes its test and ends with a status, which is a failure.
. "$(dirname "$0")/../guest/lib.sh"

ok "passes"
exit 3
