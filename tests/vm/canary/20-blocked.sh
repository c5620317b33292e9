# limit: 20
# needs: mkfs.ext4 fsfreeze modprobe
# Blocks for ever, in a way that even SIGKILL cannot end.
. "$(dirname "$0")/../guest/lib.sh"

modprobe loop && truncate -s 64M "$work/image"
mkfs.ext4 -q "$work/image" && mkdir "$work/mnt" && mount -o loop "$work/image" "$work/mnt" || bail "set up"
fsfreeze -f "$work/mnt"
ok "passes before"
touch "$work/mnt/canary"
