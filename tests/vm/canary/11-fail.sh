# limit: 30
# One test that passes, two that fail, in each way that lib.sh offers.
. "$(dirname "$0")/../guest/lib.sh"

check "true succeeds" true
check "false does not" false
check_fails "the status is another" 2 '' false
