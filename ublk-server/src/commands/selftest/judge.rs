//! `ublk selftest --target`: the clauses against a disk, reported as TAP or JSON.

use super::clauses::{Bench, CLAUSES, SCRATCH_MIN, Verdict};
use super::target::{self, Shape};
use super::{Failure, json, print};
use crate::cli::Span;
use serde::Serialize;
use std::fmt::Write;

#[derive(Debug, Serialize)]
struct Report {
    target: String,
    disk: String,
    clauses: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    number: &'static str,
    words: &'static str,
    verdict: &'static str,
    /// Why it is broken, or what was lacking.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Runs every clause; those that write only with a scratch range, whose contents are lost.
pub(super) fn run(text: &str, scratch: Option<Span>, as_json: bool) -> Result<String, Failure> {
    let target = target::open(text)?;
    let disk = target.shape().name.clone();
    let (start, length) = range(target.shape(), scratch)?;
    let bench = Bench { target, start, length };
    let mut clauses = Vec::new();
    for clause in &CLAUSES {
        let verdict = match clause.writes && scratch.is_none() {
            true => Verdict::Skipped("needs --scratch".to_string()),
            // A disk that fails to read or write is judged, too.
            false => (clause.run)(&bench).unwrap_or_else(|failure| Verdict::Broken(failure.message)),
        };
        let (verdict, why) = match verdict {
            Verdict::Holds => ("holds", None),
            Verdict::Broken(why) => ("broken", Some(why)),
            Verdict::Skipped(why) => ("skipped", Some(why)),
        };
        clauses.push(Line { number: clause.number, words: clause.words, verdict, why });
    }
    let broken = clauses.iter().filter(|line| line.verdict == "broken").count();
    let report = Report { target: text.to_string(), disk, clauses };
    let out = if as_json { json(&report) } else { tap(&report) };
    if broken == 0 {
        return Ok(out);
    }
    print(&out)?;
    Err(Failure::failed(format!("{broken} of {} clauses are broken on {text}", CLAUSES.len())))
}

/// The scratch range; nothing when none was given.
fn range(shape: &Shape, scratch: Option<Span>) -> Result<(u64, u64), Failure> {
    let Some(Span { source, length, destination }) = scratch else {
        return Ok((0, 0));
    };
    let (size, block) = (shape.size, shape.physical_block);
    let inside = source.0.checked_add(length.0).is_some_and(|end| end <= size);
    if destination.is_some() || !inside || length.0 < SCRATCH_MIN || !source.0.is_multiple_of(block) {
        let why = format!(
            "--scratch START+LENGTH: at least {SCRATCH_MIN} bytes of the disk from a multiple of {block}"
        );
        return Err(Failure::usage(why));
    }
    Ok((source.0, length.0))
}

fn tap(report: &Report) -> String {
    let mut out = format!("TAP version 14\n1..{}\n", report.clauses.len());
    for (index, line) in (1..).zip(&report.clauses) {
        let (state, tail) = match (line.verdict, &line.why) {
            ("broken", Some(why)) => ("not ok", format!("\n# {why}")),
            ("skipped", Some(why)) => ("ok", format!(" # SKIP {why}")),
            _ => ("ok", String::new()),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{state} {index} - {} {}{tail}", line.number, line.words);
    }
    out
}
