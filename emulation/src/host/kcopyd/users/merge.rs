//! The merge of a snapshot into its origin: runs of consecutive chunks, from the last exception backwards and within one
//! area of the store, one job each, one at a time. Then the origin is flushed and the records are cleared. Any error
//! stops the merge for good. Source: `drivers/md/dm-snap.c` (`snapshot_merge_next_chunks`, `merge_callback`),
//! `dm-snap-persistent.c` (`persistent_prepare_merge`, `persistent_commit_merge`).

use super::{Act, Outcome, User, blocks};
use crate::host::kcopyd::Job;
use crate::request::{Flags, Op, VolumeId};
use crate::units::Sectors;

/// A chunk of the origin and where its contents are on the cow device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Chunk of the origin.
    pub old: u64,
    /// Chunk of the cow device.
    pub new: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Copy(u64),
    Flush(u64),
    Clear(u64),
    Stopped,
}

/// A merge.
#[derive(Debug)]
pub struct Merge {
    origin: VolumeId,
    cow: VolumeId,
    chunk: Sectors,
    /// In the order in which they were committed; those that are merged are gone.
    exceptions: Vec<Exception>,
    phase: Phase,
    under_way: bool,
}

impl Merge {
    /// The merge of these exceptions, in the order in which the store has them.
    pub fn new(origin: VolumeId, cow: VolumeId, chunk: Sectors, exceptions: Vec<Exception>) -> Self {
        Self { origin, cow, chunk, exceptions, phase: Phase::Idle, under_way: false }
    }

    /// True when an error has stopped it.
    pub fn is_stopped(&self) -> bool {
        self.phase == Phase::Stopped
    }

    /// The consecutive exceptions at the end of the last area, both ways.
    fn run(&self) -> u64 {
        let per_area = self.chunk.bytes().0 / 16;
        let all = self.exceptions.len();
        let Some(last) = self.exceptions.last() else { return 0 };
        let in_area = (all as u64 - 1) % per_area + 1;
        let follows = |count: &u64| {
            let index = all - 1 - usize::try_from(*count).expect("below their number");
            let exception = self.exceptions[index];
            exception.old + count == last.old && exception.new + count == last.new
        };
        1 + (1..in_area).take_while(follows).count() as u64
    }
}

impl User for Merge {
    fn next(&mut self) -> Vec<(u64, Act)> {
        if self.under_way || self.is_over() {
            return Vec::new();
        }
        self.under_way = true;
        let per_area = self.chunk.bytes().0 / 16;
        let act = match self.phase {
            Phase::Idle => {
                let count = self.run();
                self.phase = Phase::Copy(count);
                let first = self.exceptions[self.exceptions.len() - usize::try_from(count).expect("a few")];
                let from = blocks(self.cow, first.new, count, self.chunk);
                Act::Copy(Job::copy(from, blocks(self.origin, first.old, count, self.chunk)))
            }
            Phase::Flush(_) => Act::Io(self.origin, Op::Flush, Flags::NONE),
            Phase::Clear(_) => {
                let area = (self.exceptions.len() as u64 - 1) / per_area;
                let place = blocks(self.cow, 1 + area * (per_area + 1), 1, self.chunk);
                Act::Io(self.cow, Op::Write(place.range), Flags::FUA)
            }
            Phase::Copy(_) | Phase::Stopped => unreachable!("nothing of it is under way"),
        };
        vec![(0, act)]
    }

    fn done(&mut self, _act: u64, outcome: Outcome) {
        self.under_way = false;
        if !outcome.is_ok() {
            self.phase = Phase::Stopped;
            return;
        }
        self.phase = match self.phase {
            Phase::Copy(count) => Phase::Flush(count),
            Phase::Flush(count) => Phase::Clear(count),
            Phase::Clear(count) => {
                let left = self.exceptions.len() - usize::try_from(count).expect("a few");
                self.exceptions.truncate(left);
                Phase::Idle
            }
            Phase::Idle | Phase::Stopped => unreachable!("something was under way"),
        };
    }

    fn is_over(&self) -> bool {
        self.is_stopped() || self.exceptions.is_empty()
    }
}
