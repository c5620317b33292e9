//! `ublk copy --door native`: the kernel's copy operation on a block device. The kernel keeps that device's page cache
//! coherent, and cuts a call that exceeds the limits of the device into commands.

use super::copy::Part;
use super::stats::line;
use super::{Failure, json, locate, print};
use crate::blkcopy::{self, BYTES_MAX, SOURCES_MAX, Source, Way};
use crate::cli::{CopyArgs, Target};
use crate::coherence;
use crate::control::api::Stats;
use crate::state::State;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What the calls did.
#[derive(Debug, Serialize)]
struct Report {
    bytes: u64,
    total_bytes: u64,
    calls: usize,
    calls_done: usize,
    door: &'static str,
    /// Of the disk, when this program serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger: Option<Stats>,
}

/// Sources that follow each other at the destination, for one call.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    sources: Vec<Source>,
    destination: u64,
    length: u64,
}

pub(super) fn run(args: &CopyArgs, parts: &[Part], way: Way) -> Result<String, Failure> {
    let unknown = [
        ("--from", args.from.is_some()),
        ("--fua", args.fua),
        ("--fast-only", args.fast_only),
        ("--verify", args.verify),
    ];
    if let Some((option, _)) = unknown.iter().find(|(_, given)| *given) {
        let why = format!("{option} is not for --door native: the kernel's operation has no such thing");
        return Err(Failure::usage(why));
    }
    let calls = calls(parts);
    if args.one_command && calls.len() > 1 {
        let why = "--one-command: destinations that do not follow each other, or too much for one call";
        return Err(Failure::usage(why));
    }
    let state = State::open()?;
    let served = locate::record(&state, &args.target)?.is_some();
    let served = if served { Some(locate::served(&state, &args.target)?) } else { None };
    let node = node(args, served.as_ref())?;
    let failed = |error: io::Error| Failure::failed(format!("{}: {error}", node.display()));
    let device = File::options().read(true).write(true).open(&node).map_err(failed)?;
    if !args.force
        && let Some(id) = served.as_ref().and_then(|served| served.record.id)
        && let Some(claim) = coherence::claim(id).map_err(|error| Failure::failed(error.to_string()))?
    {
        return Err(Failure::failed(claim).hint("release it; --force writes below its user"));
    }
    let stats = || match &served {
        Some(served) => served.client.call("GET", &served.path("/stats")).map(Some),
        None => Ok(None),
    };
    let before: Option<Stats> = stats()?;
    let mut report = Report {
        bytes: 0,
        total_bytes: calls.iter().map(|call| call.length).sum(),
        calls: calls.len(),
        calls_done: 0,
        door: if way == Way::Ioctl { "native" } else { "native-async" },
        ledger: None,
    };
    let mut failure = None;
    for call in &calls {
        let (copied, result) = blkcopy::copy(&device, &call.sources, call.destination, way);
        report.bytes += copied.0;
        if let Err(error) = result {
            failure = Some(explain(&node, error));
            break;
        }
        report.calls_done += 1;
    }
    let after: Option<Stats> = stats()?;
    report.ledger = after.zip(before).map(|(after, before)| after.since(&before));
    let text = if args.json { json(report) } else { text(&report) };
    match failure {
        None => Ok(text),
        Some(failure) => {
            print(&text)?;
            Err(failure)
        }
    }
}

/// The block device that the calls go to.
fn node(args: &CopyArgs, served: Option<&locate::Served>) -> Result<PathBuf, Failure> {
    match (&args.node, served.map(|served| served.record.id), &args.target) {
        (Some(node), ..) => Ok(node.clone()),
        (None, Some(Some(id)), _) => Ok(block_path(id)),
        (None, None, Target::Id(id)) => Ok(block_path(*id)),
        (None, Some(None), _) => Err(Failure::failed("the disk has no block device").hint("use --door api")),
        (None, None, Target::Name(_)) => Err(locate::no_disk(&args.target)),
    }
}

fn block_path(id: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{id}"))
}

/// Parts whose destinations follow each other go into one call, as long as it takes them.
fn calls(parts: &[Part]) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for part in parts {
        let source = Source { offset: part.source.0, length: part.length.0 };
        let joins = |call: &Call| {
            call.destination.checked_add(call.length) == Some(part.destination.0)
                && call.sources.len() < SOURCES_MAX
                && call.length.checked_add(source.length).is_some_and(|length| length <= BYTES_MAX.0)
        };
        match calls.last_mut().filter(|call| joins(call)) {
            Some(call) => {
                call.sources.push(source);
                call.length += source.length;
            }
            None => calls.push(Call {
                sources: vec![source],
                destination: part.destination.0,
                length: source.length,
            }),
        }
    }
    calls
}

fn explain(node: &Path, error: io::Error) -> Failure {
    let node = node.display();
    match error.raw_os_error() {
        Some(libc::ENOTTY) => Failure::failed("the running kernel has no copy operation")
            .hint("kernel/README.md says how to get one that has; --door api needs none"),
        Some(libc::EOPNOTSUPP) => {
            Failure::failed(format!("{node} does not take the kernel's copy operation"))
                .hint("see copy_max_bytes below its queue in sysfs; --door api needs none")
        }
        Some(libc::EINVAL) => Failure::failed(format!("{node}: the kernel refuses the ranges"))
            .hint("whole logical blocks within the device, and no source may overlap the destination"),
        _ => Failure::failed(format!("{node}: {error}")),
    }
}

fn text(report: &Report) -> String {
    let mut text = format!(
        "copied {} of {} bytes in {} of {} calls\n",
        report.bytes, report.total_bytes, report.calls_done, report.calls
    );
    if let Some(ledger) = &report.ledger {
        text += &(line(ledger) + "\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulation::Bytes;

    fn part(source: u64, length: u64, destination: u64) -> Part {
        Part { source: Bytes(source), length: Bytes(length), destination: Bytes(destination) }
    }

    #[test]
    fn parts_that_follow_each_other_share_a_call() {
        let parts = [part(0, 8, 100), part(50, 4, 108), part(8, 8, 113), part(0, 1, 121)];
        let lengths: Vec<_> =
            calls(&parts).iter().map(|call| (call.destination, call.length, call.sources.len())).collect();
        assert_eq!(lengths, [(100, 12, 2), (113, 9, 2)]);
        assert_eq!(calls(&[]), []);
    }

    #[test]
    fn a_call_takes_so_much_and_no_more() {
        let many: Vec<Part> = (0..1025).map(|index| part(0, 512, index * 512)).collect();
        assert_eq!(calls(&many).iter().map(|call| call.sources.len()).collect::<Vec<_>>(), [1024, 1]);
        let half = BYTES_MAX.0 / 2 + 1;
        assert_eq!(calls(&[part(0, half, 0), part(0, half, half)]).len(), 2);
        let most = BYTES_MAX.0 - half;
        assert_eq!(calls(&[part(0, half, 0), part(0, most, half)]).len(), 1);
        assert_eq!(calls(&[part(0, u64::MAX, 1), part(0, 1, 0)]).len(), 2);
    }
}
