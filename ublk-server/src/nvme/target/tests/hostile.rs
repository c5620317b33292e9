//! Hosts that err, and hosts that mean harm. Each ends its own connection at most.

use super::*;
use crate::nvme::client::QueueOptions;
use crate::nvme::wire::command::IoOpcode;
use crate::nvme::wire::pdu::{self, Digests, FLAG_LAST, FatalError, H2cData, H2cTermReq};
use crate::nvme::wire::zeroed;
use proptest::prelude::*;
use zerocopy::little_endian::{U16, U32};

fn options() -> HostOptions {
    HostOptions::new(NQN)
}

/// An I/O queue whose host keeps all data out of the capsule, and another host's.
fn two(bits: u8) -> (Rig, ConnectionId, ConnectionId) {
    let mut rig = Rig::new();
    let queue =
        QueueOptions { digests: Digests::from_bits(bits), in_capsule_max: 0, ..QueueOptions::default() };
    let (_, io) = rig.io(&HostOptions { queue, ..options() });
    let (_, other) = rig.io(&options());
    (rig, io, other)
}

/// The connection has ended for this reason and the other has not noticed.
fn ends(mut rig: Rig, io: ConnectionId, other: ConnectionId, why: FatalError) {
    rig.pump();
    assert!(rig.pairs[&io].controller.is_ended());
    assert_eq!(rig.error(io), Some(QueueError::Terminated(Some(why))));
    let done = rig.run(other, Sqe::new(IoOpcode::Flush.code(), 1), Transfer::None);
    assert_eq!(done.status(), Status::SUCCESS);
}

fn data(cccid: u16, ttag: u16, datao: u32, datal: u32) -> H2cData {
    H2cData {
        common: zeroed(),
        cccid: U16::new(cccid),
        ttag: U16::new(ttag),
        datao: U32::new(datao),
        datal: U32::new(datal),
        reserved: U32::new(0),
    }
}

/// A write of 8 blocks whose R2T is on the way; the host's own answer to it is not sent.
fn asked(rig: &mut Rig, io: ConnectionId) -> u16 {
    let cid = rig.host_of(io).submit(Sqe::io(IoOpcode::Write, 1, 0, 8), Transfer::Out(vec![1; 4096]));
    let view = rig.target.view(io);
    let pair = rig.pairs.get_mut(&io).unwrap();
    let command: Vec<u8> = pair.host.output().iter().flat_map(|s| s.to_vec()).collect();
    pair.host.sent(command.len());
    pair.controller.space()[..command.len()].copy_from_slice(&command);
    pair.controller.filled(command.len(), &view);
    let len = pair.controller.output_len();
    assert_eq!(len, 24, "an R2T");
    pair.controller.sent(len, &view);
    cid
}

#[test]
fn data_that_was_not_asked_for_ends_the_connection() {
    let wrong = |cid: u16, n: u8| match n {
        0 => (data(cid, 9, 0, 4096), 4096, FLAG_LAST, FatalError::InvalidHeader),
        1 => (data(cid + 1, 0, 0, 4096), 4096, FLAG_LAST, FatalError::InvalidHeader),
        2 => (data(cid, 0, 4, 4092), 4092, FLAG_LAST, FatalError::DataOutOfRange),
        3 => (data(cid, 0, 0, 8192), 8192, FLAG_LAST, FatalError::DataOutOfRange),
        4 => (data(cid, 0, 0, 4096), 4096, 0, FatalError::DataOutOfRange),
        5 => (data(cid, 0, 0, 2048), 2048, FLAG_LAST, FatalError::DataOutOfRange),
        6 => (data(cid, 0, u32::MAX, 16), 16, FLAG_LAST, FatalError::DataOutOfRange),
        _ => (data(cid, 0, 0, 4096), 4092, FLAG_LAST, FatalError::InvalidHeader),
    };
    for n in 0..8 {
        let (mut rig, io, other) = two(0);
        let cid = asked(&mut rig, io);
        let (header, len, flags, why) = wrong(cid, n);
        let mut bytes = Vec::new();
        pdu::put_data(&mut bytes, Digests::default(), 4, flags, header, &vec![0; len]);
        rig.host_of(io).raw(&bytes);
        ends(rig, io, other, why);
    }
}

#[test]
fn a_wrong_header_digest_ends_the_connection_a_wrong_data_digest_the_command() {
    let (mut rig, io, other) = two(3);
    let host = rig.host_of(io);
    let cid = host.submit(Sqe::io(IoOpcode::Write, 1, 0, 8), Transfer::None);
    let len = host.output_len();
    host.sent(len);
    let mut sqe = Sqe::io(IoOpcode::Write, 1, 0, 8);
    (sqe.cid, sqe.dptr) = (U16::new(cid), crate::nvme::wire::command::Sgl::in_capsule(4096));
    let mut bytes = Vec::new();
    let capsule = pdu::CapsuleCmd { common: zeroed(), sqe };
    pdu::put_data(&mut bytes, Digests::from_bits(3), 4, 0, capsule, &[5; 4096]);
    let mut spoilt = bytes.clone();
    spoilt[1000] ^= 1;
    rig.host_of(io).raw(&spoilt);
    rig.pump();
    assert_eq!(rig.done(io).unwrap().status(), Status::TRANSIENT_TRANSPORT, "may be tried again");
    assert_eq!(rig.host_of(io).submit(Sqe::new(0, 1), Transfer::None), cid);
    let len = rig.host_of(io).output_len();
    rig.host_of(io).sent(len);
    rig.host_of(io).raw(&bytes);
    rig.pump();
    assert_eq!(rig.done(io).unwrap().status(), Status::SUCCESS, "and was");
    bytes[20] ^= 1;
    rig.host_of(io).raw(&bytes);
    ends(rig, io, other, FatalError::HeaderDigest);
}

#[test]
fn pdus_at_the_wrong_time_end_the_connection() {
    // A second ICReq.
    let (mut rig, io, other) = two(0);
    let mut bytes = Vec::new();
    pdu::put(&mut bytes, Digests::default(), 0, zeroed::<pdu::IcReq>());
    rig.host_of(io).raw(&bytes);
    ends(rig, io, other, FatalError::PduSequence);
    // More data in a capsule than the controller takes.
    let (mut rig, io, other) = two(0);
    let capsule = pdu::CapsuleCmd { common: zeroed(), sqe: Sqe::io(IoOpcode::Write, 1, 0, 33) };
    let mut bytes = Vec::new();
    pdu::put_data(&mut bytes, Digests::default(), 4, 0, capsule, &[0; 33 * 512]);
    rig.host_of(io).raw(&bytes);
    ends(rig, io, other, FatalError::DataLimitExceeded);
    // A PDU of a controller.
    let (mut rig, io, other) = two(0);
    let mut bytes = Vec::new();
    pdu::put(&mut bytes, Digests::default(), 0, zeroed::<pdu::R2t>());
    rig.host_of(io).raw(&bytes);
    ends(rig, io, other, FatalError::InvalidHeader);
    // More commands than the queue has entries.
    let (mut rig, io, other) = two(0);
    for n in 0..200u64 {
        rig.host_of(io).submit(Sqe::io(IoOpcode::Write, 1, n * 8, 8), Transfer::Out(vec![1; 4096]));
    }
    rig.step = 1 << 20;
    ends(rig, io, other, FatalError::PduSequence);
    // The host ends it: nothing is answered.
    let (mut rig, io, _) = two(0);
    let mut bytes = Vec::new();
    pdu::put(&mut bytes, Digests::default(), 0, zeroed::<H2cTermReq>());
    rig.host_of(io).raw(&bytes);
    rig.pump();
    assert!(rig.pairs[&io].controller.is_ended() && rig.error(io).is_none());
}

#[test]
fn a_version_or_alignment_that_is_not_supported_is_refused() {
    for (pfv, hpda) in [(1, 0), (0, 32)] {
        let mut connection = Connection::new(ConnectionLimits::default());
        let mut icreq: pdu::IcReq = zeroed();
        (icreq.pfv, icreq.hpda) = (U16::new(pfv), hpda);
        let mut bytes = Vec::new();
        pdu::put(&mut bytes, Digests::default(), 0, icreq);
        connection.space()[..bytes.len()].copy_from_slice(&bytes);
        connection.filled(bytes.len(), &View::default());
        assert!(connection.is_ended());
        assert_eq!(connection.error().map(|error| error.error), Some(FatalError::UnsupportedParameter));
    }
}

#[test]
fn a_number_in_use_is_refused_and_its_command_goes_on() {
    let (mut rig, io, _) = two(0);
    let cid = asked(&mut rig, io);
    let mut sqe = Sqe::new(IoOpcode::Flush.code(), 1);
    sqe.cid = U16::new(cid);
    let mut bytes = Vec::new();
    pdu::put(&mut bytes, Digests::default(), 0, pdu::CapsuleCmd { common: zeroed(), sqe });
    rig.host_of(io).raw(&bytes);
    rig.pump();
    assert_eq!(rig.done(io).unwrap().status(), Status::COMMAND_ID_CONFLICT.dnr());
    let controller = &rig.pairs[&io].controller;
    assert_eq!((controller.is_ended(), controller.live()), (false, 1));
}

/// A connection in one of its states, and what it has already been sent.
fn fed(state: u8, bits: u8) -> (Rig, ConnectionId) {
    let mut rig = Rig::new();
    let queue = QueueOptions { digests: Digests::from_bits(bits), ..QueueOptions::default() };
    let options = HostOptions { queue, ..options() };
    let id = match state {
        0 => rig.open(&options),
        1 => rig.host(&options).0,
        _ => rig.io(&options).1,
    };
    (rig, id)
}

/// Sends bytes as they are, and lets what follows happen.
fn send(rig: &mut Rig, id: ConnectionId, bytes: &[u8]) {
    rig.host_of(id).raw(bytes);
    rig.pump();
    let controller = &rig.pairs[&id].controller;
    assert!(controller.live() <= usize::from(QUEUE_ENTRIES_MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Random bytes, in every state.
    #[test]
    fn random_bytes_harm_nobody(state in 0u8..3, bits in 0u8..4, bytes in prop::collection::vec(any::<u8>(), 1..2000)) {
        let (mut rig, id) = fed(state, bits);
        send(&mut rig, id, &bytes);
    }

    /// Capsules with the right frame and a random command, and data of any length.
    #[test]
    fn random_commands_harm_nobody(
        admin: bool, commands in prop::collection::vec((any::<[u8; 64]>(), any::<u8>(), 0usize..600), 1..20),
    ) {
        let (mut rig, id) = fed(if admin { 1 } else { 2 }, 0);
        rig.add_zoned();
        let known: Vec<u8> = match admin {
            true => crate::nvme::wire::command::AdminOpcode::ALL.iter().map(|opcode| opcode.code()).collect(),
            false => IoOpcode::ALL.iter().map(|opcode| opcode.code()).collect(),
        };
        for (sqe, opcode, len) in commands {
            let mut sqe: Sqe = crate::nvme::wire::read(&sqe).unwrap();
            sqe.opcode = known[usize::from(opcode) % known.len()];
            sqe.flags = Sqe::FLAGS_SGL;
            sqe.nsid = U32::new(u32::from(opcode) % 4);
            // Zone actions there are, and the high half of an offset in a log page.
            sqe.cdw13 = U32::new(if opcode & 1 == 0 { sqe.cdw13.get() & 0x1_0107 } else { 0 });
            if opcode % 3 == 0 {
                sqe.dptr = crate::nvme::wire::command::Sgl::in_capsule(len as u32);
                sqe.cdw12 = U32::new(sqe.cdw12.get() & 0xff);
            }
            let capsule = pdu::CapsuleCmd { common: zeroed(), sqe };
            let mut bytes = Vec::new();
            match len {
                0 => pdu::put(&mut bytes, Digests::default(), 0, capsule),
                len => pdu::put_data(&mut bytes, Digests::default(), 4, 0, capsule, &vec![0x5a; len]),
            }
            send(&mut rig, id, &bytes);
        }
        rig.engine.with_pool(|pool| pool.check()).unwrap();
    }

    /// Whatever a controller says, the host takes it or gives the connection up.
    #[test]
    fn random_bytes_from_a_controller_harm_no_host(
        ready: bool, kind in 0u8..11, flags in 0u8..16, hlen in prop::sample::select(vec![16u8, 24, 128]),
        rest in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let (mut rig, id) = fed(2, 0);
        let mut fresh = HostQueue::new(QueueOptions::default());
        let host = if ready { rig.host_of(id) } else { &mut fresh };
        if ready {
            host.submit(Sqe::io(IoOpcode::Write, 1, 0, 64), Transfer::Out(vec![1; 32768]));
            host.submit(Sqe::io(IoOpcode::Read, 1, 0, 8), Transfer::In(4096));
        }
        let mut bytes = vec![kind, flags, hlen, if kind == 7 { 24 } else { 0 }];
        bytes.extend_from_slice(&(8 + rest.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&rest);
        let space = host.space();
        let len = bytes.len().min(space.len());
        space[..len].copy_from_slice(&bytes[..len]);
        let _ = host.filled(len);
    }

    /// A good conversation with one byte changed.
    #[test]
    fn a_flipped_byte_harms_nobody(bits in 0u8..4, place in 0usize..9000, flip in 1u8..=255) {
        let (mut rig, id) = fed(2, bits);
        let host = rig.host_of(id);
        host.submit(Sqe::io(IoOpcode::Write, 1, 0, 8), Transfer::Out(vec![1; 4096]));
        host.submit(Sqe::io(IoOpcode::Read, 1, 0, 8), Transfer::In(4096));
        let (sqe, list) = crate::nvme::client::copy(1, 800, crate::nvme::wire::copy::CopyFormat::Same,
            &[crate::nvme::wire::copy::CopyRange::new(0, 0, 8)]);
        host.submit(sqe, Transfer::Out(list));
        let mut bytes: Vec<u8> = host.output().iter().flat_map(|s| s.to_vec()).collect();
        let len = host.output_len();
        host.sent(len);
        let place = place % bytes.len();
        bytes[place] ^= flip;
        send(&mut rig, id, &bytes);
        rig.engine.with_pool(|pool| pool.check()).unwrap();
    }
}
