//! A spinning disk: one arm, one thing at a time, in the order in which it comes.
//!
//! A seek takes `track_seek` and a part that rises with the square root of the distance, so that the average over all
//! pairs of places is `average_seek`: the mean root of the distance of two random places is 8/15. After a seek half
//! a revolution passes; what begins where the last access ended needs neither. Not modelled: command queueing in the
//! drive, its cache, zones of different density.

use super::config::{Rate, TimingError, bearable, fast};
use crate::device::StoreRange;
use crate::time::{Instant, Nanos};
use crate::units::{PhysSector, Sectors};

/// A disk, as its data sheet has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// To the next track.
    pub track_seek: Nanos,
    /// On average.
    pub average_seek: Nanos,
    /// One turn.
    pub revolution: Nanos,
    /// From the platter.
    pub transfer: Rate,
}

impl Disk {
    pub(super) fn validate(&self) -> Result<(), TimingError> {
        for (name, time) in [("average_seek", self.average_seek), ("revolution", self.revolution)] {
            bearable(name, time)?;
        }
        if self.track_seek > self.average_seek {
            return Err(TimingError::Seek(self.track_seek.0, self.average_seek.0));
        }
        fast("media transfer", self.transfer)
    }
}

/// Where the arm is, and until when it is busy.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    disk: Disk,
    /// From end to end.
    span: Sectors,
    head: PhysSector,
    free: Instant,
}

impl Arm {
    pub(super) fn new(disk: Disk, span: Sectors) -> Self {
        Self { disk, span, head: PhysSector(0), free: Instant::ORIGIN }
    }

    /// Reads or writes.
    pub(super) fn access(&mut self, from: Instant, range: StoreRange) -> Instant {
        let mut start = self.free.max(from);
        if range.start != self.head {
            start =
                start + self.seek(range.start.0.abs_diff(self.head.0)) + Nanos(self.disk.revolution.0 / 2);
        }
        self.head = range.start + range.len;
        self.free = start + self.disk.transfer.time(range.len.bytes());
        self.free
    }

    /// When everything written so far is on the platter.
    pub(super) fn sync(&self, from: Instant) -> Instant {
        self.free.max(from)
    }

    fn seek(&self, distance: u64) -> Nanos {
        const ONE: u128 = 1 << 16;
        let span = u128::from(self.span.0).max(1);
        // Of the whole, in units of 2^-32; its root in units of 2^-16.
        let part = ((u128::from(distance) * ONE * ONE / span).min(ONE * ONE)).isqrt();
        let rising = u128::from(self.disk.average_seek.0 - self.disk.track_seek.0) * 15 / 8;
        let way = u64::try_from(rising * part / ONE).expect("at most twice the average");
        Nanos(self.disk.track_seek.0 + way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 ms to the next track, 9 ms on average: 16 ms from end to end; 8 ms a turn, 512 B in 1 us.
    fn arm() -> Arm {
        let disk = Disk {
            track_seek: Nanos(1_000_000),
            average_seek: Nanos(9_000_000),
            revolution: Nanos(8_000_000),
            transfer: Rate(512_000_000),
        };
        Arm::new(disk, Sectors(10_000))
    }

    fn at(start: u64, len: u64) -> StoreRange {
        StoreRange { start: PhysSector(start), len: Sectors(len) }
    }

    #[test]
    fn what_follows_needs_no_seek() {
        let mut arm = arm();
        assert_eq!(arm.access(Instant(0), at(0, 8)), Instant(8_000));
        assert_eq!(arm.access(Instant(0), at(8, 8)), Instant(16_000));
        // After a pause too.
        assert_eq!(arm.access(Instant(1_000_000), at(16, 8)), Instant(1_008_000));
    }

    #[test]
    fn a_seek_rises_with_the_root_of_its_distance() {
        // A quarter of the way: 1 ms + 15 ms / 2, half a turn, and the transfer.
        assert_eq!(arm().access(Instant(0), at(2_500, 8)), Instant(8_500_000 + 4_000_000 + 8_000));
        assert_eq!(arm().access(Instant(0), at(10_000, 8)), Instant(16_000_000 + 4_000_000 + 8_000));
        // A store that reaches beyond the disk's span is no farther than its end.
        assert_eq!(arm().access(Instant(0), at(90_000, 8)), Instant(16_000_000 + 4_000_000 + 8_000));
    }

    #[test]
    fn the_average_over_all_pairs_of_places_is_the_average_seek() {
        let arm = arm();
        let mut sum = 0;
        for a in (0..10_000u64).step_by(100) {
            for b in (0..10_000u64).step_by(100) {
                sum += arm.seek(a.abs_diff(b)).0;
            }
        }
        let average = sum / 10_000;
        assert!(average.abs_diff(9_000_000) < 50_000, "{average}");
    }
}
