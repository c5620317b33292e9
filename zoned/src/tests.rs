//! The layer over a real map, with plans executed when a test says so.
#![expect(clippy::cast_possible_truncation, reason = "small numbers index the port of a test")]
#![expect(clippy::disallowed_types, reason = "a test looks into the log that its pool has")]

use crate::Zoned;
use emulation::emulated::Emulated;
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::{Commit, Fill, Image, MapChange, NoLog, RedoLog, ZoneChange};
use emulation::request::ZoneAction;
use emulation::zone::{ZoneCondition, ZoneDescriptor, ZoneFailure, ZoneGeometry};
use emulation::{
    BlkStatus, Completion, Control, CopyCommand, CopyMode, CopySegment, Flags, Instant, IoResult, Limits,
    Next, Op, Out, Plan, Pool, Request, RequestId, Sector, SectorRange, Sectors, Step, VolumeId,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

mod copies;
mod durable;
mod power;
mod rules;

/// Sectors of a zone, and of its capacity.
const SIZE: u64 = 128;
const CAPACITY: u64 = 96;
/// Zones of a volume, the first one conventional.
const ZONES: u64 = 16;
const V: VolumeId = VolumeId(0);
/// A volume without zones.
const PLAIN: VolumeId = VolumeId(1);

fn geometry() -> ZoneGeometry {
    ZoneGeometry {
        capacity: Sectors(CAPACITY),
        conventional: 1,
        max_append: Sectors(32),
        ..ZoneGeometry::new(Sectors(SIZE))
    }
}

fn config(cache: Cache) -> MappedConfig {
    MappedConfig {
        map_block: Sectors(8),
        cap: Sectors(1 << 16),
        physical: Sectors(1 << 17),
        cache,
        trim: false,
    }
}

const VOLATILE: Cache = Cache::Volatile { held_max: Sectors(1 << 20) };

/// What a log was told.
#[derive(Debug, Default)]
struct Told {
    last: u64,
    zones: Vec<(u64, ZoneChange)>,
    full: bool,
}

#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Told>>);

impl RedoLog for Log {
    fn append(&mut self, _change: &MapChange) -> u64 {
        let mut told = self.0.lock().unwrap();
        told.last += 1;
        told.last
    }

    fn append_zone(&mut self, change: &ZoneChange) -> u64 {
        let mut told = self.0.lock().unwrap();
        assert!(!told.full, "no room for {change:?}");
        told.last += 1;
        let last = told.last;
        told.zones.push((last, *change));
        last
    }

    fn fill(&self) -> Fill {
        if self.0.lock().unwrap().full { Fill::Full } else { Fill::Low }
    }

    fn room(&self) -> u64 {
        match self.fill() {
            Fill::Full => 0,
            Fill::Low | Fill::Half => u64::MAX,
        }
    }

    fn last(&self) -> u64 {
        self.0.lock().unwrap().last
    }

    fn committed(&mut self, _sequence: u64) {
        self.0.lock().unwrap().full = false;
    }
}

/// A pool with one stamp a sector.
struct Disk {
    pool: Pool,
    log: Log,
    store: BTreeMap<u64, u64>,
    commits: Vec<Commit>,
    answers: BTreeMap<RequestId, Completion>,
    /// Plans handed out and not executed.
    plans: Vec<Plan>,
    ports: BTreeMap<RequestId, Vec<u64>>,
    next: u64,
}

impl Disk {
    fn new(change: impl FnOnce(&mut ZoneGeometry)) -> Self {
        Self::with_cache(Cache::None, false, change)
    }

    fn with_cache(cache: Cache, write_through: bool, change: impl FnOnce(&mut ZoneGeometry)) -> Self {
        let mut zones = geometry();
        change(&mut zones);
        let zoned = Zoned::new(Box::new(Mapped::new(config(cache))), write_through);
        let mut limits = Limits::new(Sectors(ZONES * SIZE), Sectors(1), Sectors(8));
        limits.zones = Some(zones);
        limits.validate().unwrap();
        let mut disk = Self::over(zoned, Log::default());
        disk.pool.control(Instant::ORIGIN, Control::AddVolume(V, limits));
        let plain = Limits::new(Sectors(ZONES * SIZE), Sectors(1), Sectors(8));
        disk.pool.control(Instant::ORIGIN, Control::AddVolume(PLAIN, plain));
        disk
    }

    fn over(zoned: Zoned, log: Log) -> Self {
        Self {
            pool: Pool::new(Box::new(Emulated::new(Box::new(zoned))), Box::new(log.clone())),
            log,
            store: BTreeMap::new(),
            commits: Vec::new(),
            answers: BTreeMap::new(),
            plans: Vec::new(),
            ports: BTreeMap::new(),
            next: 0,
        }
    }

    fn set(&mut self, change: impl FnOnce(&mut Limits)) {
        let mut limits = self.pool.limits(V).unwrap().clone();
        change(&mut limits);
        self.pool.control(Instant::ORIGIN, Control::SetLimits(V, limits));
    }

    fn fail_zone(&mut self, zone: u64, failure: ZoneFailure) {
        let out = self.pool.control(Instant::ORIGIN, Control::FailZone(V, Sector(zone * SIZE), failure));
        self.take(out);
    }

    /// Begins a request on a volume; its port holds stamps from `stamp` on.
    fn begin_on(&mut self, volume: VolumeId, op: Op, flags: Flags, stamp: u64) -> RequestId {
        self.next += 1;
        let id = RequestId(self.next);
        let len = if let Op::Read(range) | Op::Write(range) = &op { range.len.0 } else { 512 };
        self.ports.insert(id, (stamp..stamp + len).collect());
        let out = self.pool.begin(Instant::ORIGIN, Request { id, volume, op, flags });
        assert!(out.iter().any(|(named, _)| *named == id), "{id:?} is not named by its begin");
        self.take(out);
        id
    }

    fn begin(&mut self, op: Op, flags: Flags, stamp: u64) -> RequestId {
        self.begin_on(V, op, flags, stamp)
    }

    fn take(&mut self, out: Out) {
        for (id, next) in out {
            match next {
                Next::Done(completion) => assert!(self.answers.insert(id, completion).is_none()),
                Next::Run(plan) => self.plans.push(plan),
                Next::Wait => {}
            }
        }
        self.pool.check().unwrap();
    }

    /// Executes the plan that a request has, or fails it.
    fn step(&mut self, id: RequestId, fail: Option<BlkStatus>) {
        let at = self.plans.iter().position(|plan| plan.request == id).expect("it has a plan");
        let plan = self.plans.remove(at);
        let io = match fail {
            Some(status) => IoResult::failed(status, 0),
            None => self.execute(&plan),
        };
        let out = self.pool.finish(Instant::ORIGIN, plan, io);
        self.take(out);
    }

    /// Executes everything there is to execute; gives how one request ended.
    fn end(&mut self, id: RequestId) -> Completion {
        self.drain();
        self.answers.remove(&id).expect("it is answered")
    }

    fn drain(&mut self) {
        for _ in 0..10_000 {
            let Some(plan) = self.plans.first() else { return };
            self.step(plan.request, None);
        }
        panic!("plans without end");
    }

    fn execute(&mut self, plan: &Plan) -> IoResult {
        let mut port = self.ports.remove(&plan.request).unwrap_or_default();
        for step in &plan.steps {
            match step {
                Step::Read { from, port: at } => {
                    (0..from.len.0).for_each(|i| port[(at.0 + i) as usize] = self.store[&(from.start.0 + i)])
                }
                Step::ReadFlipped { .. } => panic!("no fault was asked for"),
                Step::ReadZeroes { port: at, len } => port[at.0 as usize..(at.0 + len.0) as usize].fill(0),
                Step::Write { port: at, to } => (0..to.len.0).for_each(|i| {
                    self.store.insert(to.start.0 + i, port[(at.0 + i) as usize]);
                }),
                Step::Move { from, to, .. } => (0..from.len.0).for_each(|i| {
                    let value = self.store[&(from.start.0 + i)];
                    self.store.insert(to.0 + i, value);
                }),
                Step::Zero { at, .. } => (0..at.len.0).for_each(|i| {
                    self.store.insert(at.start.0 + i, 0);
                }),
                Step::Trim { .. } | Step::Sync => {}
                Step::Commit(commit) => self.commits.push((**commit).clone()),
            }
        }
        self.ports.insert(plan.request, port);
        IoResult::done(plan)
    }

    fn run(&mut self, op: Op, flags: Flags) -> Completion {
        let id = self.begin(op, flags, 0);
        self.end(id)
    }

    /// Writes stamps from `stamp` on.
    fn write(&mut self, start: u64, len: u64, stamp: u64) -> BlkStatus {
        let id = self.begin(Op::Write(range(start, len)), Flags::NONE, stamp);
        self.end(id).status
    }

    fn append(&mut self, zone: u64, len: u64, stamp: u64) -> Completion {
        let id = self.begin(Op::Write(range(zone * SIZE, len)), Flags::APPEND, stamp);
        self.end(id)
    }

    fn read(&mut self, start: u64, len: u64) -> Vec<u64> {
        let id = self.begin(Op::Read(range(start, len)), Flags::NONE, 7_777_777);
        assert_eq!(self.end(id).status, BlkStatus::Ok);
        self.ports.remove(&id).unwrap()
    }

    fn act(&mut self, zone: u64, action: ZoneAction) -> BlkStatus {
        self.run(Op::ZoneMgmt { zone: Sector(zone * SIZE), action }, Flags::NONE).status
    }

    fn begin_copy(&mut self, flags: Flags, segments: &[(u64, u64, u64)]) -> RequestId {
        let segment = |&(source, len, to): &(u64, u64, u64)| CopySegment {
            source_volume: V,
            source: range(source, len),
            destination: Sector(to),
        };
        let segments = segments.iter().map(segment).collect();
        self.begin(Op::Copy(CopyCommand { segments }), flags, 0)
    }

    fn copy(&mut self, flags: Flags, segments: &[(u64, u64, u64)]) -> Completion {
        let id = self.begin_copy(flags, segments);
        self.end(id)
    }

    fn report(&mut self) -> Vec<ZoneDescriptor> {
        // Whatever is under way stays so.
        let id = self.begin(Op::ReportZones { from: Sector(0), max: u32::MAX }, Flags::NONE, 0);
        self.answers.remove(&id).expect("a report ends at once").zones
    }

    /// The condition and the pointer of a zone, from its start.
    fn zone(&mut self, zone: u64) -> (ZoneCondition, u64) {
        let zone = self.report()[zone as usize];
        (zone.condition, zone.wp.0 - zone.start.0)
    }

    fn conditions(&mut self, zones: std::ops::Range<u64>) -> Vec<ZoneCondition> {
        zones.map(|zone| self.zone(zone).0).collect()
    }
}

fn range(start: u64, len: u64) -> SectorRange {
    SectorRange { start: Sector(start), len: Sectors(len) }
}

fn stamps(first: u64, len: u64) -> Vec<u64> {
    (first..first + len).collect()
}

/// A zone's sector.
fn at(zone: u64, offset: u64) -> u64 {
    zone * SIZE + offset
}
