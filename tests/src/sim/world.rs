//! A pool, its doors, its store and its executor in virtual time. What happens next is drawn from the seed:
//! requests begin, work goes on piece by piece, plans go back in any order, things fail.

use super::admission;
use super::closing::EVENTS_MAX;
use super::log::SimLog;
use super::names::{Claim, Names};
use super::options::{Options, Stack};
use super::oracle::Oracle;
use super::prng::Prng;
use super::run::{Image, Report, Rig};
use super::store::{Buffers, Store, Sync};
use super::trace::Trace;
use super::workload::{Target, Workload, targets};
use super::zoned::Doing;
use super::zones::Zones;
use emulation::redo::{Fill, RedoLog};
use emulation::{
    BlkStatus, Bytes, Control, Flags, Instant, Limits, Next, Op, Out, Plan, PlanId, Pool, Request, RequestId,
    VolumeId,
};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// What a door and the checks know of a live request.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) request: Request,
    pub(super) buffers: Buffers,
    /// Why it has to be refused; empty: it must not be.
    pub(super) refusal: Vec<BlkStatus>,
    /// It waits inside the device.
    pub(super) parked: bool,
    pub(super) aborted: bool,
    /// Failures that its plans were given.
    pub(super) injected: SmallVec<[BlkStatus; 1]>,
    /// A volume that it touches is gone.
    pub(super) orphan: bool,
    /// The event at which it began.
    pub(super) begun: u64,
    /// No other change came near it while it lived.
    pub(super) alone: bool,
    /// When it began, it changed only blocks that are mapped and unshared.
    pub(super) unshared: bool,
    /// A rule of faults struck it.
    pub(super) struck: bool,
}

/// A plan that was handed out.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) plan: Plan,
    pub(super) claim: Claim,
    /// Steps done.
    pub(super) steps: usize,
    /// Sectors done of the next one.
    pub(super) part: u64,
    /// The sync under way.
    pub(super) sync: Sync,
}

impl Running {
    pub(super) fn executed(&self) -> bool {
        self.steps == self.plan.steps.len()
    }
}

/// Bytes of copies to a volume, for comparison with its ledger.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Requests that were let in.
    pub(super) commands: u64,
    /// Copied by requests that were whole.
    pub(super) copied: u64,
    /// Asked for by requests that failed.
    pub(super) perhaps: u64,
    /// A copy could remap.
    pub(super) may_remap: bool,
}

/// The simulation of one seed.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) options: &'a Options,
    pub(super) rig: &'a Rig,
    pub(super) prng: Prng,
    pub(super) now: Instant,
    pub(super) event: u64,
    pub(super) pool: Pool,
    pub(super) log: SimLog,
    pub(super) store: Store,
    /// `None` for volumes that are written in place.
    pub(super) names: Option<Names>,
    pub(super) oracle: Oracle,
    pub(super) volumes: BTreeMap<VolumeId, Limits>,
    pub(super) tallies: BTreeMap<VolumeId, Tally>,
    pub(super) zones: Zones,
    /// What live requests do to zones, and those of them that wait for a reset, in order.
    pub(super) doing: BTreeMap<RequestId, Doing>,
    pub(super) waiting: Vec<RequestId>,
    pub(super) live: BTreeMap<RequestId, Live>,
    pub(super) targets: Vec<(RequestId, Target)>,
    pub(super) plans: Vec<Running>,
    pub(super) plan_numbers: BTreeSet<PlanId>,
    pub(super) next_request: u64,
    /// When the device wants to be woken.
    pub(super) wake_at: Option<Instant>,
    /// Statuses of commits that failed, each with the event.
    pub(super) failed_commits: Vec<(u64, BlkStatus)>,
    /// The last commit failed.
    pub(super) commits_fail: bool,
    /// Syncs and commits that began.
    pub(super) begun: (u64, u64),
    /// The storage answers no more.
    pub(super) frozen: bool,
    pub(super) trace: Trace,
    pub(super) report: Report,
}

impl<'a> World<'a> {
    pub(super) fn new(options: &'a Options, rig: &'a Rig, readable: bool) -> Result<Self, String> {
        let log = SimLog::new(options.log_records);
        let in_place = options.stack == Stack::Identity;
        let durability = options.held_max.is_some();
        let mut world = Self {
            options,
            rig,
            // Not the sequence that the options were drawn from.
            prng: Prng::new(super::prng::mix(options.seed)),
            now: Instant::ORIGIN,
            event: 0,
            pool: Pool::new((rig.build)(options), Box::new(log.clone())),
            log,
            store: Store::new(options.store_sectors(), durability, in_place),
            names: (!in_place).then(|| Names::new(options.map_block, options.physical, options.blind)),
            oracle: Oracle::new(durability),
            volumes: BTreeMap::new(),
            tallies: BTreeMap::new(),
            zones: Zones::default(),
            doing: BTreeMap::new(),
            waiting: Vec::new(),
            live: BTreeMap::new(),
            targets: Vec::new(),
            plans: Vec::new(),
            plan_numbers: BTreeSet::new(),
            next_request: 0,
            wake_at: None,
            failed_commits: Vec::new(),
            commits_fail: false,
            begun: (0, 0),
            frozen: false,
            trace: Trace::new(readable),
            report: Report::default(),
        };
        for _ in 0..options.volumes {
            world.add_volume()?;
        }
        Ok(world)
    }

    /// The whole life of a pool: work with faults, then no more faults, when all must end well.
    pub(super) fn run(&mut self) -> Result<(), String> {
        // A device that answers nothing any more is found out in the end.
        while self.report.operations < self.options.operations && self.event < EVENTS_MAX {
            self.event()?;
            if self.options.watch {
                self.check_zones()?;
            }
            if self.event.is_multiple_of(self.options.check_every) {
                self.check()?;
            }
        }
        self.close()
    }

    pub(super) fn tick(&mut self) {
        self.event += 1;
        self.now = Instant(self.now.0 + self.prng.skewed(1 << 24));
    }

    fn event(&mut self) -> Result<(), String> {
        self.tick();
        if self.oracle.is_crowded() {
            return self.calm();
        }
        if std::mem::take(&mut self.frozen) {
            return self.crash();
        }
        if self.prng.one_in(32) {
            self.make_writable()?;
        }
        if self.prng.chance(self.options.crash) {
            return self.crash();
        }
        if self.prng.chance(self.options.kill) {
            return self.kill();
        }
        let events = self.options.events;
        let room = self.live.len() < self.options.live_max;
        let when = |possible: bool, weight: u64| if possible { weight } else { 0 };
        let (work, ready) =
            (self.plans.iter().any(|p| !p.executed()), self.plans.iter().any(Running::executed));
        let weights = [
            when(room, events.start),
            when(work, events.step),
            when(ready, events.finish),
            when(work || ready, events.fail),
            events.abort,
            events.wake,
            events.limits,
            when(self.volumes.len() < self.options.volumes_max, events.add),
            when(self.volumes.len() > 1, events.remove),
            when(self.options.held_max.is_some(), events.probe),
            when(!self.zones.volumes.is_empty(), events.fail_zone),
            when(!self.zones.volumes.is_empty(), events.report),
            when(self.names.is_some(), events.power),
            events.faults,
        ];
        match self.prng.weighted(&weights) {
            Some(0) => self.start(),
            Some(1) => self.step(),
            Some(2) => self.finish(),
            Some(3) => self.fail(),
            Some(4) => self.abort(),
            Some(6) => self.set_limits(),
            Some(7) => self.add_volume(),
            Some(8) => self.remove_volume(),
            Some(9) => self.probe(),
            Some(10) => self.fail_zone(),
            Some(11) => self.check_zones(),
            Some(12) => self.power_cut(),
            Some(13) => self.change_faults(),
            _ => self.wake().map(|_| ()),
        }
    }

    /// Calls the device and takes its answers.
    pub(super) fn call(&mut self, call: impl FnOnce(&mut Pool, Instant) -> Out) -> Result<(), String> {
        self.call_and_cut(None, call)
    }

    /// The same by a call that cuts the power of a volume.
    pub(super) fn call_and_cut(
        &mut self,
        cut: Option<VolumeId>,
        call: impl FnOnce(&mut Pool, Instant) -> Out,
    ) -> Result<(), String> {
        if let Some(names) = &mut self.names {
            names.call();
        }
        self.zones.call = self.zones.clock;
        let full = self.log.fill() == Fill::Full;
        let out = call(&mut self.pool, self.now);
        let cuts = self.struck();
        self.records()?;
        let full = full && self.log.fill() == Fill::Full;
        self.take(out, full)?;
        let cuts: Vec<_> = cuts.into_iter().chain(cut).collect();
        cuts.iter().try_for_each(|&id| self.zones_after_power_cut(id))?;
        cuts.into_iter().try_for_each(|id| self.after_power_cut(id))?;
        if self.resets() { self.check_zones() } else { Ok(()) }
    }

    fn start(&mut self) -> Result<(), String> {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        let mut draw = || {
            Workload::new(self.options, &self.volumes, &self.targets, &self.zones, &mut self.prng).request(id)
        };
        let mut request = draw();
        if self.options.apart {
            let block = self.options.map_block;
            for _ in 0..20 {
                let refused = !admission::reasons(&request, &self.volumes, self.options.stack).is_empty();
                let parts = if refused { Vec::new() } else { targets(&request) };
                if !parts.iter().any(|a| self.targets.iter().any(|(_, b)| a.shares_part(b, block))) {
                    break;
                }
                request = draw();
            }
        }
        self.report.operations += 1;
        self.begin(&mut request)
    }

    /// Begins a request; `request` is what the door asked for.
    pub(super) fn begin(&mut self, request: &mut Request) -> Result<(), String> {
        let id = request.id;
        self.trace.request(request);
        let asked = request.clone();
        let mut refusal = admission::reasons(request, &self.volumes, self.options.stack);
        let let_in = is_let_in(request, &refusal);
        let waits = let_in && self.look_at_zones(request, &mut refusal);
        let refused = !refusal.is_empty();
        let effects = if refused || waits { Vec::new() } else { self.let_in(request) };
        let mine: Vec<Target> = effects.iter().flat_map(targets).collect();
        let overlaps = |a: &Target| self.targets.iter().any(|(_, b)| a.meets(b));
        if mine.iter().any(overlaps) {
            self.report.overlapping += 1;
        }
        self.report.begun(request, &refusal);
        let (written, read) = match &request.op {
            Op::Write(range) if !refused => (range.len.0, 0),
            Op::Read(range) if !refused => (0, range.len.0),
            _ => (0, 0),
        };
        let live = Live {
            request: request.clone(),
            buffers: Buffers::new(id, written, read),
            parked: false,
            aborted: false,
            injected: SmallVec::new(),
            orphan: false,
            begun: self.event,
            alone: !waits && !mine.iter().any(|a| self.targets.iter().any(|(_, b)| a.near(b))),
            unshared: !refused && self.is_unshared(request),
            struck: false,
            refusal,
        };
        if let_in {
            self.count_begun(&live);
        }
        for other in self.live.values_mut().filter(|other| other.alone) {
            other.alone = !targets(&other.request).iter().any(|a| mine.iter().any(|b| a.near(b)));
        }
        effects.iter().for_each(|effect| self.oracle.begin(effect));
        self.targets.extend(mine.into_iter().map(|target| (id, target)));
        if waits {
            self.doing.insert(id, Doing::Waits { told: false });
            self.waiting.push(id);
        }
        self.live.insert(id, live);
        let mut altered = asked;
        (self.rig.alter)(&mut altered);
        self.call(|pool, now| pool.begin(now, altered))?;
        match self.live.get(&id) {
            Some(live) if !live.refusal.is_empty() && !live.struck => {
                Err(format!("request {} had to be refused at once", id.0))
            }
            Some(live) if !live.parked && !self.plans.iter().any(|running| running.plan.request == id) => {
                Err(format!("request {} was neither answered, nor given a plan, nor told to wait", id.0))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn is_unshared(&self, request: &Request) -> bool {
        let (Some(names), Op::Write(range)) = (&self.names, &request.op) else {
            return false;
        };
        names.is_unshared(request.volume, range.start.0, range.end().0)
    }

    /// Takes the redo records of the last call.
    fn records(&mut self) -> Result<(), String> {
        let fresh = std::mem::take(&mut self.log.records().fresh);
        for change in fresh {
            self.trace.line(|| format!("  record {change:?}"));
            match &mut self.names {
                Some(names) => names.change(&change)?,
                None => return Err(format!("a volume in place has no map: {change:?}")),
            }
        }
        Ok(())
    }

    /// Takes the answers of one call. `full`: there was no room in the log all the time.
    fn take(&mut self, out: Out, full: bool) -> Result<(), String> {
        let mut named: SmallVec<[RequestId; 4]> = SmallVec::new();
        for (id, next) in out {
            self.trace.answer(id.0, &next);
            if named.contains(&id) {
                return Err(format!("request {} is named twice in one answer", id.0));
            }
            named.push(id);
            if id.is_internal() {
                if let Next::Run(plan) = next {
                    self.receive(id, plan)?;
                }
                continue;
            }
            if !self.live.contains_key(&id) {
                return Err(format!("request {} is answered and does not live", id.0));
            }
            self.named(id, &next)?;
            let live = self.live.get_mut(&id).expect("looked up above");
            let busy = self.plans.iter().any(|running| running.plan.request == id);
            if busy {
                return Err(format!("request {} is named and has a live plan", id.0));
            }
            live.parked = matches!(next, Next::Wait);
            match next {
                Next::Wait => self.report.parked += 1,
                Next::Run(plan) if !live.may_run(&plan) => {
                    return Err(format!("request {} had to be refused: {:?}", id.0, live.refusal));
                }
                Next::Done(completion) => self.complete(id, &completion)?,
                // Making durable what is done may still follow.
                Next::Run(plan)
                    if live.aborted && (plan.link.source.is_some() || plan.link.destination.is_some()) =>
                {
                    return Err(format!("request {} goes on after its abort", id.0));
                }
                Next::Run(plan) if full && plan.link.destination.is_some() => {
                    return Err(format!("request {} changes something while the log is full", id.0));
                }
                Next::Run(plan) => self.receive(id, plan)?,
            }
        }
        Ok(())
    }

    fn abort(&mut self) -> Result<(), String> {
        let known = self.live.len() as u64;
        // At times a request that does not live.
        let pick = self.prng.below(known + known / 8 + 1);
        let id = self.live.keys().nth(pick as usize).copied().unwrap_or(RequestId(self.next_request + 1));
        self.trace.number(id.0);
        self.trace.line(|| format!("abort request {}", id.0));
        let (parked, known) = match self.live.get_mut(&id) {
            None => (false, false),
            Some(live) => {
                live.aborted = true;
                (live.parked && live.can_end_early(), true)
            }
        };
        self.report.aborts += u64::from(known);
        self.call(|pool, now| pool.abort(now, id))?;
        // One that was to be late is given a plan to wait with.
        let late = self.plans.iter().any(|running| running.plan.request == id);
        if parked && self.live.contains_key(&id) && !late {
            return Err(format!("request {} waits, was aborted and is not answered", id.0));
        }
        Ok(())
    }

    /// Wakes the device; true when that did something.
    pub(super) fn wake(&mut self) -> Result<bool, String> {
        let mut next = None;
        let mut answered = false;
        self.call(|pool, now| {
            let (out, at) = pool.wake(now);
            next = at;
            answered = !out.is_empty();
            out
        })?;
        self.wake_at = next;
        Ok(answered)
    }

    /// The pool as it begins again from an image, with the log that there is.
    pub(super) fn begin_again(&mut self, image: &Image) {
        self.pool = Pool::new((self.rig.recover)(self.options, image), Box::new(self.log.clone()));
        if self.names.is_none() {
            // Nothing is recorded of volumes in place: their owner adds them again.
            for (&id, limits) in &self.volumes {
                self.pool.control(self.now, Control::AddVolume(id, limits.clone()));
            }
        }
        self.plans.clear();
        self.plan_numbers.clear();
        self.live.clear();
        (self.doing, self.waiting) = (BTreeMap::new(), Vec::new());
        self.targets.clear();
        self.failed_commits.clear();
        self.commits_fail = false;
        self.wake_at = None;
        for tally in self.tallies.values_mut() {
            *tally = Tally::default();
        }
    }

    fn count_begun(&mut self, live: &Live) {
        let Some(tally) = self.tallies.get_mut(&live.request.volume) else {
            return;
        };
        tally.commands += 1;
        if matches!(live.request.op, Op::Copy(_)) {
            tally.may_remap |= self.volumes[&live.request.volume].copy_mode == emulation::CopyMode::Remap;
        }
    }
}

/// True when only the device itself refuses a request, if anything does.
fn is_let_in(request: &Request, refusal: &[BlkStatus]) -> bool {
    refusal.iter().all(|status| match request.op {
        Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => *status == BlkStatus::NotSupp,
        _ => *status == BlkStatus::CopyNotFast,
    })
}

impl Live {
    /// A request that waits for a commit to end is done and need not be ended early.
    pub(super) fn can_end_early(&self) -> bool {
        !matches!(self.request.op, Op::Flush) && !self.request.flags.has(Flags::FUA)
    }

    /// One that has to be refused runs nothing; when it is to be late it is given a plan to wait with.
    fn may_run(&self, plan: &Plan) -> bool {
        self.refusal.is_empty() || (self.struck && plan.is_empty())
    }

    /// The bytes of a whole request.
    pub(super) fn len(&self) -> Bytes {
        match &self.request.op {
            Op::Read(range) | Op::Write(range) | Op::Discard(range) | Op::WriteZeroes(range) => {
                range.len.bytes()
            }
            Op::Copy(command) => {
                Bytes(command.segments.iter().map(|segment| segment.source.len.bytes().0).sum())
            }
            Op::Flush | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => Bytes(0),
        }
    }
}
