//! What the disk aims at in one process, as ratios of alternated rounds with their spread.
//!
//! Times are the processor time of this process, so that what else the machine does counts less. Prints a table; with
//! `BENCH_JSON` in the environment it also appends one JSON object a line to that file. Words on the command line name
//! the parts to run: remaps, memcpy, extents, nvme.

use bench::aim::{Aim, report};
use bench::nvme::Served;
use bench::pools::{self, Driver, MAP_BLOCK, Random, VOLUME, copy, mapped, range};
use bench::rounds::{Rounds, Spread};
use emulation::{BlkStatus, Bytes, CopyMode, Flags, Op, Sectors};
use memmap2::{Advice, MmapMut, MmapOptions};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::Arc;
use ublk_server::engine::Engine;
use ublk_server::store::Store;

const ROUNDS: usize = 15;

/// The processor time that this process has used.
#[derive(Clone, Copy)]
struct Cpu(Timespec);

impl Cpu {
    fn now() -> Self {
        Self(clock_gettime(ClockId::ProcessCPUTime))
    }

    /// Microseconds since then.
    fn micros(self) -> f64 {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        (now.tv_sec - self.0.tv_sec) as f64 * 1e6 + (now.tv_nsec - self.0.tv_nsec) as f64 / 1e3
    }
}

/// A copy of `len` from one extent to unmapped blocks, again and again.
fn remap(len: Bytes, piece: Bytes) -> impl FnMut() -> f64 {
    let (mut pool, mut driver) = (mapped(Bytes(2 * len.0), CopyMode::Remap), Driver::default());
    driver.fill(&mut pool, Bytes(0), len);
    assert_eq!(pool.usage().extents, 1);
    // As many segments of a command as the defaults allow: 128 MiB in pieces of 16 MiB.
    let command = Bytes(piece.0 * 8).min(len);
    move || {
        driver.run(&mut pool, Op::Discard(range(len, len)));
        let begun = Cpu::now();
        for start in (0..len.0).step_by(command.0 as usize) {
            let starts = (start..start + command.0).step_by(piece.0 as usize);
            driver.run(&mut pool, copy(starts.map(|at| (Bytes(at), Bytes(len.0 + at))), piece));
        }
        begun.micros()
    }
}

/// The median of a few measurements, since one is short.
fn steady(mut once: impl FnMut() -> f64) -> impl FnMut() -> f64 {
    move || Spread::of((0..51).map(|_| once()).collect()).median
}

fn remaps() {
    let (mib, gib, gib16) = (Bytes::mib(1), Bytes::gib(1), Bytes::gib(16));
    let mut one = steady(remap(gib, gib));
    let one = Spread::of((0..ROUNDS).map(|_| one()).collect());
    report("remap of 1 GiB from one extent, one segment", "us", one, Aim::AtMost(50.0));
    let mut default = steady(remap(gib, Bytes::mib(16)));
    let default = Spread::of((0..ROUNDS).map(|_| default()).collect());
    report("the same within the default limits, 8 commands of 8 segments", "us", default, Aim::None);
    let flat = Rounds::alternate(ROUNDS, steady(remap(gib, gib)), steady(remap(mib, mib)));
    report("remap of 1 GiB : 1 MiB, one extent", "x", flat.ratio(), Aim::AtMost(1.5));
    let flat = Rounds::alternate(ROUNDS, steady(remap(gib16, gib16)), steady(remap(mib, mib)));
    report("remap of 16 GiB : 1 MiB, one extent", "x", flat.ratio(), Aim::AtMost(1.5));
}

/// Memory of 4 KiB pages, as the disk has it.
fn memory(len: Bytes) -> MmapMut {
    let memory = MmapOptions::new().len(len.0 as usize).map_anon().expect("memory");
    match memory.advise(Advice::NoHugePage) {
        Err(error) if error.raw_os_error() != Some(libc::EINVAL) => panic!("madvise: {error}"),
        Ok(()) | Err(_) => memory,
    }
}

/// The bytes of one round of copying.
const COPIED: Bytes = Bytes::mib(128);

/// A disk that copies by moving bytes, its first `COPIED` bytes written.
struct Disk {
    engine: Arc<Engine>,
    runtime: tokio::runtime::Runtime,
}

impl Disk {
    fn new() -> Self {
        let capacity = Bytes(2 * COPIED.0);
        let pool = mapped(capacity, CopyMode::Memcpy);
        let store = Store::ram(Sectors(2 * capacity.whole_sectors().0)).expect("address space");
        let engine = Engine::new(pool, store, None).expect("worker threads");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let disk = Self { engine, runtime };
        for at in (0..COPIED.0).step_by(1 << 20) {
            disk.call(Op::Write(range(Bytes(at), Bytes::mib(1))), Some(vec![(at >> 20) as u8 + 1; 1 << 20]));
        }
        disk
    }

    fn call(&self, op: Op, data: Option<Vec<u8>>) {
        let result = self.runtime.block_on(self.engine.call(VOLUME, op, Flags::NONE, data));
        assert_eq!(result.completion.status, BlkStatus::Ok);
    }

    /// One command of eight segments, as the default limits have it.
    fn copy(&self) -> f64 {
        let piece = Bytes::mib(16);
        let starts = (0..COPIED.0).step_by(piece.0 as usize);
        let op = copy(starts.map(|at| (Bytes(at), Bytes(COPIED.0 + at))), piece);
        let begun = Cpu::now();
        self.call(op, None);
        begun.micros()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

/// How much of the speed of a plain copy the disk has: `plain / disk`, in times.
fn memcpy() {
    let mut source = memory(COPIED);
    source.fill(1);
    // The disk writes to blocks that were free, so the memory that it writes to takes turns; so does this.
    let mut targets = [memory(COPIED), memory(COPIED)];
    targets.iter_mut().for_each(|target| target.fill(2));
    for (name, chunk) in [("1 MiB at a time", 1 << 20), ("in one call", COPIED.0 as usize)] {
        let disk = Disk::new();
        disk.copy();
        disk.copy();
        let mut turn = 0;
        let plain = || {
            turn ^= 1;
            let begun = Cpu::now();
            for (to, from) in targets[turn].chunks_mut(chunk).zip(source.chunks(chunk)) {
                to.copy_from_slice(from);
            }
            begun.micros()
        };
        let rounds = Rounds::alternate(ROUNDS, plain, || disk.copy());
        let name = format!("copy by memcpy of 128 MiB, warm: speed of a plain memcpy {name}");
        report(&name, "x", rounds.ratio(), Aim::AtLeast(0.9));
    }
    let plain = || {
        let mut target = memory(COPIED);
        let begun = Cpu::now();
        for (to, from) in target.chunks_mut(1 << 20).zip(source.chunks(1 << 20)) {
            to.copy_from_slice(from);
        }
        begun.micros()
    };
    let rounds = Rounds::alternate(ROUNDS, plain, || Disk::new().copy());
    report("the same, cold: every page of the target is new", "x", rounds.ratio(), Aim::AtLeast(0.9));
}

/// Memory of the maps for a million extents.
fn extents() {
    let capacity = Bytes::gib(8);
    let (mut pool, mut driver) = (mapped(capacity, CopyMode::Remap), Driver::default());
    let mut random = Random::new(5);
    let blocks = capacity.0 / MAP_BLOCK.0;
    while pool.usage().extents < 1_000_000 {
        for _ in 0..10_000 {
            let at = Bytes(random.below(blocks) * MAP_BLOCK.0);
            driver.run(&mut pool, Op::Write(pools::range(at, MAP_BLOCK)));
        }
    }
    let usage = pool.usage();
    let each = usage.map_bytes as f64 / usage.extents as f64;
    report(
        "memory for each of a million extents, random writes",
        "B",
        Spread::of(vec![each]),
        Aim::AtMost(96.0),
    );
    let (mut pool, mut driver) = (mapped(Bytes::gib(1024), CopyMode::Remap), Driver::default());
    driver.fill(&mut pool, Bytes(0), Bytes::gib(1024));
    let filled = Spread::of(vec![pool.usage().extents as f64]);
    report("extents of 1 TiB written in order", "", filled, Aim::AtMost(8.0));
}

/// A thread's processor time in microseconds, of the whole process and of this thread alone.
fn processor() -> (f64, f64) {
    let micros = |clock| {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
        tv_sec as f64 * 1e6 + tv_nsec as f64 / 1e3
    };
    (micros(ClockId::ProcessCPUTime), micros(ClockId::ThreadCPUTime))
}

/// What a host on loopback gets, which runs in this process too, and what the server spends on it.
fn nvme() {
    const COMMANDS: u64 = 50_000;
    let mut served = Served::new();
    let mut measure = |name: &str, aim: f64, run: fn(&mut Served, u64)| {
        run(&mut served, COMMANDS);
        let (mut rates, mut costs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (wall, (process, host)) = (std::time::Instant::now(), processor());
            run(&mut served, COMMANDS);
            rates.push(COMMANDS as f64 / wall.elapsed().as_secs_f64());
            let (process_then, host_then) = processor();
            let server = (process_then - process) - (host_then - host);
            costs.push(server / COMMANDS as f64);
        }
        report(
            &format!("NVMe/TCP on loopback, depth 128: {name}"),
            "/s",
            Spread::of(rates),
            Aim::AtLeast(aim),
        );
        report(
            "the same: processor time of the server for each",
            "us",
            Spread::of(costs),
            Aim::AtMost(1e6 / aim),
        );
    };
    measure("copies of 8 KiB by remapping, one range each, in 64 MiB", 300_000.0, Served::copies);
    measure("reads of 4 KiB", 250_000.0, Served::reads);
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    println!("| what | median | spread | rounds | aim | |\n|---|---|---|---|---|---|");
    let parts: [(&str, fn()); 4] =
        [("remaps", remaps), ("memcpy", memcpy), ("extents", extents), ("nvme", nvme)];
    for (name, part) in parts {
        if asked.is_empty() || asked.iter().any(|word| word == name) {
            part();
        }
    }
}
