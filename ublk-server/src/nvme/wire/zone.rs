//! What the zoned namespace command set adds (NVMe Zoned Namespace Command Set Specification).

use super::command::{IoOpcode, Sqe};
use super::identify::IDENTIFY_LEN;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Identify Controller of the zoned namespace command set.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct IdentifyControllerZoned {
    /// The most data of Zone Append, as a power of two of pages of 4 KiB; 0: as much as of any command.
    pub zasl: u8,
    /// Reserved.
    pub reserved1: [u8; 4095],
}
const _: () = assert!(size_of::<IdentifyControllerZoned>() == IDENTIFY_LEN);

/// The zones of an LBA format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ZoneFormat {
    /// Blocks from the start of a zone to that of the next.
    pub zsze: U64,
    /// Bytes of a zone descriptor extension, in units of 64; 0 for none.
    pub zdes: u8,
    /// Reserved.
    pub reserved9: [u8; 7],
}
const _: () = assert!(size_of::<ZoneFormat>() == 16);

/// Identify Namespace of the zoned namespace command set.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names of the specification's fields")]
pub struct IdentifyNamespaceZoned {
    pub zoc: U16,
    pub ozcs: U16,
    pub mar: U32,
    pub mor: U32,
    pub rrl: [U32; 4],
    pub frl: [U32; 4],
    pub numzrwa: U32,
    pub zrwafg: U16,
    pub zrwasz: U16,
    pub zrwacap: u8,
    pub reserved53: [u8; 2763],
    pub lbafe: [ZoneFormat; 64],
    pub vs: [u8; 256],
}
const _: () = assert!(size_of::<IdentifyNamespaceZoned>() == IDENTIFY_LEN);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespaceZoned, numzrwa) == 44);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespaceZoned, lbafe) == 2816);

/// OZCS: a read may go on in the next zone.
pub const OZCS_READ_ACROSS: u16 = 1;
/// MAR and MOR: no limit.
pub const NO_LIMIT: u32 = u32::MAX;

/// What a report begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ZoneReportHeader {
    /// Zones that fit what was asked for, or descriptors that follow in a partial report.
    pub zones: U64,
    /// Reserved.
    pub reserved8: [u8; 56],
}
const _: () = assert!(size_of::<ZoneReportHeader>() == 64);

/// A zone in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ZoneEntry {
    /// Type, in bits 3:0.
    pub zt: u8,
    /// State, in bits 7:4.
    pub zs: u8,
    /// Attributes.
    pub za: u8,
    /// Attributes information.
    pub zai: u8,
    /// Reserved.
    pub reserved4: [u8; 4],
    /// Blocks that can be written.
    pub zcap: U64,
    /// First block.
    pub zslba: U64,
    /// Write pointer; [`Self::NO_WP`] where it has no meaning.
    pub wp: U64,
    /// Reserved.
    pub reserved32: [u8; 32],
}
const _: () = assert!(size_of::<ZoneEntry>() == 64);

impl ZoneEntry {
    /// The type "sequential write required".
    pub const SEQUENTIAL: u8 = 2;
    /// The write pointer of a zone that is full, read-only or offline.
    pub const NO_WP: u64 = u64::MAX;

    /// The state: the same numbers as in the kernel's `enum blk_zone_cond`.
    pub const fn state(&self) -> u8 {
        self.zs >> 4
    }
}

/// What Zone Management Send can do. Offline and what belongs to descriptor extensions and random write areas is not
/// supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneSend {
    /// Close.
    Close,
    /// Finish.
    Finish,
    /// Open.
    Open,
    /// Reset.
    Reset,
}

impl ZoneSend {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Close, Self::Finish, Self::Open, Self::Reset];
    const SELECT_ALL: u32 = 1 << 8;

    /// The zone send action on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Close => 0x01,
            Self::Finish => 0x02,
            Self::Open => 0x03,
            Self::Reset => 0x04,
        }
    }

    /// What a command asks for, and whether of all zones; `None` for what is not supported.
    pub fn of(sqe: &Sqe) -> Option<(Self, bool)> {
        let [code, ..] = sqe.cdw13.to_bytes();
        let action = Self::ALL.into_iter().find(|action| action.code() == code)?;
        Some((action, sqe.cdw13.get() & Self::SELECT_ALL != 0))
    }

    /// The command for the zone that begins at `slba`, or for all.
    pub fn sqe(self, nsid: u32, slba: u64, all: bool) -> Sqe {
        let mut sqe = Sqe::new(IoOpcode::ZoneManagementSend.code(), nsid);
        sqe.set_slba(slba);
        let all = if all { Self::SELECT_ALL } else { 0 };
        sqe.cdw13 = U32::new(u32::from(self.code()) | all);
        sqe
    }
}

/// The fields of Zone Management Receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneReceive {
    /// Action, as it came.
    pub zra: u8,
    /// Which zones, as it came: 0 for all.
    pub zrasf: u8,
    /// The header counts the descriptors that follow it, not all that there are.
    pub partial: bool,
    /// Bytes to return.
    pub len: u64,
}

impl ZoneReceive {
    /// Action: report zones.
    pub const REPORT: u8 = 0;
    const PARTIAL: u32 = 1 << 16;

    /// Those of a command.
    pub fn of(sqe: &Sqe) -> Self {
        let [zra, zrasf, ..] = sqe.cdw13.to_bytes();
        let partial = sqe.cdw13.get() & Self::PARTIAL != 0;
        Self { zra, zrasf, partial, len: (u64::from(sqe.cdw12.get()) + 1) * 4 }
    }

    /// A command with these fields, from the zone of `slba` on. The length is a multiple of 4, from 4 to 2^34.
    pub fn sqe(self, nsid: u32, slba: u64) -> Sqe {
        let mut sqe = Sqe::new(IoOpcode::ZoneManagementReceive.code(), nsid);
        sqe.set_slba(slba);
        sqe.cdw12 = U32::new(u32::try_from((self.len / 4).saturating_sub(1)).unwrap_or(u32::MAX));
        let partial = if self.partial { Self::PARTIAL } else { 0 };
        sqe.cdw13 = U32::new(u32::from(self.zra) | u32::from(self.zrasf) << 8 | partial);
        sqe
    }
}

/// The states for the values of ZRASF from 1 on.
const LISTED: [u8; 7] = [0x1, 0x2, 0x3, 0x4, 0xe, 0xd, 0xf];

/// Which zones a report lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// All of them.
    All,
    /// Those in this state.
    State(u8),
}

impl Listed {
    /// What a value of ZRASF means; `None` for one that is not supported.
    pub fn of(zrasf: u8) -> Option<Self> {
        match usize::from(zrasf).checked_sub(1) {
            None => Some(Self::All),
            Some(index) => LISTED.get(index).copied().map(Self::State),
        }
    }

    /// True for a zone that is listed.
    pub fn has(self, state: u8) -> bool {
        match self {
            Self::All => true,
            Self::State(listed) => listed == state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn an_entry_lies_as_the_specification_has_it() {
        let mut entry: ZoneEntry = super::super::zeroed();
        (entry.zt, entry.zs) = (ZoneEntry::SEQUENTIAL, 0xe0);
        (entry.zcap, entry.zslba, entry.wp) = (U64::new(1), U64::new(2), U64::new(3));
        let bytes = entry.as_bytes();
        assert_eq!((bytes[0], bytes[1], bytes[8], bytes[16], bytes[24]), (2, 0xe0, 1, 2, 3));
        assert_eq!(entry.state(), 0xe);
    }

    #[test]
    fn every_action_and_every_field_survives_the_wire() {
        for action in ZoneSend::ALL {
            for all in [false, true] {
                let sqe = action.sqe(1, 1 << 33, all);
                assert_eq!((ZoneSend::of(&sqe), sqe.slba()), (Some((action, all)), 1 << 33));
            }
        }
        let mut sqe = ZoneSend::Reset.sqe(1, 0, false);
        for code in [0, 5, 0x10, 0x11] {
            sqe.cdw13 = U32::new(code);
            assert_eq!(ZoneSend::of(&sqe), None, "{code:#x}");
        }
        let fields = ZoneReceive { zra: 1, zrasf: 7, partial: true, len: 1 << 20 };
        assert_eq!(ZoneReceive::of(&fields.sqe(1, 5)), fields);
    }

    #[test]
    fn a_report_is_limited_to_one_state_or_none() {
        assert_eq!((Listed::of(0), Listed::of(5)), (Some(Listed::All), Some(Listed::State(0xe))));
        assert_eq!((Listed::of(7), Listed::of(8)), (Some(Listed::State(0xf)), None));
        assert!(Listed::All.has(3) && Listed::State(3).has(3) && !Listed::State(3).has(4));
    }
}
