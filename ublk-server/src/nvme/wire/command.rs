//! Submission and completion queue entries (NVMe Base Specification, "Common Command Format").

use super::identify::CommandSet;
use super::status::Status;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An SGL descriptor, the only kind of data pointer that fabrics have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Sgl {
    /// For data in the capsule, the offset from its start.
    pub address: U64,
    /// Bytes.
    pub length: U32,
    /// Reserved.
    pub reserved: [u8; 3],
    /// Type in bits 7:4, subtype in bits 3:0.
    pub kind: u8,
}

impl Sgl {
    /// Data block, offset: the data is in the capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Transport data block: the data is moved by PDUs of its own.
    pub const TRANSPORT: u8 = 0x5a;

    /// `length` bytes in the capsule.
    pub fn in_capsule(length: u32) -> Self {
        Self { address: U64::new(0), length: U32::new(length), reserved: [0; 3], kind: Self::IN_CAPSULE }
    }

    /// `length` bytes by PDUs of their own; none for 0.
    pub fn transport(length: u32) -> Self {
        Self { address: U64::new(0), length: U32::new(length), reserved: [0; 3], kind: Self::TRANSPORT }
    }
}

/// A submission queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Sqe {
    /// The command.
    pub opcode: u8,
    /// Fused operation in bits 1:0, data pointer in bits 7:6.
    pub flags: u8,
    /// The host's number for it.
    pub cid: U16,
    /// The namespace; for fabrics commands their type in the lowest byte.
    pub nsid: U32,
    /// Command dwords 2 and 3.
    pub cdw2: [U32; 2],
    /// Metadata pointer, unused.
    pub mptr: U64,
    /// Data pointer.
    pub dptr: Sgl,
    /// Command dword 10.
    pub cdw10: U32,
    /// Command dword 11.
    pub cdw11: U32,
    /// Command dword 12.
    pub cdw12: U32,
    /// Command dword 13.
    pub cdw13: U32,
    /// Command dword 14.
    pub cdw14: U32,
    /// Command dword 15.
    pub cdw15: U32,
}
const _: () = assert!(size_of::<Sqe>() == 64);

impl Sqe {
    /// Flags of a command with an SGL, not fused: what every command over fabrics has.
    pub const FLAGS_SGL: u8 = 0x40;
    /// FUA, in command dword 12 of the commands that move or write data.
    pub const FUA: u32 = 1 << 30;
    /// Deallocate, in command dword 12 of Write Zeroes.
    pub const DEAC: u32 = 1 << 25;
    /// Remap protection information, in command dword 12 of Zone Append.
    pub const PIREMAP: u32 = 1 << 25;
    /// Directive type, in command dword 12.
    pub const DTYPE: u32 = 0xf << 20;

    /// A command for a namespace, without data.
    pub fn new(opcode: u8, nsid: u32) -> Self {
        let mut sqe: Self = super::zeroed();
        sqe.opcode = opcode;
        sqe.flags = Self::FLAGS_SGL;
        sqe.nsid = U32::new(nsid);
        sqe.dptr = Sgl::transport(0);
        sqe
    }

    /// An I/O command for `blocks` blocks from `slba` on, at most 65,536.
    pub fn io(opcode: IoOpcode, nsid: u32, slba: u64, blocks: u32) -> Self {
        let mut sqe = Self::new(opcode.code(), nsid);
        sqe.set_slba(slba);
        sqe.cdw12 = U32::new(blocks.wrapping_sub(1) & 0xffff);
        sqe
    }

    /// Starting LBA, in command dwords 10 and 11.
    pub fn slba(&self) -> u64 {
        u64::from(self.cdw11.get()) << 32 | u64::from(self.cdw10.get())
    }

    /// Sets the starting LBA.
    pub fn set_slba(&mut self, slba: u64) {
        let [a, b, c, d, e, f, g, h] = slba.to_le_bytes();
        self.cdw10 = U32::from_bytes([a, b, c, d]);
        self.cdw11 = U32::from_bytes([e, f, g, h]);
    }

    /// Number of blocks, which the wire counts from 0.
    pub fn blocks(&self) -> u64 {
        u64::from(self.cdw12.get() & 0xffff) + 1
    }

    /// The fabrics command type.
    pub fn fctype(&self) -> u8 {
        self.nsid.to_bytes()[0]
    }

    /// True when a bit of command dword 12 is set.
    pub fn has(&self, bit: u32) -> bool {
        self.cdw12.get() & bit != 0
    }

    /// True when the command's data, if any, goes to the controller: bits 1:0 of opcode or fabrics type are 01b.
    pub fn is_to_controller(&self) -> bool {
        let code = if self.opcode == AdminOpcode::Fabrics.code() { self.fctype() } else { self.opcode };
        code & 1 != 0
    }
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Cqe {
    /// Dwords 0 and 1: what the command returns.
    pub result: U64,
    /// Submission queue head; FFFFh without flow control.
    pub sqhd: U16,
    /// Reserved over fabrics.
    pub sqid: U16,
    /// The command.
    pub cid: U16,
    /// Phase in bit 0 (0 over fabrics), status in bits 15:1.
    pub status: U16,
}
const _: () = assert!(size_of::<Cqe>() == 16);

impl Cqe {
    /// The end of a command.
    pub fn new(cid: u16, status: Status, result: u64) -> Self {
        Self {
            result: U64::new(result),
            sqhd: U16::new(0),
            sqid: U16::new(0),
            cid: U16::new(cid),
            status: U16::new(status.0 << 1),
        }
    }

    /// How it ended.
    pub fn status(&self) -> Status {
        Status(self.status.get() >> 1)
    }

    /// Dword 0.
    pub fn dw0(&self) -> u32 {
        let [a, b, c, d, ..] = self.result.to_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

macro_rules! opcodes {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number on the wire.
            pub const fn code(self) -> u8 {
                match self { $(Self::$variant => $code,)* }
            }

            /// What a number on the wire means; `None` for one that is not supported.
            pub const fn of(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

opcodes! {
    /// The supported commands of an admin queue.
    AdminOpcode {
        /// Get Log Page.
        GetLogPage = 0x02,
        /// Identify.
        Identify = 0x06,
        /// Abort.
        Abort = 0x08,
        /// Set Features.
        SetFeatures = 0x09,
        /// Get Features.
        GetFeatures = 0x0a,
        /// Asynchronous Event Request.
        AsyncEventRequest = 0x0c,
        /// Keep Alive.
        KeepAlive = 0x18,
        /// Fabrics commands.
        Fabrics = 0x7f,
    }
}

opcodes! {
    /// The supported commands of the NVM and the zoned namespace command set.
    IoOpcode {
        /// Flush.
        Flush = 0x00,
        /// Write.
        Write = 0x01,
        /// Read.
        Read = 0x02,
        /// Compare.
        Compare = 0x05,
        /// Write Zeroes.
        WriteZeroes = 0x08,
        /// Dataset Management.
        DatasetManagement = 0x09,
        /// Verify.
        Verify = 0x0c,
        /// Copy.
        Copy = 0x19,
        /// Zone Management Send.
        ZoneManagementSend = 0x79,
        /// Zone Management Receive.
        ZoneManagementReceive = 0x7a,
        /// Zone Append.
        ZoneAppend = 0x7d,
    }
}

impl IoOpcode {
    /// True when namespaces of a command set have the command. Blocks of a zone are deallocated by its reset, so the
    /// zoned ones have no Dataset Management.
    pub const fn is_of(self, set: CommandSet) -> bool {
        match self {
            Self::Flush
            | Self::Write
            | Self::Read
            | Self::Compare
            | Self::WriteZeroes
            | Self::Verify
            | Self::Copy => true,
            Self::DatasetManagement => matches!(set, CommandSet::Nvm),
            Self::ZoneManagementSend | Self::ZoneManagementReceive | Self::ZoneAppend => {
                matches!(set, CommandSet::Zoned)
            }
        }
    }

    /// True when the command changes what a namespace has.
    pub const fn changes(self) -> bool {
        match self {
            Self::Write
            | Self::WriteZeroes
            | Self::DatasetManagement
            | Self::Copy
            | Self::ZoneManagementSend
            | Self::ZoneAppend => true,
            Self::Flush | Self::Read | Self::Compare | Self::Verify | Self::ZoneManagementReceive => false,
        }
    }
}

opcodes! {
    /// The supported fabrics command types.
    FabricsType {
        /// Property Set.
        PropertySet = 0x00,
        /// Connect.
        Connect = 0x01,
        /// Property Get.
        PropertyGet = 0x04,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn fields_lie_where_the_specification_has_them() {
        let mut sqe = Sqe::io(IoOpcode::Write, 0x0403_0201, 0x1817_1615_1413_1211, 65_536);
        sqe.cid = U16::new(0xbbaa);
        sqe.dptr = Sgl::in_capsule(0x2000);
        let bytes = sqe.as_bytes();
        assert_eq!(bytes[..8], [1, 0x40, 0xaa, 0xbb, 1, 2, 3, 4]);
        assert_eq!(bytes[32..40], [0, 0x20, 0, 0, 0, 0, 0, 1]);
        assert_eq!(bytes[40..48], [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        assert_eq!(bytes[48..52], [0xff, 0xff, 0, 0]);
        assert_eq!((sqe.slba(), sqe.blocks()), (0x1817_1615_1413_1211, 65_536));
        let cqe = Cqe::new(0x0201, Status::LBA_OUT_OF_RANGE.dnr(), 7);
        assert_eq!(cqe.as_bytes(), [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0x00, 0x81]);
        assert_eq!((cqe.status(), cqe.dw0()), (Status::LBA_OUT_OF_RANGE.dnr(), 7));
    }

    #[test]
    fn every_opcode_survives_the_wire_and_says_where_its_data_goes() {
        for &opcode in IoOpcode::ALL {
            assert_eq!(IoOpcode::of(opcode.code()), Some(opcode));
        }
        for &opcode in AdminOpcode::ALL {
            assert_eq!(AdminOpcode::of(opcode.code()), Some(opcode));
        }
        assert!(Sqe::new(IoOpcode::Copy.code(), 1).is_to_controller());
        assert!(!Sqe::new(IoOpcode::Read.code(), 1).is_to_controller());
        assert!(Sqe::new(AdminOpcode::Fabrics.code(), FabricsType::Connect.code().into()).is_to_controller());
        assert!(!Sqe::new(AdminOpcode::Fabrics.code(), 4).is_to_controller());
    }
}
