//! `ublk copy`: which door it takes, and a job of the server, watched from here.

use super::stats::line;
use super::{Failure, copy_host, copy_kcopyd, copy_native, info, json, locate};
use crate::blkcopy::Way;
use crate::cli::{CopyArgs, Door, Engine, Span};
use crate::control::api::{CopyRequest, Job, JobState, Segment};
use crate::signals::Signals;
use crate::state::State;
use emulation::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// The time between two looks at a job.
const PERIOD: Duration = Duration::from_millis(20);

/// A segment with its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) source: Bytes,
    pub(super) length: Bytes,
    pub(super) destination: Bytes,
}

pub(super) fn run(args: &CopyArgs) -> Result<String, Failure> {
    let parts = parts(args)?;
    match (args.engine, args.door) {
        (Engine::Host | Engine::Kcopyd, Some(Door::Native | Door::NativeAsync)) => {
            Err(Failure::usage("--door native is for copy commands: engine device, the default"))
        }
        (Engine::Host | Engine::Kcopyd, _) | (_, Some(Door::Api)) if args.node.is_some() => {
            Err(Failure::usage("--node is for --door native"))
        }
        (Engine::Kcopyd, _) => copy_kcopyd::run(args, &parts),
        (Engine::Host, _) => copy_host::run(args, &parts),
        (Engine::Device, door) => match door.map_or_else(|| usual_door(args), Ok)? {
            Door::Native => copy_native::run(args, &parts, Way::Ioctl),
            Door::NativeAsync => copy_native::run(args, &parts, Way::Uring),
            Door::Api => device(args, &parts),
        },
    }
}

/// The door when none is named: that of the kernel if the disk has it and it can do what is asked for.
fn usual_door(args: &CopyArgs) -> Result<Door, Failure> {
    let api_alone = copy_native::missing(args).is_some() || args.one_command;
    if args.node.is_some() {
        return Ok(Door::Native);
    }
    let record = locate::record(&State::open()?, &args.target)?;
    let native = record.is_some_and(|record| info::copy_doors(record.id).contains(&"native"));
    Ok(if native && !api_alone { Door::Native } else { Door::Api })
}

/// What to copy, from either way of saying it.
fn parts(args: &CopyArgs) -> Result<Vec<Part>, Failure> {
    if !args.segment.is_empty() {
        let part = |span: &Span| {
            let destination =
                span.destination.ok_or_else(|| Failure::usage("--segment: no destination after a colon"))?;
            Ok(Part { source: span.source, length: span.length, destination })
        };
        return args.segment.iter().map(part).collect();
    }
    let usage = || Failure::usage("nothing to copy: give SRC+LEN and DST, or --segment SRC+LEN:DST");
    let (destination, ranges) = args.ranges.split_last().ok_or_else(usage)?;
    if ranges.is_empty() {
        return Err(usage());
    }
    let bad = |text: &str, why: String| Failure::usage(format!("{text}: {why}"));
    let mut at = crate::units::parse_size(destination).map_err(|why| bad(destination, why))?;
    let mut parts = Vec::new();
    for text in ranges {
        let span: Span = text.parse().map_err(|why| bad(text, why))?;
        if span.destination.is_some() {
            return Err(bad(text, "a destination of its own needs --segment".to_string()));
        }
        parts.push(Part { source: span.source, length: span.length, destination: at });
        // An append names the zone for each of them.
        if args.append {
            continue;
        }
        let next = at.0.checked_add(span.length.0);
        at = Bytes(next.ok_or_else(|| bad(text, "passes the end of all addresses".to_string()))?);
    }
    Ok(parts)
}

fn device(args: &CopyArgs, parts: &[Part]) -> Result<String, Failure> {
    let state = State::open()?;
    let served = locate::served(&state, &args.target)?;
    let from = match &args.from {
        Some(target) => Some(source(&state, target, &served.record.pool)?),
        None => None,
    };
    let segment = |part: &Part| Segment {
        from: from.clone(),
        source: part.source,
        length: part.length,
        destination: part.destination,
    };
    let request = CopyRequest {
        segments: parts.iter().map(segment).collect(),
        fua: args.fua,
        fast_only: args.fast_only,
        one_command: args.one_command,
        append: args.append,
        verify: args.verify,
        force: args.force,
    };
    // Before the job: an interrupt must find it cancellable.
    let signals = Signals::block().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    let job: Job = served.client.send("POST", &served.path("/copies"), &request)?;
    let job = watch(&served, job, &signals)?;
    report(job, args)
}

/// The name of the source disk, which must be of the same pool.
fn source(state: &State, target: &crate::cli::Target, pool: &str) -> Result<String, Failure> {
    let record = locate::record(state, target)?.ok_or_else(|| locate::no_disk(target))?;
    if record.pool == pool {
        return Ok(record.name);
    }
    let why = format!("disk {} is in pool {}, not in {pool}", record.name, record.pool);
    Err(Failure::failed(why).hint("the device copies within a pool; --engine host copies between any disks"))
}

/// Looks at the job until it ends; an interrupt cancels it.
fn watch(served: &locate::Served, mut job: Job, signals: &Signals) -> Result<Job, Failure> {
    let bar = bar(job.total_bytes);
    let path = served.path(&format!("/copies/{}", job.id));
    while !job.state.ended() {
        bar.set_position(job.bytes);
        bar.set_message(phase(job.state));
        let interrupted =
            signals.wait(None, Some(PERIOD)).map_err(|error| Failure::failed(format!("signals: {error}")))?;
        job = served.client.call(if interrupted { "DELETE" } else { "GET" }, &path)?;
    }
    bar.finish_and_clear();
    Ok(job)
}

/// A bar for so many bytes, on a terminal.
pub(super) fn bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let style = "{msg} [{wide_bar}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}";
    bar.set_style(ProgressStyle::with_template(style).expect("a constant template"));
    bar
}

fn phase(state: JobState) -> &'static str {
    match state {
        JobState::WritingBack => "writing back",
        JobState::Copying => "copying",
        JobState::Dropping => "dropping pages",
        JobState::Verifying => "comparing",
        JobState::Done | JobState::Failed | JobState::Cancelled => "",
    }
}

fn report(job: Job, args: &CopyArgs) -> Result<String, Failure> {
    let compared = if args.verify && job.state == JobState::Done { ", compared" } else { "" };
    let appended = job.appended_at.map_or(String::new(), |at| format!(", appended at {at}"));
    let text = format!(
        "copied {} of {} bytes in {} of {} commands{appended}{compared}\n{}\n",
        job.bytes,
        job.total_bytes,
        job.commands_done,
        job.commands,
        line(&job.ledger)
    );
    let refused = job.state == JobState::Failed && job.bytes == 0;
    let failure = match (job.state, &job.error) {
        (JobState::Done, _) => None,
        (_, Some(error)) => Some(Failure::from(error.clone())),
        _ => Some(
            Failure::failed("the copy was interrupted")
                .hint("the finished prefix is copied, nothing after it"),
        ),
    };
    let text = match args.json {
        true => json(job),
        false if refused => String::new(),
        false => text,
    };
    match failure {
        None => Ok(text),
        Some(failure) => {
            super::print(&text)?;
            Err(failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<Vec<Part>, Failure> {
        let line = format!("ublk copy -n 0 {line}");
        let Command::Copy(args) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else {
            panic!("not copy")
        };
        parts(&args)
    }

    fn part(source: u64, length: u64, destination: u64) -> Part {
        Part { source: Bytes(source), length: Bytes(length), destination: Bytes(destination) }
    }

    #[test]
    fn positional_ranges_follow_each_other_at_the_destination() {
        assert_eq!(
            parse("0+4K 1M+512 2M"),
            Ok(vec![part(0, 4096, 2 << 20), part(1 << 20, 512, (2 << 20) + 4096)])
        );
        assert_eq!(
            parse("0+4K 1M+512 2M --append"),
            Ok(vec![part(0, 4096, 2 << 20), part(1 << 20, 512, 2 << 20)])
        );
        assert_eq!(
            parse("--segment 0+1K:4K --segment 8K+1K:0"),
            Ok(vec![part(0, 1024, 4096), part(8192, 1024, 0)])
        );
    }

    #[test]
    fn what_says_nothing_to_copy_is_refused() {
        for line in ["", "0+4K", "4K", "0+4K:8K 1M", "0+4K x", "x 1M", "--segment 0+4K", "0+1 16777215T 1M"] {
            assert_eq!(parse(line).unwrap_err().exit, super::super::Exit::Usage, "{line}");
        }
    }
}
