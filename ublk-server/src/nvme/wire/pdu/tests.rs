//! Tests of the PDUs: by the tables of the specification, by round trips, and by what a fuzzer would send.

use super::*;
use crate::nvme::wire::command::IoOpcode;
use crate::nvme::wire::zeroed;
use proptest::prelude::*;
use zerocopy::little_endian::U32;

fn rules(receiver: Receiver, digests: Digests) -> Rules {
    Rules { receiver, digests, data_max: 1 << 17 }
}

fn all_digests() -> [Digests; 4] {
    [0, 1, 2, 3].map(Digests::from_bits)
}

#[test]
fn a_write_capsule_has_the_bytes_of_the_specification() {
    let mut out = Vec::new();
    let sqe = Sqe::io(IoOpcode::Write, 1, 0, 1);
    let header = CapsuleCmd { common: zeroed(), sqe };
    put_data(&mut out, Digests::default(), 4, 0, header, &[7; 512]);
    assert_eq!(out[..8], [4, 0, 72, 72, 72, 2, 0, 0]);
    assert_eq!(out.len(), 584);
    let mut out = Vec::new();
    put_data(&mut out, Digests::from_bits(3), 4, 0, header, &[7; 512]);
    assert_eq!(out[..8], [4, 3, 72, 76, 80, 2, 0, 0]);
    assert_eq!(out.len(), 72 + 4 + 512 + 4);
}

#[test]
fn crc32c_is_the_one_of_the_specification() {
    // RFC 3720, appendix B.4: 32 bytes of zeroes, of ones, ascending.
    assert_eq!(crc32c::crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
    assert_eq!(crc32c::crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
    let ascending: Vec<u8> = (0..32).collect();
    assert_eq!(crc32c::crc32c(&ascending).to_le_bytes(), [0x4e, 0x79, 0xdd, 0x46]);
}

#[test]
fn what_was_put_together_is_taken_apart() {
    for digests in all_digests() {
        for align in [4, 8, 128] {
            let mut out = Vec::new();
            let mut header: C2hData = zeroed();
            header.cccid = U16::new(9);
            header.datal = U32::new(5);
            put_data(&mut out, digests, align, FLAG_LAST, header, b"hello");
            let whole = out.len();
            out.extend_from_slice(&[1, 2, 3]);
            let rules = rules(Receiver::Host, digests);
            let decoded = decode(&out, &rules).unwrap();
            let Decoded::Whole { pdu: Pdu::C2hData(header, data), len, intact: true } = decoded else {
                panic!("{decoded:?}")
            };
            assert_eq!((header.cccid.get(), data, len), (9, &b"hello"[..], whole));
            assert_eq!(usize::from(header.common.pdo) % align, 0);
            for cut in 0..whole {
                match decode(&out[..cut], &rules).unwrap() {
                    Decoded::Need(need) => assert!(need > cut && need <= whole),
                    Decoded::Whole { .. } => panic!("{cut} of {whole} bytes are no PDU"),
                }
            }
        }
    }
}

#[test]
fn a_wrong_header_digest_ends_the_connection_and_a_wrong_data_digest_is_told() {
    let digests = Digests::from_bits(3);
    let rules = rules(Receiver::Controller, digests);
    let mut out = Vec::new();
    let mut header: H2cData = zeroed();
    header.datal = U32::new(4);
    put_data(&mut out, digests, 4, 0, header, &[1, 2, 3, 4]);
    let mut wrong = out.clone();
    wrong[12] ^= 1;
    assert_eq!(decode(&wrong, &rules).unwrap_err().error, FatalError::HeaderDigest);
    let mut wrong = out.clone();
    wrong[28] ^= 1;
    assert!(matches!(decode(&wrong, &rules), Ok(Decoded::Whole { intact: false, .. })));
    assert!(matches!(decode(&out, &rules), Ok(Decoded::Whole { intact: true, .. })));
}

#[test]
fn a_header_that_makes_no_sense_is_refused_by_its_first_bytes() {
    let rules = rules(Receiver::Controller, Digests::default());
    let cases: [(&str, [u8; 8], u16); 12] = [
        ("unknown type", [8, 0, 24, 0, 24, 0, 0, 0], 0),
        ("a PDU of a controller", [5, 0, 24, 0, 24, 0, 0, 0], 0),
        ("short header", [4, 0, 24, 0, 72, 0, 0, 0], 2),
        ("long header", [0, 0, 129, 0, 128, 0, 0, 0], 2),
        ("PDU shorter than its header", [4, 0, 72, 0, 71, 0, 0, 0], 4),
        ("ICReq with data", [0, 0, 128, 0, 132, 0, 0, 0], 4),
        ("header digest that was not agreed on", [4, 1, 72, 0, 76, 0, 0, 0], 1),
        ("data digest that was not agreed on", [4, 2, 72, 72, 88, 0, 0, 0], 1),
        ("data within the header", [4, 0, 72, 64, 88, 0, 0, 0], 3),
        ("data at an odd place", [4, 0, 72, 73, 88, 0, 0, 0], 3),
        ("data beyond the end", [4, 0, 72, 88, 88, 0, 0, 0], 4),
        ("termination with a novel", [2, 0, 24, 0, 200, 0, 0, 0], 4),
    ];
    for (what, bytes, offset) in cases {
        let error = decode(&bytes, &rules).expect_err(what);
        assert_eq!((error.error, error.offset), (FatalError::InvalidHeader, offset), "{what}");
    }
    let huge = [6, 0, 24, 24, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(decode(&huge, &rules).unwrap_err().error, FatalError::DataLimitExceeded);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any bytes are a PDU, the start of one of bounded length, or refused; never anything else.
    #[test]
    fn any_bytes_are_decoded_or_refused(
        kind in 0u8..11, flags in 0u8..16, hlen in prop::sample::select(vec![0u8, 24, 72, 128, 255]),
        pdo in prop::sample::select(vec![0u8, 24, 28, 72, 76, 128, 255]), plen in 0u32..400, dgst in 0u8..4,
        rest in prop::collection::vec(any::<u8>(), 0..400), host in any::<bool>(),
    ) {
        let mut bytes = vec![kind, flags, hlen, pdo];
        bytes.extend_from_slice(&plen.to_le_bytes());
        bytes.extend_from_slice(&rest);
        let receiver = if host { Receiver::Host } else { Receiver::Controller };
        let rules = rules(receiver, Digests::from_bits(dgst));
        match decode(&bytes, &rules) {
            Ok(Decoded::Need(need)) => prop_assert!(need > bytes.len() && need <= 128 + 4 + rules.data_max + 4),
            Ok(Decoded::Whole { len, .. }) => prop_assert!(len <= bytes.len() && len == plen as usize),
            Err(_) => {}
        }
    }
}
