//! `ublk add`: a disk in a pool that is served, or in a new pool with a server of its own.

use super::locate::patiently;
use super::{Exit, Failure, print};
use crate::cli::AddArgs;
use crate::config::{DEFAULT_SIZE, DiskConfig};
use crate::control::api::Disk;
use crate::control::client::Client;
use crate::options::AddOptions;
use crate::server::{self, Readiness, SpawnError, StartConfig};
use crate::signals::Signals;
use crate::state::{PoolRecord, State};
use crate::store::shared;
use emulation::Bytes;
use std::path::Path;

/// How often a pool that ends or begins just now is looked at again.
const TRIES: u32 = 3;

pub(super) fn run(args: AddArgs) -> Result<String, Failure> {
    let options = match &args.config {
        Some(path) => args.options.or(read(path)?),
        None => args.options,
    };
    let disk = options.disk()?;
    let state = State::open()?;
    for _ in 1..TRIES {
        match attempt(&options, &disk, &state, args.foreground, args.force, args.debug) {
            // Another `add` made the pool, or the last `del` ended it, between the look and the call.
            Err(Attempt::Again) => {}
            Err(Attempt::Failed(failure)) => return Err(failure),
            Ok(text) => return Ok(text),
        }
    }
    let last = attempt(&options, &disk, &state, args.foreground, args.force, args.debug);
    last.map_err(|error| match error {
        Attempt::Failed(failure) => failure,
        Attempt::Again => {
            Failure::failed("the pool is being made or ended by another command").hint("try again")
        }
    })
}

enum Attempt {
    Again,
    Failed(Failure),
}

impl<T: Into<Failure>> From<T> for Attempt {
    fn from(error: T) -> Self {
        Self::Failed(error.into())
    }
}

fn attempt(
    options: &AddOptions,
    disk: &DiskConfig,
    state: &State,
    foreground: bool,
    force: bool,
    debug: bool,
) -> Result<String, Attempt> {
    let known = options.pool.as_ref().map(|name| state.pool(name)).transpose()?.flatten();
    if let Some(record) = known.filter(|record| record.process.alive()) {
        if foreground {
            let why = format!("pool {} has a server: --foreground is for a new pool", record.pool.name);
            return Err(Failure::usage(why).into());
        }
        return join(options, disk, state, &record);
    }
    let pool = options.new_pool(available(options.recovery().is_some())?)?;
    // What only the server can know, the size of a path, is checked there.
    let (checked, size) = match pool.path {
        Some(_) => (disk.without_zones_of_unknown_size(), pool.map_block),
        None => (disk.clone(), DEFAULT_SIZE),
    };
    checked.limits(&pool, size).map_err(|error| Failure::from_lines(Exit::Usage, &error.to_string()))?;
    let start = StartConfig {
        state: state.base().to_path_buf(),
        pool,
        disk: disk.clone(),
        recover: Vec::new(),
        force,
        foreground,
        debug,
    };
    if foreground {
        return Ok(serve_here(start)?);
    }
    match server::spawn(&start) {
        Ok(disk) => Ok(shown(&disk)),
        Err(SpawnError::Api(error)) if error.code == "in-use" && now_alive(options, state) => {
            Err(Attempt::Again)
        }
        Err(error) => Err(error.into()),
    }
}

fn now_alive(options: &AddOptions, state: &State) -> bool {
    let record = options.pool.as_ref().and_then(|name| state.pool(name).ok().flatten());
    record.is_some_and(|record| record.process.alive())
}

fn join(
    options: &AddOptions,
    disk: &DiskConfig,
    state: &State,
    record: &PoolRecord,
) -> Result<String, Attempt> {
    options.check_pool(&record.pool)?;
    let client = Client::new(&state.socket(&record.pool.name));
    let alive = || record.process.alive();
    match patiently(alive, || client.send::<Disk>("POST", "/v1/disks", disk)) {
        Ok(disk) => Ok(shown(&disk)),
        Err(crate::control::client::ClientError::Api(error)) if error.code == "stopping" => {
            record.process.wait_for_end(std::time::Duration::from_secs(60));
            Err(Attempt::Again)
        }
        Err(error) => Err(error.into()),
    }
}

/// Serves in this process until a signal or the last `del`.
fn serve_here(start: StartConfig) -> Result<String, Failure> {
    let signals = Signals::block().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    let mut failure = None;
    let clean = server::run(start, &signals, |readiness| {
        failure = match readiness {
            Readiness::Ok(disk) => print(&shown(&disk)).err(),
            Readiness::Error(error) => Some(error.into()),
        };
    });
    match failure {
        Some(failure) => Err(failure),
        None if clean => Ok(String::new()),
        None => Err(Failure::failed("a disk could not be taken away").hint("the log says why")),
    }
}

/// The path of the block device; the name of a disk without one.
pub(super) fn shown(disk: &Disk) -> String {
    match &disk.path {
        Some(path) => format!("{}\n", path.display()),
        None => format!("{}\n", disk.name),
    }
}

fn read(path: &Path) -> Result<AddOptions, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        Failure::usage(format!("{}, line {line}: {}", path.display(), error.message().trim()))
            .hint("the keys are the long options of `ublk add`")
    })
}

/// The memory that could be had now, `shared` memory that outlives a server.
fn available(shared: bool) -> Result<Bytes, Failure> {
    let memory = available_memory()?;
    if !shared {
        return Ok(memory);
    }
    let limit = shared::available().map_err(|error| Failure::failed(format!("/dev/shm: {error}")))?;
    // Whole MiB: it is shown to people.
    Ok(memory.min(Bytes::mib(limit.0 >> 20)))
}

fn available_memory() -> Result<Bytes, Failure> {
    let text = std::fs::read_to_string("/proc/meminfo")
        .map_err(|error| Failure::failed(format!("/proc/meminfo: {error}")))?;
    parse_available(&text).ok_or_else(|| Failure::failed("/proc/meminfo does not say MemAvailable"))
}

fn parse_available(meminfo: &str) -> Option<Bytes> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    // Whole MiB: it is shown to people.
    Some(Bytes::mib(kib >> 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_read() {
        let text = "MemTotal:       24576 kB\nMemAvailable:    2049 kB\nBuffers: 1 kB\n";
        assert_eq!(parse_available(text), Some(Bytes::mib(2)));
        assert_eq!(parse_available("MemTotal: 1 kB\n"), None);
    }
}
