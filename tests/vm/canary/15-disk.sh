# limit: 30
# Leaves a disk behind, which is a failure. The node alone will do, so that no disk has to be made.
. "$(dirname "$0")/../guest/lib.sh"

mknod /dev/ublkb999 b 259 999
ok "passes"
