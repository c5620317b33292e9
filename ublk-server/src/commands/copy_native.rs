//! `ublk copy --door native`: the kernel's copy operation on a block device. The kernel keeps that device's page cache
//! coherent, and cuts a call that exceeds the limits of the device into commands.

use super::copy::{Part, bar};
use super::stats::line;
use super::{Failure, json, locate, print};
use crate::blkcopy::{self, Caller, SOURCES_MAX, Source, Way};
use crate::cli::{CopyArgs, Target};
use crate::coherence;
use crate::control::api::{ApiError, Stats};
use crate::control::split;
use crate::signals::Signals;
use crate::state::State;
use emulation::{BlkStatus, Bytes, CopyCommand, Sectors, VolumeId, limits};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most bytes of one call: an interrupt is heeded between two.
const CALL_MAX: Bytes = Bytes::mib(128);
const _: () = assert!(CALL_MAX.0 <= blkcopy::BYTES_MAX.0);

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

/// The option of `args` that this door has not.
pub(super) fn missing(args: &CopyArgs) -> Option<&'static str> {
    let options = [
        ("--from", args.from.is_some()),
        ("--fua", args.fua),
        ("--fast-only", args.fast_only),
        ("--append", args.append),
        ("--verify", args.verify),
    ];
    options.iter().find(|(_, given)| *given).map(|(option, _)| *option)
}

pub(super) fn run(args: &CopyArgs, parts: &[Part], way: Way) -> Result<String, Failure> {
    if let Some(option) = missing(args) {
        let why = format!("{option} is not for --door native: the kernel's operation has no such thing");
        return Err(Failure::usage(why));
    }
    if args.one_command && !is_one_call(parts) {
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
    if !is_one_call(parts) {
        let (block, size) = sizes(&device).map_err(failed)?;
        check_whole(parts, block, size)?;
    }
    let calls = calls(parts);
    // Before the first call: what came until then is heeded before the second.
    let signals = Signals::block().map_err(|error| Failure::failed(format!("signals: {error}")))?;
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
    let mut caller = Caller::new(way).map_err(|error| Failure::failed(format!("io_uring: {error}")))?;
    let mut failure = None;
    let bar = bar(report.total_bytes);
    for call in &calls {
        if signals.wait(None, Some(Duration::ZERO)).is_ok_and(|interrupted| interrupted) {
            failure = Some(
                Failure::failed("the copy was interrupted")
                    .hint("the finished prefix is copied, nothing after it"),
            );
            break;
        }
        let (copied, result) = caller.copy(&device, &call.sources, call.destination);
        report.bytes += copied.0;
        if let Err(error) = result {
            failure = Some(explain(&node, error));
            break;
        }
        report.calls_done += 1;
        bar.set_position(report.bytes);
    }
    bar.finish_and_clear();
    // A server that dies fails the copy and does not answer here; what the kernel says to be done is told all the same.
    let after = stats().unwrap_or_else(|error| {
        failure.get_or_insert(error.into());
        None
    });
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

/// Do the parts make up one call?
fn is_one_call(parts: &[Part]) -> bool {
    let follow = parts.windows(2).all(|two| {
        let end = two[0].destination.0.checked_add(two[0].length.0);
        end == Some(two[1].destination.0)
    });
    let total = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.length.0));
    follow && parts.len() <= SOURCES_MAX && total.is_some_and(|total| total <= CALL_MAX.0)
}

/// Parts whose destinations follow each other go into one call, as long as it takes them; one that is longer than a
/// call is cut.
fn calls(parts: &[Part]) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for part in parts {
        let mut done = 0;
        // Once for a part of no bytes, too: the kernel refuses it.
        loop {
            let destination = part.destination.0.saturating_add(done);
            let joins = |call: &Call| {
                call.destination.checked_add(call.length) == Some(destination)
                    && call.sources.len() < SOURCES_MAX
                    && call.length < CALL_MAX.0
            };
            if !calls.last().is_some_and(joins) {
                calls.push(Call { sources: Vec::new(), destination, length: 0 });
            }
            let call = calls.last_mut().expect("there is one now");
            let length = (part.length.0 - done).min(CALL_MAX.0 - call.length);
            call.sources.push(Source { offset: part.source.0.saturating_add(done), length });
            call.length += length;
            done += length;
            if done == part.length.0 {
                break;
            }
        }
    }
    calls
}

/// The logical block of a device and its size.
fn sizes(device: &File) -> io::Result<(Sectors, Bytes)> {
    let block = Bytes(rustix::fs::ioctl_blksszget(device)?.into());
    let mut device = device;
    Ok((block.whole_sectors(), Bytes(device.seek(SeekFrom::End(0))?)))
}

/// What the kernel checks for one call, for all of them: no part of a copy is begun that cannot be done as a whole.
fn check_whole(parts: &[Part], block: Sectors, size: Bytes) -> Result<(), ApiError> {
    let volume = VolumeId(0);
    let segments = parts.iter().map(|part| {
        let segment = split::segment(volume, part.source, part.length, part.destination, block)?;
        let end = segment.source.end().max(segment.destination_range().end());
        match end.0 <= size.whole_sectors().0 {
            true => Ok(segment),
            false => Err(ApiError::of_status("the copy", BlkStatus::OutOfRange)),
        }
    });
    let whole = CopyCommand { segments: segments.collect::<Result<_, ApiError>>()? };
    match limits::overlaps(volume, &whole) {
        true => Err(ApiError::of_status("the copy", BlkStatus::CopyOverlap)),
        false => Ok(()),
    }
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
        let most = CALL_MAX.0;
        let lengths = |parts: &[Part]| calls(parts).iter().map(|call| call.length).collect::<Vec<_>>();
        assert_eq!(lengths(&[part(0, most - 512, 0), part(0, 512, most - 512)]), [most]);
        assert_eq!(lengths(&[part(0, most - 512, 0), part(0, 1024, most - 512)]), [most, 512]);
        let long = calls(&[part(512, 2 * most + 1024, 4096)]);
        let last = Call {
            sources: vec![Source { offset: 512 + 2 * most, length: 1024 }],
            destination: 4096 + 2 * most,
            length: 1024,
        };
        assert_eq!((long.len(), &long[2]), (3, &last));
        assert_eq!(calls(&[part(0, 512, u64::MAX), part(0, 512, 0)]).len(), 2);
    }

    #[test]
    fn one_call_is_what_the_kernel_checks_by_itself() {
        let most = CALL_MAX.0;
        assert!(is_one_call(&[part(0, 8, 100), part(0, most - 8, 108)]));
        for parts in [
            vec![part(0, 8, 100), part(0, 8, 109)],
            vec![part(0, most + 512, 0)],
            vec![part(0, u64::MAX, 0), part(0, 1, u64::MAX)],
            vec![part(0, 0, 100); 1025],
        ] {
            assert!(!is_one_call(&parts), "{:?}", parts[0]);
        }
    }

    #[test]
    fn what_cannot_be_done_as_a_whole_is_not_begun() {
        let check = |parts: &[Part]| check_whole(parts, Sectors(1), Bytes::mib(1));
        assert!(check(&[part(0, 512, 1024), part(4096, 512, 1536), part(1 << 19, 1 << 18, 1 << 18)]).is_ok());
        for parts in [
            // The second call would overwrite what the first has read, the first what the second has yet to read.
            [part(4096, 512, 1024), part(0, 512, 4096)],
            [part(0, 512, 4096), part(4096, 512, 8192)],
            [part(0, 512, 1024), part(0, 512, 1024)],
            [part(0, 512, 1024), part(0, 512, (1 << 20) - 511)],
            [part(0, 512, 1024), part(0, 1024, (1 << 20) - 512)],
            [part(0, 512, 1024), part(1 << 20, 512, 4096)],
            [part(0, 512, 1024), part(0, u64::MAX - 511, 4096)],
            [part(0, 512, 1024), part(0, 0, 4096)],
        ] {
            assert!(check(&parts).is_err(), "{parts:?}");
        }
    }
}
