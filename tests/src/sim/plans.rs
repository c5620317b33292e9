//! The executor: plans arrive, their steps are done piece by piece in any order among plans, and they go back.

use super::names::Claim;
use super::options::{Freeze, Grain};
use super::store::{Store, Sync};
use super::world::{Running, World};
use emulation::{
    BlkStatus, Flags, IoResult, Plan, RequestId, SectorRange, Sectors, Step, StoreRange, VolumeId,
};
use smallvec::SmallVec;

impl World<'_> {
    pub(super) fn receive(&mut self, id: RequestId, plan: Plan) -> Result<(), String> {
        if plan.request != id || !self.plan_numbers.insert(plan.id) {
            return Err(format!("{:?} is of {:?}, or not new", plan.id, plan.request));
        }
        if let Some(live) = self.live.get(&id)
            && live.request.flags.has(Flags::FAST_ONLY)
            && plan
                .steps
                .iter()
                .any(|step| matches!(step, Step::Move { .. } | Step::Read { .. } | Step::Write { .. }))
        {
            return Err(format!("request {} is FAST_ONLY and moves bytes", id.0));
        }
        let claim = match &mut self.names {
            Some(names) => names.receive(&plan)?,
            None => {
                if let Some(other) = self.plans.iter().find(|other| race_in_place(&other.plan, &plan)) {
                    let (a, b) = (other.plan.request.0, id.0);
                    return Err(format!(
                        "request {b} may not go on beside request {a}: one copies what one writes"
                    ));
                }
                Claim::default()
            }
        };
        if plan.steps.iter().any(|step| matches!(step, Step::Commit(_))) {
            self.zones.claim(plan.id);
        }
        self.report.plans += 1;
        self.plans.push(Running { plan, claim, steps: 0, part: 0, sync: Sync::default() });
        Ok(())
    }

    pub(super) fn step(&mut self) -> Result<(), String> {
        let open: SmallVec<[usize; 32]> =
            (0..self.plans.len()).filter(|&index| !self.plans[index].executed()).collect();
        if open.is_empty() {
            return Ok(());
        }
        let index = open[self.prng.index(open.len())];
        loop {
            let budget = match self.options.grain {
                Grain::Plan | Grain::Step => u64::MAX,
                Grain::Part => self.prng.skewed(64),
            };
            self.work(index, budget)?;
            if self.options.grain != Grain::Plan || self.plans[index].executed() {
                return Ok(());
            }
        }
    }

    /// Does at most `budget` sectors of a plan's next step.
    pub(super) fn work(&mut self, index: usize, budget: u64) -> Result<(), String> {
        let running = &mut self.plans[index];
        let plan = &running.plan;
        let step = &plan.steps[running.steps];
        let len = Store::len_of(step);
        let (from, to) = (running.part, len.min(running.part.saturating_add(budget)));
        let id = plan.id;
        self.trace.number(id.0 ^ from.rotate_left(20) ^ to.rotate_left(40));
        self.trace.line(|| format!("work on plan {} step {}: {from}..{to} of {len}", id.0, running.steps));
        match step {
            Step::Sync => {
                if from == 0 {
                    self.begun.0 += 1;
                    self.frozen |= self.options.freeze == Some(Freeze::Sync(self.begun.0));
                    running.sync = self.store.sync_begins();
                }
                if to == len {
                    self.store.sync_done(std::mem::take(&mut running.sync));
                }
            }
            // What is about to be durable may be so already: the crash decides.
            Step::Commit(_)
                if self.options.freeze == Some(Freeze::Commit(self.begun.1 + 1)) && !self.frozen =>
            {
                self.begun.1 += 1;
                self.frozen = true;
                return Ok(());
            }
            Step::Commit(commit) => match &mut self.names {
                Some(names) => {
                    self.begun.1 += u64::from(!self.frozen);
                    names.commit(commit, &running.claim, &self.store)?;
                    self.zones.commit(id, commit);
                }
                None => return Err("a volume in place has no metadata to commit".into()),
            },
            step => {
                let buffers = self.live.get_mut(&plan.request).map(|live| &mut live.buffers);
                let port = plan.port;
                self.store.work(step, port, (from, to), buffers)?;
                if let (Some(names), Some(range)) = (&mut self.names, written(step, from, to)) {
                    names.wrote(id, range)?;
                }
            }
        }
        running.part = to;
        if to == len {
            running.steps += 1;
            running.part = 0;
        }
        Ok(())
    }

    pub(super) fn finish(&mut self) -> Result<(), String> {
        let ready: SmallVec<[usize; 32]> =
            (0..self.plans.len()).filter(|&index| self.plans[index].executed()).collect();
        if ready.is_empty() {
            return Ok(());
        }
        let index = ready[self.prng.index(ready.len())];
        let io = IoResult::done(&self.plans[index].plan);
        self.hand_back(index, io)
    }

    /// A plan goes back with a failure somewhere in the middle, or without having been looked at.
    pub(super) fn fail(&mut self) -> Result<(), String> {
        const STATUSES: [BlkStatus; 5] = [
            BlkStatus::IoErr,
            BlkStatus::Medium,
            BlkStatus::Timeout,
            BlkStatus::Target,
            BlkStatus::Transport,
        ];
        if self.plans.is_empty() {
            return Ok(());
        }
        let index = self.prng.index(self.plans.len());
        let more = self.prng.below(3);
        for _ in 0..more {
            if !self.plans[index].executed() {
                let budget = self.prng.skewed(64);
                self.work(index, budget)?;
            }
        }
        let status = self.prng.pick(&STATUSES);
        let running = &self.plans[index];
        // The last step may have been done, and its failure is what is heard of it.
        let steps = running.steps.min(running.plan.steps.len().saturating_sub(1));
        let id = running.plan.request;
        if let Some(live) = self.live.get_mut(&id) {
            live.injected.push(status);
        }
        if running.plan.steps.iter().any(|step| matches!(step, Step::Commit(_))) {
            self.failed_commits.push((self.event, status));
        }
        self.report.failures += 1;
        self.hand_back(index, IoResult::failed(status, steps))
    }

    pub(super) fn hand_back(&mut self, index: usize, io: IoResult) -> Result<(), String> {
        let running = self.plans.swap_remove(index);
        let plan = running.plan;
        self.now = self.now.max(plan.not_before);
        if let Some(names) = &mut self.names {
            names.release(plan.id, &running.claim);
        }
        if plan.steps.iter().any(|step| matches!(step, Step::Commit(_))) {
            self.commits_fail = !io.status.is_ok();
        }
        if io.status.is_ok() {
            self.executed(&plan);
        }
        let id = plan.id.0;
        self.trace.line(|| format!("finish plan {id} {} after {} steps", io.status.name(), io.steps_done));
        self.call(|pool, now| pool.finish(now, plan, io))
    }
}

/// True when one of two plans of a volume in place copies from or to what the other one writes.
fn race_in_place(a: &Plan, b: &Plan) -> bool {
    let copies = |plan: &Plan| plan.steps.iter().any(|step| matches!(step, Step::Move { .. }));
    let writes = |plan: &Plan| plan.link.destination.map(|range| (plan.link.volume, range));
    let reads = |plan: &Plan| plan.link.source.filter(|_| copies(plan));
    let meet = |a: Option<(VolumeId, SectorRange)>, b: Option<(VolumeId, SectorRange)>| match (a, b) {
        (Some(a), Some(b)) => a.0 == b.0 && a.1.overlaps(b.1),
        (_, None) | (None, _) => false,
    };
    (copies(a) || copies(b))
        && (meet(writes(a), writes(b)) || meet(reads(a), writes(b)) || meet(reads(b), writes(a)))
}

/// What a piece of a step writes.
fn written(step: &Step, from: u64, to: u64) -> Option<StoreRange> {
    let start = match step {
        Step::Write { to, .. } => to.start,
        Step::Move { to, .. } => *to,
        Step::Zero { at, .. } | Step::Trim { at } => at.start,
        Step::Read { .. }
        | Step::ReadFlipped { .. }
        | Step::ReadZeroes { .. }
        | Step::Sync
        | Step::Commit(_) => return None,
    };
    let len = Sectors(to - from);
    Some(StoreRange { start: start + Sectors(from), len })
}
