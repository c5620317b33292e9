//! The server: one process for each pool, which serves its disks and the control API.

mod disks;
mod durable;
mod nvme;
mod offline;
mod pool;
mod run;
mod spawn;

pub(crate) use disks::Found;
pub use disks::Server;
use disks::state_error;
pub(crate) use disks::ublk_error;
pub(crate) use durable::file_shape;
pub(crate) use offline::{Offline, power_cut};
pub use run::run;
pub use spawn::{SpawnError, spawn};

use crate::config::{DiskConfig, PoolConfig};
use crate::control::api::{ApiError, Disk};
use crate::state::DiskRecord;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The hidden command that is the server in the background.
pub const COMMAND: &str = "serve";

/// What a server is started with: a new pool and its first disk, or what a dead server left.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartConfig {
    /// The state directory.
    pub state: PathBuf,
    /// The pool.
    pub pool: PoolConfig,
    /// Its first disk.
    pub disk: DiskConfig,
    /// The disks of a dead server of this pool, the first of which is `disk`; none for a new pool.
    #[serde(default)]
    pub recover: Vec<DiskRecord>,
    /// Go on with a kernel that is known to crash.
    pub force: bool,
    /// Log to standard error too.
    pub foreground: bool,
    /// Let the control API arm panics, for tests.
    pub debug: bool,
}

/// What a server says once, when it serves or cannot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readiness {
    /// The disk is ready.
    Ok(Box<Disk>),
    /// There is none, and nothing is left behind.
    Error(ApiError),
}
