//! PDUs: the frames of the NVMe/TCP transport, taken apart and put together.

// Every structure here has Debug; what the derives of zerocopy make behind them has not.
#![allow(missing_debug_implementations)]

use super::command::{Cqe, Sqe};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

mod decode;
mod encode;
#[cfg(test)]
mod tests;

pub use decode::{Decoded, Pdu, PduError, Receiver, Rules, decode};
pub use encode::{Digests, put, put_data, put_data_header};

/// The common header of every PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Common {
    /// PDU type.
    pub kind: u8,
    /// Flags.
    pub flags: u8,
    /// Bytes of the header, without its digest.
    pub hlen: u8,
    /// Offset of the data; 0 without data.
    pub pdo: u8,
    /// Bytes of the whole PDU.
    pub plen: U32,
}
const _: () = assert!(size_of::<Common>() == 8);

/// A header digest follows the header.
pub const FLAG_HDGST: u8 = 1 << 0;
/// A data digest follows the data.
pub const FLAG_DDGST: u8 = 1 << 1;
/// The last PDU of its data transfer.
pub const FLAG_LAST: u8 = 1 << 2;
/// The command succeeded: no response follows.
pub const FLAG_SUCCESS: u8 = 1 << 3;
/// The length of a digest.
pub const DIGEST_LEN: usize = 4;

/// The types of PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PduType {
    /// Initialize Connection Request, from the host.
    IcReq,
    /// Initialize Connection Response.
    IcResp,
    /// The host ends the connection.
    H2cTermReq,
    /// The controller ends the connection.
    C2hTermReq,
    /// A command, from the host.
    CapsuleCmd,
    /// The end of a command.
    CapsuleResp,
    /// Data from the host.
    H2cData,
    /// Data to the host.
    C2hData,
    /// Ready to Transfer: the controller asks for data.
    R2t,
}

impl PduType {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::IcReq,
        Self::IcResp,
        Self::H2cTermReq,
        Self::C2hTermReq,
        Self::CapsuleCmd,
        Self::CapsuleResp,
        Self::H2cData,
        Self::C2hData,
        Self::R2t,
    ];

    /// The number on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::IcReq => 0,
            Self::IcResp => 1,
            Self::H2cTermReq => 2,
            Self::C2hTermReq => 3,
            Self::CapsuleCmd => 4,
            Self::CapsuleResp => 5,
            Self::H2cData => 6,
            Self::C2hData => 7,
            Self::R2t => 9,
        }
    }

    /// What a number on the wire means.
    pub fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The length of the header, without its digest.
    pub const fn hlen(self) -> u8 {
        match self {
            Self::IcReq | Self::IcResp => 128,
            Self::CapsuleCmd => 72,
            Self::H2cTermReq
            | Self::C2hTermReq
            | Self::CapsuleResp
            | Self::H2cData
            | Self::C2hData
            | Self::R2t => 24,
        }
    }

    /// True when it goes from the host to the controller.
    pub const fn is_from_host(self) -> bool {
        match self {
            Self::IcReq | Self::H2cTermReq | Self::CapsuleCmd | Self::H2cData => true,
            Self::IcResp | Self::C2hTermReq | Self::CapsuleResp | Self::C2hData | Self::R2t => false,
        }
    }

    /// True when it may carry digests: those that set a connection up or end it never do.
    pub const fn has_digests(self) -> bool {
        match self {
            Self::IcReq | Self::IcResp | Self::H2cTermReq | Self::C2hTermReq => false,
            Self::CapsuleCmd | Self::CapsuleResp | Self::H2cData | Self::C2hData | Self::R2t => true,
        }
    }
}

macro_rules! header {
    ($(#[$doc:meta])* $name:ident: $kind:ident, $len:literal, { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        pub struct $name {
            /// Common header.
            pub common: Common,
            $($(#[$fdoc])* pub $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $len && PduType::$kind.hlen() == $len);

        impl Header for $name {
            const TYPE: PduType = PduType::$kind;
            fn common(&mut self) -> &mut Common {
                &mut self.common
            }
        }
    };
}

/// A header of a PDU.
pub trait Header: IntoBytes + Immutable {
    /// The type of its PDU.
    const TYPE: PduType;
    /// Its first 8 bytes.
    fn common(&mut self) -> &mut Common;
}

header! {
    /// Initialize Connection Request.
    IcReq: IcReq, 128, {
        /// PDU format version, 0.
        pfv: U16,
        /// Alignment of the data that the host takes, in dwords, counted from 0.
        hpda: u8,
        /// Digests asked for: header in bit 0, data in bit 1.
        dgst: u8,
        /// R2Ts that may be outstanding for a command, counted from 0.
        maxr2t: U32,
        /// Reserved.
        reserved: [u8; 112],
    }
}

header! {
    /// Initialize Connection Response.
    IcResp: IcResp, 128, {
        /// PDU format version, 0.
        pfv: U16,
        /// Alignment of the data that the controller takes, in dwords, counted from 0.
        cpda: u8,
        /// Digests in use: header in bit 0, data in bit 1.
        dgst: u8,
        /// The most data of an H2CData PDU.
        maxh2cdata: U32,
        /// Reserved.
        reserved: [u8; 112],
    }
}

header! {
    /// The header of a host's request to end the connection; the header of the PDU to blame follows as data.
    H2cTermReq: H2cTermReq, 24, {
        /// Fatal error status.
        fes: U16,
        /// More about it, in two parts.
        fei: [U16; 2],
        /// Reserved.
        reserved: [u8; 10],
    }
}

header! {
    /// The header of a controller's notice that it ends the connection; the header of the PDU to blame follows.
    C2hTermReq: C2hTermReq, 24, {
        /// Fatal error status.
        fes: U16,
        /// More about it: the offset of the field to blame, in two parts.
        fei: [U16; 2],
        /// Reserved.
        reserved: [u8; 10],
    }
}

header! {
    /// A command capsule.
    CapsuleCmd: CapsuleCmd, 72, {
        /// The command.
        sqe: Sqe,
    }
}

header! {
    /// A response capsule.
    CapsuleResp: CapsuleResp, 24, {
        /// The completion.
        cqe: Cqe,
    }
}

header! {
    /// Data from the host.
    H2cData: H2cData, 24, {
        /// The command.
        cccid: U16,
        /// The R2T it answers.
        ttag: U16,
        /// Where it goes, in bytes from the start of the command's data.
        datao: U32,
        /// How much it is.
        datal: U32,
        /// Reserved.
        reserved: U32,
    }
}

header! {
    /// Data to the host.
    C2hData: C2hData, 24, {
        /// The command.
        cccid: U16,
        /// Reserved.
        reserved10: U16,
        /// Where it goes, in bytes from the start of the command's data.
        datao: U32,
        /// How much it is.
        datal: U32,
        /// Reserved.
        reserved: U32,
    }
}

header! {
    /// Ready to Transfer.
    R2t: R2t, 24, {
        /// The command.
        cccid: U16,
        /// A number that the data must carry.
        ttag: U16,
        /// From where on, in bytes from the start of the command's data.
        r2to: U32,
        /// How much.
        r2tl: U32,
        /// Reserved.
        reserved: U32,
    }
}

/// Why a connection is ended: the FES field of a termination request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalError {
    /// A field of a header makes no sense.
    InvalidHeader,
    /// A PDU at the wrong time.
    PduSequence,
    /// The header digest is wrong.
    HeaderDigest,
    /// Data outside of what was asked for.
    DataOutOfRange,
    /// More data than MAXH2CDATA in one PDU.
    DataLimitExceeded,
    /// A parameter that is not supported.
    UnsupportedParameter,
}

impl FatalError {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::InvalidHeader,
        Self::PduSequence,
        Self::HeaderDigest,
        Self::DataOutOfRange,
        Self::DataLimitExceeded,
        Self::UnsupportedParameter,
    ];

    /// The number on the wire.
    pub const fn code(self) -> u16 {
        match self {
            Self::InvalidHeader => 1,
            Self::PduSequence => 2,
            Self::HeaderDigest => 3,
            Self::DataOutOfRange => 4,
            Self::DataLimitExceeded => 5,
            Self::UnsupportedParameter => 6,
        }
    }

    /// What a number on the wire means.
    pub fn of(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.code() == code)
    }
}
