//! A volume of a file that no server has open, for as long as a command needs it.

use super::disks::may_lose_power;
use super::durable::{self, Durable};
use super::pool::{self, Parts};
use super::state_error;
use crate::config::{DiskConfig, PoolConfig, PoolType};
use crate::control::api::ApiError;
use crate::control::fault_rules::PowerCutView;
use crate::engine::Engine;
use crate::state::{DiskRecord, StateError};
use emulation::{Bytes, Control, Flags, Instant, Keep, Op, Sector, SectorRange, Sectors, VolumeId};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A volume, open.
#[derive(Debug)]
pub(crate) struct Offline {
    engine: Arc<Engine>,
    durable: Durable,
    runtime: Runtime,
    volume: VolumeId,
    size: Bytes,
    map_block: Bytes,
}

impl Offline {
    /// The most bytes that one call moves.
    pub(crate) const CHUNK: u64 = 1 << 20;

    /// Opens a volume that is there, or, with a size, makes a new one.
    ///
    /// # Errors
    /// The file is no pool, is in use, or has, or has not, such a volume.
    pub(crate) fn open(
        config: &PoolConfig,
        name: Option<String>,
        size: Option<Bytes>,
    ) -> Result<Self, ApiError> {
        let disk = DiskConfig { name, size, ..DiskConfig::default() };
        disk.limits(config, config.map_block)
            .map_err(|error| ApiError::from_lines(400, "bad-request", &error.to_string()))?;
        let Parts { pool, store, durable, .. } = durable::open_file(config, &disk)?;
        let durable = durable.expect("a pool in a file outlives its server");
        let path = config.path.clone().unwrap_or_default();
        let has = durable.has(disk.name.as_ref());
        if has != size.is_none() {
            let what = disk.name.as_ref().map_or("a volume".to_string(), |name| format!("volume \"{name}\""));
            let not = if has { "has" } else { "has not" };
            return Err(ApiError::new(409, "volume", format!("{} {not} {what}", path.display()))
                .hint("choose another --name; `ublk check` shows the volumes"));
        }
        let engine = Engine::new(pool, store, Some(Arc::clone(durable.meta())))
            .map_err(|error| super::ublk_error(&crate::ublk::UblkError::ring(error)))?;
        let volume = durable.volume(config, &disk, config.map_block, |_| false)?;
        let (id, size) = (volume.id, volume.limits.capacity.bytes());
        if volume.fresh {
            engine.control(Control::AddVolume(id, volume.limits));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| state_error(StateError::Io(PathBuf::from("threads"), error)))?;
        Ok(Self { engine, durable, runtime, volume: id, size, map_block: config.map_block })
    }

    pub(crate) fn size(&self) -> Bytes {
        self.size
    }

    /// Reads up to [`Offline::CHUNK`] bytes.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Vec<u8>, ApiError> {
        self.call(Op::Read(sectors(&range)), None).map(Option::unwrap_or_default)
    }

    /// Writes up to [`Offline::CHUNK`] bytes.
    pub(crate) fn write(&self, start: u64, data: Vec<u8>) -> Result<(), ApiError> {
        let range = start..start + data.len() as u64;
        self.call(Op::Write(sectors(&range)), Some(data)).map(drop)
    }

    /// The ranges that do not read as zeroes by their nature, in order. Flushes.
    pub(crate) fn mapped(&self) -> Result<Vec<Range<u64>>, ApiError> {
        self.call(Op::Flush, None)?;
        let mut ranges = Vec::new();
        let block = self.map_block.0;
        let found = self.durable.meta().extents(|extent| {
            if extent.volume == self.volume {
                ranges.push(extent.logical.start * block..extent.logical.end * block);
            }
        });
        found.map_err(|error| ApiError::new(500, "metadata", error.to_string()))?;
        Ok(ranges)
    }

    /// Makes everything durable and closes the file.
    pub(crate) fn close(self) -> Result<(), ApiError> {
        self.call(Op::Flush, None)?;
        self.engine.shutdown();
        self.durable.close().map_err(|error| ApiError::new(500, "metadata", error))
    }

    fn call(&self, op: Op, data: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, ApiError> {
        let result = self.runtime.block_on(self.engine.call(self.volume, op, Flags::NONE, data));
        match result.completion.status {
            status if status.is_ok() => Ok(result.data),
            status => Err(ApiError::of_status("the volume", status)),
        }
    }
}

/// Cuts the power of a disk whose server is dead: what it left is as if the power had failed with it. The pool stays
/// as it is otherwise, to be recovered or opened again.
///
/// # Errors
/// There is nothing left of the pool, or it is no type that a power cut means something for.
pub(crate) fn power_cut(
    config: &PoolConfig,
    record: &DiskRecord,
    keep: Keep,
) -> Result<PowerCutView, ApiError> {
    let gone = |why: String| ApiError::new(409, "gone", why).hint("the disk can only be deleted");
    may_lose_power(config.kind)?;
    if config.kind == PoolType::Ram && config.recovery.is_none() {
        return Err(gone(format!("the memory of pool {} went with its server", config.name)));
    }
    let disk = record.config.clone().unwrap_or_default();
    let volume = record.volume.map(VolumeId);
    let volume = volume.ok_or_else(|| gone(format!("disk {} was never made", record.name)))?;
    let Parts { pool: mut parts, durable, .. } = pool::build(config, &disk, true)?;
    if durable.is_none() {
        return Err(gone(format!("nothing is left of pool {}", config.name)));
    }
    // What it has the device do by itself is left to the next server.
    drop(parts.control(Instant::ORIGIN, Control::power_cut(volume, keep)));
    Ok(PowerCutView { undone_bytes: parts.ledger(volume).undone.0, stale_pages: 0 })
}

fn sectors(range: &Range<u64>) -> SectorRange {
    let sectors = |bytes: u64| -> Sectors { Bytes(bytes).whole_sectors() };
    SectorRange { start: Sector(sectors(range.start).0), len: sectors(range.end - range.start) }
}
