//! `ublk list`: what the kernel knows joined with the records of this program.

use super::{Failure, json, locate};
use crate::cli::{ListArgs, ListFormat, Target};
use crate::control::api::Disk;
use crate::state::{DiskRecord, State};
use crate::ublk::UblkError;
use crate::ublk::control::{self, DeviceInfo, FEATURE_NAMES, OUR_MARK};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

/// One disk, or what is left of it.
#[derive(Debug, Serialize)]
struct Row {
    id: Option<u32>,
    name: Option<String>,
    path: Option<PathBuf>,
    pool: Option<String>,
    /// Made by this program.
    ours: bool,
    /// The state of the device in lower case; `serving` or `dead` without one.
    state: String,
    pid: i32,
    /// The process is alive and is the server that the record names.
    server_alive: bool,
    #[serde(skip)]
    info: Option<DeviceInfo>,
    #[serde(skip)]
    disk: Option<Box<Disk>>,
}

#[derive(Debug, Serialize)]
struct List {
    disks: Vec<Row>,
}

pub(super) fn run(args: &ListArgs) -> Result<String, Failure> {
    let mut rows = rows(&State::open()?)?;
    if let Some(target) = &args.target {
        rows.retain(|row| match target {
            Target::Id(id) => row.id == Some(*id),
            Target::Name(name) => row.name.as_ref() == Some(name),
        });
        if rows.is_empty() {
            return Err(Failure::failed(format!("there is no disk {target}")));
        }
    }
    if args.json {
        return Ok(json(List { disks: rows }));
    }
    let mut out = String::new();
    for row in &rows {
        match &row.info {
            Some(info) => device(&mut out, row, info, args.format),
            None => without_device(&mut out, row),
        }
    }
    Ok(out)
}

fn rows(state: &State) -> Result<Vec<Row>, Failure> {
    let records = state.disks()?;
    let ids =
        control::device_ids().map_err(|error| Failure::failed(format!("/sys/class/ublk-char: {error}")))?;
    let mut rows = Vec::new();
    for id in ids {
        let info = match control::device_info(id) {
            // Gone meanwhile.
            Ok(None) => continue,
            Ok(Some(info)) => Some(info),
            Err(UblkError::NoPermission { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let record = records.iter().find(|record| record.id == Some(id));
        rows.push(row(state, Some(id), record, info));
    }
    for record in &records {
        if record.id.is_none_or(|id| !rows.iter().any(|row| row.id == Some(id))) {
            rows.push(row(state, record.id, Some(record), None));
        }
    }
    Ok(rows)
}

fn row(state: &State, id: Option<u32>, record: Option<&DiskRecord>, info: Option<DeviceInfo>) -> Row {
    let alive = record.is_some_and(|record| record.process.alive());
    let disk = record.filter(|_| alive).and_then(|record| {
        let target = Target::Name(record.name.clone());
        // A server that does not answer is listed without what only it knows.
        locate::served(state, &target).ok()?.disk().ok().map(Box::new)
    });
    let marked = info.as_ref().is_some_and(|info| info.server_flags == OUR_MARK);
    let unserved = if alive { "serving" } else { "dead" };
    Row {
        id,
        name: record.map(|record| record.name.clone()),
        path: id.filter(|_| info.is_some()).map(|id| PathBuf::from(format!("/dev/ublkb{id}"))),
        pool: record.map(|record| record.pool.clone()),
        ours: record.is_some() || marked,
        state: info.as_ref().map_or(unserved.to_string(), |info| info.state.name().to_ascii_lowercase()),
        pid: info
            .as_ref()
            .map(|info| info.server_pid)
            .or(record.map(|record| record.process.pid))
            .unwrap_or(-1),
        server_alive: alive,
        info,
        disk,
    }
}

fn without_device(out: &mut String, row: &Row) {
    let name = match (&row.name, row.id) {
        (Some(name), Some(id)) => format!("disk {name} (dev id {id})"),
        (Some(name), None) => format!("disk {name}"),
        (None, Some(id)) => format!("dev id {id}"),
        (None, None) => "disk".to_string(),
    };
    let pool = row.pool.as_deref().unwrap_or("-");
    let state = row.state.to_ascii_uppercase();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{name}: no block device pool {pool} daemon pid {} state {state}", row.pid);
    nvme(out, row);
}

/// The namespace that a disk is, if it is one.
fn nvme(out: &mut String, row: &Row) {
    if let Some(nvme) = row.disk.as_ref().and_then(|disk| disk.nvme.as_ref()) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "\tnvme-tcp {} nsid {} {}", nvme.listen, nvme.nsid, nvme.nqn);
    }
}

/// The lines that other programs' scripts take apart: pid is the 7th word of the second line; state the 9th, or
/// the 11th in rublk's form.
fn device(out: &mut String, row: &Row, info: &DeviceInfo, format: ListFormat) {
    let mut flags = format!("flags 0x{:x}", info.flags);
    let state = info.state.name();
    let _ = writeln!(
        out,
        "dev id {}: nr_hw_queues {} queue_depth {} block size {} dev_capacity {}",
        info.id,
        info.queues,
        info.depth,
        1u64 << info.logical_block_shift,
        info.sectors
    );
    let start = format!("\tmax rq size {} daemon pid {}", info.max_io_bytes, info.server_pid);
    match format {
        ListFormat::Ublksrv => {
            flags.push_str(" [ ");
            for (bit, name) in FEATURE_NAMES.iter().enumerate() {
                if info.flags & 1 << bit != 0 {
                    flags.push_str(name);
                    flags.push(' ');
                }
            }
            let _ = writeln!(out, "{start} state {state}\n\t{flags}]");
        }
        ListFormat::Rublk => {
            let _ = writeln!(out, "{start} {flags} state {state}");
        }
    }
    let _ = writeln!(
        out,
        "\tublkc: {} ublkb: {} owner: {}:{}",
        numbers(&format!("/dev/ublkc{}", info.id)),
        numbers(&format!("/dev/ublkb{}", info.id)),
        info.owner_uid,
        info.owner_gid
    );
    let tids = row.disk.as_ref().map(|disk| disk.queue_tids.as_slice()).unwrap_or_default();
    for (queue, tid) in tids.iter().enumerate() {
        let _ = writeln!(out, "\tqueue {queue}: tid {tid} affinity({})", affinity(*tid));
    }
    target(out, row);
    nvme(out, row);
}

fn target(out: &mut String, row: &Row) {
    let _ = match (&row.disk, row.ours) {
        (Some(disk), _) => writeln!(
            out,
            "\ttarget {{\"type\":\"{}\",\"name\":\"{}\",\"pool\":\"{}\",\"dev_size\":{}}}",
            disk.kind.name(),
            disk.name,
            disk.pool,
            disk.size.0
        ),
        (None, true) => writeln!(out, "\tno server answers"),
        (None, false) => writeln!(out, "\tof another program"),
    };
}

/// Major and minor number of a node.
fn numbers(path: &str) -> String {
    match rustix::fs::stat(path) {
        Ok(stat) => format!("{}:{}", rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)),
        Err(_) => "-".to_string(),
    }
}

/// The CPUs that a thread may run on, each followed by a space.
fn affinity(tid: i32) -> String {
    let set = rustix::thread::Pid::from_raw(tid).map(|pid| rustix::thread::sched_getaffinity(Some(pid)));
    let Some(Ok(set)) = set else { return String::new() };
    let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    cpus.map(|cpu| format!("{cpu} ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ublk::control::DeviceState;

    fn example() -> (Row, DeviceInfo) {
        let info = DeviceInfo {
            id: 3,
            queues: 2,
            depth: 128,
            max_io_bytes: 524288,
            state: DeviceState::Live,
            server_pid: 4711,
            flags: 0x42 | 1 << 7,
            server_flags: 0,
            owner_uid: 0,
            owner_gid: 0,
            sectors: 2097152,
            logical_block_shift: 9,
        };
        let row = Row {
            id: Some(3),
            name: None,
            path: None,
            pool: None,
            ours: false,
            state: "live".to_string(),
            pid: 4711,
            server_alive: false,
            info: None,
            disk: None,
        };
        (row, info)
    }

    fn words(format: ListFormat) -> Vec<String> {
        let (row, info) = example();
        let mut out = String::new();
        device(&mut out, &row, &info, format);
        assert!(
            out.starts_with("dev id 3: nr_hw_queues 2 queue_depth 128 block size 512 dev_capacity 2097152\n")
        );
        assert!(out.ends_with("\tof another program\n"));
        out.lines().nth(1).unwrap().split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn scripts_of_ublksrv_find_pid_and_state() {
        let words = words(ListFormat::Ublksrv);
        assert_eq!((words[6].as_str(), words[8].as_str()), ("4711", "LIVE"));
    }

    #[test]
    fn scripts_of_rublk_find_pid_and_state() {
        let words = words(ListFormat::Rublk);
        assert_eq!((words[6].as_str(), words[10].as_str()), ("4711", "LIVE"));
    }
}
