//! The zoned namespace command set.

use super::*;
use crate::nvme::client::{copy, zone_report};
use crate::nvme::wire::command::{AdminOpcode, IoOpcode};
use crate::nvme::wire::copy::{CopyFormat, CopyRange};
use crate::nvme::wire::identify::{Cns, CommandSet, IDENTIFY_LEN, IdentifyNamespace};
use crate::nvme::wire::log::{EFFECT_CONTENT, EFFECT_SUPPORTED, EffectsLog, LogFields, LogPage};
use crate::nvme::wire::read;
use crate::nvme::wire::zone::{IdentifyNamespaceZoned, NO_LIMIT, ZoneEntry, ZoneReceive, ZoneSend};
use emulation::zone::{ZoneFailure, ZoneGeometry};
use emulation::{Flags, Op, Sector, SectorRange};
use zerocopy::little_endian::U32;

/// Blocks of a zone: 1 MiB of 512 bytes; the last 48 are never written.
const ZONE: u64 = 2048;
const WRITABLE: u64 = 2000;
/// The zoned namespace: 16 zones, 4 of which may be open and 6 active, and appends of up to 64 KiB.
const NSID: u32 = 3;
const VOLUME: VolumeId = VolumeId(2);

const EMPTY: u8 = 1;
const IMP_OPEN: u8 = 2;
const EXP_OPEN: u8 = 3;
const CLOSED: u8 = 4;
const READ_ONLY: u8 = 0xd;
const FULL: u8 = 0xe;
const OFFLINE: u8 = 0xf;

fn zoned_limits() -> Limits {
    let mut limits = Limits::new(Sectors(16 * ZONE), Sectors(1), Sectors(8));
    limits.zones = Some(ZoneGeometry {
        capacity: Sectors(WRITABLE),
        max_open: 4,
        max_active: 6,
        max_append: Sectors(128),
        ..ZoneGeometry::new(Sectors(ZONE))
    });
    limits.validate().unwrap();
    limits
}

/// A rig with a zoned namespace, an admin and an I/O queue.
fn rig() -> (Rig, ConnectionId, ConnectionId) {
    let mut rig = Rig::new();
    rig.add_zoned();
    let (admin, io) = rig.io(&HostOptions::new(NQN));
    (rig, admin, io)
}

impl Rig {
    /// Adds the zoned namespace.
    pub(super) fn add_zoned(&mut self) {
        self.engine.control(Control::AddVolume(VOLUME, zoned_limits()));
        let nsid = self.target.add_namespace(VOLUME, "zones", zoned_limits(), &mut Vec::new());
        assert_eq!(nsid, Some(NSID));
    }

    fn identify_set(&mut self, id: ConnectionId, cns: Cns, nsid: u32, set: CommandSet) -> (Status, Vec<u8>) {
        let mut sqe = Sqe::new(AdminOpcode::Identify.code(), nsid);
        sqe.cdw10 = U32::new(cns.code().into());
        sqe.cdw11 = U32::new(u32::from(set.code()) << 24);
        let done = self.run(id, sqe, Transfer::In(IDENTIFY_LEN as u32));
        (done.status(), done.data)
    }

    fn write_at(&mut self, io: ConnectionId, slba: u64, blocks: u64) -> Status {
        let sqe = Sqe::io(IoOpcode::Write, NSID, slba, blocks as u32);
        self.run(io, sqe, Transfer::Out(vec![slba as u8; blocks as usize * 512])).status()
    }

    fn append(&mut self, io: ConnectionId, zslba: u64, blocks: u64) -> (Status, u64) {
        let sqe = Sqe::io(IoOpcode::ZoneAppend, NSID, zslba, blocks as u32);
        let done = self.run(io, sqe, Transfer::Out(vec![0xaa; blocks as usize * 512]));
        (done.status(), done.cqe.result.get())
    }

    fn send(&mut self, io: ConnectionId, action: ZoneSend, slba: u64, all: bool) -> Status {
        self.run(io, action.sqe(NSID, slba, all), Transfer::None).status()
    }

    fn receive(&mut self, io: ConnectionId, slba: u64, fields: ZoneReceive) -> (Status, Vec<u8>) {
        let done = self.run(io, fields.sqe(NSID, slba), Transfer::In(fields.len as u32));
        (done.status(), done.data)
    }

    /// All zones.
    fn zones(&mut self, io: ConnectionId) -> Vec<ZoneEntry> {
        let fields = ZoneReceive { zra: 0, zrasf: 0, partial: false, len: 64 * 17 };
        let (status, data) = self.receive(io, 0, fields);
        assert_eq!(status, Status::SUCCESS);
        let (count, zones) = zone_report(&data).unwrap();
        assert_eq!((count, zones.len()), (16, 16));
        zones
    }

    /// The state of a zone and the blocks that are written, none where there is no pointer.
    fn zone(&mut self, io: ConnectionId, zone: usize) -> (u8, Option<u64>) {
        let entry = self.zones(io)[zone];
        let wp = Some(entry.wp.get()).filter(|wp| *wp != ZoneEntry::NO_WP);
        (entry.state(), wp.map(|wp| wp - entry.zslba.get()))
    }
}

#[test]
fn a_host_finds_a_zoned_namespace() {
    let (mut rig, admin, _) = rig();
    let list = |rig: &mut Rig, set| {
        let (status, data) = rig.identify_set(admin, Cns::ActiveNamespacesOfSet, 0, set);
        assert_eq!(status, Status::SUCCESS);
        data.chunks(4)
            .map(|id| u32::from_le_bytes(id.try_into().unwrap()))
            .take_while(|id| *id > 0)
            .collect::<Vec<_>>()
    };
    assert_eq!(list(&mut rig, CommandSet::Nvm), [1, 2]);
    assert_eq!(list(&mut rig, CommandSet::Zoned), [NSID]);
    let (_, descriptors) = rig.identify_set(admin, Cns::NamespaceDescriptors, NSID, CommandSet::Nvm);
    assert_eq!(descriptors[40..45], [4, 1, 0, 0, 2], "the descriptor of the command set");
    let (_, sets) = rig.identify_set(admin, Cns::CommandSets, 0, CommandSet::Nvm);
    assert_eq!(sets[..16], [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let (_, data) = rig.identify_set(admin, Cns::Namespace, NSID, CommandSet::Nvm);
    let id: IdentifyNamespace = read(&data).unwrap();
    assert_eq!((id.nsze.get(), id.ncap.get(), id.block_size()), (16 * ZONE, 16 * WRITABLE, 512));
    let (status, data) = rig.identify_set(admin, Cns::NamespaceOfSet, NSID, CommandSet::Zoned);
    let id: IdentifyNamespaceZoned = read(&data).unwrap();
    assert_eq!((status, id.zoc.get(), id.ozcs.get()), (Status::SUCCESS, 0, 1));
    assert_eq!((id.mar.get(), id.mor.get(), id.lbafe[0].zsze.get()), (5, 3, ZONE));
    for (nsid, status) in [
        (1, Status::INVALID_FIELD.dnr()),
        (9, Status::SUCCESS),
        (0, Status::INVALID_NAMESPACE.dnr()),
        (u32::MAX, Status::INVALID_NAMESPACE.dnr()),
    ] {
        let (found, data) = rig.identify_set(admin, Cns::NamespaceOfSet, nsid, CommandSet::Zoned);
        assert!(found == status && data.iter().all(|byte| *byte == 0), "namespace {nsid}: {found}");
    }
    let (_, data) = rig.identify_set(admin, Cns::ControllerOfSet, 0, CommandSet::Zoned);
    assert_eq!(data[0], 4, "appends of 2^4 pages");
    // Without limits, and with appends that cannot be said: what can be is less.
    let mut other = zoned_limits();
    let zones = other.zones.as_mut().unwrap();
    (zones.max_open, zones.max_active, zones.max_append) = (0, 0, Sectors(40));
    rig.target.set_limits(VOLUME, other, &mut Vec::new());
    let (_, data) = rig.identify_set(admin, Cns::NamespaceOfSet, NSID, CommandSet::Zoned);
    let id: IdentifyNamespaceZoned = read(&data).unwrap();
    assert_eq!((id.mar.get(), id.mor.get()), (NO_LIMIT, NO_LIMIT));
    let (_, data) = rig.identify_set(admin, Cns::ControllerOfSet, 0, CommandSet::Zoned);
    assert_eq!(data[0], 2, "of 20 KiB 16 KiB can be said");
}

#[test]
fn each_command_set_has_its_own_commands() {
    let (mut rig, admin, io) = rig();
    for (set, nsid) in [(CommandSet::Nvm, 1), (CommandSet::Zoned, NSID)] {
        let mut sqe = LogFields::sqe(0, LogPage::Effects.code(), 4096, 0);
        sqe.cdw14 = U32::new(u32::from(set.code()) << 24);
        let done = rig.run(admin, sqe, Transfer::In(4096));
        let log: EffectsLog = read(&done.data).unwrap();
        for code in 0..=255u8 {
            let effects = log.io[usize::from(code)].get();
            let opcode = IoOpcode::of(code).filter(|opcode| opcode.is_of(set));
            let content = opcode.is_some_and(IoOpcode::changes);
            let expected = if opcode.is_some() { EFFECT_SUPPORTED } else { 0 }
                | if content { EFFECT_CONTENT } else { 0 };
            assert_eq!(effects, expected, "{code:02x}h of {set:?}");
            // Fabrics commands are another matter.
            if opcode.is_none() && code != AdminOpcode::Fabrics.code() {
                let sqe = Sqe::new(code, nsid);
                assert_eq!(
                    rig.run(io, sqe, Transfer::None).status(),
                    Status::INVALID_OPCODE.dnr(),
                    "{code:02x}h"
                );
            }
        }
    }
}

#[test]
fn zones_go_from_state_to_state() {
    let (mut rig, _, io) = rig();
    assert_eq!(rig.zone(io, 0), (EMPTY, Some(0)));
    assert_eq!(rig.write_at(io, 0, 8), Status::SUCCESS);
    assert_eq!(rig.zone(io, 0), (IMP_OPEN, Some(8)));
    assert_eq!(rig.zones(io)[1].zcap.get(), WRITABLE);
    for (action, state, wp) in [
        (ZoneSend::Open, EXP_OPEN, Some(8)),
        (ZoneSend::Close, CLOSED, Some(8)),
        (ZoneSend::Finish, FULL, None),
        (ZoneSend::Reset, EMPTY, Some(0)),
    ] {
        assert_eq!(rig.send(io, action, 0, false), Status::SUCCESS);
        assert_eq!(rig.zone(io, 0), (state, wp), "{action:?}");
    }
    assert_eq!(rig.send(io, ZoneSend::Close, 0, false), Status::ZONE_TRANSITION.dnr());
    assert_eq!(
        rig.send(io, ZoneSend::Open, 8, false),
        Status::INVALID_FIELD.dnr(),
        "not the start of a zone"
    );
    assert_eq!(rig.send(io, ZoneSend::Open, 16 * ZONE, false), Status::LBA_OUT_OF_RANGE.dnr());
    let mut unknown = ZoneSend::Reset.sqe(NSID, 0, false);
    for code in [0, 5, 0x10, 0x11, 0xff] {
        unknown.cdw13 = U32::new(code);
        assert_eq!(rig.run(io, unknown, Transfer::None).status(), Status::INVALID_FIELD.dnr(), "{code:02x}h");
    }
}

#[test]
fn an_action_on_all_changes_those_that_it_is_for() {
    let (mut rig, _, io) = rig();
    let state = |rig: &mut Rig| rig.zones(io).iter().take(5).map(ZoneEntry::state).collect::<Vec<_>>();
    // Implicitly open, explicitly open, closed, full, empty.
    assert_eq!(rig.write_at(io, 0, 8), Status::SUCCESS);
    assert_eq!(rig.send(io, ZoneSend::Open, ZONE, false), Status::SUCCESS);
    assert_eq!(rig.write_at(io, 2 * ZONE, 8), Status::SUCCESS);
    assert_eq!(rig.send(io, ZoneSend::Close, 2 * ZONE, false), Status::SUCCESS);
    assert_eq!(rig.send(io, ZoneSend::Finish, 3 * ZONE, false), Status::SUCCESS);
    assert_eq!(state(&mut rig), [IMP_OPEN, EXP_OPEN, CLOSED, FULL, EMPTY]);
    assert_eq!(rig.send(io, ZoneSend::Open, 7, true), Status::SUCCESS);
    assert_eq!(state(&mut rig), [IMP_OPEN, EXP_OPEN, EXP_OPEN, FULL, EMPTY]);
    assert_eq!(rig.send(io, ZoneSend::Close, 0, true), Status::SUCCESS);
    // Nothing was written to the second: it is empty again.
    assert_eq!(state(&mut rig), [CLOSED, EMPTY, CLOSED, FULL, EMPTY]);
    assert_eq!(rig.send(io, ZoneSend::Finish, 0, true), Status::SUCCESS);
    assert_eq!(state(&mut rig), [FULL, EMPTY, FULL, FULL, EMPTY]);
    rig.engine.control(Control::FailZone(VOLUME, Sector(2 * ZONE), ZoneFailure::Readonly));
    assert_eq!(rig.send(io, ZoneSend::Reset, 0, true), Status::SUCCESS);
    assert_eq!(state(&mut rig), [EMPTY, EMPTY, READ_ONLY, EMPTY, EMPTY]);
}

#[test]
fn writes_and_appends_are_refused_as_the_standard_says() {
    let (mut rig, _, io) = rig();
    assert_eq!(rig.append(io, 0, 8), (Status::SUCCESS, 0));
    assert_eq!(rig.append(io, 0, 128), (Status::SUCCESS, 8));
    assert_eq!(rig.append(io, ZONE, 8), (Status::SUCCESS, ZONE));
    assert_eq!(rig.zone(io, 0), (IMP_OPEN, Some(136)));
    let refused = Status::INVALID_FIELD.dnr();
    assert_eq!(rig.append(io, 8, 8).0, refused, "not the start of a zone");
    assert_eq!(rig.append(io, 0, 129).0, refused, "more than the longest append");
    let mut remap = Sqe::io(IoOpcode::ZoneAppend, NSID, 0, 8);
    remap.cdw12 = U32::new(remap.cdw12.get() | Sqe::PIREMAP);
    assert_eq!(rig.run(io, remap, Transfer::Out(vec![0; 4096])).status(), refused);
    assert_eq!(rig.write_at(io, 128, 8), Status::ZONE_INVALID_WRITE.dnr());
    assert_eq!(rig.write_at(io, 144, 8), Status::ZONE_INVALID_WRITE.dnr());
    assert_eq!(rig.write_at(io, 136, WRITABLE - 135), Status::ZONE_BOUNDARY.dnr());
    assert_eq!(rig.write_at(io, 136, WRITABLE - 136), Status::SUCCESS);
    assert_eq!(rig.zone(io, 0), (FULL, None));
    assert_eq!(rig.append(io, 0, 8).0, Status::ZONE_FULL.dnr());
    assert_eq!(rig.write_at(io, 0, 8), Status::ZONE_FULL.dnr());
    let fail = |zone: u64, failure| Control::FailZone(VOLUME, Sector(zone * ZONE), failure);
    rig.engine.control(fail(2, ZoneFailure::Readonly));
    rig.engine.control(fail(3, ZoneFailure::Offline));
    assert_eq!(rig.append(io, 2 * ZONE, 8).0, Status::ZONE_READ_ONLY.dnr());
    assert_eq!(rig.append(io, 3 * ZONE, 8).0, Status::ZONE_OFFLINE.dnr());
    assert_eq!((rig.zone(io, 2), rig.zone(io, 3)), ((READ_ONLY, None), (OFFLINE, None)));
    let sqe = Sqe::io(IoOpcode::Read, NSID, 3 * ZONE, 8);
    assert_eq!(rig.run(io, sqe, Transfer::In(4096)).status(), Status::ZONE_OFFLINE.dnr());
    let sqe = Sqe::io(IoOpcode::Read, NSID, ZONE - 8, 16);
    assert_eq!(
        rig.run(io, sqe, Transfer::In(8192)).status(),
        Status::SUCCESS,
        "a read may go on in the next zone"
    );
    // Zone 1 is open; three more may be, and by command none gives way.
    for zone in 4..7 {
        assert_eq!(rig.send(io, ZoneSend::Open, zone * ZONE, false), Status::SUCCESS);
    }
    assert_eq!(rig.send(io, ZoneSend::Open, ZONE, false), Status::SUCCESS);
    assert_eq!(rig.append(io, 7 * ZONE, 8).0, Status::TOO_MANY_OPEN_ZONES.dnr());
    assert_eq!(rig.send(io, ZoneSend::Close, ZONE, false), Status::SUCCESS);
    assert_eq!(rig.write_at(io, 4 * ZONE, 8), Status::SUCCESS);
    assert_eq!(rig.send(io, ZoneSend::Close, 4 * ZONE, false), Status::SUCCESS);
    assert_eq!(rig.write_at(io, 8 * ZONE, 8), Status::SUCCESS);
    assert_eq!(rig.send(io, ZoneSend::Close, 8 * ZONE, false), Status::SUCCESS);
    assert_eq!(rig.write_at(io, 9 * ZONE, 8), Status::SUCCESS);
    assert_eq!(rig.append(io, 10 * ZONE, 8).0, Status::TOO_MANY_ACTIVE_ZONES.dnr());
}

#[test]
fn a_report_has_what_was_asked_for() {
    let (mut rig, _, io) = rig();
    assert_eq!(rig.write_at(io, 3 * ZONE, 8), Status::SUCCESS);
    assert_eq!(rig.send(io, ZoneSend::Finish, 5 * ZONE, false), Status::SUCCESS);
    assert_eq!(rig.send(io, ZoneSend::Finish, 7 * ZONE, false), Status::SUCCESS);
    let report = |rig: &mut Rig, slba, zrasf, partial, zones: u64| {
        let (status, data) =
            rig.receive(io, slba, ZoneReceive { zra: 0, zrasf, partial, len: 64 + 64 * zones });
        assert_eq!(status, Status::SUCCESS);
        let (count, zones) = zone_report(&data).unwrap();
        (count, zones.iter().map(|zone| zone.zslba.get() / ZONE).collect::<Vec<_>>())
    };
    assert_eq!(report(&mut rig, 0, 0, false, 2), (16, vec![0, 1]));
    assert_eq!(report(&mut rig, 0, 0, true, 2), (2, vec![0, 1]));
    assert_eq!(report(&mut rig, 0, 0, true, 0), (0, vec![]));
    assert_eq!(
        report(&mut rig, 14 * ZONE + 5, 0, false, 9),
        (2, vec![14, 15]),
        "from the zone that has the block"
    );
    assert_eq!(report(&mut rig, 0, 5, false, 1), (2, vec![5]));
    assert_eq!(report(&mut rig, 0, 5, true, 1), (1, vec![5]));
    assert_eq!(report(&mut rig, 6 * ZONE, 5, false, 9), (1, vec![7]));
    assert_eq!(report(&mut rig, 0, 2, true, 9), (1, vec![3]));
    assert_eq!(report(&mut rig, 0, 7, false, 9), (0, vec![]));
    let all = ZoneReceive { zra: 0, zrasf: 0, partial: false, len: 4096 };
    for (slba, fields, status) in [
        (16 * ZONE, all, Status::LBA_OUT_OF_RANGE.dnr()),
        (u64::MAX, all, Status::LBA_OUT_OF_RANGE.dnr()),
        (0, ZoneReceive { zra: 1, ..all }, Status::INVALID_FIELD.dnr()),
        (0, ZoneReceive { zrasf: 8, ..all }, Status::INVALID_FIELD.dnr()),
        (0, ZoneReceive { len: 60, ..all }, Status::INVALID_FIELD.dnr()),
        (0, ZoneReceive { len: (1 << 20) + 4, ..all }, Status::INVALID_FIELD.dnr()),
    ] {
        assert_eq!(rig.receive(io, slba, fields).0, status, "{fields:?} from {slba}");
    }
    assert_eq!(report(&mut rig, 0, 0, false, 16383), (16, (0..16).collect()), "the longest report");
}

#[test]
fn copies_go_to_the_pointer_and_remap() {
    let (mut rig, _, io) = rig();
    for zone in 0..3 {
        assert_eq!(rig.write_at(io, zone * ZONE, 16), Status::SUCCESS);
    }
    let copies = |rig: &mut Rig, to, ranges: &[CopyRange]| {
        let (sqe, list) = copy(NSID, to, CopyFormat::Same, ranges);
        let done = rig.run(io, sqe, Transfer::Out(list));
        (done.status(), done.cqe.dw0())
    };
    let gathered = [CopyRange::new(0, ZONE, 8), CopyRange::new(0, 2 * ZONE + 8, 8)];
    assert_eq!(copies(&mut rig, 4 * ZONE, &gathered), (Status::SUCCESS, 0));
    assert_eq!(rig.zone(io, 4), (IMP_OPEN, Some(16)));
    assert_eq!(copies(&mut rig, 4 * ZONE, &gathered).0, Status::ZONE_INVALID_WRITE.dnr());
    assert_eq!(rig.zone(io, 4), (IMP_OPEN, Some(16)));
    assert_eq!(rig.engine.with_pool(|pool| pool.ledger(VOLUME).remapped.0), 8192);
    let op = Op::Read(SectorRange { start: Sector(4 * ZONE), len: Sectors(16) });
    let data = rig.runtime.block_on(rig.engine.call(VOLUME, op, Flags::NONE, None)).data.unwrap();
    assert_eq!((data[0], data[4096]), (ZONE as u8, (2 * ZONE) as u8));
    let long = [CopyRange::new(0, 0, WRITABLE as u32)];
    assert_eq!(copies(&mut rig, 4 * ZONE + 16, &long).0, Status::ZONE_BOUNDARY.dnr());
}

#[test]
fn where_another_door_writes_this_one_reads() {
    let (mut rig, admin, io) = rig();
    assert_eq!(rig.write_at(io, 0, 8), Status::SUCCESS);
    rig.target.set_limits(VOLUME, Limits { read_only: true, ..zoned_limits() }, &mut Vec::new());
    let (_, data) = rig.identify_set(admin, Cns::Namespace, NSID, CommandSet::Nvm);
    assert_eq!(read::<IdentifyNamespace>(&data).unwrap().nsattr, 1);
    let refused = Status::WRITE_PROTECTED.dnr();
    assert_eq!(rig.write_at(io, 8, 8), refused);
    assert_eq!(rig.append(io, 0, 8).0, refused);
    for all in [false, true] {
        assert_eq!(rig.send(io, ZoneSend::Reset, 0, all), refused);
    }
    let (sqe, list) = copy(NSID, 8, CopyFormat::Same, &[CopyRange::new(0, 0, 8)]);
    assert_eq!(rig.run(io, sqe, Transfer::Out(list)).status(), refused);
    assert_eq!(rig.zone(io, 0), (IMP_OPEN, Some(8)));
    let done = rig.run(io, Sqe::io(IoOpcode::Read, NSID, 0, 8), Transfer::In(4096));
    assert!(done.status().is_ok());
}
