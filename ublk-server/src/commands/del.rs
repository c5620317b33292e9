//! `ublk del`: through the server while it lives, else straight through the driver.

use super::{Failure, locate};
use crate::cli::{DelArgs, Target};
use crate::control::api::Empty;
use crate::control::client::{Client, ClientError};
use crate::control::handle::check_claims;
use crate::state::{DiskRecord, State};
use crate::ublk::UblkError;
use crate::ublk::control::{self, DeviceInfo, OUR_MARK};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How long a server may say nothing at all.
const SILENCE: Duration = Duration::from_secs(5);

/// How long a server that broke the connection may take to be gone.
const DYING: Duration = Duration::from_secs(3);
/// How long a server may take to end after its last disk.
const SERVER_END: Duration = Duration::from_secs(20);

pub(super) fn run(args: &DelArgs) -> Result<String, Failure> {
    let state = State::open()?;
    match &args.target {
        Some(target) => delete(&state, target, args.force)?,
        None => delete_all(&state, args.force)?,
    }
    Ok(String::new())
}

/// Deletes every disk of this program; goes on after a failure and reports the first.
fn delete_all(state: &State, force: bool) -> Result<(), Failure> {
    let mut first = Ok(());
    for record in state.disks()? {
        first = first.and(delete_ours(state, &record, force));
    }
    // Devices whose record was lost.
    for id in device_ids()? {
        if info(id)?.is_some_and(|info| info.server_flags == OUR_MARK) {
            first = first.and(delete_device(id, force));
        }
    }
    first
}

fn delete(state: &State, target: &Target, force: bool) -> Result<(), Failure> {
    if let Some(record) = locate::record(state, target)? {
        return delete_ours(state, &record, force);
    }
    // Without a record it is a device of another program or gone.
    let Target::Id(id) = target else { return Ok(()) };
    match info(*id)? {
        None => Ok(()),
        Some(info) if info.server_flags == OUR_MARK => delete_device(*id, force),
        Some(_) if force => Ok(control::delete(*id)?),
        Some(info) => {
            let why = format!("ublk device {id} is of another program (pid {})", info.server_pid);
            Err(Failure::failed(why).hint("delete it there, or with --force"))
        }
    }
}

fn delete_ours(state: &State, record: &DiskRecord, force: bool) -> Result<(), Failure> {
    if record.process.alive() {
        let client = Client::new(&state.socket(&record.pool));
        let path = format!("/v1/disks/{}?force={force}", record.name);
        let process = record.process;
        let alive = move || process.alive();
        let call = move || locate::patiently(alive, || client.call::<Empty>("DELETE", &path));
        match ask(&Client::new(&state.socket(&record.pool)), call) {
            Some(Ok(Empty {})) => return settle(state, record),
            Some(Err(ClientError::Api(error))) if error.code == "no-disk" => return settle(state, record),
            Some(Err(ClientError::Api(error))) => return Err(error.into()),
            None => kill_silent(record)?,
            // It died meanwhile, or does not answer: the driver decides.
            Some(Err(error)) if !record.process.wait_for_end(DYING) && !force => {
                return Err(Failure::from(error).hint("--force deletes the device without its server"));
            }
            Some(Err(_)) => {}
        }
    }
    report_death(state, &record.pool);
    if let Some(id) = record.id {
        let ours = info(id)?.is_some_and(|info| info.server_flags == OUR_MARK);
        if ours {
            delete_device(id, force)?;
        }
    }
    state.remove_disk(&record.name)?;
    let pool_used = state.disks()?.iter().any(|disk| disk.pool == record.pool);
    let server = state.pool(&record.pool)?.is_some_and(|pool| pool.process.alive());
    if !pool_used && !server {
        state.remove_pool(&record.pool)?;
    }
    Ok(())
}

/// Makes a call, for as long as the server answers other calls meanwhile. `None`: it is silent.
fn ask<T: Send + 'static>(
    client: &Client,
    call: impl FnOnce() -> Result<T, ClientError> + Send + 'static,
) -> Option<Result<T, ClientError>> {
    let (sender, answer) = mpsc::channel();
    // The receiver may have given up.
    std::thread::spawn(move || drop(sender.send(call())));
    loop {
        match answer.recv_timeout(SILENCE) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Timeout) if client.answers_within(SILENCE) => {}
            Err(_) => return answer.try_recv().ok(),
        }
    }
}

/// Ends a server that says nothing, so that the driver can have its devices.
fn kill_silent(record: &DiskRecord) -> Result<(), Failure> {
    let (pool, pid) = (&record.pool, record.process.pid);
    eprintln!(
        "ublk: the server of pool {pool} (pid {pid}) has said nothing for {} s: it is killed",
        SILENCE.as_secs()
    );
    if let Some(pid) = rustix::process::Pid::from_raw(pid).filter(|_| record.process.alive()) {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)
            .map_err(|error| Failure::failed(format!("pid {}: {error}", pid.as_raw_nonzero())))?;
    }
    if record.process.wait_for_end(DYING) {
        return Ok(());
    }
    let why = format!("the server of pool {pool} (pid {pid}) does not end although it was killed");
    Err(Failure::failed(why).hint("dmesg says what it waits for"))
}

/// Says why a server died, if its log does: the log goes with the pool.
fn report_death(state: &State, pool: &str) {
    let log = std::fs::read_to_string(state.log(pool)).unwrap_or_default();
    if let Some(panic) = log.lines().rfind(|line| line.contains("panic in thread")) {
        eprintln!("ublk: the server of pool {pool} died; the disk is deleted without it:");
        eprintln!("      {panic}");
    }
}

/// Waits for the server to end when it was its last disk, so that the pool is gone when the command returns.
fn settle(state: &State, record: &DiskRecord) -> Result<(), Failure> {
    let last = !state.disks()?.iter().any(|disk| disk.pool == record.pool);
    if last && !record.process.wait_for_end(SERVER_END) {
        let why = format!("the server of pool {} does not end (pid {})", record.pool, record.process.pid);
        return Err(Failure::failed(why).hint("its log says why"));
    }
    Ok(())
}

/// Deletes a device of this program that has no server.
fn delete_device(id: u32, force: bool) -> Result<(), Failure> {
    if !force {
        check_claims(vec![id], "use --force")?;
    }
    Ok(control::delete(id)?)
}

/// What the kernel says; nothing without the driver.
fn info(id: u32) -> Result<Option<DeviceInfo>, Failure> {
    match control::device_info(id) {
        Err(UblkError::NoModule) => Ok(None),
        other => Ok(other?),
    }
}

fn device_ids() -> Result<Vec<u32>, Failure> {
    control::device_ids().map_err(|error| Failure::failed(format!("/sys/class/ublk-char: {error}")))
}
