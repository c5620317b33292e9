# limit: 7200
# long: yes
# needs: logwrites dmsetup mkfs.ext4 fsck.ext4 mkfs.xfs xfs_repair
# As 77-log-writes, with a replay to every flush.
times=1000000
. "$(dirname "$0")/77-log-writes.sh"
