//! Faults on demand: the top layer of a pool. A rule strikes requests before the layers below see them; what it does
//! to one is done to the request, to its plans or to its answer, never to the layers below. So a pool without rules is a
//! pool without this layer, and a struck request still obeys every rule that it was not struck about.

use crate::copy;
use crate::device::{
    self, BlockDevice, Completion, Control, Cx, IoResult, Keep, Link, Next, Out, Plan, PlanId, PortKind,
    Usage,
};
use crate::limits::{self, CopyMode, Limits};
use crate::redo::RedoLog;
use crate::request::{CopyCommand, Flags, Op, Request, RequestId, VolumeId};
use crate::status::BlkStatus;
use crate::time::Instant;
use crate::units::{Bytes, Sector, SectorRange, Sectors};
use crate::zone::ZoneFailure;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;

mod marks;
mod rule;
#[cfg(test)]
mod tests;

use marks::{Marks, sector_at};
use rule::len_of;
pub use rule::{
    FaultAction, FaultError, FaultOp, FaultPick, FaultRule, RULES_MAX, RuleState, STRIKES_KEPT, Strike,
};

/// The plans of this layer have numbers from here on; layers below use lower ones.
const OWN_PLANS: u64 = 3 << 62;

/// The layer of faults.
#[derive(Debug)]
pub struct Faulty {
    inner: Box<dyn BlockDevice>,
    rules: Vec<Vec<RuleState>>,
    marks: Marks,
    /// Requests that hang, with the serial of their rule.
    hung: BTreeMap<RequestId, (Request, u32)>,
    /// Struck requests that are below.
    struck: BTreeMap<RequestId, Struck>,
    /// What the requests behind this layer's own plans end with.
    answers: BTreeMap<PlanId, Completion>,
    own_plans: u64,
    next_serial: u32,
    /// Volumes whose power a rule has cut, until somebody asks.
    cuts: Vec<VolumeId>,
}

/// What is still to be done to a struck request.
#[derive(Clone, Debug)]
enum Struck {
    /// It is answered no earlier.
    Until(Instant, VolumeId),
    /// What is below is a part of it; done well it ends like this.
    Ends(Completion),
    /// Something happens when so much of it is done.
    At(Sectors, Midway),
}

/// What happens while a request is under way.
#[derive(Clone, Copy, Debug)]
struct Midway {
    /// Sectors of it that are done.
    done: Sectors,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Corrupt(u32),
    Zone(ZoneFailure),
    PowerCut(VolumeId, Keep),
}

/// What begins of a struck request.
enum Fate {
    Done(Completion),
    Hang(Request),
    Below(Request, Option<Struck>),
}

impl Faulty {
    /// The layer over `inner`, without rules.
    pub fn new(inner: Box<dyn BlockDevice>) -> Self {
        Self {
            inner,
            rules: Vec::new(),
            marks: Marks::default(),
            hung: BTreeMap::new(),
            struck: BTreeMap::new(),
            answers: BTreeMap::new(),
            own_plans: OWN_PLANS,
            next_serial: 0,
            cuts: Vec::new(),
        }
    }

    /// Adds a rule to a volume that exists. Of several rules that would strike a request, the first does.
    ///
    /// # Errors
    /// It cannot be, or there is one of its name.
    pub fn add(&mut self, volume: VolumeId, rule: FaultRule) -> Result<(), FaultError> {
        let limits = self.inner.limits(volume).expect("the caller found the volume");
        rule.validate(limits)?;
        if self.rules.len() <= volume.index() {
            self.rules.resize_with(volume.index() + 1, Vec::new);
        }
        let rules = &mut self.rules[volume.index()];
        if rules.iter().any(|state| state.rule.name == rule.name) {
            return Err(FaultError::Exists(rule.name));
        }
        if rules.len() >= RULES_MAX {
            return Err(FaultError::TooMany(RULES_MAX));
        }
        self.next_serial += 1;
        rules.push(RuleState::new(rule, self.next_serial));
        Ok(())
    }

    /// The rules of a volume, in the order in which they were added.
    pub fn rules(&self, volume: VolumeId) -> &[RuleState] {
        self.rules.get(volume.index()).map_or(&[], Vec::as_slice)
    }

    /// The requests that a rule keeps from being answered.
    pub fn hung(&self, state: &RuleState) -> Vec<RequestId> {
        self.hung.iter().filter(|(_, (_, by))| *by == state.serial).map(|(id, _)| *id).collect()
    }

    /// Removes a rule of a volume, or all: what hangs by it ends with a timeout, what it spoiled is as it was. `None`
    /// when there is no such rule.
    pub fn remove(&mut self, volume: VolumeId, name: Option<&str>) -> Option<Out> {
        let rules = self.rules.get_mut(volume.index());
        let gone: Vec<u32> = match rules {
            None => Vec::new(),
            Some(rules) => rules
                .extract_if(.., |state| name.is_none_or(|name| state.rule.name == name))
                .map(|state| state.serial)
                .collect(),
        };
        if gone.is_empty() && name.is_some() {
            return None;
        }
        let mut out = Out::new();
        for serial in gone {
            self.marks.heal(serial);
            self.end_hung(BlkStatus::Timeout, |_, by| by == serial, &mut out);
        }
        Some(out)
    }

    /// True when the power of a volume was cut by a rule since [`Faulty::take_cuts`].
    pub fn has_cuts(&self) -> bool {
        !self.cuts.is_empty()
    }

    /// The volumes whose power rules have cut since the last call: what a host has cached of them is stale.
    pub fn take_cuts(&mut self) -> Vec<VolumeId> {
        std::mem::take(&mut self.cuts)
    }

    fn end_hung(&mut self, status: BlkStatus, ends: impl Fn(&Request, u32) -> bool, out: &mut Out) {
        let ended = |(_, (request, by)): &(&RequestId, &(Request, u32))| ends(request, *by);
        let ids: Vec<_> = self.hung.iter().filter(ended).map(|(id, _)| *id).collect();
        for id in ids {
            let (request, _) = self.hung.remove(&id).expect("found above");
            out.push((id, Next::Done(failed(&request.op, status))));
        }
    }

    fn idle(&self) -> bool {
        self.struck.is_empty() && self.marks.is_empty()
    }

    /// The rule that strikes a request, if one does.
    fn strike(&mut self, now: Instant, request: &Request) -> Option<(FaultAction, u32, u64)> {
        let rules = self.rules.get_mut(request.volume.index())?;
        let state = rules.iter_mut().find_map(|state| state.strikes(now, request).then_some(state))?;
        Some((state.rule.action, state.serial, state.chance.next()))
    }

    fn fate(&mut self, now: Instant, request: Request, action: FaultAction, serial: u32, draw: u64) -> Fate {
        let len = len_of(&request.op);
        match action {
            FaultAction::Error(status) => Fate::Done(failed(&request.op, status)),
            FaultAction::Delay(time) => {
                let struck = Struck::Until(now + time, request.volume);
                Fate::Below(request, Some(struck))
            }
            FaultAction::Hang => Fate::Hang(request),
            FaultAction::FailAt(index) => {
                let command = request.op.copy().expect("the rule strikes copies");
                let before = command.segments.iter().take(index as usize);
                let done = Sectors(before.map(|segment| segment.source.len.0).sum());
                self.stop(request, done, BlkStatus::Medium)
            }
            FaultAction::StopAt(bytes) => self.stop(request, bytes.whole_sectors(), BlkStatus::IoErr),
            FaultAction::Torn => {
                let block = self.limits(request.volume).map_or(1, |limits| limits.logical_block.0);
                let done = Sectors(draw % (len.0 / block) * block);
                self.cut(request, done, Completion::ok(len.bytes()))
            }
            FaultAction::Corrupt => {
                let offset = Sectors(draw % len.0);
                if let Op::Read(range) = &request.op {
                    self.marks.mark(request.volume, range.start + offset, serial);
                    return Fate::Below(request, None);
                }
                let midway = Midway { done: Sectors::ZERO, what: What::Corrupt(serial) };
                Fate::Below(request, Some(Struck::At(offset, midway)))
            }
            FaultAction::Misdirect(sector) => Fate::Below(self.misdirected(request, sector), None),
            FaultAction::LostFlush if matches!(request.op, Op::Flush) => Fate::Done(Completion::ok(Bytes(0))),
            FaultAction::LostFlush => {
                let flags = request.flags.without(Flags::FUA);
                Fate::Below(Request { flags, ..request }, None)
            }
            FaultAction::Zone(failure) => {
                let midway = Midway { done: Sectors::ZERO, what: What::Zone(failure) };
                Fate::Below(request, Some(Struck::At(Sectors(len.0 / 2), midway)))
            }
            FaultAction::PowerCut(keep) => {
                let what = What::PowerCut(request.volume, keep.unwrap_or(Keep::Some(draw)));
                let midway = Midway { done: Sectors::ZERO, what };
                Fate::Below(request, Some(Struck::At(Sectors(len.0 / 2), midway)))
            }
        }
    }

    /// A request that fails once its first `done` sectors are through.
    fn stop(&self, request: Request, done: Sectors, status: BlkStatus) -> Fate {
        let doable = self.doable(&request, done);
        let first_failed_segment = request.op.copy().map(|command| segment_at(command, doable));
        let end = Completion { bytes: doable.bytes(), first_failed_segment, ..Completion::refused(status) };
        self.cut(request, done, end)
    }

    /// The first `done` sectors of a request, which then ends as `end`. What is refused as a whole is refused.
    fn cut(&self, request: Request, done: Sectors, end: Completion) -> Fate {
        if let Err(status) = self.admit_whole(&request) {
            return Fate::Done(Completion::refused(status));
        }
        let done = self.doable(&request, done);
        if done.is_zero() {
            return Fate::Done(end);
        }
        let head = |range: SectorRange| range.split_at(done).0;
        let op = match request.op {
            Op::Read(range) => Op::Read(head(range)),
            Op::Write(range) => Op::Write(head(range)),
            Op::Discard(range) => Op::Discard(head(range)),
            Op::WriteZeroes(range) => Op::WriteZeroes(head(range)),
            Op::Copy(command) => Op::Copy(copy_head(command, done)),
            op @ (Op::Flush | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. }) => op,
        };
        Fate::Below(Request { op, ..request }, Some(Struck::Ends(end)))
    }

    /// So much of a request as can be done by itself: of a copy that is to move no bytes whole map blocks.
    fn doable(&self, request: &Request, done: Sectors) -> Sectors {
        match self.limits(request.volume) {
            Some(limits) if request.flags.has(Flags::FAST_ONLY) => {
                Sectors(done.0 - done.0 % limits.map_block.0)
            }
            Some(_) | None => done,
        }
    }

    /// A refused copy changes nothing: what the layers below look at in the whole command is looked at before they are
    /// given a part of it.
    fn admit_whole(&self, request: &Request) -> Result<(), BlkStatus> {
        let Some(command) = request.op.copy() else { return Ok(()) };
        self.inner.admit_copy(request)?;
        let limits = self.inner.limits(request.volume).ok_or(BlkStatus::NoVolume)?;
        let slow = |segment| !copy::is_fast(segment, limits.map_block, limits.copy_mode);
        let refused = request.flags.has(Flags::FAST_ONLY)
            && (limits.copy_mode == CopyMode::Emulate || command.segments.iter().any(slow));
        if refused { Err(BlkStatus::CopyNotFast) } else { Ok(()) }
    }

    /// The same at another place; the request as it is when it does not fit there.
    fn misdirected(&self, request: Request, to: Sector) -> Request {
        let moved = |range: SectorRange| SectorRange { start: to, len: range.len };
        let op = match &request.op {
            Op::Read(range) => Op::Read(moved(*range)),
            Op::Write(range) => Op::Write(moved(*range)),
            Op::WriteZeroes(range) => Op::WriteZeroes(moved(*range)),
            Op::Discard(_)
            | Op::Flush
            | Op::Copy(_)
            | Op::ZoneMgmt { .. }
            | Op::ZoneResetAll
            | Op::ReportZones { .. } => return request,
        };
        let other = Request { op, ..request.clone() };
        let admitted = limits::admit(|volume| self.inner.limits(volume), &other);
        if admitted.is_ok() { other } else { request }
    }

    /// Hands answers on, with what is to be done to struck requests.
    fn route(&mut self, cx: &mut Cx<'_>, answers: Out, out: &mut Out) {
        if self.idle() {
            // Most calls: nothing is copied.
            return if out.is_empty() { *out = answers } else { merge(out, answers) };
        }
        let mut strikes: SmallVec<[Control; 1]> = SmallVec::new();
        for (id, next) in answers {
            let next = match next {
                Next::Wait => Next::Wait,
                Next::Run(mut plan) => {
                    strikes.extend(self.midway(&plan));
                    let inner = &self.inner;
                    let block =
                        |volume| inner.limits(volume).map_or(Sectors(1), |limits| limits.logical_block);
                    self.marks.spoil(&mut plan, block);
                    Next::Run(plan)
                }
                Next::Done(completion) => {
                    if let Some(Struck::At(_, Midway { what: What::PowerCut(volume, keep), .. })) =
                        self.struck.get(&id)
                    {
                        strikes.push(Control::power_cut(*volume, *keep));
                    }
                    self.ended(cx.now, id, completion)
                }
            };
            device::name(out, id, next);
        }
        for strike in strikes {
            if let Control::PowerCut(volume, ..) = strike {
                self.cuts.push(volume);
            }
            let more = self.inner.control(cx, strike);
            self.route(cx, more, out);
        }
    }

    fn ended(&mut self, now: Instant, id: RequestId, completion: Completion) -> Next {
        match self.struck.remove(&id) {
            Some(Struck::Until(at, volume)) if at > now => {
                self.own_plans += 1;
                let plan = PlanId(self.own_plans);
                self.answers.insert(plan, completion);
                let link = Link { volume, source: None, destination: None };
                let (port, steps) = (PortKind::None, SmallVec::new());
                Next::Run(Plan { id: plan, request: id, port, not_before: at, link, steps })
            }
            Some(Struck::Ends(end)) if completion.status.is_ok() => {
                Next::Done(Completion { appended_at: completion.appended_at, ..end })
            }
            Some(Struck::Until(..) | Struck::Ends(_) | Struck::At(..)) | None => Next::Done(completion),
        }
    }

    /// What happens while this plan is under way.
    fn midway(&mut self, plan: &Plan) -> Option<Control> {
        let Some(&Struck::At(at, Midway { done, what })) = self.struck.get(&plan.request) else {
            return None;
        };
        let link = &plan.link;
        let hit = sector_at(link, done, at).map(|sector| (link.volume, sector));
        let strike = match what {
            What::Corrupt(_) => return None,
            What::PowerCut(volume, keep) => {
                hit?;
                Control::power_cut(volume, keep)
            }
            What::Zone(failure) => {
                // A read has no destination and one plan.
                let reads = link.source.filter(|_| link.destination.is_none() && plan.port == PortKind::Door);
                let (volume, sector) = hit.or(reads.map(|(volume, range)| (volume, range.start)))?;
                let zones = self.inner.limits(volume)?.zones?;
                Control::FailZone(volume, zones.start_of(zones.zone_of(sector)), failure)
            }
        };
        self.struck.remove(&plan.request);
        Some(strike)
    }

    /// A plan of a struck request comes back, carried out.
    fn carried_out(&mut self, plan: &Plan) {
        self.marks.carried_out(&plan.link);
        let Some(Struck::At(at, midway)) = self.struck.get_mut(&plan.request) else { return };
        let (done, at) = (midway.done, *at);
        midway.done += plan.link.destination.map_or(Sectors::ZERO, |range| range.len);
        if let What::Corrupt(rule) = midway.what
            && let Some(sector) = sector_at(&plan.link, done, at)
        {
            self.marks.mark(plan.link.volume, sector, rule);
            self.struck.remove(&plan.request);
        }
    }

    fn forget_volume(&mut self, volume: VolumeId, out: &mut Out) {
        if let Some(rules) = self.rules.get_mut(volume.index()) {
            for state in std::mem::take(rules) {
                self.marks.heal(state.serial);
            }
        }
        self.marks.clear(volume);
        let cuts = |struck: &Struck| match struck {
            Struck::At(_, Midway { what: What::PowerCut(cut, _), .. }) => *cut == volume,
            Struck::At(..) | Struck::Until(..) | Struck::Ends(_) => false,
        };
        self.struck.retain(|_, struck| !cuts(struck));
        let touches = |request: &Request| {
            request.volume == volume
                || request
                    .op
                    .copy()
                    .is_some_and(|copy| copy.segments.iter().any(|s| s.source_volume == volume))
        };
        self.end_hung(BlkStatus::NoVolume, |request, _| touches(request), out);
    }
}

fn merge(out: &mut Out, answers: Out) {
    for (id, next) in answers {
        device::name(out, id, next);
    }
}

/// A request that did nothing and failed in the attempt.
fn failed(op: &Op, status: BlkStatus) -> Completion {
    let first_failed_segment = op.copy().map(|_| 0);
    Completion { first_failed_segment, ..Completion::refused(status) }
}

/// The segment that is not whole when so much of a copy is done.
fn segment_at(command: &CopyCommand, done: Sectors) -> u32 {
    let mut left = done.0;
    let whole = command.segments.iter().take_while(|segment| {
        let len = segment.source.len.0;
        let whole = left >= len;
        left -= len.min(left);
        whole
    });
    u32::try_from(whole.count()).unwrap_or(u32::MAX)
}

/// The first `len` sectors of a copy.
fn copy_head(command: CopyCommand, len: Sectors) -> CopyCommand {
    let mut left = len;
    let mut segments = SmallVec::new();
    for mut segment in command.segments {
        if left.is_zero() {
            break;
        }
        segment.source = segment.source.split_at(left).0;
        left = left - segment.source.len;
        segments.push(segment);
    }
    CopyCommand { segments }
}

impl BlockDevice for Faulty {
    fn limits(&self, volume: VolumeId) -> Option<&Limits> {
        self.inner.limits(volume)
    }

    fn admit_copy(&self, request: &Request) -> Result<(), BlkStatus> {
        self.inner.admit_copy(request)
    }

    fn undoable(&self, log: &dyn RedoLog, volume: VolumeId, ranges: &[SectorRange]) -> usize {
        self.inner.undoable(log, volume, ranges)
    }

    fn begin(&mut self, cx: &mut Cx<'_>, request: Request) -> Out {
        let id = request.id;
        let mut out = Out::new();
        let request = match self.strike(cx.now, &request) {
            None => request,
            Some((action, serial, draw)) => match self.fate(cx.now, request, action, serial, draw) {
                Fate::Done(completion) => return smallvec![(id, Next::Done(completion))],
                Fate::Hang(request) => {
                    self.hung.insert(id, (request, serial));
                    return smallvec![(id, Next::Wait)];
                }
                Fate::Below(request, struck) => {
                    self.struck.extend(struck.map(|struck| (id, struck)));
                    request
                }
            },
        };
        let answers = self.inner.begin(cx, request);
        self.route(cx, answers, &mut out);
        out
    }

    fn finish(&mut self, cx: &mut Cx<'_>, plan: Plan, io: IoResult) -> Out {
        if let Some(answer) = self.answers.remove(&plan.id) {
            // The plan only waited: whatever became of it, the request is done.
            return smallvec![(plan.request, Next::Done(answer))];
        }
        if io.status.is_ok() && !self.idle() {
            self.carried_out(&plan);
        }
        let mut out = Out::new();
        let answers = self.inner.finish(cx, plan, io);
        self.route(cx, answers, &mut out);
        out
    }

    fn abort(&mut self, cx: &mut Cx<'_>, id: RequestId) -> Out {
        if let Some((request, _)) = self.hung.remove(&id) {
            return smallvec![(id, Next::Done(failed(&request.op, BlkStatus::Aborted)))];
        }
        let mut out = Out::new();
        let answers = self.inner.abort(cx, id);
        self.route(cx, answers, &mut out);
        out
    }

    fn wake(&mut self, cx: &mut Cx<'_>) -> (Out, Option<Instant>) {
        let mut out = Out::new();
        let (answers, next) = self.inner.wake(cx);
        self.route(cx, answers, &mut out);
        (out, next)
    }

    fn control(&mut self, cx: &mut Cx<'_>, control: Control) -> Out {
        let mut out = Out::new();
        match &control {
            Control::RemoveVolume(volume) => self.forget_volume(*volume, &mut out),
            Control::AddVolume(..)
            | Control::SetLimits(..)
            | Control::SetTiming(..)
            | Control::FailZone(..)
            | Control::PowerCut(..) => {}
        }
        let answers = self.inner.control(cx, control);
        self.route(cx, answers, &mut out);
        out
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn check(&self) -> Result<(), String> {
        self.inner.check()
    }
}
