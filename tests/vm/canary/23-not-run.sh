# limit: 30
# There is no guest left to run in.
. "$(dirname "$0")/../guest/lib.sh"

ok "never run"
