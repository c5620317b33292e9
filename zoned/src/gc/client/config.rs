//! What a client is told about its device, and what can never work.

use crate::gc::geometry::{Geometry, GeometryError};
use crate::gc::policy::{Layout, Policy};
use emulation::{Bytes, CopyMode, Limits, RequestId, Sector, Sectors, VolumeId};
use std::fmt;

/// How live pages are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// The host reads and writes them, through so many buffers, each as large as the largest write.
    Host {
        /// Moves that may be read, or wait to be written, at a time.
        buffers: u32,
    },
    /// By copy commands of many sources; the device does as its copy mode says.
    Copy,
    /// By copy commands that move no bytes, or fail.
    Remap,
}

impl fmt::Display for Movement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { .. } => write!(f, "host copy"),
            Self::Copy => write!(f, "copy command"),
            Self::Remap => write!(f, "remap"),
        }
    }
}

/// How a zone is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// The device is zoned: by a zone reset.
    Reset,
    /// Zones are the client's own idea: by a discard.
    Discard,
}

/// A client and its place on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// The volume.
    pub volume: VolumeId,
    /// Pages and zones.
    pub geometry: Geometry,
    /// Which zone is collected.
    pub policy: Policy,
    /// Which pages share a zone.
    pub layout: Layout,
    /// A page.
    pub page: Sectors,
    /// Start of the first zone; what lies before it is not touched.
    pub start: Sector,
    /// From the start of a zone to that of the next. The capacity is that of the geometry's pages.
    pub zone_size: Sectors,
    /// How pages are moved.
    pub movement: Movement,
    /// How zones are emptied.
    pub clearing: Clearing,
    /// The most requests under way.
    pub depth: u32,
    /// The most pages of the user in one write; more than one are put together while they wait.
    pub write_pages: u32,
    /// Requests have numbers from this one on, `depth` of them.
    pub first_id: RequestId,
}

/// Why a client cannot work on its volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Pages and zones.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A page that cannot be written in one request.
    #[error("page of {page}: must be a multiple of the logical block, {block}, and at most {most}")]
    Page {
        /// The page.
        page: Bytes,
        /// The logical block.
        block: Bytes,
        /// The largest write.
        most: Bytes,
    },
    /// Capacity above size.
    #[error("zones of {size} cannot hold {pages} pages of {page}")]
    ZoneSize {
        /// The size.
        size: Bytes,
        /// Pages of a zone.
        pages: u32,
        /// A page.
        page: Bytes,
    },
    /// Zones past the end.
    #[error("{zones} zones of {size} from {start} on end past the volume's {capacity}")]
    Capacity {
        /// How many.
        zones: u32,
        /// The size of each.
        size: Bytes,
        /// The start of the first.
        start: Bytes,
        /// The end of the volume.
        capacity: Bytes,
    },
    /// Nothing could ever be under way.
    #[error("{0} is 0: must be at least 1")]
    Zero(&'static str),
    /// Numbers that belong to the device.
    #[error("request numbers from {0} on: {1} of them must lie below 2^63")]
    Numbers(u64, u32),
    /// The volume takes no writes.
    #[error("the volume is read-only")]
    ReadOnly,
    /// No copy commands.
    #[error("the volume takes no copy commands (copy=off): move pages by the host")]
    CopyOff,
    /// A page is no segment.
    #[error("a copy command takes segments of at most {most}, less than a page of {page}")]
    CopyPage {
        /// The longest segment, or command.
        most: Bytes,
        /// The page.
        page: Bytes,
    },
    /// Nothing would be remapped.
    #[error(
        "pages of {page} from {start} on in zones of {size} cannot be remapped: copy={mode}, map block {block}"
    )]
    Remap {
        /// The page.
        page: Bytes,
        /// The start of the first zone.
        start: Bytes,
        /// The size of a zone.
        size: Bytes,
        /// The volume's copy mode.
        mode: &'static str,
        /// The map block.
        block: Bytes,
    },
}

impl ClientConfig {
    /// Refuses what can never work on a volume of these limits.
    ///
    /// # Errors
    /// The first reason.
    pub fn validate(&self, limits: &Limits) -> Result<(), ConfigError> {
        self.geometry.validate(self.layout)?;
        for (name, count) in [("depth", self.depth), ("write_pages", self.write_pages)] {
            if count == 0 {
                return Err(ConfigError::Zero(name));
            }
        }
        let numbers = self.first_id.0.checked_add(u64::from(self.depth));
        if numbers.is_none_or(|end| end > RequestId::INTERNAL) {
            return Err(ConfigError::Numbers(self.first_id.0, self.depth));
        }
        if limits.read_only {
            return Err(ConfigError::ReadOnly);
        }
        self.validate_space(limits)?;
        self.validate_movement(limits)
    }

    fn validate_space(&self, limits: &Limits) -> Result<(), ConfigError> {
        let block = limits.logical_block;
        let whole = |sectors: u64| sectors.is_multiple_of(block.0);
        if self.page.is_zero() || !whole(self.page.0) || self.page > limits.max_io {
            let (page, most) = (bytes(self.page), limits.max_io.bytes());
            return Err(ConfigError::Page { page, block: block.bytes(), most });
        }
        let pages = self.geometry.zone_pages;
        let used = self.page.0.checked_mul(u64::from(pages));
        if !whole(self.zone_size.0) || used.is_none_or(|used| used > self.zone_size.0) {
            return Err(ConfigError::ZoneSize { size: bytes(self.zone_size), pages, page: bytes(self.page) });
        }
        let zones = self.geometry.zones;
        let end =
            self.zone_size.0.checked_mul(u64::from(zones)).and_then(|all| all.checked_add(self.start.0));
        if !whole(self.start.0) || end.is_none_or(|end| end > limits.capacity.0) {
            let (size, start) = (bytes(self.zone_size), bytes(Sectors(self.start.0)));
            return Err(ConfigError::Capacity { zones, size, start, capacity: limits.capacity.bytes() });
        }
        Ok(())
    }

    fn validate_movement(&self, limits: &Limits) -> Result<(), ConfigError> {
        match self.movement {
            Movement::Host { buffers: 0 } => return Err(ConfigError::Zero("buffers")),
            Movement::Host { .. } => return Ok(()),
            Movement::Copy | Movement::Remap => {}
        }
        if limits.copy_mode == CopyMode::Off {
            return Err(ConfigError::CopyOff);
        }
        let most = limits.copy_max_segment_bytes.min(limits.copy_max_bytes);
        if self.page > most.whole_sectors() {
            return Err(ConfigError::CopyPage { most, page: bytes(self.page) });
        }
        let whole = |sectors: u64| sectors.is_multiple_of(limits.map_block.0);
        let aligned = whole(self.page.0) && whole(self.start.0) && whole(self.zone_size.0);
        if self.movement == Movement::Remap && !(limits.copy_mode == CopyMode::Remap && aligned) {
            return Err(ConfigError::Remap {
                page: bytes(self.page),
                start: bytes(Sectors(self.start.0)),
                size: bytes(self.zone_size),
                mode: limits.copy_mode.name(),
                block: limits.map_block.bytes(),
            });
        }
        Ok(())
    }
}

/// Of lengths that are not checked yet.
fn bytes(sectors: Sectors) -> Bytes {
    if sectors.0 > u64::MAX >> 10 { Bytes(u64::MAX) } else { sectors.bytes() }
}
