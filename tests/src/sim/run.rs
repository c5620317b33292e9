//! One seed from the options to the verdict, with what is needed to run it again.

use super::options::{Options, Stack};
use super::world::World;
use emulation::delayed::Delayed;
use emulation::emulated::Emulated;
use emulation::identity::Identity;
use emulation::mapped::Mapped;
pub use emulation::redo::Image;
use emulation::{BlkStatus, BlockDevice, Op, Request};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use zoned::Zoned;

/// Makes a device.
pub type Build = Box<dyn Fn(&Options) -> Box<dyn BlockDevice>>;
/// Makes a device from a durable image.
pub type Recover = Box<dyn Fn(&Options, &Image) -> Box<dyn BlockDevice>>;

/// How the device under test is made; canaries make a wrong one.
pub struct Rig {
    /// A new device.
    pub build: Build,
    /// A device from a durable image.
    pub recover: Recover,
    /// What becomes of a request on its way to the pool.
    pub alter: Box<dyn Fn(&mut Request)>,
}

impl fmt::Debug for Rig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rig")
    }
}

impl Rig {
    /// The device as it is.
    pub fn plain() -> Self {
        Self { build: Box::new(build), recover: Box::new(recover), alter: Box::new(|_| {}) }
    }
}

fn build(options: &Options) -> Box<dyn BlockDevice> {
    Box::new(Emulated::new(Box::new(Delayed::new(base(options)))))
}

fn recover(options: &Options, image: &Image) -> Box<dyn BlockDevice> {
    Box::new(Emulated::new(Box::new(Delayed::new(recovered(options, image)))))
}

fn base(options: &Options) -> Box<dyn BlockDevice> {
    match options.stack {
        Stack::Mapped => Box::new(Mapped::new(options.mapped_config())),
        Stack::Zoned => Box::new(Zoned::new(Box::new(Mapped::new(options.mapped_config())), false)),
        Stack::Identity => Box::new(Identity::new(options.held_max.is_some())),
    }
}

fn recovered(options: &Options, image: &Image) -> Box<dyn BlockDevice> {
    match options.stack {
        Stack::Mapped => Box::new(recovered_map(options, image)),
        Stack::Zoned => Box::new(zones(options, image)),
        Stack::Identity => base(options),
    }
}

fn recovered_map(options: &Options, image: &Image) -> Mapped {
    Mapped::recover(options.mapped_config(), image).expect("the image is that of a pool")
}

/// The zones of an image over its maps.
pub fn zones(options: &Options, image: &Image) -> Zoned {
    let map = Box::new(recovered_map(options, image));
    Zoned::recover(map, false, image).expect("the zones are those of the volumes")
}

/// What happened in a run, or in many.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Operations begun.
    pub operations: u64,
    /// Those that shared a sector with a live one, one of the two changing it.
    pub overlapping: u64,
    /// Plans handed out.
    pub plans: u64,
    /// Times a request was told to wait.
    pub parked: u64,
    /// Plans that failed.
    pub failures: u64,
    /// Requests aborted.
    pub aborts: u64,
    /// Changes of limits.
    pub limits: u64,
    /// Volumes removed.
    pub removals: u64,
    /// Host crashes.
    pub crashes: u64,
    /// Server deaths.
    pub kills: u64,
    /// Power cuts of a volume.
    pub power_cuts: u64,
    /// Requests struck by rules of faults.
    pub struck: u64,
    /// Syncs and commits that began.
    pub syncs: (u64, u64),
    /// Pauses in which everything was read.
    pub calms: u64,
    /// Looks at the durable image.
    pub probes: u64,
    /// Copies by number of segments: 1, up to 8, up to 64, up to 128, more.
    pub segments: [u64; 5],
    /// Requests that had to be refused, by reason.
    pub refusals: BTreeMap<BlkStatus, u64>,
    /// Answers, by status.
    pub answers: BTreeMap<BlkStatus, u64>,
}

impl Report {
    pub(super) fn begun(&mut self, request: &Request, refusal: &[BlkStatus]) {
        for &status in refusal {
            *self.refusals.entry(status).or_default() += 1;
        }
        if let Op::Copy(command) = &request.op
            && refusal.is_empty()
        {
            let class = match command.segments.len() {
                0..=1 => 0,
                2..=8 => 1,
                9..=64 => 2,
                65..=128 => 3,
                _ => 4,
            };
            self.segments[class] += 1;
        }
    }

    pub(super) fn answered(&mut self, status: BlkStatus) {
        *self.answers.entry(status).or_default() += 1;
    }

    pub(super) fn ok(&self) -> u64 {
        self.answers.get(&BlkStatus::Ok).copied().unwrap_or(0)
    }

    /// Adds what happened in another run.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.operations, other.operations),
            (&mut self.overlapping, other.overlapping),
            (&mut self.plans, other.plans),
            (&mut self.parked, other.parked),
            (&mut self.failures, other.failures),
            (&mut self.aborts, other.aborts),
            (&mut self.limits, other.limits),
            (&mut self.removals, other.removals),
            (&mut self.crashes, other.crashes),
            (&mut self.kills, other.kills),
            (&mut self.power_cuts, other.power_cuts),
            (&mut self.struck, other.struck),
            (&mut self.syncs.0, other.syncs.0),
            (&mut self.syncs.1, other.syncs.1),
            (&mut self.calms, other.calms),
            (&mut self.probes, other.probes),
        ] {
            *mine += theirs;
        }
        for (mine, theirs) in self.segments.iter_mut().zip(other.segments) {
            *mine += theirs;
        }
        for (mine, theirs) in [(&mut self.refusals, &other.refusals), (&mut self.answers, &other.answers)] {
            for (&status, &count) in theirs {
                *mine.entry(status).or_default() += count;
            }
        }
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// The hash of everything that happened.
    pub hash: u64,
    /// What happened.
    pub report: Report,
    /// The rule that was broken.
    pub failure: Option<String>,
    /// What happened, for people, where it was asked for.
    pub lines: Vec<String>,
}

thread_local! {
    /// The message of a panic of the run on this thread, while there is a run.
    static PANIC: RefCell<Option<Option<String>>> = const { RefCell::new(None) };
}

/// Runs one seed once.
pub fn run(options: &Options, rig: &Rig, readable: bool) -> Outcome {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let mine =
                PANIC.with_borrow_mut(|panic| panic.as_mut().map(|text| *text = Some(info.to_string())));
            if mine.is_none() {
                usual(info);
            }
        }));
    });
    let mut world = match World::new(options, rig, readable) {
        Ok(world) => world,
        Err(failure) => {
            return Outcome { hash: 0, report: Report::default(), failure: Some(failure), lines: Vec::new() };
        }
    };
    PANIC.set(Some(None));
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    let panic = PANIC.take().flatten();
    let failure = match result {
        Ok(result) => result.err(),
        Err(_) => Some(panic.unwrap_or_else(|| "a panic without a message".into())),
    };
    let World { trace, mut report, begun, .. } = world;
    report.syncs = begun;
    Outcome { hash: trace.hash(), report, failure, lines: trace.into_lines() }
}

/// Runs one seed twice. The text of a failure tells everything needed to see it again.
pub fn run_twice(options: &Options, rig: &Rig, replay: &str) -> Result<Report, String> {
    let first = run(options, rig, false);
    let second = run(options, rig, first.failure.is_some());
    if let Some(failure) = &first.failure {
        return Err(explain(options, failure, replay, &second.lines));
    }
    if let Some(failure) = &second.failure {
        return Err(explain(options, &format!("only when run again: {failure}"), replay, &second.lines));
    }
    if first.hash != second.hash {
        return Err(explain(options, "the two runs of the seed differ", replay, &second.lines));
    }
    Ok(first.report)
}

fn explain(options: &Options, failure: &str, replay: &str, lines: &[String]) -> String {
    /// Enough to see what led to it; a replay prints all.
    const TAIL: usize = 80;
    let from = lines.len().saturating_sub(TAIL);
    format!(
        "SEED={}\n{failure}\nreplay, with the whole log: {replay}\n{options:?}\nthe last of {} lines:\n{}",
        options.seed,
        lines.len(),
        lines[from..].join("\n"),
    )
}
