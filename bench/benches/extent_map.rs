//! The map beside the standard B-tree with the same ten million extents, inserted in random order.
//!
//! First a table of ratios: both sides take turns, the time is that of the thread on a processor. Then single
//! operations by criterion. `EXTENTS` in the environment changes the number.

use bench::pools::Random;
use bench::rounds::{Rounds, Spread};
use criterion::Criterion;
use emulation::range_map::{Physical, Piece, RangeMap};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::hint::black_box;

const EXTENTS: u64 = 10_000_000;
/// Blocks from one extent to the next. An extent has 1 to 7 of them, so that there are holes.
const STRIDE: u64 = 8;
const ROUNDS: usize = 21;
/// Operations of one round.
const OPERATIONS: u64 = 200_000;

/// A standard B-tree of extents: first block to end and physical block.
type Tree = BTreeMap<u64, (u64, u64)>;

/// Extent number `index`. No extent goes on where another ends.
fn extent(index: u64) -> Piece<Physical> {
    let start = index * STRIDE;
    Piece {
        range: start..start + 1 + index % (STRIDE - 1),
        value: Physical(index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24),
    }
}

/// The numbers below `count` in random order.
fn shuffled(count: u64) -> Vec<u64> {
    let mut random = Random::new(1);
    let mut numbers: Vec<u64> = (0..count).collect();
    for last in (1..numbers.len()).rev() {
        let other = random.below(last as u64 + 1);
        numbers.swap(last, usize::try_from(other).expect("an index"));
    }
    numbers
}

/// Nanoseconds that this thread has run.
fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Bytes of memory that this process has in use.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: Option<f64> = status.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.expect("statm has a second number") * rustix::param::page_size() as f64
}

/// Nanoseconds an operation, of `count` with random numbers below `below`.
fn timed(count: u64, below: u64, seed: u64, mut operation: impl FnMut(u64)) -> f64 {
    let mut random = Random::new(seed);
    let begun = now();
    for _ in 0..count {
        operation(random.below(below));
    }
    (now() - begun) / count as f64
}

/// A map and a tree of the same extents.
struct Sides {
    extents: u64,
    map: RangeMap<Physical>,
    tree: Tree,
}

impl Sides {
    /// Fills both and prints what that took.
    fn new(extents: u64) -> Self {
        let order = shuffled(extents);
        let (mut map, mut tree) = (RangeMap::new(), Tree::new());
        let (memory, begun) = (resident(), now());
        for &index in &order {
            let Piece { range, value } = extent(index);
            map.insert(range, value, &mut |old| panic!("{old:?}"));
        }
        let (map_memory, map_time) = (resident() - memory, now() - begun);
        let (memory, begun) = (resident(), now());
        for &index in &order {
            tree_insert_new(&mut tree, &extent(index));
        }
        let (tree_memory, tree_time) = (resident() - memory, now() - begun);
        let each = |value: f64| value / extents as f64;
        println!(
            "{extents} extents in random order: {:.1} bytes an extent in all (standard {:.1}), aim <= 96; \
             {:.1} by its own account",
            each(map_memory),
            each(tree_memory),
            each(map.memory() as f64)
        );
        println!(
            "insertion of all: {:.0} ns each (standard {:.0}), ratio {:.2}",
            each(map_time),
            each(tree_time),
            map_time / tree_time
        );
        assert_eq!((map.len(), tree.len() as u64), (tree.len(), extents));
        Self { extents, map, tree }
    }

    fn blocks(&self) -> u64 {
        self.extents * STRIDE
    }
}

/// Adds an extent where there is none, after the looks that a map of extents must take: at the one before, which
/// might overlap it or go on in it, and at the one behind.
fn tree_insert_new(tree: &mut Tree, extent: &Piece<Physical>) {
    let before = tree.range(..extent.range.start).next_back();
    assert!(before.is_none_or(|(_, &(end, _))| end < extent.range.start));
    assert!(tree.range(extent.range.start..=extent.range.end).next().is_none());
    tree.insert(extent.range.start, (extent.range.end, extent.value.0));
}

fn map_get(map: &RangeMap<Physical>, block: u64) -> Option<u64> {
    let piece = map.get(block)?;
    Some(piece.value.0 + (block - piece.range.start))
}

fn tree_get(tree: &Tree, block: u64) -> Option<u64> {
    let (&start, &(end, physical)) = tree.range(..=block).next_back()?;
    (block < end).then(|| physical + (block - start))
}

/// Gives one block of an extent another place, then the whole extent its own again.
fn map_replace(map: &mut RangeMap<Physical>, index: u64) {
    let whole = extent(index);
    let block = (whole.range.start + whole.range.end) / 2;
    map.insert(block..block + 1, Physical(1 << 60), &mut |old| {
        black_box(old);
    });
    map.insert(whole.range, whole.value, &mut |old| {
        black_box(old);
    });
}

/// The same with the tree: the extents that overlap are looked up, cut, taken out.
fn tree_replace(tree: &mut Tree, index: u64) {
    let whole = extent(index);
    let block = (whole.range.start + whole.range.end) / 2;
    let mut insert = |new: Piece<Physical>| {
        let (start, end) = (new.range.start, new.range.end);
        while let Some((&first, &(last, physical))) = tree.range(..end).next_back()
            && last > start
        {
            black_box(tree.remove(&first));
            if first < start {
                tree.insert(first, (start, physical));
            }
            if last > end {
                tree.insert(end, (last, physical + (end - first)));
            }
        }
        // It might be one with the extent before or behind.
        black_box(tree.range(..=start).next_back());
        black_box(tree.range(end..).next());
        tree.insert(start, (end, new.value.0));
    };
    insert(Piece { range: block..block + 1, value: Physical(1 << 60) });
    insert(whole);
}

fn print(name: &str, rounds: &Rounds, aim: f64) {
    let Spread { median, low, high, .. } = rounds.ratio();
    let [map, tree] = [&rounds.a, &rounds.b].map(|side| Spread::of(side.clone()).median);
    let met = if median <= aim { "met" } else { "missed" };
    println!(
        "{name}: ratio {median:.2} ({low:.2} - {high:.2}, {ROUNDS} rounds; {map:.0} : {tree:.0} ns), \
         aim <= {aim}: {met}"
    );
}

fn ratios(sides: &mut Sides) {
    let (extents, blocks) = (sides.extents, sides.blocks());
    let (map, tree) = (&mut sides.map, &mut sides.tree);
    assert!((0..blocks).step_by(997).all(|block| map_get(map, block) == tree_get(tree, block)));

    let (mut map_seed, mut tree_seed) = (0, 0);
    let rounds = Rounds::alternate(
        ROUNDS,
        || {
            map_seed += 1;
            timed(OPERATIONS, blocks, map_seed, |block| {
                black_box(map_get(map, block));
            })
        },
        || {
            tree_seed += 1;
            timed(OPERATIONS, blocks, tree_seed, |block| {
                black_box(tree_get(tree, block));
            })
        },
    );
    print("random lookup", &rounds, 0.8);

    let rounds = Rounds::alternate(
        ROUNDS,
        || {
            map_seed += 1;
            timed(OPERATIONS / 4, extents, map_seed, |index| map_replace(map, index))
        },
        || {
            tree_seed += 1;
            timed(OPERATIONS / 4, extents, tree_seed, |index| tree_replace(tree, index))
        },
    );
    print("a block replaced, and its extent again", &rounds, 1.1);
    assert_eq!((map.len() as u64, tree.len() as u64), (extents, extents));
}

fn single_operations(c: &mut Criterion, sides: &mut Sides) {
    let (extents, blocks) = (sides.extents, sides.blocks());
    let mut random = Random::new(7);
    let mut group = c.benchmark_group("extent map");
    group.bench_function("lookup", |b| {
        b.iter(|| map_get(&sides.map, random.below(blocks)));
    });
    group.bench_function("lookup, standard", |b| {
        b.iter(|| tree_get(&sides.tree, random.below(blocks)));
    });
    group.bench_function("replace", |b| {
        b.iter(|| map_replace(&mut sides.map, random.below(extents)));
    });
    group.bench_function("replace, standard", |b| {
        b.iter(|| tree_replace(&mut sides.tree, random.below(extents)));
    });
    // One extent of 1 GiB in blocks of 4 KiB, replaced again and again.
    let (mut at, mut long) = (0, RangeMap::new());
    group.bench_function("replace 1 GiB that is one extent", |b| {
        b.iter(|| {
            at += 1 << 20;
            long.insert(4096..4096 + (1 << 18), Physical(at), &mut |old| {
                black_box(old);
            });
        });
    });
    group.finish();
}

fn main() {
    let extents = match std::env::var("EXTENTS") {
        Ok(number) => number.parse().expect("EXTENTS is a number"),
        Err(_) => EXTENTS,
    };
    let mut sides = Sides::new(extents);
    ratios(&mut sides);
    let mut criterion = Criterion::default().configure_from_args();
    single_operations(&mut criterion, &mut sides);
    criterion.final_summary();
}
