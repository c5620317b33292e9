# limit: 30
# Runs before the crash though its name comes later.
. "$(dirname "$0")/../guest/lib.sh"

ok "passes"
