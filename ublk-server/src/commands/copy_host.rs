//! Engine `host`: what a host without copy commands does. Both block devices are opened without the page cache,
//! and eight threads read and write; every byte crosses the link twice.

use super::copy::Part;
use super::{Failure, json, locate};
use crate::cli::{CopyArgs, Target};
use crate::coherence;
use crate::signals::Signals;
use crate::state::State;
use indicatif::ProgressBar;
use serde::Serialize;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Reads and writes at the same time.
const DEPTH: usize = 8;
/// Bytes of one read and one write.
const PIECE: u64 = 256 << 10;
/// The alignment of buffers that every device takes.
pub(super) const ALIGN: usize = 4096;

/// What a copy by reads and writes did.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) engine: &'static str,
}

/// The block devices of a copy by reads and writes.
pub(super) struct Ends {
    /// The number of the destination.
    pub(super) to: u32,
    pub(super) source: File,
    pub(super) destination: File,
}

struct Work {
    source: File,
    destination: File,
    pieces: Vec<Part>,
    next: AtomicUsize,
    done: Mutex<Vec<bool>>,
    bytes: AtomicU64,
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

pub(super) fn run(args: &CopyArgs, parts: &[Part]) -> Result<String, Failure> {
    let Ends { to, source, destination } = Ends::open(args, parts, "host")?;
    let work = Work {
        source,
        destination,
        pieces: pieces(parts),
        next: AtomicUsize::new(0),
        done: Mutex::default(),
        bytes: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failure: Mutex::default(),
    };
    work.done.lock().unwrap_or_else(PoisonError::into_inner).resize(work.pieces.len(), false);
    let total = parts.iter().map(|part| part.length.0).sum();
    let signals = Signals::block().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    drive(&work, total, depth(to), &signals)?;
    report(args, work, total)
}

impl Ends {
    /// Opens them for an engine that sends no copy commands, unless somebody else holds the destination.
    pub(super) fn open(args: &CopyArgs, parts: &[Part], engine: &str) -> Result<Self, Failure> {
        if args.fast_only || args.one_command || args.append {
            return Err(Failure::usage(format!(
                "--fast-only, --one-command and --append are for copy commands: engine {engine} sends none"
            )));
        }
        let state = State::open()?;
        let to = node(&state, &args.target)?;
        let from = args.from.as_ref().map_or(Ok(to), |target| node(&state, target))?;
        if from == to && overlap(parts) {
            let why =
                "the ranges overlap: a destination may overlap neither a source nor another destination";
            return Err(Failure::failed(why));
        }
        if !args.force {
            let claim = coherence::claim(to).map_err(|error| Failure::failed(error.to_string()))?;
            if let Some(claim) = claim {
                return Err(Failure::failed(claim).hint("release it; --force writes below its user"));
            }
        }
        let sync = if args.fua { libc::O_DSYNC } else { 0 };
        Ok(Self { to, source: open(from, false, 0)?, destination: open(to, true, sync)? })
    }
}

impl Report {
    /// What is printed, after what was asked for in addition: that both sides are the same.
    pub(super) fn answer(
        &self,
        args: &CopyArgs,
        mut failure: Option<String>,
        (source, destination): (&File, &File),
        pieces: &[Part],
    ) -> Result<String, Failure> {
        if failure.is_none() && args.verify {
            failure = differs(source, destination, pieces).err();
        }
        let Self { bytes, total_bytes, reads, writes, .. } = self;
        let text = match args.json {
            true => json(self),
            false => format!("copied {bytes} of {total_bytes} bytes by {reads} reads and {writes} writes\n"),
        };
        match failure {
            None => Ok(text),
            Some(why) => {
                super::print(&text)?;
                Err(Failure::failed(why))
            }
        }
    }
}

/// The number of a disk's block device.
fn node(state: &State, target: &Target) -> Result<u32, Failure> {
    let record = locate::record(state, target)?;
    match (record, target) {
        (Some(record), _) => record.id.ok_or_else(|| {
            Failure::failed(format!("disk {} has no block device", record.name))
                .hint("engine host reads and writes block devices: use --engine device")
        }),
        (None, Target::Id(id)) => Ok(*id),
        (None, Target::Name(_)) => Err(locate::no_disk(target)),
    }
}

fn open(disk: u32, write: bool, flags: i32) -> Result<File, Failure> {
    let path = format!("/dev/ublkb{disk}");
    let opened = File::options().read(true).write(write).custom_flags(libc::O_DIRECT | flags).open(&path);
    opened.map_err(|error| Failure::failed(format!("{path}: {error}")))
}

/// True when one piece could write what another has yet to read, or has written.
fn overlap(parts: &[Part]) -> bool {
    let range = |start: u64, part: &Part| start..start.saturating_add(part.length.0);
    parts.iter().enumerate().any(|(index, part)| {
        let to = range(part.destination.0, part);
        let hit = |other: std::ops::Range<u64>| to.start < other.end && other.start < to.end;
        let sources = parts.iter().any(|other| hit(range(other.source.0, other)));
        sources || parts[index + 1..].iter().any(|other| hit(range(other.destination.0, other)))
    })
}

/// The parts cut to the size of one read.
pub(super) fn pieces(parts: &[Part]) -> Vec<Part> {
    let mut pieces = Vec::new();
    for part in parts {
        let mut at = 0;
        while at < part.length.0 {
            let length = PIECE.min(part.length.0 - at);
            pieces.push(Part {
                source: emulation::Bytes(part.source.0 + at),
                length: emulation::Bytes(length),
                destination: emulation::Bytes(part.destination.0 + at),
            });
            at += length;
        }
    }
    pieces
}

/// Zones are written in order, by one write at a time.
fn depth(disk: u32) -> usize {
    let zoned = std::fs::read_to_string(format!("/sys/block/ublkb{disk}/queue/zoned"));
    if zoned.is_ok_and(|zoned| zoned.trim() != "none") { 1 } else { DEPTH }
}

fn drive(work: &Work, total: u64, depth: usize, signals: &Signals) -> Result<(), Failure> {
    let bar = ProgressBar::new(total);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..depth).map(|_| scope.spawn(|| copy(work))).collect();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            bar.set_position(work.bytes.load(Ordering::Relaxed));
            let interrupted = signals.wait(None, Some(Duration::from_millis(20)));
            if interrupted.unwrap_or(true) {
                work.fail("the copy was interrupted".to_string());
            }
        }
    });
    bar.finish_and_clear();
    Ok(())
}

impl Work {
    fn fail(&self, why: String) {
        self.stop.store(true, Ordering::Relaxed);
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

/// One thread: takes the next piece until none is left.
fn copy(work: &Work) {
    let length = usize::try_from(PIECE).unwrap_or(usize::MAX);
    let mut space = vec![0; length + ALIGN];
    let start = space.as_ptr().align_offset(ALIGN);
    let buffer = &mut space[start..start + length];
    while !work.stop.load(Ordering::Relaxed) {
        let index = work.next.fetch_add(1, Ordering::Relaxed);
        let Some(piece) = work.pieces.get(index) else {
            return;
        };
        let data = &mut buffer[..usize::try_from(piece.length.0).unwrap_or(usize::MAX)];
        let read = work.source.read_exact_at(data, piece.source.0);
        let moved = read.map_err(|error| format!("read at {}: {error}", piece.source.0)).and_then(|()| {
            let written = work.destination.write_all_at(data, piece.destination.0);
            written.map_err(|error| format!("write at {}: {error}", piece.destination.0))
        });
        match moved {
            Ok(()) => {
                work.bytes.fetch_add(piece.length.0, Ordering::Relaxed);
                work.done.lock().unwrap_or_else(PoisonError::into_inner)[index] = true;
            }
            Err(why) => return work.fail(why),
        }
    }
}

fn report(args: &CopyArgs, work: Work, total: u64) -> Result<String, Failure> {
    let done = work.done.into_inner().unwrap_or_else(PoisonError::into_inner);
    let whole = done.iter().take_while(|done| **done).count();
    let bytes = work.pieces[..whole].iter().map(|piece| piece.length.0).sum();
    let count = done.iter().filter(|done| **done).count() as u64;
    let failure = work.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    let report = Report { bytes, total_bytes: total, reads: count, writes: count, engine: "host" };
    report.answer(args, failure, (&work.source, &work.destination), &work.pieces)
}

fn differs(source: &File, destination: &File, pieces: &[Part]) -> Result<(), String> {
    let length = usize::try_from(PIECE).unwrap_or(usize::MAX);
    let mut space = vec![0; 2 * length + ALIGN];
    let start = space.as_ptr().align_offset(ALIGN);
    let (one, two) = space[start..start + 2 * length].split_at_mut(length);
    for piece in pieces {
        let size = usize::try_from(piece.length.0).unwrap_or(usize::MAX);
        source.read_exact_at(&mut one[..size], piece.source.0).map_err(|error| error.to_string())?;
        destination
            .read_exact_at(&mut two[..size], piece.destination.0)
            .map_err(|error| error.to_string())?;
        if one[..size] != two[..size] {
            return Err(format!(
                "source and destination differ within {size} bytes at {}",
                piece.destination.0
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulation::Bytes;

    fn part(source: u64, length: u64, destination: u64) -> Part {
        Part { source: Bytes(source), length: Bytes(length), destination: Bytes(destination) }
    }

    #[test]
    fn pieces_cover_the_parts_in_order() {
        let cut = pieces(&[part(512, PIECE + 512, 1 << 30), part(0, 512, 0)]);
        assert_eq!(
            cut,
            [part(512, PIECE, 1 << 30), part(512 + PIECE, 512, (1 << 30) + PIECE), part(0, 512, 0)]
        );
    }

    #[test]
    fn overlap_is_exact() {
        assert!(!overlap(&[part(0, 512, 512)]));
        assert!(overlap(&[part(0, 1024, 512)]));
        assert!(overlap(&[part(0, 512, 4096), part(8192, 512, 4096)]));
        assert!(overlap(&[part(0, 512, 4096), part(4096, 512, 8192)]));
        assert!(!overlap(&[part(0, 512, 4096), part(0, 512, 8192)]), "sources may");
    }
}
