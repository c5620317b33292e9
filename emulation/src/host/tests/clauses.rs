//! Each published defect, switched on and off, under a test of the clause that it breaks.

use super::contents::span;
use super::path::{Path, disk, range, within};
use crate::host::copier::{Actor, HostCopy};
use crate::host::defect::{Defect, Defects};
use crate::host::design::Design;
use crate::host::stack::{Disk, Kind, Node, Stack, Target};
use crate::limits::CopyMode;
use crate::status::BlkStatus;
use crate::units::{Sector, Sectors};

type Verdict = Result<(), String>;

fn single(disk: Disk) -> (Stack, Node) {
    let mut stack = Stack::default();
    let node = stack.add(Kind::Disk(disk)).unwrap();
    (stack, node)
}

/// A disk that takes no copy, so that the caller reads and writes.
fn without_copy() -> (Stack, Node) {
    let mut disk = disk(0, 1024);
    disk.limits.copy_mode = CopyMode::Off;
    single(disk)
}

fn on(node: Node, start: u64, len: u64) -> Target {
    Target { on: node, start: Sector(start), len: Sectors(len) }
}

/// Sectors 100 to 299 of a disk.
fn partition() -> (Stack, Node) {
    let (mut stack, node) = single(disk(0, 1024));
    let part = stack.add(Kind::Partition(on(node, 100, 200))).unwrap();
    (stack, part)
}

/// Two runs of one disk, one behind the other, the second lying before the first.
fn concat(deferred: bool) -> (Stack, Node) {
    let (mut stack, node) = single(disk(0, 1024));
    let targets = vec![on(node, 500, 100), on(node, 0, 400)];
    let linear = stack.add(Kind::Linear { targets, deferred }).unwrap();
    (stack, linear)
}

/// Runs copies of tasks that take these first steps, then turns, and judges each by what the first `expected` says.
fn judge(mut path: Path, copies: &[HostCopy], first: &[usize], ok: bool) -> Verdict {
    let before = path.disks.snapshot();
    let plains: Vec<_> = copies.iter().map(|copy| path.plain(copy)).collect();
    let tasks: Vec<Actor> = copies.iter().map(|copy| path.host.start(copy.clone())).collect();
    first.iter().for_each(|task| path.host.step(tasks[*task]));
    path.run();
    for ((copy, plain), task) in copies.iter().zip(&plains).zip(&tasks) {
        let result = path.host.result(*task);
        let status = result.map(|result| result.status);
        if copies.len() == 1 {
            path.verdict(copy, &before, plain, result)?;
        }
        if status.is_some_and(|status| status.is_ok()) != ok {
            return Err(format!("ended as {status:?}"));
        }
    }
    if copies.len() > 1 {
        both(&path, copies)?;
    }
    Ok(())
}

/// Copies to different places, all of which succeeded.
fn both(path: &Path, copies: &[HostCopy]) -> Verdict {
    let fresh = Path::new(path.host.stack(), Design::Context, Defects::NONE);
    for copy in copies {
        let (plain, is) = (fresh.plain(copy), path.disks.snapshot());
        for (node, range) in path.host.stack().flatten(copy.to, copy.destinations[0]) {
            let volume = path.host.stack().disk(node).volume;
            let places = span(range);
            if plain[&volume][places.clone()] != is[&volume][places] {
                return Err(format!("{range} does not hold its source"));
            }
        }
    }
    Ok(())
}

/// One copy, which has to succeed.
fn whole(
    (stack, node): (Stack, Node),
    design: Design,
    defects: Defects,
    pieces: &[(u64, u64, u64)],
) -> Verdict {
    judge(Path::new(&stack, design, defects), &[within(node, pieces)], &[], true)
}

/// One copy, which has to be refused with nothing changed.
fn refused(
    (stack, node): (Stack, Node),
    design: Design,
    defects: Defects,
    pieces: &[(u64, u64, u64)],
) -> Verdict {
    let path = Path::new(&stack, design, defects);
    let copy = within(node, pieces);
    let mut path = path;
    let before = path.disks.snapshot();
    match path.copy(&copy) {
        None => Err("it never ends".into()),
        Some(result) if result.status.is_ok() => Err("it succeeds".into()),
        Some(_) if path.disks.snapshot() != before => Err("something has changed".into()),
        Some(_) => Ok(()),
    }
}

/// One copy of which requests fail.
fn failing(
    (stack, node): (Stack, Node),
    design: Design,
    defects: Defects,
    pieces: &[(u64, u64, u64)],
    failures: &[usize],
    ok: bool,
) -> Verdict {
    let mut path = Path::new(&stack, design, defects);
    path.disks.failures = failures.iter().map(|place| (*place, BlkStatus::Medium)).collect();
    judge(path, &[within(node, pieces)], &[], ok)
}

/// The clause that a defect breaks, as a test with and without it.
#[expect(clippy::too_many_lines, reason = "a table: one entry for each defect")]
fn clause(defect: Defect, defects: Defects) -> Verdict {
    let plain = || single(disk(0, 1024));
    match defect {
        Defect::NomergesHonoured => {
            let disk = Disk { nomerges: true, ..disk(0, 1024) };
            whole(single(disk), Design::Pair, defects, &[(0, 16, 500)])
        }
        Defect::PairedBySize => {
            let (stack, node) = concat(true);
            let copies = [within(node, &[(0, 16, 200)]), within(node, &[(40, 16, 300)])];
            // Both plug, both send their destination, then both their source; the worker sees them in this order.
            judge(Path::new(&stack, Design::Pair, defects), &copies, &[0, 1, 0, 1, 0, 1], true)
        }
        Defect::HalfHoldsTag => {
            let (stack, node) = single(Disk { depth: 1, ..disk(0, 1024) });
            let copies = [within(node, &[(0, 16, 200)]), within(node, &[(40, 16, 300)])];
            judge(Path::new(&stack, Design::Pair, defects), &copies, &[0, 1, 0, 1], true)
        }
        Defect::PlugLost => {
            let (stack, node) = plain();
            let mut path = Path::new(&stack, Design::Pair, defects);
            let task = path.host.start(within(node, &[(0, 16, 500)]));
            path.host.step(task);
            path.host.step(task);
            path.host.preempt(task);
            path.run();
            let status = path.host.result(task).map(|result| result.status);
            if status == Some(BlkStatus::Ok) { Ok(()) } else { Err(format!("ended as {status:?}")) }
        }
        Defect::LengthDoubled => {
            let (stack, node) = plain();
            let mut path = Path::new(&stack, Design::Pair, defects);
            path.copy(&within(node, &[(0, 16, 500)]));
            let counted = path.host.accounted().0;
            if counted == 16 { Ok(()) } else { Err(format!("16 sectors count as {counted}")) }
        }
        Defect::LimitExclusive => whole(plain(), Design::Pair, defects, &[(0, 64, 500)]),
        Defect::ErrorAsZero => failing(plain(), Design::Pair, defects, &[(0, 16, 500)], &[0], false),
        Defect::OperandsSwapped => whole(without_copy(), Design::Pair, defects, &[(0, 16, 500)]),
        Defect::EmulationAlwaysWhole => {
            failing(without_copy(), Design::Pair, defects, &[(0, 16, 500)], &[1], false)
        }
        Defect::SourcesJoinedByNewLength => {
            whole(plain(), Design::Vector, defects, &[(0, 8, 500), (16, 16, 508)])
        }
        Defect::DestinationNotAdvanced => {
            whole(without_copy(), Design::Vector, defects, &[(0, 8, 500), (16, 16, 508)])
        }
        Defect::SourcesNotRemapped => whole(partition(), Design::Vector, defects, &[(0, 8, 50)]),
        // The sources lie on the disk, behind the partition.
        Defect::SourcesUnchecked => refused(partition(), Design::Vector, defects, &[(190, 20, 50)]),
        Defect::SegmentsExclusive => {
            let four = [(0, 8, 500), (16, 8, 508), (32, 8, 516), (48, 8, 524)];
            whole(plain(), Design::Vector, defects, &four)
        }
        Defect::EmptyAccepted => refused(plain(), Design::Vector, defects, &[]),
        Defect::OverlapOfFirstOnly => refused(plain(), Design::Vector, defects, &[(0, 8, 500), (100, 8, 4)]),
        // The correct design reads and writes after the failure.
        Defect::ErrorDropped => failing(plain(), Design::Context, defects, &[(0, 16, 500)], &[0], true),
        Defect::ReferencePerSource => whole(plain(), Design::Context, defects, &[(0, 8, 500), (16, 16, 508)]),
        Defect::NegativeReturnAdded => {
            // The second command fails, and so does the read that follows.
            failing(plain(), Design::Context, defects, &[(0, 128, 500)], &[1, 2], false)
        }
        Defect::WrongWorker => whole(without_copy(), Design::Context, defects, &[(0, 16, 500)]),
        Defect::PieceNotClipped => {
            let (stack, node) = without_copy();
            let destinations = vec![range(500, 8), range(600, 8)];
            let copy = HostCopy { from: node, to: node, sources: vec![range(0, 16)], destinations };
            judge(Path::new(&stack, Design::Context, defects), &[copy], &[], true)
        }
        Defect::LimitsIgnored => {
            let (stack, node) = plain();
            let mut path = Path::new(&stack, Design::Context, defects);
            path.copy(&within(node, &[(0, 128, 500)]));
            if path.disks.refused.is_empty() { Ok(()) } else { Err(format!("{:?}", path.disks.refused)) }
        }
        Defect::LoneHalfParked => refused(partition(), Design::Matched, defects, &[(190, 20, 50)]),
        // The source crosses the border of the targets after 10 sectors, the destination after 5.
        Defect::SplitHalvesByOrder => {
            let (stack, node) = concat(false);
            let copy = HostCopy {
                from: node,
                to: node,
                sources: vec![range(90, 5), range(95, 15)],
                destinations: vec![range(200, 20)],
            };
            let mut crossing = copy.clone();
            crossing.sources = vec![range(300, 20)];
            crossing.destinations = vec![range(95, 20)];
            judge(Path::new(&stack, Design::Matched, defects), &[copy], &[], true)?;
            judge(Path::new(&stack, Design::Matched, defects), &[crossing], &[], true)
        }
    }
}

#[test]
fn each_published_defect_is_seen_and_without_it_its_clause_holds() {
    for &defect in Defect::ALL {
        assert_eq!(clause(defect, Defects::NONE), Ok(()), "{defect:?} is off");
        let verdict = clause(defect, Defects::only(defect));
        assert!(verdict.is_err(), "{defect:?} ({}) was not seen", defect.source());
        println!("{defect:?}: {}", verdict.unwrap_err());
    }
}

#[test]
fn a_pair_that_crosses_a_target_fails_and_a_context_falls_back() {
    let across = [(90, 20, 200)];
    assert_eq!(refused(concat(false), Design::Pair, Defects::NONE, &across), Ok(()));
    let (stack, node) = concat(false);
    let mut path = Path::new(&stack, Design::Context, Defects::NONE);
    let result = path.copy(&within(node, &across)).unwrap();
    assert_eq!((result.status, result.fell_back), (BlkStatus::Ok, Sectors(20)));
    assert_eq!(whole(concat(false), Design::Vector, Defects::NONE, &across), Ok(()));
}

#[test]
fn a_vector_joins_neighbours_to_one_command_and_is_split_at_each_limit() {
    let (stack, node) = single(disk(0, 1024));
    let mut path = Path::new(&stack, Design::Vector, Defects::NONE);
    path.copy(&within(node, &[(0, 8, 500), (100, 8, 508)]));
    assert_eq!(path.disks.log.len(), 1);
    // Five ranges are one too many; 30 sectors are two segments.
    path.copy(&within(node, &[(0, 2, 600), (10, 2, 602), (20, 2, 604), (30, 2, 606), (40, 2, 608)]));
    assert_eq!(path.disks.log.len(), 3);
    path.copy(&within(node, &[(0, 30, 700)]));
    assert_eq!(path.disks.log.len(), 4);
    assert!(path.disks.refused.is_empty());
}

#[test]
fn two_bios_of_neighbouring_data_become_one_request_unless_merging_is_off() {
    let requests = |nomerges| {
        let (mut stack, node) = single(Disk { nomerges, ..disk(0, 1024) });
        // Two targets that follow each other on the disk.
        let targets = vec![on(node, 100, 8), on(node, 108, 100)];
        let linear = stack.add(Kind::Linear { targets, deferred: false }).unwrap();
        let mut path = Path::new(&stack, Design::Pair, Defects::NONE);
        // Another device than the destination's: read and written.
        let copy = HostCopy {
            from: linear,
            to: node,
            sources: vec![range(0, 16)],
            destinations: vec![range(500, 16)],
        };
        let result = path.copy(&copy).unwrap();
        assert_eq!((result.status, result.fell_back), (BlkStatus::Ok, Sectors(16)));
        path.disks.log.len()
    };
    assert_eq!((requests(false), requests(true)), (2, 3));
}
