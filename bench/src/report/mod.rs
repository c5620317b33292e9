//! What is kept of a run: JSON with every plotted point, and a page that needs nothing beside it.

mod html;
mod machine;
mod published;
mod svg;

use crate::experiment::outcome::Outcome;
use crate::experiment::params::Params;
use crate::experiment::{Experiment, outcome::Origin};
use crate::failure::Failure;
pub use machine::{Machine, cpu};
pub use published::Prediction;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// A run with all that is needed to do it again.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of this form.
    pub schema: u32,
    /// The experiment.
    pub experiment: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Where and by what.
    #[serde(flatten)]
    pub machine: Machine,
    /// The seed of the first round.
    pub seed: Option<u64>,
    /// Runs of each point.
    pub rounds: u64,
    /// Every parameter.
    pub parameters: BTreeMap<&'static str, String>,
    /// Wall time of the run in s.
    pub elapsed_s: f64,
    /// Processor time of the run in s: of the simulator, not of what it simulates.
    pub cpu_s: f64,
    /// Millions of requests that a core simulates in a minute, its work beside them included; `None` where none are.
    pub simulated_m_per_minute: Option<f64>,
    /// What was found.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What the model says beside what was published.
    pub predictions: Vec<Prediction>,
}

impl Report {
    /// Puts a run together.
    ///
    /// # Errors
    /// The file of published figures and the model do not fit.
    pub fn new(
        experiment: &Experiment,
        params: &Params,
        machine: Machine,
        (elapsed_s, cpu_s): (f64, f64),
        outcome: Outcome,
    ) -> Result<Self, Failure> {
        let predicted = outcome.model.as_ref().map_or(&[][..], |model| &model.predicted[..]);
        let predictions = published::beside(predicted).map_err(Failure::failed)?;
        let parameters: BTreeMap<_, _> =
            params.iter().map(|(name, value)| (name, value.to_string())).collect();
        let number = |name| parameters.get(name).and_then(|value: &String| value.parse().ok());
        Ok(Self {
            schema: 1,
            experiment: experiment.name,
            about: experiment.about,
            machine,
            seed: number("seed"),
            rounds: number("rounds").unwrap_or(1),
            parameters,
            elapsed_s,
            cpu_s,
            simulated_m_per_minute: (outcome.requests > 0)
                .then(|| outcome.requests as f64 / cpu_s * 60.0 / 1e6),
            outcome,
            predictions,
        })
    }

    /// Writes both forms to where they are wanted.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, json: Option<&Path>, html: Option<&Path>) -> Result<(), Failure> {
        let write = |path: &Path, text: String| {
            std::fs::write(path, text)
                .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
        };
        if let Some(path) = json {
            write(path, serde_json::to_string_pretty(self).expect("a report has a JSON form") + "\n")?;
        }
        html.map_or(Ok(()), |path| write(path, html::page(self)))
    }

    /// A summary for a terminal: every plotted point and every prediction.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.experiment, self.about);
        for plot in &self.outcome.plots {
            let _ = writeln!(text, "\n{}: {} by {}", plot.title, plot.y.title(), plot.x.title());
            for series in &plot.series {
                let points = series.points.iter().map(|point| {
                    let x = match plot.categories.get(point.x as usize) {
                        Some(name) => name.clone(),
                        None => svg::number(point.x),
                    };
                    format!("{x}: {}", svg::number(point.y))
                });
                let points: Vec<_> = points.collect();
                let _ = writeln!(text, "  {} [{}] {}", series.name, series.origin.name(), points.join(", "));
            }
        }
        if !self.predictions.is_empty() {
            text.push_str("\nPredictions of the model beside what was published:\n");
        }
        for Prediction { what, unit, published, predicted, error_percent, .. } in &self.predictions {
            let (published, predicted) = (svg::number(*published), svg::number(*predicted));
            let _ =
                writeln!(text, "  {what}: {predicted} {unit}, published {published} ({error_percent:+.0} %)");
        }
        let _ = write!(text, "\n{}", self.took());
        text.push('\n');
        text
    }

    /// What the run took, and how fast it simulated.
    fn took(&self) -> String {
        let took = format!("{:.1} s, {:.1} s of a processor", self.elapsed_s, self.cpu_s);
        match self.simulated_m_per_minute {
            None => took,
            Some(minute) => {
                format!(
                    "{took}, {} requests simulated, {minute:.1} M a minute and core",
                    self.outcome.requests
                )
            }
        }
    }

    /// Where its numbers come from, each once.
    fn origins(&self) -> Vec<Origin> {
        let mut origins: Vec<_> =
            self.outcome.plots.iter().flat_map(|plot| &plot.series).map(|series| series.origin).collect();
        origins.sort_by_key(|origin| origin.name());
        origins.dedup();
        origins
    }
}
