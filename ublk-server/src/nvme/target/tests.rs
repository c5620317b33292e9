//! Tests of the target without sockets: hosts and connections in memory, a real pool behind them.

mod admin;
mod hostile;
mod io;
mod zones;

use super::*;
use crate::engine::Engine;
use crate::nvme::client::{Done, HostOptions, HostQueue, QueueError, Transfer};
use crate::nvme::wire::command::Sqe;
use crate::nvme::wire::fabrics::{CNTLID_DYNAMIC, Property, PropertyFields, cc};
use crate::store::Store;
use emulation::emulated::Emulated;
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::NoLog;
use emulation::{Bytes, Control, Instant, Limits, Pool, Sectors, VolumeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zoned::Zoned;

const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-8000-8000-000000000000";
const CAPACITY: Bytes = Bytes::mib(64);

fn limits() -> Limits {
    Limits::new(CAPACITY.whole_sectors(), Sectors(1), Sectors(8))
}

/// One side each of a connection.
struct Pair {
    controller: Connection,
    host: HostQueue,
    error: Option<QueueError>,
}

/// A target, its pool, and hosts.
struct Rig {
    target: Target,
    engine: Arc<Engine>,
    runtime: tokio::runtime::Runtime,
    pairs: BTreeMap<ConnectionId, Pair>,
    closed: Vec<ConnectionId>,
    now: Instant,
    next: u64,
    /// Bytes that go over at a time.
    step: usize,
    limits: ConnectionLimits,
}

impl Rig {
    fn new() -> Self {
        Self::with(&[])
    }

    /// A subsystem of two namespaces of 64 MiB; only these hosts may connect, unless there are none.
    fn with(hosts: &[&str]) -> Self {
        let physical = Sectors(4 * CAPACITY.whole_sectors().0);
        let config =
            MappedConfig { map_block: Sectors(8), cap: physical, physical, cache: Cache::None, trim: true };
        let stack = Zoned::new(Box::new(Mapped::new(config)), true);
        let pool = Pool::new(Box::new(Emulated::new(Box::new(stack))), Box::new(NoLog::default()));
        let engine = Engine::new(pool, Store::ram(physical).unwrap(), None).unwrap();
        let mut target = Target::new(SubsystemConfig {
            nqn: NQN.to_string(),
            serial: "0123456789abcdef".to_string(),
            firmware: "1.0".to_string(),
            allow_hosts: hosts.iter().map(|host| (*host).to_string()).collect::<BTreeSet<_>>(),
            volatile_cache: false,
            queues_max: 4,
            controllers_max: 8,
            portals: vec!["127.0.0.1:4420".parse().unwrap(), "0.0.0.0:4421".parse().unwrap()],
        });
        for volume in [VolumeId(0), VolumeId(1)] {
            engine.control(Control::AddVolume(volume, limits()));
            target.add_namespace(volume, &format!("disk{}", volume.0), limits(), &mut Vec::new());
        }
        Self {
            target,
            engine,
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
            pairs: BTreeMap::new(),
            closed: Vec::new(),
            now: Instant(1),
            next: 0,
            step: 4096,
            limits: ConnectionLimits::default(),
        }
    }

    /// A connection up to ICResp.
    fn open(&mut self, options: &HostOptions) -> ConnectionId {
        self.next += 1;
        let id = ConnectionId(self.next);
        let pair = Pair {
            controller: Connection::new(self.limits),
            host: HostQueue::new(options.queue),
            error: None,
        };
        self.pairs.insert(id, pair);
        self.pump();
        assert!(self.pairs[&id].host.is_ready());
        id
    }

    /// An enabled controller: its admin connection and its number.
    fn host(&mut self, options: &HostOptions) -> (ConnectionId, u16) {
        let id = self.open(options);
        let (sqe, data) = options.connect(0, CNTLID_DYNAMIC);
        let done = self.run(id, sqe, data);
        assert_eq!(done.status(), Status::SUCCESS);
        let enable = cc::EN | cc::CSS_ALL << cc::CSS_SHIFT | cc::ENTRY_SIZES;
        assert_eq!(
            self.run(id, PropertyFields::set(Property::Cc, enable), Transfer::None).status(),
            Status::SUCCESS
        );
        (id, done.cqe.dw0() as u16)
    }

    /// A host with an I/O queue: admin connection, I/O connection.
    fn io(&mut self, options: &HostOptions) -> (ConnectionId, ConnectionId) {
        let (admin, cntlid) = self.host(options);
        let io = self.open(options);
        let (sqe, data) = options.connect(1, cntlid);
        assert_eq!(self.run(io, sqe, data).status(), Status::SUCCESS);
        (admin, io)
    }

    /// Does one command.
    fn run(&mut self, id: ConnectionId, sqe: Sqe, transfer: Transfer) -> Done {
        self.pairs.get_mut(&id).unwrap().host.submit(sqe, transfer);
        self.pump();
        self.done(id).expect("an answer")
    }

    fn done(&mut self, id: ConnectionId) -> Option<Done> {
        self.pairs.get_mut(&id).unwrap().host.done()
    }

    fn host_of(&mut self, id: ConnectionId) -> &mut HostQueue {
        &mut self.pairs.get_mut(&id).unwrap().host
    }

    fn error(&self, id: ConnectionId) -> Option<QueueError> {
        self.pairs[&id].error
    }

    /// Carries everything everywhere until nothing moves.
    fn pump(&mut self) {
        for round in 0.. {
            assert!(round < 100_000, "it never ends");
            let ids: Vec<_> = self.pairs.keys().copied().collect();
            let moved = ids.into_iter().fold(false, |moved, id| self.exchange(id) | moved);
            if !moved {
                return;
            }
        }
    }

    fn exchange(&mut self, id: ConnectionId) -> bool {
        let view = self.target.view(id);
        let pair = self.pairs.get_mut(&id).unwrap();
        let mut moved = false;
        let out: Vec<u8> = pair.host.output().iter().flat_map(|s| s.to_vec()).take(self.step).collect();
        if !out.is_empty() && !pair.controller.is_ended() {
            let space = pair.controller.space();
            let len = out.len().min(space.len());
            space[..len].copy_from_slice(&out[..len]);
            pair.controller.filled(len, &view);
            pair.host.sent(len);
            moved = true;
        }
        while let Some(work) = self.pairs.get_mut(&id).unwrap().controller.work() {
            self.work(id, work);
            moved = true;
        }
        let view = self.target.view(id);
        let pair = self.pairs.get_mut(&id).unwrap();
        let out: Vec<u8> = pair.controller.output().iter().flat_map(|s| s.to_vec()).take(self.step).collect();
        if !out.is_empty() {
            let space = pair.host.space();
            let len = out.len().min(space.len());
            space[..len].copy_from_slice(&out[..len]);
            pair.controller.sent(len, &view);
            if pair.error.is_none() {
                pair.error = pair.host.filled(len).err();
            }
            moved = true;
        }
        moved
    }

    fn work(&mut self, id: ConnectionId, work: Work) {
        let mut effects = Vec::new();
        match work {
            Work::Admin { tag, sqe, data } => {
                let health = || Health { read: 1024, written: 512_001, reads: 2, writes: 3 };
                let mut cx = Cx {
                    now: self.now,
                    local: "127.0.0.1:9".parse().unwrap(),
                    discovery_only: false,
                    health: &health,
                    effects: &mut effects,
                };
                let reply = self.target.execute(&mut cx, id, tag, &sqe, &data);
                let view = self.target.view(id);
                self.pairs.get_mut(&id).unwrap().controller.replied(tag, reply, &view);
            }
            Work::Io { tag, call } => {
                let Call { volume, op, flags, data } = call;
                let answer = self.runtime.block_on(self.engine.call(volume, op, flags, data));
                let view = self.target.view(id);
                self.pairs.get_mut(&id).unwrap().controller.answered(tag, answer, &view);
            }
            Work::Failed { sqe, status } => {
                let queue = self.pairs[&id].controller.queue().unwrap();
                self.target.failed(queue, &sqe, status);
            }
        }
        self.apply(effects);
    }

    fn apply(&mut self, effects: Vec<Effect>) {
        let mut todo = std::collections::VecDeque::from(effects);
        while let Some(effect) = todo.pop_front() {
            match effect {
                Effect::Close(id, _) => {
                    self.pairs.get_mut(&id).unwrap().controller.end();
                    self.closed.push(id);
                }
                Effect::Complete { connection, tag, status, result } => {
                    let view = self.target.view(connection);
                    let reply = Reply::Done { status, result, data: Vec::new() };
                    self.pairs.get_mut(&connection).unwrap().controller.replied(tag, reply, &view);
                }
                Effect::Abort { connection, cid } => {
                    let controller = &mut self.pairs.get_mut(&connection).unwrap().controller;
                    let mut more = Vec::new();
                    if controller.abort(cid).is_none()
                        && let Some(tag) = controller.tag_of(cid)
                    {
                        self.target.abort(connection, tag, &mut more);
                    }
                    todo.extend(more);
                }
            }
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}
