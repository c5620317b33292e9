# limit: 30
# kernel: >=99.0
# Needs a kernel that does not exist, which is a listed skip.
. "$(dirname "$0")/../guest/lib.sh"

ok "never run"
