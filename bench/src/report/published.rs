//! Published figures that no model was set from, read from a file that nothing else reads.

use serde::{Deserialize, Serialize};

/// A figure as it was published.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    id: String,
    what: String,
    unit: String,
    value: f64,
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    figure: Vec<Figure>,
}

/// A figure beside what a model says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Its name.
    pub id: String,
    /// What it is.
    pub what: String,
    /// In what.
    pub unit: String,
    /// What was published.
    pub published: f64,
    /// What the model says.
    pub predicted: f64,
    /// By how much the model is too high, in percent of what was published.
    pub error_percent: f64,
    /// Where it was published.
    pub source: String,
}

/// The figures for which a model says something. What it says of settings of which nothing was published is left out.
pub(super) fn beside(predicted: &[(String, f64)]) -> Result<Vec<Prediction>, String> {
    let figures = figures().map_err(|error| format!("published.toml: {error}"))?;
    let beside = figures.into_iter().filter_map(|figure| {
        let (_, predicted) = predicted.iter().find(|(id, _)| *id == figure.id)?;
        let Figure { id, what, unit, value, source } = figure;
        let error_percent = 100.0 * (predicted / value - 1.0);
        Some(Prediction { id, what, unit, published: value, predicted: *predicted, error_percent, source })
    });
    Ok(beside.collect())
}

fn figures() -> Result<Vec<Figure>, toml::de::Error> {
    toml::from_str::<Figures>(include_str!("../../published.toml")).map(|figures| figures.figure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn figures_have_names_of_their_own_and_the_error_is_of_what_was_published() {
        let figures = figures().unwrap();
        let names: BTreeSet<_> = figures.iter().map(|figure| &figure.id).collect();
        assert_eq!(names.len(), figures.len());
        let predicted = [("v20-1g-8k-host".to_string(), 53.0), ("of nothing".to_string(), 1.0)];
        let found = beside(&predicted).unwrap();
        assert_eq!((found.len(), found[0].published, found[0].error_percent), (1, 106.0, -50.0));
    }

    /// Whoever sets a model must not see what it is judged by.
    #[test]
    fn no_other_file_reads_the_figures() {
        let mut todo = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut readers = Vec::new();
        while let Some(path) = todo.pop() {
            if path.is_dir() {
                todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if std::fs::read_to_string(&path).unwrap().contains("published.toml") {
                readers.push(path.file_name().unwrap().to_owned());
            }
        }
        assert_eq!(readers, ["published.rs"]);
    }
}
