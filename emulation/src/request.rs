//! What can be asked of a disk.

use crate::units::{Sector, SectorRange, Sectors};
use smallvec::SmallVec;

/// A request's number, chosen by its door. A door never uses a number again while its request lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl RequestId {
    /// Numbers from here on belong to the device: its own write-back and trimming. A door uses lower ones.
    pub const INTERNAL: u64 = 1 << 63;

    /// True when the device itself made the request: its answer goes to nobody.
    pub const fn is_internal(self) -> bool {
        self.0 >= Self::INTERNAL
    }
}

/// A volume of the pool. An index: layers keep their state in vectors by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

impl VolumeId {
    /// No volume: the ledger of the device's own work names it.
    pub const POOL: Self = Self(u32::MAX);

    /// Its place in a layer's vector.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Modifiers of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Durable before it completes.
    pub const FUA: Self = Self(1);
    /// Write zeroes without giving the blocks back.
    pub const NOUNMAP: Self = Self(2);
    /// A copy that moves no bytes, or fails (NVMe FCO).
    pub const FAST_ONLY: Self = Self(4);
    /// Write at the zone's write pointer: the range, or each destination of a copy, names the start of the zone.
    pub const APPEND: Self = Self(8);
    /// A copy whose ranges may overlap: an overlapped block ends with old data or that of a contributing source.
    pub const MAY_OVERLAP: Self = Self(16);
    /// A part of a request that the device carries out by itself: its data does not take the link to the host.
    pub const INSIDE: Self = Self(32);

    /// True when every flag of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags, without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl std::ops::BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number.
    pub id: RequestId,
    /// The volume it is for; for a copy, the destination's.
    pub volume: VolumeId,
    /// What to do.
    pub op: Op,
    /// How.
    pub flags: Flags,
}

/// An operation. Layers match it exhaustively: a new one breaks the build of each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read into the door's buffer.
    Read(SectorRange),
    /// Write from the door's buffer.
    Write(SectorRange),
    /// Make what was answered so far durable.
    Flush,
    /// The contents are not needed any more; they read as zeroes here.
    Discard(SectorRange),
    /// Write zeroes.
    WriteZeroes(SectorRange),
    /// Copy without the door seeing the bytes.
    Copy(CopyCommand),
    /// Change the condition of a zone.
    ZoneMgmt {
        /// First sector of the zone.
        zone: Sector,
        /// The change.
        action: ZoneAction,
    },
    /// Reset every zone that is neither empty, read-only nor offline.
    ZoneResetAll,
    /// Describe zones.
    ReportZones {
        /// First sector of the first zone.
        from: Sector,
        /// The most zones to describe.
        max: u32,
    },
}

impl Op {
    /// The command, when it is a copy.
    pub fn copy(&self) -> Option<&CopyCommand> {
        match self {
            Self::Copy(command) => Some(command),
            Self::Read(_)
            | Self::Write(_)
            | Self::Flush
            | Self::Discard(_)
            | Self::WriteZeroes(_)
            | Self::ZoneMgmt { .. }
            | Self::ZoneResetAll
            | Self::ReportZones { .. } => None,
        }
    }
}

/// A change of a zone's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// Open explicitly.
    Open,
    /// Close.
    Close,
    /// Move to full.
    Finish,
    /// Move to empty.
    Reset,
}

/// A copy command in its neutral form: what every wire shape is translated to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyCommand {
    /// What to copy, in order. Ends with an error at the lowest index that could not be copied whole.
    pub segments: SmallVec<[CopySegment; 1]>,
}

impl CopyCommand {
    /// The sectors of all segments together, or `None` past 2^64.
    pub fn total(&self) -> Option<Sectors> {
        self.segments.iter().try_fold(0u64, |sum, segment| sum.checked_add(segment.source.len.0)).map(Sectors)
    }

    /// Puts the segments one behind the other, from `at` on.
    pub fn place(&mut self, at: Sector) {
        let mut next = at;
        for segment in &mut self.segments {
            segment.destination = next;
            next = next + segment.source.len;
        }
    }
}

/// One run of sectors to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySegment {
    /// The volume to copy from, of the same pool.
    pub source_volume: VolumeId,
    /// The sectors to copy.
    pub source: SectorRange,
    /// Where the first of them goes, on the request's volume.
    pub destination: Sector,
}

impl CopySegment {
    /// The sectors it writes. Validated bounds keep the end below 2^64.
    pub fn destination_range(&self) -> SectorRange {
        SectorRange { start: self.destination, len: self.source.len }
    }
}
