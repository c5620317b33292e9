//! A pool from its configuration: the stack of layers, its log and its store.

use super::durable::{self, Durable};
use crate::config::{CacheMode, DEFAULT_SIZE, DiskConfig, PoolConfig, PoolType};
use crate::control::api::ApiError;
use crate::store::Store;
use emulation::delayed::Delayed;
use emulation::emulated::Emulated;
use emulation::identity::Identity;
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::NoLog;
use emulation::{BlockDevice, Bytes, Pool, Sectors};
use zoned::Zoned;

/// Address space of the store beyond the cap, for the new blocks of live plans: a plan has at most 1 MiB of them.
pub(super) const LIVE_MAX: Bytes = Bytes::gib(64);

/// A pool, its store, and the size of a disk that is given none.
pub(super) struct Parts {
    pub(super) pool: Pool,
    pub(super) store: Store,
    pub(super) default_size: Bytes,
    /// What outlives the server.
    pub(super) durable: Option<Durable>,
}

/// Builds the pool; `disk` is its first. `recover`: from what a dead server left.
pub(super) fn build(config: &PoolConfig, disk: &DiskConfig, recover: bool) -> Result<Parts, ApiError> {
    let failed =
        |error: std::io::Error| ApiError::new(500, "store", format!("the store cannot be made: {error}"));
    let volatile = config.cache == CacheMode::Volatile;
    let (device, store, default_size): (Box<dyn BlockDevice>, _, _) = match config.kind {
        PoolType::File => return durable::open_file(config, disk),
        PoolType::Ram if config.recovery.is_some() => {
            let mapped = MappedConfig { cache: durable::cache(config), ..mapped_config(config) };
            return durable::open_memory(config, mapped, recover);
        }
        PoolType::Ram => {
            let mapped = mapped_config(config);
            let store = Store::ram(mapped.physical).map_err(failed)?;
            (Box::new(Zoned::new(Box::new(Mapped::new(mapped)), !volatile)), store, DEFAULT_SIZE)
        }
        PoolType::Null => (Box::new(Identity::new(volatile)), Store::Null, DEFAULT_SIZE),
        PoolType::Loop => {
            let (store, size) = open(config, disk)?;
            (Box::new(Identity::new(volatile)), store, size)
        }
    };
    let device = Emulated::new(Box::new(Delayed::new(device)));
    let pool = Pool::new(Box::new(device), Box::new(NoLog::default()));
    Ok(Parts { pool, store, default_size, durable: None })
}

fn mapped_config(config: &PoolConfig) -> MappedConfig {
    let sectors = |bytes: Bytes| -> Sectors { bytes.whole_sectors() };
    MappedConfig {
        map_block: sectors(config.map_block),
        cap: sectors(config.memory),
        physical: sectors(config.memory) + sectors(LIVE_MAX),
        cache: match config.cache {
            CacheMode::None => Cache::None,
            CacheMode::Volatile => Cache::Volatile { held_max: sectors(config.cache_size) },
        },
        trim: true,
    }
}

/// The store of a `loop` pool and its size, rounded down to the map block.
fn open(config: &PoolConfig, disk: &DiskConfig) -> Result<(Store, Bytes), ApiError> {
    let path = config.path.as_ref().expect("checked: a loop pool has a path");
    let failed = |error: std::io::Error| ApiError::new(422, "store", format!("{}: {error}", path.display()));
    let store = Store::file(path, disk.logical_block(), config.buffered, disk.read_only).map_err(failed)?;
    let Store::File(file) = &store else { unreachable!("a file was opened") };
    let size = file.size();
    let usable = Bytes(size.0 - size.0 % config.map_block.0);
    if let Some(asked) = disk.size.filter(|asked| *asked > usable) {
        let message = format!("size {asked}: {} has {usable}", path.display());
        return Err(ApiError::bad_request(message).hint("leave --size out, or make the file larger"));
    }
    Ok((store, usable))
}
