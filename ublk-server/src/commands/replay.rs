//! `ublk replay`: what a trace did, done again to a disk or to the model of one.

use super::{Failure, json, locate};
use crate::cli::{ReplayArgs, Speed};
use crate::replay::{Action, Entry, Fit, Fitted, Malformed, Planned, Trace, live, sim};
use crate::state::State;
use crate::timing::TimingConfig;
use emulation::Instant as Virtual;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Malformed lines that are printed; the others are counted.
const PRINTED_MAX: u64 = 20;
/// The longest latency that is told apart: an hour.
const LATENCY_MAX: u64 = 3_600_000_000_000;

/// The requests of one action.
#[derive(Clone, Debug)]
struct Counted {
    requests: u64,
    bytes: u64,
    failed: u64,
    latency: Histogram<u64>,
}

impl Counted {
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("bounds in order");
        Self { requests: 0, bytes: 0, failed: 0, latency }
    }

    fn add(&mut self, bytes: u64, nanos: u64, ok: bool) {
        self.requests += 1;
        self.bytes += bytes;
        self.failed += u64::from(!ok);
        self.latency.saturating_record(nanos.max(1));
    }
}

/// Every action's, in their order.
type Counts = [Counted; Action::ALL.len()];

fn counts() -> Counts {
    Action::ALL.map(|_| Counted::new())
}

fn index(action: Action) -> usize {
    Action::ALL.iter().position(|other| *other == action).expect("all are there")
}

/// What a replay did.
#[derive(Debug, Serialize)]
struct Report {
    simulated: bool,
    elapsed_ns: u64,
    entries: u64,
    malformed: u64,
    other_devices: u64,
    wrapped: u64,
    cut: u64,
    widened: u64,
    out_of_order: u64,
    /// By how much a request was begun late at recorded speed, at most.
    late_ns: u64,
    operations: BTreeMap<&'static str, Operation>,
}

#[derive(Debug, Serialize)]
struct Operation {
    requests: u64,
    bytes: u64,
    failed: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

/// Where requests go.
trait Sink {
    /// Takes a request; waits while there are too many.
    fn push(&mut self, request: Planned);
    /// Waits for the last of them: what each action did, the time in ns, and by how much one was late at most.
    fn end(self: Box<Self>) -> (Counts, u64, u64);
}

pub(super) fn run(args: &ReplayArgs) -> Result<String, Failure> {
    let trace = open(args)?;
    let (sink, size, block, simulated): (Box<dyn Sink>, u64, u64, bool) = match &args.target {
        Some(_) => {
            let (device, size, block) = device(args)?;
            (Box::new(Live::start(args, device)?), size, block, false)
        }
        None => {
            let size = args.size.0 / 4096 * 4096;
            if size == 0 || size > crate::config::SIZE_MAX.0 {
                return Err(Failure::usage(format!(
                    "size {}: from 4K to {}",
                    args.size,
                    crate::config::SIZE_MAX
                )));
            }
            (Box::new(Simulated::new(args, size)?), size, 4096, true)
        }
    };
    let mut fit = Fit::new(size, block);
    let report = replay(args, trace, sink, &mut fit, simulated)?;
    let text = if args.json { json(&report) } else { text(&report) };
    let failed: u64 = report.operations.values().map(|operation| operation.failed).sum();
    if failed == 0 && report.malformed == 0 {
        return Ok(text);
    }
    super::print(&text)?;
    let mut why = Vec::new();
    if report.malformed > 0 {
        let what = ["line is malformed and was left out", "lines are malformed and were left out"];
        why.push(number(report.malformed, what));
    }
    if failed > 0 {
        why.push(number(failed, ["request failed", "requests failed"]));
    }
    Err(Failure::failed(why.join("; ")))
}

fn open(args: &ReplayArgs) -> Result<Trace<Box<dyn BufRead>>, Failure> {
    let reader: Box<dyn BufRead> = if args.file.as_os_str() == "-" {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let file = File::open(&args.file);
        let file = file.map_err(|error| Failure::failed(format!("{}: {error}", args.file.display())))?;
        Box::new(BufReader::with_capacity(1 << 20, file))
    };
    Ok(Trace::new(args.format, args.format_options(), reader))
}

/// The disk's block device, its size and its logical block. It is not in use by others.
fn device(args: &ReplayArgs) -> Result<(File, u64, u64), Failure> {
    let target = args.target.as_ref().expect("it was asked for");
    let disk = locate::served(&State::open()?, target)?.disk()?;
    let path = disk.path.ok_or_else(|| {
        Failure::failed(format!("disk {} has no block device", disk.name))
            .hint("a trace is replayed on block devices, or with --sim on the model of a disk")
    })?;
    let opened =
        File::options().read(true).write(true).custom_flags(libc::O_DIRECT | libc::O_EXCL).open(&path);
    let device = opened.map_err(|error| {
        let failure = Failure::failed(format!("{}: {error}", path.display()));
        match error.raw_os_error() {
            Some(libc::EBUSY) => failure.hint("it is mounted or held by another program: release it first"),
            _ => failure,
        }
    })?;
    Ok((device, disk.size.0, disk.logical_block_size.0))
}

fn replay(
    args: &ReplayArgs,
    mut trace: Trace<Box<dyn BufRead>>,
    mut sink: Box<dyn Sink>,
    fit: &mut Fit,
    simulated: bool,
) -> Result<Report, Failure> {
    let (mut entries, mut malformed, mut other_devices) = (0, 0, 0);
    let mut failure = None;
    loop {
        match trace.next() {
            Ok(None) => break,
            Ok(Some(Ok(Entry { device, .. })))
                if args.device.as_ref().is_some_and(|only| *only != device) =>
            {
                other_devices += 1;
            }
            Ok(Some(Ok(entry))) => {
                entries += 1;
                sink.push(fit.fit(&entry));
            }
            Ok(Some(Err(Malformed { line, why }))) => {
                malformed += 1;
                if malformed <= PRINTED_MAX {
                    eprintln!("ublk: {}: line {line}: {why}", args.file.display());
                }
            }
            Err(error) => {
                failure = Some(Failure::failed(format!("{}: {error}", args.file.display())));
                break;
            }
        }
    }
    let (counts, elapsed_ns, late_ns) = sink.end();
    if let Some(failure) = failure {
        return Err(failure);
    }
    if malformed > PRINTED_MAX {
        let more = number(malformed - PRINTED_MAX, ["more such line", "more such lines"]);
        eprintln!("ublk: {}: {more}", args.file.display());
    }
    let Fitted { wrapped, cut, widened, out_of_order } = fit.fitted;
    let operation = |counted: &Counted| Operation {
        requests: counted.requests,
        bytes: counted.bytes,
        failed: counted.failed,
        p50_ns: counted.latency.value_at_quantile(0.5),
        p99_ns: counted.latency.value_at_quantile(0.99),
        max_ns: counted.latency.max(),
    };
    let done = Action::ALL.iter().zip(&counts).filter(|(_, counted)| counted.requests > 0);
    let operations = done.map(|(action, counted)| (action.name(), operation(counted))).collect();
    Ok(Report {
        simulated,
        elapsed_ns,
        entries,
        malformed,
        other_devices,
        wrapped,
        cut,
        widened,
        out_of_order,
        late_ns,
        operations,
    })
}

/// A number with what it counts: one of it, more of it.
fn number(count: u64, [one, more]: [&str; 2]) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    let seconds = report.elapsed_ns as f64 / 1e9;
    let what = if report.simulated { "simulated" } else { "measured" };
    // Writing to a string cannot fail.
    let entries = number(report.entries, ["entry", "entries"]);
    let _ = writeln!(out, "{entries} in {seconds:.3} s ({what})");
    for (name, operation) in &report.operations {
        let Operation { requests, bytes, failed, p50_ns, p99_ns, max_ns } = operation;
        let us = |ns: u64| format!("{}.{} us", ns / 1000, ns / 100 % 10);
        let (p50, p99, max) = (us(*p50_ns), us(*p99_ns), us(*max_ns));
        let (requests, size) = (number(*requests, ["request", "requests"]), emulation::Bytes(*bytes));
        let _ = writeln!(
            out,
            "{name:<8}{requests}, {size}, {failed} failed; latency median {p50}, p99 {p99}, max {max}"
        );
    }
    for (count, what) in [
        (report.other_devices, ["entry of another device left out", "entries of other devices left out"]),
        (report.wrapped, ["began beyond the end of the disk: taken modulo its size"; 2]),
        (report.cut, ["reached beyond the end of the disk: cut there"; 2]),
        (
            report.widened,
            [
                "was no whole blocks: widened to those that it touches",
                "were no whole blocks: widened to those that they touch",
            ],
        ),
        (
            report.out_of_order,
            [
                "was before the entry that it follows: done with it",
                "were before the entry that they follow: done with it",
            ],
        ),
    ] {
        if count > 0 {
            let _ = writeln!(out, "{}", number(count, what));
        }
    }
    if report.late_ns > 0 {
        let _ = writeln!(out, "begun late by at most {:.3} ms", report.late_ns as f64 / 1e6);
    }
    out
}

/// Threads over a block device.
struct Live {
    send: Option<std::sync::mpsc::SyncSender<Planned>>,
    threads: Vec<thread::JoinHandle<Counts>>,
    begun: Instant,
    recorded: bool,
    late: Duration,
}

impl Live {
    fn start(args: &ReplayArgs, device: File) -> Result<Self, Failure> {
        let (send, receive) = sync_channel(args.depth as usize);
        let (receive, device) = (Arc::new(Mutex::new(receive)), Arc::new(device));
        let mut threads = Vec::new();
        for _ in 0..args.depth {
            let (receive, device) = (Arc::clone(&receive), Arc::clone(&device));
            let thread =
                thread::Builder::new().name("ublk-replay".into()).spawn(move || work(&receive, &device));
            threads.push(thread.map_err(|error| {
                Failure::failed(format!("a thread cannot be started: {error}")).hint("give a smaller --depth")
            })?);
        }
        let recorded = args.speed == Speed::Recorded;
        Ok(Self { send: Some(send), threads, begun: Instant::now(), recorded, late: Duration::ZERO })
    }
}

fn work(receive: &Mutex<Receiver<Planned>>, device: &File) -> Counts {
    let mut counts = counts();
    let mut memory = live::Memory::default();
    loop {
        let next = receive.lock().expect("a thread of the replay has panicked").recv();
        let Ok(request) = next else { return counts };
        let begun = Instant::now();
        let ok = live::execute(device, &request, &mut memory).is_ok();
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(LATENCY_MAX);
        counts[index(request.action)].add(request.length, nanos, ok);
    }
}

impl Sink for Live {
    fn push(&mut self, request: Planned) {
        if self.recorded {
            let due = self.begun + Duration::from_nanos(request.at.0);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            self.late = self.late.max(Instant::now().saturating_duration_since(due));
        }
        let send = self.send.as_ref().expect("it is not over");
        send.send(request).expect("the threads end after this");
    }

    fn end(mut self: Box<Self>) -> (Counts, u64, u64) {
        self.send = None;
        let mut all = counts();
        for thread in self.threads {
            let counts = thread.join().expect("a thread of the replay has panicked");
            for (all, counted) in all.iter_mut().zip(counts) {
                all.requests += counted.requests;
                all.bytes += counted.bytes;
                all.failed += counted.failed;
                all.latency.add(&counted.latency).expect("the same bounds");
            }
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        (all, nanos(self.begun.elapsed()), nanos(self.late))
    }
}

/// The model of a disk.
struct Simulated {
    sim: sim::Sim,
    counts: Counts,
    depth: usize,
    recorded: bool,
}

impl Simulated {
    fn new(args: &ReplayArgs, size: u64) -> Result<Self, Failure> {
        let settings = TimingConfig {
            latency: args.latency.clone(),
            bandwidth: args.bandwidth.clone(),
            media: args.media.clone(),
        };
        let timing = settings.timing().map_err(Failure::usage)?;
        let recorded = args.speed == Speed::Recorded;
        Ok(Self { sim: sim::Sim::new(size, timing), counts: counts(), depth: args.depth as usize, recorded })
    }
}

impl Sink for Simulated {
    fn push(&mut self, request: Planned) {
        let Self { sim, counts, depth, recorded } = self;
        let mut ended = |end: sim::Ended| {
            counts[index(end.request.action)].add(end.request.length, end.latency.0, end.ok);
        };
        // A host splits what is longer than a request may be.
        let most = sim.max_io();
        let mut done = 0;
        loop {
            let length = (request.length - done).min(most);
            let part = Planned { offset: request.offset + done, length, ..request };
            let at = if *recorded { Virtual(request.at.0) } else { sim.now() };
            while !*recorded && sim.under_way() >= *depth && sim.step(&mut ended) {}
            sim.begin(at.max(sim.now()), part, &mut ended);
            done += length;
            if done >= request.length {
                return;
            }
        }
    }

    fn end(self: Box<Self>) -> (Counts, u64, u64) {
        let Self { mut sim, mut counts, .. } = *self;
        let mut ended = |end: sim::Ended| {
            counts[index(end.request.action)].add(end.request.length, end.latency.0, end.ok);
        };
        while sim.step(&mut ended) {}
        let elapsed = sim.now().0;
        (counts, elapsed, 0)
    }
}
