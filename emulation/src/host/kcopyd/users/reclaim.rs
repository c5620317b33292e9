//! The reclaim of a zone by the zoned target: one valid extent after the other, each waited for, to the same places of
//! another zone. In a sequential zone what lies between two extents is filled with zeroes. A metadata flush ends it.
//! Source: `drivers/md/dm-zoned-reclaim.c` (`dmz_reclaim_copy`, `dmz_reclaim_align_wp`, `dmz_reclaim_work`),
//! `block/blk-zoned.c` (`blk_zone_issue_zeroout`).

use super::{Act, Outcome, User};
use crate::host::kcopyd::{Job, Region};
use crate::request::{Flags, Op, VolumeId};
use crate::units::{Sector, SectorRange, Sectors};
use std::collections::VecDeque;

/// The throttle of reclaim, in percent, by the free random or cache zones in percent.
pub fn reclaim_throttle(idle: bool, free_percent: u64) -> u64 {
    const LOW: u64 = 30;
    if idle || free_percent < LOW / 2 { 100 } else { 75.min(100 - free_percent / 2) }
}

/// The most that one write of zeroes holds: `BIO_MAX_VECS` pages.
const ZERO_PAGES: Sectors = Sectors(256 * 8);

/// The reclaim of one zone.
#[derive(Debug)]
pub struct Reclaim {
    volume: VolumeId,
    from: Sector,
    to: Sector,
    sequential: bool,
    /// The disk has Write Zeroes. Without it the kernel asks for a report of the zone, which is not modelled, and writes
    /// zeroes. True unless set.
    pub write_zeroes: bool,
    /// Valid extents, from the start of the zone.
    extents: VecDeque<SectorRange>,
    /// Of the destination, from its start.
    wp: Sectors,
    flushing: bool,
    under_way: Option<Sectors>,
    over: bool,
    failed: bool,
}

impl Reclaim {
    /// Moves `extents`, sorted and from the start of the zone, from the zone at `from` to the zone at `to`, whose write
    /// pointer, if it is `sequential`, is `wp` from its start.
    pub fn new(
        volume: VolumeId,
        (from, to): (Sector, Sector),
        sequential: bool,
        wp: Sectors,
        extents: Vec<SectorRange>,
    ) -> Self {
        Self {
            volume,
            from,
            to,
            sequential,
            write_zeroes: true,
            extents: extents.into(),
            wp,
            flushing: false,
            under_way: None,
            over: false,
            failed: false,
        }
    }

    /// True when it could not be done: the zone stays as it is.
    pub fn has_failed(&self) -> bool {
        self.failed
    }
}

impl User for Reclaim {
    fn next(&mut self) -> Vec<(u64, Act)> {
        if self.under_way.is_some() || self.over {
            return Vec::new();
        }
        let Some(extent) = self.extents.front().copied() else {
            self.flushing = true;
            self.under_way = Some(self.wp);
            return vec![(0, Act::Io(self.volume, Op::Flush, Flags::NONE))];
        };
        let offset = Sectors(extent.start.0);
        if self.sequential && self.wp > offset {
            // Valid blocks behind the write pointer: there is no way.
            (self.failed, self.over) = (true, true);
            return Vec::new();
        }
        if self.sequential && self.wp < offset {
            let hole = offset - self.wp;
            let len = if self.write_zeroes { hole } else { hole.min(ZERO_PAGES) };
            let range = SectorRange { start: self.to + self.wp, len };
            self.under_way = Some(self.wp + len);
            let zeroes = if self.write_zeroes { Op::WriteZeroes(range) } else { Op::Write(range) };
            return vec![(0, Act::Io(self.volume, zeroes, Flags::NONE))];
        }
        self.extents.pop_front();
        self.under_way = Some(offset + extent.len);
        let of = |zone: Sector| Region {
            volume: self.volume,
            range: SectorRange { start: zone + offset, len: extent.len },
        };
        let job = Job { write_seq: self.sequential, ..Job::copy(of(self.from), of(self.to)) };
        vec![(0, Act::Copy(job))]
    }

    fn done(&mut self, _act: u64, outcome: Outcome) {
        self.wp = self.under_way.take().expect("something was under way");
        self.failed |= !outcome.is_ok();
        self.over |= self.flushing || self.failed;
    }

    fn is_over(&self) -> bool {
        self.over
    }
}
