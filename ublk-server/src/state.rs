//! What a server leaves in the file system so that commands find it, and what remains of one that died.
//!
//! ```text
//! /run/ublk (root) or $XDG_RUNTIME_DIR/ublk
//!   lock                 held while a record is made
//!   pools/NAME/          server.json control.sock log log.1
//!   disks/NAME.json
//! ```
//! Directories are 0700 and files 0600. A record names the process and its start time, so that one whose process
//! is gone, or whose number another process has now, is recognised.

use crate::config::{DiskConfig, PoolConfig, PoolType};
use crate::store::shared;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The environment variable that names another directory than the usual one.
pub const DIRECTORY_VARIABLE: &str = "UBLK_STATE_DIR";
/// How long a command waits for another that holds the lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// The largest record read.
const RECORD_MAX: u64 = 1 << 20;

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// There is no place for it.
    #[error(
        "no place for state: XDG_RUNTIME_DIR is not set\nrun as root, or set {DIRECTORY_VARIABLE} to a directory of your own"
    )]
    NoPlace,
    /// A path that others can write to, or that is not ours.
    #[error("{0} is not a directory of this user alone\nremove it, or set {DIRECTORY_VARIABLE} to another")]
    Unsafe(PathBuf),
    /// A file operation failed.
    #[error("{0}: {1}")]
    Io(PathBuf, #[source] io::Error),
    /// A record that this version cannot read.
    #[error("{0}: not a record of this version: {1}\nremove the file if nothing uses it")]
    Record(PathBuf, #[source] serde_json::Error),
    /// Another command holds the lock.
    #[error("{0} is held by another command for more than {wait} seconds", wait = LOCK_WAIT.as_secs())]
    Locked(PathBuf),
    /// The name is taken.
    #[error("{0} \"{1}\" is in use")]
    InUse(&'static str, String),
    /// What was to be recovered is gone.
    #[error("there is no pool \"{0}\" of a dead server")]
    Gone(String),
}

impl StateError {
    /// The kernel gives no random numbers.
    pub(crate) fn random(error: io::Error) -> Self {
        Self::Io("/dev/urandom".into(), error)
    }
}

/// A process, by number and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its start time in clock ticks since the boot, from `/proc/PID/stat`.
    pub start_time: u64,
}

impl Process {
    /// This process.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn current() -> Result<Self, StateError> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let missing = || StateError::Io("/proc/self/stat".into(), io::ErrorKind::NotFound.into());
        start_time(pid).map(|start_time| Self { pid, start_time }).ok_or_else(missing)
    }

    /// True while it runs.
    pub fn alive(&self) -> bool {
        start_time(self.pid) == Some(self.start_time)
    }

    /// Waits for its end. False when it still runs after `most`.
    pub fn wait_for_end(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
        while self.alive() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// The start time of a process that is not a zombie.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start_time(&stat)
}

/// Field 22 of `/proc/PID/stat`, counted behind the command name, which may hold anything.
fn parse_start_time(stat: &str) -> Option<u64> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

/// `server.json`: a pool's server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolRecord {
    /// The server.
    pub process: Process,
    /// The version of the program.
    pub version: String,
    /// What the pool is made of.
    pub pool: PoolConfig,
}

/// `disks/NAME.json`: a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRecord {
    /// Its name.
    pub name: String,
    /// The number of its block device; `None` while it is being made, and without a block device.
    pub id: Option<u32>,
    /// Its pool.
    pub pool: String,
    /// The server.
    pub process: Process,
    /// Its volume; `None` while it is being made.
    #[serde(default)]
    pub volume: Option<u32>,
    /// What it is, as it was set last; with the volume.
    #[serde(default)]
    pub config: Option<DiskConfig>,
}

/// The state directory.
#[derive(Clone, Debug)]
pub struct State {
    base: PathBuf,
}

impl State {
    /// Opens the directory of this user and makes what is missing.
    ///
    /// # Errors
    /// There is no place for it, or others could change it.
    pub fn open() -> Result<Self, StateError> {
        let given = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from);
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("ublk"));
        let base = match given {
            Some(path) => path,
            None if rustix::process::geteuid().is_root() => PathBuf::from("/run/ublk"),
            None => runtime.ok_or(StateError::NoPlace)?,
        };
        Self::at(std::path::absolute(&base).map_err(|error| StateError::Io(base, error))?)
    }

    /// Opens the directory at `base` and makes what is missing.
    ///
    /// # Errors
    /// It cannot be made, or others could change it.
    pub fn at(base: PathBuf) -> Result<Self, StateError> {
        for dir in [base.clone(), base.join("pools"), base.join("disks")] {
            private_dir(&dir)?;
        }
        Ok(Self { base })
    }

    /// Where it is.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Takes the lock that makes records one at a time; released when the file is dropped.
    fn lock(&self) -> Result<File, StateError> {
        let path = self.base.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|error| StateError::Io(path.clone(), error))?;
        let end = Instant::now() + LOCK_WAIT;
        loop {
            match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(StateError::Locked(path)),
                Err(error) => return Err(StateError::Io(path, error.into())),
            }
        }
    }

    /// The directory of a pool.
    pub fn pool_dir(&self, name: &str) -> PathBuf {
        self.base.join("pools").join(name)
    }

    /// The socket of a pool's control API.
    pub fn socket(&self, pool: &str) -> PathBuf {
        self.pool_dir(pool).join("control.sock")
    }

    /// The log of a pool's server.
    pub fn log(&self, pool: &str) -> PathBuf {
        self.pool_dir(pool).join("log")
    }

    /// Makes the directory and the record of a new pool: of its own name, or, when that is empty, the first free
    /// `poolN`. The remains of a dead server are replaced when none of its devices is left.
    ///
    /// # Errors
    /// The name is in use.
    pub fn create_pool(&self, mut record: PoolRecord) -> Result<PoolRecord, StateError> {
        let _lock = self.lock()?;
        if record.pool.name.is_empty() {
            let free = |name: &String| !self.pool_dir(name).exists();
            record.pool.name = (0..).map(|n| format!("pool{n}")).find(free).expect("u64 names");
        }
        let name = record.pool.name.clone();
        if self.pool_dir(&name).exists() {
            let alive = self.pool(&name)?.is_some_and(|record| record.process.alive());
            let mut left = false;
            for disk in self.disks()?.iter().filter(|disk| disk.pool == name) {
                left |= self.holds(disk)?;
            }
            if alive || left {
                return Err(StateError::InUse("pool", name));
            }
            self.remove_pool(&name)?;
        }
        private_dir(&self.pool_dir(&name))?;
        write_record(&self.pool_dir(&name).join("server.json"), &record)?;
        Ok(record)
    }

    /// Writes the record of a pool whose server is dead: this process is its server now.
    ///
    /// # Errors
    /// There is no such pool, or its server lives.
    pub fn take_pool(&self, record: PoolRecord) -> Result<PoolRecord, StateError> {
        let _lock = self.lock()?;
        let name = record.pool.name.clone();
        match self.pool(&name)? {
            None => return Err(StateError::Gone(name)),
            Some(old) if old.process.alive() => return Err(StateError::InUse("pool", name)),
            Some(_) => {}
        }
        gone(fs::remove_file(self.socket(&name)))
            .map_err(|error| StateError::Io(self.socket(&name), error))?;
        write_record(&self.pool_dir(&name).join("server.json"), &record)?;
        Ok(record)
    }

    /// True while there is more than the record of a disk: a server, a device that one left, or what can be recovered.
    fn holds(&self, disk: &DiskRecord) -> Result<bool, StateError> {
        if disk.id.is_some() || disk.process.alive() {
            return Ok(true);
        }
        Ok(self.pool(&disk.pool)?.is_some_and(|record| record.pool.recovery.is_some()))
    }

    /// Removes all that a pool left here and in shared memory, but for what belongs to a file.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub fn remove_pool(&self, name: &str) -> Result<(), StateError> {
        // A record that cannot be read names nothing.
        if let Ok(Some(PoolRecord { pool, .. })) = self.pool(name)
            && pool.kind == PoolType::Ram
            && !pool.identifier.is_empty()
        {
            let path = shared::path(&pool.identifier);
            shared::remove(&pool.identifier).map_err(|error| StateError::Io(path, error))?;
        }
        let dir = self.pool_dir(name);
        gone(fs::remove_dir_all(&dir)).map_err(|error| StateError::Io(dir, error))
    }

    /// A pool's record; `None` when there is none.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn pool(&self, name: &str) -> Result<Option<PoolRecord>, StateError> {
        read_record(&self.pool_dir(name).join("server.json"))
    }

    /// Takes a name for a disk: `name`, or the first free one of the form `diskN`.
    ///
    /// # Errors
    /// Another disk has it.
    pub fn create_disk(&self, mut record: DiskRecord, name: Option<&str>) -> Result<DiskRecord, StateError> {
        let _lock = self.lock()?;
        record.name = match name {
            Some(name) => name.to_string(),
            None => {
                let free = |name: &String| !self.disk_path(name).exists();
                (0..).map(|n| format!("disk{n}")).find(free).expect("u64 names")
            }
        };
        if let Some(old) = read_record::<DiskRecord>(&self.disk_path(&record.name))?
            && self.holds(&old)?
        {
            return Err(StateError::InUse("name", record.name));
        }
        self.write_disk(&record)?;
        Ok(record)
    }

    /// Writes a disk's record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_disk(&self, record: &DiskRecord) -> Result<(), StateError> {
        write_record(&self.disk_path(&record.name), record)
    }

    /// Removes a disk's record. One that is gone is no error.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove_disk(&self, name: &str) -> Result<(), StateError> {
        let path = self.disk_path(name);
        gone(fs::remove_file(&path)).map_err(|error| StateError::Io(path, error))
    }

    /// The records of all disks, by name.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn disks(&self) -> Result<Vec<DiskRecord>, StateError> {
        let mut disks = Vec::new();
        for path in entries(&self.base.join("disks"))? {
            if path.extension().is_some_and(|ext| ext == "json") {
                disks.extend(read_record::<DiskRecord>(&path)?);
            }
        }
        disks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(disks)
    }

    /// The records of all pools, by name.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn pools(&self) -> Result<Vec<PoolRecord>, StateError> {
        let mut pools = Vec::new();
        for path in entries(&self.base.join("pools"))? {
            pools.extend(read_record::<PoolRecord>(&path.join("server.json"))?);
        }
        pools.sort_by(|a, b| a.pool.name.cmp(&b.pool.name));
        Ok(pools)
    }

    fn disk_path(&self, name: &str) -> PathBuf {
        self.base.join("disks").join(format!("{name}.json"))
    }
}

/// Makes a directory of this user alone, or checks the one that is there.
pub(crate) fn private_dir(dir: &Path) -> Result<(), StateError> {
    let error = |error| StateError::Io(dir.to_path_buf(), error);
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return Ok(()),
        Err(exists) if exists.kind() == io::ErrorKind::AlreadyExists => {}
        Err(other) => return Err(error(other)),
    }
    let found = fs::symlink_metadata(dir).map_err(error)?;
    let ours = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !ours || found.mode() & 0o022 != 0 {
        return Err(StateError::Unsafe(dir.to_path_buf()));
    }
    Ok(())
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, StateError> {
    let error = |error| StateError::Io(dir.to_path_buf(), error);
    fs::read_dir(dir).map_err(error)?.map(|entry| entry.map(|entry| entry.path()).map_err(error)).collect()
}

/// Writes beside the file and renames, so that a reader sees the old record or the new one.
fn write_record<T: Serialize>(path: &Path, record: &T) -> Result<(), StateError> {
    let error = |error| StateError::Io(path.to_path_buf(), error);
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    gone(fs::remove_file(&temporary)).map_err(error)?;
    let mut file = File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&temporary)
        .map_err(error)?;
    let mut text = serde_json::to_vec(record).map_err(|e| StateError::Record(path.to_path_buf(), e))?;
    text.push(b'\n');
    file.write_all(&text).map_err(error)?;
    fs::rename(&temporary, path).map_err(error)
}

fn read_record<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StateError> {
    let opened = File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(path);
    let error = |error| StateError::Io(path.to_path_buf(), error);
    let file = match opened {
        Ok(file) => file,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(other) => return Err(error(other)),
    };
    let mut text = String::new();
    file.take(RECORD_MAX).read_to_string(&mut text).map_err(error)?;
    serde_json::from_str(&text).map(Some).map_err(|e| StateError::Record(path.to_path_buf(), e))
}

/// Success for what is gone already.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
