//! What a volume takes, and the refusal of everything else before anything changes.

use crate::request::{CopyCommand, Flags, Op, Request, VolumeId};
use crate::status::BlkStatus;
use crate::units::{Bytes, SECTOR_SIZE, SectorRange, Sectors};
use crate::zone::{ZoneGeometry, ZoneGeometryError};

/// How a copy is carried out. Live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyMode {
    /// By sharing blocks where the alignment allows, else by moving bytes.
    Remap,
    /// By moving bytes inside the store.
    Memcpy,
    /// By inner reads and writes through a bounce buffer, as a target without copy would.
    Emulate,
    /// Refused.
    Off,
}

impl CopyMode {
    /// Every mode, for tables and messages.
    pub const ALL: [Self; 4] = [Self::Remap, Self::Memcpy, Self::Emulate, Self::Off];

    /// Its name on the command line and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Remap => "remap",
            Self::Memcpy => "memcpy",
            Self::Emulate => "emulate",
            Self::Off => "off",
        }
    }
}

/// The geometry and the limits of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Its size; a multiple of the map block.
    pub capacity: Sectors,
    /// The logical block: every range is a multiple of it.
    pub logical_block: Sectors,
    /// The map block, which is the physical block: a power of two from the logical block to 64 KiB.
    pub map_block: Sectors,
    /// Writes are refused.
    pub read_only: bool,
    /// The most sectors of one read or write.
    pub max_io: Sectors,
    /// How copies are carried out.
    pub copy_mode: CopyMode,
    /// The most bytes of a copy command (NVMe MCL).
    pub copy_max_bytes: Bytes,
    /// The most bytes of one segment (NVMe MSSRL).
    pub copy_max_segment_bytes: Bytes,
    /// The most segments of a command (NVMe MSRC + 1).
    pub copy_max_segments: u32,
    /// How it is divided into zones, for a zoned volume.
    pub zones: Option<ZoneGeometry>,
}

/// The most logical blocks of a segment under any setting: NVMe's MSSRL has 16 bits.
pub const SEGMENT_BLOCKS_MAX: u64 = 65_535;
/// The most segments under any setting: NVMe's NR has 8 bits.
pub const SEGMENTS_MAX: u32 = 256;
/// The largest map block.
pub const MAP_BLOCK_MAX: Bytes = Bytes::kib(64);

/// Why limits can never work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// Not a power of two between 512 bytes and 4 KiB.
    #[error("logical block size {0} B: must be 512, 1024, 2048 or 4096")]
    LogicalBlock(u64),
    /// Not a power of two between the logical block and 64 KiB.
    #[error("map block {0} B: must be a power of two from the logical block size to 65536")]
    MapBlock(u64),
    /// Zero or not a multiple of the map block.
    #[error("size {0} B: must be a multiple of the map block, {1} B, and not 0")]
    Capacity(u64, u64),
    /// Zero, or no multiple of the logical block.
    #[error(
        "{0} {1}: must be a multiple of the logical block size and not 0 (copies are switched off by copy=off)"
    )]
    CopyBytes(&'static str, u64),
    /// A segment limit above what any command can carry.
    #[error("copy-max-segment-bytes {0}: at most {1} ({SEGMENT_BLOCKS_MAX} logical blocks)")]
    SegmentTooLong(u64, u64),
    /// Zero or too many segments.
    #[error("copy-max-segments {0}: must be from 1 to {SEGMENTS_MAX}")]
    Segments(u32),
    /// The zones can never work.
    #[error(transparent)]
    Zones(#[from] ZoneGeometryError),
}

impl Limits {
    /// The limits of a new disk of `capacity` with the given blocks: copy by remap, 128 MiB a command in at most
    /// 128 segments of 16 MiB.
    pub fn new(capacity: Sectors, logical_block: Sectors, map_block: Sectors) -> Self {
        Self {
            capacity,
            logical_block,
            map_block,
            read_only: false,
            max_io: Bytes::mib(1).whole_sectors(),
            copy_mode: CopyMode::Remap,
            copy_max_bytes: Bytes::mib(128),
            copy_max_segment_bytes: Bytes::mib(16),
            copy_max_segments: 128,
            zones: None,
        }
    }

    /// Refuses what could never work.
    pub fn validate(&self) -> Result<(), LimitsError> {
        let logical = self.logical_block.bytes().0;
        if !logical.is_power_of_two() || !(SECTOR_SIZE..=4096).contains(&logical) {
            return Err(LimitsError::LogicalBlock(logical));
        }
        let map = self.map_block.bytes().0;
        if !map.is_power_of_two() || !(logical..=MAP_BLOCK_MAX.0).contains(&map) {
            return Err(LimitsError::MapBlock(map));
        }
        if self.capacity.is_zero() || !self.capacity.0.is_multiple_of(self.map_block.0) {
            return Err(LimitsError::Capacity(self.capacity.bytes().0, map));
        }
        for (name, bytes) in [
            ("copy-max-bytes", self.copy_max_bytes.0),
            ("copy-max-segment-bytes", self.copy_max_segment_bytes.0),
        ] {
            if bytes == 0 || !bytes.is_multiple_of(logical) {
                return Err(LimitsError::CopyBytes(name, bytes));
            }
        }
        let most = SEGMENT_BLOCKS_MAX * logical;
        if self.copy_max_segment_bytes.0 > most {
            return Err(LimitsError::SegmentTooLong(self.copy_max_segment_bytes.0, most));
        }
        if !(1..=SEGMENTS_MAX).contains(&self.copy_max_segments) {
            return Err(LimitsError::Segments(self.copy_max_segments));
        }
        self.zones.map_or(Ok(()), |zones| zones.validate(self).map_err(LimitsError::from))
    }
}

/// Refuses a request that its volume does not take, before anything changes.
pub fn admit<'a>(
    limits: impl Fn(VolumeId) -> Option<&'a Limits>,
    request: &Request,
) -> Result<(), BlkStatus> {
    let own = limits(request.volume).ok_or(BlkStatus::NoVolume)?;
    match &request.op {
        Op::Read(range) => admit_io(own, *range),
        Op::Write(range) => {
            writable(own)?;
            admit_io(own, *range)
        }
        Op::Discard(range) | Op::WriteZeroes(range) => {
            writable(own)?;
            admit_range(own, *range)
        }
        Op::Copy(command) => {
            writable(own)?;
            admit_copy(limits, own, request, command)
        }
        Op::Flush | Op::ReportZones { .. } => Ok(()),
        Op::ZoneMgmt { .. } | Op::ZoneResetAll => writable(own),
    }
}

fn writable(limits: &Limits) -> Result<(), BlkStatus> {
    if limits.read_only { Err(BlkStatus::ReadOnly) } else { Ok(()) }
}

fn admit_io(limits: &Limits, range: SectorRange) -> Result<(), BlkStatus> {
    admit_range(limits, range)?;
    if range.len > limits.max_io { Err(BlkStatus::Inval) } else { Ok(()) }
}

fn admit_range(limits: &Limits, range: SectorRange) -> Result<(), BlkStatus> {
    let block = limits.logical_block.0;
    if range.is_empty() || !range.start.0.is_multiple_of(block) || !range.len.0.is_multiple_of(block) {
        return Err(BlkStatus::Inval);
    }
    let end = range.start.0.checked_add(range.len.0).ok_or(BlkStatus::OutOfRange)?;
    if end > limits.capacity.0 { Err(BlkStatus::OutOfRange) } else { Ok(()) }
}

fn admit_copy<'a>(
    limits: impl Fn(VolumeId) -> Option<&'a Limits>,
    own: &Limits,
    request: &Request,
    command: &CopyCommand,
) -> Result<(), BlkStatus> {
    if own.copy_mode == CopyMode::Off {
        return Err(BlkStatus::NotSupp);
    }
    let count = command.segments.len();
    if count == 0 {
        return Err(BlkStatus::Inval);
    }
    if count > own.copy_max_segments as usize {
        return Err(BlkStatus::CopyMaxSegments);
    }
    let segment_max = own.copy_max_segment_bytes.whole_sectors();
    for segment in &command.segments {
        let source = limits(segment.source_volume).ok_or(BlkStatus::NoVolume)?;
        if source.logical_block != own.logical_block {
            return Err(BlkStatus::CopyIncompatible);
        }
        if segment.source.len > segment_max {
            return Err(BlkStatus::CopyMaxSegmentBytes);
        }
        admit_range(source, segment.source)?;
        admit_range(own, segment.destination_range())?;
    }
    let total = command.total().ok_or(BlkStatus::CopyMaxBytes)?;
    if total > own.copy_max_bytes.whole_sectors() {
        return Err(BlkStatus::CopyMaxBytes);
    }
    // Where a copy is appended is not known yet.
    let placed = !request.flags.has(Flags::APPEND);
    if placed { admit_overlap(request, command) } else { Ok(()) }
}

/// Refuses a copy whose ranges overlap where that is not permitted.
pub fn admit_overlap(request: &Request, command: &CopyCommand) -> Result<(), BlkStatus> {
    if !request.flags.has(Flags::MAY_OVERLAP) && overlaps(request.volume, command) {
        return Err(BlkStatus::CopyOverlap);
    }
    Ok(())
}

/// True when a destination range of the command has a sector in common with a source range on the same volume
/// or with another destination range. Sources may overlap each other. No range is empty, none passes 2^64.
pub fn overlaps(volume: VolumeId, command: &CopyCommand) -> bool {
    let mut destinations: Vec<SectorRange> = command.segments.iter().map(|s| s.destination_range()).collect();
    destinations.sort_unstable();
    if destinations.windows(2).any(|pair| pair[0].overlaps(pair[1])) {
        return true;
    }
    // Sorted and disjoint by now: the only candidate that begins before a source's end is the last such one.
    command.segments.iter().filter(|segment| segment.source_volume == volume).any(|segment| {
        let below = destinations.partition_point(|range| range.start < segment.source.end());
        below > 0 && destinations[below - 1].overlaps(segment.source)
    })
}

#[cfg(test)]
mod tests;
