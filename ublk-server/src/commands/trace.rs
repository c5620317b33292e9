//! `ublk trace`: the requests of a disk as they are answered.

use super::{Failure, locate, print};
use crate::cli::{TraceArgs, TraceFormat};
use crate::control::api::{Disk, TraceRecord, TraceView};
use crate::signals::Signals;
use crate::state::State;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// The time between two questions when there is nothing new.
const PERIOD: Duration = Duration::from_millis(100);

pub(super) fn run(args: &TraceArgs) -> Result<String, Failure> {
    let served = locate::served(&State::open()?, &args.disk.target)?;
    let signals = Signals::block().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    let disk = served.disk()?;
    let device = device(&disk);
    let (mut after, mut lost, mut left) = (0, 0, args.count.unwrap_or(u64::MAX));
    let ended = loop {
        let path = served.path(&format!("/trace?after={after}"));
        let mut view: TraceView = served.client.call("GET", &path)?;
        (after, lost) = (view.next, lost + view.lost);
        view.records.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= view.records.len() as u64;
        let text = match args.format {
            TraceFormat::Blkparse => blkparse(&view.records, device),
            TraceFormat::Json => lines(&view.records),
        };
        print(&text)?;
        let pause = if view.records.is_empty() { PERIOD } else { Duration::ZERO };
        let signal = signals.wait(None, Some(pause)).map_err(|error| Failure::failed(error.to_string()))?;
        if signal || left == 0 {
            break served.client.call::<serde_json::Value>("DELETE", &served.path("/trace"));
        }
    };
    ended?;
    match lost {
        0 => Ok(String::new()),
        lost => {
            Err(Failure::failed(format!("{lost} requests are missing: they came faster than they were read")))
        }
    }
}

/// The device number of the disk's block device; 0,0 where there is none.
fn device(disk: &Disk) -> (u32, u32) {
    let number =
        disk.path.as_ref().and_then(|path| std::fs::metadata(path).ok()).map_or(0, |meta| meta.rdev());
    (rustix::fs::major(number), rustix::fs::minor(number))
}

fn lines(records: &[TraceRecord]) -> String {
    let line = |record| serde_json::to_string(record).expect("a record has a JSON form") + "\n";
    records.iter().map(line).collect()
}

/// As blkparse prints it: a line when the disk had the request (D) and one when it was answered (C), in the order of time
/// among the requests that are printed together.
fn blkparse(records: &[TraceRecord], (major, minor): (u32, u32)) -> String {
    let mut events = Vec::new();
    for record in records {
        for (at, action) in [(record.begun_ns, 'D'), (record.ended_ns, 'C')] {
            for (what, range) in parts(record) {
                events.push((at, action, what, range, record.thread));
            }
        }
    }
    events.sort_by_key(|event| event.0);
    let mut out = String::new();
    for (sequence, (at, action, what, range, thread)) in events.iter().enumerate() {
        let (seconds, nanos) = (at / 1_000_000_000, at % 1_000_000_000);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{major:>3},{minor:<3} {thread:>2} {:>8} {seconds:>5}.{nanos:09} {:>5} {action:>2} {what:>3} {range}[ublk]",
            sequence + 1,
            0
        );
    }
    out
}

/// What a request is in the letters of blkparse, with its range in sectors; each segment of a copy is a line with its
/// source behind the range.
fn parts(record: &TraceRecord) -> Vec<(String, String)> {
    let sectors = |offset: u64, length: u64| format!("{} + {} ", offset / 512, length / 512);
    let flag = |name: &str| record.flags.iter().any(|flag| flag == name);
    let range = sectors(record.offset, record.length);
    let letters = match record.operation.as_str() {
        "read" => "R",
        "write" if flag("append") => "ZA",
        "write" => "W",
        "flush" => return vec![("F".to_string(), String::new())],
        "discard" => "D",
        "write_zeroes" => "WZ",
        "copy" => {
            let segment = |segment: &crate::control::api::TraceSegment| {
                let to = sectors(segment.destination, segment.length);
                ("C".to_string(), format!("{to}<- {} {} ", segment.volume, segment.source / 512))
            };
            return record.segments.iter().map(segment).collect();
        }
        _ => return vec![("Z".to_string(), String::new())],
    };
    let fua = if flag("fua") { "F" } else { "" };
    vec![(format!("{letters}{fua}"), range)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::TraceSegment;

    fn record(operation: &str, begun_ns: u64, offset: u64, length: u64) -> TraceRecord {
        TraceRecord {
            begun_ns,
            ended_ns: begun_ns + 1_500,
            operation: operation.to_string(),
            offset,
            length,
            segments: Vec::new(),
            action: None,
            flags: Vec::new(),
            status: "Ok".to_string(),
            bytes: length,
            thread: 1,
        }
    }

    #[test]
    fn what_is_printed_as_blkparse_can_be_replayed() {
        let write = TraceRecord { flags: vec!["fua".to_string()], ..record("write", 500, 8192, 4096) };
        let segment = TraceSegment { volume: 3, source: 512, length: 1024, destination: 4096 };
        let copy = TraceRecord { segments: vec![segment], ..record("copy", 2_000_000_000, 4096, 1024) };
        let records = [record("read", 1_000, 4096, 512), write, record("flush", 3_000, 0, 0), copy];
        let text = blkparse(&records, (259, 7));
        assert_eq!(
            text.lines().next(),
            Some("259,7    1        1     0.000000500     0  D  WF 16 + 8 [ublk]")
        );
        assert!(text.contains("2.000000000     0  D   C 8 + 2 <- 3 1 [ublk]\n"), "{text}");
        assert_eq!(text.lines().count(), 8);
        let mut trace = crate::replay::Trace::new(
            crate::replay::Format::Blkparse,
            crate::replay::FormatOptions::default(),
            text.as_bytes(),
        );
        let mut found = Vec::new();
        while let Some(next) = trace.next().unwrap() {
            found.push(
                next.map(|entry| (entry.at.0, entry.action.name(), entry.offset, entry.length))
                    .map_err(|m| m.line),
            );
        }
        let done =
            [Ok((500, "write", 8192, 4096)), Ok((1_000, "read", 4096, 512)), Ok((3_000, "flush", 0, 0))];
        assert_eq!(found[..3], done);
        // A copy is no action of other programs' traces.
        assert!(found[3].is_err() && found.len() == 4, "{found:?}");
    }
}
