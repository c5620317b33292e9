//! What a request costs in the pool, without its bytes: begin, finish, and what the device does because of it.

use bench::pools::{Driver, MAP_BLOCK, Random, copy, mapped, range};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use emulation::{Bytes, CopyMode, Op, Pool};
use std::time::{Duration, Instant};

const GIB: Bytes = Bytes::gib(1);

/// A full volume of 1 GiB, one extent.
fn dense() -> (Pool, Driver) {
    let (mut pool, mut driver) = (mapped(GIB, CopyMode::Remap), Driver::default());
    driver.fill(&mut pool, Bytes(0), GIB);
    (pool, driver)
}

fn blocks(bytes: Bytes) -> u64 {
    bytes.0 / MAP_BLOCK.0
}

fn block(index: u64) -> Bytes {
    Bytes(index * MAP_BLOCK.0)
}

/// The same after so many random writes that most blocks have an extent of their own.
fn scattered() -> (Pool, Driver) {
    let (mut pool, mut driver) = dense();
    let mut random = Random::new(1);
    for _ in 0..2 * blocks(GIB) {
        driver.run(&mut pool, Op::Write(range(block(random.below(blocks(GIB))), MAP_BLOCK)));
    }
    (pool, driver)
}

fn small_io(c: &mut Criterion) {
    let mut group = c.benchmark_group("4k");
    for (map, (mut pool, mut driver)) in [("one extent", dense()), ("scattered", scattered())] {
        let mut random = Random::new(2);
        group.bench_function(BenchmarkId::new("read", map), |b| {
            b.iter(|| driver.run(&mut pool, Op::Read(range(block(random.below(blocks(GIB))), MAP_BLOCK))));
        });
        if map == "scattered" {
            group.bench_function(BenchmarkId::new("random write", map), |b| {
                b.iter(|| {
                    driver.run(&mut pool, Op::Write(range(block(random.below(blocks(GIB))), MAP_BLOCK)))
                });
            });
        } else {
            let mut at = 0;
            group.bench_function(BenchmarkId::new("sequential write", map), |b| {
                b.iter(|| {
                    at = (at + 1) % blocks(GIB);
                    driver.run(&mut pool, Op::Write(range(block(at), MAP_BLOCK)))
                });
            });
        }
    }
    group.finish();
}

/// Commands of 4 KiB segments from one half of the volume to the other.
fn segments(c: &mut Criterion) {
    let half = blocks(GIB) / 2;
    for mode in [CopyMode::Remap, CopyMode::Memcpy] {
        let mut group = c.benchmark_group(format!("copy, {}", mode.name()));
        for count in [1, 8, 64, 128] {
            let (mut pool, mut driver) = (mapped(GIB, mode), Driver::default());
            driver.fill(&mut pool, Bytes(0), GIB);
            let mut random = Random::new(3);
            group.throughput(Throughput::Elements(count));
            group.bench_function(BenchmarkId::new("segments", count), |b| {
                b.iter(|| {
                    let to = half + random.below(half - count);
                    let pairs = (to..to + count).map(|to| (block(random.below(half)), block(to)));
                    driver.run(&mut pool, copy(pairs, MAP_BLOCK))
                });
            });
        }
        group.finish();
    }
}

/// One segment from one extent to an unmapped range. What unmaps it again is not timed.
fn remap_lengths(c: &mut Criterion) {
    let mut group = c.benchmark_group("remap of one extent");
    for len in [Bytes::mib(1), GIB, Bytes::gib(16)] {
        let (mut pool, mut driver) = (mapped(Bytes(2 * len.0), CopyMode::Remap), Driver::default());
        driver.fill(&mut pool, Bytes(0), len);
        assert_eq!(pool.usage().extents, 1);
        group.bench_function(BenchmarkId::from_parameter(format!("{} MiB", len.0 >> 20)), |b| {
            b.iter_custom(|iterations| {
                let mut timed = Duration::ZERO;
                for _ in 0..iterations {
                    let begun = Instant::now();
                    driver.run(&mut pool, copy([(Bytes(0), len)], len));
                    timed += begun.elapsed();
                    driver.run(&mut pool, Op::Discard(range(len, len)));
                }
                timed
            });
        });
    }
    group.finish();
}

criterion_group!(engine, small_io, segments, remap_lengths);
criterion_main!(engine);
