//! Pools that outlive their server: a file with its metadata beside it, or shared memory for a RAM pool with
//! recovery. How they are made, opened and closed, and their volumes.

use super::pool::{LIVE_MAX, Parts};
use super::state_error;
use crate::config::{CacheMode, DEFAULT_SIZE, DiskConfig, PoolConfig, PoolType, ZoneConfig};
use crate::control::api::ApiError;
use crate::store::load::{self, Ended, Loaded};
use crate::store::meta::{Meta, Place, VolumeRow};
use crate::store::pool_file::{PoolFile, PoolFileError};
use crate::store::redo::{FileLog, Owner, Records};
use crate::store::{FileStore, RamStore, Store, header, shared};
use emulation::delayed::Delayed;
use emulation::emulated::Emulated;
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::{Bytes, Limits, Pool, Sectors, VolumeId};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use zoned::Zoned;

/// The most that a regular file may hold: less than the offsets that file systems have, and more than a disk has.
const FILE_MAX: Bytes = Bytes(1 << 50);
/// Of a device, this part is kept for the new blocks of live plans, from the least to the most.
const RESERVE: (u64, Bytes, Bytes) = (16, Bytes::mib(2), Bytes::mib(64));
/// The name of a volume that is given none.
const DEFAULT_NAME: &str = "default";

/// What of a pool outlives its server, open.
#[derive(Debug)]
pub(super) struct Durable {
    meta: Arc<Meta>,
    identifier: String,
    /// The volumes by their names.
    volumes: Mutex<BTreeMap<String, (VolumeId, VolumeRow)>>,
    /// The smallest logical block that the store takes.
    logical_block: Bytes,
    /// The pool ends with its server when that ends well.
    memory: bool,
    /// Keeps other servers away.
    _file: Option<PoolFile>,
}

/// A volume for a disk.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) id: VolumeId,
    pub(super) limits: Limits,
    /// It was made just now.
    pub(super) fresh: bool,
}

/// The pool of type `file` at the path of its configuration, made when there is none.
pub(super) fn open_file(config: &PoolConfig, disk: &DiskConfig) -> Result<Parts, ApiError> {
    let path = config.path.as_ref().expect("checked: a file pool has a path");
    let existed = path.exists();
    let opened = open_file_at(path, config, disk);
    if opened.is_err() && !existed {
        // Made just now, for nothing. What cannot be removed is empty and in nobody's way.
        drop(std::fs::remove_file(path));
        drop(std::fs::remove_file(PoolFile::metadata_path(path)));
    }
    opened
}

fn open_file_at(path: &Path, config: &PoolConfig, disk: &DiskConfig) -> Result<Parts, ApiError> {
    let mut file = PoolFile::open(path, true).map_err(|error| file_error(&error))?;
    // What is there is looked at first: what is refused stays as it is.
    let looked = !file.is_new();
    let meta = match looked {
        true => file.meta(true),
        false => file.create(config.map_block),
    };
    let meta = Arc::new(meta.map_err(|error| file_error(&error))?);
    let head = file.header().map_err(|error| file_error(&error))?.clone();
    if head.map_block != config.map_block {
        return Err(geometry("map-block", config.map_block, head.map_block, &path.display().to_string()));
    }
    let rows = meta.contents().map_err(|error| meta_error(&error))?.volumes;
    let stored = rows.iter().map(|(_, row)| row.logical_block_size).min();
    let given = disk.logical_block_size;
    let smallest = stored.into_iter().chain(given).min().unwrap_or(disk.logical_block());
    let failed = |error: io::Error| ApiError::new(422, "store", format!("{}: {error}", path.display()));
    let store = FileStore::open(path, smallest, config.buffered, false).map_err(failed)?;
    let store = store.mapped(header::LEN, file.room().is_none());
    let mapped = file_config(config, file.room());
    let parts =
        Opening { config, mapped, meta, looked, identifier: &head.identifier, logical_block: smallest };
    let size = file.room().map_or(DEFAULT_SIZE, |_| mapped.cap.bytes());
    parts.open(Store::File(store), Some(file), size)
}

/// A RAM pool whose data, log and commits are in shared memory: a new one, or what a dead server left.
pub(super) fn open_memory(
    config: &PoolConfig,
    mapped: MappedConfig,
    recover: bool,
) -> Result<Parts, ApiError> {
    let dir = shared::dir(&config.identifier).map_err(state_error)?;
    let opened = open_memory_in(&dir, config, mapped, recover);
    if opened.is_err() && !recover {
        // Made just now, for nothing.
        drop(shared::remove(&config.identifier));
    }
    opened
}

fn open_memory_in(
    dir: &Path,
    config: &PoolConfig,
    mapped: MappedConfig,
    recover: bool,
) -> Result<Parts, ApiError> {
    let failed = |error: io::Error| {
        let message = format!("{}: {error}", dir.display());
        match error.kind() {
            io::ErrorKind::NotFound => ApiError::new(409, "gone", message)
                .hint("the memory of the pool is gone: its disks can only be deleted"),
            _ => ApiError::new(500, "store", message),
        }
    };
    let open = |name: &str| {
        File::options()
            .read(true)
            .write(true)
            .create_new(!recover)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(dir.join(name))
            .map_err(failed)
    };
    let place = Place::File(open("meta")?);
    let meta = match recover {
        true => Meta::open(place),
        false => Meta::create(place, &config.identifier, config.map_block),
    };
    let meta = Arc::new(meta.map_err(|error| meta_error(&error))?);
    let store = RamStore::shared(open("data")?, mapped.physical).map_err(failed)?;
    let (identifier, logical_block) = (config.identifier.as_str(), Bytes(512));
    let parts = Opening { config, mapped, meta, looked: false, identifier, logical_block };
    parts.open(Store::Ram(store), None, DEFAULT_SIZE)
}

/// A pool on its way from what was found to what serves.
struct Opening<'a> {
    config: &'a PoolConfig,
    mapped: MappedConfig,
    meta: Arc<Meta>,
    /// The metadata is a copy to look at.
    looked: bool,
    identifier: &'a str,
    logical_block: Bytes,
}

impl Opening<'_> {
    fn open(self, store: Store, file: Option<PoolFile>, default_size: Bytes) -> Result<Parts, ApiError> {
        let owner = Owner::new(self.identifier).map_err(|error| log_error(&error))?;
        let Loaded { contents, image, ended, closed } =
            load::load(&self.meta, &shared::path(self.identifier), &owner)
                .map_err(|error| ApiError::new(422, "store", error.to_string()))?;
        let damaged = |error: String| {
            ApiError::new(422, "damaged", format!("the metadata of the pool contradicts itself: {error}"))
                .hint("nothing was changed")
        };
        let mapped = Mapped::recover(self.mapped, &image).map_err(|error| damaged(error.to_string()))?;
        let store_end = mapped.store_end().bytes();
        // A condition is durable where every acknowledged change is.
        let write_through = matches!(self.mapped.cache, Cache::WriteThrough { .. });
        let zoned = Zoned::recover(Box::new(mapped), write_through, &image).map_err(|zone| {
            damaged(format!("volume {} has no zone {} that could be {zone:?}", zone.volume.0, zone.zone))
        })?;
        if let Some(file) = &file {
            file.check_end(store_end).map_err(|error| file_error(&error))?;
        }
        let meta = match (&file, self.looked) {
            (Some(file), true) => Arc::new(file.meta(false).map_err(|error| file_error(&error))?),
            (_, _) => self.meta,
        };
        if !contents.volumes.is_empty() {
            tracing::info!("pool {}: {} volumes, {ended}", self.config.name, contents.volumes.len());
        }
        if matches!(ended, Ended::LogLost) {
            tracing::warn!("what was acknowledged after the last flush is lost");
        }
        let dir = shared::dir(self.identifier).map_err(state_error)?;
        let records = Records { maps: image.records, zones: image.zone_records };
        let log = FileLog::create(&dir.join(load::LOG), &owner, image.sequence, &records)
            .map_err(|error| log_error(&error))?;
        if !closed.is_empty() {
            meta.set_zones(&closed).map_err(|error| meta_error(&error))?;
        }
        meta.set_open(Some(&owner.boot)).map_err(|error| meta_error(&error))?;
        let volumes = contents.volumes.into_iter().map(|(id, row)| (row.name.clone(), (id, row)));
        let durable = Durable {
            meta,
            identifier: self.identifier.to_string(),
            volumes: Mutex::new(volumes.collect()),
            logical_block: self.logical_block,
            memory: file.is_none(),
            _file: file,
        };
        let device = Emulated::new(Box::new(Delayed::new(Box::new(zoned))));
        let pool = Pool::new(Box::new(device), Box::new(log));
        Ok(Parts { pool, store, default_size, durable: Some(durable) })
    }
}

fn file_config(config: &PoolConfig, room: Option<u64>) -> MappedConfig {
    MappedConfig { cache: cache(config), ..file_shape(config.map_block, room) }
}

/// The shape of a pool in a file or device with so many bytes for data; `None`: as many as the file system gives.
pub(crate) fn file_shape(map_block: Bytes, room: Option<u64>) -> MappedConfig {
    let block = map_block.0;
    let whole = |bytes: u64| Bytes(bytes - bytes % block).whole_sectors();
    let (physical, cap) = match room {
        None => (whole(FILE_MAX.0), whole(FILE_MAX.0 - LIVE_MAX.0)),
        Some(room) => {
            let (part, least, most) = RESERVE;
            let reserve = (room / part).clamp(least.0, most.0);
            (whole(room), whole(room.saturating_sub(reserve)))
        }
    };
    MappedConfig {
        map_block: map_block.whole_sectors(),
        cap,
        physical,
        cache: Cache::Volatile { held_max: physical },
        trim: true,
    }
}

/// What the map layer has to promise for what the pool promises: there is always a durable image.
pub(super) fn cache(config: &PoolConfig) -> Cache {
    let held_max: Sectors = config.cache_size.whole_sectors();
    match (config.cache, config.kind) {
        (CacheMode::Volatile, _) => Cache::Volatile { held_max },
        // Memory outlives the server and not the host: a commit would promise no more.
        (CacheMode::None, PoolType::Ram) => Cache::Volatile { held_max },
        (CacheMode::None, _) => Cache::WriteThrough { held_max },
    }
}

impl Durable {
    /// Names the pool where it keeps what outlives its server.
    pub(super) fn identifier(&self) -> &str {
        &self.identifier
    }

    pub(super) fn meta(&self) -> &Arc<Meta> {
        &self.meta
    }

    /// The volume of a disk: the one of its name, or a new one. `size` is that of a new one that is given none; `used`
    /// says which volumes are disks already.
    pub(super) fn volume(
        &self,
        pool: &PoolConfig,
        config: &DiskConfig,
        size: Bytes,
        used: impl Fn(VolumeId) -> bool,
    ) -> Result<Volume, ApiError> {
        let mut volumes = self.volumes.lock().expect("a panic ends the process");
        let name = match &config.name {
            Some(name) => name.clone(),
            None => only_name(volumes.keys())?,
        };
        if let Some((id, row)) = volumes.get(&name) {
            if used(*id) {
                let why = format!("volume \"{name}\" is in use");
                return Err(ApiError::new(409, "in-use", why).hint("give another --name"));
            }
            return stored(pool, config, &name, *id, row);
        }
        let logical_block = config.logical_block_size.unwrap_or(self.logical_block);
        let config = DiskConfig { logical_block_size: Some(logical_block), ..config.clone() };
        let limits = checked(&config, pool, size)?;
        let row = VolumeRow {
            name: name.clone(),
            size: limits.capacity.bytes(),
            logical_block_size: limits.logical_block.bytes(),
            zones: limits.zones.as_ref().map(ZoneConfig::from),
        };
        if row.logical_block_size < self.logical_block {
            return Err(geometry(
                "logical-block-size",
                row.logical_block_size,
                self.logical_block,
                "the pool",
            ));
        }
        let id = self.meta.add_volume(&row).map_err(|error| meta_error(&error))?;
        volumes.insert(name, (id, row));
        Ok(Volume { id, limits, fresh: true })
    }

    /// True when there is a volume of this name; of no name: when there is any.
    pub(super) fn has(&self, name: Option<&String>) -> bool {
        let volumes = self.volumes.lock().expect("a panic ends the process");
        name.map_or(!volumes.is_empty(), |name| volumes.contains_key(name))
    }

    /// A volume by its number, as a disk that is recovered.
    pub(super) fn volume_of(
        &self,
        pool: &PoolConfig,
        config: &DiskConfig,
        id: VolumeId,
    ) -> Result<Volume, ApiError> {
        let volumes = self.volumes.lock().expect("a panic ends the process");
        let found = volumes.iter().find(|(_, (number, _))| *number == id);
        let (name, (_, row)) =
            found.ok_or_else(|| ApiError::new(409, "no-volume", format!("volume {} is gone", id.0)))?;
        stored(pool, config, name, id, row)
    }

    /// Makes it durable that a volume is gone.
    pub(super) fn remove(&self, id: VolumeId) -> Result<(), ApiError> {
        self.meta.remove_volume(id).map_err(|error| meta_error(&error))?;
        self.volumes.lock().expect("a panic ends the process").retain(|_, (number, _)| *number != id);
        Ok(())
    }

    /// Some volume, for a flush of all of them.
    pub(super) fn any(&self) -> Option<VolumeId> {
        self.volumes.lock().expect("a panic ends the process").values().next().map(|(id, _)| *id)
    }

    /// True when the volumes of disks that are deleted go with them.
    pub(super) fn is_memory(&self) -> bool {
        self.memory
    }

    /// Closes the pool, whose volumes are flushed and whose engine has ended.
    pub(super) fn close(&self) -> Result<(), String> {
        if !self.memory {
            self.meta.set_open(None).map_err(|error| format!("the metadata cannot be closed: {error}"))?;
        }
        shared::remove(&self.identifier)
            .map_err(|error| format!("{}: {error}", shared::path(&self.identifier).display()))
    }
}

/// The volume meant by no name: the only one; the default name when there is none.
fn only_name<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<String, ApiError> {
    match (names.next(), names.next()) {
        (None, _) => Ok(DEFAULT_NAME.to_string()),
        (Some(name), None) => Ok(name.clone()),
        (Some(first), Some(second)) => {
            let why = format!("the pool has several volumes: {first}, {second} and perhaps others");
            Err(ApiError::bad_request(why).hint("choose one by --name"))
        }
    }
}

/// The limits of a disk on a volume that is there; another geometry is refused.
fn stored(
    pool: &PoolConfig,
    config: &DiskConfig,
    name: &str,
    id: VolumeId,
    row: &VolumeRow,
) -> Result<Volume, ApiError> {
    let what = format!("volume \"{name}\"");
    for (option, given, has) in [
        ("size", config.size, row.size),
        ("logical-block-size", config.logical_block_size, row.logical_block_size),
    ] {
        if let Some(given) = given.filter(|given| *given != has) {
            return Err(geometry(option, given, has, &what));
        }
    }
    if let Some(zones) = &config.zones {
        let block = pool.map_block.whole_sectors();
        let given = zones.geometry(block).map_err(|error| ApiError::bad_request(error.to_string()))?;
        if row.zones != Some(ZoneConfig::from(&given)) {
            let has = if row.zones.is_some() { "other zones" } else { "no zones" };
            return Err(ApiError::new(409, "geometry", format!("--zoned: {what} has {has}"))
                .hint("leave --zoned and its options out: the geometry of what is stored stays"));
        }
    }
    let config = DiskConfig {
        logical_block_size: Some(row.logical_block_size),
        zones: row.zones.clone(),
        ..config.clone()
    };
    Ok(Volume { id, limits: checked(&config, pool, row.size)?, fresh: false })
}

fn checked(config: &DiskConfig, pool: &PoolConfig, size: Bytes) -> Result<Limits, ApiError> {
    let limits = config.limits(pool, size);
    limits.map_err(|error| ApiError::from_lines(400, "bad-request", &error.to_string()))
}

fn geometry(option: &str, given: Bytes, has: Bytes, what: &str) -> ApiError {
    ApiError::new(409, "geometry", format!("{option} {given}: {what} has {has}"))
        .hint(format!("leave --{option} out: the geometry of what is stored stays"))
}

/// A file that is no pool, as the API shows it.
pub(super) fn file_error(error: &PoolFileError) -> ApiError {
    let (status, code) = match error {
        PoolFileError::InUse(_) => (409, "in-use"),
        PoolFileError::Io(..)
        | PoolFileError::Header(..)
        | PoolFileError::Meta(..)
        | PoolFileError::Kind(_)
        | PoolFileError::Empty(_)
        | PoolFileError::Small(..)
        | PoolFileError::Parts(..) => (422, "store"),
    };
    ApiError::from_lines(status, code, &error.to_string())
}

fn meta_error(error: &crate::store::meta::MetaError) -> ApiError {
    ApiError::new(500, "metadata", format!("the metadata of the pool: {error}"))
}

fn log_error(error: &io::Error) -> ApiError {
    ApiError::new(500, "redo-log", format!("the redo log cannot be made: {error}"))
}
