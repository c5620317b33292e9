//! A pool as its owner holds it: the device, its log and its ledgers, behind the owner's one lock.

use crate::device::{BlockDevice, Completion, Control, Cx, IoResult, Next, Out, Plan, Usage};
use crate::fault::{FaultError, FaultRule, Faulty, RuleState};
use crate::ledger::{Ledger, Ledgers};
use crate::limits::{self, Limits};
use crate::redo::RedoLog;
use crate::request::{Request, RequestId, VolumeId};
use crate::time::Instant;
use crate::timing::Lateness;
use smallvec::smallvec;

/// A pool of volumes.
#[derive(Debug)]
pub struct Pool {
    device: Faulty,
    log: Box<dyn RedoLog>,
    ledgers: Ledgers,
}

impl Pool {
    /// A pool over the top of a stack of layers, with the layer of faults above it.
    pub fn new(device: Box<dyn BlockDevice>, log: Box<dyn RedoLog>) -> Self {
        Self { device: Faulty::new(device), log, ledgers: Ledgers::default() }
    }

    /// Begins a request: the one place where requests are admitted.
    pub fn begin(&mut self, now: Instant, request: Request) -> Out {
        assert!(!request.id.is_internal(), "{:?} is a number of the device's own", request.id);
        if let Err(status) = limits::admit(|volume| self.device.limits(volume), &request) {
            return smallvec![(request.id, Next::Done(Completion::refused(status)))];
        }
        self.ledgers.of(request.volume).begun(&request.op);
        let (device, mut cx) = self.parts(now);
        device.begin(&mut cx, request)
    }

    /// Takes back a plan, executed or not, and counts the steps that were done.
    pub fn finish(&mut self, now: Instant, plan: Plan, io: IoResult) -> Out {
        self.ledgers.of(plan.link.volume).executed(&plan, io);
        let (device, mut cx) = self.parts(now);
        device.finish(&mut cx, plan, io)
    }

    /// Asks for the early end of a request.
    pub fn abort(&mut self, now: Instant, id: RequestId) -> Out {
        let (device, mut cx) = self.parts(now);
        device.abort(&mut cx, id)
    }

    /// Does what is due and says when it wants to be called again.
    pub fn wake(&mut self, now: Instant) -> (Out, Option<Instant>) {
        let (device, mut cx) = self.parts(now);
        device.wake(&mut cx)
    }

    /// Changes the pool. The limits of the change have been validated.
    pub fn control(&mut self, now: Instant, control: Control) -> Out {
        if let Control::AddVolume(volume, _) = control {
            *self.ledgers.of(volume) = Ledger::default();
        }
        let (device, mut cx) = self.parts(now);
        device.control(&mut cx, control)
    }

    /// Adds a rule of faults to a volume.
    ///
    /// # Errors
    /// The rule cannot be, or there is one of its name.
    pub fn add_fault(&mut self, volume: VolumeId, rule: FaultRule) -> Result<(), FaultError> {
        self.device.add(volume, rule)
    }

    /// Removes a rule of a volume, all of them without a name; gives the answers of what hung by it. `None` when there
    /// is no such rule.
    pub fn remove_faults(&mut self, volume: VolumeId, name: Option<&str>) -> Option<Out> {
        self.device.remove(volume, name)
    }

    /// The rules of a volume, each with the requests that it keeps from being answered.
    pub fn faults(&self, volume: VolumeId) -> impl Iterator<Item = (&RuleState, Vec<RequestId>)> + '_ {
        self.device.rules(volume).iter().map(|state| (state, self.device.hung(state)))
    }

    /// True when the power of a volume was cut by a rule since [`Pool::take_power_cuts`].
    pub fn has_power_cuts(&self) -> bool {
        self.device.has_cuts()
    }

    /// The volumes whose power rules have cut since the last call: what a host has cached of them is stale.
    pub fn take_power_cuts(&mut self) -> Vec<VolumeId> {
        self.device.take_cuts()
    }

    /// The limits of a volume.
    pub fn limits(&self, volume: VolumeId) -> Option<&Limits> {
        self.device.limits(volume)
    }

    /// The counters of a volume. A door adds what only it can see.
    pub fn ledger(&mut self, volume: VolumeId) -> &mut Ledger {
        self.ledgers.of(volume)
    }

    /// How well the deadlines of the timing models were kept.
    pub fn lateness(&self) -> &Lateness {
        &self.ledgers.lateness
    }

    /// How the store's space is used.
    pub fn usage(&self) -> Usage {
        self.device.usage()
    }

    /// Checks every invariant of the device. Slow: for simulations and tests.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        self.device.check()
    }

    fn parts(&mut self, now: Instant) -> (&mut Faulty, Cx<'_>) {
        (&mut self.device, Cx { now, log: self.log.as_mut(), ledgers: &mut self.ledgers })
    }
}
