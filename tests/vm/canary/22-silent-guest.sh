# limit: 5
# Stops the agent: nothing in the guest answers any more.
. "$(dirname "$0")/../guest/lib.sh"

kill -STOP "$PPID"
sleep 600
