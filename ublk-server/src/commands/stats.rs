//! `ublk stats`: the ledger.

use super::{Failure, json, locate, print};
use crate::cli::StatsArgs;
use crate::control::api::{LatenessView, Stats, StatsRequest};
use crate::signals::Signals;
use crate::state::State;
use emulation::Bytes;
use std::fmt::Write;
use std::time::Duration;

/// The time between two lines of `--watch`.
const PERIOD: Duration = Duration::from_secs(1);

pub(super) fn run(args: &StatsArgs) -> Result<String, Failure> {
    let served = locate::served(&State::open()?, &args.disk.target)?;
    let path = served.path("/stats");
    if args.watch {
        return watch(|| Ok(served.client.call("GET", &path)?), args.json);
    }
    let stats: Stats = match args.reset {
        true => served.client.send("POST", &path, &StatsRequest { reset: true })?,
        false => served.client.call("GET", &path)?,
    };
    Ok(if args.json { json(stats) } else { text(&stats) })
}

fn watch(read: impl Fn() -> Result<Stats, Failure>, as_json: bool) -> Result<String, Failure> {
    let signals = Signals::block().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    let mut last = read()?;
    loop {
        let over = signals.wait(None, Some(PERIOD)).map_err(|error| Failure::failed(error.to_string()))?;
        if over {
            return Ok(String::new());
        }
        let now = read()?;
        let change = now.since(&last);
        let line = match as_json {
            true => serde_json::to_string(&change).expect("a ledger has a JSON form") + "\n",
            false => line(&change) + "\n",
        };
        print(&line)?;
        last = now;
    }
}

/// Every counter that is not 0.
fn text(stats: &Stats) -> String {
    let mut out = String::new();
    for (name, count) in stats.commands.iter().filter(|(_, count)| **count > 0) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{:<28}{count}", format!("{name} commands"));
    }
    for (name, count) in stats.counters.iter().filter(|(_, count)| **count > 0) {
        let _ = match name.strip_suffix("_bytes") {
            Some(what) => writeln!(out, "{:<28}{}", what.replace('_', " "), Bytes(*count)),
            None => writeln!(out, "{:<28}{count}", name.replace('_', " ")),
        };
    }
    if let Some(LatenessView { count, floor_ns, p50_ns, p99_ns, max_ns }) = stats.lateness {
        let us = |ns: u64| format!("{}.{} us", ns / 1000, ns / 100 % 10);
        let (floor, p50, p99, max) = (us(floor_ns), us(p50_ns), us(p99_ns), us(max_ns));
        let text = format!("floor {floor}, median {p50}, p99 {p99}, max {max} of {count}");
        let _ = writeln!(out, "{:<28}{text}", "lateness of the pool");
    }
    if out.is_empty() { "nothing was counted\n".to_string() } else { out }
}

/// The ledger in a line: how copies were done, and what the link carried.
pub(super) fn line(stats: &Stats) -> String {
    let bytes = |name: &str| Bytes(stats.counter(name));
    let mut parts = Vec::new();
    for (name, what) in [
        ("remapped_bytes", "remapped"),
        ("copied_hole_bytes", "holes"),
        ("moved_mode_bytes", "moved (mode)"),
        ("moved_incongruent_bytes", "moved (incongruent)"),
        ("moved_head_tail_bytes", "moved (head/tail)"),
        ("moved_cfr_bytes", "copied by the file system"),
        ("moved_part_block_bytes", "moved (part of a block)"),
        ("bounced_bytes", "bounced"),
    ] {
        if stats.counter(name) > 0 {
            parts.push(format!("{what} {}", bytes(name)));
        }
    }
    let copies = stats.commands.get("copy").copied().unwrap_or(0);
    let moved = if parts.is_empty() { "no bytes copied inside".to_string() } else { parts.join(", ") };
    format!(
        "ledger: {copies} copy command{}, {moved}; link read {}, written {}",
        if copies == 1 { "" } else { "s" },
        bytes("door_read_bytes"),
        bytes("door_written_bytes")
    )
}
