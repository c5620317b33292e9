//! The metadata of a pool: its volumes and their maps, in a transactional database. A commit is one transaction and
//! one sync, and writes in proportion to what changed.

mod region;

use crate::config::ZoneConfig;
use crate::units::size;
use emulation::redo::{Commit, MapChange, ZoneChange};
use emulation::zone::ZoneCondition;
use emulation::{Bytes, Sectors, VolumeId};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};
pub use region::Traffic;
use region::{Region, WholeFile};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex};

/// The format of the tables.
const FORMAT: u32 = 1;
/// Memory that the database may use to read; what a commit touches is a few pages.
const CACHE_BYTES: usize = 32 << 20;

/// One row: what the pool is.
const POOL: TableDefinition<'_, (), &[u8]> = TableDefinition::new("pool");
/// Volumes, by number.
const VOLUMES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("volumes");
/// Volume and first logical block of an extent; its length in map blocks and its first physical block.
const EXTENTS: TableDefinition<'_, (u32, u64), (u64, u64)> = TableDefinition::new("extents");
/// Volume and number of a zone that is not empty; its condition, numbered as Linux does, and its pointer in sectors from
/// its start. Pools that never had a zoned volume may lack it.
const ZONES: TableDefinition<'_, (u32, u32), (u8, u64)> = TableDefinition::new("zones");
/// One row: the last redo record that the maps contain.
const SEQUENCE: TableDefinition<'_, (), u64> = TableDefinition::new("sequence");

/// Why metadata cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// The medium fails or is full.
    #[error("{0}")]
    Io(io::Error),
    /// It is torn, or not a database.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// Written by another version.
    #[error("it has format {0}, this version knows {FORMAT}")]
    Format(u32),
}

impl<E: Into<redb::Error>> From<E> for MetaError {
    fn from(error: E) -> Self {
        match error.into() {
            redb::Error::Io(error) if error.kind() != io::ErrorKind::InvalidData => Self::Io(error),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl MetaError {
    /// The errno of a request that fails for it.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Io(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
            Self::Damaged(_) | Self::Format(_) => Errno::IO,
        }
    }
}

/// What a pool is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolRow {
    /// The format of these tables.
    pub format: u32,
    /// The identifier of the pool, which its data carries too.
    pub identifier: String,
    /// The map block of every volume.
    #[serde(with = "size")]
    pub map_block: Bytes,
    /// The number of the next new volume: none is used twice.
    pub next_volume: u32,
    /// The boot of the host in which a server has it open; `None`: it was closed.
    pub open_since: Option<String>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRow {
    /// Its name.
    pub name: String,
    /// Its size.
    #[serde(with = "size")]
    pub size: Bytes,
    /// Its logical block.
    #[serde(with = "size")]
    pub logical_block_size: Bytes,
    /// How it is divided into zones, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<ZoneConfig>,
}

/// Everything but the maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The pool.
    pub pool: PoolRow,
    /// The volumes, by number.
    pub volumes: Vec<(VolumeId, VolumeRow)>,
    /// The last redo record in the maps.
    pub sequence: u64,
}

/// Where metadata lies.
#[derive(Debug)]
pub enum Place {
    /// A file of its own.
    File(File),
    /// A region of a device.
    Region {
        /// The device.
        file: File,
        /// The first byte of the region.
        start: u64,
        /// Its bytes.
        size: u64,
    },
}

impl Place {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::File(file) => Self::File(file.try_clone()?),
            Self::Region { file, start, size } => {
                Self::Region { file: file.try_clone()?, start: *start, size: *size }
            }
        })
    }
}

/// The metadata of a pool, open.
#[derive(Debug)]
pub struct Meta {
    /// A database takes nothing more once its medium has failed: it is opened again then.
    database: Mutex<Option<Database>>,
    /// `None` for a copy.
    place: Option<Place>,
    traffic: Arc<Traffic>,
}

impl Meta {
    /// Makes the metadata of a new pool. What is at the place is overwritten.
    ///
    /// # Errors
    /// The medium fails or is full.
    pub fn create(place: Place, identifier: &str, map_block: Bytes) -> Result<Self, MetaError> {
        match &place {
            Place::File(file) => file.set_len(0).map_err(MetaError::Io)?,
            Place::Region { file, start, .. } => {
                std::os::unix::fs::FileExt::write_all_at(file, &[0; 8], *start).map_err(MetaError::Io)?;
            }
        }
        let meta = Self::at(place);
        let pool = PoolRow {
            format: FORMAT,
            identifier: identifier.to_string(),
            map_block,
            next_volume: 0,
            open_since: None,
        };
        meta.write(|transaction| {
            transaction.open_table(POOL)?.insert((), json(&pool).as_slice())?;
            transaction.open_table(SEQUENCE)?.insert((), 0)?;
            transaction.open_table(VOLUMES)?;
            transaction.open_table(EXTENTS)?;
            transaction.open_table(ZONES)?;
            Ok(())
        })?;
        Ok(meta)
    }

    /// Opens metadata, which [`Meta::look`] has verified or this host has kept in memory.
    ///
    /// # Errors
    /// It is damaged or of another format, or the medium fails.
    pub fn open(place: Place) -> Result<Self, MetaError> {
        let meta = Self::at(place);
        meta.contents()?;
        Ok(meta)
    }

    /// A copy in memory of metadata, verified to the last checksum. What was copied stays as it is.
    ///
    /// # Errors
    /// See [`Meta::open`].
    pub fn look(place: Place) -> Result<Self, MetaError> {
        let mut bytes = Vec::new();
        match place {
            Place::File(mut file) => drop(file.read_to_end(&mut bytes).map_err(MetaError::Io)?),
            Place::Region { file, start, size } => {
                let region = Region { file, start, size, traffic: Arc::default() };
                bytes = region.bytes().map_err(MetaError::Io)?;
            }
        }
        let backend = redb::backends::InMemoryBackend::new();
        redb::StorageBackend::set_len(&backend, bytes.len() as u64).map_err(MetaError::Io)?;
        redb::StorageBackend::write(&backend, 0, &bytes).map_err(MetaError::Io)?;
        let database = builder().set_check_integrity_on_open(true).create_with_backend(backend)?;
        let meta = Self { database: Mutex::new(Some(database)), place: None, traffic: Arc::default() };
        meta.contents()?;
        Ok(meta)
    }

    fn at(place: Place) -> Self {
        Self { database: Mutex::new(None), place: Some(place), traffic: Arc::default() }
    }

    /// Calls `f` with the database, opened where it is not.
    fn with<R>(&self, f: impl FnOnce(&Database) -> Result<R, MetaError>) -> Result<R, MetaError> {
        let mut database = self.database.lock().expect("a panic ends the process");
        let open = match database.take() {
            Some(open) => open,
            None => self.database()?,
        };
        let result = f(&open);
        if result.is_ok() {
            *database = Some(open);
        }
        result
    }

    fn database(&self) -> Result<Database, MetaError> {
        let place = self.place.as_ref().ok_or_else(|| damaged("the copy"))?;
        let traffic = Arc::clone(&self.traffic);
        Ok(match place.try_clone().map_err(MetaError::Io)? {
            Place::File(file) => builder().create_with_backend(WholeFile { file, traffic })?,
            Place::Region { file, start, size } => {
                builder().create_with_backend(Region { file, start, size, traffic })?
            }
        })
    }

    /// One transaction, durable when it returns.
    fn write<R>(&self, f: impl FnOnce(&WriteTransaction) -> Result<R, MetaError>) -> Result<R, MetaError> {
        self.with(|database| {
            let mut transaction = database.begin_write()?;
            transaction
                .set_durability(Durability::Immediate)
                .map_err(|error| MetaError::Damaged(error.to_string()))?;
            let result = f(&transaction)?;
            transaction.commit()?;
            Ok(result)
        })
    }

    /// What was asked of the medium so far.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Everything but the maps.
    ///
    /// # Errors
    /// It is damaged or of another format.
    pub fn contents(&self) -> Result<Contents, MetaError> {
        self.with(contents)
    }

    /// Hands every extent of every map to `each`, in order, in map blocks.
    ///
    /// # Errors
    /// It is damaged.
    pub fn extents(&self, mut each: impl FnMut(MapChange)) -> Result<(), MetaError> {
        self.with(|database| {
            let transaction = database.begin_read()?;
            for row in transaction.open_table(EXTENTS)?.iter()? {
                let (key, value) = row?;
                let ((volume, start), (len, physical)) = (key.value(), value.value());
                let end = start.checked_add(len).ok_or_else(|| damaged("an extent without end"))?;
                each(MapChange { volume: VolumeId(volume), logical: start..end, physical: Some(physical) });
            }
            Ok(())
        })
    }

    /// The zones that are not empty, in order.
    ///
    /// # Errors
    /// It is damaged.
    pub fn zones(&self) -> Result<Vec<ZoneChange>, MetaError> {
        self.with(|database| {
            let table = match database.begin_read()?.open_table(ZONES) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                other => other?,
            };
            let mut zones = Vec::new();
            for row in table.iter()? {
                let (key, value) = row?;
                let ((volume, zone), (condition, wp)) = (key.value(), value.value());
                let condition = ZoneCondition::ALL.into_iter().find(|known| *known as u8 == condition);
                let condition =
                    condition.ok_or_else(|| damaged("a zone in a condition that there is not"))?;
                zones.push(ZoneChange { volume: VolumeId(volume), zone, condition, wp: Sectors(wp) });
            }
            Ok(zones)
        })
    }

    /// Makes these zones durable, all or none.
    ///
    /// # Errors
    /// The medium fails or is full.
    pub fn set_zones(&self, zones: &[ZoneChange]) -> Result<(), MetaError> {
        self.write(|transaction| apply_zones(transaction, &[], zones))
    }

    /// Says that a server has the pool open, in which boot of the host, or that it closed it.
    ///
    /// # Errors
    /// The medium fails or is full.
    pub fn set_open(&self, since: Option<&str>) -> Result<(), MetaError> {
        self.change_pool(|pool, _| {
            pool.open_since = since.map(str::to_string);
            Ok(())
        })
    }

    /// Makes a volume durable and gives its number.
    ///
    /// # Errors
    /// The medium fails or is full.
    pub fn add_volume(&self, row: &VolumeRow) -> Result<VolumeId, MetaError> {
        self.change_pool(|pool, transaction| {
            let id = pool.next_volume;
            pool.next_volume += 1;
            transaction.open_table(VOLUMES)?.insert(id, json(row).as_slice())?;
            Ok(VolumeId(id))
        })
    }

    /// Makes it durable that a volume is gone.
    ///
    /// # Errors
    /// The medium fails or is full.
    pub fn remove_volume(&self, id: VolumeId) -> Result<(), MetaError> {
        self.write(|transaction| {
            transaction.open_table(VOLUMES)?.remove(id.0)?;
            transaction.open_table(EXTENTS)?.retain_in((id.0, 0)..=(id.0, u64::MAX), |_, _| false)?;
            apply_zones(transaction, &[id], &[])
        })
    }

    fn change_pool<R>(
        &self,
        change: impl FnOnce(&mut PoolRow, &WriteTransaction) -> Result<R, MetaError>,
    ) -> Result<R, MetaError> {
        self.write(|transaction| {
            let mut table = transaction.open_table(POOL)?;
            let mut pool: PoolRow = row_of(table.get(())?.ok_or_else(|| damaged("no pool"))?.value())?;
            let result = change(&mut pool, transaction)?;
            table.insert((), json(&pool).as_slice())?;
            Ok(result)
        })
    }

    /// Makes the changes of the maps and of the zones durable, all or none.
    ///
    /// # Errors
    /// The medium fails or is full. Whether the commit is durable all the same nobody knows.
    pub fn commit(&self, commit: &Commit) -> Result<(), MetaError> {
        self.write(|transaction| {
            let mut extents = transaction.open_table(EXTENTS)?;
            for id in &commit.removed {
                extents.retain_in((id.0, 0)..=(id.0, u64::MAX), |_, _| false)?;
            }
            for change in &commit.changes {
                apply(&mut extents, change)?;
            }
            transaction.open_table(SEQUENCE)?.insert((), commit.sequence)?;
            apply_zones(transaction, &commit.removed, &commit.zones)
        })
    }
}

fn apply_zones(
    transaction: &WriteTransaction,
    removed: &[VolumeId],
    changes: &[ZoneChange],
) -> Result<(), MetaError> {
    if removed.is_empty() && changes.is_empty() {
        return Ok(());
    }
    let mut table = transaction.open_table(ZONES)?;
    for id in removed {
        table.retain_in((id.0, 0)..=(id.0, u32::MAX), |_, _| false)?;
    }
    for change in changes {
        let key = (change.volume.0, change.zone);
        match change.condition {
            ZoneCondition::Empty => drop(table.remove(key)?),
            condition => drop(table.insert(key, (condition as u8, change.wp.0))?),
        }
    }
    Ok(())
}

fn contents(database: &Database) -> Result<Contents, MetaError> {
    let transaction = database.begin_read()?;
    let pool: PoolRow = {
        let row = transaction.open_table(POOL)?.get(())?;
        row_of(row.ok_or_else(|| damaged("no pool"))?.value())?
    };
    if pool.format != FORMAT {
        return Err(MetaError::Format(pool.format));
    }
    let sequence = transaction.open_table(SEQUENCE)?.get(())?;
    let sequence = sequence.ok_or_else(|| damaged("no sequence"))?.value();
    let mut volumes = Vec::new();
    for row in transaction.open_table(VOLUMES)?.iter()? {
        let (id, row) = row?;
        if id.value() >= pool.next_volume {
            return Err(damaged("a volume with a number that was never given"));
        }
        volumes.push((VolumeId(id.value()), row_of(row.value())?));
    }
    Ok(Contents { pool, volumes, sequence })
}

/// Puts a change of a map into the table: what lay there goes, parts beside it stay, and what continues a neighbour is
/// joined with it.
fn apply(extents: &mut Table<'_, (u32, u64), (u64, u64)>, change: &MapChange) -> Result<(), MetaError> {
    let volume = change.volume.0;
    let (start, end) = (change.logical.start, change.logical.end);
    let (mut first, mut last) = (start, end);
    let mut physical = change.physical;
    let before = extents.range((volume, 0)..(volume, start))?.next_back().transpose()?;
    let before = before.map(|(key, value)| (key.value().1, value.value()));
    if let Some((at, (len, place))) = before {
        if at + len > start {
            extents.insert((volume, at), (start - at, place))?;
            if at + len > end {
                extents.insert((volume, end), (at + len - end, place + (end - at)))?;
            }
        }
        let continued = at + len >= start && physical == Some(place + (start - at));
        if continued {
            (first, physical) = (at, Some(place));
        }
    }
    let mut inside = Vec::new();
    for row in extents.range((volume, start)..=(volume, end))? {
        let (key, value) = row?;
        inside.push((key.value().1, value.value()));
    }
    for (at, (len, place)) in inside {
        if at == end {
            let continues = physical.is_some_and(|physical| physical + (end - first) == place);
            if continues {
                extents.remove((volume, at))?;
                last = at + len;
            }
            continue;
        }
        extents.remove((volume, at))?;
        if at + len > end {
            extents.insert((volume, end), (at + len - end, place + (end - at)))?;
        }
    }
    if let Some(physical) = physical {
        extents.insert((volume, first), (last - first, physical))?;
    }
    Ok(())
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn damaged(what: &str) -> MetaError {
    MetaError::Damaged(what.to_string())
}

fn json(row: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(row).expect("a row has a JSON form")
}

fn row_of<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MetaError> {
    serde_json::from_slice(bytes).map_err(|error| MetaError::Damaged(error.to_string()))
}

#[cfg(test)]
mod tests;
