# limit: 5400
# long: yes
# needs: fio mkfs.ext4 fsck.ext4 acked
# As 75-recovery, with the server killed more than a hundred times.
factor=10
. "$(dirname "$0")/75-recovery.sh"
