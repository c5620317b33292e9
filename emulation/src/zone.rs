//! The vocabulary of zoned volumes: what doors, logs and the layer that keeps the zones tell each other. The names and
//! numbers are those of the kernel's `struct blk_zone`.

use crate::limits::Limits;
use crate::units::{Bytes, Sector, Sectors};

/// What kind of zone it is (`enum blk_zone_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneType {
    /// Written anywhere.
    Conventional = 1,
    /// Written at its write pointer only.
    SeqwriteReq = 2,
}

/// The state of a zone (`enum blk_zone_cond`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneCondition {
    /// Conventional: it has no write pointer.
    NotWp = 0x0,
    /// Nothing is written.
    Empty = 0x1,
    /// Open since it was written.
    ImpOpen = 0x2,
    /// Open by command.
    ExpOpen = 0x3,
    /// Active, not open.
    Closed = 0x4,
    /// Not writable any more, by a failure of the device.
    Readonly = 0xd,
    /// Written to its capacity, or finished.
    Full = 0xe,
    /// Neither readable nor writable any more, by a failure of the device.
    Offline = 0xf,
}

impl ZoneCondition {
    /// Every condition.
    pub const ALL: [Self; 8] = [
        Self::NotWp,
        Self::Empty,
        Self::ImpOpen,
        Self::ExpOpen,
        Self::Closed,
        Self::Readonly,
        Self::Full,
        Self::Offline,
    ];
}

/// What a report says of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneDescriptor {
    /// First sector.
    pub start: Sector,
    /// The distance from its start to that of the next zone.
    pub len: Sectors,
    /// The sectors from its start that can be written.
    pub capacity: Sectors,
    /// Where the next write goes; the end of the zone when it is full. Without meaning for a conventional zone, where
    /// it is the end too.
    pub wp: Sector,
    /// Its kind.
    pub kind: ZoneType,
    /// Its state.
    pub condition: ZoneCondition,
}

/// How a zone fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneFailure {
    /// It becomes read-only.
    Readonly,
    /// It goes offline.
    Offline,
}

/// How a volume is divided into zones: all of one size, conventional ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneGeometry {
    /// The distance between the starts of zones (`chunk_sectors`): a power of two.
    pub size: Sectors,
    /// The sectors of a sequential zone that can be written, at most its size.
    pub capacity: Sectors,
    /// Conventional zones, at the start of the volume.
    pub conventional: u32,
    /// The most open zones (`max_open_zones`); 0 for no limit.
    pub max_open: u32,
    /// The most active zones (`max_active_zones`); 0 for no limit.
    pub max_active: u32,
    /// The longest append (`max_zone_append_sectors`).
    pub max_append: Sectors,
}

/// The size of a zone's entry in the report that the kernel asks a server for (`struct blk_zone`).
pub const REPORT_ENTRY: Bytes = Bytes(64);

/// Why a geometry can never work. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneGeometryError {
    /// Not a power of two, or smaller than the map block.
    #[error("zone-size {0} B: must be a power of two, at least the map block, {1} B")]
    Size(u64, u64),
    /// Zero, more than the zone size, or no multiple of the logical block.
    #[error(
        "zone-capacity {0} B: must be a multiple of the logical block size, not 0 and at most the zone size, {1} B"
    )]
    Capacity(u64, u64),
    /// The volume is not whole zones: Linux takes no smaller last zone from a ublk server.
    #[error("size {0} B: must be a multiple of the zone size, {1} B, and not 0")]
    Volume(u64, u64),
    /// More zones than can be numbered.
    #[error("{0} zones: at most {1}; make the zones larger")]
    Zones(u64, u64),
    /// No sequential zone is left.
    #[error("conventional-zones {0}: must be fewer than the {1} zones, as a zoned disk has a sequential one")]
    Conventional(u32, u64),
    /// A limit above the number of zones, which Linux refuses.
    #[error("{0} {1}: at most the number of zones, {2} (0 for no limit)")]
    Limit(&'static str, u32, u64),
    /// More open than active zones.
    #[error("max-open {0}: at most max-active, {1}, as every open zone is active")]
    OpenOverActive(u32, u32),
    /// Zero, longer than a zone's capacity, or no multiple of the logical block.
    #[error(
        "max-append {0} B: must be a multiple of the logical block size, not 0 and at most the zone capacity, {1} B"
    )]
    Append(u64, u64),
}

impl ZoneGeometry {
    /// The most zones of a volume: their numbers are 32 bits on the way to Linux.
    pub const ZONES_MAX: u64 = u32::MAX as u64;

    /// Zones of `size` that can be written whole, none of them conventional, without limits, and with appends of
    /// up to 1 MiB.
    pub fn new(size: Sectors) -> Self {
        let max_append = size.min(Bytes::mib(1).whole_sectors());
        Self { size, capacity: size, conventional: 0, max_open: 0, max_active: 0, max_append }
    }

    /// Refuses what could never work for a volume of these limits: what Linux's null_blk and its ublk driver refuse,
    /// and what they change in silence.
    pub fn validate(&self, limits: &Limits) -> Result<(), ZoneGeometryError> {
        let (size, capacity) = (self.size.bytes().0, self.capacity.bytes().0);
        if !size.is_power_of_two() || self.size < limits.map_block {
            return Err(ZoneGeometryError::Size(size, limits.map_block.bytes().0));
        }
        let block = limits.logical_block.0;
        if self.capacity.is_zero() || self.capacity > self.size || !self.capacity.0.is_multiple_of(block) {
            return Err(ZoneGeometryError::Capacity(capacity, size));
        }
        if limits.capacity.is_zero() || !limits.capacity.0.is_multiple_of(self.size.0) {
            return Err(ZoneGeometryError::Volume(limits.capacity.bytes().0, size));
        }
        let zones = limits.capacity.0 / self.size.0;
        if zones > Self::ZONES_MAX {
            return Err(ZoneGeometryError::Zones(zones, Self::ZONES_MAX));
        }
        if u64::from(self.conventional) >= zones {
            return Err(ZoneGeometryError::Conventional(self.conventional, zones));
        }
        for (name, most) in [("max-open", self.max_open), ("max-active", self.max_active)] {
            if u64::from(most) > zones {
                return Err(ZoneGeometryError::Limit(name, most, zones));
            }
        }
        if self.max_active != 0 && self.max_open > self.max_active {
            return Err(ZoneGeometryError::OpenOverActive(self.max_open, self.max_active));
        }
        let append = self.max_append;
        if append.is_zero() || append > self.capacity || !append.0.is_multiple_of(block) {
            return Err(ZoneGeometryError::Append(append.bytes().0, capacity));
        }
        Ok(())
    }

    /// The zones of a volume of this capacity. Validated: at most [`Self::ZONES_MAX`].
    pub fn zones(&self, volume: Sectors) -> u32 {
        u32::try_from(volume.0 / self.size.0).expect("a validated volume has fewer zones")
    }

    /// The zone that a sector lies in. The sector is one of a validated volume.
    pub fn zone_of(&self, sector: Sector) -> u32 {
        u32::try_from(sector.0 / self.size.0).expect("a validated volume has fewer zones")
    }

    /// The first sector of a zone.
    pub fn start_of(&self, zone: u32) -> Sector {
        Sector(u64::from(zone) * self.size.0)
    }

    /// The kind of a zone.
    pub fn kind_of(&self, zone: u32) -> ZoneType {
        if zone < self.conventional { ZoneType::Conventional } else { ZoneType::SeqwriteReq }
    }

    /// The bytes of a report of every zone: a request buffer of a ublk disk has to hold so many, as its driver
    /// misnumbers the zones of a report in pieces.
    pub fn report_bytes(&self, volume: Sectors) -> Bytes {
        Bytes(volume.0 / self.size.0 * REPORT_ENTRY.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 2048;

    fn limits() -> Limits {
        Limits::new(Sectors(64 * MIB), Sectors(8), Sectors(8))
    }

    fn refused(change: impl FnOnce(&mut ZoneGeometry, &mut Limits)) -> ZoneGeometryError {
        let (mut zones, mut limits) = (ZoneGeometry::new(Sectors(4 * MIB)), limits());
        zones.validate(&limits).unwrap();
        change(&mut zones, &mut limits);
        zones.validate(&limits).unwrap_err()
    }

    #[test]
    fn each_rule_of_null_blk_and_of_the_driver_refuses() {
        let mib = |n: u64| Bytes::mib(n).0;
        assert_eq!(refused(|z, _| z.size = Sectors(3 * MIB)), ZoneGeometryError::Size(mib(3), 4096));
        assert_eq!(refused(|z, _| z.size = Sectors(4)), ZoneGeometryError::Size(2048, 4096));
        assert_eq!(refused(|z, _| z.size = Sectors(0)), ZoneGeometryError::Size(0, 4096));
        assert_eq!(refused(|z, _| z.capacity = Sectors(0)), ZoneGeometryError::Capacity(0, mib(4)));
        assert_eq!(
            refused(|z, _| z.capacity = Sectors(4 * MIB + 8)),
            ZoneGeometryError::Capacity(mib(4) + 4096, mib(4))
        );
        assert_eq!(refused(|z, _| z.capacity = Sectors(9)), ZoneGeometryError::Capacity(9 * 512, mib(4)));
        assert_eq!(
            refused(|_, l| l.capacity = Sectors(63 * MIB)),
            ZoneGeometryError::Volume(mib(63), mib(4))
        );
        assert_eq!(refused(|_, l| l.capacity = Sectors(0)), ZoneGeometryError::Volume(0, mib(4)));
        assert_eq!(refused(|z, _| z.conventional = 16), ZoneGeometryError::Conventional(16, 16));
        assert_eq!(refused(|z, _| z.max_open = 17), ZoneGeometryError::Limit("max-open", 17, 16));
        assert_eq!(refused(|z, _| z.max_active = 17), ZoneGeometryError::Limit("max-active", 17, 16));
        assert_eq!(
            refused(|z, _| (z.max_open, z.max_active) = (5, 4)),
            ZoneGeometryError::OpenOverActive(5, 4)
        );
        assert_eq!(refused(|z, _| z.max_append = Sectors(0)), ZoneGeometryError::Append(0, mib(4)));
        assert_eq!(
            refused(|z, _| (z.capacity, z.max_append) = (Sectors(8), Sectors(16))),
            ZoneGeometryError::Append(8192, 4096)
        );
        assert_eq!(
            refused(|_, l| (l.capacity, l.map_block) = (Sectors((4 * MIB) << 32), Sectors(8))),
            ZoneGeometryError::Zones(1 << 32, u64::from(u32::MAX))
        );
    }

    #[test]
    fn a_report_of_20_000_zones_takes_1280_000_bytes() {
        let zones = ZoneGeometry::new(Sectors(MIB));
        assert_eq!(zones.report_bytes(Sectors(20_000 * MIB)), Bytes(1_280_000));
        assert_eq!((zones.zones(Sectors(20_000 * MIB)), zones.zone_of(Sector(MIB - 1))), (20_000, 0));
    }
}
