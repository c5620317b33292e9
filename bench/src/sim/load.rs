//! Equal work done two ways: each piece read and written by the host, or copied by commands.

use super::world::{Happening, World};
use super::{Wire, world};
use crate::pools::{Random, VOLUME, copy, range};
use emulation::host::{BufferId, Data, Emit};
use emulation::{
    BlkStatus, Bytes, Completion, Flags, Instant, Limits, Nanos, Op, Request, RequestId, Sectors,
};
use hdrhistogram::Histogram;

/// Who moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The host, by reads and writes.
    Host,
    /// The disk, by copy commands.
    Offload,
}

impl Engine {
    /// Its name in plots.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host copy",
            Self::Offload => "offload",
        }
    }
}

/// What to copy.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The length of a range; whole map blocks, at most 2 MiB.
    pub block: Bytes,
    /// Ranges of a copy command.
    pub ranges: u64,
    /// Copy commands, or pieces that the host reads and writes, under way at a time.
    pub depth: u64,
    /// In all, rounded down to whole commands.
    pub total: Bytes,
    /// Which ranges go together, and in what order.
    pub seed: u64,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Virtual time from the first command to the last answer.
    pub elapsed: Nanos,
    /// Bytes copied.
    pub copied: Bytes,
    /// Of each copy command, or of each piece that the host read and wrote, in ns.
    pub latency: Histogram<u64>,
    /// What the link carried.
    pub wire: Wire,
    /// Requests to the disk.
    pub requests: u64,
    /// Map blocks compared after the run, all of them as they should be.
    pub verified: u64,
}

impl Measured {
    /// MiB of copied data a second.
    pub fn throughput(&self) -> f64 {
        self.copied.0 as f64 / Bytes::mib(1).0 as f64 / (self.elapsed.0 as f64 / 1e9)
    }

    /// Bytes on the wire for each byte copied.
    pub fn wire_per_byte(&self) -> f64 {
        self.wire.total() as f64 / self.copied.0 as f64
    }

    /// A quantile of the latency in us.
    pub fn latency_us(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }
}

/// A histogram of ns up to an hour, to three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("bounds in order")
}

impl Work {
    fn commands(&self) -> u64 {
        (self.total.0 / (self.block.0 * self.ranges)).max(1)
    }

    fn pieces(&self) -> u64 {
        self.commands() * self.ranges
    }

    /// The limits of a disk that takes it: one half is copied to the other.
    pub fn limits(&self) -> Limits {
        let half = Bytes(self.pieces() * self.block.0);
        let mut limits = crate::pools::limits(Bytes(2 * half.0), emulation::CopyMode::Remap);
        limits.max_io = Bytes::mib(2).whole_sectors();
        limits.copy_max_segments = 256;
        limits
    }

    /// Does the work.
    ///
    /// # Errors
    /// A request failed, or something is not where it was copied to.
    pub fn run(&self, world: &mut World, engine: Engine) -> Result<Measured, String> {
        let mut run = Run::new(*self, engine, world);
        for slot in 0..self.depth.min(run.left()) {
            run.begin(world, slot);
        }
        while let Some(happening) = world.step() {
            let Happening::Done(at, id, completion) = happening else { continue };
            run.done(world, at, id, &completion)?;
        }
        run.end(world)
    }
}

/// What a slot is doing.
#[derive(Clone, Copy, Debug)]
struct Slot {
    since: Instant,
    /// The piece that the host has read.
    writes: Option<u64>,
}

struct Run {
    work: Work,
    engine: Engine,
    /// Which piece of the source goes to each piece of the destination.
    sources: Vec<u64>,
    next: u64,
    slots: Vec<Slot>,
    sequence: u64,
    begun: Instant,
    ended: Instant,
    wire: Wire,
    requests: u64,
    latency: Histogram<u64>,
}

impl Run {
    fn new(work: Work, engine: Engine, world: &World) -> Self {
        let mut sources: Vec<u64> = (0..work.pieces()).collect();
        let mut random = Random::new(work.seed);
        for at in (1..sources.len()).rev() {
            sources.swap(at, random.below(at as u64 + 1) as usize);
        }
        let idle = Slot { since: world.now(), writes: None };
        Self {
            work,
            engine,
            sources,
            next: 0,
            slots: vec![idle; work.depth as usize],
            sequence: 0,
            begun: world.now(),
            ended: world.now(),
            wire: world.wire(),
            requests: world.requests(),
            latency: histogram(),
        }
    }

    /// Commands, or pieces, that have not begun.
    fn left(&self) -> u64 {
        match self.engine {
            Engine::Host => self.work.pieces() - self.next,
            Engine::Offload => self.work.commands() - self.next,
        }
    }

    fn place(&self, piece: u64) -> Bytes {
        Bytes(piece * self.work.block.0)
    }

    fn begin(&mut self, world: &mut World, slot: u64) {
        if self.left() == 0 {
            return;
        }
        let number = self.next;
        self.next += 1;
        let now = world.now();
        let block = self.work.block;
        let op = match self.engine {
            Engine::Host => {
                self.slots[slot as usize] = Slot { since: now, writes: Some(number) };
                Op::Read(range(self.place(self.sources[number as usize]), block))
            }
            Engine::Offload => {
                self.slots[slot as usize] = Slot { since: now, writes: None };
                let first = number * self.work.ranges;
                let pieces = first..first + self.work.ranges;
                let half = self.work.pieces();
                let pairs =
                    pieces.map(|piece| (self.place(self.sources[piece as usize]), self.place(half + piece)));
                copy(pairs.collect::<Vec<_>>(), block)
            }
        };
        self.submit(world, slot, op);
    }

    fn submit(&mut self, world: &mut World, slot: u64, op: Op) {
        self.sequence += 1;
        let id = RequestId(self.sequence * self.work.depth + slot);
        let data = match &op {
            Op::Copy(_) => Data::None,
            _ => Data::Buffer { id: BufferId(1 + slot), offset: Sectors::ZERO },
        };
        world.submit(Emit { request: Request { id, volume: VOLUME, op, flags: Flags::NONE }, data });
    }

    fn done(
        &mut self,
        world: &mut World,
        at: Instant,
        id: RequestId,
        completion: &Completion,
    ) -> Result<(), String> {
        if completion.status != BlkStatus::Ok {
            return Err(format!("a request of the load failed: {completion:?}"));
        }
        let slot = id.0 % self.work.depth;
        if let Some(piece) = self.slots[slot as usize].writes.take() {
            let to = self.place(self.work.pieces() + piece);
            self.submit(world, slot, Op::Write(range(to, self.work.block)));
            return Ok(());
        }
        self.latency.saturating_record((at.0 - self.slots[slot as usize].since.0).max(1));
        self.ended = at;
        self.begin(world, slot);
        Ok(())
    }

    fn end(self, world: &mut World) -> Result<Measured, String> {
        if self.left() > 0 {
            return Err(format!("{} commands were not begun", self.left()));
        }
        let (wire, requests) = (world.wire(), world.requests());
        let blocks = world::map_blocks(self.work.block);
        let half = self.place(self.work.pieces());
        let found = world.contents(VOLUME, range(half, half));
        for (at, found) in (0..).zip(&found) {
            let expected = World::fresh(VOLUME, self.sources[(at / blocks) as usize] * blocks + at % blocks);
            if *found != expected {
                return Err(format!("block {at} of the destination is not what was copied to it"));
            }
        }
        Ok(Measured {
            elapsed: Nanos(self.ended.0 - self.begun.0),
            copied: half,
            latency: self.latency,
            wire: Wire { up: wire.up - self.wire.up, down: wire.down - self.wire.down },
            requests: requests - self.requests,
            verified: found.len() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Fabric;
    use emulation::CopyMode;
    use emulation::timing::{Rate, Timing};

    const WORK: Work = Work { block: Bytes::kib(8), ranges: 4, depth: 8, total: Bytes::mib(4), seed: 1 };

    fn world(mode: CopyMode) -> World {
        let mut limits = WORK.limits();
        limits.copy_mode = mode;
        let mut world = World::new(&[limits]);
        world.set_timing(&Timing { bandwidth: Some(Rate::mb(1000)), ..Timing::default() });
        world.set_fabric(Fabric::new(Rate::mb(125), Nanos(100_000)));
        world
    }

    #[test]
    fn both_ways_copy_the_same_and_the_link_tells_them_apart() {
        for mode in [CopyMode::Remap, CopyMode::Memcpy, CopyMode::Emulate] {
            let host = WORK.run(&mut world(mode), Engine::Host).unwrap();
            let offload = WORK.run(&mut world(mode), Engine::Offload).unwrap();
            assert_eq!((host.copied, offload.copied), (Bytes::mib(4), Bytes::mib(4)));
            assert_eq!((host.verified, offload.verified), (1024, 1024));
            assert_eq!((host.requests, offload.requests), (2 * 512, 128));
            assert_eq!((host.latency.len(), offload.latency.len()), (512, 128));
            // A read and a write, each there and back.
            assert!(host.latency.min() >= 200_000 && offload.latency.min() >= 100_000);
            assert!(offload.latency.max() < host.latency.max());
            // A command of four ranges: 72 + 4 * 32 and 24 bytes, each in one segment.
            assert_eq!(offload.wire, Wire { up: 128 * (200 + 90), down: 128 * (24 + 90) });
            assert!(host.wire_per_byte() > 2.0, "{}", host.wire_per_byte());
            // The link carries 8 KiB each way in 70 us, both at once.
            let bound = 125e6 / f64::from(1 << 20);
            assert!(host.throughput() < bound && host.throughput() > bound / 2.0, "{}", host.throughput());
        }
    }

    #[test]
    fn what_a_disk_copies_wrongly_is_seen() {
        for mode in [CopyMode::Memcpy, CopyMode::Emulate] {
            let mut world = world(mode);
            world.damage();
            let error = WORK.run(&mut world, Engine::Offload).unwrap_err();
            assert!(error.ends_with("is not what was copied to it"), "{error}");
        }
    }

    #[test]
    fn one_seed_gives_one_result() {
        let run = |seed| {
            let work = Work { seed, ..WORK };
            let measured = work.run(&mut world(CopyMode::Emulate), Engine::Offload).unwrap();
            (measured.elapsed, measured.latency.max(), measured.wire)
        };
        assert_eq!(run(7), run(7));
    }
}
