# limit: 30
# Passes its test while the kernel reports trouble, which is a failure.
. "$(dirname "$0")/../guest/lib.sh"

echo 'WARNING: CPU: 0 PID: 1 at canary' >/dev/kmsg
ok "passes"
