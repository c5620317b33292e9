//! A pool as its metadata and its redo log have it.

use super::meta::{Contents, Meta, MetaError, VolumeRow};
use super::redo::{self, Owner};
use emulation::limits::LimitsError;
use emulation::redo::{Image, ZoneChange};
use emulation::{Bytes, Limits};
use std::io;
use std::path::Path;

/// The redo log in the shared directory of a pool.
pub const LOG: &str = "redo";

/// How the last server of a pool ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It closed the pool, or there was none.
    Closed,
    /// It died; so many changes since the last commit are in the redo log.
    Died(u64),
    /// It died, and the redo log is gone: the volumes are as of the last commit.
    LogLost,
    /// The host went down: the volumes are as of the last commit.
    HostWentDown,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Died(records) => write!(f, "its server died; {records} changes are in the redo log"),
            Self::LogLost => f.write_str("its server died and the redo log is gone; as of the last flush"),
            Self::HostWentDown => f.write_str("the host went down; as of the last flush"),
        }
    }
}

/// Why a pool cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The metadata.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// The limits of a volume.
    #[error("a volume in it could not be: {0}")]
    Limits(#[from] LimitsError),
    /// The redo log.
    #[error("the redo log cannot be read: {0}")]
    Log(#[from] io::Error),
}

/// What was found.
#[derive(Debug)]
pub struct Loaded {
    /// The pool and its volumes.
    pub contents: Contents,
    /// What it goes on from.
    pub image: Image,
    /// How its last server ended.
    pub ended: Ended,
    /// Of the zones of the image those that its last server had open and the metadata has as open: whoever goes on
    /// writes them down as closed.
    pub closed: Vec<ZoneChange>,
}

/// Reads all of it; changes nothing. `shared` is the directory of the pool in shared memory.
///
/// # Errors
/// See [`LoadError`].
pub fn load(meta: &Meta, shared: &Path, owner: &Owner) -> Result<Loaded, LoadError> {
    let contents = meta.contents()?;
    let block = contents.pool.map_block;
    let volumes = contents.volumes.iter().map(|(id, row)| Ok((*id, limits(row, block)?)));
    let volumes = volumes.collect::<Result<_, LimitsError>>()?;
    let zones = meta.zones()?;
    let mut image = Image { volumes, sequence: contents.sequence, zones, ..Image::default() };
    meta.extents(|extent| image.entries.push(extent))?;
    let ended = match &contents.pool.open_since {
        None => Ended::Closed,
        Some(boot) if *boot != owner.boot => Ended::HostWentDown,
        Some(_) => match redo::read(&shared.join(LOG), owner, image.sequence)? {
            Some(records) => {
                let changes = records.len();
                (image.records, image.zone_records) = (records.maps, records.zones);
                Ended::Died(changes)
            }
            None => Ended::LogLost,
        },
    };
    let mut closed = Vec::new();
    if !matches!(ended, Ended::Died(_)) {
        for zone in &mut image.zones {
            let after = zone.after_power_loss();
            if after != *zone {
                *zone = after;
                closed.push(after);
            }
        }
    }
    Ok(Loaded { contents, image, ended, closed })
}

/// The geometry of a volume, with limits that are set when it becomes a disk.
///
/// # Errors
/// Its zones could not be.
pub fn limits(row: &VolumeRow, map_block: Bytes) -> Result<Limits, LimitsError> {
    let block = map_block.whole_sectors();
    let mut limits = Limits::new(row.size.whole_sectors(), row.logical_block_size.whole_sectors(), block);
    limits.zones = row.zones.as_ref().map(|zones| zones.geometry(block)).transpose()?;
    limits.zones.map_or(Ok(()), |zones| zones.validate(&limits))?;
    Ok(limits)
}
