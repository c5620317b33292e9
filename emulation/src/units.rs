//! Units as types. The core speaks 512-byte sectors, as the block layer does; bytes exist at the edges and
//! logical block addresses only in the NVMe door. Every shift by [`SECTOR_SHIFT`] of the workspace is here.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// log2 of the sector size.
pub const SECTOR_SHIFT: u32 = 9;
/// Bytes in a sector.
pub const SECTOR_SIZE: u64 = 1 << SECTOR_SHIFT;

/// A count of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// The whole sectors in it, or `None` when it is not a multiple of a sector.
    pub const fn sectors(self) -> Option<Sectors> {
        if self.0 & (SECTOR_SIZE - 1) == 0 { Some(Sectors(self.0 >> SECTOR_SHIFT)) } else { None }
    }

    /// The whole sectors in it; a remainder is dropped.
    pub const fn whole_sectors(self) -> Sectors {
        Sectors(self.0 >> SECTOR_SHIFT)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >= 1 << shift && self.0 & ((1 << shift) - 1) == 0 {
                return write!(f, "{} {unit}", self.0 >> shift);
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// A count of 512-byte sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sectors(pub u64);

impl Sectors {
    /// No sectors.
    pub const ZERO: Self = Self(0);

    /// The same length in bytes. Panics past 2^64 bytes, which no checked length reaches.
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0 * SECTOR_SIZE)
    }

    /// True for no sectors.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add for Sectors {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Sectors {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Sectors {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

/// An address on a volume, in sectors from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sector(pub u64);

impl Sector {
    /// The distance from the start of the volume in bytes.
    pub const fn bytes(self) -> Bytes {
        Sectors(self.0).bytes()
    }
}

impl Add<Sectors> for Sector {
    type Output = Self;
    fn add(self, len: Sectors) -> Self {
        Self(self.0 + len.0)
    }
}

impl Sub for Sector {
    type Output = Sectors;
    fn sub(self, other: Self) -> Sectors {
        Sectors(self.0 - other.0)
    }
}

/// An address in the store, in sectors from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhysSector(pub u64);

impl PhysSector {
    /// The distance from the start of the store in bytes.
    pub const fn bytes(self) -> Bytes {
        Sectors(self.0).bytes()
    }
}

impl Add<Sectors> for PhysSector {
    type Output = Self;
    fn add(self, len: Sectors) -> Self {
        Self(self.0 + len.0)
    }
}

/// A run of sectors on a volume. Its end never passes 2^64 sectors when made by [`SectorRange::new`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectorRange {
    /// First sector.
    pub start: Sector,
    /// Number of sectors; 0 is an empty range.
    pub len: Sectors,
}

impl SectorRange {
    /// `len` sectors from `start`, or `None` when the end passes 2^64.
    pub const fn new(start: Sector, len: Sectors) -> Option<Self> {
        if start.0.checked_add(len.0).is_some() { Some(Self { start, len }) } else { None }
    }

    /// The sectors from `start` up to, not including, `end`. Panics when `end` lies before `start`.
    pub fn between(start: Sector, end: Sector) -> Self {
        Self { start, len: end - start }
    }

    /// The first sector after the range.
    pub fn end(self) -> Sector {
        self.start + self.len
    }

    /// True for no sectors.
    pub fn is_empty(self) -> bool {
        self.len.is_zero()
    }

    /// True when the two have a sector in common. An empty range overlaps nothing.
    pub fn overlaps(self, other: Self) -> bool {
        self.intersection(other).is_some()
    }

    /// The sectors that both have, or `None` for none.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let end = self.end().min(other.end());
        (start < end).then(|| Self::between(start, end))
    }

    /// True when every sector of `other` is in this range.
    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// The first `len` sectors (all when it has fewer) and the rest.
    pub fn split_at(self, len: Sectors) -> (Self, Self) {
        let len = len.min(self.len);
        (Self { start: self.start, len }, Self { start: self.start + len, len: self.len - len })
    }
}

impl fmt::Display for SectorRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start.0, self.len.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64) -> SectorRange {
        SectorRange::new(Sector(start), Sectors(len)).unwrap()
    }

    #[test]
    fn a_range_may_end_at_the_last_address_but_not_pass_it() {
        assert!(SectorRange::new(Sector(u64::MAX), Sectors(0)).is_some());
        assert!(SectorRange::new(Sector(u64::MAX), Sectors(1)).is_none());
    }

    #[test]
    fn overlap_is_exact_at_the_borders() {
        assert!(range(0, 8).overlaps(range(7, 1)));
        assert!(!range(0, 8).overlaps(range(8, 1)));
        assert!(!range(4, 0).overlaps(range(0, 8)));
        assert_eq!(range(0, 8).intersection(range(4, 8)), Some(range(4, 4)));
    }

    #[test]
    fn bytes_that_are_no_sectors_are_refused() {
        assert_eq!(Bytes(1024).sectors(), Some(Sectors(2)));
        assert_eq!(Bytes(1023).sectors(), None);
        assert_eq!(Bytes(1023).whole_sectors(), Sectors(1));
        assert_eq!(Bytes::mib(3).to_string(), "3 MiB");
        assert_eq!(Bytes(513).to_string(), "513 B");
    }
}
