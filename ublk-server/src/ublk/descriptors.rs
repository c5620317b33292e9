//! The descriptors of a queue, which the driver writes and shares.
//!
//! The one file with `unsafe` for that mapping.

use super::decode::Descriptor;
use libublk::sys;
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;

/// The descriptors of one queue, by tag.
#[derive(Debug)]
pub(crate) struct Descriptors {
    mapping: MmapRaw,
    depth: u16,
}

impl Descriptors {
    /// Maps those of `queue` from `/dev/ublkcN`.
    pub(crate) fn map(device: &File, queue: u16, depth: u16) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let one = size_of::<sys::ublksrv_io_desc>();
        let most = (sys::UBLK_MAX_QUEUE_DEPTH as usize * one).next_multiple_of(page);
        let len = (usize::from(depth) * one).next_multiple_of(page);
        let offset = sys::UBLKSRV_CMD_BUF_OFFSET as usize + usize::from(queue) * most;
        let mapping = MmapOptions::new().offset(offset as u64).len(len).map_raw_read_only(device)?;
        Ok(Self { mapping, depth })
    }

    /// The descriptor of a tag whose command ended with a request.
    pub(crate) fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth);
        let all = self.mapping.as_ptr().cast::<sys::ublksrv_io_desc>();
        // SAFETY: in bounds by the assertion and the length of the mapping, aligned as the mapping begins a page. The
        // driver wrote it before the command ended and does not write it again before the next command for the
        // tag; volatile, as the memory is shared all the same. Every bit pattern is a descriptor.
        let raw = unsafe { all.add(usize::from(tag)).read_volatile() };
        Descriptor { op_flags: raw.op_flags, nr_sectors: raw.nr_sectors, start_sector: raw.start_sector }
    }
}
