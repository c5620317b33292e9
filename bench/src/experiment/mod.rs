//! Experiments: what is varied, what is found, and where every number comes from.

mod fabrics;
mod gc;
mod interference;
mod kcopyd;
mod limits;
pub mod outcome;
pub mod params;
mod recovery_cost;
mod request_path;
mod small_ranges;

pub use outcome::Outcome;

use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use params::{Kind, Param, Params};

/// An experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Where its numbers come from and what it needs.
    pub needs: &'static str,
    /// What can be set.
    pub params: &'static [Param],
    run: fn(&Params, &ProgressBar) -> Result<Outcome, String>,
}

impl std::fmt::Debug for Experiment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Experiment").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every experiment.
pub const ALL: [Experiment; 8] = [
    fabrics::EXPERIMENT,
    kcopyd::EXPERIMENT,
    gc::EXPERIMENT,
    request_path::EXPERIMENT,
    interference::EXPERIMENT,
    limits::EXPERIMENT,
    small_ranges::EXPERIMENT,
    recovery_cost::EXPERIMENT,
];

/// What a simulated experiment needs.
const SIMULATED: &str = "simulated; needs nothing and no root";

const SEED: Param = Param {
    name: "seed",
    about: "of the first round; the next has the next",
    kind: Kind::Number { min: 0, max: u32::MAX as u64 },
    default: "1",
};
const ROUNDS: Param = Param {
    name: "rounds",
    about: "runs of each point, of which the median and the ends are shown",
    kind: Kind::Number { min: 1, max: 99 },
    default: "3",
};

const MEDIA: Param = Param {
    name: "media",
    about: "what the disk is like",
    kind: Kind::Choice(&["tlc-ssd", "zns", "hdd"]),
    default: "tlc-ssd",
};
/// Each experiment has a default of its own.
const LINK_MBIT: Param = Param {
    name: "link_mbit",
    about: "the link, in Mbit/s each way",
    kind: Kind::Number { min: 10, max: 800_000 },
    default: "10000",
};
const RTT_US: Param = Param {
    name: "rtt_us",
    about: "round trip of a command, in us",
    kind: Kind::Number { min: 0, max: 1_000_000 },
    default: "100",
};
const MODE: Param = Param {
    name: "mode",
    about: "how the disk copies",
    kind: Kind::Choice(&["remap", "memcpy", "emulate"]),
    default: "memcpy",
};

/// The experiment of a name.
///
/// # Errors
/// There is none; says which there are.
pub fn named(name: &str) -> Result<&'static Experiment, Failure> {
    ALL.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|experiment| experiment.name).collect();
        Failure::usage(format!("there is no experiment {name}"))
            .hint(format!("experiments: {}", names.join(" ")))
    })
}

impl Experiment {
    /// Does it. A terminal shows how far it is.
    ///
    /// # Errors
    /// A model refused what it was given, or contents were wrong.
    pub fn run(&self, params: &Params) -> Result<Outcome, Failure> {
        let bar = ProgressBar::new(1).with_prefix(self.name);
        let style = "{prefix} {bar:40} {pos}/{len} {elapsed}";
        bar.set_style(ProgressStyle::with_template(style).expect("a template"));
        let outcome = (self.run)(params, &bar);
        bar.finish_and_clear();
        outcome.map_err(|error| Failure::failed(format!("{}: {error}", self.name)))
    }
}

/// `count` rounds with their seeds.
fn rounds(params: &Params) -> impl Iterator<Item = u64> + use<> {
    let seed = params.number("seed");
    seed..seed + params.number("rounds")
}

/// A link of so many Mbit/s.
fn mbit(rate: u64) -> emulation::timing::Rate {
    emulation::timing::Rate(rate * 1_000_000 / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_accepted_and_names_differ() {
        for experiment in &ALL {
            let settings: Vec<_> =
                experiment.params.iter().map(|param| format!("{}={}", param.name, param.default)).collect();
            Params::parse(experiment.name, experiment.params, &settings).unwrap();
            assert_eq!(named(experiment.name).unwrap().name, experiment.name);
        }
        let failure = named("fabric").unwrap_err();
        assert_eq!(failure.message, "there is no experiment fabric");
        assert!(failure.hint.unwrap().starts_with("experiments: fabrics kcopyd gc request-path"));
    }
}
