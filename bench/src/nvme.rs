//! A disk over NVMe/TCP on loopback, and a host in the same process that keeps its queue full.

use crate::pools::{MAP_BLOCK, Random, VOLUME, limits, mapped};
use emulation::{Bytes, CopyMode};
use std::collections::BTreeSet;
use std::sync::Arc;
use ublk_server::engine::Engine;
use ublk_server::nvme::client::{Host, HostOptions, Link, Transfer, copy};
use ublk_server::nvme::listener::{Door, DoorConfig};
use ublk_server::nvme::target::{ConnectionLimits, SubsystemConfig};
use ublk_server::nvme::wire::command::{IoOpcode, Sqe};
use ublk_server::nvme::wire::copy::{CopyFormat, CopyRange};
use ublk_server::store::Store;

/// What commands are about: the first bytes of the disk.
const SET: Bytes = Bytes::mib(64);
/// The length of a copy.
const COPY: Bytes = Bytes::kib(8);
/// Commands under way.
const DEPTH: u64 = 128;
/// The block of the namespace.
const BLOCK: u64 = 512;

/// A disk in memory, served over NVMe/TCP, with one host and one I/O queue.
#[derive(Debug)]
pub struct Served {
    link: Link,
    random: Random,
    _host: Host,
    door: Option<Door>,
    engine: Arc<Engine>,
}

impl Served {
    /// Makes it; its first 64 MiB are written. Panics when that is not possible here.
    pub fn new() -> Self {
        let pool = mapped(SET, CopyMode::Remap);
        let store = Store::ram(Bytes(4 * SET.0).whole_sectors()).expect("address space");
        let engine = Engine::new(pool, store, None).expect("worker threads");
        let subsystem = SubsystemConfig {
            nqn: "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-8000-8000-000000000001".to_string(),
            serial: "bench".to_string(),
            firmware: "1".to_string(),
            allow_hosts: BTreeSet::new(),
            volatile_cache: false,
            queues_max: 4,
            controllers_max: 4,
            portals: Vec::new(),
        };
        let listen = "127.0.0.1:0".parse().expect("an address");
        let options = HostOptions {
            no_flow_control: true,
            entries: 2 * DEPTH as u16,
            ..HostOptions::new(&subsystem.nqn)
        };
        let config = DoorConfig { subsystem, listen, discovery: None, limits: ConnectionLimits::default() };
        let door = Door::start(Arc::clone(&engine), config).expect("a free port of loopback");
        door.add(VOLUME, "bench", limits(SET, CopyMode::Remap)).expect("the first namespace");
        door.serve();
        let host = Host::connect(door.listen(), options).expect("a host");
        let link = host.io_queue(1).expect("an I/O queue");
        let mut served = Self { link, random: Random::new(1), _host: host, door: Some(door), engine };
        served.fill();
        served
    }

    fn fill(&mut self) {
        let piece = Bytes::mib(1);
        for at in 0..SET.0 / piece.0 {
            let blocks = piece.0 / BLOCK;
            let sqe = Sqe::io(IoOpcode::Write, 1, at * blocks, blocks as u32);
            let data = vec![at as u8 + 1; piece.0 as usize];
            let done = self.link.run(sqe, Transfer::Out(data)).expect("a write");
            assert!(done.status().is_ok(), "{:?}", done.status());
        }
    }

    /// Keeps the queue full until `count` commands have ended; each must succeed.
    fn run(&mut self, count: u64, next: impl Fn(&mut Random) -> (Sqe, Transfer)) {
        let (mut begun, mut ended) = (0, 0);
        while ended < count {
            while begun < count && begun - ended < DEPTH {
                let (sqe, transfer) = next(&mut self.random);
                self.link.submit(sqe, transfer);
                begun += 1;
            }
            self.link.exchange().expect("the door answers");
            while let Some(done) = self.link.queue().done() {
                assert!(done.status().is_ok(), "{:?}", done.status());
                ended += 1;
            }
        }
    }

    /// `count` copies of 8 KiB by remapping, each of one range, from one half of the set to the other.
    pub fn copies(&mut self, count: u64) {
        let places = SET.0 / 2 / COPY.0;
        let blocks = COPY.0 / BLOCK;
        self.run(count, |random| {
            let (from, to) = (random.below(places) * blocks, (places + random.below(places)) * blocks);
            let (sqe, list) = copy(1, to, CopyFormat::Same, &[CopyRange::new(0, from, blocks as u32)]);
            (sqe, Transfer::Out(list))
        });
    }

    /// `count` reads of 4 KiB.
    pub fn reads(&mut self, count: u64) {
        let (places, blocks) = (SET.0 / MAP_BLOCK.0, MAP_BLOCK.0 / BLOCK);
        self.run(count, |random| {
            let sqe = Sqe::io(IoOpcode::Read, 1, random.below(places) * blocks, blocks as u32);
            (sqe, Transfer::In(MAP_BLOCK.0 as u32))
        });
    }

    /// Bytes on the wire so far, both ways, without those of TCP and below.
    pub fn wire(&mut self) -> u64 {
        let (received, sent) = self.link.queue().wire();
        received + sent
    }
}

impl Default for Served {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(door) = self.door.take() {
            door.stop();
        }
        self.engine.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_succeed_and_their_bytes_are_those_of_the_formula() {
        let mut served = Served::new();
        let before = served.wire();
        served.copies(1000);
        let copies = served.wire();
        assert_eq!(copies - before, 1000 * (72 + 32 + 24));
        served.reads(1000);
        assert_eq!(served.wire() - copies, 1000 * (72 + 24 + 4096));
        assert_eq!(served.engine.with_pool(|pool| pool.ledger(VOLUME).remapped), Bytes(1000 * COPY.0));
    }
}
