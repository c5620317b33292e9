//! Putting PDUs together.

use super::{Common, DIGEST_LEN, FLAG_DDGST, FLAG_HDGST, Header};
use zerocopy::little_endian::U32;

/// The digests of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Every header has one.
    pub header: bool,
    /// All data has one.
    pub data: bool,
}

impl Digests {
    /// As ICReq and ICResp say it.
    pub const fn from_bits(bits: u8) -> Self {
        Self { header: bits & 1 != 0, data: bits & 2 != 0 }
    }

    /// As ICReq and ICResp say it.
    pub const fn bits(self) -> u8 {
        self.header as u8 | (self.data as u8) << 1
    }
}

/// Appends a PDU without data. The common header is filled in.
pub fn put<H: Header>(out: &mut Vec<u8>, digests: Digests, flags: u8, mut header: H) {
    let hlen = H::TYPE.hlen();
    let digest = digests.header && H::TYPE.has_digests();
    let plen = usize::from(hlen) + if digest { DIGEST_LEN } else { 0 };
    let flags = flags | if digest { FLAG_HDGST } else { 0 };
    *header.common() = common::<H>(flags, 0, plen);
    put_header(out, digest, &header);
}

/// Appends a PDU with `data`, which begins at a multiple of `align` bytes. The common header is filled in.
pub fn put_data<H: Header>(
    out: &mut Vec<u8>,
    digests: Digests,
    align: usize,
    flags: u8,
    header: H,
    data: &[u8],
) {
    put_data_header(out, digests, align, flags, header, data.len());
    out.extend_from_slice(data);
    if digests.data {
        out.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
    }
}

/// The same up to the data, which follows, and its digest, if it has one.
pub fn put_data_header<H: Header>(
    out: &mut Vec<u8>,
    digests: Digests,
    align: usize,
    flags: u8,
    mut header: H,
    len: usize,
) {
    assert!(H::TYPE.has_digests(), "a PDU that ends or begins a connection is put together otherwise");
    let head = usize::from(H::TYPE.hlen()) + if digests.header { DIGEST_LEN } else { 0 };
    let pdo = head.next_multiple_of(align);
    let plen = pdo + len + if digests.data { DIGEST_LEN } else { 0 };
    let hdgst = if digests.header { FLAG_HDGST } else { 0 };
    let ddgst = if digests.data { FLAG_DDGST } else { 0 };
    *header.common() = common::<H>(flags | hdgst | ddgst, pdo, plen);
    put_header(out, digests.header, &header);
    out.resize(out.len() + pdo - head, 0);
}

fn common<H: Header>(flags: u8, pdo: usize, plen: usize) -> Common {
    Common {
        kind: H::TYPE.code(),
        flags,
        hlen: H::TYPE.hlen(),
        pdo: u8::try_from(pdo).expect("a header and its padding are shorter than 256 bytes"),
        plen: U32::new(u32::try_from(plen).expect("a PDU is shorter than 4 GiB")),
    }
}

fn put_header<H: Header>(out: &mut Vec<u8>, digest: bool, header: &H) {
    let bytes = header.as_bytes();
    out.extend_from_slice(bytes);
    if digest {
        out.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    }
}
