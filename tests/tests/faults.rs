//! Storage that answers no more, at every sync and every commit; and faults that lie, each of which the simulation has to
//! find.

use emulation::Sector;
use emulation::fault::FaultAction;
use tests::sim::options::{Copies, Freeze, Grain, Operations, Options, Stack};
use tests::sim::prng::Ratio;
use tests::sim::run::{Rig, run};

/// A small pool with a volatile cache, without other faults.
fn volatile(seed: u64) -> Options {
    let mut options = Options::draw(seed, Stack::Mapped);
    (options.logical_block, options.map_block, options.blocks) = (1, 8, (32, 64));
    (options.volumes, options.volumes_max, options.odd_volumes) = (2, 2, false);
    (options.cap, options.held_max) = (256, Some(32));
    options.physical = options.cap + 1024;
    options.operations = 300;
    options.ops =
        Operations { read: 20, write: 30, flush: 6, discard: 5, write_zeroes: 5, copy: 15, zone: 0 };
    options.copies =
        Copies { whole: 10, head_tail: 10, incongruent: 5, related: 0, overlapping: 0, refused: 0 };
    options.segments = 4;
    options.fua = Ratio::new(1, 8);
    (options.crash, options.kill) = (Ratio::NEVER, Ratio::NEVER);
    (options.events.fail, options.events.power, options.events.faults) = (0, 0, 0);
    (options.grain, options.timed, options.log_records) = (Grain::Part, false, None);
    options
}

/// The host goes down when the storage stops, at every sync and at every commit of a run: what was made durable is there.
#[test]
fn storage_may_freeze_at_every_sync_and_commit() {
    let mut tried = 0;
    for seed in 1..=4 {
        let options = volatile(seed);
        let (syncs, commits) = run(&options, &Rig::plain(), false).report.syncs;
        assert!(syncs > 10 && commits > 10, "seed {seed}: {syncs} syncs and {commits} commits");
        let freezes = (1..=syncs).map(Freeze::Sync).chain((1..=commits).map(Freeze::Commit));
        for freeze in freezes {
            let outcome = run(&Options { freeze: Some(freeze), ..options.clone() }, &Rig::plain(), false);
            assert_eq!(outcome.failure, None, "seed {seed}, {freeze:?}");
            tried += outcome.report.crashes;
        }
    }
    println!("{tried} crashes, each at another sync or commit");
    assert!(tried > 80, "{tried} crashes");
}

/// A disk that says what is not so is found out.
fn found(action: FaultAction, tune: impl Fn(&mut Options), says: &str) {
    const SEEDS: u64 = 40;
    for seed in 1..=SEEDS {
        let mut options = volatile(seed);
        tune(&mut options);
        let honest = run(&options, &Rig::plain(), false).failure;
        assert_eq!(honest, None, "seed {seed} without the lie");
        options.lie = Some(action);
        if let Some(failure) = run(&options, &Rig::plain(), false).failure {
            let first = failure.lines().next().unwrap_or_default();
            assert!(failure.contains(says), "{action:?}, seed {seed}: not as it should be found: {first}");
            println!("{action:?}: seed {seed}: {}", first.chars().take(140).collect::<String>());
            return;
        }
    }
    panic!("{action:?}: not found by {SEEDS} seeds");
}

#[test]
fn a_torn_write_is_found() {
    found(FaultAction::Torn, |_| {}, "allowed");
}

#[test]
fn a_misdirected_write_is_found() {
    found(FaultAction::Misdirect(Sector(0)), |_| {}, "allowed");
}

#[test]
fn a_corrupt_sector_is_found() {
    found(FaultAction::Corrupt, |_| {}, "allowed");
}

#[test]
fn a_lost_flush_is_found() {
    found(FaultAction::LostFlush, |options| options.crash = Ratio::new(1, 200), "durable image");
}
