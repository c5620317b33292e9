//! The simulation of the pool, for as long as `SIM_SECONDS` says (20 by default) from seed `SIM_SEED` on (1 by
//! default). `SEED=n` replays one seed with its whole log, on the stack that `SIM_STACK` names, `mapped`, `zoned`
//! or `identity`.

use emulation::BlkStatus;
use std::time::{Duration, Instant};
use tests::sim::options::{Options, Stack};
use tests::sim::run::{Report, Rig, run, run_twice};

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")),
        Err(_) => default,
    }
}

fn replay(stack: Stack) -> Option<u64> {
    let chosen = match std::env::var("SIM_STACK").as_deref() {
        Ok("identity") => Stack::Identity,
        Ok("zoned") => Stack::Zoned,
        Ok("mapped") | Err(_) => Stack::Mapped,
        Ok(other) => panic!("SIM_STACK={other}: none of mapped, zoned and identity"),
    };
    std::env::var("SEED").ok().filter(|_| chosen == stack).map(|_| number("SEED", 0))
}

/// Runs seeds until the time is over. Panics at the first that breaks a rule. `None`: another was to be replayed.
fn seeds(stack: Stack, name: &str, time: Duration) -> Option<Report> {
    let rig = Rig::plain();
    if let Some(seed) = replay(stack) {
        let options = Options::draw(seed, stack);
        let outcome = run(&options, &rig, true);
        println!("SEED={seed}\n{options:?}\n{}", outcome.lines.join("\n"));
        println!("hash {:#018x}", outcome.hash);
        assert_eq!(outcome.failure, None);
        return None;
    }
    if std::env::var_os("SEED").is_some() {
        return None;
    }
    let first = number("SIM_SEED", 1);
    let begun = Instant::now();
    let mut total = Report::default();
    let mut runs = 0;
    while begun.elapsed() < time || runs == 0 {
        let seed = first + runs;
        let again = format!(
            "SEED={seed} SIM_STACK={name} cargo test --profile ci -p tests --test sim -- --nocapture"
        );
        match run_twice(&Options::draw(seed, stack), &rig, &again) {
            Ok(report) => total.add(&report),
            Err(failure) => panic!("{failure}"),
        }
        runs += 1;
    }
    let spent = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    println!(
        "{name}: {runs} runs from seed {first}, each made twice: 2 x {} operations, {} a second, {} % overlap a live one",
        total.operations,
        2 * total.operations * 1000 / spent,
        total.overlapping * 100 / total.operations,
    );
    println!("{total:?}");
    Some(total)
}

fn time() -> Duration {
    Duration::from_secs(number("SIM_SECONDS", 20))
}

/// Enough operations for everything that is looked for to have come up.
const ENOUGH: u64 = 100_000;

#[test]
fn seeds_hold_every_invariant() {
    let Some(total) = seeds(Stack::Mapped, "mapped", time()) else {
        return;
    };
    if total.operations < ENOUGH {
        return;
    }
    assert!(total.overlapping * 100 >= total.operations * 30, "too few operations overlap a live one");
    for (what, count) in [
        ("waiting", total.parked),
        ("failed plans", total.failures),
        ("aborts", total.aborts),
        ("crashes", total.crashes),
        ("server deaths", total.kills),
        ("power cuts", total.power_cuts),
        ("requests struck by faults", total.struck),
        ("volumes removed", total.removals),
        ("looks at the durable image", total.probes),
        ("copies of 65 to 128 segments", total.segments[3]),
    ] {
        assert!(count > 0, "no {what} in {} operations", total.operations);
    }
    for status in [
        BlkStatus::NotSupp,
        BlkStatus::Inval,
        BlkStatus::OutOfRange,
        BlkStatus::ReadOnly,
        BlkStatus::NoVolume,
        BlkStatus::CopyMaxBytes,
        BlkStatus::CopyMaxSegmentBytes,
        BlkStatus::CopyMaxSegments,
        BlkStatus::CopyOverlap,
        BlkStatus::CopyNotFast,
        BlkStatus::CopyIncompatible,
    ] {
        assert!(total.refusals.contains_key(&status), "nothing was refused as {status:?}");
    }
    for status in [BlkStatus::NoSpc, BlkStatus::Aborted, BlkStatus::Medium] {
        assert!(total.answers.contains_key(&status), "nothing ended as {status:?}");
    }
}

#[test]
fn seeds_hold_in_place() {
    let Some(total) = seeds(Stack::Identity, "identity", time() / 4) else {
        return;
    };
    if total.operations < ENOUGH {
        return;
    }
    assert!(total.overlapping * 100 >= total.operations * 30, "too few operations overlap a live one");
}

#[test]
fn seeds_hold_with_zones() {
    let Some(total) = seeds(Stack::Zoned, "zoned", time() / 2) else {
        return;
    };
    if total.operations < ENOUGH {
        return;
    }
    for status in [
        BlkStatus::ZoneInvalidWrite,
        BlkStatus::ZoneBoundary,
        BlkStatus::ZoneFull,
        BlkStatus::ZoneReadonly,
        BlkStatus::ZoneOffline,
        BlkStatus::ZoneTransition,
        BlkStatus::ZoneAppend,
        BlkStatus::ZoneOpenResource,
        BlkStatus::ZoneActiveResource,
        BlkStatus::CopyOverlap,
    ] {
        assert!(total.refusals.contains_key(&status), "nothing was refused as {status:?}");
    }
    for (what, count) in [
        ("waiting", total.parked),
        ("crashes", total.crashes),
        ("server deaths", total.kills),
        ("copies of 2 to 8 segments", total.segments[1]),
    ] {
        assert!(count > 0, "no {what} in {} operations", total.operations);
    }
    assert!(total.answers.contains_key(&BlkStatus::IoErr), "nothing met a zone of another life");
}
