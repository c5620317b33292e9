//! The block devices of a disk: the whole one and its partitions, each with a page cache of its own.

use emulation::Sectors;
use std::io;
use std::path::{Path, PathBuf};

/// A block device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Its path.
    pub(super) path: PathBuf,
    /// Its first byte on the disk.
    pub(super) start: u64,
    /// Its length in bytes.
    pub(super) length: u64,
}

/// Bytes of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeRange {
    /// First byte.
    pub(super) offset: u64,
    /// So many.
    pub(super) length: u64,
}

/// The nodes of `/dev/ublkbN`: the disk, then its partitions. None when there is no such block device.
///
/// # Errors
/// sysfs cannot be read.
pub(super) fn nodes_of(disk: u32) -> io::Result<Vec<Node>> {
    nodes_under(Path::new("/sys/block"), &format!("ublkb{disk}"))
}

fn nodes_under(sysfs: &Path, name: &str) -> io::Result<Vec<Node>> {
    let dir = sysfs.join(name);
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut nodes = vec![Node { path: Path::new("/dev").join(name), start: 0, length: bytes(&dir, "size")? }];
    for entry in entries {
        let entry = entry?;
        if entry.path().join("partition").exists() {
            nodes.push(Node {
                path: Path::new("/dev").join(entry.file_name()),
                start: bytes(&entry.path(), "start")?,
                length: bytes(&entry.path(), "size")?,
            });
        }
    }
    nodes[1..].sort_by(|a, b| a.path.cmp(&b.path));
    Ok(nodes)
}

/// An attribute that sysfs gives in sectors of 512 bytes, in bytes.
fn bytes(dir: &Path, attribute: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(dir.join(attribute))?;
    let sectors = text.trim().parse().map_err(io::Error::other)?;
    Ok(Sectors(sectors).bytes().0)
}

/// The part of a range of the disk that lies on a node, in bytes of the node.
pub(super) fn touched(node: &Node, range: NodeRange) -> Option<NodeRange> {
    let start = range.offset.max(node.start);
    let end = range.offset.saturating_add(range.length).min(node.start.saturating_add(node.length));
    (start < end).then(|| NodeRange { offset: start - node.start, length: end - start })
}

/// The same bytes in ascending ranges that neither overlap nor touch.
pub(super) fn merge(mut ranges: Vec<NodeRange>) -> Vec<NodeRange> {
    ranges.sort_unstable();
    let mut merged: Vec<NodeRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.offset <= last.offset + last.length => {
                last.length = last.length.max(range.offset + range.length - last.offset);
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, length: u64) -> NodeRange {
        NodeRange { offset, length }
    }

    #[test]
    fn a_range_is_cut_to_the_partition() {
        let node = Node { path: "/dev/x".into(), start: 1000, length: 500 };
        assert_eq!(touched(&node, range(0, 1000)), None);
        assert_eq!(touched(&node, range(0, 1001)), Some(range(0, 1)));
        assert_eq!(touched(&node, range(1100, 50)), Some(range(100, 50)));
        assert_eq!(touched(&node, range(1400, 1000)), Some(range(400, 100)));
        assert_eq!(touched(&node, range(1500, 1)), None);
    }

    #[test]
    fn ranges_merge_when_they_overlap_or_touch() {
        let merged = merge(vec![range(10, 5), range(0, 4), range(4, 2), range(12, 1), range(15, 1)]);
        assert_eq!(merged, [range(0, 6), range(10, 6)]);
        assert_eq!(merge(Vec::new()), []);
    }

    #[test]
    fn partitions_are_found_in_sysfs() {
        let dir = std::env::temp_dir().join(format!("ublk-nodes-{}", std::process::id()));
        let disk = dir.join("ublkb7");
        for (path, text) in [
            (disk.join("size"), "2048\n"),
            (disk.join("queue/x"), ""),
            (disk.join("ublkb7p2/partition"), "2\n"),
            (disk.join("ublkb7p2/start"), "1024\n"),
            (disk.join("ublkb7p2/size"), "8\n"),
            (disk.join("ublkb7p1/partition"), "1\n"),
            (disk.join("ublkb7p1/start"), "34\n"),
            (disk.join("ublkb7p1/size"), "100\n"),
        ] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let nodes = nodes_under(&dir, "ublkb7").unwrap();
        let expected = [
            ("/dev/ublkb7", 0, 2048 * 512),
            ("/dev/ublkb7p1", 34 * 512, 51200),
            ("/dev/ublkb7p2", 524288, 4096),
        ];
        assert_eq!(nodes.len(), 3);
        for (node, (path, start, length)) in nodes.iter().zip(expected) {
            assert_eq!((node.path.to_str().unwrap(), node.start, node.length), (path, start, length));
        }
        assert!(nodes_under(&dir, "ublkb8").unwrap().is_empty());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
