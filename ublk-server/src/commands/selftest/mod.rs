//! `ublk selftest`: the doctor, then a scratch disk: written, copied by remapping and by moving, compared, deleted.
//! With a target: the clauses against that disk.

mod clauses;
mod doctor;
mod judge;
mod namespace;
mod target;
#[cfg(test)]
mod tests;
mod zoned;

use super::{Exit, Failure, json, print};
use crate::cli::SelftestArgs;
use crate::config::{CopyModeName, DEFAULT_SIZE};
use crate::control::api::{CopyRequest, Disk, Empty, Job, LimitsPatch, LimitsView, Segment, Stats};
use crate::control::client::Client;
use crate::options::AddOptions;
use crate::server::{self, StartConfig};
use crate::state::State;
use doctor::Check;
use emulation::Bytes;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The bytes that are written and copied.
const LENGTH: u64 = 4 << 20;
/// Where the first copy goes, and the second.
const COPIES: [u64; 2] = [8 << 20, 16 << 20];
/// The memory of the scratch pool.
const MEMORY: Bytes = Bytes::mib(64);
/// The longest wait for a copy of a few megabytes.
const COPY_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize)]
struct Report {
    checks: Vec<Check>,
    scratch: Vec<Check>,
    /// The scratch disk was a block device.
    block_device: bool,
}

pub(super) fn run(args: &SelftestArgs) -> Result<String, Failure> {
    if let Some(target) = &args.target {
        return judge::run(target, args.scratch, args.json);
    }
    let checks = doctor::checks();
    let can_run = checks.iter().all(|check| check.ok);
    let scratch = scratch(!can_run);
    let well = scratch.iter().all(|check| check.ok);
    let report = Report { checks, scratch, block_device: can_run };
    let text = if args.json { json(&report) } else { text(&report) };
    if can_run && well {
        return Ok(text);
    }
    print(&text)?;
    let first = report.checks.iter().chain(&report.scratch).find(|check| !check.ok);
    let found = first.map_or(String::new(), |check| format!("{}: {}", check.name, check.found));
    let exit = if well { Exit::CannotRun } else { Exit::Failed };
    let failure = Failure::new(exit, found);
    Err(match first.and_then(|check| check.hint.clone()) {
        Some(hint) => failure.hint(hint),
        None => failure,
    })
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    for check in report.checks.iter().chain(&report.scratch) {
        let state = if check.ok { "ok  " } else { "FAIL" };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{state} {:<18}{}", check.name, check.found);
    }
    if !report.block_device {
        let _ = writeln!(out, "     no block device can be made here; the scratch disk had none");
    }
    out
}

/// Makes a scratch disk, tries it, and deletes it.
fn scratch(no_ublk: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    let made = make(no_ublk);
    let (client, disk) = match made {
        Ok((client, disk)) => (client, disk),
        Err(failure) => {
            checks.push(check("make a disk", Err(failure)));
            return checks;
        }
    };
    checks.push(check("make a disk", Ok(disk.name.clone())));
    let disk_path = format!("/v1/disks/{}", disk.name);
    checks.push(check("copy by remap", exercise(&client, &disk, CopyModeName::Remap, COPIES[0])));
    checks.push(check("copy by memcpy", exercise(&client, &disk, CopyModeName::Memcpy, COPIES[1])));
    let gone: Result<Empty, _> = client.call("DELETE", &format!("{disk_path}?force=true"));
    checks.push(check("delete the disk", gone.map(|Empty {}| "done".to_string()).map_err(Failure::from)));
    checks
}

fn check(name: &'static str, result: Result<String, Failure>) -> Check {
    match result {
        Ok(found) => Check { name, ok: true, found, hint: None },
        Err(failure) => Check { name, ok: false, found: failure.message, hint: failure.hint },
    }
}

fn make(no_ublk: bool) -> Result<(Client, Disk), Failure> {
    let options = AddOptions {
        memory: Some(MEMORY),
        size: Some(MEMORY),
        no_ublk: Some(no_ublk),
        ..AddOptions::default()
    };
    let state = State::open()?;
    let pool = options.new_pool(DEFAULT_SIZE)?;
    let start = StartConfig {
        state: state.base().to_path_buf(),
        pool,
        disk: options.disk()?,
        recover: Vec::new(),
        force: false,
        foreground: false,
        debug: false,
    };
    let disk = server::spawn(&start)?;
    Ok((Client::new(&state.socket(&disk.pool)), disk))
}

/// Writes, copies in a mode and compares; says what the ledger counted.
fn exercise(client: &Client, disk: &Disk, mode: CopyModeName, to: u64) -> Result<String, Failure> {
    let path = |rest: &str| format!("/v1/disks/{}{rest}", disk.name);
    let pattern: Vec<u8> = (0..LENGTH).map(|at| ((at / 512) ^ (at * 7) ^ to) as u8).collect();
    write(client, disk, &pattern)?;
    let patch = LimitsPatch { copy: Some(mode), ..LimitsPatch::default() };
    let _: LimitsView = client.send("PATCH", &path("/limits"), &patch)?;
    let _: Stats =
        client.send("POST", &path("/stats"), &crate::control::api::StatsRequest { reset: true })?;
    let segment = Segment { from: None, source: Bytes(0), length: Bytes(LENGTH), destination: Bytes(to) };
    let request = CopyRequest { segments: vec![segment], ..CopyRequest::default() };
    let mut job: Job = client.send("POST", &path("/copies"), &request)?;
    let end = Instant::now() + COPY_MAX;
    while !job.state.ended() {
        if Instant::now() > end {
            return Err(Failure::failed(format!("no end after {} s", COPY_MAX.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(5));
        job = client.call("GET", &path(&format!("/copies/{}", job.id)))?;
    }
    if let Some(error) = job.error {
        return Err(error.into());
    }
    if read(client, disk, to)? != pattern {
        return Err(Failure::failed("the copy differs from its source"));
    }
    let stats: Stats = client.call("GET", &path("/stats"))?;
    let counter = if mode == CopyModeName::Remap { "remapped_bytes" } else { "moved_mode_bytes" };
    match stats.counter(counter) {
        LENGTH => Ok(format!("{} compared", Bytes(LENGTH))),
        other => Err(Failure::failed(format!("the ledger says {counter} {other}, not {LENGTH}"))),
    }
}

/// Writes through the block device, and so through its page cache, where there is one.
fn write(client: &Client, disk: &Disk, data: &[u8]) -> Result<(), Failure> {
    if let Some(path) = &disk.path {
        let file = open(path, true)?;
        return file.write_all_at(data, 0).map_err(|error| Failure::failed(format!("write: {error}")));
    }
    for (index, piece) in data.chunks(1 << 20).enumerate() {
        client.exchange("PUT", &format!("/v1/disks/{}/data?offset={}", disk.name, index << 20), piece)?;
    }
    Ok(())
}

fn read(client: &Client, disk: &Disk, from: u64) -> Result<Vec<u8>, Failure> {
    let mut data = Vec::new();
    if let Some(path) = &disk.path {
        data.resize(usize::try_from(LENGTH).unwrap_or(usize::MAX), 0);
        let result = open(path, false)?.read_exact_at(&mut data, from);
        return result.map(|()| data).map_err(|error| Failure::failed(format!("read: {error}")));
    }
    for offset in (from..from + LENGTH).step_by(1 << 20) {
        let path = format!("/v1/disks/{}/data?offset={offset}&length={}", disk.name, 1 << 20);
        data.extend(client.exchange("GET", &path, b"")?);
    }
    Ok(data)
}

fn open(path: &Path, write: bool) -> Result<File, Failure> {
    let opened = File::options().read(true).write(write).open(path);
    opened.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}
