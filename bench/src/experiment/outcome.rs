//! What an experiment found, with where every number comes from.

use crate::rounds::Spread;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// By a clock or a counter on this machine.
    Measured,
    /// By a model in virtual time.
    Simulated,
    /// By somebody else, who is named.
    Published,
}

impl Origin {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
            Self::Published => "published",
        }
    }
}

/// How an axis runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Evenly, from 0.
    Linear,
    /// By powers.
    Log,
    /// One place for each of the plot's categories.
    Categories,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Axis {
    /// What it shows.
    pub label: String,
    /// In what; empty for a ratio.
    pub unit: String,
    /// How it runs.
    pub scale: Scale,
}

impl Axis {
    /// An axis.
    pub fn new(label: impl Into<String>, unit: impl Into<String>, scale: Scale) -> Self {
        Self { label: label.into(), unit: unit.into(), scale }
    }

    /// What it shows, and in what.
    pub fn title(&self) -> String {
        if self.unit.is_empty() { self.label.clone() } else { format!("{} ({})", self.label, self.unit) }
    }
}

/// A point of a series; `x` counts the categories of a plot that has them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The median of the rounds.
    pub y: f64,
    /// The lowest round.
    pub low: f64,
    /// The highest round.
    pub high: f64,
}

impl Point {
    /// A point of one value.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }

    /// A point of rounds.
    pub fn of(x: f64, spread: Spread) -> Self {
        Self { x, y: spread.median, low: spread.low, high: spread.high }
    }
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// What they are.
    pub name: String,
    /// Where they come from.
    pub origin: Origin,
    /// In the order of `x`.
    pub points: Vec<Point>,
}

impl Series {
    /// A series without points.
    pub fn new(name: impl Into<String>, origin: Origin) -> Self {
        Self { name: name.into(), origin, points: Vec::new() }
    }
}

/// A plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plot {
    /// Its name within the experiment.
    pub id: &'static str,
    /// What it shows.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The places of `x` in order, for [`Scale::Categories`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// What is in it.
    pub series: Vec<Series>,
}

/// A number of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// What of.
    pub of: String,
    /// What it is.
    pub what: String,
    /// The number, or a word in its place.
    pub value: String,
    /// In what; empty for a count, a ratio or a word.
    pub unit: &'static str,
    /// Where it comes from.
    pub origin: Origin,
}

/// A latency histogram.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// What of.
    pub of: String,
    /// Where it comes from.
    pub origin: Origin,
    /// How many.
    pub count: u64,
    /// Percentiles in us: of the 50th, 90th, 99th, 99.9th, and the highest.
    pub percentiles: [f64; 5],
    /// Powers of two: up to so many us, so many.
    pub classes: Vec<(f64, u64)>,
}

impl Latency {
    /// The percentiles that are given.
    pub const PERCENTILES: [&'static str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

    /// Of a histogram of ns.
    pub fn of(of: impl Into<String>, origin: Origin, histogram: &Histogram<u64>) -> Self {
        let us = |ns: u64| (ns as f64 / 1e3 * 10.0).round() / 10.0;
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        let classes = histogram
            .iter_log(1000, 2.0)
            .map(|value| (value.value_iterated_to() as f64 / 1e3, value.count_since_last_iteration()))
            .skip_while(|class| class.1 == 0)
            .collect();
        Self {
            of: of.into(),
            origin,
            count: histogram.len(),
            percentiles: [at(0.5), at(0.9), at(0.99), at(0.999), us(histogram.max())],
            classes,
        }
    }
}

/// A free parameter of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Free {
    /// What it is.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// In what.
    pub unit: &'static str,
}

/// What stands behind simulated numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// What is modelled, and what is not.
    pub about: &'static str,
    /// Its free parameters, three at most.
    pub free: Vec<Free>,
    /// The one published point that they were set from.
    pub set_from: &'static str,
    /// What it says for the settings of other publications, by their names in the file of published figures. It does
    /// not know what was published.
    pub predicted: Vec<(String, f64)>,
}

/// What an experiment found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// In the order of the report.
    pub plots: Vec<Plot>,
    /// The ledger and whatever else is no curve.
    pub values: Vec<Value>,
    /// Latencies.
    pub latencies: Vec<Latency>,
    /// The model, where numbers are simulated.
    pub model: Option<Model>,
    /// What a reader has to know.
    pub notes: Vec<String>,
    /// Requests that the simulated disk was given.
    pub requests: u64,
}

impl Outcome {
    /// Adds a number to the table.
    pub fn value(
        &mut self,
        of: impl Into<String>,
        what: impl Into<String>,
        value: impl ToString,
        unit: &'static str,
        origin: Origin,
    ) {
        let value = value.to_string();
        self.values.push(Value { of: of.into(), what: what.into(), value, unit, origin });
    }

    /// Adds what a volume's ledger counted.
    pub fn ledger(&mut self, of: &str, ledger: &emulation::ledger::Ledger) {
        let commands: Vec<_> = emulation::ledger::Ledger::OPS
            .iter()
            .zip(ledger.commands)
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        self.value(of, "commands", commands.join(", "), "", Origin::Simulated);
        for (what, bytes) in [
            ("read by the host", ledger.door_read),
            ("written by the host", ledger.door_written),
            ("read inside", ledger.inside_read),
            ("written inside", ledger.inside_written),
            ("remapped", ledger.remapped),
            (
                "moved",
                emulation::Bytes(
                    ledger.moved_mode.0
                        + ledger.moved_incongruent.0
                        + ledger.moved_head_tail.0
                        + ledger.bounced.0,
                ),
            ),
            ("kept off the link", ledger.avoided()),
        ] {
            self.value(of, what, bytes.0, "B", Origin::Simulated);
        }
    }
}
