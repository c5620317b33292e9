//! What a report of very many zones takes in one process, and a write to one of them.
//!
//! Prints a table; with `BENCH_JSON` in the environment it also appends one JSON object a line to that file.

use bench::aim::{Aim, report};
use bench::pools::VOLUME;
use bench::rounds::Spread;
use emulation::emulated::Emulated;
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::NoLog;
use emulation::zone::ZoneGeometry;
use emulation::{BlkStatus, Bytes, Control, Flags, Instant, Limits, Op, Pool, Sector, SectorRange, Sectors};
use std::sync::Arc;
use tokio::runtime::Runtime;
use ublk_server::engine::Engine;
use ublk_server::store::Store;
use zoned::Zoned;

const ROUNDS: usize = 15;
/// As many zones as a disk may have.
const ZONES: u64 = 65_536;
const BLOCK: Sectors = Sectors(8);

/// A disk in memory of zones of 1 MiB, every second one with a block in it.
struct Disk {
    engine: Arc<Engine>,
    runtime: Runtime,
}

impl Disk {
    fn new() -> Self {
        let size = Bytes::mib(1).whole_sectors();
        let capacity = Sectors(ZONES * size.0);
        let config = MappedConfig {
            map_block: BLOCK,
            cap: capacity,
            physical: Sectors(2 * capacity.0),
            cache: Cache::None,
            trim: true,
        };
        let mut limits = Limits::new(capacity, Sectors(1), BLOCK);
        limits.zones = Some(ZoneGeometry::new(size));
        limits.validate().expect("limits of a disk");
        let zoned = Zoned::new(Box::new(Mapped::new(config)), false);
        let mut pool = Pool::new(Box::new(Emulated::new(Box::new(zoned))), Box::new(NoLog::default()));
        assert!(pool.control(Instant::ORIGIN, Control::AddVolume(VOLUME, limits)).is_empty());
        let store = Store::ram(config.physical).expect("address space");
        let engine = Engine::new(pool, store, None).expect("worker threads");
        let disk = Self { engine, runtime: Runtime::new().expect("a runtime") };
        for zone in (0..ZONES).step_by(2) {
            disk.call(
                Op::Write(SectorRange { start: Sector(zone * size.0), len: BLOCK }),
                Some(vec![1; 4096]),
            );
        }
        disk
    }

    fn call(&self, op: Op, data: Option<Vec<u8>>) -> usize {
        let result = self.runtime.block_on(self.engine.call(VOLUME, op, Flags::NONE, data));
        assert_eq!(result.completion.status, BlkStatus::Ok);
        result.completion.zones.len()
    }
}

fn main() {
    println!("| what | median | spread | rounds | aim | |\n|---|---|---|---|---|---|");
    let disk = Disk::new();
    let once = |_| {
        let begun = std::time::Instant::now();
        let zones = disk.call(Op::ReportZones { from: Sector(0), max: u32::MAX }, None);
        let spent = begun.elapsed();
        assert_eq!(zones as u64, ZONES);
        spent.as_secs_f64() * 1e3
    };
    let spent = Spread::of((0..ROUNDS).map(once).collect());
    report("report of 65,536 zones", "ms", spent, Aim::AtMost(50.0));
    disk.engine.shutdown();
}
