//! The targets of device mapper that copy with kcopyd, as far as their copies go: which regions, in what order, how
//! many at a time, and what is written or flushed in between.
//!
//! A user hands out what it would do now ([`User::next`]) and is told how each of it ended ([`User::done`]). The bytes
//! of metadata are not modelled, only the requests that carry them.

mod cache;
mod hydration;
mod merge;
mod mirror;
mod reclaim;
mod snapshot;
mod thin;
mod writecache;

pub use cache::{Cache, Migration};
pub use hydration::Hydration;
pub use merge::{Exception, Merge};
pub use mirror::Mirror;
pub use reclaim::{Reclaim, reclaim_throttle};
pub use snapshot::{Snapshot, SnapshotWrite};
pub use thin::{Thin, ThinWrite};
pub use writecache::{DirtyBlock, Writecache};

use super::{Job, Kcopyd, Notice, Region};
use crate::device::Completion;
use crate::host::{BufferId, Data, Emit};
use crate::request::{Flags, Op, Request, RequestId, VolumeId};
use crate::time::Instant;
use crate::units::{Sector, SectorRange, Sectors};
use std::collections::BTreeMap;

/// Something that a user does, by a number of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A job of its kcopyd client.
    Copy(Job),
    /// A callback of its client in place of a copy.
    Callback,
    /// A request of its own.
    Io(VolumeId, Op, Flags),
}

/// How an act ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// A source could not be read.
    pub read_err: bool,
    /// Bit n: destination n could not be written; for a request of its own bit 0.
    pub write_err: u64,
}

impl Outcome {
    /// Whole and well.
    pub const OK: Self = Self { read_err: false, write_err: 0 };

    /// True when nothing failed.
    pub fn is_ok(self) -> bool {
        self == Self::OK
    }
}

/// A target that copies.
pub trait User: std::fmt::Debug {
    /// What it does now, each with a number that comes back with its end.
    fn next(&mut self) -> Vec<(u64, Act)>;

    /// An act has ended. Those of its client end in the order of the client's callbacks.
    fn done(&mut self, act: u64, outcome: Outcome);

    /// True when it has nothing left to do.
    fn is_over(&self) -> bool;
}

/// A user with its client.
#[derive(Debug)]
pub struct Driven<U> {
    /// The user.
    pub user: U,
    /// Its client.
    pub kcopyd: Kcopyd,
    jobs: BTreeMap<super::JobId, u64>,
    own: BTreeMap<RequestId, u64>,
    next_id: u64,
}

impl<U: User> Driven<U> {
    /// A user whose own requests are numbered from `first_id` on, apart from its client's.
    pub fn new(user: U, kcopyd: Kcopyd, first_id: u64) -> Self {
        Self { user, kcopyd, jobs: BTreeMap::new(), own: BTreeMap::new(), next_id: first_id }
    }

    /// Lets user and worker do what they can.
    pub fn run(&mut self, now: Instant) -> Vec<Emit> {
        let mut emits = Vec::new();
        loop {
            for (act, what) in self.user.next() {
                match what {
                    Act::Copy(job) => {
                        let id = self.kcopyd.copy(job).expect("a target's jobs are well formed");
                        self.jobs.insert(id, act);
                    }
                    Act::Callback => {
                        let id = self.kcopyd.callback();
                        self.jobs.insert(id, act);
                    }
                    Act::Io(volume, op, flags) => emits.push(self.own_request(act, volume, op, flags)),
                }
            }
            emits.extend(self.kcopyd.run(now));
            let notices = self.kcopyd.take_notices();
            if notices.is_empty() {
                return emits;
            }
            for Notice { job, read_err, write_err } in notices {
                let act = self.jobs.remove(&job).expect("it was the user's");
                self.user.done(act, Outcome { read_err, write_err });
            }
        }
    }

    fn own_request(&mut self, act: u64, volume: VolumeId, op: Op, flags: Flags) -> Emit {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.own.insert(id, act);
        let data = match &op {
            Op::Read(_) | Op::Write(_) => Data::Buffer { id: BufferId(id.0), offset: Sectors::ZERO },
            Op::Flush
            | Op::Discard(_)
            | Op::WriteZeroes(_)
            | Op::Copy(_)
            | Op::ZoneMgmt { .. }
            | Op::ZoneResetAll
            | Op::ReportZones { .. } => Data::None,
        };
        Emit { request: Request { id, volume, op, flags }, data }
    }

    /// A disk answers.
    pub fn complete(&mut self, now: Instant, id: RequestId, completion: &Completion) {
        match self.own.remove(&id) {
            Some(act) => {
                let write_err = u64::from(!completion.status.is_ok());
                self.user.done(act, Outcome { read_err: false, write_err });
            }
            None => self.kcopyd.complete(now, id, completion),
        }
    }
}

/// Block `number` of `len` sectors each, `count` of them.
fn blocks(volume: VolumeId, number: u64, count: u64, len: Sectors) -> Region {
    Region { volume, range: SectorRange { start: Sector(number * len.0), len: Sectors(count * len.0) } }
}

/// The numbers of the blocks that a range touches.
fn touched(range: SectorRange, len: Sectors) -> std::ops::Range<u64> {
    range.start.0 / len.0..range.end().0.div_ceil(len.0)
}

/// True when the range covers the whole of block `number`.
fn covers(range: SectorRange, number: u64, len: Sectors) -> bool {
    range.start.0 <= number * len.0 && (number + 1) * len.0 <= range.end().0
}

#[cfg(test)]
mod tests;
