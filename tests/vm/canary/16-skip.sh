# limit: 30
# A listed skip, and one that is not listed, which is a failure.
. "$(dirname "$0")/../guest/lib.sh"

skip "listed" "for the canary"
skip "not listed" "for the canary"
