//! NVMe over Fabrics: Connect and the properties of a controller.

use super::command::{FabricsType, Sqe};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The data of Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// Host identifier.
    pub hostid: [u8; 16],
    /// Controller; FFFFh for any.
    pub cntlid: U16,
    /// Reserved.
    pub reserved18: [u8; 238],
    /// NQN of the subsystem.
    pub subnqn: [u8; 256],
    /// NQN of the host.
    pub hostnqn: [u8; 256],
    /// Reserved.
    pub reserved768: [u8; 256],
}
const _: () = assert!(size_of::<ConnectData>() == 1024);

impl ConnectData {
    /// Offset of the controller in the data.
    pub const CNTLID: u16 = 16;
    /// Offset of the subsystem's NQN in the data.
    pub const SUBNQN: u16 = 256;
    /// Offset of the host's NQN in the data.
    pub const HOSTNQN: u16 = 512;
}

/// Any controller, in Connect for an admin queue.
pub const CNTLID_DYNAMIC: u16 = 0xffff;
/// The name of every discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// The longest NQN, in bytes.
pub const NQN_MAX: usize = 223;

/// The fields of Connect in the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectFields {
    /// Record format, 0.
    pub recfmt: u16,
    /// Queue; 0 is the admin queue.
    pub qid: u16,
    /// Entries of the queue, counted from 0.
    pub sqsize: u16,
    /// No flow control of the submission queue.
    pub no_flow_control: bool,
    /// Keep alive timeout in milliseconds; 0 for none.
    pub kato: u32,
}

impl ConnectFields {
    /// Offset of the record format in the command.
    pub const RECFMT: u16 = 40;
    /// Offset of the queue in the command.
    pub const QID: u16 = 42;
    /// Offset of the size in the command.
    pub const SQSIZE: u16 = 44;
    const NO_FLOW_CONTROL: u8 = 1 << 2;

    /// Those of a command.
    pub fn of(sqe: &Sqe) -> Self {
        let [a, b, c, d] = sqe.cdw10.to_bytes();
        let [e, f, cattr, _] = sqe.cdw11.to_bytes();
        Self {
            recfmt: u16::from_le_bytes([a, b]),
            qid: u16::from_le_bytes([c, d]),
            sqsize: u16::from_le_bytes([e, f]),
            no_flow_control: cattr & Self::NO_FLOW_CONTROL != 0,
            kato: sqe.cdw12.get(),
        }
    }

    /// The command with these fields.
    pub fn sqe(self) -> Sqe {
        let mut sqe = fabrics(FabricsType::Connect);
        let cattr = if self.no_flow_control { Self::NO_FLOW_CONTROL } else { 0 };
        sqe.cdw10 = U32::new(u32::from(self.qid) << 16 | u32::from(self.recfmt));
        sqe.cdw11 = U32::new(u32::from(cattr) << 16 | u32::from(self.sqsize));
        sqe.cdw12 = U32::new(self.kato);
        sqe
    }
}

/// What a refused Connect says in dword 0: the offset of the field to blame, and whether it lies in the data.
pub fn blame(offset: u16, in_data: bool) -> u64 {
    u64::from(offset) | u64::from(in_data) << 16
}

/// A fabrics command.
pub fn fabrics(kind: FabricsType) -> Sqe {
    Sqe::new(super::command::AdminOpcode::Fabrics.code(), kind.code().into())
}

/// The properties of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Controller Capabilities, 8 bytes.
    Cap,
    /// Version.
    Vs,
    /// Controller Configuration.
    Cc,
    /// Controller Status.
    Csts,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cap, Self::Vs, Self::Cc, Self::Csts];

    /// Its place.
    pub const fn offset(self) -> u32 {
        match self {
            Self::Cap => 0x00,
            Self::Vs => 0x08,
            Self::Cc => 0x14,
            Self::Csts => 0x1c,
        }
    }

    /// The property at a place.
    pub fn at(offset: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|property| property.offset() == offset)
    }

    /// True for 8 bytes, false for 4.
    pub const fn is_wide(self) -> bool {
        match self {
            Self::Cap => true,
            Self::Vs | Self::Cc | Self::Csts => false,
        }
    }
}

/// The fields of Property Get and Property Set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyFields {
    /// 8 bytes instead of 4.
    pub wide: bool,
    /// Its place.
    pub offset: u32,
    /// What to set it to.
    pub value: u64,
}

impl PropertyFields {
    /// Those of a command; `None` for a size that is neither 4 nor 8 bytes.
    pub fn of(sqe: &Sqe) -> Option<Self> {
        let wide = match sqe.cdw10.get() & 7 {
            0 => false,
            1 => true,
            _ => return None,
        };
        let value = u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get());
        Some(Self { wide, offset: sqe.cdw11.get(), value })
    }

    /// Property Get for a property.
    pub fn get(property: Property) -> Sqe {
        let mut sqe = fabrics(FabricsType::PropertyGet);
        sqe.cdw10 = U32::new(property.is_wide().into());
        sqe.cdw11 = U32::new(property.offset());
        sqe
    }

    /// Property Set for a property of 4 bytes.
    pub fn set(property: Property, value: u32) -> Sqe {
        let mut sqe = fabrics(FabricsType::PropertySet);
        sqe.cdw11 = U32::new(property.offset());
        sqe.cdw12 = U32::new(value);
        sqe
    }
}

/// The bits of Controller Capabilities.
pub mod cap {
    /// Queues are contiguous.
    pub const CQR: u64 = 1 << 16;
    /// The time to become ready, in units of 500 ms.
    pub const TO_SHIFT: u32 = 24;
    /// The NVM command set.
    pub const CSS_NVM: u64 = 1 << 37;
    /// More than one command set, named by Identify.
    pub const CSS_IOCSS: u64 = 1 << 43;
}

/// The bits of Controller Configuration.
pub mod cc {
    /// Enable.
    pub const EN: u32 = 1;
    /// Command set selected.
    pub const CSS_SHIFT: u32 = 4;
    /// All supported command sets.
    pub const CSS_ALL: u32 = 6;
    /// Memory page size.
    pub const MPS_SHIFT: u32 = 7;
    /// Shutdown notification.
    pub const SHN_SHIFT: u32 = 14;
    /// Sizes of queue entries as every host sets them: 64 and 16 bytes.
    pub const ENTRY_SIZES: u32 = 6 << 16 | 4 << 20;
}

/// The bits of Controller Status.
pub mod csts {
    /// Ready.
    pub const RDY: u32 = 1;
    /// Fatal.
    pub const CFS: u32 = 1 << 1;
    /// Shutdown complete.
    pub const SHST_COMPLETE: u32 = 2 << 2;
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn connect_lies_as_the_specification_has_it() {
        let fields =
            ConnectFields { recfmt: 0, qid: 0x0201, sqsize: 0x0403, no_flow_control: true, kato: 5000 };
        let sqe = fields.sqe();
        let bytes = sqe.as_bytes();
        assert_eq!((bytes[0], bytes[4]), (0x7f, 1));
        assert_eq!(bytes[40..52], [0, 0, 1, 2, 3, 4, 4, 0, 0x88, 0x13, 0, 0]);
        assert_eq!(ConnectFields::of(&sqe), fields);
    }

    #[test]
    fn properties_lie_as_the_specification_has_them() {
        let bytes = to_array(&PropertyFields::set(Property::Cc, 0x0046_0001));
        assert_eq!((bytes[0], bytes[4], bytes[40], bytes[44]), (0x7f, 0, 0, 0x14));
        assert_eq!(bytes[48..52], [1, 0, 0x46, 0]);
        let bytes = to_array(&PropertyFields::get(Property::Cap));
        assert_eq!((bytes[4], bytes[40], bytes[44]), (4, 1, 0));
        for property in Property::ALL {
            let fields = PropertyFields::of(&PropertyFields::get(property)).unwrap();
            assert_eq!((Property::at(fields.offset), fields.wide), (Some(property), property.is_wide()));
        }
    }

    fn to_array(sqe: &Sqe) -> [u8; 64] {
        sqe.as_bytes().try_into().unwrap()
    }
}
