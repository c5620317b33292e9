//! The resync of a mirror: region by region, one at a time, from the default leg to all others. Source:
//! `drivers/md/dm-raid1.c` (`recover`, `recovery_complete`), `dm-region-hash.c` (`MAX_RECOVERY` 1).

use super::{Act, Outcome, User};
use crate::host::kcopyd::{Job, Region};
use crate::request::VolumeId;
use crate::units::{Sector, SectorRange, Sectors};

/// A mirror whose regions are all out of sync.
#[derive(Debug)]
pub struct Mirror {
    /// The legs, 2 to 9; the first is the default.
    legs: Vec<VolumeId>,
    size: Sectors,
    region: Sectors,
    /// `handle_errors`; without it errors are ignored.
    handle_errors: bool,
    next: u64,
    under_way: bool,
    failed: u64,
}

impl Mirror {
    /// A mirror of `size` sectors in regions of `region`.
    pub fn new(legs: Vec<VolumeId>, size: Sectors, region: Sectors, handle_errors: bool) -> Self {
        Self { legs, size, region, handle_errors, next: 0, under_way: false, failed: 0 }
    }

    /// Bit n: leg n could not be written.
    pub fn failed_legs(&self) -> u64 {
        self.failed
    }
}

impl User for Mirror {
    fn next(&mut self) -> Vec<(u64, Act)> {
        if self.under_way || self.is_over() {
            return Vec::new();
        }
        self.under_way = true;
        let start = Sector(self.next * self.region.0);
        // The last region may be short.
        let len = self.region.min(Sectors(self.size.0 - start.0));
        let of = |volume: &VolumeId| Region { volume: *volume, range: SectorRange { start, len } };
        let job = Job {
            source: Some(of(&self.legs[0])),
            destinations: self.legs[1..].iter().map(of).collect(),
            ignore_error: !self.handle_errors,
            write_seq: false,
        };
        vec![(self.next, Act::Copy(job))]
    }

    fn done(&mut self, _act: u64, outcome: Outcome) {
        self.under_way = false;
        self.next += 1;
        // The bits count destinations: the default leg is not one.
        self.failed |= outcome.write_err << 1 | u64::from(outcome.read_err);
    }

    fn is_over(&self) -> bool {
        self.next * self.region.0 >= self.size.0
    }
}
