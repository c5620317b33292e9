//! Wrong devices: a device with one known mistake, made by changing what goes in and what comes out. The
//! simulation is worth what it finds of them.

use super::relation::{Pair, Relation, relations};
use super::run::{Image, Rig};
use emulation::ledger::MoveReason;
use emulation::redo::{MapChange, RedoLog};
use emulation::request::ZoneAction;
use emulation::{
    BlkStatus, BlockDevice, Bytes, Completion, Control, CopyMode, Cx, Flags, Instant, IoResult, Limits, Next,
    Op, Out, Plan, PlanId, Request, RequestId, Sector, SectorRange, Sectors, Step, StoreRange, Usage,
    VolumeId,
};
use smallvec::smallvec;
use std::collections::{BTreeMap, BTreeSet};

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Source and destination of a copy are swapped.
    Swapped,
    /// A segment goes where the one before it went.
    DestinationStuck,
    /// The failed segment is one too high.
    FailedIndex,
    /// FUA is taken for a plain change.
    FuaIgnored,
    /// A flush is answered without having happened.
    FlushIgnored,
    /// The head of a segment is not moved.
    HeadLost,
    /// The tail of a segment is not moved.
    TailLost,
    /// The rest of a block is not kept.
    RestLost,
    /// A copy is answered twice.
    AnsweredTwice,
    /// What waited is not answered.
    AnswerLost,
    /// The last segment is left out, and success reported.
    ShortSuccess,
    /// Success with one sector less than was asked for.
    ShortCount,
    /// A copy fails and reports the whole command as done.
    LongPrefix,
    /// An abort is not heard.
    AbortIgnored,
    /// Metadata is committed and data is not synced.
    SyncSkipped,
    /// Metadata is committed before data is synced.
    CommitFirst,
    /// Redo records go before they are in a durable image.
    LogDroppedEarly,
    /// After the death of a server the redo log is not replayed.
    LogNotReplayed,
    /// The last record of the redo log is not replayed.
    LogCut,
    /// What was replayed is taken for durable.
    ReplayIsDurable,
    /// FAST_ONLY moves bytes.
    FastOnlyIgnored,
    /// A copy is remapped whatever the mode.
    ModeIgnored,
    /// New limits are not taken.
    LimitsStale,
    /// Remapped bytes are not counted.
    RemapUncounted,
    /// A discard is answered without having happened.
    DiscardIgnored,
    /// A discard writes zeroes and keeps the blocks.
    DiscardKeeps,
    /// Write zeroes gives the blocks back that it was to keep.
    NounmapIgnored,
    /// The store is full when it is half full.
    SpaceDenied,
    /// The device's own commits are not handed out.
    OwnWorkLost,
    /// What waited for a removed volume is not answered.
    RemovalForgets,
    /// A zone is said to be finished and is not.
    FinishIgnored,
    /// A reset of all zones resets the last alone.
    ResetAllShort,
    /// A report leaves the last zone out.
    ReportShort,
    /// Why a zone refuses is not told.
    ZoneStatusLost,
    /// After a crash every zone is empty.
    ZonesForgotten,
    /// A copy with this pair of ranges apart from each other is refused.
    Refuses(Pair, Relation),
    /// A copy whose only overlap is this one is let in.
    Accepts(Pair, Relation),
}

/// A device with a mistake.
#[derive(Debug)]
struct WrongDevice {
    inner: Box<dyn BlockDevice>,
    wrong: Wrong,
    waited: BTreeSet<RequestId>,
    /// Sectors left out of live copies.
    left_out: BTreeMap<RequestId, Sectors>,
    /// Syncs left out of live plans: where they were.
    syncs: BTreeMap<PlanId, usize>,
    total: BTreeMap<RequestId, Bytes>,
}

/// The rig of a mistake.
pub fn rig(wrong: Wrong) -> Rig {
    let plain = Rig::plain();
    let wrap = move |inner| -> Box<dyn BlockDevice> {
        Box::new(WrongDevice {
            inner,
            wrong,
            waited: BTreeSet::new(),
            left_out: BTreeMap::new(),
            syncs: BTreeMap::new(),
            total: BTreeMap::new(),
        })
    };
    Rig {
        build: Box::new(move |options| wrap((plain.build)(options))),
        recover: Box::new(move |options, image: &Image| {
            wrap((plain.recover)(options, &recovered(wrong, image.clone())))
        }),
        alter: Box::new(move |request| alter(wrong, request)),
    }
}

/// The image that a wrong recovery begins from.
fn recovered(wrong: Wrong, mut image: Image) -> Image {
    match wrong {
        Wrong::LogNotReplayed => image.records.clear(),
        Wrong::ZonesForgotten => image.zones.clear(),
        Wrong::LogCut => drop(image.records.pop()),
        Wrong::ReplayIsDurable => {
            let last = image.records.last().map_or(image.sequence, |(number, _)| *number);
            let mut maps: BTreeMap<(VolumeId, u64), u64> = BTreeMap::new();
            let changes = image.entries.iter().chain(image.records.iter().map(|(_, record)| record));
            for change in changes {
                for (offset, block) in (0..).zip(change.logical.clone()) {
                    match change.physical {
                        Some(first) => drop(maps.insert((change.volume, block), first + offset)),
                        None => drop(maps.remove(&(change.volume, block))),
                    }
                }
            }
            let entry = |((volume, block), physical): (&(VolumeId, u64), &u64)| MapChange {
                volume: *volume,
                logical: *block..block + 1,
                physical: Some(*physical),
            };
            image.entries = maps.iter().map(entry).collect();
            (image.sequence, image.records) = (last, Vec::new());
        }
        _ => {}
    }
    image
}

/// Lets a request in that the pool would refuse.
fn alter(wrong: Wrong, request: &mut Request) {
    let (Wrong::Accepts(pair, relation), Op::Copy(command)) = (wrong, &request.op) else {
        return;
    };
    let mut overlapping =
        relations(request.volume, command).filter(|(_, relation)| relation.overlaps()).peekable();
    if overlapping.peek().is_some() && overlapping.all(|found| found == (pair, relation)) {
        request.flags = request.flags | Flags::MAY_OVERLAP;
    }
}

fn without(flags: Flags, gone: Flags) -> Flags {
    [Flags::FUA, Flags::NOUNMAP, Flags::FAST_ONLY, Flags::APPEND, Flags::MAY_OVERLAP]
        .into_iter()
        .filter(|&flag| flag != gone && flags.has(flag))
        .fold(Flags::NONE, |sum, flag| sum | flag)
}

impl WrongDevice {
    /// Changes a request, or answers it.
    fn meddle(&mut self, request: &mut Request) -> Option<Completion> {
        let capacity = self.inner.limits(request.volume)?.capacity.0;
        let volume = request.volume;
        match (self.wrong, &mut request.op) {
            (Wrong::FuaIgnored, _) => request.flags = without(request.flags, Flags::FUA),
            (Wrong::FastOnlyIgnored, _) => request.flags = without(request.flags, Flags::FAST_ONLY),
            (Wrong::NounmapIgnored, _) => request.flags = without(request.flags, Flags::NOUNMAP),
            (Wrong::DiscardKeeps, Op::Discard(range)) => {
                request.op = Op::WriteZeroes(*range);
                request.flags = request.flags | Flags::NOUNMAP;
            }
            (Wrong::FinishIgnored, Op::ZoneMgmt { action: ZoneAction::Finish, .. }) => {
                return Some(Completion::ok(Bytes(0)));
            }
            (Wrong::ResetAllShort, Op::ZoneResetAll) => {
                let size = self.inner.limits(volume)?.zones?.size.0;
                request.op = Op::ZoneMgmt { zone: Sector(capacity - size), action: ZoneAction::Reset };
            }
            (Wrong::FlushIgnored, Op::Flush) => return Some(Completion::ok(Bytes(0))),
            (Wrong::DiscardIgnored, Op::Discard(range)) => return Some(Completion::ok(range.len.bytes())),
            (Wrong::SpaceDenied, Op::Write(_)) => {
                let usage = self.inner.usage();
                if usage.mapped.0 > usage.cap.0 / 2 {
                    return Some(Completion::refused(BlkStatus::NoSpc));
                }
            }
            (Wrong::Refuses(pair, relation), Op::Copy(command))
                if relations(volume, command).any(|found| found == (pair, relation)) =>
            {
                return Some(Completion::refused(BlkStatus::CopyOverlap));
            }
            (Wrong::Swapped, Op::Copy(command)) => {
                for segment in command.segments.iter_mut().filter(|segment| segment.source_volume == volume) {
                    std::mem::swap(&mut segment.source.start, &mut segment.destination);
                }
            }
            (Wrong::DestinationStuck, Op::Copy(command)) => {
                for index in 1..command.segments.len() {
                    let place = command.segments[index - 1].destination;
                    if place.0 + command.segments[index].source.len.0 <= capacity {
                        command.segments[index].destination = place;
                    }
                }
            }
            (Wrong::ShortSuccess, Op::Copy(command)) if command.segments.len() > 1 => {
                let last = command.segments.pop().expect("there is more than one");
                self.left_out.insert(request.id, last.source.len);
            }
            (Wrong::LongPrefix, Op::Copy(command)) => {
                self.total.insert(request.id, command.total().unwrap_or_default().bytes());
            }
            _ => {}
        }
        None
    }

    fn completed(&mut self, id: RequestId, completion: &mut Completion) {
        let left_out = self.left_out.remove(&id);
        let total = self.total.remove(&id);
        match self.wrong {
            Wrong::ReportShort if completion.zones.len() > 1 => drop(completion.zones.pop()),
            Wrong::ZoneStatusLost if completion.status >= BlkStatus::ZoneInvalidWrite => {
                completion.status = BlkStatus::IoErr;
            }
            Wrong::FailedIndex => {
                completion.first_failed_segment = completion.first_failed_segment.map(|index| index + 1);
            }
            Wrong::ShortSuccess if completion.status.is_ok() => {
                completion.bytes.0 += left_out.unwrap_or_default().bytes().0;
            }
            Wrong::ShortCount if completion.status.is_ok() => {
                completion.bytes.0 = completion.bytes.0.saturating_sub(512);
            }
            Wrong::LongPrefix if !completion.status.is_ok() => {
                if let (Some(total), Some(0)) = (total, completion.first_failed_segment) {
                    completion.bytes = total;
                }
            }
            _ => {}
        }
    }

    fn planned(&mut self, plan: &mut Plan) {
        let commits = plan.steps.iter().any(|step| matches!(step, Step::Commit(_)));
        match self.wrong {
            Wrong::HeadLost | Wrong::TailLost | Wrong::RestLost => {
                let block = self.inner.limits(plan.link.volume).map_or(1, |limits| limits.map_block.0);
                for step in &mut plan.steps {
                    let Step::Move { from, to, reason } = step else {
                        continue;
                    };
                    let ends = (to.0 + from.len.0).is_multiple_of(block);
                    let lost = match self.wrong {
                        Wrong::HeadLost => *reason == MoveReason::HeadTail && ends,
                        Wrong::TailLost => *reason == MoveReason::HeadTail && !ends,
                        _ => *reason == MoveReason::PartBlock,
                    };
                    if lost {
                        *step = Step::Zero { at: StoreRange { start: *to, len: from.len }, unmap: false };
                    }
                }
            }
            Wrong::SyncSkipped if commits => {
                if let Some(at) = plan.steps.iter().position(|step| matches!(step, Step::Sync)) {
                    plan.steps.remove(at);
                    self.syncs.insert(plan.id, at);
                }
            }
            Wrong::CommitFirst if commits => plan.steps.reverse(),
            _ => {}
        }
    }

    fn route(&mut self, answers: Out) -> Out {
        let mut out = Out::new();
        for (id, mut next) in answers {
            match &mut next {
                Next::Done(completion) => {
                    self.completed(id, completion);
                    let waited = self.waited.remove(&id);
                    if self.wrong == Wrong::AnswerLost && waited {
                        continue;
                    }
                    if self.wrong == Wrong::AnsweredTwice && completion.bytes.0 > 4096 {
                        out.push((id, Next::Done(completion.clone())));
                    }
                }
                Next::Run(_) if self.wrong == Wrong::OwnWorkLost && id.is_internal() => continue,
                Next::Run(plan) => {
                    self.waited.remove(&id);
                    self.planned(plan);
                }
                Next::Wait => {
                    self.waited.insert(id);
                }
            }
            out.push((id, next));
        }
        out
    }
}

impl BlockDevice for WrongDevice {
    fn limits(&self, volume: VolumeId) -> Option<&Limits> {
        self.inner.limits(volume)
    }

    fn admit_copy(&self, request: &Request) -> Result<(), BlkStatus> {
        self.inner.admit_copy(request)
    }

    fn undoable(&self, log: &dyn RedoLog, volume: VolumeId, ranges: &[SectorRange]) -> usize {
        self.inner.undoable(log, volume, ranges)
    }

    fn begin(&mut self, cx: &mut Cx<'_>, mut request: Request) -> Out {
        if let Some(completion) = self.meddle(&mut request) {
            return smallvec![(request.id, Next::Done(completion))];
        }
        let answers = self.inner.begin(cx, request);
        self.route(answers)
    }

    fn finish(&mut self, cx: &mut Cx<'_>, mut plan: Plan, mut io: IoResult) -> Out {
        let volume = plan.link.volume;
        let commits = plan.steps.iter().any(|step| matches!(step, Step::Commit(_)));
        if let Some(at) = self.syncs.remove(&plan.id) {
            plan.steps.insert(at, Step::Sync);
            io.steps_done = if io.status.is_ok() { plan.steps.len() } else { io.steps_done };
        }
        let answers = self.inner.finish(cx, plan, io);
        if self.wrong == Wrong::RemapUncounted && volume != VolumeId::POOL {
            cx.ledgers.of(volume).remapped = Bytes(0);
        }
        if self.wrong == Wrong::LogDroppedEarly && commits {
            let last = cx.log.last();
            cx.log.committed(last);
        }
        self.route(answers)
    }

    fn abort(&mut self, cx: &mut Cx<'_>, id: RequestId) -> Out {
        if self.wrong == Wrong::AbortIgnored {
            return Out::new();
        }
        let answers = self.inner.abort(cx, id);
        self.route(answers)
    }

    fn wake(&mut self, cx: &mut Cx<'_>) -> (Out, Option<Instant>) {
        let (answers, next) = self.inner.wake(cx);
        (self.route(answers), next)
    }

    fn control(&mut self, cx: &mut Cx<'_>, mut control: Control) -> Out {
        match &mut control {
            Control::SetLimits(..) if self.wrong == Wrong::LimitsStale => return Out::new(),
            Control::AddVolume(_, limits) | Control::SetLimits(_, limits) => {
                if self.wrong == Wrong::ModeIgnored && limits.copy_mode == CopyMode::Memcpy {
                    limits.copy_mode = CopyMode::Remap;
                }
            }
            Control::RemoveVolume(_)
            | Control::SetTiming(..)
            | Control::FailZone(..)
            | Control::PowerCut(..) => {}
        }
        let removal = matches!(control, Control::RemoveVolume(_));
        let mut answers = self.inner.control(cx, control);
        if removal && self.wrong == Wrong::RemovalForgets {
            answers.retain(|(_, next)| !matches!(next, Next::Done(_)));
        }
        self.route(answers)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn check(&self) -> Result<(), String> {
        self.inner.check()
    }
}
