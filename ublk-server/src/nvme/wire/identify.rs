//! The structures that Identify returns.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of every structure that Identify returns.
pub const IDENTIFY_LEN: usize = 4096;
/// Every namespace.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// What Identify can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cns {
    /// A namespace, NVM command set.
    Namespace,
    /// The controller.
    Controller,
    /// Active namespaces.
    ActiveNamespaces,
    /// Namespace identification descriptors.
    NamespaceDescriptors,
    /// A namespace, by command set.
    NamespaceOfSet,
    /// The controller, by command set.
    ControllerOfSet,
    /// Active namespaces of a command set.
    ActiveNamespacesOfSet,
    /// A namespace, what does not depend on its command set.
    NamespaceIndependent,
    /// Allocated namespaces.
    AllocatedNamespaces,
    /// Command sets.
    CommandSets,
}

impl Cns {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Namespace,
        Self::Controller,
        Self::ActiveNamespaces,
        Self::NamespaceDescriptors,
        Self::NamespaceOfSet,
        Self::ControllerOfSet,
        Self::ActiveNamespacesOfSet,
        Self::NamespaceIndependent,
        Self::AllocatedNamespaces,
        Self::CommandSets,
    ];

    /// The number on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Namespace => 0x00,
            Self::Controller => 0x01,
            Self::ActiveNamespaces => 0x02,
            Self::NamespaceDescriptors => 0x03,
            Self::NamespaceOfSet => 0x05,
            Self::ControllerOfSet => 0x06,
            Self::ActiveNamespacesOfSet => 0x07,
            Self::NamespaceIndependent => 0x08,
            Self::AllocatedNamespaces => 0x10,
            Self::CommandSets => 0x1c,
        }
    }

    /// What a number on the wire means.
    pub fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|cns| cns.code() == code)
    }
}

/// I/O command sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandSet {
    /// NVM.
    Nvm,
    /// Zoned namespaces.
    Zoned,
}

impl CommandSet {
    /// The command set identifier on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Nvm => 0,
            Self::Zoned => 2,
        }
    }

    /// What an identifier means.
    pub const fn of(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Nvm),
            2 => Some(Self::Zoned),
            _ => None,
        }
    }
}

/// Identify Controller.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names of the specification's fields")]
pub struct IdentifyController {
    pub vid: U16,
    pub ssvid: U16,
    pub sn: [u8; 20],
    pub mn: [u8; 40],
    pub fr: [u8; 8],
    pub rab: u8,
    pub ieee: [u8; 3],
    pub cmic: u8,
    pub mdts: u8,
    pub cntlid: U16,
    pub ver: U32,
    pub rtd3r: U32,
    pub rtd3e: U32,
    pub oaes: U32,
    pub ctratt: U32,
    pub reserved100: [u8; 11],
    pub cntrltype: u8,
    pub reserved112: [u8; 144],
    pub oacs: U16,
    pub acl: u8,
    pub aerl: u8,
    pub frmw: u8,
    pub lpa: u8,
    pub elpe: u8,
    pub npss: u8,
    pub reserved264: [u8; 2],
    pub wctemp: U16,
    pub cctemp: U16,
    pub reserved270: [u8; 50],
    pub kas: U16,
    pub reserved322: [u8; 190],
    pub sqes: u8,
    pub cqes: u8,
    pub maxcmd: U16,
    pub nn: U32,
    pub oncs: U16,
    pub fuses: U16,
    pub fna: u8,
    pub vwc: u8,
    pub awun: U16,
    pub awupf: U16,
    pub icsvscc: u8,
    pub nwpc: u8,
    pub acwu: U16,
    pub ocfs: U16,
    pub sgls: U32,
    pub mnan: U32,
    pub reserved544: [u8; 224],
    pub subnqn: [u8; 256],
    pub reserved1024: [u8; 768],
    pub ioccsz: U32,
    pub iorcsz: U32,
    pub icdoff: U16,
    pub fcatt: u8,
    pub msdbd: u8,
    pub ofcs: U16,
    pub dctype: u8,
    pub reserved1807: [u8; 241],
    pub psd: [[u8; 32]; 32],
    pub vs: [u8; 1024],
}
const _: () = assert!(size_of::<IdentifyController>() == IDENTIFY_LEN);
const _: () = assert!(std::mem::offset_of!(IdentifyController, oacs) == 256);
const _: () = assert!(std::mem::offset_of!(IdentifyController, kas) == 320);
const _: () = assert!(std::mem::offset_of!(IdentifyController, oncs) == 520);
const _: () = assert!(std::mem::offset_of!(IdentifyController, ocfs) == 534);
const _: () = assert!(std::mem::offset_of!(IdentifyController, subnqn) == 768);
const _: () = assert!(std::mem::offset_of!(IdentifyController, ioccsz) == 1792);
const _: () = assert!(std::mem::offset_of!(IdentifyController, dctype) == 1806);
const _: () = assert!(std::mem::offset_of!(IdentifyController, psd) == 2048);

/// The bits of Identify Controller that are set here or asked for by hosts.
pub mod bits {
    /// OAES and asynchronous event configuration: namespace attribute notices.
    pub const OAES_NAMESPACE: u32 = 1 << 8;
    /// CTRATT: host identifiers have 128 bits.
    pub const CTRATT_HOSTID_128: u32 = 1;
    /// ONCS: Compare.
    pub const ONCS_COMPARE: u16 = 1;
    /// ONCS: Dataset Management.
    pub const ONCS_DSM: u16 = 1 << 2;
    /// ONCS: Write Zeroes.
    pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
    /// ONCS: Verify.
    pub const ONCS_VERIFY: u16 = 1 << 7;
    /// ONCS: Copy.
    pub const ONCS_COPY: u16 = 1 << 8;
    /// LPA: commands supported and effects.
    pub const LPA_EFFECTS: u8 = 1 << 1;
    /// LPA: offsets in Get Log Page.
    pub const LPA_EXTENDED: u8 = 1 << 2;
    /// SGLS: SGLs are supported, with any alignment.
    pub const SGLS_SUPPORTED: u32 = 1;
    /// SGLS: an address may be an offset.
    pub const SGLS_OFFSET: u32 = 1 << 20;
    /// VWC: there is a volatile write cache, and Flush of all namespaces at once is not supported.
    pub const VWC_PRESENT: u8 = 1 | 2 << 1;
    /// VWC: none, and Flush of all namespaces at once is not supported.
    pub const VWC_NONE: u8 = 2 << 1;
    /// NSFEAT: NPWG and its companions are there.
    pub const NSFEAT_OPTPERF: u8 = 1 << 4;
    /// DLFEAT: deallocated blocks read as zeroes, and Write Zeroes can deallocate.
    pub const DLFEAT_ZEROES: u8 = 1 | 1 << 3;
    /// NSATTR: write protected.
    pub const NSATTR_WRITE_PROTECTED: u8 = 1;
    /// NSTAT: ready.
    pub const NSTAT_READY: u8 = 1;
    /// NSFEAT of the structure that does not depend on the command set: no volatile write cache.
    pub const NSFEAT_NO_VWC: u8 = 1 << 5;
}

/// Identify Namespace, NVM command set.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names of the specification's fields")]
pub struct IdentifyNamespace {
    pub nsze: U64,
    pub ncap: U64,
    pub nuse: U64,
    pub nsfeat: u8,
    pub nlbaf: u8,
    pub flbas: u8,
    pub mc: u8,
    pub dpc: u8,
    pub dps: u8,
    pub nmic: u8,
    pub rescap: u8,
    pub fpi: u8,
    pub dlfeat: u8,
    pub nawun: U16,
    pub nawupf: U16,
    pub nacwu: U16,
    pub nabsn: U16,
    pub nabo: U16,
    pub nabspf: U16,
    pub noiob: U16,
    pub nvmcap: [u8; 16],
    pub npwg: U16,
    pub npwa: U16,
    pub npdg: U16,
    pub npda: U16,
    pub nows: U16,
    pub mssrl: U16,
    pub mcl: U32,
    pub msrc: u8,
    pub reserved81: [u8; 18],
    pub nsattr: u8,
    pub nvmsetid: U16,
    pub endgid: U16,
    pub nguid: [u8; 16],
    pub eui64: [u8; 8],
    pub lbaf: [U32; 64],
    pub vs: [u8; 3712],
}
const _: () = assert!(size_of::<IdentifyNamespace>() == IDENTIFY_LEN);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, npwg) == 64);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, mssrl) == 74);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, msrc) == 80);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, nguid) == 104);
const _: () = assert!(std::mem::offset_of!(IdentifyNamespace, lbaf) == 128);

impl IdentifyNamespace {
    /// An LBA format of `1 << lbads` bytes without metadata.
    pub fn format(lbads: u8) -> U32 {
        U32::new(u32::from(lbads) << 16)
    }

    /// Bytes of a block in the format in use.
    pub fn block_size(&self) -> u32 {
        let lbads = self.lbaf[usize::from(self.flbas & 0xf)].to_bytes()[2];
        1u32.checked_shl(lbads.into()).unwrap_or(0)
    }
}

/// Identify Controller of the NVM command set.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names of the specification's fields")]
pub struct IdentifyControllerNvm {
    pub vsl: u8,
    pub wzsl: u8,
    pub wusl: u8,
    pub dmrl: u8,
    pub dmrsl: U32,
    pub dmsl: U64,
    pub reserved16: [u8; 4080],
}
const _: () = assert!(size_of::<IdentifyControllerNvm>() == IDENTIFY_LEN);

/// Identify Namespace, what does not depend on the command set.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names of the specification's fields")]
pub struct IdentifyNamespaceIndependent {
    pub nsfeat: u8,
    pub nmic: u8,
    pub rescap: u8,
    pub fpi: u8,
    pub anagrpid: U32,
    pub nsattr: u8,
    pub reserved9: u8,
    pub nvmsetid: U16,
    pub endgid: U16,
    pub nstat: u8,
    pub reserved15: [u8; 4081],
}
const _: () = assert!(size_of::<IdentifyNamespaceIndependent>() == IDENTIFY_LEN);

/// Appends a namespace identification descriptor.
pub fn put_descriptor(out: &mut Vec<u8>, kind: DescriptorType, id: &[u8]) {
    out.push(kind.code());
    out.push(u8::try_from(id.len()).expect("an identifier has at most 16 bytes"));
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(id);
}

/// The types of namespace identification descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorType {
    /// NGUID, 16 bytes.
    Nguid,
    /// UUID, 16 bytes.
    Uuid,
    /// Command set, 1 byte.
    CommandSet,
}

impl DescriptorType {
    /// The number on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Nguid => 2,
            Self::Uuid => 3,
            Self::CommandSet => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_structure_survives_the_wire() {
        for cns in Cns::ALL {
            assert_eq!(Cns::of(cns.code()), Some(cns));
        }
        assert_eq!(Cns::of(0x04), None);
    }

    #[test]
    fn a_format_is_a_power_of_two() {
        let mut namespace: IdentifyNamespace = crate::nvme::wire::zeroed();
        namespace.lbaf[0] = IdentifyNamespace::format(12);
        assert_eq!(namespace.block_size(), 4096);
        assert_eq!(namespace.lbaf[0].to_bytes(), [0, 0, 12, 0]);
    }
}
