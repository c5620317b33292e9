//! A volume that is its store: sector n of the volume is sector n of the store, written in place. For raw images,
//! block devices and the store without data. There is no map to share blocks in, so every copy moves bytes, and no
//! durable image beside the data: a copy link and a change that overlaps its source or destination wait for each
//! other.

use crate::copy;
use crate::device;
use crate::device::{
    BlockDevice, Completion, Control, Cx, IoResult, Link, Next, Out, Plan, PlanId, PortKind, Step, Steps,
    StoreRange, Usage,
};
use crate::ledger::MoveReason;
use crate::limits::{CopyMode, Limits};
use crate::parking::{Claim, Entered, Parking, Ticket};
use crate::redo::RedoLog;
use crate::request::{Flags, Op, Request, RequestId, VolumeId};
use crate::slots::Slots;
use crate::status::BlkStatus;
use crate::time::Instant;
use crate::units::{Bytes, PhysSector, SectorRange, Sectors};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;

/// The most sectors zeroed by one link.
const ZERO_MAX: Bytes = Bytes::mib(64);

/// A pool of identity volumes. Volumes with data need stores of their own, so such a pool has one.
#[derive(Debug)]
pub struct Identity {
    /// Acknowledged changes become durable by a sync.
    volatile: bool,
    slots: Vec<Slot>,
    parking: Parking<RangeClaim>,
    /// The chains that are parked; the others are with their live plans.
    waiting: BTreeMap<RequestId, (Ticket, Box<Chain>)>,
    live: Slots<Work>,
}

/// A volume's place. The epoch outlives the volume.
#[derive(Debug, Default)]
struct Slot {
    epoch: u64,
    limits: Option<Limits>,
}

#[derive(Debug)]
struct Chain {
    request: Request,
    epochs: SmallVec<[(VolumeId, u64); 2]>,
    segment: usize,
    done: Sectors,
    total: Sectors,
    aborted: bool,
}

#[derive(Debug)]
enum Work {
    /// A read or a sync, with the bytes it answers.
    Plain(Bytes),
    Link(Box<Chain>, Entered, Sectors),
}

/// What a link writes, and what a copy link reads.
#[derive(Clone, Debug)]
struct RangeClaim {
    writes: (VolumeId, SectorRange),
    copies: Option<(VolumeId, SectorRange)>,
}

impl Claim for RangeClaim {
    fn exclusive(&self) -> bool {
        self.copies.is_some()
    }

    fn conflicts(&self, other: &Self) -> bool {
        let meet = |a: (VolumeId, SectorRange), b: (VolumeId, SectorRange)| a.0 == b.0 && a.1.overlaps(b.1);
        meet(self.writes, other.writes)
            || self.copies.is_some_and(|read| meet(read, other.writes))
            || other.copies.is_some_and(|read| meet(read, self.writes))
    }
}

/// The next piece of a chain.
struct Shape {
    claim: RangeClaim,
    port: PortKind,
    steps: Steps,
}

impl Chain {
    fn range(&self) -> Option<SectorRange> {
        match &self.request.op {
            Op::Write(range) | Op::Discard(range) | Op::WriteZeroes(range) => Some(*range),
            Op::Copy(command) => {
                command.segments.get(self.segment).map(|segment| segment.destination_range())
            }
            Op::Read(_) | Op::Flush | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => {
                unreachable!("no chain is made of {:?}", self.request.op)
            }
        }
    }

    fn shape(&self, map_block: Sectors) -> Option<Shape> {
        let (_, rest) = self.range()?.split_at(self.done);
        if rest.is_empty() {
            return None;
        }
        let volume = self.request.volume;
        let changes = |range| RangeClaim { writes: (volume, range), copies: None };
        Some(match &self.request.op {
            Op::Write(range) => Shape {
                claim: changes(*range),
                port: PortKind::Door,
                steps: smallvec![Step::Write { port: Sectors::ZERO, to: store(*range) }],
            },
            Op::Discard(_) | Op::WriteZeroes(_) => {
                let range = rest.split_at(ZERO_MAX.whole_sectors()).0;
                let unmap = !self.request.flags.has(Flags::NOUNMAP);
                Shape {
                    claim: changes(range),
                    port: PortKind::None,
                    steps: smallvec![Step::Zero { at: store(range), unmap }],
                }
            }
            Op::Copy(command) => {
                let segment = &command.segments[self.segment];
                let link = copy::next_link(segment, self.done, map_block, CopyMode::Memcpy)?;
                let to = store(link.destination).start;
                Shape {
                    claim: RangeClaim {
                        writes: (volume, link.destination),
                        copies: Some((segment.source_volume, link.source)),
                    },
                    port: PortKind::None,
                    steps: smallvec![Step::Move { from: store(link.source), to, reason: MoveReason::Mode }],
                }
            }
            Op::Read(_) | Op::Flush | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => {
                unreachable!("no chain is made of {:?}", self.request.op)
            }
        })
    }

    fn progress(&mut self, len: Sectors) {
        self.done += len;
        self.total += len;
        if matches!(self.request.op, Op::Copy(_)) && self.range().is_some_and(|range| range.len == self.done)
        {
            self.segment += 1;
            self.done = Sectors::ZERO;
        }
    }

    fn end(&self, status: BlkStatus) -> Next {
        let index = u32::try_from(self.segment).unwrap_or(u32::MAX);
        Next::Done(Completion {
            bytes: self.total.bytes(),
            first_failed_segment: matches!(self.request.op, Op::Copy(_)).then_some(index),
            ..Completion::refused(status)
        })
    }

    /// True when `len` more sectors make it whole.
    fn whole_after(&self, len: Sectors) -> bool {
        let all = match self.request.op.copy() {
            Some(command) => command.total(),
            None => self.range().map(|range| range.len),
        };
        all == Some(self.total + len)
    }
}

fn store(range: SectorRange) -> StoreRange {
    StoreRange { start: PhysSector(range.start.0), len: range.len }
}

impl Identity {
    /// An empty pool. `volatile`: acknowledged changes become durable by a flush only.
    pub fn new(volatile: bool) -> Self {
        Self {
            volatile,
            slots: Vec::new(),
            parking: Parking::new(),
            waiting: BTreeMap::new(),
            live: Slots::default(),
        }
    }

    fn epoch(&self, volume: VolumeId) -> u64 {
        self.slots.get(volume.index()).map_or(0, |slot| slot.epoch)
    }

    fn plan(&mut self, work: Work, request: RequestId, port: PortKind, link: Link, steps: Steps) -> Plan {
        let id = PlanId(self.live.insert(work));
        Plan { id, request, port, not_before: Instant::ORIGIN, link, steps }
    }

    fn begin_plain(&mut self, request: &Request) -> Next {
        let (range, port, step) = match &request.op {
            Op::Read(range) => {
                (Some(*range), PortKind::Door, Step::Read { from: store(*range), port: Sectors::ZERO })
            }
            Op::Flush if self.volatile => (None, PortKind::None, Step::Sync),
            Op::Flush => return Next::Done(Completion::ok(Bytes(0))),
            Op::Write(_)
            | Op::Discard(_)
            | Op::WriteZeroes(_)
            | Op::Copy(_)
            | Op::ZoneMgmt { .. }
            | Op::ZoneResetAll
            | Op::ReportZones { .. } => return Next::Done(Completion::refused(BlkStatus::NotSupp)),
        };
        let source = range.map(|range| (request.volume, range));
        let link = Link { volume: request.volume, source, destination: None };
        let bytes = range.map_or(Bytes(0), |range| range.len.bytes());
        Next::Run(self.plan(Work::Plain(bytes), request.id, port, link, smallvec![step]))
    }

    fn begin_chain(&mut self, request: Request) -> Next {
        if request.flags.has(Flags::APPEND) {
            return Next::Done(Completion::refused(BlkStatus::NotSupp));
        }
        let mut epochs = smallvec![(request.volume, self.epoch(request.volume))];
        if let Op::Copy(command) = &request.op {
            if request.flags.has(Flags::FAST_ONLY) {
                return Next::Done(Completion::refused(BlkStatus::CopyNotFast));
            }
            for segment in &command.segments {
                let source = (segment.source_volume, self.epoch(segment.source_volume));
                if !epochs.contains(&source) {
                    epochs.push(source);
                }
            }
        }
        let chain = Box::new(Chain {
            request,
            epochs,
            segment: 0,
            done: Sectors::ZERO,
            total: Sectors::ZERO,
            aborted: false,
        });
        self.advance(chain, None)
    }

    fn advance(&mut self, chain: Box<Chain>, ticket: Option<Ticket>) -> Next {
        if self.stale(&chain) {
            return chain.end(BlkStatus::IoErr);
        }
        let volume = chain.request.volume;
        let map_block = self.limits(volume).expect("the epoch is that of begin").map_block;
        let Some(mut shape) = chain.shape(map_block) else {
            return Next::Done(Completion::ok(chain.total.bytes()));
        };
        if chain.aborted {
            return chain.end(BlkStatus::Aborted);
        }
        let len = shape.claim.writes.1.len;
        if self.volatile && chain.request.flags.has(Flags::FUA) && chain.whole_after(len) {
            shape.steps.push(Step::Sync);
        }
        let ticket = ticket.unwrap_or_else(|| self.parking.ticket());
        if self.parking.blocked(ticket, &shape.claim) {
            let id = chain.request.id;
            self.parking.park(ticket, id, shape.claim);
            let before = self.waiting.insert(id, (ticket, chain));
            assert!(before.is_none(), "{id:?} waits already");
            return Next::Wait;
        }
        let link = Link { volume, source: shape.claim.copies, destination: Some(shape.claim.writes.1) };
        let entered = self.parking.enter(shape.claim);
        let id = chain.request.id;
        Next::Run(self.plan(Work::Link(chain, entered, len), id, shape.port, link, shape.steps))
    }

    fn finish_link(
        &mut self,
        mut chain: Box<Chain>,
        entered: Entered,
        len: Sectors,
        status: BlkStatus,
    ) -> Next {
        self.parking.leave(entered);
        if self.stale(&chain) {
            return chain.end(BlkStatus::IoErr);
        }
        if !status.is_ok() {
            return chain.end(status);
        }
        chain.progress(len);
        self.advance(chain, None)
    }

    fn pump(&mut self, out: &mut Out) {
        let mut next = self.parking.parked_from(Parking::<RangeClaim>::FIRST);
        while let Some((ticket, id, claim)) = next {
            if !self.parking.blocked(ticket, claim) {
                let chain = self.unpark(id, ticket);
                match self.advance(chain, Some(ticket)) {
                    Next::Wait => {}
                    answer @ (Next::Run(_) | Next::Done(_)) => device::name(out, id, answer),
                }
            }
            next = self.parking.parked_after(ticket);
        }
    }

    fn unpark(&mut self, id: RequestId, ticket: Ticket) -> Box<Chain> {
        self.parking.unpark(ticket);
        self.waiting.remove(&id).expect("what is parked waits").1
    }

    fn stale(&self, chain: &Chain) -> bool {
        chain.epochs.iter().any(|&(volume, epoch)| self.epoch(volume) != epoch)
    }

    fn remove_volume(&mut self, volume: VolumeId, out: &mut Out) {
        let Some(slot) = self.slots.get_mut(volume.index()) else {
            return;
        };
        slot.epoch += 1;
        slot.limits = None;
        let ended: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, (_, chain))| chain.epochs.iter().any(|(touched, _)| *touched == volume))
            .map(|(&id, (ticket, _))| (id, *ticket))
            .collect();
        for (id, ticket) in ended {
            let chain = self.unpark(id, ticket);
            out.push((id, chain.end(BlkStatus::NoVolume)));
        }
    }
}

impl BlockDevice for Identity {
    fn limits(&self, volume: VolumeId) -> Option<&Limits> {
        self.slots.get(volume.index())?.limits.as_ref()
    }

    fn admit_copy(&self, request: &Request) -> Result<(), BlkStatus> {
        if request.flags.has(Flags::APPEND) { Err(BlkStatus::NotSupp) } else { Ok(()) }
    }

    fn undoable(&self, _log: &dyn RedoLog, _volume: VolumeId, _ranges: &[SectorRange]) -> usize {
        0
    }

    fn begin(&mut self, _cx: &mut Cx<'_>, request: Request) -> Out {
        let id = request.id;
        if self.limits(request.volume).is_none() {
            return smallvec![(id, Next::Done(Completion::refused(BlkStatus::NoVolume)))];
        }
        let next = match &request.op {
            Op::Read(_) | Op::Flush | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => {
                self.begin_plain(&request)
            }
            Op::Write(_) | Op::Discard(_) | Op::WriteZeroes(_) | Op::Copy(_) => self.begin_chain(request),
        };
        smallvec![(id, next)]
    }

    fn finish(&mut self, _cx: &mut Cx<'_>, plan: Plan, io: IoResult) -> Out {
        assert!(io.steps_done <= plan.steps.len(), "more steps done than planned");
        assert!(!io.status.is_ok() || io.steps_done == plan.steps.len(), "a plan is whole or failed");
        let mut out = Out::new();
        let next = match self.live.remove(plan.id.0).expect("a plan is finished once") {
            Work::Plain(bytes) if io.status.is_ok() => Next::Done(Completion::ok(bytes)),
            Work::Plain(_) => Next::Done(Completion::refused(io.status)),
            Work::Link(chain, entered, len) => self.finish_link(chain, entered, len, io.status),
        };
        out.push((plan.request, next));
        self.pump(&mut out);
        out
    }

    fn abort(&mut self, _cx: &mut Cx<'_>, id: RequestId) -> Out {
        let mut out = Out::new();
        if let Some(ticket) = self.waiting.get(&id).map(|(ticket, _)| *ticket) {
            let chain = self.unpark(id, ticket);
            out.push((id, chain.end(BlkStatus::Aborted)));
            self.pump(&mut out);
            return out;
        }
        for work in self.live.values_mut() {
            match work {
                Work::Link(chain, ..) if chain.request.id == id => chain.aborted = true,
                Work::Link(..) | Work::Plain(_) => {}
            }
        }
        out
    }

    fn wake(&mut self, _cx: &mut Cx<'_>) -> (Out, Option<Instant>) {
        (Out::new(), None)
    }

    fn control(&mut self, _cx: &mut Cx<'_>, control: Control) -> Out {
        let mut out = Out::new();
        match control {
            Control::AddVolume(volume, limits) => {
                if self.slots.len() <= volume.index() {
                    self.slots.resize_with(volume.index() + 1, Slot::default);
                }
                let slot = &mut self.slots[volume.index()];
                assert!(slot.limits.is_none(), "{volume:?} exists");
                slot.limits = Some(limits);
            }
            Control::RemoveVolume(volume) => self.remove_volume(volume, &mut out),
            // Zones are kept by a layer above.
            // What is written in place has no durable image to go back to.
            Control::FailZone(..) | Control::PowerCut(..) => {}
            Control::SetLimits(volume, limits) => {
                if let Some(slot) = self.slots.get_mut(volume.index()).filter(|slot| slot.limits.is_some()) {
                    slot.limits = Some(limits);
                }
            }
            Control::SetTiming(..) => {}
        }
        self.pump(&mut out);
        out
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn check(&self) -> Result<(), String> {
        let links = self.live.values().filter(|work| matches!(work, Work::Link(..))).count();
        if links != self.parking.live() {
            return Err(format!("{links} live links, {} live claims", self.parking.live()));
        }
        let mut parked = 0;
        let mut next = self.parking.parked_from(Parking::<RangeClaim>::FIRST);
        while let Some((ticket, id, claim)) = next {
            parked += 1;
            let known = self.waiting.get(&id).is_some_and(|(at, _)| *at == ticket);
            if !known || !self.parking.blocked(ticket, claim) {
                return Err(format!("{id:?} is parked at {ticket:?} for nothing"));
            }
            next = self.parking.parked_after(ticket);
        }
        if self.waiting.len() != parked {
            return Err(format!("{} chains are parked, {parked} places are taken", self.waiting.len()));
        }
        Ok(())
    }
}
