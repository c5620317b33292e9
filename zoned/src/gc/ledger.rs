//! What the policy decided, and what the device did because of it.

use super::geometry::to_f64;
use emulation::Bytes;

/// Counters of a log. They rise with every page; two readings give an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Pages written by the user.
    pub user_pages: u64,
    /// Pages moved by the collector.
    pub moved_pages: u64,
    /// Zones collected, each emptied once.
    pub victims: u64,
    /// Pages that those zones held, live or dead.
    pub victim_pages: u64,
}

impl Ledger {
    /// What happened since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user_pages: self.user_pages - earlier.user_pages,
            moved_pages: self.moved_pages - earlier.moved_pages,
            victims: self.victims - earlier.victims,
            victim_pages: self.victim_pages - earlier.victim_pages,
        }
    }

    /// Pages written for each page of the user; `None` when there was none.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.user_pages > 0).then(|| to_f64(self.user_pages + self.moved_pages) / to_f64(self.user_pages))
    }

    /// The live share of the collected zones; `None` when none was collected.
    pub fn live_fraction(&self) -> Option<f64> {
        (self.victim_pages > 0).then(|| to_f64(self.moved_pages) / to_f64(self.victim_pages))
    }
}

/// What a device did for a log. Each counter rises when a request has ended, by what was in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Written by the user.
    pub user_written: Bytes,
    /// Read by the host to move pages.
    pub host_read: Bytes,
    /// Written by the host to move pages.
    pub host_written: Bytes,
    /// Moved by copy commands, however the device did it.
    pub copied: Bytes,
    /// Moved by copy commands that may move no bytes.
    pub remapped: Bytes,
    /// Zones reset.
    pub resets: u64,
    /// Zones discarded.
    pub discards: u64,
    /// Write requests, of the user and of moves.
    pub writes: u64,
    /// Read requests.
    pub reads: u64,
    /// Copy commands.
    pub copies: u64,
    /// Their segments.
    pub segments: u64,
}

impl Traffic {
    /// Moved by any means.
    pub fn moved(&self) -> Bytes {
        Bytes(self.host_written.0 + self.copied.0 + self.remapped.0)
    }

    /// Data that went over the link to the device or back.
    pub fn link(&self) -> Bytes {
        Bytes(self.user_written.0 + self.host_read.0 + self.host_written.0)
    }

    /// Bytes written for each byte of the user; `None` when there was none.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.user_written.0 > 0)
            .then(|| to_f64(self.user_written.0 + self.moved().0) / to_f64(self.user_written.0))
    }

    /// What was done since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        let bytes = |now: Bytes, then: Bytes| Bytes(now.0 - then.0);
        Self {
            user_written: bytes(self.user_written, earlier.user_written),
            host_read: bytes(self.host_read, earlier.host_read),
            host_written: bytes(self.host_written, earlier.host_written),
            copied: bytes(self.copied, earlier.copied),
            remapped: bytes(self.remapped, earlier.remapped),
            resets: self.resets - earlier.resets,
            discards: self.discards - earlier.discards,
            writes: self.writes - earlier.writes,
            reads: self.reads - earlier.reads,
            copies: self.copies - earlier.copies,
            segments: self.segments - earlier.segments,
        }
    }
}
