//! `ublk recover`: a new server for the disks of a dead one.

use super::{Failure, add, locate};
use crate::cli::TargetArgs;
use crate::server::{self, StartConfig};
use crate::state::{DiskRecord, State};
use std::time::Duration;

/// How long a server that was killed may take to be gone.
const DYING: Duration = Duration::from_secs(10);

pub(super) fn run(args: &TargetArgs) -> Result<String, Failure> {
    let state = State::open()?;
    let record = locate::record(&state, &args.target)?.ok_or_else(|| locate::no_disk(&args.target))?;
    let Some(pool) = state.pool(&record.pool)? else {
        let why = format!("the server of disk {} left nothing to recover from", record.name);
        return Err(Failure::failed(why).hint(format!("delete the disk: ublk del -n {}", record.name)));
    };
    if pool.pool.recovery.is_none() {
        let why = format!("disk {} was not made with --user-recovery", record.name);
        return Err(Failure::failed(why).hint(format!("delete it: ublk del -n {}", record.name)));
    }
    if !pool.process.wait_for_end(DYING) {
        let why = format!("the server of pool {} is alive (pid {})", record.pool, pool.process.pid);
        return Err(Failure::failed(why).hint("there is nothing to recover"));
    }
    let mut disks: Vec<DiskRecord> =
        state.disks()?.into_iter().filter(|disk| disk.pool == record.pool).collect();
    // The disk that was asked for is the one to print.
    disks.sort_by_key(|disk| disk.name != record.name);
    let start = StartConfig {
        state: state.base().to_path_buf(),
        pool: pool.pool,
        disk: record.config.unwrap_or_default(),
        recover: disks,
        force: false,
        foreground: false,
        debug: false,
    };
    Ok(add::shown(&server::spawn(&start)?))
}
