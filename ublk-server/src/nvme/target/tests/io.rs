//! I/O commands against a real pool.

use super::*;
use crate::nvme::client::{QueueOptions, copy, deallocate};
use crate::nvme::wire::command::{AdminOpcode, IoOpcode, Sgl};
use crate::nvme::wire::copy::{CopyFields, CopyFormat, CopyRange};
use crate::nvme::wire::pdu::Digests;
use emulation::{BlkStatus, CopyMode, Flags, Op, Sector, SectorRange};
use proptest::prelude::*;
use zerocopy::little_endian::{U16, U32};

fn options() -> HostOptions {
    HostOptions::new(NQN)
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ (at >> 8) as u8 ^ seed).collect()
}

impl Rig {
    fn write(&mut self, io: ConnectionId, nsid: u32, slba: u64, data: &[u8]) -> Status {
        let sqe = Sqe::io(IoOpcode::Write, nsid, slba, (data.len() / 512) as u32);
        self.run(io, sqe, Transfer::Out(data.to_vec())).status()
    }

    fn read(&mut self, io: ConnectionId, nsid: u32, slba: u64, blocks: u32) -> Vec<u8> {
        let done = self.run(io, Sqe::io(IoOpcode::Read, nsid, slba, blocks), Transfer::In(blocks * 512));
        assert_eq!(done.status(), Status::SUCCESS);
        done.data
    }

    /// What the volume has, without the door.
    fn stored(&self, volume: u32, slba: u64, blocks: u64) -> Vec<u8> {
        let op = Op::Read(SectorRange { start: Sector(slba), len: Sectors(blocks) });
        let result = self.runtime.block_on(self.engine.call(VolumeId(volume), op, Flags::NONE, None));
        assert_eq!(result.completion.status, BlkStatus::Ok);
        result.data.unwrap()
    }

    fn set_limits(&mut self, volume: u32, change: impl Fn(&mut Limits)) {
        let mut new = limits();
        change(&mut new);
        new.validate().unwrap();
        self.engine.control(Control::SetLimits(VolumeId(volume), new.clone()));
        self.target.set_limits(VolumeId(volume), new, &mut Vec::new());
    }

    /// Enables Copy format 2h.
    fn enable_cross_copy(&mut self, admin: ConnectionId) {
        let mut sqe = Sqe::new(AdminOpcode::SetFeatures.code(), 0);
        sqe.cdw10 = U32::new(0x16);
        let mut behavior = vec![0; 512];
        behavior[4] = 1 << 2;
        assert_eq!(self.run(admin, sqe, Transfer::Out(behavior)).status(), Status::SUCCESS);
    }

    fn copy(&mut self, io: ConnectionId, format: CopyFormat, to: u64, ranges: &[CopyRange]) -> (Status, u32) {
        let (sqe, list) = copy(1, to, format, ranges);
        let done = self.run(io, sqe, Transfer::Out(list));
        (done.status(), done.cqe.dw0())
    }
}

/// Every way in which data can go over the wire.
#[test]
fn data_arrives_by_every_way() {
    for (bits, hpda, in_capsule_max, h2c_data_max, no_flow_control, step) in [
        (0, 0, 8192, usize::MAX, false, 1 << 20),
        (0, 0, 16384, usize::MAX, true, 4096),
        (1, 31, 0, 512, false, 777),
        (2, 3, 4096, 3000, true, 5000),
        (3, 0, 0, 4096, false, 100),
        (3, 7, 8192, usize::MAX, true, 1 << 20),
    ] {
        let mut rig = Rig::new();
        rig.step = step;
        rig.limits.h2c_data_max = 8192;
        let queue = QueueOptions { digests: Digests::from_bits(bits), hpda, in_capsule_max, h2c_data_max };
        let (_, io) = rig.io(&HostOptions { queue, no_flow_control, ..options() });
        assert_eq!(rig.host_of(io).digests().bits(), bits);
        let mut slba = 0;
        for blocks in [1u32, 8, 16, 17, 33, 128] {
            let data = pattern(blocks as u8, blocks as usize * 512);
            assert_eq!(rig.write(io, 1, slba, &data), Status::SUCCESS);
            assert!(rig.stored(0, slba, blocks.into()) == data, "digests {bits}, {blocks} blocks written");
            assert!(rig.read(io, 1, slba, blocks) == data, "digests {bits}, {blocks} blocks read");
            slba += u64::from(blocks);
        }
        assert_eq!(rig.error(io), None);
    }
}

#[test]
fn the_longest_transfer_works_and_a_longer_one_is_refused_before_its_data() {
    let mut rig = Rig::new();
    rig.step = 1 << 20;
    let (_, io) = rig.io(&options());
    let data = pattern(1, 1 << 20);
    assert_eq!(rig.write(io, 1, 0, &data), Status::SUCCESS);
    assert!(rig.read(io, 1, 0, 2048) == data);
    let sent = rig.host_of(io).wire().1;
    assert_eq!(rig.write(io, 1, 0, &vec![0; (1 << 20) + 512]), Status::INVALID_FIELD.dnr());
    assert_eq!(rig.host_of(io).wire().1 - sent, 72, "the command, and no data");
    let read = Sqe::io(IoOpcode::Read, 1, 0, 2049);
    let done = rig.run(io, read, Transfer::In((1 << 20) + 512));
    assert_eq!(done.status(), Status::INVALID_FIELD.dnr());
}

#[test]
fn every_command_does_what_it_says() {
    let mut rig = Rig::new();
    let (_, io) = rig.io(&options());
    let data = pattern(3, 8192);
    assert_eq!(rig.write(io, 1, 16, &data), Status::SUCCESS);
    let run = |rig: &mut Rig, sqe, transfer| rig.run(io, sqe, transfer).status();
    assert_eq!(run(&mut rig, Sqe::new(IoOpcode::Flush.code(), 1), Transfer::None), Status::SUCCESS);
    let compare = Sqe::io(IoOpcode::Compare, 1, 16, 16);
    assert_eq!(run(&mut rig, compare, Transfer::Out(data.clone())), Status::SUCCESS);
    let mut other = data.clone();
    other[8191] ^= 1;
    assert_eq!(run(&mut rig, compare, Transfer::Out(other)), Status::COMPARE_FAILURE.dnr());
    assert_eq!(run(&mut rig, Sqe::io(IoOpcode::Verify, 1, 0, 2048), Transfer::None), Status::SUCCESS);
    let mut fua = Sqe::io(IoOpcode::Read, 1, 16, 16);
    fua.cdw12 = U32::new(fua.cdw12.get() | Sqe::FUA);
    let done = rig.run(io, fua, Transfer::In(8192));
    assert!(done.status().is_ok() && done.data == data);
    assert_eq!(run(&mut rig, Sqe::io(IoOpcode::WriteZeroes, 1, 16, 4), Transfer::None), Status::SUCCESS);
    let (dsm, mut list) = deallocate(1, &[(24, 4), (0, 0), (28, 1)]);
    list.resize(4096, 0xee);
    assert_eq!(run(&mut rig, dsm, Transfer::Out(list)), Status::SUCCESS);
    let mut expected = data;
    expected[..2048].fill(0);
    expected[8 * 512..13 * 512].fill(0);
    assert!(rig.stored(0, 16, 16) == expected);
    let mut hint = Sqe::new(IoOpcode::DatasetManagement.code(), 1);
    hint.cdw11 = U32::new(1);
    assert_eq!(run(&mut rig, hint, Transfer::Out(vec![0; 16])), Status::SUCCESS);
    assert!(rig.stored(0, 16, 16) == expected, "hints change nothing");
    assert!(rig.stored(1, 0, 64).iter().all(|&byte| byte == 0), "the other namespace is untouched");
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let mut rig = Rig::new();
    let (_, io) = rig.io(&options());
    assert_eq!(rig.write(io, 1, 0, &pattern(5, 4096)), Status::SUCCESS);
    let blocks = CAPACITY.0 / 512;
    let out = |len: usize| Transfer::Out(vec![0xaa; len]);
    let write = |nsid, slba, blocks| Sqe::io(IoOpcode::Write, nsid, slba, blocks);
    let with = |mut sqe: Sqe, change: &dyn Fn(&mut Sqe)| {
        change(&mut sqe);
        sqe
    };
    let (beyond, _) = deallocate(1, &[(0, 8), (blocks, 1)]);
    let beyond_list = deallocate(1, &[(0, 8), (blocks, 1)]).1;
    let cases: Vec<(&str, Sqe, Transfer, Status)> = vec![
        ("namespace 0", write(0, 0, 1), out(512), Status::INVALID_NAMESPACE),
        ("no active namespace", write(3, 0, 1), out(512), Status::INVALID_FIELD),
        ("all namespaces", write(u32::MAX, 0, 1), out(512), Status::INVALID_NAMESPACE),
        ("flush of all", Sqe::new(0, u32::MAX), Transfer::None, Status::INVALID_NAMESPACE),
        ("beyond the end", write(1, blocks - 1, 2), out(1024), Status::LBA_OUT_OF_RANGE),
        ("beyond 2^64", write(1, u64::MAX, 1), out(512), Status::LBA_OUT_OF_RANGE),
        ("beyond 2^64 bytes", write(1, 1 << 60, 1), out(512), Status::LBA_OUT_OF_RANGE),
        ("data too short", write(1, 0, 2), out(512), Status::DATA_SGL_LENGTH_INVALID),
        ("data too long", write(1, 0, 1), out(1024), Status::DATA_SGL_LENGTH_INVALID),
        ("no data", write(1, 0, 1), Transfer::None, Status::DATA_SGL_LENGTH_INVALID),
        (
            "read too short",
            Sqe::io(IoOpcode::Read, 1, 0, 1),
            Transfer::In(256),
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        ("unknown command", Sqe::new(0x55, 1), Transfer::None, Status::INVALID_OPCODE),
        ("zone append", Sqe::new(0x7d, 1), Transfer::None, Status::INVALID_OPCODE),
        ("PRPs", with(write(1, 0, 1), &|sqe| sqe.flags = 0), out(512), Status::INVALID_FIELD),
        ("fused", with(write(1, 0, 1), &|sqe| sqe.flags |= 1), out(512), Status::INVALID_FIELD),
        (
            "directive",
            with(write(1, 0, 1), &|sqe| sqe.cdw12 = U32::new(1 << 20)),
            out(512),
            Status::INVALID_FIELD,
        ),
        ("deallocate beyond the end", beyond, Transfer::Out(beyond_list), Status::LBA_OUT_OF_RANGE),
        (
            "zeroes beyond the end",
            Sqe::io(IoOpcode::WriteZeroes, 1, blocks, 1),
            Transfer::None,
            Status::LBA_OUT_OF_RANGE,
        ),
        ("verify beyond MDTS", Sqe::io(IoOpcode::Verify, 1, 0, 4096), Transfer::None, Status::INVALID_FIELD),
    ];
    for (what, sqe, transfer, status) in cases {
        assert_eq!(rig.run(io, sqe, transfer).status(), status.dnr(), "{what}");
    }
    assert!(rig.stored(0, 0, 8) == pattern(5, 4096));
    rig.set_limits(0, |limits| limits.read_only = true);
    assert_eq!(rig.write(io, 1, 0, &[0; 512]), Status::WRITE_PROTECTED.dnr());
    let (dsm, list) = deallocate(1, &[(0, 8)]);
    assert_eq!(rig.run(io, dsm, Transfer::Out(list)).status(), Status::WRITE_PROTECTED.dnr());
    assert!(rig.read(io, 1, 0, 8) == pattern(5, 4096));
}

#[test]
fn in_capsule_data_must_lie_in_the_capsule() {
    let mut rig = Rig::new();
    let (_, io) = rig.io(&options());
    for (address, length, status) in [
        (0u64, 512u32, Status::SUCCESS),
        (512, 512, Status::SGL_OFFSET_INVALID.dnr()),
        (1, 512, Status::SGL_OFFSET_INVALID.dnr()),
        (u64::MAX, 512, Status::SGL_OFFSET_INVALID.dnr()),
        (0, u32::MAX, Status::SGL_OFFSET_INVALID.dnr()),
        (0, 256, Status::DATA_SGL_LENGTH_INVALID.dnr()),
    ] {
        let mut sqe = Sqe::io(IoOpcode::Write, 1, 0, 1);
        sqe.cid = U16::new(0);
        sqe.dptr = Sgl { address: address.into(), ..Sgl::in_capsule(length) };
        let capsule = crate::nvme::wire::pdu::CapsuleCmd { common: crate::nvme::wire::zeroed(), sqe };
        let mut bytes = Vec::new();
        crate::nvme::wire::pdu::put_data(&mut bytes, Digests::default(), 4, 0, capsule, &[1; 512]);
        // The host knows of a command with this number, so that it takes the answer.
        let done = {
            let host = rig.host_of(io);
            let cid = host.submit(Sqe::new(0, 1), Transfer::None);
            let len = host.output_len();
            host.sent(len);
            bytes[10..12].copy_from_slice(&cid.to_le_bytes());
            host.raw(&bytes);
            rig.pump();
            rig.done(io).unwrap()
        };
        assert_eq!(done.status(), status, "{address} {length}");
    }
}

#[test]
fn copies_put_their_ranges_behind_each_other() {
    let mut rig = Rig::new();
    let (admin, io) = rig.io(&options());
    for block in 0..64u8 {
        assert_eq!(rig.write(io, 1, u64::from(block) * 8, &pattern(block, 4096)), Status::SUCCESS);
    }
    for count in [1usize, 2, 128] {
        let ranges: Vec<_> = (0..count).map(|n| CopyRange::new(0, (n as u64 * 13 % 64) * 8, 8)).collect();
        assert_eq!(rig.copy(io, CopyFormat::Same, 4096, &ranges), (Status::SUCCESS, 0), "{count}");
        let expected: Vec<u8> = (0..count).flat_map(|n| pattern((n * 13 % 64) as u8, 4096)).collect();
        assert!(rig.stored(0, 4096, count as u64 * 8) == expected, "{count}");
    }
    rig.set_limits(0, |limits| limits.copy_max_segments = 256);
    let ranges: Vec<_> = (0..256).map(|n| CopyRange::new(0, n % 64 * 8 + 1, 3)).collect();
    assert_eq!(rig.copy(io, CopyFormat::Same, 8192, &ranges), (Status::SUCCESS, 0), "256, and not aligned");
    let expected: Vec<u8> =
        (0..256u32).flat_map(|n| pattern((n % 64) as u8, 4096)[512..2048].to_vec()).collect();
    assert!(rig.stored(0, 8192, 768) == expected);
    // From the other namespace, once the host has enabled the format.
    assert_eq!(rig.write(io, 2, 80, &pattern(99, 4096)), Status::SUCCESS);
    let ranges = [CopyRange::new(2, 80, 8), CopyRange::new(1, 0, 8)];
    assert_eq!(rig.copy(io, CopyFormat::Cross, 20000, &ranges).0, Status::INVALID_FIELD.dnr());
    rig.enable_cross_copy(admin);
    assert_eq!(rig.copy(io, CopyFormat::Cross, 20000, &ranges), (Status::SUCCESS, 0));
    assert!(rig.stored(0, 20000, 16) == [pattern(99, 4096), pattern(0, 4096)].concat());
    let remapped = rig.engine.with_pool(|pool| pool.ledger(VolumeId(0)).remapped);
    assert!(remapped.0 >= 8192, "across namespaces by remapping too");
}

#[test]
fn copies_that_cannot_be_are_refused_by_their_status() {
    let mut rig = Rig::new();
    let (admin, io) = rig.io(&options());
    rig.enable_cross_copy(admin);
    assert_eq!(rig.write(io, 1, 0, &pattern(1, 16384)), Status::SUCCESS);
    rig.set_limits(0, |limits| {
        limits.copy_max_segments = 4;
        limits.copy_max_segment_bytes = Bytes::kib(64);
        limits.copy_max_bytes = Bytes::kib(128);
    });
    let end = CAPACITY.0 / 512;
    let same = |slba, blocks| CopyRange::new(0, slba, blocks);
    let cross = |nsid, slba, blocks| CopyRange::new(nsid, slba, blocks);
    let fast = |mut range: CopyRange| {
        range.sopt = U16::new(CopyRange::FCO);
        range
    };
    let limit = Status::COMMAND_SIZE_LIMIT;
    let (a, b) = (CopyFormat::Same, CopyFormat::Cross);
    let cases: Vec<(&str, CopyFormat, u64, Vec<CopyRange>, Status)> = vec![
        ("more ranges than MSRC", a, 4096, vec![same(0, 1); 5], limit),
        ("a range above MSSRL", a, 4096, vec![same(0, 129)], limit),
        ("more than MCL", a, 4096, vec![same(0, 128), same(0, 128), same(0, 1)], limit),
        ("the largest range there is", a, 4096, vec![same(0, 65_536)], limit),
        ("source beyond the end", a, 4096, vec![same(end - 7, 8)], Status::LBA_OUT_OF_RANGE),
        ("source beyond 2^64", a, 4096, vec![same(u64::MAX, 8)], Status::LBA_OUT_OF_RANGE),
        ("destination beyond the end", a, end - 8, vec![same(0, 8), same(8, 8)], Status::LBA_OUT_OF_RANGE),
        ("overlap", b, 4, vec![cross(1, 0, 8)], Status::OVERLAPPING_RANGE),
        (
            "overlap by a later range",
            b,
            4096,
            vec![cross(1, 0, 8), cross(1, 4100, 8)],
            Status::OVERLAPPING_RANGE,
        ),
        ("onto itself", b, 0, vec![cross(1, 0, 8)], Status::OVERLAPPING_RANGE),
        ("namespace 0", b, 4096, vec![cross(0, 0, 8)], Status::INVALID_NAMESPACE),
        ("all namespaces", b, 4096, vec![cross(u32::MAX, 0, 8)], Status::INVALID_NAMESPACE),
        ("no active namespace", b, 4096, vec![cross(9, 0, 8)], Status::INVALID_FIELD),
        ("not fast", b, 4096, vec![fast(cross(1, 1, 8))], Status::FAST_COPY_NOT_POSSIBLE),
        ("one not fast", b, 4096, vec![cross(1, 1, 8), fast(cross(1, 9, 8))], Status::FAST_COPY_NOT_POSSIBLE),
    ];
    for (what, format, to, ranges, status) in cases {
        assert_eq!(rig.copy(io, format, to, &ranges), (status.dnr(), 0), "{what}");
    }
    assert!(rig.stored(0, 0, 64) == [pattern(1, 16384), vec![0; 32 * 512]].concat(), "nothing has changed");
    assert!(rig.stored(0, 4096, 512).iter().all(|&byte| byte == 0), "nothing has changed");
    assert_eq!(rig.copy(io, a, 4, &[same(0, 8)]).0, Status::SUCCESS, "format 0h may overlap");
    assert_eq!(rig.copy(io, b, 4096, &[fast(cross(1, 16, 8))]).0, Status::SUCCESS);
    assert_eq!(
        rig.copy(io, b, 8192, &[cross(1, 1, 8), fast(cross(1, 16, 8))]).0,
        Status::SUCCESS,
        "the option is a range's"
    );
    for desfmt in [1, 3, 4, 15] {
        let (mut sqe, list) = copy(1, 4096, a, &[same(0, 8)]);
        CopyFields { ranges: 1, desfmt }.put(&mut sqe);
        assert_eq!(
            rig.run(io, sqe, Transfer::Out(list)).status(),
            Status::INVALID_FIELD.dnr(),
            "format {desfmt}"
        );
    }
    let (sqe, mut list) = copy(1, 4096, a, &[same(0, 8)]);
    list.resize(4096, 0);
    let done = rig.run(io, sqe, Transfer::Out(list));
    assert_eq!(done.status(), Status::DATA_SGL_LENGTH_INVALID.dnr(), "a list padded to a page");
    rig.set_limits(0, |limits| limits.copy_mode = CopyMode::Off);
    assert_eq!(rig.copy(io, a, 4096, &[same(0, 8)]).0, Status::INVALID_OPCODE.dnr());
}

#[test]
fn a_full_queue_with_little_memory_still_moves_everything() {
    let mut rig = Rig::new();
    rig.limits.memory_max = 64 << 10;
    let queue = QueueOptions { in_capsule_max: 0, ..QueueOptions::default() };
    let (_, io) = rig.io(&HostOptions { queue, entries: 64, ..options() });
    for n in 0..63u64 {
        let data = pattern(n as u8, 32 << 10);
        rig.host_of(io).submit(Sqe::io(IoOpcode::Write, 1, n * 64, 64), Transfer::Out(data));
    }
    rig.pump();
    assert_eq!(std::iter::from_fn(|| rig.done(io)).filter(|done| done.status().is_ok()).count(), 63);
    for n in 0..63u64 {
        rig.host_of(io).submit(Sqe::io(IoOpcode::Read, 1, n * 64, 64), Transfer::In(32 << 10));
    }
    rig.pump();
    let mut seen = 0;
    while let Some(done) = rig.done(io) {
        assert!(done.status().is_ok());
        seen += 1;
    }
    assert_eq!(seen, 63);
    assert!(rig.stored(0, 62 * 64, 64) == pattern(62, 32 << 10));
}

/// The bytes of a command's PDUs: (from the host, to the host).
fn formula(out: usize, h2c: usize, input: usize, digests: Digests, implied: bool) -> (u64, u64) {
    let h = if digests.header { 4 } else { 0 };
    let d = |len: usize| if digests.data && len > 0 { 4 } else { 0 };
    let host = match h2c {
        _ if out == 0 => 72 + h,
        0 => 72 + h + out + d(out),
        pieces => 72 + h + pieces * (24 + h) + out + pieces * d(out),
    };
    let r2t = if out > 0 && h2c > 0 { 24 + h } else { 0 };
    let data = if input > 0 { 24 + h + input + d(input) } else { 0 };
    let response = if implied { 0 } else { 24 + h };
    (host as u64, (r2t + data + response) as u64)
}

#[test]
fn the_bytes_on_the_wire_are_those_of_the_formula() {
    for bits in 0..4 {
        for no_flow_control in [false, true] {
            let digests = Digests::from_bits(bits);
            let mut rig = Rig::new();
            rig.limits.h2c_data_max = 8192;
            let queue = QueueOptions { digests, ..QueueOptions::default() };
            let (_, io) = rig.io(&HostOptions { queue, no_flow_control, ..options() });
            let mut check = |what: &str, sqe, transfer, expected| {
                let before = (rig.host_of(io).wire(), rig.pairs[&io].controller.wire());
                assert_eq!(rig.run(io, sqe, transfer).status(), Status::SUCCESS, "{what}");
                let after = (rig.host_of(io).wire(), rig.pairs[&io].controller.wire());
                let moved = (after.0.1 - before.0.1, after.0.0 - before.0.0);
                assert_eq!(moved, expected, "{what}, digests {bits}");
                let there = (after.1.received - before.1.received, after.1.sent - before.1.sent);
                assert_eq!(there, moved, "{what}: both ends count the same");
            };
            let write = |blocks| Sqe::io(IoOpcode::Write, 1, 0, blocks);
            let read = |blocks| Sqe::io(IoOpcode::Read, 1, 0, blocks);
            let out = |len| Transfer::Out(vec![1; len]);
            check("write in the capsule", write(16), out(8192), formula(8192, 0, 0, digests, false));
            check("write by R2T", write(40), out(20480), formula(20480, 3, 0, digests, false));
            check("read", read(8), Transfer::In(4096), formula(0, 0, 4096, digests, no_flow_control));
            check(
                "long read",
                read(128),
                Transfer::In(65536),
                formula(0, 0, 65536, digests, no_flow_control),
            );
            check("flush", Sqe::new(0, 1), Transfer::None, formula(0, 0, 0, digests, false));
            for n in [1usize, 2, 128] {
                let ranges: Vec<_> = (0..n as u64).map(|n| CopyRange::new(0, n * 8, 8)).collect();
                let (sqe, list) = copy(1, 8192, CopyFormat::Same, &ranges);
                let plain = (72 + 32 * n as u64, 24);
                if bits == 0 {
                    assert_eq!(formula(list.len(), 0, 0, digests, false), plain);
                }
                let expected = formula(list.len(), 0, 0, digests, false);
                check("copy", sqe, Transfer::Out(list), expected);
            }
        }
    }
}

/// What a queue of a host may do; the model is a plain copy of the namespace's first blocks.
#[derive(Clone, Debug)]
enum Action {
    Write(u64, u32, u8),
    Read(u64, u32),
    Zeroes(u64, u32),
    Deallocate(u64, u32),
    Copy(Vec<(u64, u32)>, u64),
}

const MODEL_BLOCKS: u64 = 96;

fn action() -> impl Strategy<Value = Action> {
    let range = || (0..MODEL_BLOCKS - 24, 1u32..24);
    prop_oneof![
        (range(), any::<u8>()).prop_map(|((at, len), seed)| Action::Write(at, len, seed)),
        range().prop_map(|(at, len)| Action::Read(at, len)),
        range().prop_map(|(at, len)| Action::Zeroes(at, len)),
        range().prop_map(|(at, len)| Action::Deallocate(at, len)),
        (prop::collection::vec(range(), 1..4), 0..MODEL_BLOCKS - 72).prop_map(|(r, to)| Action::Copy(r, to)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_commands_do_to_the_namespace_what_they_do_to_a_model(
        actions in prop::collection::vec(action(), 1..40), bits in 0u8..4, step in 50usize..20_000, no_flow: bool,
    ) {
        let mut rig = Rig::new();
        rig.step = step;
        let queue = QueueOptions { digests: Digests::from_bits(bits), in_capsule_max: 4096, ..QueueOptions::default() };
        let (admin, io) = rig.io(&HostOptions { queue, no_flow_control: no_flow, ..options() });
        rig.enable_cross_copy(admin);
        let mut model = vec![0u8; MODEL_BLOCKS as usize * 512];
        let bytes = |at: u64, len: u32| at as usize * 512..(at as usize + len as usize) * 512;
        for action in actions {
            match action {
                Action::Write(at, len, seed) => {
                    let data = pattern(seed, len as usize * 512);
                    prop_assert_eq!(rig.write(io, 1, at, &data), Status::SUCCESS);
                    model[bytes(at, len)].copy_from_slice(&data);
                }
                Action::Read(at, len) => prop_assert!(rig.read(io, 1, at, len) == model[bytes(at, len)]),
                Action::Zeroes(at, len) => {
                    let done = rig.run(io, Sqe::io(IoOpcode::WriteZeroes, 1, at, len), Transfer::None);
                    prop_assert_eq!(done.status(), Status::SUCCESS);
                    model[bytes(at, len)].fill(0);
                }
                Action::Deallocate(at, len) => {
                    let (sqe, list) = deallocate(1, &[(at, len)]);
                    prop_assert_eq!(rig.run(io, sqe, Transfer::Out(list)).status(), Status::SUCCESS);
                    model[bytes(at, len)].fill(0);
                }
                Action::Copy(ranges, to) => {
                    let total: u64 = ranges.iter().map(|(_, len)| u64::from(*len)).sum();
                    let overlaps = ranges.iter().any(|&(at, len)| at < to + total && to < at + u64::from(len));
                    let list: Vec<_> = ranges.iter().map(|&(at, len)| CopyRange::new(1, at, len)).collect();
                    let (status, _) = rig.copy(io, CopyFormat::Cross, to, &list);
                    if overlaps {
                        prop_assert_eq!(status, Status::OVERLAPPING_RANGE.dnr());
                    } else {
                        prop_assert_eq!(status, Status::SUCCESS);
                        let copied: Vec<u8> = ranges.iter().flat_map(|&(at, len)| model[bytes(at, len)].to_vec()).collect();
                        model[to as usize * 512..][..copied.len()].copy_from_slice(&copied);
                    }
                }
            }
        }
        prop_assert!(rig.stored(0, 0, MODEL_BLOCKS) == model);
        prop_assert_eq!(rig.error(io), None);
    }
}
