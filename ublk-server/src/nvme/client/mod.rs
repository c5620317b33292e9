//! A small host, for tests and benchmarks: [`HostQueue`] without sockets, [`Host`] and [`Link`] over TCP.

mod host;
mod queue;

pub use host::{Host, HostOptions, Link, LinkError};
pub use queue::{Done, HostQueue, QueueError, QueueOptions, Transfer};

use super::wire::command::{IoOpcode, Sqe};
use super::wire::copy::{CopyFields, CopyFormat, CopyRange, DSM_DEALLOCATE, DsmRange, entries};
use super::wire::read;
use super::wire::zone::{ZoneEntry, ZoneReportHeader};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// Copy, with its list.
pub fn copy(nsid: u32, sdlba: u64, format: CopyFormat, ranges: &[CopyRange]) -> (Sqe, Vec<u8>) {
    let mut sqe = Sqe::new(IoOpcode::Copy.code(), nsid);
    sqe.set_slba(sdlba);
    CopyFields { ranges: ranges.len() as u32, desfmt: format.code() }.put(&mut sqe);
    (sqe, ranges.as_bytes().to_vec())
}

/// The zones of a report, and the number in its header; `None` when it is too short for a header.
pub fn zone_report(data: &[u8]) -> Option<(u64, Vec<ZoneEntry>)> {
    let header: ZoneReportHeader = read(data)?;
    let entries: Vec<ZoneEntry> = entries(&data[size_of::<ZoneReportHeader>()..]).collect();
    let follow = usize::try_from(header.zones.get()).unwrap_or(usize::MAX).min(entries.len());
    Some((header.zones.get(), entries[..follow].to_vec()))
}

/// Dataset Management that deallocates `(first block, blocks)`.
pub fn deallocate(nsid: u32, ranges: &[(u64, u32)]) -> (Sqe, Vec<u8>) {
    let mut sqe = Sqe::new(IoOpcode::DatasetManagement.code(), nsid);
    sqe.cdw10 = U32::new((ranges.len() as u32).wrapping_sub(1) & 0xff);
    sqe.cdw11 = U32::new(DSM_DEALLOCATE);
    let ranges = ranges.iter().map(|&(slba, blocks)| DsmRange {
        cattr: U32::new(0),
        nlb: U32::new(blocks),
        slba: U64::new(slba),
    });
    (sqe, ranges.collect::<Vec<_>>().as_bytes().to_vec())
}
