//! The disks of a server: making them, finding them, changing them, taking them away.

use super::StartConfig;
use super::durable::Durable;
use super::nvme::NvmeDoor;
use super::pool::{self, Parts};
use crate::config::{CacheMode, DiskConfig, PoolConfig, PoolType};
use crate::control::api::{ApiError, Disk, GeometryView, LatenessView, LimitsView, PoolView, Stats};
use crate::control::jobs::Jobs;
use crate::engine::Engine;
use crate::state::{DiskRecord, Process, State, StateError};
use crate::ublk::{DiskParams, UblkDisk, UblkError};
use emulation::{Bytes, Limits, VolumeId};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::runtime::Handle;

mod faults;
mod limits;
mod volumes;

pub(in crate::server) use faults::may_lose_power;

/// One pool, its disks and its jobs.
#[derive(Debug)]
pub struct Server {
    pub(crate) engine: Arc<Engine>,
    pub(crate) jobs: Jobs,
    pub(crate) debug: bool,
    state: State,
    process: Process,
    pool: PoolConfig,
    default_size: Bytes,
    /// What of the pool outlives this server.
    durable: Option<Durable>,
    disks: Mutex<Disks>,
    nvme: NvmeDoor,
    /// Held while a disk is made, changed or taken away, which waits for the driver.
    changes: Mutex<()>,
    stop: OwnedFd,
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Disks {
    by_name: BTreeMap<String, Entry>,
    next_volume: u32,
    closing: bool,
}

#[derive(Debug)]
struct Entry {
    volume: VolumeId,
    id: Option<u32>,
    config: DiskConfig,
    ublk: Option<UblkDisk>,
}

/// How a disk comes to be served.
#[derive(Clone, Copy, Debug)]
enum How {
    /// It is made, `force` with a kernel that may crash.
    Add { force: bool },
    /// Its device is there.
    Recover,
}

/// What a request needs to know of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) volume: VolumeId,
    pub(crate) id: Option<u32>,
}

impl Server {
    /// Builds the pool. Its directory is there.
    pub(super) fn new(
        config: &StartConfig,
        state: State,
        process: Process,
        runtime: Handle,
    ) -> Result<Arc<Self>, ApiError> {
        let failed =
            |what: &str, error: std::io::Error| ApiError::new(500, "server", format!("{what}: {error}"));
        let recover = !config.recover.is_empty();
        let Parts { pool, store, default_size, durable } = pool::build(&config.pool, &config.disk, recover)?;
        let meta = durable.as_ref().map(|durable| Arc::clone(durable.meta()));
        let engine = Engine::new(pool, store, meta).map_err(engine_error)?;
        let nvme = NvmeDoor::new(config.pool.clone(), durable.as_ref().map(Durable::identifier));
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| failed("an eventfd cannot be made", error.into()))?;
        let server = Arc::new(Self {
            engine,
            jobs: Jobs::default(),
            debug: config.debug,
            state,
            process,
            pool: config.pool.clone(),
            default_size,
            durable,
            disks: Mutex::default(),
            nvme,
            changes: Mutex::default(),
            stop,
            runtime,
        });
        server.watch_power();
        Ok(server)
    }

    /// Can be read when the server shall end: its last disk is gone.
    pub(super) fn stop_fd(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    fn disks(&self) -> MutexGuard<'_, Disks> {
        self.disks.lock().expect("a panic ends the process")
    }

    /// Makes a disk. Blocks while the driver works.
    pub(crate) fn add(self: &Arc<Self>, config: DiskConfig, force: bool) -> Result<Disk, ApiError> {
        let _changes = self.changes.lock().expect("a panic ends the process");
        // What cannot be is refused before anything is made.
        let checked = match self.durable {
            Some(_) => config.without_zones_of_unknown_size(),
            None => config.clone(),
        };
        checked
            .limits(&self.pool, self.default_size)
            .map_err(|error| ApiError::from_lines(400, "bad-request", &error.to_string()))?;
        let record = DiskRecord {
            name: String::new(),
            id: None,
            pool: self.pool.name.clone(),
            process: self.process,
            volume: None,
            config: None,
        };
        // The name is taken before the device is made; a device without one is named after its number.
        let named = config.name.is_some() || config.no_ublk;
        let mut record = match named {
            true => self.state.create_disk(record, config.name.as_deref()).map_err(state_error)?,
            false => record,
        };
        let made = self.volume(&config).and_then(|volume| {
            let limits = volume.limits.clone();
            // What is stored has its own geometry.
            let config = match self.durable {
                Some(_) => config.clone().of_volume(&limits),
                None => config.clone(),
            };
            let ready = self.add_faults(volume.id, &config.faults);
            let how = How::Add { force };
            let published = ready.and_then(|()| self.publish(&config, volume.id, limits, how, &mut record));
            let undone = published.inspect_err(|_| {
                self.nvme.remove(volume.id);
                self.drop_volume(volume.id, volume.fresh);
            });
            undone.map(|ublk| (volume.id, config, ublk))
        });
        match made {
            Ok((volume, config, ublk)) => {
                let disk = self.enter(record, Entry { volume, id: None, config, ublk });
                self.nvme.serve();
                Ok(disk)
            }
            Err(error) => {
                tracing::error!("disk {}: {}", record.name, error.message);
                if named {
                    self.forget(&record.name);
                }
                Err(error)
            }
        }
    }

    /// A disk that serves is one of the server's.
    fn enter(self: &Arc<Self>, record: DiskRecord, entry: Entry) -> Disk {
        let entry = Entry { id: record.id, ..entry };
        if let (Some(_), Ok(limits)) = (&entry.config.nvme, self.limits(entry.volume)) {
            self.nvme.add(entry.volume, &record.name, at_nvme(&entry.config, limits));
        }
        tracing::info!("disk {} is ready", record.name);
        let disk = self.describe(&record.name, &entry);
        self.watch(&record.name, &entry);
        self.disks().by_name.insert(record.name, entry);
        disk
    }

    /// Takes the disk away when the kernel has: another program may delete it.
    fn watch(self: &Arc<Self>, name: &str, entry: &Entry) {
        let Some(ublk) = &entry.ublk else { return };
        let (server, ended) = (Arc::clone(self), ublk.ended());
        let (name, volume) = (name.to_string(), entry.volume);
        self.runtime.spawn(async move {
            ended.await;
            let gone = server.find(&name).is_ok_and(|(_, found)| found.volume == volume);
            if gone {
                tracing::warn!("disk {name} was taken away by the kernel");
                // What fails is in the log.
                drop(tokio::task::spawn_blocking(move || server.remove(&name)).await);
            }
        });
    }

    fn next_volume(&self) -> Result<VolumeId, ApiError> {
        let mut disks = self.disks();
        if disks.closing {
            return Err(ApiError::new(503, "stopping", format!("pool {} is being stopped", self.pool.name)));
        }
        if self.pool.kind == PoolType::Loop && !disks.by_name.is_empty() {
            let why = format!("pool {} has its disk: a pool of type loop has one", self.pool.name);
            return Err(ApiError::new(409, "loop-pool", why).hint("leave --pool out"));
        }
        let volume = VolumeId(disks.next_volume);
        disks.next_volume += 1;
        Ok(volume)
    }

    /// Makes the block device, if there shall be one, and the record.
    fn publish(
        &self,
        config: &DiskConfig,
        volume: VolumeId,
        limits: Limits,
        how: How,
        record: &mut DiskRecord,
    ) -> Result<Option<UblkDisk>, ApiError> {
        if let Some(nvme) = &config.nvme {
            self.nvme.open(&self.engine, nvme)?;
        }
        record.volume = Some(volume.0);
        record.config = Some(DiskConfig { size: Some(limits.capacity.bytes()), ..config.clone() });
        if config.no_ublk {
            self.state.write_disk(record).map_err(state_error)?;
            return Ok(None);
        }
        let params = DiskParams {
            id: config.id,
            queues: config.queues,
            depth: config.depth,
            volume,
            limits,
            unprivileged: config.unprivileged,
            volatile_cache: self.pool.cache == CacheMode::Volatile,
            rotational: false,
            recovery: self.pool.recovery,
            force: matches!(how, How::Add { force: true }),
        };
        let engine = Arc::clone(&self.engine);
        let ublk = match (how, record.id) {
            (How::Add { .. }, _) => UblkDisk::start(engine, params),
            (How::Recover, Some(id)) => UblkDisk::recover(engine, params, id),
            (How::Recover, None) => return Err(ApiError::new(404, "no-device", "it was never made")),
        };
        let ublk = ublk.map_err(|error| ublk_error(&error))?;
        if !ublk.io_flusher() {
            tracing::warn!(
                "the threads of disk {} may wait for memory that their own disk must free",
                ublk.id()
            );
        }
        if let Err(error) = check_node(ublk.path()) {
            if let Err(stop) = ublk.stop() {
                tracing::error!("{stop}");
            }
            return Err(error);
        }
        record.id = Some(ublk.id());
        if record.name.is_empty() {
            record.name = format!("ublkb{}", ublk.id());
        }
        match self.state.write_disk(record) {
            Ok(()) => Ok(Some(ublk)),
            Err(error) => {
                if let Err(stop) = ublk.stop() {
                    tracing::error!("{stop}");
                }
                Err(state_error(error))
            }
        }
    }

    /// Takes a disk away. Blocks while the driver works. The last one ends the server.
    pub(crate) fn remove(&self, key: &str) -> Result<(), ApiError> {
        let _changes = self.changes.lock().expect("a panic ends the process");
        let (name, found) = self.find(key)?;
        // The driver waits for every request, those that hang too.
        self.end_faults(found.volume);
        self.jobs.cancel_of(&self.engine, found.volume);
        let entry = self.disks().by_name.remove(&name).expect("found under the lock for changes");
        self.nvme.remove(entry.volume);
        // The driver waits for every request.
        self.engine.hurry(entry.volume);
        let stopped = entry.ublk.map_or(Ok(()), UblkDisk::stop);
        self.drop_volume(entry.volume, false);
        let result = match stopped {
            Ok(()) => {
                self.forget(&name);
                tracing::info!("disk {name} is gone");
                Ok(())
            }
            // The record stays: it names what has to be deleted once the driver answers.
            Err(error) => {
                tracing::error!("disk {name}: {error}");
                Err(ublk_error(&error))
            }
        };
        let mut disks = self.disks();
        if disks.by_name.is_empty() {
            disks.closing = true;
            let one = 1u64.to_ne_bytes();
            rustix::io::write(&self.stop, &one).expect("the counter of an eventfd has room");
        }
        result
    }

    /// Writes down what a recovery of the disk needs.
    fn remember(&self, name: &str, entry: &Entry) {
        let size =
            self.engine.with_pool(|pool| pool.limits(entry.volume).map(|limits| limits.capacity.bytes()));
        let record = DiskRecord {
            name: name.to_string(),
            id: entry.id,
            pool: self.pool.name.clone(),
            process: self.process,
            volume: Some(entry.volume.0),
            config: Some(DiskConfig { size, ..entry.config.clone() }),
        };
        if let Err(error) = self.state.write_disk(&record) {
            tracing::error!("{error}");
        }
    }

    fn forget(&self, name: &str) {
        if let Err(error) = self.state.remove_disk(name) {
            tracing::error!("{error}");
        }
    }

    /// Takes every disk away. False when one of them could not be.
    pub(super) fn close(&self) -> bool {
        self.disks().closing = true;
        let names: Vec<String> = self.disks().by_name.keys().cloned().collect();
        names.iter().fold(true, |ok, name| match self.remove(name) {
            Ok(()) => ok,
            Err(error) => error.code == "no-disk" && ok,
        })
    }

    /// The name of a disk and what requests need of it, by name, number or path.
    pub(crate) fn find(&self, key: &str) -> Result<(String, Found), ApiError> {
        let disks = self.disks();
        let (name, entry) = disks.find(key).ok_or_else(|| self.no_disk(key))?;
        Ok((name.clone(), Found { volume: entry.volume, id: entry.id }))
    }

    fn no_disk(&self, key: &str) -> ApiError {
        ApiError::new(404, "no-disk", format!("there is no disk \"{key}\" in pool {}", self.pool.name))
    }

    /// A disk, as the API shows it.
    pub(crate) fn disk(&self, key: &str) -> Result<Disk, ApiError> {
        let disks = self.disks();
        let (name, entry) = disks.find(key).ok_or_else(|| self.no_disk(key))?;
        Ok(self.describe(name, entry))
    }

    /// Every disk, by name.
    pub(crate) fn all(&self) -> Vec<Disk> {
        self.disks().by_name.iter().map(|(name, entry)| self.describe(name, entry)).collect()
    }

    /// The pool, as the API shows it.
    pub(crate) fn pool_view(&self) -> PoolView {
        PoolView {
            config: self.pool.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            disks: self.disks().by_name.keys().cloned().collect(),
            usage: self.engine.with_pool(|pool| pool.usage()).into(),
        }
    }

    /// The limits of a volume that exists.
    pub(crate) fn limits(&self, volume: VolumeId) -> Result<Limits, ApiError> {
        let limits = self.engine.with_pool(|pool| pool.limits(volume).cloned());
        limits.ok_or_else(|| ApiError::new(404, "no-disk", "the disk is being deleted"))
    }

    /// The ledger of a disk, set to 0 afterwards if asked for.
    pub(crate) fn stats(&self, key: &str, reset: bool) -> Result<Stats, ApiError> {
        let (_, found) = self.find(key)?;
        Ok(self.stats_of(found.volume, reset))
    }

    /// The ledger of a volume.
    pub(crate) fn stats_of(&self, volume: VolumeId, reset: bool) -> Stats {
        self.engine.with_pool(|pool| {
            let ledger = pool.ledger(volume);
            let stats = Stats::from(&*ledger);
            if reset {
                *ledger = emulation::ledger::Ledger::default();
            }
            if reset {
                self.engine.taps.latencies(volume).reset();
            }
            Stats { lateness: LatenessView::of(pool.lateness()), ..stats }
        })
    }

    fn describe(&self, name: &str, entry: &Entry) -> Disk {
        let limits = self.engine.with_pool(|pool| pool.limits(entry.volume).cloned());
        let limits = limits.expect("a listed disk has a volume");
        let info = entry.ublk.as_ref().map(UblkDisk::info);
        Disk {
            id: entry.id,
            name: name.to_string(),
            path: entry.ublk.as_ref().map(|ublk| ublk.path().to_path_buf()),
            pool: self.pool.name.clone(),
            kind: self.pool.kind,
            size: limits.capacity.bytes(),
            logical_block_size: limits.logical_block.bytes(),
            physical_block_size: limits.map_block.bytes(),
            queues: info.map_or(0, |info| info.queues),
            depth: info.map_or(0, |info| info.depth),
            read_only: limits.read_only,
            cache: self.pool.cache,
            pid: std::process::id(),
            queue_tids: entry.ublk.as_ref().map(UblkDisk::queue_tids).unwrap_or_default(),
            nvme: self.nvme.view(entry.volume),
            zones: limits.zones.map(|zones| GeometryView {
                count: zones.zones(limits.capacity),
                size: zones.size.bytes().0,
                capacity: zones.capacity.bytes().0,
                conventional: zones.conventional,
                max_open: zones.max_open,
                max_active: zones.max_active,
                max_append: zones.max_append.bytes().0,
            }),
            limits: limits_view(&limits, &entry.config),
            config: DiskConfig {
                id: entry.id,
                size: Some(limits.capacity.bytes()),
                logical_block_size: Some(limits.logical_block.bytes()),
                name: entry.config.name.clone(),
                ..entry.config.clone()
            },
        }
    }
}

impl Disks {
    fn find(&self, key: &str) -> Option<(&String, &Entry)> {
        let key = key.strip_prefix("/dev/").unwrap_or(key);
        let number = key.strip_prefix("ublkb").unwrap_or(key).parse::<u32>().ok();
        self.by_name
            .get_key_value(key)
            .or_else(|| self.by_name.iter().find(|(_, entry)| number.is_some() && entry.id == number))
    }
}

pub(crate) fn limits_view(limits: &Limits, config: &DiskConfig) -> LimitsView {
    LimitsView {
        copy: limits.copy_mode.into(),
        copy_backend: config.copy_backend,
        copy_max_bytes: limits.copy_max_bytes,
        copy_max_segment_bytes: limits.copy_max_segment_bytes,
        copy_max_segments: limits.copy_max_segments,
        timing: config.timing.clone(),
    }
}

/// A file that was left under the name of the disk keeps the kernel from putting the disk there.
fn check_node(path: &std::path::Path) -> Result<(), ApiError> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_block_device() => {
            let why = format!("{} exists and is no block device", path.display());
            Err(ApiError::new(409, "node", why)
                .hint("something wrote to the name of a disk that was gone: remove it"))
        }
        // Without devtmpfs nobody makes nodes, and the disk works all the same.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The limits of a disk at its NVMe/TCP door. Of the doors of hosts one alone writes to zones: the block device, where
/// there is one.
fn at_nvme(config: &DiskConfig, limits: Limits) -> Limits {
    let elsewhere = limits.zones.is_some() && !config.no_ublk;
    Limits { read_only: limits.read_only || elsewhere, ..limits }
}

/// A failure of the state directory, as the API shows it.
pub(super) fn state_error(error: StateError) -> ApiError {
    match error {
        StateError::InUse(what, name) => {
            ApiError::new(409, "in-use", format!("the {what} \"{name}\" is in use"))
                .hint("choose another, or delete it first: `ublk list` shows what there is")
        }
        other => ApiError::from_lines(500, "state", &other.to_string()),
    }
}

/// A failure to start the threads of the engine.
fn engine_error(error: std::io::Error) -> ApiError {
    ublk_error(&UblkError::ring(error))
}

/// A failure of the ublk driver, as the API shows it.
pub(crate) fn ublk_error(error: &UblkError) -> ApiError {
    let (status, code) = match error {
        UblkError::NoModule => (503, "no-module"),
        UblkError::NoPermission { .. } => (403, "no-permission"),
        UblkError::IoUringDisabled { .. } => (503, "io-uring-disabled"),
        UblkError::IoUring(_) => (503, "io-uring"),
        UblkError::OldKernel { .. } => (503, "old-kernel"),
        UblkError::BadKernel { .. } => (503, "bad-kernel"),
        UblkError::DeviceLimit => (409, "device-limit"),
        UblkError::IdInUse { .. } => (409, "id-in-use"),
        UblkError::NoDevice { .. } => (404, "no-device"),
        UblkError::NotRecoverable { .. } => (409, "not-recoverable"),
        UblkError::Refused { .. } => (500, "refused"),
        UblkError::Timeout { .. } => (504, "timeout"),
        UblkError::ThreadsHang { .. } => (504, "threads-hang"),
        UblkError::Device { .. } => (500, "device"),
        UblkError::Queue { .. } => (500, "queue"),
        UblkError::Parameter { .. } => (400, "bad-request"),
    };
    ApiError::from_lines(status, code, &error.to_string())
}
