//! The contract between a disk and whoever drives it: two phases and chains of plans.
//!
//! `begin` decides and reserves; it touches no data. The caller executes the plan's steps in order, without
//! any lock, then hands the plan back to `finish` exactly once, executed or not: a plan that was not executed
//! is finished with the status that says why. `finish` commits, and may answer with the next link of the same
//! chain and with what it freed of others. Every request is answered by exactly one [`Next::Done`].

use crate::ledger::{Ledgers, MoveReason};
use crate::limits::Limits;
use crate::redo::{Commit, RedoLog};
use crate::request::{Request, RequestId, VolumeId};
use crate::status::BlkStatus;
use crate::time::Instant;
use crate::timing::Timing;
use crate::units::{Bytes, PhysSector, Sector, SectorRange, Sectors};
use crate::zone::{ZoneDescriptor, ZoneFailure};
use smallvec::SmallVec;
use std::fmt::Debug;

/// What every call is given: the time, the redo log, the counters.
#[derive(Debug)]
pub struct Cx<'a> {
    /// The time of the call.
    pub now: Instant,
    /// Where changes are recorded in commit order.
    pub log: &'a mut dyn RedoLog,
    /// The counters of every volume.
    pub ledgers: &'a mut Ledgers,
}

/// The answers of one call, each for the request it names. A request is named at most once in one answer.
pub type Out = SmallVec<[(RequestId, Next); 1]>;

/// Adds an answer; one that only said that the request waits gives way to it.
pub fn name(out: &mut Out, id: RequestId, next: Next) {
    match out.iter_mut().find(|(named, _)| *named == id) {
        Some((_, waits @ Next::Wait)) => *waits = next,
        Some((_, answer)) => panic!("{id:?} is answered twice in one call: {answer:?}, {next:?}"),
        None => out.push((id, next)),
    }
}

/// How a request goes on.
#[derive(Debug)]
pub enum Next {
    /// It is answered. Nothing follows.
    Done(Completion),
    /// Execute this plan, then finish it.
    Run(Plan),
    /// It waits inside the device and is named again by a later call.
    Wait,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Ok, or the first reason it is not whole.
    pub status: BlkStatus,
    /// The finished prefix, in bytes of the request.
    pub bytes: Bytes,
    /// For a failed copy the lowest index of a segment not wholly copied; `None` when refused unchanged.
    pub first_failed_segment: Option<u32>,
    /// Where an append wrote.
    pub appended_at: Option<Sector>,
    /// What a report says, zone by zone.
    pub zones: Vec<ZoneDescriptor>,
}

impl Completion {
    /// Whole and well.
    pub fn ok(bytes: Bytes) -> Self {
        let (first_failed_segment, appended_at, zones) = (None, None, Vec::new());
        Self { status: BlkStatus::Ok, bytes, first_failed_segment, appended_at, zones }
    }

    /// Failed before anything changed.
    pub fn refused(status: BlkStatus) -> Self {
        Self { status, ..Self::ok(Bytes(0)) }
    }
}

/// A plan's number. A device uses it for no other plan that lives, and not again soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanId(pub u64);

/// Whose buffer a plan's port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// The door's: the data of the request.
    Door,
    /// A buffer of the executor, kept from a plan of a request to the next plan of the same request.
    Bounce,
    /// The plan has no port.
    None,
}

/// Work to do without a lock, in order.
#[derive(Debug)]
pub struct Plan {
    /// Its number.
    pub id: PlanId,
    /// The request it is a link of; an internal one for the device's own work.
    pub request: RequestId,
    /// Whose buffer the port offsets mean.
    pub port: PortKind,
    /// The earliest time at which it may be finished: whoever executed it keeps it back until then.
    pub not_before: Instant,
    /// What it is about, in logical terms.
    pub link: Link,
    /// The work. May be empty: a link that changes the map alone.
    pub steps: Steps,
}

impl Plan {
    /// True when it neither moves bytes nor changes anything: it only waits.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.link.source.is_none() && self.link.destination.is_none()
    }
}

/// Most plans have one step.
pub type Steps = SmallVec<[Step; 1]>;

/// The logical ranges of a link, for layers above the map and for traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The volume whose ledger counts the steps.
    pub volume: VolumeId,
    /// What it reads, for reads and copies.
    pub source: Option<(VolumeId, SectorRange)>,
    /// What it changes on `volume`.
    pub destination: Option<SectorRange>,
}

/// A run of sectors in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreRange {
    /// First sector.
    pub start: PhysSector,
    /// Number of sectors, never 0 in a step.
    pub len: Sectors,
}

/// One piece of a plan's work. Port offsets count from the start of the port's buffer.
#[derive(Debug)]
pub enum Step {
    /// Store to port.
    Read {
        /// From here.
        from: StoreRange,
        /// To this offset of the port.
        port: Sectors,
    },
    /// A logical block, store to port, with one bit wrong: a fault.
    ReadFlipped {
        /// From here; `None`: zeroes.
        from: Option<PhysSector>,
        /// So many.
        len: Sectors,
        /// To this offset of the port.
        port: Sectors,
        /// The bit: bit `bit % 8` of byte `bit / 8`.
        bit: u32,
    },
    /// Zeroes to port.
    ReadZeroes {
        /// To this offset of the port.
        port: Sectors,
        /// So many.
        len: Sectors,
    },
    /// Port to store.
    Write {
        /// From this offset of the port.
        port: Sectors,
        /// To here.
        to: StoreRange,
    },
    /// Store to store.
    Move {
        /// From here.
        from: StoreRange,
        /// To here, the same length.
        to: PhysSector,
        /// Why the bytes are moved.
        reason: MoveReason,
    },
    /// Zeroes to store.
    Zero {
        /// Here.
        at: StoreRange,
        /// The space may be given back, as long as it reads as zeroes.
        unmap: bool,
    },
    /// The contents are not needed; give the memory or disk space back. Reads as zeroes or old data.
    Trim {
        /// Here.
        at: StoreRange,
    },
    /// What was written to the store before this step began becomes durable.
    Sync,
    /// The metadata of a durable image becomes durable, all of it or none.
    Commit(Box<Commit>),
}

/// How the execution of a plan went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoResult {
    /// Ok when every step was done.
    pub status: BlkStatus,
    /// Steps done, from the first. The one that failed may have been done in part.
    pub steps_done: usize,
    /// Of the moves, so many bytes that the file system copied by itself, which may have shared blocks for it.
    pub cfr: Bytes,
}

impl IoResult {
    /// Every step of `plan` was done.
    pub fn done(plan: &Plan) -> Self {
        Self { status: BlkStatus::Ok, steps_done: plan.steps.len(), cfr: Bytes(0) }
    }

    /// The step after the first `steps_done` ones failed, or was not begun.
    pub fn failed(status: BlkStatus, steps_done: usize) -> Self {
        Self { status, steps_done, cfr: Bytes(0) }
    }
}

/// A change of the pool itself, by its owner.
#[derive(Clone, Debug)]
pub enum Control {
    /// A new volume, empty, with this number: one that no live volume has.
    AddVolume(VolumeId, Limits),
    /// Forget a volume and give its blocks back. Its parked requests are answered; its live plans commit nothing.
    RemoveVolume(VolumeId),
    /// New limits and copy mode for a volume, for requests begun from now on. The geometry stays.
    SetLimits(VolumeId, Limits),
    /// How long a volume takes from now on, validated; `None`: as long as the machine takes. Plans that are under way
    /// keep their instant.
    SetTiming(VolumeId, Option<Box<Timing>>),
    /// The zone that begins at this sector fails. One that failed worse already stays as it is, and so does a
    /// conventional one.
    FailZone(VolumeId, Sector, ZoneFailure),
    /// The power of a volume fails and comes back. Its live plans commit nothing and what waits for it fails; of the
    /// changes that no flush has made durable so many are kept, but those in ranges for which a layer above has chosen.
    /// Open zones are closed.
    PowerCut(VolumeId, Keep, Vec<Chosen>),
}

impl Control {
    /// A power cut for which no layer has chosen anything.
    pub fn power_cut(volume: VolumeId, keep: Keep) -> Self {
        Self::PowerCut(volume, keep, Vec::new())
    }
}

/// A range, in whole map blocks, of which a layer has chosen what a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The range.
    pub range: SectorRange,
    /// Everything that was answered; otherwise nothing that is not durable.
    pub keep: bool,
}

/// What a power cut leaves of the changes that are not durable: of each map block all of them or none, of the blocks that
/// one link of a copy remapped either all or none, of a sequential zone all of them up to some write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    None,
    /// Everything that was answered.
    All,
    /// What chance keeps, from this seed.
    Some(u64),
}

/// A pool of volumes: one stack of layers over one store.
///
/// No method has a default body, so that a new one breaks the build of every layer.
pub trait BlockDevice: Debug + Send {
    /// The limits of a volume, `None` when there is no such volume.
    fn limits(&self, volume: VolumeId) -> Option<&Limits>;

    /// Refuses, without a change, an admitted copy that the device could not carry out whole as it is now. For a layer
    /// that carries copies out by other requests.
    ///
    /// # Errors
    /// The reason for which [`BlockDevice::begin`] would refuse it.
    fn admit_copy(&self, request: &Request) -> Result<(), BlkStatus>;

    /// How many of these ranges, from the first on, a power cut can undo: as far as there is room in the log for that, and
    /// for one record more each. In order, in whole map blocks.
    fn undoable(&self, log: &dyn RedoLog, volume: VolumeId, ranges: &[SectorRange]) -> usize;

    /// Decides an admitted request (see [`crate::limits::admit`]) and reserves what it needs.
    fn begin(&mut self, cx: &mut Cx<'_>, request: Request) -> Out;

    /// Takes back a plan, executed or not.
    fn finish(&mut self, cx: &mut Cx<'_>, plan: Plan, io: IoResult) -> Out;

    /// Asks for the early end of a request: at once when it waits for others, else before its next link. One that
    /// is done and only waits to be durable ends with that. No such request: no answer.
    fn abort(&mut self, cx: &mut Cx<'_>, id: RequestId) -> Out;

    /// Does what is due, the device's own work included, and says when it wants to be called again.
    fn wake(&mut self, cx: &mut Cx<'_>) -> (Out, Option<Instant>);

    /// Changes the pool.
    fn control(&mut self, cx: &mut Cx<'_>, control: Control) -> Out;

    /// How the store's space is used.
    fn usage(&self) -> Usage;

    /// Checks every invariant of the layer and of those below it. Slow: for simulations and tests.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    fn check(&self) -> Result<(), String>;
}

/// The use of a store's space, in sectors. What is neither is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The most that may be mapped and held back together.
    pub cap: Sectors,
    /// Named by a map, each block once.
    pub mapped: Sectors,
    /// Named by the durable image alone.
    pub held: Sectors,
    /// Being given back.
    pub trimming: Sectors,
    /// Extents in the maps of all volumes.
    pub extents: u64,
    /// Physical ranges that more than one extent names.
    pub shared_ranges: u64,
    /// Bytes of memory the maps take.
    pub map_bytes: u64,
}
