# limit: 30
# crash: yes
# Takes the guest down.
. "$(dirname "$0")/../guest/lib.sh"

ok "passes before"
sync
echo c >/proc/sysrq-trigger
sleep 30
