//! Pools in this process, without doors, for benchmarks.

use emulation::emulated::Emulated;
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::NoLog;
use emulation::{
    Bytes, Completion, Control, CopyCommand, CopyMode, CopySegment, Flags, Instant, IoResult, Limits, Next,
    Op, Out, Pool, Request, RequestId, Sector, SectorRange, Sectors, VolumeId,
};

/// The volume of every pool here.
pub const VOLUME: VolumeId = VolumeId(0);
/// The map block of every pool here.
pub const MAP_BLOCK: Bytes = Bytes::kib(4);

/// The limits of a disk of `capacity` as `ublk add` makes it, except that a command may have any length.
pub fn limits(capacity: Bytes, mode: CopyMode) -> Limits {
    let mut limits = Limits::new(capacity.whole_sectors(), Sectors(1), MAP_BLOCK.whole_sectors());
    limits.copy_mode = mode;
    limits.copy_max_bytes = capacity;
    limits.copy_max_segment_bytes = capacity;
    limits
}

/// A pool of one empty volume in memory, as `ublk add` makes it.
pub fn mapped(capacity: Bytes, mode: CopyMode) -> Pool {
    let physical = Bytes(2 * capacity.0).whole_sectors();
    let config = MappedConfig {
        map_block: MAP_BLOCK.whole_sectors(),
        cap: physical,
        physical,
        cache: Cache::None,
        trim: true,
    };
    let mut pool =
        Pool::new(Box::new(Emulated::new(Box::new(Mapped::new(config)))), Box::new(NoLog::default()));
    let out = pool.control(Instant::ORIGIN, Control::AddVolume(VOLUME, limits(capacity, mode)));
    assert!(out.is_empty(), "a new volume frees nothing");
    pool
}

/// A range of bytes that are whole sectors.
pub fn range(start: Bytes, len: Bytes) -> SectorRange {
    SectorRange { start: Sector(start.whole_sectors().0), len: len.whole_sectors() }
}

/// A copy of `(source, destination)` pairs of `len` each.
pub fn copy(pairs: impl IntoIterator<Item = (Bytes, Bytes)>, len: Bytes) -> Op {
    let segment = |(source, destination): (Bytes, Bytes)| CopySegment {
        source_volume: VOLUME,
        source: range(source, len),
        destination: Sector(destination.whole_sectors().0),
    };
    Op::Copy(CopyCommand { segments: pairs.into_iter().map(segment).collect() })
}

/// Someone who drives a pool: every plan comes back at once as if its steps had been done. No byte is touched.
#[derive(Debug, Default)]
pub struct Driver {
    next: u64,
    todo: Vec<Out>,
}

impl Driver {
    /// Does an operation to its end, with all that the device does because of it. Panics when it fails.
    pub fn run(&mut self, pool: &mut Pool, op: Op) -> Completion {
        self.next += 1;
        let id = RequestId(self.next);
        let completion = self.request(pool, Request { id, volume: VOLUME, op, flags: Flags::NONE });
        assert!(completion.status.is_ok(), "{completion:?}");
        completion
    }

    /// Does a request to its end, with all that the device does because of it.
    pub fn request(&mut self, pool: &mut Pool, request: Request) -> Completion {
        let id = request.id;
        let mut answer = None;
        self.todo.push(pool.begin(Instant::ORIGIN, request));
        while let Some(out) = self.todo.pop() {
            for (of, next) in out {
                match next {
                    Next::Run(plan) => {
                        let io = IoResult::done(&plan);
                        self.todo.push(pool.finish(Instant::ORIGIN, plan, io));
                    }
                    Next::Done(completion) if of == id => answer = Some(completion),
                    Next::Done(_) | Next::Wait => {}
                }
            }
        }
        answer.expect("nothing else is under way, so nothing waits")
    }

    /// Writes `len` bytes from `start` on in order, 1 MiB at a time.
    pub fn fill(&mut self, pool: &mut Pool, start: Bytes, len: Bytes) {
        let step = Bytes::mib(1).0;
        for at in (start.0..start.0 + len.0).step_by(step as usize) {
            let len = step.min(start.0 + len.0 - at);
            self.run(pool, Op::Write(range(Bytes(at), Bytes(len))));
        }
    }
}

/// Numbers that look random, the same in every run (xorshift64*).
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        (zoned::gc::Random::next(self) >> 16) % end
    }
}

impl zoned::gc::Random for Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_volume_is_one_extent_and_a_copy_shares_it() {
        let mut pool = mapped(Bytes::mib(512), CopyMode::Remap);
        let mut driver = Driver::default();
        driver.fill(&mut pool, Bytes(0), Bytes::mib(256));
        assert_eq!(pool.usage().extents, 1);
        let done = driver.run(&mut pool, copy([(Bytes(0), Bytes::mib(256))], Bytes::mib(256)));
        assert_eq!(done.bytes, Bytes::mib(256));
        assert_eq!((pool.usage().extents, pool.usage().shared_ranges), (2, 1));
        assert_eq!(pool.ledger(VOLUME).remapped, Bytes::mib(256));
        pool.check().unwrap();
    }
}
