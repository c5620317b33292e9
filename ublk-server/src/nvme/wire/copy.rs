//! The lists that Copy and Dataset Management carry (NVM Command Set Specification).

use super::command::Sqe;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A source range of Copy, formats 0h and 2h. Format 0h has no namespace and no options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CopyRange {
    /// Format 2h: source namespace; else reserved.
    pub snsid: U32,
    /// Reserved.
    pub reserved4: U32,
    /// First block.
    pub slba: U64,
    /// Number of blocks, counted from 0.
    pub nlb: U16,
    /// Command extension type.
    pub cetype: u8,
    /// Reserved.
    pub reserved19: u8,
    /// Command extension value.
    pub cev: U16,
    /// Format 2h: source options; else reserved.
    pub sopt: U16,
    /// Expected logical block tags, unused without protection information.
    pub tags: [u8; 8],
}
const _: () = assert!(size_of::<CopyRange>() == 32);

impl CopyRange {
    /// Source option: copy fast or fail (format 2h).
    pub const FCO: u16 = 1 << 15;

    /// `blocks` blocks from `slba` on, at most 65,536; from namespace `snsid` in format 2h, 0 in format 0h.
    pub fn new(snsid: u32, slba: u64, blocks: u32) -> Self {
        let mut range: Self = super::zeroed();
        range.snsid = U32::new(snsid);
        range.slba = U64::new(slba);
        let [low, high, ..] = blocks.wrapping_sub(1).to_le_bytes();
        range.nlb = U16::from_bytes([low, high]);
        range
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        u64::from(self.nlb.get()) + 1
    }
}

/// The descriptor formats of Copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    /// Format 0h: ranges of the destination's namespace.
    Same,
    /// Format 2h: ranges of any namespace.
    Cross,
}

impl CopyFormat {
    /// The formats as OCFS names them: bit n for format n.
    pub const OCFS: u16 = 1 << 0 | 1 << 2;
    /// The bits of Copy Descriptor Formats Enable (Host Behavior Support) that change something here.
    pub const CDFE: u16 = 1 << 2;

    /// A format that is supported. Formats 1h and 3h are for 64-bit guards, which no namespace here has.
    pub const fn of(desfmt: u8) -> Option<Self> {
        match desfmt {
            0 => Some(Self::Same),
            2 => Some(Self::Cross),
            _ => None,
        }
    }

    /// The number on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Same => 0,
            Self::Cross => 2,
        }
    }
}

/// The fields of Copy in command dword 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFields {
    /// Number of ranges.
    pub ranges: u32,
    /// The descriptor format, as it came.
    pub desfmt: u8,
}

impl CopyFields {
    /// Those of a command.
    pub fn of(sqe: &Sqe) -> Self {
        let [nr, format, ..] = sqe.cdw12.to_bytes();
        Self { ranges: u32::from(nr) + 1, desfmt: format & 0xf }
    }

    /// Puts them into command dword 12.
    pub fn put(self, sqe: &mut Sqe) {
        let nr = self.ranges.wrapping_sub(1) & 0xff;
        let kept = sqe.cdw12.get() & !0xfff;
        sqe.cdw12 = U32::new(kept | nr | u32::from(self.desfmt & 0xf) << 8);
    }

    /// The length of the list in bytes.
    pub fn bytes(self) -> u32 {
        self.ranges * 32
    }
}

/// The most ranges of one Copy or Dataset Management command.
pub const RANGES_MAX: u32 = 256;

/// A range of Dataset Management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DsmRange {
    /// Context attributes: hints.
    pub cattr: U32,
    /// Number of blocks, counted from 1.
    pub nlb: U32,
    /// First block.
    pub slba: U64,
}
const _: () = assert!(size_of::<DsmRange>() == 16);

/// Dataset Management, command dword 11: deallocate.
pub const DSM_DEALLOCATE: u32 = 1 << 2;

/// The entries of a list, as many whole ones as `bytes` has.
pub fn entries<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> impl Iterator<Item = T> + '_ {
    bytes.chunks_exact(size_of::<T>()).filter_map(|chunk| T::read_from_bytes(chunk).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn a_range_lies_as_the_specification_has_it() {
        let mut range = CopyRange::new(0x0403_0201, 0x0807_0605, 65_536);
        range.sopt = U16::new(CopyRange::FCO);
        let bytes = range.as_bytes();
        assert_eq!(bytes[..4], [1, 2, 3, 4]);
        assert_eq!(bytes[8..12], [5, 6, 7, 8]);
        assert_eq!(bytes[16..18], [0xff, 0xff]);
        assert_eq!(bytes[22..24], [0, 0x80]);
        assert_eq!(entries::<CopyRange>(bytes).collect::<Vec<_>>(), [range]);
        assert_eq!(range.blocks(), 65_536);
    }

    #[test]
    fn the_fields_of_copy_survive_the_wire() {
        for ranges in [1, 2, 128, 256] {
            let mut sqe = Sqe::new(0x19, 1);
            sqe.cdw12 = U32::new(Sqe::FUA);
            let fields = CopyFields { ranges, desfmt: 2 };
            fields.put(&mut sqe);
            assert_eq!(CopyFields::of(&sqe), fields);
            assert!(sqe.has(Sqe::FUA));
        }
    }
}
