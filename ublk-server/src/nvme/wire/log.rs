//! Log pages.

use super::command::Sqe;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The log pages there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPage {
    /// Supported log pages.
    Supported,
    /// Error information.
    Error,
    /// SMART / health information.
    Health,
    /// Firmware slots.
    Firmware,
    /// Changed namespaces.
    ChangedNamespaces,
    /// Commands supported and effects.
    Effects,
    /// Features supported and effects.
    Features,
    /// Discovery.
    Discovery,
}

impl LogPage {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Supported,
        Self::Error,
        Self::Health,
        Self::Firmware,
        Self::ChangedNamespaces,
        Self::Effects,
        Self::Features,
        Self::Discovery,
    ];

    /// The log page identifier on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Supported => 0x00,
            Self::Error => 0x01,
            Self::Health => 0x02,
            Self::Firmware => 0x03,
            Self::ChangedNamespaces => 0x04,
            Self::Effects => 0x05,
            Self::Features => 0x12,
            Self::Discovery => 0x70,
        }
    }

    /// What an identifier means.
    pub fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|page| page.code() == code)
    }
}

/// The fields of Get Log Page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFields {
    /// The page.
    pub lid: u8,
    /// Keep the asynchronous event that told of it.
    pub retain: bool,
    /// Bytes to return.
    pub len: u64,
    /// From this byte on.
    pub offset: u64,
    /// Command set.
    pub csi: u8,
}

impl LogFields {
    /// Those of a command.
    pub fn of(sqe: &Sqe) -> Self {
        let [lid, lsp, a, b] = sqe.cdw10.to_bytes();
        let [c, d, ..] = sqe.cdw11.to_bytes();
        let numd = u32::from_le_bytes([a, b, c, d]);
        Self {
            lid,
            retain: lsp & 0x80 != 0,
            len: (u64::from(numd) + 1) * 4,
            offset: u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get()),
            csi: sqe.cdw14.to_bytes()[3],
        }
    }

    /// Get Log Page for `len` bytes, a multiple of 4, of a page from `offset` on.
    pub fn sqe(nsid: u32, lid: u8, len: u32, offset: u64) -> Sqe {
        let mut sqe = Sqe::new(super::command::AdminOpcode::GetLogPage.code(), nsid);
        let numd = (len / 4).wrapping_sub(1);
        sqe.cdw10 = U32::new(u32::from(lid) | numd << 16);
        sqe.cdw11 = U32::new(numd >> 16);
        let [a, b, c, d, e, f, g, h] = offset.to_le_bytes();
        sqe.cdw12 = U32::from_bytes([a, b, c, d]);
        sqe.cdw13 = U32::from_bytes([e, f, g, h]);
        sqe
    }
}

/// An entry of the error information log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ErrorEntry {
    /// A number that rises with each error; 0 for no entry.
    pub error_count: U64,
    /// Submission queue.
    pub sqid: U16,
    /// Command.
    pub cid: U16,
    /// Status in bits 15:1.
    pub status: U16,
    /// Where the error lies in the command; FFFFh for nowhere.
    pub location: U16,
    /// First block.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// Vendor specific information.
    pub vendor: u8,
    /// Transport type: 3 for TCP.
    pub trtype: u8,
    /// Reserved.
    pub reserved30: [u8; 34],
}
const _: () = assert!(size_of::<ErrorEntry>() == 64);

/// SMART / health information.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names of the specification's fields")]
pub struct HealthLog {
    pub critical_warning: u8,
    pub temperature: U16,
    pub available_spare: u8,
    pub spare_threshold: u8,
    pub percentage_used: u8,
    pub reserved6: [u8; 26],
    pub data_units_read: [U64; 2],
    pub data_units_written: [U64; 2],
    pub host_read_commands: [U64; 2],
    pub host_write_commands: [U64; 2],
    pub busy_time: [U64; 2],
    pub power_cycles: [U64; 2],
    pub power_on_hours: [U64; 2],
    pub unsafe_shutdowns: [U64; 2],
    pub media_errors: [U64; 2],
    pub error_log_entries: [U64; 2],
    pub reserved192: [u8; 320],
}
const _: () = assert!(size_of::<HealthLog>() == 512);

/// Commands supported and effects.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EffectsLog {
    /// Admin commands, by opcode.
    pub admin: [U32; 256],
    /// I/O commands, by opcode.
    pub io: [U32; 256],
    /// Reserved.
    pub reserved2048: [u8; 2048],
}
const _: () = assert!(size_of::<EffectsLog>() == 4096);

/// Effects: the command is supported.
pub const EFFECT_SUPPORTED: u32 = 1;
/// Effects: the command changes the contents of logical blocks.
pub const EFFECT_CONTENT: u32 = 1 << 1;

/// The most entries of the changed namespace list; one more makes it say "more than that".
pub const CHANGED_MAX: usize = 1024;

/// The header of the discovery log page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// A number that changes when the log changes.
    pub genctr: U64,
    /// Number of entries.
    pub numrec: U64,
    /// Format of an entry, 0.
    pub recfmt: U16,
    /// Reserved.
    pub reserved18: [u8; 1006],
}
const _: () = assert!(size_of::<DiscoveryHeader>() == 1024);

/// An entry of the discovery log page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names of the specification's fields")]
pub struct DiscoveryEntry {
    pub trtype: u8,
    pub adrfam: u8,
    pub subtype: u8,
    pub treq: u8,
    pub portid: U16,
    pub cntlid: U16,
    pub asqsz: U16,
    pub eflags: U16,
    pub reserved12: [u8; 20],
    pub trsvcid: [u8; 32],
    pub reserved64: [u8; 192],
    pub subnqn: [u8; 256],
    pub traddr: [u8; 256],
    pub tsas: [u8; 256],
}
const _: () = assert!(size_of::<DiscoveryEntry>() == 1024);

/// Transport type TCP.
pub const TRTYPE_TCP: u8 = 3;
/// Address family IPv4.
pub const ADRFAM_IPV4: u8 = 1;
/// Address family IPv6.
pub const ADRFAM_IPV6: u8 = 2;
/// A subsystem with namespaces.
pub const SUBTYPE_NVM: u8 = 2;
/// Transport requirements: of a secure channel nothing is said, flow control may be disabled. Said to be not required,
/// one is asked for all the same by libnvme 1.3, whose `connect-all` then fails for want of a key.
pub const TREQ: u8 = 1 << 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_and_its_fields_survive_the_wire() {
        for page in LogPage::ALL {
            assert_eq!(LogPage::of(page.code()), Some(page));
        }
        let sqe = LogFields::sqe(1, 0x70, 1 << 20, 1 << 33);
        let fields = LogFields { lid: 0x70, retain: false, len: 1 << 20, offset: 1 << 33, csi: 0 };
        assert_eq!(LogFields::of(&sqe), fields);
    }
}
