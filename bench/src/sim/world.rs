//! A pool in virtual time. Its store and the host's memory hold one value a map block, so that contents can be checked.

use super::link::{Fabric, Wire};
use crate::pools::MAP_BLOCK;
use emulation::delayed::Delayed;
use emulation::emulated::Emulated;
use emulation::host::{Data, Emit};
use emulation::ledger::Ledger;
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::NoLog;
use emulation::timing::{Deadlines, Timing};
use emulation::{
    Bytes, Completion, Control, Flags, Instant, IoResult, Limits, Nanos, Next, Op, Out, Plan, Pool, PortKind,
    Request, RequestId, Sector, SectorRange, Sectors, Step, VolumeId,
};
use std::collections::{HashMap, VecDeque};

/// What the world's own requests, which take no time, are numbered from.
const OWN: u64 = 1 << 46;
/// Buffers of the host's memory: the numbers of buffers are taken modulo this.
const BUFFERS: u64 = 1 << 14;

/// What a request is answered with, and when.
#[derive(Debug)]
pub enum Happening {
    /// The host has an answer.
    Done(Instant, RequestId, Completion),
    /// An alarm of the host's.
    Alarm(Instant, u64),
}

/// In what order a disk does what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As its pool does: everything at once, copies link by link.
    Pool,
    /// Nothing else while it copies: each copy command is done whole.
    WholeCopies,
    /// One command after the other, each begun so much after the last one has ended.
    OneByOne(Nanos),
}

#[derive(Debug)]
enum Event {
    Arrive(RequestId),
    Begin(RequestId),
    /// Boxed, since it is much larger than the others.
    Finish(Box<Plan>),
    Answer(RequestId, Completion),
    Alarm(u64),
}

/// A request that lives.
#[derive(Debug)]
struct Live {
    /// Until the disk begins it.
    request: Option<Request>,
    is_copy: bool,
    /// What its answer puts on the wire.
    answer: u64,
    data: Data,
}

/// A disk with its link and its host's memory.
#[derive(Debug)]
pub struct World {
    pool: Pool,
    now: Instant,
    events: Deadlines<Event>,
    // Nobody goes through these, so that their order does not matter.
    live: HashMap<RequestId, Live>,
    bounce: HashMap<RequestId, Vec<u64>>,
    store: Vec<u64>,
    memory: Vec<Vec<u64>>,
    fabric: Option<Fabric>,
    order: Order,
    /// The request that others wait for.
    busy: Option<RequestId>,
    held: VecDeque<RequestId>,
    own: u64,
    requests: u64,
    damage: bool,
}

/// Sectors of a value.
const GRAIN: u64 = MAP_BLOCK.whole_sectors().0;

impl World {
    /// A disk of these volumes; each map block of volume v holds a value of its own. Nothing takes time.
    pub fn new(volumes: &[Limits]) -> Self {
        let all = Sectors(2 * volumes.iter().map(|limits| limits.capacity.0).sum::<u64>());
        let map_block = MAP_BLOCK.whole_sectors();
        let config = MappedConfig { map_block, cap: all, physical: all, cache: Cache::None, trim: false };
        let stack = Emulated::new(Box::new(Delayed::new(Box::new(Mapped::new(config)))));
        let mut world = Self {
            pool: Pool::new(Box::new(stack), Box::new(NoLog::default())),
            now: Instant::ORIGIN,
            events: Deadlines::default(),
            live: HashMap::new(),
            bounce: HashMap::new(),
            store: vec![0; blocks(all)],
            memory: vec![Vec::new(); BUFFERS as usize],
            fabric: None,
            order: Order::Pool,
            busy: None,
            held: VecDeque::new(),
            own: OWN,
            requests: 0,
            damage: false,
        };
        for (number, limits) in (0..).zip(volumes) {
            world.pool.control(Instant::ORIGIN, Control::AddVolume(VolumeId(number), limits.clone()));
            world.fill(VolumeId(number), limits);
            *world.pool.ledger(VolumeId(number)) = Ledger::default();
        }
        world.requests = 0;
        world
    }

    fn fill(&mut self, volume: VolumeId, limits: &Limits) {
        for start in (0..limits.capacity.0).step_by(limits.max_io.0 as usize) {
            let len = limits.max_io.0.min(limits.capacity.0 - start);
            let range = SectorRange { start: Sector(start), len: Sectors(len) };
            let values = (start / GRAIN..(start + len) / GRAIN).map(|block| Self::fresh(volume, block));
            self.memory[0] = values.collect();
            self.own_io(volume, Op::Write(range));
        }
    }

    /// What a map block of a volume holds at first.
    pub fn fresh(volume: VolumeId, block: u64) -> u64 {
        (u64::from(volume.0) + 1) << 40 | block
    }

    /// From now on volumes take time.
    pub fn set_timing(&mut self, timing: &Timing) {
        for volume in
            (0..).map(VolumeId).take_while(|volume| self.pool.limits(*volume).is_some()).collect::<Vec<_>>()
        {
            let out = self.pool.control(self.now, Control::SetTiming(volume, Some(Box::new(timing.clone()))));
            self.take(out);
        }
    }

    /// From now on requests take this way.
    pub fn set_fabric(&mut self, fabric: Fabric) {
        self.fabric = Some(fabric);
    }

    /// From now on requests are done in this order.
    pub fn set_order(&mut self, order: Order) {
        self.order = order;
    }

    /// From now on one block of each move and write inside is wrong: for a test of whoever checks contents.
    pub fn damage(&mut self) {
        self.damage = true;
    }

    /// The pool, for its ledger.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Requests that the disk was given so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// What the link carried so far.
    pub fn wire(&self) -> Wire {
        self.fabric.map_or_else(Wire::default, |fabric| fabric.wire)
    }

    /// Rings at `at`.
    pub fn alarm(&mut self, at: Instant, token: u64) {
        self.events.push(at, Event::Alarm(token));
    }

    /// The host sends a request now.
    pub fn submit(&mut self, emit: Emit) {
        let Emit { request, data } = emit;
        let (id, is_copy) = (request.id, matches!(request.op, Op::Copy(_)));
        let (at, answer) = match &mut self.fabric {
            Some(fabric) => fabric.send(self.now, &request.op),
            None => (self.now, 0),
        };
        let live = Live { request: Some(request), is_copy, answer, data };
        assert!(self.live.insert(id, live).is_none(), "{id:?} lives already");
        if at > self.now { self.events.push(at, Event::Arrive(id)) } else { self.arrive(id) }
    }

    /// What happens next; `None` when nothing will.
    pub fn step(&mut self) -> Option<Happening> {
        loop {
            let (at, event) = self.events.pop_due(Instant(u64::MAX))?;
            self.now = self.now.max(at);
            match event {
                Event::Arrive(id) => self.arrive(id),
                Event::Begin(id) => self.begin(id),
                Event::Finish(plan) => {
                    let io = IoResult::done(&plan);
                    let out = self.pool.finish(self.now, *plan, io);
                    self.take(out);
                }
                Event::Answer(id, completion) => return Some(Happening::Done(self.now, id, completion)),
                Event::Alarm(token) => return Some(Happening::Alarm(self.now, token)),
            }
        }
    }

    /// A request is at the disk.
    fn arrive(&mut self, id: RequestId) {
        if self.busy.is_some() {
            return self.held.push_back(id);
        }
        match self.order {
            Order::Pool => self.begin(id),
            Order::WholeCopies => {
                self.busy = self.live[&id].is_copy.then_some(id);
                self.begin(id);
            }
            Order::OneByOne(command) => {
                self.busy = Some(id);
                self.events.push(self.now + command, Event::Begin(id));
            }
        }
    }

    fn begin(&mut self, id: RequestId) {
        self.requests += 1;
        let request = self.live.get_mut(&id).and_then(|live| live.request.take()).expect("it begins once");
        let out = self.pool.begin(self.now, request);
        self.take(out);
    }

    fn take(&mut self, out: Out) {
        for (id, next) in out {
            match next {
                Next::Wait => {}
                Next::Run(plan) => {
                    self.execute(&plan);
                    let at = plan.not_before.max(self.now);
                    self.events.push(at, Event::Finish(Box::new(plan)));
                }
                Next::Done(completion) => self.done(id, completion),
            }
        }
    }

    fn done(&mut self, id: RequestId, completion: Completion) {
        if !self.bounce.is_empty() {
            self.bounce.remove(&id);
        }
        let Some(live) = self.live.remove(&id) else { return };
        let at = match &mut self.fabric {
            Some(fabric) => fabric.answer(self.now, live.answer),
            None => self.now,
        };
        self.events.push(at, Event::Answer(id, completion));
        if self.busy == Some(id) {
            self.busy = None;
            while self.busy.is_none()
                && let Some(next) = self.held.pop_front()
            {
                self.arrive(next);
            }
        }
    }

    /// Does the steps of a plan to the values.
    fn execute(&mut self, plan: &Plan) {
        for step in &plan.steps {
            match step {
                Step::Read { from, port } => {
                    let (start, len) = (block(from.start.0), blocks(from.len));
                    self.with_port(plan, *port, len, |place, store| {
                        place.copy_from_slice(&store[start..start + len]);
                    });
                }
                Step::ReadFlipped { .. } => panic!("an experiment has no faults: {step:?}"),
                Step::ReadZeroes { port, len } => {
                    self.with_port(plan, *port, blocks(*len), |place, _| place.fill(0));
                }
                Step::Write { port, to } => {
                    let (start, len) = (block(to.start.0), blocks(to.len));
                    let written = self.with_port(plan, *port, len, |place, store| {
                        store[start..start + len].copy_from_slice(place);
                    });
                    if !written {
                        self.store[start..start + len].fill(0);
                    }
                    self.harm(plan.port == PortKind::Bounce, start);
                }
                Step::Move { from, to, .. } => {
                    let (from, len) = (block(from.start.0), blocks(from.len));
                    self.store.copy_within(from..from + len, block(to.0));
                    self.harm(true, block(to.0));
                }
                Step::Zero { at, .. } => {
                    let start = block(at.start.0);
                    self.store[start..start + blocks(at.len)].fill(0);
                }
                Step::Trim { .. } | Step::Sync | Step::Commit(_) => {}
            }
        }
    }

    fn harm(&mut self, inside: bool, at: usize) {
        if self.damage && inside {
            self.store[at] ^= 1 << 63;
        }
    }

    /// Gives the place of a plan's port and the store. False without a place: zeroes are written, or nobody looks at what
    /// is read.
    fn with_port(
        &mut self,
        plan: &Plan,
        offset: Sectors,
        len: usize,
        f: impl FnOnce(&mut [u64], &mut [u64]),
    ) -> bool {
        let (buffer, start) = match plan.port {
            PortKind::Bounce => (self.bounce.entry(plan.request).or_default(), 0),
            PortKind::Door => match self.live.get(&plan.request).map(|live| live.data) {
                Some(Data::Buffer { id, offset }) => {
                    (&mut self.memory[(id.0 % BUFFERS) as usize], block(offset.0))
                }
                Some(Data::Zeroes | Data::None) => return false,
                // The world's own.
                None => (&mut self.memory[0], 0),
            },
            PortKind::None => panic!("{plan:?} has no port"),
        };
        let start = start + block(offset.0);
        if buffer.len() < start + len {
            buffer.resize(start + len, 0);
        }
        f(&mut buffer[start..start + len], &mut self.store);
        true
    }

    /// Does a request of the world's own at once and without the link. Its data are in buffer 0.
    fn own_io(&mut self, volume: VolumeId, op: Op) {
        self.own += 1;
        let id = RequestId(self.own);
        let mut todo = vec![self.pool.begin(self.now, Request { id, volume, op, flags: Flags::NONE })];
        while let Some(out) = todo.pop() {
            for (of, next) in out {
                match next {
                    Next::Run(plan) => {
                        self.execute(&plan);
                        let io = IoResult::done(&plan);
                        todo.push(self.pool.finish(self.now, plan, io));
                    }
                    Next::Done(completion) => {
                        assert!(of != id || completion.status.is_ok(), "{completion:?}")
                    }
                    Next::Wait => {}
                }
            }
        }
    }

    /// The size of a volume. Panics when there is none.
    pub fn capacity(&self, volume: VolumeId) -> Sectors {
        self.pool.limits(volume).expect("a volume").capacity
    }

    /// What a range of map blocks holds. Takes no time; nothing else may be under way.
    pub fn contents(&mut self, volume: VolumeId, range: SectorRange) -> Vec<u64> {
        assert!(self.live.is_empty(), "requests are under way");
        let most = self.pool.limits(volume).expect("a volume").max_io;
        let mut values = Vec::with_capacity(blocks(range.len));
        let mut done = Sectors::ZERO;
        while done < range.len {
            let piece = range.split_at(done).1.split_at(most).0;
            self.own_io(volume, Op::Read(piece));
            values.extend_from_slice(&self.memory[0][..blocks(piece.len)]);
            done += piece.len;
        }
        values
    }
}

/// The place of a sector among the values. Panics for one within a map block: experiments use whole ones.
fn block(sector: u64) -> usize {
    assert!(sector.is_multiple_of(GRAIN), "sector {sector} is within a map block");
    (sector / GRAIN) as usize
}

fn blocks(len: Sectors) -> usize {
    block(len.0)
}

/// The map blocks of so many bytes.
pub fn map_blocks(bytes: Bytes) -> u64 {
    bytes.0 / MAP_BLOCK.0
}
