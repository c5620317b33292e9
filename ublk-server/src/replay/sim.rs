//! A trace against the model of a disk, in virtual time. No byte is moved.

use super::{Action, Planned};
use emulation::delayed::Delayed;
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::NoLog;
use emulation::timing::{Deadlines, Timing};
use emulation::{
    BlockDevice, Bytes, Completion, Control, Flags, Instant, IoResult, Limits, Nanos, Next, Op, Out, Plan,
    Pool, Request, RequestId, Sector, SectorRange, Sectors, VolumeId,
};
use std::collections::HashMap;

const VOLUME: VolumeId = VolumeId(0);
const MAP_BLOCK: Sectors = Bytes::kib(4).whole_sectors();

/// A disk in virtual time.
#[derive(Debug)]
pub struct Sim {
    pool: Pool,
    now: Instant,
    plans: Deadlines<Plan>,
    /// Requests under way: when they began, and what they are.
    live: HashMap<RequestId, (Instant, Planned)>,
    next: u64,
    max_io: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The request.
    pub request: Planned,
    /// From its begin to its end.
    pub latency: Nanos,
    /// It was done.
    pub ok: bool,
}

impl Sim {
    /// A thin disk of `size` bytes, whole blocks of 4 KiB, that takes so long.
    pub fn new(size: u64, timing: Option<Box<Timing>>) -> Self {
        let capacity = Bytes(size).whole_sectors();
        let physical = Sectors(capacity.0.saturating_mul(2));
        let config =
            MappedConfig { map_block: MAP_BLOCK, cap: physical, physical, cache: Cache::None, trim: false };
        let device: Box<dyn BlockDevice> = Box::new(Delayed::new(Box::new(Mapped::new(config))));
        let mut pool = Pool::new(device, Box::new(NoLog::default()));
        let limits = Limits::new(capacity, Sectors(1), MAP_BLOCK);
        let max_io = limits.max_io.bytes().0;
        pool.control(Instant::ORIGIN, Control::AddVolume(VOLUME, limits));
        pool.control(Instant::ORIGIN, Control::SetTiming(VOLUME, timing));
        Self {
            pool,
            now: Instant::ORIGIN,
            plans: Deadlines::default(),
            live: HashMap::new(),
            next: 0,
            max_io,
        }
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.live.len()
    }

    /// The longest request; longer ones come in parts.
    pub fn max_io(&self) -> u64 {
        self.max_io
    }

    /// Lets everything happen that happens up to `at`, and begins a request then, or now if that is past.
    pub fn begin(&mut self, at: Instant, request: Planned, ended: &mut impl FnMut(Ended)) {
        self.run_until(at, ended);
        self.now = self.now.max(at);
        self.next += 1;
        let id = RequestId(self.next);
        let sectors = |bytes: u64| Bytes(bytes).whole_sectors();
        let range = SectorRange { start: Sector(sectors(request.offset).0), len: sectors(request.length) };
        let op = match request.action {
            Action::Read => Op::Read(range),
            Action::Write => Op::Write(range),
            Action::Discard => Op::Discard(range),
            Action::Flush => Op::Flush,
        };
        self.live.insert(id, (self.now, request));
        let out = self.pool.begin(self.now, Request { id, volume: VOLUME, op, flags: Flags::NONE });
        self.take(out, ended);
    }

    /// Lets the next thing happen; false when nothing is under way.
    pub fn step(&mut self, ended: &mut impl FnMut(Ended)) -> bool {
        match self.plans.pop_due(Instant(u64::MAX)) {
            Some((at, plan)) => {
                self.finish(at, plan, ended);
                true
            }
            None => false,
        }
    }

    fn run_until(&mut self, end: Instant, ended: &mut impl FnMut(Ended)) {
        while let Some((at, plan)) = self.plans.pop_due(end) {
            self.finish(at, plan, ended);
        }
    }

    fn finish(&mut self, at: Instant, plan: Plan, ended: &mut impl FnMut(Ended)) {
        self.now = self.now.max(at);
        let io = IoResult::done(&plan);
        let out = self.pool.finish(self.now, plan, io);
        self.take(out, ended);
    }

    fn take(&mut self, out: Out, ended: &mut impl FnMut(Ended)) {
        for (id, next) in out {
            match next {
                Next::Wait => {}
                Next::Run(plan) => self.plans.push(plan.not_before.max(self.now), plan),
                Next::Done(Completion { status, .. }) => {
                    // The device's own work is nobody's.
                    if let Some((begun, request)) = self.live.remove(&id) {
                        let latency = Nanos(self.now.0 - begun.0);
                        ended(Ended { request, latency, ok: status.is_ok() });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulation::timing::{Latencies, Latency};

    #[test]
    fn requests_end_when_the_model_says() {
        let read = Latency::Fixed(Nanos(80_000));
        let latency = Latencies { read, ..Latencies::default() };
        let mut sim = Sim::new(1 << 30, Some(Box::new(Timing { latency, ..Timing::default() })));
        let mut ends = Vec::new();
        let planned = |action, offset| Planned { at: Nanos(0), action, offset, length: 4096 };
        let mut ended = |end: Ended| ends.push((end.request.action, end.latency.0, end.ok));
        sim.begin(Instant(0), planned(Action::Read, 0), &mut ended);
        sim.begin(Instant(1_000), planned(Action::Write, 4096), &mut ended);
        assert_eq!(sim.under_way(), 2);
        sim.begin(Instant(90_000), planned(Action::Discard, 0), &mut ended);
        while sim.step(&mut ended) {}
        assert_eq!(
            ends,
            [(Action::Write, 0, true), (Action::Read, 80_000, true), (Action::Discard, 0, true)]
        );
    }
}
