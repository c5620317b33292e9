//! Copies of any shape through any stack and design, in any order of steps: each leaves what the plain meaning says,
//! or fails as a failed copy may.

use super::contents::span;
use super::path::{Path, disk, range};
use super::pool::PoolDisks;
use crate::host::copier::HostCopy;
use crate::host::defect::{Defect, Defects};
use crate::host::design::Design;
use crate::host::stack::{Disk, Kind, Node, Stack, Target};
use crate::limits::CopyMode;
use crate::status::BlkStatus;
use crate::timing::chance::Chance;
use crate::units::{Sector, SectorRange, Sectors};

const SECTORS: u64 = 512;

fn below(chance: &mut Chance, n: u64) -> u64 {
    u64::from(chance.below(u32::try_from(n).unwrap()))
}

/// Two disks and up to four devices on them; answers the device to copy on.
fn draw_stack(chance: &mut Chance) -> (Stack, Node) {
    let mut stack = Stack::default();
    let mut nodes = Vec::new();
    let off = below(chance, 8) == 0;
    for volume in 0..2 {
        let mut disk = disk(volume, SECTORS);
        disk.nomerges = below(chance, 2) == 0;
        disk.depth = [1, 2, 32][chance.below(3) as usize];
        if off {
            disk.limits.copy_mode = CopyMode::Off;
        }
        nodes.push(stack.add(Kind::Disk(disk)).unwrap());
    }
    for _ in 0..below(chance, 5) {
        let deferred = below(chance, 3) == 0;
        let target = |chance: &mut Chance| {
            let on = nodes[chance.below(u32::try_from(nodes.len()).unwrap()) as usize];
            let capacity = stack.capacity(on).0;
            let start = below(chance, (capacity / 2).max(1));
            Target { on, start: Sector(start), len: Sectors(1 + below(chance, capacity - start)) }
        };
        let kind = match chance.below(4) {
            0 => Kind::Partition(target(chance)),
            1 => Kind::Linear { targets: vec![target(chance)], deferred },
            2 => Kind::Linear { targets: vec![target(chance), target(chance)], deferred },
            _ => {
                let chunk = Sectors(1 + below(chance, 24));
                Kind::Stripe { chunk, on: vec![nodes[0], nodes[1]], deferred }
            }
        };
        if let Ok(node) = stack.add(kind) {
            nodes.push(node);
        }
    }
    (stack, *nodes.last().unwrap())
}

/// Ranges of a device that do not touch those taken already, of `total` sectors together.
fn draw_ranges(
    chance: &mut Chance,
    stack: &Stack,
    node: Node,
    total: u64,
    taken: &mut Vec<(Node, SectorRange)>,
) -> Option<Vec<SectorRange>> {
    let mut ranges = Vec::new();
    let mut left = total;
    for _ in 0..40 {
        let len = if below(chance, 3) == 0 { left } else { 1 + below(chance, left) };
        let capacity = stack.capacity(node).0;
        if len >= capacity {
            continue;
        }
        let new = range(below(chance, capacity - len), len);
        let flat = stack.flatten(node, new);
        // A linear map may name one place of a disk twice.
        let twice = flat.iter().enumerate().any(|(i, a)| flat[..i].iter().any(|b| meet(a, b)));
        if twice || flat.iter().any(|a| taken.iter().any(|b| meet(a, b))) {
            continue;
        }
        taken.extend(flat);
        ranges.push(new);
        left -= len;
        if left == 0 {
            return Some(ranges);
        }
    }
    None
}

fn meet(a: &(Node, SectorRange), b: &(Node, SectorRange)) -> bool {
    a.0 == b.0 && a.1.overlaps(b.1)
}

#[derive(Debug, Default)]
struct Seen {
    offloaded: u64,
    fell_back: u64,
    failed: u64,
    two_tasks: u64,
}

/// One seed: one or two copies at once.
fn seed(
    seed: u64,
    design: Design,
    defects: Defects,
    through_pool: bool,
    seen: &mut Seen,
) -> Result<(), String> {
    let mut chance = Chance::new(seed);
    let (stack, node) = draw_stack(&mut chance);
    let mut path = Path::new(&stack, design, defects).shuffled(seed);
    let disks = || stack.disks().map(|(_, disk): (Node, &Disk)| (disk.volume, disk.limits.clone()));
    path.pool = through_pool.then(|| PoolDisks::new(disks()));
    if !through_pool && below(&mut chance, 4) == 0 {
        let place = chance.below(6) as usize;
        path.disks.failures.insert(place, BlkStatus::Medium);
    }
    let mut taken = Vec::new();
    let mut copies = Vec::new();
    for _ in 0..1 + chance.below(2) {
        let total = 1 + below(&mut chance, 150);
        let draw = |chance: &mut Chance, taken: &mut Vec<_>| draw_ranges(chance, &stack, node, total, taken);
        if let (Some(sources), Some(destinations)) =
            (draw(&mut chance, &mut taken), draw(&mut chance, &mut taken))
        {
            copies.push(HostCopy { from: node, to: node, sources, destinations });
        }
    }
    let before = path.disks.snapshot();
    let plains: Vec<_> = copies.iter().map(|copy| path.plain(copy)).collect();
    let tasks: Vec<_> = copies.iter().map(|copy| path.host.start(copy.clone())).collect();
    path.run();
    if !path.host.is_idle() {
        return Err(format!("seed {seed}, {design:?}: something is left"));
    }
    // Each copy is judged with the others' destinations set back.
    for (index, (copy, task)) in copies.iter().zip(&tasks).enumerate() {
        let after = path.disks.snapshot();
        for other in copies.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, copy)| copy) {
            for (node, range) in other.destinations.iter().flat_map(|range| stack.flatten(node, *range)) {
                let volume = stack.disk(node).volume;
                let old = &before[&volume][span(range)];
                path.disks.write(volume, range.start.0, old);
            }
        }
        let result = path.host.result(*task);
        if let Err(wrong) = path.verdict(copy, &before, &plains[index], result) {
            return Err(format!("seed {seed}, {design:?}: {wrong}\n{copy:?}\n{result:?}\n{stack:?}"));
        }
        for (volume, contents) in after {
            path.disks.write(volume, 0, &contents);
        }
        let result = result.expect("judged");
        seen.failed += u64::from(!result.status.is_ok());
        seen.fell_back += u64::from(!result.fell_back.is_zero());
        seen.offloaded += u64::from(result.status.is_ok() && result.fell_back.is_zero());
    }
    seen.two_tasks += u64::from(copies.len() == 2);
    if !path.disks.refused.is_empty() {
        return Err(format!("seed {seed}, {design:?}: sent what is refused: {:?}", path.disks.refused));
    }
    if let Some(pool) = &mut path.pool {
        for (volume, limits) in disks() {
            let whole = range(0, limits.capacity.0);
            assert_eq!(pool.read(volume, &limits), path.disks.read(volume, whole), "seed {seed}, {design:?}");
        }
    }
    Ok(())
}

fn seeds(count: u64, design: Design, through_pool: bool) -> Seen {
    let mut seen = Seen::default();
    for number in 0..count {
        if let Err(wrong) = seed(number, design, Defects::NONE, through_pool, &mut seen) {
            panic!("{wrong}");
        }
    }
    println!("{}: {seen:?}", design.name());
    seen
}

#[test]
fn any_copy_through_any_stack_keeps_its_meaning() {
    for design in Design::ALL {
        let seen = seeds(1500, design, false);
        for count in [seen.offloaded, seen.fell_back, seen.failed, seen.two_tasks] {
            assert!(count > 100, "{}: {seen:?}", design.name());
        }
    }
}

#[test]
fn a_pool_answers_every_design_like_plain_disks() {
    for design in Design::ALL {
        let seen = seeds(60, design, true);
        assert!(seen.offloaded > 10, "{}: {seen:?}", design.name());
    }
}

#[test]
fn chance_finds_the_defects_that_corrupt_or_hang() {
    for (design, defect) in [
        (Design::Pair, Defect::PairedBySize),
        (Design::Pair, Defect::OperandsSwapped),
        (Design::Pair, Defect::EmulationAlwaysWhole),
        (Design::Pair, Defect::ErrorAsZero),
        (Design::Vector, Defect::SourcesJoinedByNewLength),
        (Design::Vector, Defect::DestinationNotAdvanced),
        (Design::Vector, Defect::SourcesNotRemapped),
        (Design::Context, Defect::ErrorDropped),
        (Design::Context, Defect::ReferencePerSource),
        (Design::Context, Defect::WrongWorker),
        (Design::Context, Defect::PieceNotClipped),
        (Design::Context, Defect::LimitsIgnored),
        (Design::Matched, Defect::SplitHalvesByOrder),
        (Design::Matched, Defect::PairedBySize),
    ] {
        let wrong =
            |number| seed(number, design, Defects::only(defect), false, &mut Seen::default()).is_err();
        let found = (0..1500).find(|number| wrong(*number));
        println!("{defect:?}: seed {found:?}");
        assert!(found.is_some(), "{defect:?} under {design:?} was not seen");
    }
}
