//! When things end: each plan of a volume with a timing model is given the instant before which it may not be
//! finished. What needs no plan is given an empty one to wait with. The bytes move at the machine's own speed; whoever executes
//! plans keeps them back until [`Plan::not_before`], so the next link of a chain enters the lines when the last
//! one has ended, behind whatever came meanwhile.

use crate::device::{
    BlockDevice, Completion, Control, Cx, IoResult, Link, Next, Out, Plan, PlanId, PortKind, Usage,
};
use crate::limits::Limits;
use crate::redo::RedoLog;
use crate::request::{Flags, Request, RequestId, VolumeId};
use crate::status::BlkStatus;
use crate::time::Instant;
use crate::timing::{Command, Model, Timing};
use crate::units::{SectorRange, Sectors};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The plans of this layer have numbers from here on; layers below count from 1.
const OWN_PLANS: u64 = 1 << 63;

/// The layer that takes time.
#[derive(Debug)]
pub struct Delayed {
    inner: Box<dyn BlockDevice>,
    models: Vec<Option<Model>>,
    /// Requests for volumes with a model.
    live: BTreeMap<RequestId, Live>,
    /// What the requests behind this layer's own plans end with.
    answers: BTreeMap<PlanId, Completion>,
    own_plans: u64,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    volume: VolumeId,
    command: Command,
    inside: bool,
    /// It was given a plan, and with that its latency.
    charged: bool,
}

impl Delayed {
    /// The layer over `inner`. No volume has a model.
    pub fn new(inner: Box<dyn BlockDevice>) -> Self {
        Self {
            inner,
            models: Vec::new(),
            live: BTreeMap::new(),
            answers: BTreeMap::new(),
            own_plans: OWN_PLANS,
        }
    }

    fn model(&mut self, volume: VolumeId) -> Option<&mut Model> {
        self.models.get_mut(volume.index())?.as_mut()
    }

    fn set(&mut self, volume: VolumeId, timing: Option<Box<Timing>>) {
        let span = self.inner.limits(volume).map_or(Sectors::ZERO, |limits| limits.capacity);
        if self.models.len() <= volume.index() {
            self.models.resize(volume.index() + 1, None);
        }
        self.models[volume.index()] = timing.map(|timing| Model::new(*timing, span));
    }

    fn route(&mut self, now: Instant, answers: Out) -> Out {
        if self.live.is_empty() && self.models.iter().all(Option::is_none) {
            return answers;
        }
        answers.into_iter().map(|(id, next)| (id, self.next(now, id, next))).collect()
    }

    fn next(&mut self, now: Instant, id: RequestId, next: Next) -> Next {
        match next {
            Next::Wait => Next::Wait,
            Next::Run(mut plan) => {
                let live = self.live.get_mut(&id);
                let first = live.as_ref().filter(|live| !live.charged).map(|live| live.command);
                let volume = live.as_ref().map_or(plan.link.volume, |live| live.volume);
                let inside = live.as_ref().is_none_or(|live| live.inside);
                if let Some(live) = live {
                    live.charged = true;
                }
                if let Some(model) = self.model(volume) {
                    plan.not_before = plan.not_before.max(model.plan(now, first, inside, &plan));
                }
                Next::Run(plan)
            }
            Next::Done(completion) => {
                let Some(live) = self.live.remove(&id) else { return Next::Done(completion) };
                if live.charged || !completion.status.is_ok() {
                    return Next::Done(completion);
                }
                let at = self.model(live.volume).and_then(|m| m.answer(now, live.command, live.inside));
                match at {
                    Some(at) => Next::Run(self.wait(id, live.volume, at, completion)),
                    None => Next::Done(completion),
                }
            }
        }
    }

    fn wait(&mut self, request: RequestId, volume: VolumeId, at: Instant, answer: Completion) -> Plan {
        self.own_plans += 1;
        let id = PlanId(self.own_plans);
        self.answers.insert(id, answer);
        let link = Link { volume, source: None, destination: None };
        Plan { id, request, port: PortKind::None, not_before: at, link, steps: SmallVec::new() }
    }
}

impl BlockDevice for Delayed {
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
        if self.model(request.volume).is_some() {
            let live = Live {
                volume: request.volume,
                command: Command::of(&request.op),
                inside: request.flags.has(Flags::INSIDE),
                charged: false,
            };
            self.live.insert(request.id, live);
        }
        let inner = self.inner.begin(cx, request);
        self.route(cx.now, inner)
    }

    fn finish(&mut self, cx: &mut Cx<'_>, plan: Plan, io: IoResult) -> Out {
        // One that is finished early belongs to a volume that is being taken away.
        if plan.not_before > Instant::ORIGIN && cx.now >= plan.not_before {
            cx.ledgers.lateness.record(plan.not_before, cx.now);
        }
        if let Some(answer) = self.answers.remove(&plan.id) {
            let completion = if io.status.is_ok() { answer } else { Completion::refused(io.status) };
            return smallvec::smallvec![(plan.request, Next::Done(completion))];
        }
        let inner = self.inner.finish(cx, plan, io);
        self.route(cx.now, inner)
    }

    fn abort(&mut self, cx: &mut Cx<'_>, id: RequestId) -> Out {
        let inner = self.inner.abort(cx, id);
        self.route(cx.now, inner)
    }

    fn wake(&mut self, cx: &mut Cx<'_>) -> (Out, Option<Instant>) {
        let (inner, next) = self.inner.wake(cx);
        (self.route(cx.now, inner), next)
    }

    fn control(&mut self, cx: &mut Cx<'_>, control: Control) -> Out {
        match &control {
            Control::SetTiming(volume, timing) => self.set(*volume, timing.clone()),
            Control::AddVolume(volume, _) | Control::RemoveVolume(volume) => self.set(*volume, None),
            Control::SetLimits(..) | Control::FailZone(..) | Control::PowerCut(..) => {}
        }
        let inner = self.inner.control(cx, control);
        self.route(cx.now, inner)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn check(&self) -> Result<(), String> {
        self.inner.check()
    }
}

#[cfg(test)]
mod tests;
