//! Finding a disk: its record, its server, its device.

use super::Failure;
use crate::cli::Target;
use crate::control::api::Disk;
use crate::control::client::{Client, ClientError};
use crate::state::{DiskRecord, State};
use std::time::{Duration, Instant};

/// How long a server that is alive may take to listen.
const LISTEN_MAX: Duration = Duration::from_secs(40);

/// The record of a disk; `None` when this program has none.
pub(super) fn record(state: &State, target: &Target) -> Result<Option<DiskRecord>, Failure> {
    let records = state.disks()?;
    Ok(records.into_iter().find(|record| match target {
        Target::Id(id) => record.id == Some(*id),
        Target::Name(name) => record.name == *name,
    }))
}

/// A disk whose server is alive, and its client.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) record: DiskRecord,
    pub(super) client: Client,
}

impl Served {
    /// The path of this disk in the API, and what follows.
    pub(super) fn path(&self, rest: &str) -> String {
        format!("/v1/disks/{}{rest}", self.record.name)
    }

    /// The disk, as its server shows it.
    pub(super) fn disk(&self) -> Result<Disk, ClientError> {
        self.client.call("GET", &self.path(""))
    }
}

/// A disk that is served.
pub(super) fn served(state: &State, target: &Target) -> Result<Served, Failure> {
    let record = record(state, target)?.ok_or_else(|| no_disk(target))?;
    if !record.process.alive() {
        let why = format!("the server of disk {} is dead", record.name);
        let recovers = state.pool(&record.pool)?.is_some_and(|pool| pool.pool.recovery.is_some());
        let name = &record.name;
        return Err(Failure::failed(why).hint(match recovers {
            true => format!("go on with it: ublk recover -n {name}, or delete it: ublk del -n {name}"),
            false => format!("delete the disk: ublk del -n {name}"),
        }));
    }
    let client = Client::new(&state.socket(&record.pool));
    Ok(Served { record, client })
}

/// There is no such disk.
pub(super) fn no_disk(target: &Target) -> Failure {
    Failure::failed(format!("there is no disk {target} of this program"))
        .hint("`ublk list` shows what there is")
}

/// Calls a server that may have been started just now and not listen yet.
pub(super) fn patiently<T>(
    alive: impl Fn() -> bool,
    call: impl Fn() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let end = Instant::now() + LISTEN_MAX;
    loop {
        match call() {
            Err(ClientError::Connect(..)) if alive() && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}
