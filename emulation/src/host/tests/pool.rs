//! The same disks as volumes of a real pool, every plan executed at once.

use super::contents::fresh;
use crate::device::{Completion, Control, IoResult, Next, Out, Plan, PortKind, Step};
use crate::emulated::Emulated;
use crate::host::{BufferId, Data, Emit};
use crate::limits::Limits;
use crate::mapped::{Cache, Mapped, MappedConfig};
use crate::pool::Pool;
use crate::redo::NoLog;
use crate::request::{Flags, Op, Request, RequestId, VolumeId};
use crate::time::Instant;
use crate::units::{Sector, SectorRange, Sectors};
use std::collections::BTreeMap;

const NOW: Instant = Instant::ORIGIN;
/// Requests of the test itself are numbered from here on.
const OWN: u64 = 1 << 40;

/// A pool, its store and the host's buffers: one value a sector, by place.
pub(crate) struct PoolDisks {
    pool: Pool,
    store: BTreeMap<u64, u64>,
    buffers: BTreeMap<(BufferId, u64), u64>,
    own: u64,
}

impl PoolDisks {
    pub(crate) fn new(disks: impl Iterator<Item = (VolumeId, Limits)>) -> Self {
        let config = MappedConfig {
            map_block: Sectors(8),
            cap: Sectors(1 << 16),
            physical: Sectors(1 << 17),
            cache: Cache::None,
            trim: false,
        };
        let device = Emulated::new(Box::new(Mapped::new(config)));
        let mut pool = Self {
            pool: Pool::new(Box::new(device), Box::new(NoLog::default())),
            store: BTreeMap::new(),
            buffers: BTreeMap::new(),
            own: OWN,
        };
        for (volume, limits) in disks {
            limits.validate().unwrap();
            let (capacity, most) = (limits.capacity.0, limits.max_io.0);
            pool.pool.control(NOW, Control::AddVolume(volume, limits));
            for start in (0..capacity).step_by(usize::try_from(most).unwrap()) {
                let len = most.min(capacity - start);
                for offset in 0..len {
                    pool.buffers.insert((BufferId(OWN), offset), fresh(volume, start + offset));
                }
                pool.own_io(volume, Op::Write(SectorRange { start: Sector(start), len: Sectors(len) }));
            }
        }
        pool
    }

    fn own_io(&mut self, volume: VolumeId, op: Op) {
        self.own += 1;
        let request = Request { id: RequestId(self.own), volume, op, flags: Flags::NONE };
        let data = Data::Buffer { id: BufferId(OWN), offset: Sectors::ZERO };
        let completion = self.execute(&Emit { request, data });
        assert!(completion.status.is_ok(), "{completion:?}");
    }

    /// What a volume holds.
    pub(crate) fn read(&mut self, volume: VolumeId, limits: &Limits) -> Vec<u64> {
        let mut contents = Vec::new();
        for start in (0..limits.capacity.0).step_by(usize::try_from(limits.max_io.0).unwrap()) {
            let len = limits.max_io.0.min(limits.capacity.0 - start);
            self.own_io(volume, Op::Read(SectorRange { start: Sector(start), len: Sectors(len) }));
            contents.extend((0..len).map(|offset| self.buffers[&(BufferId(OWN), offset)]));
        }
        contents
    }

    pub(crate) fn execute(&mut self, emit: &Emit) -> Completion {
        let mut answers: Vec<(RequestId, Next)> =
            self.pool.begin(NOW, emit.request.clone()).into_iter().collect();
        while let Some((id, next)) = answers.pop() {
            match next {
                Next::Done(completion) if id == emit.request.id => return completion,
                Next::Done(_) => {}
                Next::Wait => panic!("nobody else is there"),
                Next::Run(plan) => {
                    self.steps(&plan, emit.data);
                    let io = IoResult::done(&plan);
                    let out: Out = self.pool.finish(NOW, plan, io);
                    answers.extend(out);
                }
            }
        }
        panic!("{emit:?} is not answered");
    }

    fn steps(&mut self, plan: &Plan, data: Data) {
        let place = |port: Sectors| match (plan.port, data) {
            (PortKind::Door, Data::Buffer { id, offset }) => (id, (offset + port).0),
            (PortKind::Bounce, _) => (BufferId(u64::MAX), port.0),
            (PortKind::Door | PortKind::None, _) => panic!("{plan:?} has no port"),
        };
        for step in &plan.steps {
            match step {
                Step::Read { from, port } => {
                    let (id, start) = place(*port);
                    for at in 0..from.len.0 {
                        self.buffers.insert((id, start + at), self.store[&(from.start.0 + at)]);
                    }
                }
                Step::ReadFlipped { .. } => panic!("no fault was asked for"),
                Step::ReadZeroes { port, len } => {
                    let (id, start) = place(*port);
                    self.buffers.extend((0..len.0).map(|at| ((id, start + at), 0)));
                }
                Step::Write { port, to } => {
                    let (id, start) = place(*port);
                    for at in 0..to.len.0 {
                        let value = self.buffers[&(id, start + at)];
                        self.store.insert(to.start.0 + at, value);
                    }
                }
                Step::Move { from, to, .. } => {
                    for at in 0..from.len.0 {
                        let value = self.store[&(from.start.0 + at)];
                        self.store.insert(to.0 + at, value);
                    }
                }
                Step::Zero { at, .. } => {
                    self.store.extend((at.start.0..at.start.0 + at.len.0).map(|sector| (sector, 0)));
                }
                Step::Trim { .. } | Step::Sync | Step::Commit(_) => {}
            }
        }
    }
}
