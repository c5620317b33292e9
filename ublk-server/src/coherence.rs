//! The host's page cache beside copies that the host does not see.
//!
//! A copy command that comes through the control API changes bytes below the caches of the block device: what the
//! host has written and not yet sent would be missed, and what it has cached would be stale. So a *helper process*
//! writes back source and destination ranges before the copy, on the disk and on each partition that they touch,
//! and drops the destination's pages after it. It is a process of its own because a thread of the server that
//! waits for its own disk cannot be killed, and then neither can the server.

use crate::ublk::control;
use crate::ublk::native::CopyLimits;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufRead};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

mod helper;
mod nodes;
mod sys;
mod zones;

pub(crate) use helper::ask;
pub use helper::{HelperError, run};
use nodes::{Node, NodeRange, merge, nodes_of, touched};
pub(crate) use sys::cached_pages;

/// The hidden command that is the helper.
pub const COMMAND: &str = "coherence-helper";
/// What one system call writes back at most, so that the helper says often that it lives.
const PIECE: u64 = 64 << 20;
/// The borders to which the drop grows while a page of the range stays: a page, the largest folio of most
/// machines, and the whole node. A folio that lies across a border is not dropped.
const BORDERS: [u64; 3] = [4096, 2 << 20, u64::MAX];

/// Bytes of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DiskRange {
    /// The number in `/dev/ublkbN`.
    pub disk: u32,
    /// First byte.
    pub offset: u64,
    /// So many.
    pub length: u64,
}

/// What the helper shall do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Say who holds these disks exclusively.
    Claims(Vec<u32>),
    /// Write cached writes of these ranges to their disks and wait for them; if `free` is set, only when nobody holds
    /// one of the disks exclusively, else say who does.
    WriteBack {
        /// The ranges.
        ranges: Vec<DiskRange>,
        /// Nobody may hold the disks.
        free: bool,
    },
    /// Drop the cached pages of these ranges.
    Drop(Vec<DiskRange>),
    /// Tell the kernel where these zones of a disk are written next.
    Resync {
        /// The number in `/dev/ublkbN`.
        disk: u32,
        /// Its logical block, in bytes.
        block: u64,
        /// The zones.
        zones: Vec<ZoneProbe>,
    },
    /// Tell the kernel what copies it may send to a disk.
    CopyLimits {
        /// The number in `/dev/ublkbN`.
        disk: u32,
        /// The limits.
        limits: CopyLimits,
    },
    /// Change the zones of a range through the block device; if `free` is set, only when nobody holds it exclusively,
    /// else say who does.
    Zones {
        /// What to do.
        action: ZoneIoctl,
        /// Whole zones.
        range: DiskRange,
        /// Nobody may hold the disk.
        free: bool,
    },
}

/// A zone that was written beside the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneProbe {
    /// Its first byte.
    pub start: u64,
    /// The first byte of a block of it that is not at the write pointer: the disk takes no write there.
    pub place: u64,
}

/// A change of zones that the kernel has to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneIoctl {
    /// `BLKOPENZONE`.
    Open,
    /// `BLKCLOSEZONE`.
    Close,
    /// `BLKFINISHZONE`.
    Finish,
    /// `BLKRESETZONE`.
    Reset,
}

/// What the helper did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Disks that are held, each with its holder, for people.
    pub claims: Vec<String>,
    /// Pages of the ranges that are still cached.
    pub stale_pages: u64,
    /// True when the kernel cannot say how many pages are cached.
    pub unchecked: bool,
}

/// A line of the helper's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Alive,
    Done(Report),
    Failed(String),
}

/// The helper itself: reads orders from standard input, a line each, and reports on standard output.
///
/// # Errors
/// The pipe to the server broke, or what came through it is no order.
pub fn helper_main() -> io::Result<()> {
    for order in io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&order?).map_err(io::Error::other)?;
        say(&match execute(&order, &mut || say(&Line::Alive)) {
            Ok(report) => Line::Done(report),
            Err(error) => Line::Failed(error.to_string()),
        })?;
    }
    Ok(())
}

fn say(line: &Line) -> io::Result<()> {
    use io::Write;
    let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
    text.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    out.flush()
}

fn execute(order: &Order, alive: &mut dyn FnMut() -> io::Result<()>) -> io::Result<Report> {
    let mut report = Report::default();
    match order {
        Order::Claims(disks) => report.claims = claims(disks)?,
        Order::WriteBack { ranges, free } => {
            if *free {
                report.claims = claims(&disks_of(ranges))?;
            }
            if !report.claims.is_empty() {
                return Ok(report);
            }
            for (node, range) in node_ranges(ranges)? {
                let file = open(&node.path)?;
                write_back(&file, range, alive).map_err(|error| named(&node.path, "write back", error))?;
            }
        }
        Order::Drop(ranges) => {
            for (node, range) in node_ranges(ranges)? {
                let file = open(&node.path)?;
                let left = drop_pages(&file, node.length, range, alive)
                    .map_err(|error| named(&node.path, "drop cached pages", error))?;
                report.unchecked |= left.is_none();
                report.stale_pages += left.unwrap_or(0);
            }
        }
        Order::CopyLimits { disk, limits } => {
            control::update_copy(*disk, *limits).map_err(io::Error::other)?;
        }
        Order::Resync { disk, block, zones } => zones::resync(*disk, *block, zones, alive)?,
        Order::Zones { action, range, free } => {
            if *free {
                report.claims = claims(&[range.disk])?;
            }
            if report.claims.is_empty() {
                zones::manage(*action, *range)?;
            }
        }
    }
    Ok(report)
}

fn named(path: &Path, what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} on {}: {error}", path.display()))
}

fn open(path: &Path) -> io::Result<File> {
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    opened.map_err(|error| named(path, "open", error))
}

/// The disks of ranges, each once.
fn disks_of(ranges: &[DiskRange]) -> Vec<u32> {
    let mut disks: Vec<u32> = ranges.iter().map(|range| range.disk).collect();
    disks.sort_unstable();
    disks.dedup();
    disks
}

/// Who holds these disks.
fn claims(disks: &[u32]) -> io::Result<Vec<String>> {
    disks.iter().filter_map(|disk| claim(*disk).transpose()).collect()
}

/// The ranges on each node that they touch.
fn node_ranges(ranges: &[DiskRange]) -> io::Result<Vec<(Node, NodeRange)>> {
    let mut out = Vec::new();
    for disk in disks_of(ranges) {
        let own = ranges.iter().filter(|range| range.disk == disk);
        let own = merge(own.map(|range| NodeRange { offset: range.offset, length: range.length }).collect());
        for node in nodes_of(disk)? {
            let touched = own.iter().filter_map(|range| touched(&node, *range));
            out.extend(touched.map(|range| (node.clone(), range)));
        }
    }
    Ok(out)
}

/// Who holds a disk exclusively; nobody when there is no such block device. To ask is to hold it for a moment, so
/// somebody who cannot be named is given a second to let go.
pub(crate) fn claim(disk: u32) -> io::Result<Option<String>> {
    const TRIES: u32 = 20;
    let path = PathBuf::from(format!("/dev/ublkb{disk}"));
    for last in (0..TRIES).map(|n| n + 1 == TRIES) {
        let opened = File::options().read(true).custom_flags(libc::O_EXCL | libc::O_NONBLOCK).open(&path);
        match opened {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => match holder(disk) {
                Some(holder) => return Ok(Some(format!("{} is {holder}", path.display()))),
                None if last => {
                    return Ok(Some(format!("{} is held exclusively by another program", path.display())));
                }
                None => std::thread::sleep(std::time::Duration::from_millis(50)),
            },
            // No node, or a dead disk behind it: nobody can hold it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO | libc::ENODEV)) => {
                break;
            }
            Err(error) => return Err(named(&path, "open", error)),
        }
    }
    Ok(None)
}

/// What holds a disk, as far as the kernel says.
fn holder(disk: u32) -> Option<String> {
    let name = format!("ublkb{disk}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(place) = mounted_on(&mounts, &name) {
        return Some(format!("mounted on {place}"));
    }
    let holders = fs::read_dir(format!("/sys/block/{name}/holders"));
    let first = holders.ok().and_then(|mut entries| entries.next()).and_then(Result::ok);
    first.map(|holder| format!("held by {}", holder.file_name().to_string_lossy()))
}

/// Where the disk or a partition of it is mounted, after `/proc/self/mountinfo`.
fn mounted_on<'a>(mounts: &'a str, name: &str) -> Option<&'a str> {
    mounts.lines().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let source = tail.split(' ').nth(1)?.strip_prefix("/dev/")?;
        let rest = source.strip_prefix(name)?;
        let partition = rest.strip_prefix('p').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        (rest.is_empty() || partition).then(|| head.split(' ').nth(4))?
    })
}

fn write_back(file: &File, range: NodeRange, alive: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
    let mut at = range.offset;
    let end = range.offset + range.length;
    while at < end {
        let length = PIECE.min(end - at);
        sys::write_back(file, at, length)?;
        alive()?;
        at += length;
    }
    Ok(())
}

/// Drops the pages of a range and gives the number of those that stay; `None` when the kernel cannot say.
fn drop_pages(
    file: &File,
    node_length: u64,
    range: NodeRange,
    alive: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<Option<u64>> {
    let mut left = None;
    for border in BORDERS {
        let wide = outward(range, border, node_length);
        write_back(file, wide, alive)?;
        let length = std::num::NonZeroU64::new(wide.length);
        rustix::fs::fadvise(file, wide.offset, length, rustix::fs::Advice::DontNeed)?;
        left = sys::cached_pages(file, range.offset, range.length)?;
        if left == Some(0) {
            break;
        }
    }
    Ok(left)
}

/// The range grown to multiples of `border`, within the node.
fn outward(range: NodeRange, border: u64, node_length: u64) -> NodeRange {
    let start = range.offset - range.offset % border;
    let end = (range.offset + range.length).checked_next_multiple_of(border).unwrap_or(node_length);
    NodeRange { offset: start, length: end.min(node_length).max(start) - start }
}

#[cfg(test)]
mod tests;
