//! `ublk selftest --target`: the clauses against a disk, reported as TAP or JSON.

use super::clauses::{Bench, CLAUSES, SCRATCH_MIN, Verdict};
use super::target::{self, Opened, Served, Shape, Target};
use super::zoned::{ZONE_CLAUSES, ZoneBench, ZonedTarget};
use super::{Failure, json, print};
use crate::cli::Span;
use crate::control::api::{ZoneTypeName, ZoneView};
use serde::Serialize;
use std::fmt::Write;
use std::ops::Range;

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
    let mut clauses = Vec::new();
    let mut judge = |number, words, lacks: Option<String>, run: &dyn Fn() -> Result<Verdict, Failure>| {
        let verdict = match lacks {
            Some(lacks) => Verdict::Skipped(lacks),
            // A disk that fails to read or write is judged, too.
            None => run().unwrap_or_else(|failure| Verdict::Broken(failure.message)),
        };
        let (verdict, why) = match verdict {
            Verdict::Holds => ("holds", None),
            Verdict::Broken(why) => ("broken", Some(why)),
            Verdict::Skipped(why) => ("skipped", Some(why)),
        };
        clauses.push(Line { number, words, verdict, why });
    };
    let no_scratch = scratch.is_none().then(|| "needs --scratch".to_string());
    let bench = match target {
        Opened::Served(served) if served.shape().zone_size.is_some() => {
            let bench = zone_bench(&served, start..start + length)?;
            for clause in &ZONE_CLAUSES {
                let lacks = no_scratch.clone().filter(|_| clause.writes);
                judge(clause.number, clause.words, lacks, &|| (clause.run)(&bench));
            }
            if !bench.zones.is_empty() {
                bench.fresh()?;
            }
            None
        }
        Opened::Served(served) => Some(Bench { target: Box::new(served), start, length }),
        Opened::Namespace(namespace) => Some(Bench { target: namespace, start, length }),
    };
    if let Some(bench) = bench {
        for clause in &CLAUSES {
            let lacks = no_scratch.clone().or_else(|| bench.too_small()).filter(|_| clause.writes);
            judge(clause.number, clause.words, lacks, &|| (clause.run)(&bench));
        }
    }
    let broken = clauses.iter().filter(|line| line.verdict == "broken").count();
    let report = Report { target: text.to_string(), disk, clauses };
    let out = if as_json { json(&report) } else { tap(&report) };
    if broken == 0 {
        return Ok(out);
    }
    print(&out)?;
    Err(Failure::failed(format!("{broken} of {} clauses are broken on {text}", report.clauses.len())))
}

/// Two sequential zones within the scratch range.
fn zone_bench(target: &Served, scratch: Range<u64>) -> Result<ZoneBench<'_>, Failure> {
    let inside = |zone: &ZoneView| {
        let range = zone.start..zone.start + zone.length;
        zone.kind == ZoneTypeName::SeqWriteRequired
            && scratch.start <= range.start
            && range.end <= scratch.end
    };
    let zones: Vec<ZoneView> = target.report()?.into_iter().filter(inside).take(2).collect();
    if !scratch.is_empty() && zones.len() < 2 {
        return Err(Failure::usage(
            "--scratch START+LENGTH: has to hold two sequential zones of a zoned disk",
        ));
    }
    let shape = target.shape();
    Ok(ZoneBench { target, size: shape.size, block: shape.logical_block, zones })
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
