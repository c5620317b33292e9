//! Taking PDUs apart. Every byte may be wrong.

use super::{
    C2hData, C2hTermReq, CapsuleCmd, CapsuleResp, Common, DIGEST_LEN, Digests, FLAG_DDGST, FLAG_HDGST,
    FatalError, H2cData, H2cTermReq, IcReq, IcResp, PduType, R2t,
};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Who receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The controller.
    Controller,
    /// The host.
    Host,
}

/// What a receiver takes.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Who receives.
    pub receiver: Receiver,
    /// The digests of the connection.
    pub digests: Digests,
    /// The most data of one PDU, in bytes.
    pub data_max: usize,
}

/// A PDU.
#[derive(Clone, Copy, Debug)]
pub enum Pdu<'a> {
    /// Initialize Connection Request.
    IcReq(&'a IcReq),
    /// Initialize Connection Response.
    IcResp(&'a IcResp),
    /// The host ends the connection.
    H2cTermReq(&'a H2cTermReq),
    /// The controller ends the connection.
    C2hTermReq(&'a C2hTermReq),
    /// A command and the data in its capsule.
    CapsuleCmd(&'a CapsuleCmd, &'a [u8]),
    /// The end of a command.
    CapsuleResp(&'a CapsuleResp),
    /// Data from the host.
    H2cData(&'a H2cData, &'a [u8]),
    /// Data to the host.
    C2hData(&'a C2hData, &'a [u8]),
    /// Ready to Transfer.
    R2t(&'a R2t),
}

/// What the bytes at hand are.
#[derive(Clone, Copy, Debug)]
pub enum Decoded<'a> {
    /// The start of a PDU of which at least so many bytes are needed.
    Need(usize),
    /// A whole PDU.
    Whole {
        /// The PDU.
        pdu: Pdu<'a>,
        /// So many bytes.
        len: usize,
        /// Its data has the digest that it must have.
        intact: bool,
    },
}

/// Why the bytes can be no PDU: the connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PDU refused: {error:?}, offset {offset}")]
pub struct PduError {
    /// What is wrong.
    pub error: FatalError,
    /// The offset of the field to blame in the PDU.
    pub offset: u16,
}

const KIND: u16 = 0;
const FLAGS: u16 = 1;
const HLEN: u16 = 2;
const PDO: u16 = 3;
const PLEN: u16 = 4;

const fn invalid(offset: u16) -> PduError {
    PduError { error: FatalError::InvalidHeader, offset }
}

/// Where the parts of a PDU are.
struct Layout {
    kind: PduType,
    plen: usize,
    hdgst: bool,
    ddgst: bool,
    data: std::ops::Range<usize>,
}

/// Looks at the bytes that have arrived.
///
/// # Errors
/// They cannot become a PDU that `rules` allow. Says so as soon as 8 bytes show it.
pub fn decode<'a>(bytes: &'a [u8], rules: &Rules) -> Result<Decoded<'a>, PduError> {
    let Ok((common, _)) = Common::ref_from_prefix(bytes) else {
        return Ok(Decoded::Need(size_of::<Common>()));
    };
    let layout = layout(common, rules)?;
    let hlen = usize::from(layout.kind.hlen());
    let head = hlen + if layout.hdgst { DIGEST_LEN } else { 0 };
    if bytes.len() < head {
        return Ok(Decoded::Need(layout.plen));
    }
    if layout.hdgst && bytes[hlen..head] != crc32c::crc32c(&bytes[..hlen]).to_le_bytes() {
        return Err(PduError { error: FatalError::HeaderDigest, offset: 0 });
    }
    if bytes.len() < layout.plen {
        return Ok(Decoded::Need(layout.plen));
    }
    let data = &bytes[layout.data.clone()];
    let intact = !layout.ddgst
        || bytes[layout.data.end..layout.data.end + DIGEST_LEN] == crc32c::crc32c(data).to_le_bytes();
    let pdu = pdu(layout.kind, bytes, data)?;
    Ok(Decoded::Whole { pdu, len: layout.plen, intact })
}

fn layout(common: &Common, rules: &Rules) -> Result<Layout, PduError> {
    let kind = PduType::of(common.kind).ok_or(invalid(KIND))?;
    if kind.is_from_host() != (rules.receiver == Receiver::Controller) {
        return Err(invalid(KIND));
    }
    if common.hlen != kind.hlen() {
        return Err(invalid(HLEN));
    }
    let plen = usize::try_from(common.plen.get()).map_err(|_| invalid(PLEN))?;
    let hdgst = rules.digests.header && kind.has_digests();
    if (common.flags & FLAG_HDGST != 0) != hdgst {
        return Err(invalid(FLAGS));
    }
    let head = usize::from(kind.hlen()) + if hdgst { DIGEST_LEN } else { 0 };
    let carries = match kind {
        PduType::CapsuleCmd | PduType::H2cData | PduType::C2hData => plen > head,
        PduType::H2cTermReq | PduType::C2hTermReq => return term(kind, plen),
        PduType::IcReq | PduType::IcResp | PduType::CapsuleResp | PduType::R2t => false,
    };
    if !carries {
        // A data PDU without data, or one of those that never have any.
        let ends = plen == head && common.flags & FLAG_DDGST == 0;
        return if ends {
            Ok(Layout { kind, plen, hdgst, ddgst: false, data: head..head })
        } else {
            Err(invalid(if plen == head { FLAGS } else { PLEN }))
        };
    }
    let ddgst = rules.digests.data;
    if (common.flags & FLAG_DDGST != 0) != ddgst {
        return Err(invalid(FLAGS));
    }
    let start = usize::from(common.pdo);
    if start < head || !start.is_multiple_of(4) {
        return Err(invalid(PDO));
    }
    let end = plen.checked_sub(if ddgst { DIGEST_LEN } else { 0 }).ok_or(invalid(PLEN))?;
    if end <= start {
        return Err(invalid(PLEN));
    }
    if end - start > rules.data_max {
        return Err(PduError { error: FatalError::DataLimitExceeded, offset: PLEN });
    }
    Ok(Layout { kind, plen, hdgst, ddgst, data: start..end })
}

/// A termination request carries up to 128 bytes of the PDU to blame.
fn term(kind: PduType, plen: usize) -> Result<Layout, PduError> {
    let head = usize::from(kind.hlen());
    if !(head..=head + 128).contains(&plen) {
        return Err(invalid(PLEN));
    }
    Ok(Layout { kind, plen, hdgst: false, ddgst: false, data: head..plen })
}

fn pdu<'a>(kind: PduType, bytes: &'a [u8], data: &'a [u8]) -> Result<Pdu<'a>, PduError> {
    Ok(match kind {
        PduType::IcReq => Pdu::IcReq(header(bytes)?),
        PduType::IcResp => Pdu::IcResp(header(bytes)?),
        PduType::H2cTermReq => Pdu::H2cTermReq(header(bytes)?),
        PduType::C2hTermReq => Pdu::C2hTermReq(header(bytes)?),
        PduType::CapsuleCmd => Pdu::CapsuleCmd(header(bytes)?, data),
        PduType::CapsuleResp => Pdu::CapsuleResp(header(bytes)?),
        PduType::H2cData => {
            let header: &H2cData = header(bytes)?;
            said(header.datal.get(), data)?;
            Pdu::H2cData(header, data)
        }
        PduType::C2hData => {
            let header: &C2hData = header(bytes)?;
            said(header.datal.get(), data)?;
            Pdu::C2hData(header, data)
        }
        PduType::R2t => Pdu::R2t(header(bytes)?),
    })
}

fn header<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> Result<&T, PduError> {
    T::ref_from_prefix(bytes).map(|(header, _)| header).map_err(|_| invalid(PLEN))
}

/// The data is as long as its header says.
fn said(datal: u32, data: &[u8]) -> Result<(), PduError> {
    const DATAL: u16 = 16;
    if usize::try_from(datal).is_ok_and(|datal| datal == data.len()) { Ok(()) } else { Err(invalid(DATAL)) }
}
