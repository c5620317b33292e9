//! What a benchmark aims at, and the row that says whether it is met.

use crate::rounds::Spread;
use serde::Serialize;
use std::io::Write;

/// What is aimed at.
#[derive(Clone, Copy, Debug)]
pub enum Aim {
    /// So much, or more.
    AtLeast(f64),
    /// So much, or less.
    AtMost(f64),
    /// Nothing: printed beside the others.
    None,
}

#[derive(Serialize)]
struct Row<'a> {
    part: &'static str,
    name: &'a str,
    unit: &'static str,
    value: Spread,
    aim: Option<f64>,
    met: Option<bool>,
}

/// Prints a row of a table: what, median, spread, rounds, aim, and whether it is met. With `BENCH_JSON` in the environment
/// it also appends one JSON object a line to that file. Panics when the file cannot be written.
pub fn report(name: &str, unit: &'static str, value: Spread, aim: Aim) {
    let (text, met, number) = match aim {
        Aim::AtLeast(least) => (format!(">= {least}"), Some(value.median >= least), Some(least)),
        Aim::AtMost(most) => (format!("<= {most}"), Some(value.median <= most), Some(most)),
        Aim::None => (String::new(), None, None),
    };
    let met_text = met.map_or("", |met| if met { "met" } else { "missed" });
    let Spread { median, low, high, rounds } = value;
    println!("| {name} | {median:.2} {unit} | {low:.2} - {high:.2} | {rounds} | {text} | {met_text} |");
    let Some(path) = std::env::var_os("BENCH_JSON") else {
        return;
    };
    let row = Row { part: "host", name, unit, value, aim: number, met };
    let line = serde_json::to_string(&row).expect("a row has a JSON form");
    let file = std::fs::File::options().create(true).append(true).open(&path);
    file.and_then(|mut file| writeln!(file, "{line}")).expect("BENCH_JSON names a file that can be written");
}
