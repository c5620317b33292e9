//! The write amplification of garbage collection, against numbers that do not come from it: published formulas, and an
//! independent simulator with 4096 zones and over-provisioning from 7 to 50 % (T/U - 1).
//!
//! By default three sizes of the spare are measured, for as long as they take to settle. `GC_LONG=1` does all of them with
//! the simulator's own recipe: 12 times all pages before the measurement (10 under uniform writes), 0.6 of that in it.
//! Every check runs against a wrong policy too, which it has to refuse.

use tests::sim::prng::Prng;
use zoned::gc::{Generator, Geometry, Layout, Ledger, Log, Media, Policy, Slot, Workload, model};

/// Percent of over-provisioning of each value of a column.
const SPARES: [u32; 7] = [7, 10, 15, 20, 25, 28, 50];
/// Those that are measured by default, as places in `SPARES`.
const FEW: [usize; 3] = [0, 2, 5];
/// At least so many zones, and so many pages.
const ZONES: u32 = 4096;
const PAGES: u32 = ZONES * 64;
const MIXED: Workload = Workload::HotCold { pages: 10, writes: 90 };

fn long() -> bool {
    std::env::var_os("GC_LONG").is_some_and(|text| text != "0")
}

/// Which pages share a zone.
#[derive(Clone, Copy, Debug)]
enum Streams {
    One,
    GcApart,
    /// An oracle that takes so many percent of the pages for hot.
    Oracle(u32),
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Setup {
    policy: Policy,
    streams: Streams,
    workload: Workload,
    zone_pages: u32,
    /// Percent of over-provisioning.
    spare: u32,
}

const UNIFORM: Setup = Setup {
    policy: Policy::Greedy,
    streams: Streams::One,
    workload: Workload::Uniform,
    zone_pages: 64,
    spare: SPARES[0],
};
const HOT_COLD: Setup = Setup { workload: MIXED, ..UNIFORM };

/// Who is checked.
#[derive(Clone, Copy)]
struct Subject {
    /// Makes another of a setup: what a wrong policy would do.
    change: fn(Setup) -> Setup,
    /// How far a value may be off what is expected, as a share of it.
    off: f64,
    /// For so long, times all pages: before the measurement, and in it. `None`: until it has settled.
    turns: Option<(u64, u64)>,
}

/// The policies as they are.
const RIGHT: Subject = Subject { change: |setup| setup, off: 0.01, turns: None };

impl Subject {
    fn amplification(self, setup: Setup) -> f64 {
        amplification((self.change)(setup), self.turns)
    }

    fn near(self, what: &str, measured: f64, expected: f64) -> Result<(), String> {
        let off = measured / expected - 1.0;
        println!("{what}: {measured:.3}, expected {expected:.2}, {:+.2} %", off * 100.0);
        if off.abs() <= self.off {
            Ok(())
        } else {
            Err(format!("{what}: {measured:.3} is not {expected:.2}"))
        }
    }
}

/// Counts what it is told, so that the log's own counters are not believed.
#[derive(Default)]
struct Counts {
    user: u64,
    moved: u64,
}

impl Media for Counts {
    fn user(&mut self, _page: u32, _to: Slot) {
        self.user += 1;
    }

    fn moved(&mut self, _page: u32, _from: Slot, _to: Slot) {
        self.moved += 1;
    }

    fn emptied(&mut self, _zone: u32) {}
}

fn amplification(setup: Setup, turns: Option<(u64, u64)>) -> f64 {
    // The reserve of a few zones is to be a small part of the spare, however small the zones.
    let zones = ZONES.max(PAGES / setup.zone_pages);
    let geometry = Geometry::with_over_provisioning(zones, setup.zone_pages, setup.spare);
    let layout = match setup.streams {
        Streams::One => Layout::OneLog,
        Streams::GcApart => Layout::GcLog,
        Streams::Oracle(percent) => Layout::HotCold { hot_pages: geometry.pages / 100 * percent },
    };
    let mut log = Log::new(geometry, setup.policy, layout).expect("a log");
    let generator = Generator::new(setup.workload, geometry.pages).expect("a workload");
    let mut random = Prng::new(1);
    let mut counts = Counts::default();
    for page in 0..geometry.pages {
        log.write(page, &mut random, &mut counts);
    }
    let total = geometry.total();
    let (before, measured) = match (turns, long(), setup.workload) {
        (Some((before, measured)), ..) => (before * total, measured * total),
        (None, false, Workload::Uniform) => (4 * total, 2 * total),
        (None, false, Workload::HotCold { .. } | Workload::Zipf { .. }) => (12 * total, 2 * total),
        (None, true, Workload::Uniform) => (10 * total, 6 * total),
        (None, true, Workload::HotCold { .. } | Workload::Zipf { .. }) => (12 * total, total * 36 / 5),
    };
    let mut write = |count: u64, counts: &mut Counts| {
        (0..count).for_each(|_| log.write(generator.next(&mut random), &mut random, counts));
        *log.ledger()
    };
    let begun = write(before, &mut counts);
    counts = Counts::default();
    let ledger: Ledger = write(measured, &mut counts).since(&begun);
    assert_eq!((ledger.user_pages, ledger.moved_pages), (counts.user, counts.moved));
    let amplification = (counts.user + counts.moved) as f64 / counts.user as f64;
    // What the closed forms take for granted: A = 1 / (1 - x), x the live share of the victims.
    let live = ledger.live_fraction().expect("zones were collected");
    assert!((amplification * (1.0 - live) - 1.0).abs() < 0.01, "{amplification} with victims {live} live");
    amplification
}

fn at_least(what: &str, more: f64, less: f64) -> Result<(), String> {
    if more >= less { Ok(()) } else { Err(format!("{what}: {more:.3} is less than {less:.3}")) }
}

/// A column of the table of expected values.
struct Column {
    setup: Setup,
    /// What the simulator measured; 0 where it did not.
    simulated: [f64; 7],
    /// The closed form, by T / U.
    formula: Option<fn(f64) -> f64>,
}

impl Column {
    /// Every value that is measured, by its place in `SPARES`.
    fn check(&self, subject: Subject) -> Result<Vec<(usize, f64)>, String> {
        let mut seen: Vec<(usize, f64)> = Vec::new();
        for (place, &spare) in SPARES.iter().enumerate() {
            let expected = self.simulated[place];
            if expected == 0.0 || !(long() || FEW.contains(&place)) {
                continue;
            }
            let measured = subject.amplification(Setup { spare, ..self.setup });
            let Setup { policy, streams, zone_pages, .. } = self.setup;
            let what = format!("{policy}, {streams:?}, zones of {zone_pages}, spare {spare} %");
            subject.near(&what, measured, expected)?;
            if let Some(formula) = self.formula {
                subject.near(
                    &format!("{what}, formula"),
                    measured,
                    formula(1.0 + f64::from(spare) / 100.0),
                )?;
            }
            if let Some((_, with_less)) = seen.last() {
                at_least(&format!("{what}, and with less spare"), *with_less, measured)?;
            }
            seen.push((place, measured));
        }
        Ok(seen)
    }
}

/// Two columns side by side, with their spares.
fn pairs<'a>(a: &'a [(usize, f64)], b: &'a [(usize, f64)]) -> impl Iterator<Item = (u32, f64, f64)> + 'a {
    a.iter().zip(b).map(|(&(place, a), &(of_b, b))| {
        assert_eq!(place, of_b, "columns of the same spares");
        (SPARES[place], a, b)
    })
}

const FIFO: Column = Column {
    setup: Setup { policy: Policy::Fifo, ..UNIFORM },
    simulated: [7.87, 5.71, 4.03, 3.20, 2.70, 2.49, 1.72],
    formula: Some(model::fifo),
};
const GREEDY: Column = Column {
    setup: UNIFORM,
    simulated: [7.03, 5.26, 3.81, 3.06, 2.60, 2.40, 1.68],
    formula: Some(|alpha| model::greedy(alpha, 64)),
};
const GREEDY_256: Column = Column {
    setup: Setup { zone_pages: 256, ..UNIFORM },
    simulated: [7.65, 5.59, 3.97, 3.16, 2.67, 2.47, 1.71],
    formula: Some(|alpha| model::greedy(alpha, 256)),
};
const DRAWS: Column = Column {
    setup: Setup { policy: Policy::DChoices { d: 10 }, ..UNIFORM },
    simulated: [7.38, 0.0, 3.94, 0.0, 0.0, 2.48, 0.0],
    formula: None,
};
const COST_BENEFIT: Column = Column {
    setup: Setup { policy: Policy::CostBenefit, ..UNIFORM },
    simulated: [7.23, 0.0, 3.86, 0.0, 0.0, 2.43, 0.0],
    formula: None,
};
const MIXED_FIFO: Column = Column {
    setup: Setup { policy: Policy::Fifo, ..HOT_COLD },
    simulated: [8.92, 6.71, 4.97, 4.08, 3.54, 3.30, 2.39],
    formula: Some(|alpha| model::fifo_mixed(alpha, &[(0.1, 0.9), (0.9, 0.1)])),
};
const MIXED_GREEDY: Column =
    Column { setup: HOT_COLD, simulated: [8.24, 6.37, 4.84, 4.00, 3.49, 3.26, 2.35], formula: None };
const APART_GREEDY: Column = Column {
    setup: Setup { streams: Streams::GcApart, ..HOT_COLD },
    simulated: [7.91, 6.04, 4.45, 3.61, 3.10, 2.88, 2.05],
    formula: None,
};
const ORACLE_GREEDY: Column = Column {
    setup: Setup { streams: Streams::Oracle(10), ..HOT_COLD },
    simulated: [7.06, 5.24, 3.82, 3.07, 2.61, 2.41, 1.68],
    formula: None,
};
const MIXED_COST_BENEFIT: Column = Column {
    setup: Setup { policy: Policy::CostBenefit, ..HOT_COLD },
    simulated: [8.20, 6.32, 4.77, 3.96, 3.45, 3.22, 2.35],
    formula: None,
};
const APART_COST_BENEFIT: Column = Column {
    setup: Setup { policy: Policy::CostBenefit, streams: Streams::GcApart, ..HOT_COLD },
    simulated: [4.79, 3.64, 2.71, 2.25, 1.95, 1.83, 1.42],
    formula: None,
};
const ORACLE_COST_BENEFIT: Column = Column {
    setup: Setup { policy: Policy::CostBenefit, streams: Streams::Oracle(10), ..HOT_COLD },
    simulated: [3.18, 2.50, 1.96, 1.69, 1.54, 1.48, 1.28],
    formula: None,
};

/// Uniform writes: FIFO does no better than greedy, and greedy does worse with larger zones.
fn uniform(subject: Subject) -> Result<(), String> {
    let (fifo, greedy, large) = (FIFO.check(subject)?, GREEDY.check(subject)?, GREEDY_256.check(subject)?);
    for (spare, fifo, greedy) in pairs(&fifo, &greedy) {
        at_least(&format!("FIFO and greedy at {spare} %"), fifo, greedy)?;
        if spare == 28 {
            let policy = Policy::WindowedGreedy { window: 64 };
            let window = subject.amplification(Setup { policy, spare, ..UNIFORM });
            at_least("FIFO and a window", fifo, window)?;
            at_least("a window and greedy", window, greedy)?;
        }
    }
    for (spare, large, small) in pairs(&large, &greedy) {
        at_least(&format!("greedy with zones of 256 and 64 at {spare} %"), large, small)?;
    }
    Ok(())
}

/// Greedy by the size of its zones, at 7 %.
fn zone_sizes(subject: Subject) -> Result<(), String> {
    let sizes: &[u32] = if long() { &[16, 32, 64, 128, 256, 512, 1024] } else { &[16, 32, 128] };
    let mut before = 1.0;
    for &zone_pages in sizes {
        let measured = subject.amplification(Setup { zone_pages, ..UNIFORM });
        subject.near(
            &format!("greedy, zones of {zone_pages}, formula"),
            measured,
            model::greedy(1.07, zone_pages),
        )?;
        at_least("greedy with larger zones", measured, before)?;
        before = measured;
    }
    Ok(())
}

fn draws_and_cost_benefit(subject: Subject) -> Result<(), String> {
    DRAWS.check(subject)?;
    COST_BENEFIT.check(subject).map(drop)
}

fn mixed_in_one_log(subject: Subject) -> Result<(), String> {
    let (fifo, greedy) = (MIXED_FIFO.check(subject)?, MIXED_GREEDY.check(subject)?);
    for (spare, fifo, greedy) in pairs(&fifo, &greedy) {
        at_least(&format!("FIFO and greedy at {spare} %"), fifo, greedy)?;
    }
    Ok(())
}

/// Greedy equalises the live shares of what an oracle separates, so that it ends where uniform writes do.
fn greedy_apart(subject: Subject) -> Result<(), String> {
    APART_GREEDY.check(subject)?;
    for (place, oracle) in ORACLE_GREEDY.check(subject)? {
        let uniform = amplification(Setup { spare: SPARES[place], ..UNIFORM }, None);
        RIGHT.near("greedy with an oracle, and under uniform writes", oracle, uniform)?;
    }
    Ok(())
}

/// Cost-benefit needs a log of its own for what it moves: in one log it does what greedy does.
fn cost_benefit_apart(subject: Subject) -> Result<(), String> {
    let one = MIXED_COST_BENEFIT.check(subject)?;
    let apart = APART_COST_BENEFIT.check(subject)?;
    for (spare, one, apart) in pairs(&one, &apart) {
        at_least(&format!("cost-benefit in one log and apart at {spare} %"), one, 1.4 * apart)?;
        let greedy = MIXED_GREEDY.simulated[SPARES.iter().position(|it| *it == spare).expect("a spare")];
        at_least(&format!("cost-benefit and greedy in one log at {spare} %"), one, 0.97 * greedy)?;
    }
    Ok(())
}

fn cost_benefit_with_an_oracle(subject: Subject) -> Result<(), String> {
    ORACLE_COST_BENEFIT.check(subject).map(drop)
}

/// FIFO under a distribution of as many classes as there are pages.
fn zipf(subject: Subject) -> Result<(), String> {
    let exponent = 0.9;
    let setup = Setup { policy: Policy::Fifo, workload: Workload::Zipf { exponent }, ..UNIFORM };
    for spare in [15, 28] {
        let pages = Geometry::with_over_provisioning(ZONES, setup.zone_pages, spare).pages;
        let weights: Vec<f64> = (1..=pages).map(|rank| f64::from(rank).powf(-exponent)).collect();
        let all: f64 = weights.iter().sum();
        let classes: Vec<_> = weights.iter().map(|weight| (1.0 / f64::from(pages), weight / all)).collect();
        let expected = model::fifo_mixed(1.0 + f64::from(spare) / 100.0, &classes);
        let measured = subject.amplification(Setup { spare, ..setup });
        subject.near(&format!("FIFO, zipf, spare {spare} %"), measured, expected)?;
    }
    Ok(())
}

type Check = fn(Subject) -> Result<(), String>;

fn holds(check: Check) {
    if let Err(why) = check(RIGHT) {
        panic!("{why}");
    }
}

#[test]
fn uniform_writes_give_the_expected_amplification() {
    holds(uniform);
}

#[test]
fn the_size_of_zones_counts_as_the_formula_says() {
    holds(zone_sizes);
}

#[test]
fn draws_and_cost_benefit_give_the_expected_amplification() {
    holds(draws_and_cost_benefit);
}

#[test]
fn hot_and_cold_pages_in_one_log_give_the_expected_amplification() {
    holds(mixed_in_one_log);
}

#[test]
fn greedy_with_separation_is_uniform_greedy() {
    holds(greedy_apart);
}

#[test]
fn cost_benefit_needs_a_log_for_what_it_moves() {
    holds(cost_benefit_apart);
}

#[test]
fn cost_benefit_with_an_oracle_gives_the_expected_amplification() {
    holds(cost_benefit_with_an_oracle);
}

#[test]
fn zipf_under_fifo_is_what_the_formula_says() {
    holds(zipf);
}

/// A check, who is wrong, and what the check has to say of it.
type Row = (Check, fn(Setup) -> Setup, &'static str);

fn refuses(rows: &[Row], off: f64, turns: Option<(u64, u64)>) {
    let mut missed = Vec::new();
    for (number, &(check, change, says)) in rows.iter().enumerate() {
        match check(Subject { change, off, turns }) {
            Err(why) if why.contains(says) => println!("row {number}: {why}"),
            other => missed.push(format!("row {number}: {other:?} does not speak of {says}")),
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Values of a policy, a layout or a generator that is not the one that the value is of.
#[test]
fn every_value_refuses_a_wrong_policy() {
    refuses(
        &[
            (uniform, |it| Setup { policy: Policy::Greedy, ..it }, "FIFO"),
            (uniform, |it| Setup { policy: Policy::Fifo, ..it }, "greedy"),
            (uniform, |it| Setup { zone_pages: 64, ..it }, "zones of 256"),
            (zone_sizes, |it| Setup { zone_pages: 32, ..it }, "zones of 16"),
            (zone_sizes, |it| Setup { policy: Policy::WindowedGreedy { window: 64 }, ..it }, "zones of 16"),
            (draws_and_cost_benefit, |it| Setup { policy: Policy::DChoices { d: 3 }, ..it }, "10-choices"),
            (draws_and_cost_benefit, no_ages, "cost-benefit"),
            (mixed_in_one_log, |it| Setup { workload: Workload::Uniform, ..it }, "FIFO"),
            (mixed_in_one_log, |it| Setup { policy: Policy::Fifo, ..it }, "greedy"),
            (greedy_apart, |it| Setup { streams: Streams::One, ..it }, "GcApart"),
            (greedy_apart, blind, "Oracle"),
            (cost_benefit_apart, |it| Setup { streams: Streams::One, ..it }, "GcApart"),
            (cost_benefit_with_an_oracle, |it| Setup { policy: Policy::Greedy, ..it }, "cost-benefit"),
            (zipf, |it| Setup { policy: Policy::Greedy, ..it }, "zipf"),
        ],
        RIGHT.off,
        None,
    );
}

/// The comparisons between values, with any value allowed.
#[test]
fn every_comparison_refuses_a_wrong_policy() {
    refuses(
        &[
            (draws_and_cost_benefit, |it| Setup { spare: 57 - it.spare, ..it }, "and with less spare"),
            (uniform, fifo_for_greedy, "FIFO and greedy at"),
            (uniform, |it| Setup { policy: drawn(it.policy), ..it }, "FIFO and a window"),
            (
                uniform,
                |it| Setup { policy: Policy::WindowedGreedy { window: order(it.policy) }, ..it },
                "window and",
            ),
            (uniform, |it| Setup { zone_pages: 32 * 64 / it.zone_pages, ..it }, "zones of 256 and 64"),
            (zone_sizes, |it| Setup { zone_pages: 512 / it.zone_pages, ..it }, "larger zones"),
            (mixed_in_one_log, fifo_for_greedy, "FIFO and greedy at"),
            (greedy_apart, blind, "and under uniform writes"),
            (cost_benefit_apart, no_ages, "in one log and apart"),
            (cost_benefit_apart, further_apart, "cost-benefit and greedy in one log"),
        ],
        f64::INFINITY,
        // What is wrong shows long before it has settled.
        Some((3, 1)),
    );
}

/// Cost-benefit becomes greedy; the others stay.
fn no_ages(it: Setup) -> Setup {
    if it.policy == Policy::CostBenefit { Setup { policy: Policy::Greedy, ..it } } else { it }
}

/// An oracle becomes one that takes half of the pages for hot.
fn blind(it: Setup) -> Setup {
    match it.streams {
        Streams::Oracle(_) => Setup { streams: Streams::Oracle(50), ..it },
        Streams::One | Streams::GcApart => it,
    }
}

/// FIFO and greedy change places.
fn fifo_for_greedy(it: Setup) -> Setup {
    match it.policy {
        Policy::Fifo => Setup { policy: Policy::Greedy, ..it },
        Policy::Greedy => Setup { policy: Policy::Fifo, ..it },
        Policy::CostBenefit | Policy::DChoices { .. } | Policy::WindowedGreedy { .. } => it,
    }
}

/// A window becomes a zone drawn at random.
fn drawn(policy: Policy) -> Policy {
    if matches!(policy, Policy::WindowedGreedy { .. }) { Policy::DChoices { d: 1 } } else { policy }
}

/// Greedy becomes FIFO, so that a window does better.
fn order(policy: Policy) -> u32 {
    match policy {
        Policy::Fifo | Policy::Greedy => 1,
        Policy::WindowedGreedy { window } => window,
        Policy::CostBenefit | Policy::DChoices { .. } => 64,
    }
}

/// What should be one log has two, and what should have two has an oracle.
fn further_apart(it: Setup) -> Setup {
    let streams = match it.streams {
        Streams::One => Streams::GcApart,
        Streams::GcApart | Streams::Oracle(_) => Streams::Oracle(10),
    };
    Setup { streams, ..it }
}
