//! A load of copies, with fio's options and fio's JSON: fio has no copy operation.

mod gate;
mod namespace;
mod native;
mod options;
mod pattern;
mod report;
mod stats;
mod target;
mod verify;

pub use options::{CopyOptions, Door, Engine, Format, Rw};

use crate::failure::Failure;
use gate::Gate;
use native::Lane;
use pattern::Pattern;
use report::{JobResult, Report};
use stats::{Stats, Usage};
use std::io::Write;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;
use target::{Buffer, CopyError, Target};
use verify::Held;

/// Runs the load and prints its result.
///
/// # Errors
/// The load cannot be run, a copy failed, or something is not where it was copied to.
pub fn run(options: &CopyOptions) -> Result<(), Failure> {
    let target = Target::open(options)?;
    let patterns = Pattern::of_jobs(options, target.size)?;
    let held = if options.verify { read_sources(&target, &patterns)? } else { Vec::new() };
    let before = target.ledger()?;
    let begun = Instant::now();
    let gates: Vec<Gate> =
        patterns.iter().map(|pattern| Gate::new(options, pattern.commands(), begun)).collect();
    let failure = Mutex::new(None);
    let jobs = load(options, &target, &patterns, &gates, &failure)?;
    let ledger = target.ledger()?.zip(before).map(|(after, before)| after.since(&before));
    let failure: Option<CopyError> = failure.into_inner().expect("a thread of the load has panicked");
    let mut checked = Ok(None);
    if failure.is_none() && options.verify {
        checked = check(&target, &patterns, &gates, &held).map(Some);
    }
    let verified = checked.as_ref().ok().copied().flatten();
    print(options, &Report { options, target: &target.name, jobs, ledger, verified })?;
    if let Some(CopyError { message, hint, .. }) = failure {
        return Err(Failure { hint, ..Failure::failed(message) });
    }
    checked.map(|_| ())
}

fn read_sources(target: &Target, patterns: &[Pattern]) -> Result<Vec<Held>, Failure> {
    patterns.iter().map(|pattern| Held::read(target, pattern)).collect()
}

/// Blocks compared, and those of the sources that are like another.
fn check(
    target: &Target,
    patterns: &[Pattern],
    gates: &[Gate],
    held: &[Held],
) -> Result<(u64, u64), Failure> {
    let mut compared = 0;
    for ((held, pattern), gate) in held.iter().zip(patterns).zip(gates) {
        compared += held.check(target, pattern, gate)?;
    }
    Ok((compared, held.iter().map(Held::alike).sum()))
}

/// Runs every job to its end, each with as many threads as it has commands under way.
fn load(
    options: &CopyOptions,
    target: &Target,
    patterns: &[Pattern],
    gates: &[Gate],
    failure: &Mutex<Option<CopyError>>,
) -> Result<Vec<JobResult>, Failure> {
    thread::scope(|scope| {
        let mut jobs = Vec::new();
        for (pattern, gate) in patterns.iter().zip(gates) {
            let mut threads = Vec::new();
            for _ in 0..options.iodepth {
                let lane = Lane::new(options.door).inspect_err(|_| gates.iter().for_each(Gate::stop))?;
                let spawned = thread::Builder::new()
                    .name("ublk-bench-copy".to_string())
                    .spawn_scoped(scope, move || copies(target, pattern, gate, lane, failure));
                match spawned {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        // The threads that there are end with the job.
                        gates.iter().for_each(Gate::stop);
                        return Err(Failure::failed(format!("a thread cannot be started: {error}"))
                            .hint("give a smaller --iodepth or --numjobs"));
                    }
                }
            }
            jobs.push(threads);
        }
        Ok(jobs
            .into_iter()
            .map(|threads| {
                let mut job = JobResult { stats: Stats::new(), error: 0 };
                for thread in threads {
                    let (stats, error) = thread.join().expect("a thread of the load has panicked");
                    job.stats.add(&stats);
                    job.error = if job.error == 0 { error } else { job.error };
                }
                job
            })
            .collect())
    })
}

/// One thread of a job.
fn copies(
    target: &Target,
    pattern: &Pattern,
    gate: &Gate,
    mut lane: Option<Lane>,
    failure: &Mutex<Option<CopyError>>,
) -> (Stats, i32) {
    let mut stats = Stats::new();
    let mut buffer = Buffer::new(pattern.bs() as usize);
    let mut errno = 0;
    while let Some(ticket) = gate.take() {
        thread::sleep(ticket.due.saturating_duration_since(Instant::now()));
        let segments: Vec<_> = pattern.segments(ticket.pass, ticket.command).collect();
        let copied = target.copy(&segments, pattern.bs(), lane.as_mut(), &mut buffer, &mut stats);
        gate.done(copied.is_ok());
        if let Err(error) = copied {
            errno = error.errno;
            failure.lock().expect("a thread of the load has panicked").get_or_insert(error);
        }
    }
    stats.runtime = gate.elapsed();
    stats.usage = Usage::of_thread();
    (stats, errno)
}

fn print(options: &CopyOptions, report: &Report<'_>) -> Result<(), Failure> {
    let text = match options.output_format {
        Format::Normal => report.normal(),
        Format::Json => report.json(),
    };
    let Some(path) = &options.output else {
        return std::io::stdout()
            .write_all(text.as_bytes())
            .map_err(|error| Failure::failed(format!("standard output: {error}")));
    };
    std::fs::write(path, text).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}
