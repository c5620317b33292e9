//! Fabrics and admin commands.

use super::*;
use crate::nvme::wire::command::{AdminOpcode, FabricsType};
use crate::nvme::wire::fabrics::{ConnectData, ConnectFields, DISCOVERY_NQN, blame, csts};
use crate::nvme::wire::feature::{EVENT_NAMESPACE, Feature, SAVE};
use crate::nvme::wire::identify::{Cns, IDENTIFY_LEN, IdentifyController, IdentifyNamespace, bits};
use crate::nvme::wire::log::{
    DiscoveryEntry, DiscoveryHeader, EFFECT_CONTENT, EFFECT_SUPPORTED, EffectsLog, ErrorEntry, HealthLog,
    LogFields, LogPage,
};
use crate::nvme::wire::{read, text, text_of, to_vec};
use emulation::CopyMode;
use zerocopy::little_endian::{U16, U32};

fn options() -> HostOptions {
    HostOptions::new(NQN)
}

fn admin(opcode: AdminOpcode, nsid: u32, cdw10: u32, cdw11: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode.code(), nsid);
    sqe.cdw10 = U32::new(cdw10);
    sqe.cdw11 = U32::new(cdw11);
    sqe
}

impl Rig {
    fn identify(&mut self, id: ConnectionId, cns: Cns, nsid: u32) -> (Status, Vec<u8>) {
        let sqe = admin(AdminOpcode::Identify, nsid, cns.code().into(), 0);
        let done = self.run(id, sqe, Transfer::In(IDENTIFY_LEN as u32));
        (done.status(), done.data)
    }

    fn log(&mut self, id: ConnectionId, page: LogPage, len: u32, offset: u64) -> (Status, Vec<u8>) {
        let done = self.run(id, LogFields::sqe(0, page.code(), len, offset), Transfer::In(len));
        (done.status(), done.data)
    }

    fn feature(&mut self, id: ConnectionId, opcode: AdminOpcode, fid: u32, value: u32) -> (Status, u32) {
        let done = self.run(id, admin(opcode, 0, fid, value), Transfer::None);
        (done.status(), done.cqe.dw0())
    }
}

#[test]
fn a_host_finds_what_the_linux_host_insists_on() {
    let mut rig = Rig::new();
    let (id, cntlid) = rig.host(&options());
    let cap = rig.run(id, PropertyFields::get(Property::Cap), Transfer::None).cqe.result.get();
    assert_eq!(cap & 0xffff, u64::from(QUEUE_ENTRIES_MAX) - 1);
    assert!(
        cap & 1 << 37 != 0 && cap & 1 << 43 != 0 && cap >> 48 & 0xf == 0,
        "NVM, command sets, 4 KiB pages"
    );
    let vs = rig.run(id, PropertyFields::get(Property::Vs), Transfer::None).cqe.dw0();
    assert_eq!(vs, 0x0002_0100);
    assert_eq!(rig.run(id, PropertyFields::get(Property::Csts), Transfer::None).cqe.dw0(), csts::RDY);
    let controller: IdentifyController = read(&rig.identify(id, Cns::Controller, 0).1).unwrap();
    assert_eq!(controller.cntlid.get(), cntlid);
    assert_eq!(text_of(&controller.subnqn), Some(NQN));
    assert!(controller.ioccsz.get() >= 4 + 512, "room for the list of 256 ranges");
    assert_eq!((controller.iorcsz.get(), controller.icdoff.get(), controller.mdts), (1, 0, 8));
    assert!(controller.kas.get() > 0 && controller.maxcmd.get() > 0 && controller.sgls.get() & 1 == 1);
    assert_eq!(controller.cmic, 0, "one controller a host");
    assert_eq!((controller.oncs.get() & bits::ONCS_COPY, controller.ocfs.get()), (bits::ONCS_COPY, 0b101));
    assert_eq!(&rig.identify(id, Cns::ActiveNamespaces, 0).1[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&rig.identify(id, Cns::ActiveNamespaces, 1).1[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    let namespace: IdentifyNamespace = read(&rig.identify(id, Cns::Namespace, 1).1).unwrap();
    assert_eq!((namespace.nsze.get(), namespace.block_size()), (CAPACITY.0 / 512, 512));
    assert_eq!((namespace.mssrl.get(), namespace.mcl.get(), namespace.msrc), (32_768, 262_144, 127));
    let (_, descriptors) = rig.identify(id, Cns::NamespaceDescriptors, 2);
    assert_eq!(descriptors[..4], [3, 16, 0, 0]);
    assert_eq!(descriptors[4..20], identifier(&["uuid", "disk1"]));
    assert_eq!(descriptors[20..24], [2, 16, 0, 0]);
    assert_eq!(descriptors[40..46], [4, 1, 0, 0, 0, 0]);
    for cns in Cns::ALL {
        assert_eq!(rig.identify(id, cns, 1).0, Status::SUCCESS, "{cns:?}");
    }
    for nsid in [0, NAMESPACES_MAX + 1, u32::MAX] {
        let (status, _) = rig.identify(id, Cns::Namespace, nsid);
        assert_eq!(status, Status::INVALID_NAMESPACE.dnr(), "{nsid}");
    }
    assert_eq!(rig.identify(id, Cns::Namespace, 3), (Status::SUCCESS, vec![0; IDENTIFY_LEN]));
    assert_eq!(rig.feature(id, AdminOpcode::SetFeatures, 0x07, 7 << 16 | 7), (Status::SUCCESS, 3 << 16 | 3));
}

#[test]
fn a_wrong_connect_is_refused_with_the_field_to_blame() {
    let mut rig = Rig::with(&[&options().hostnqn]);
    let (_, cntlid) = rig.host(&options());
    let try_ = |rig: &mut Rig, change: &dyn Fn(&mut ConnectFields, &mut ConnectData)| {
        let id = rig.open(&options());
        let (sqe, data) = options().connect(0, CNTLID_DYNAMIC);
        let Transfer::Out(data) = data else { panic!() };
        let (mut fields, mut data) = (ConnectFields::of(&sqe), read::<ConnectData>(&data).unwrap());
        change(&mut fields, &mut data);
        let done = rig.run(id, fields.sqe(), Transfer::Out(to_vec(&data)));
        assert!(rig.pairs[&id].controller.queue().is_none() || done.status().is_ok());
        (done.status(), done.cqe.result.get())
    };
    let invalid = |offset, in_data| (Status::CONNECT_INVALID_PARAM.dnr(), blame(offset, in_data));
    let refused = |status: Status| (status.dnr(), 0);
    assert_eq!(try_(&mut rig, &|fields, _| fields.recfmt = 1), refused(Status::CONNECT_FORMAT));
    assert_eq!(try_(&mut rig, &|fields, _| fields.sqsize = 0), invalid(44, false));
    assert_eq!(try_(&mut rig, &|fields, _| fields.sqsize = QUEUE_ENTRIES_MAX), invalid(44, false));
    assert_eq!(try_(&mut rig, &|_, data| data.subnqn = text("nqn.no", 0)), invalid(256, true));
    assert_eq!(try_(&mut rig, &|_, data| data.hostnqn = [0; 256]), invalid(512, true));
    assert_eq!(try_(&mut rig, &|_, data| data.hostnqn = [0xff; 256]), invalid(512, true));
    assert_eq!(try_(&mut rig, &|_, data| data.cntlid = U16::new(1)), invalid(16, true));
    assert_eq!(
        try_(&mut rig, &|_, data| data.hostnqn = text("nqn.2014-08.org.nvmexpress:uuid:another", 0)),
        refused(Status::CONNECT_INVALID_HOST)
    );
    let io = |qid: u16, cntlid: u16| {
        move |fields: &mut ConnectFields, data: &mut ConnectData| {
            fields.qid = qid;
            data.cntlid = U16::new(cntlid);
        }
    };
    assert_eq!(try_(&mut rig, &io(1, cntlid + 1)), invalid(16, true));
    assert_eq!(try_(&mut rig, &io(5, cntlid)), invalid(42, false));
    let wrong_id = |fields: &mut ConnectFields, data: &mut ConnectData| {
        io(1, cntlid)(fields, data);
        data.hostid = [9; 16];
    };
    assert_eq!(try_(&mut rig, &wrong_id), refused(Status::HOST_ID_INCONSISTENT));
    assert_eq!(try_(&mut rig, &io(4, cntlid)).0, Status::SUCCESS);
    assert_eq!(try_(&mut rig, &io(4, cntlid)), refused(Status::CONNECT_CTRL_BUSY));
}

#[test]
fn there_is_an_order_of_things() {
    let mut rig = Rig::new();
    let id = rig.open(&options());
    let early = rig.run(id, admin(AdminOpcode::KeepAlive, 0, 0, 0), Transfer::None);
    assert_eq!(early.status(), Status::COMMAND_SEQUENCE_ERROR.dnr());
    let (sqe, data) = options().connect(0, CNTLID_DYNAMIC);
    let cntlid = rig.run(id, sqe, data.clone()).cqe.dw0() as u16;
    assert_eq!(rig.run(id, sqe, data).status(), Status::COMMAND_SEQUENCE_ERROR.dnr(), "a second Connect");
    assert_eq!(rig.identify(id, Cns::Controller, 0).0, Status::COMMAND_SEQUENCE_ERROR.dnr(), "not enabled");
    let io = rig.open(&options());
    let (sqe, data) = options().connect(1, cntlid);
    assert_eq!(rig.run(io, sqe, data).status(), Status::COMMAND_SEQUENCE_ERROR.dnr(), "not enabled");
    let set = |value| PropertyFields::set(Property::Cc, value);
    let pages = set(cc::EN | cc::ENTRY_SIZES | 1 << cc::MPS_SHIFT);
    assert_eq!(rig.run(id, pages, Transfer::None).status(), Status::INVALID_FIELD.dnr());
    assert_eq!(rig.run(id, set(cc::EN | cc::ENTRY_SIZES), Transfer::None).status(), Status::SUCCESS);
    let (sqe, data) = options().connect(1, cntlid);
    assert_eq!(rig.run(io, sqe, data).status(), Status::SUCCESS);
    let mut get = PropertyFields::get(Property::Csts);
    assert_eq!(rig.run(io, get, Transfer::None).status(), Status::INVALID_FIELD.dnr(), "not on an I/O queue");
    get.cdw11 = U32::new(0x18);
    assert_eq!(rig.run(id, get, Transfer::None).status(), Status::INVALID_FIELD.dnr(), "no such property");
    let unknown = Sqe::new(0xc1, 0);
    assert_eq!(rig.run(id, unknown, Transfer::None).status(), Status::INVALID_OPCODE.dnr());
    let mut disconnect = unknown;
    (disconnect.opcode, disconnect.nsid) = (AdminOpcode::Fabrics.code(), U32::new(8));
    assert_eq!(rig.run(id, disconnect, Transfer::None).status(), Status::INVALID_OPCODE.dnr());
    let off = set(cc::ENTRY_SIZES | cc::EN | 1 << cc::SHN_SHIFT);
    assert_eq!(rig.run(id, off, Transfer::None).status(), Status::SUCCESS);
    let csts = rig.run(id, PropertyFields::get(Property::Csts), Transfer::None).cqe.dw0();
    assert_eq!(csts, csts::RDY | csts::SHST_COMPLETE);
    assert_eq!(rig.closed, []);
    rig.run(id, set(cc::ENTRY_SIZES), Transfer::None);
    assert_eq!(rig.closed, [io], "a reset ends I/O queues");
}

#[test]
fn the_host_is_told_of_changed_namespaces_once_until_it_has_looked() {
    let mut rig = Rig::new();
    let (id, _) = rig.host(&options());
    rig.feature(
        id,
        AdminOpcode::SetFeatures,
        Feature::AsyncEventConfiguration.code().into(),
        EVENT_NAMESPACE,
    );
    for _ in 0..2 {
        rig.host_of(id).submit(admin(AdminOpcode::AsyncEventRequest, 0, 0, 0), Transfer::None);
    }
    rig.pump();
    assert!(rig.done(id).is_none(), "nothing to tell");
    let change = |rig: &mut Rig, segments| {
        let mut new = limits();
        new.copy_max_segments = segments;
        let mut effects = Vec::new();
        rig.target.set_limits(VolumeId(1), new, &mut effects);
        rig.apply(effects);
        rig.pump();
    };
    change(&mut rig, 64);
    let done = rig.done(id).unwrap();
    assert_eq!((done.status(), done.cqe.dw0()), (Status::SUCCESS, 0x0004_0002));
    change(&mut rig, 32);
    assert!(rig.done(id).is_none(), "told, and not looked at");
    let namespace: IdentifyNamespace = read(&rig.identify(id, Cns::Namespace, 2).1).unwrap();
    assert_eq!(namespace.msrc, 31);
    let (_, list) = rig.log(id, LogPage::ChangedNamespaces, 4096, 0);
    assert_eq!(list[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rig.log(id, LogPage::ChangedNamespaces, 4096, 0).1, vec![0; 4096], "reading clears");
    change(&mut rig, 16);
    assert!(rig.done(id).is_some(), "told again");
}

#[test]
fn event_requests_are_bounded_and_can_be_aborted() {
    let mut rig = Rig::new();
    let (id, _) = rig.host(&options());
    let request = admin(AdminOpcode::AsyncEventRequest, 0, 0, 0);
    let cids: Vec<u16> = (0..4).map(|_| rig.host_of(id).submit(request, Transfer::None)).collect();
    rig.pump();
    assert_eq!(rig.run(id, request, Transfer::None).status(), Status::AER_LIMIT_EXCEEDED.dnr());
    let abort = admin(AdminOpcode::Abort, 0, u32::from(cids[2]) << 16, 0);
    rig.host_of(id).submit(abort, Transfer::None);
    rig.pump();
    let mut done = [rig.done(id).unwrap(), rig.done(id).unwrap()];
    done.sort_by_key(|done| done.status().code());
    assert_eq!((done[0].status(), done[0].cqe.dw0()), (Status::SUCCESS, 1), "nothing is ended at once");
    assert_eq!((done[1].status(), done[1].cid), (Status::ABORT_REQUESTED, cids[2]));
    rig.host_of(id).submit(request, Transfer::None);
    rig.pump();
    assert!(rig.done(id).is_none(), "there is room again");
}

#[test]
fn a_silent_host_loses_its_controller_and_no_other_does() {
    const SECOND: u64 = 1_000_000_000;
    let mut rig = Rig::new();
    let (admin_, io) = rig.io(&HostOptions { kato: 5000, ..options() });
    let (other, _) = rig.host(&options());
    let mut effects = Vec::new();
    assert_eq!(rig.target.tick(rig.now, &mut effects), Some(Instant(1 + 5 * SECOND)));
    rig.now = Instant(1 + 4 * SECOND);
    assert_eq!(
        rig.run(admin_, admin(AdminOpcode::KeepAlive, 0, 0, 0), Transfer::None).status(),
        Status::SUCCESS
    );
    assert_eq!(rig.target.tick(Instant(1 + 8 * SECOND), &mut effects), Some(Instant(1 + 9 * SECOND)));
    assert_eq!(effects, []);
    assert_eq!(rig.target.tick(Instant(1 + 9 * SECOND), &mut effects), None);
    rig.apply(effects);
    assert_eq!(rig.closed, [admin_, io]);
    assert_eq!(rig.identify(other, Cns::Controller, 0).0, Status::SUCCESS);
    assert_eq!(rig.target.hosts().count(), 1);
}

#[test]
fn features_are_as_they_are_set() {
    let mut rig = Rig::new();
    let (id, _) = rig.host(&options());
    let (get, set) = (AdminOpcode::GetFeatures, AdminOpcode::SetFeatures);
    let ok = |value| (Status::SUCCESS, value);
    let refused = (Status::INVALID_FIELD.dnr(), 0);
    for (fid, value, is) in
        [(0x01, 3, 3), (0x04, 0x150, 0x150), (0x02, 0, 0), (0x0a, 1, 0), (0x0b, 0x100, 0x100)]
    {
        assert_eq!(rig.feature(id, set, fid, value), ok(0), "set {fid:x}h");
        assert_eq!(rig.feature(id, get, fid, 0), ok(is), "get {fid:x}h");
    }
    assert_eq!(rig.feature(id, set, 0x0f, 7000), ok(0));
    assert_eq!(rig.feature(id, get, 0x0f, 0), ok(7000));
    for (fid, value) in
        [(0x02, 1), (0x06, 1), (0x0b, 1 << 31), (0x07, 0xffff), (0x19, 1), (0x0e, 0), (0xff, 0)]
    {
        assert_eq!(rig.feature(id, set, fid, value), refused, "set {fid:x}h to {value:x}h");
    }
    assert_eq!(rig.feature(id, set, SAVE | 1, 0), (Status::FEATURE_NOT_SAVEABLE.dnr(), 0));
    let mut behavior = vec![0; 512];
    behavior[4] = 1 << 2;
    let host_behavior = admin(set, 0, 0x16, 0);
    assert_eq!(rig.run(id, host_behavior, Transfer::Out(behavior.clone())).status(), Status::SUCCESS);
    assert!(rig.target.view(id).cross_copy);
    let done = rig.run(id, admin(get, 0, 0x16, 0), Transfer::In(512));
    assert_eq!((done.status(), done.data), (Status::SUCCESS, behavior.clone()));
    behavior[4] = 1 << 3;
    let done = rig.run(id, host_behavior, Transfer::Out(behavior));
    assert_eq!(done.status(), Status::INVALID_FIELD.dnr(), "format 3h is not there to be enabled");
    let done = rig.run(id, admin(get, 0, 0x81, 1), Transfer::In(16));
    assert_eq!((done.status(), done.data), (Status::SUCCESS, vec![7; 16]));
}

#[test]
fn log_pages_say_what_there_is() {
    let mut rig = Rig::new();
    let (id, _) = rig.host(&options());
    let effects: EffectsLog = read(&rig.log(id, LogPage::Effects, 4096, 0).1).unwrap();
    assert_eq!(effects.io[0x19].get(), EFFECT_SUPPORTED | EFFECT_CONTENT, "users may send Copy");
    let there =
        |log: &[U32]| (0..=255u8).filter(|&code| log[usize::from(code)].get() != 0).collect::<Vec<_>>();
    assert_eq!(there(&effects.io), [0, 1, 2, 5, 8, 9, 0xc, 0x19]);
    let health: HealthLog = read(&rig.log(id, LogPage::Health, 512, 0).1).unwrap();
    assert_eq!((health.data_units_read[0].get(), health.data_units_written[0].get()), (1, 2));
    assert_eq!((health.host_read_commands[0].get(), health.critical_warning), (2, 0));
    let wrong = rig.run(id, Sqe::new(0xc1, 0), Transfer::None);
    let entry: ErrorEntry = read(&rig.log(id, LogPage::Error, 64, 0).1).unwrap();
    assert_eq!(entry.cid.get(), wrong.cid);
    assert_eq!((entry.error_count.get(), entry.status), (1, wrong.cqe.status));
    assert_eq!(rig.log(id, LogPage::Supported, 1024, 0).1[0x70 * 4], 0, "no discovery log here");
    for page in LogPage::ALL {
        let expected = match page {
            LogPage::Discovery => Status::INVALID_LOG_PAGE.dnr(),
            _ => Status::SUCCESS,
        };
        assert_eq!(rig.log(id, page, 512, 0).0, expected, "{page:?}");
    }
    for (offset, len) in [(4096, 4), (1 << 40, 4), (u64::MAX - 3, 4), (2, 4), (0, TRANSFER_MAX + 4)] {
        assert_eq!(rig.log(id, LogPage::Effects, len, offset).0, Status::INVALID_FIELD.dnr(), "{offset}");
    }
    assert_eq!(rig.log(id, LogPage::Effects, 8192, 4092).1, vec![0; 8192]);
}

#[test]
fn discovery_shows_the_portals_to_those_who_may_use_them() {
    let mut rig = Rig::with(&["nqn.2014-08.org.nvmexpress:uuid:friend"]);
    let mut friend = HostOptions::new(DISCOVERY_NQN);
    friend.hostnqn = "nqn.2014-08.org.nvmexpress:uuid:friend".to_string();
    let (id, cntlid) = rig.host(&friend);
    let controller: IdentifyController = read(&rig.identify(id, Cns::Controller, 0).1).unwrap();
    assert_eq!((controller.cntrltype, text_of(&controller.subnqn)), (2, Some(DISCOVERY_NQN)));
    let (_, log) = rig.log(id, LogPage::Discovery, 3072, 0);
    assert_eq!(read::<DiscoveryHeader>(&log).unwrap().numrec.get(), 2);
    let entry: DiscoveryEntry = read(&log[2048..]).unwrap();
    assert_eq!(text_of(&entry.subnqn), Some(NQN));
    assert_eq!(text_of(&entry.traddr).unwrap().trim_end(), "127.0.0.1", "not the unspecified address");
    assert_eq!(text_of(&entry.trsvcid).unwrap().trim_end(), "4421");
    assert_eq!((entry.trtype, entry.adrfam, entry.subtype), (3, 1, 2));
    assert_eq!(rig.log(id, LogPage::Discovery, 1024, 3072), (Status::SUCCESS, vec![0; 1024]), "at the end");
    assert_eq!(rig.log(id, LogPage::Discovery, 1024, 3076).0, Status::INVALID_FIELD.dnr(), "beyond the end");
    assert_eq!(rig.log(id, LogPage::Health, 512, 0).0, Status::INVALID_LOG_PAGE.dnr());
    assert_eq!(rig.identify(id, Cns::ActiveNamespaces, 0).0, Status::INVALID_FIELD.dnr());
    let io = rig.open(&friend);
    let (sqe, data) = friend.connect(1, cntlid);
    assert_eq!(rig.run(io, sqe, data).status(), Status::CONNECT_INVALID_PARAM.dnr());
    let (stranger, _) = rig.host(&HostOptions::new(DISCOVERY_NQN));
    let (_, log) = rig.log(stranger, LogPage::Discovery, 2048, 0);
    assert_eq!(read::<DiscoveryHeader>(&log).unwrap().numrec.get(), 0);
}

#[test]
fn copy_is_advertised_as_long_as_a_namespace_copies() {
    let mut rig = Rig::new();
    let (id, _) = rig.host(&options());
    let mut off = limits();
    off.copy_mode = CopyMode::Off;
    let copy = |rig: &mut Rig| {
        let controller: IdentifyController = read(&rig.identify(id, Cns::Controller, 0).1).unwrap();
        (controller.oncs.get() & bits::ONCS_COPY != 0, controller.ocfs.get())
    };
    rig.target.set_limits(VolumeId(0), off.clone(), &mut Vec::new());
    assert_eq!(copy(&mut rig), (true, 0b101));
    rig.target.set_limits(VolumeId(1), off, &mut Vec::new());
    assert_eq!(copy(&mut rig), (false, 0));
    rig.target.remove_namespace(VolumeId(0), &mut Vec::new());
    assert_eq!(rig.identify(id, Cns::ActiveNamespaces, 0).1[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    // The number follows from the volume, or is the lowest that is free.
    for (volume, nsid) in [(7, 8), (5000, 1), (u32::MAX - 1, 3), (1023, 1024), (1024, 4)] {
        let added = rig.target.add_namespace(VolumeId(volume), "new", limits(), &mut Vec::new());
        assert_eq!(added, Some(nsid), "volume {volume}");
    }
}

#[test]
fn a_lost_admin_queue_takes_its_io_queues_along() {
    let mut rig = Rig::new();
    let (admin_, io) = rig.io(&options());
    let mut effects = Vec::new();
    rig.target.disconnected(admin_, &mut effects);
    assert!(matches!(effects[..], [Effect::Close(id, _)] if id == io));
    assert_eq!(rig.target.hosts().count(), 0);
    let (_, io) = rig.io(&options());
    effects.clear();
    rig.target.disconnected(io, &mut effects);
    assert_eq!(effects, []);
    assert_eq!(rig.target.hosts().count(), 1);
}

#[test]
fn controllers_are_bounded_and_end() {
    let mut rig = Rig::new();
    let hosts: Vec<_> = (0..8).map(|_| rig.host(&options())).collect();
    let id = rig.open(&options());
    let (sqe, data) = options().connect(0, CNTLID_DYNAMIC);
    assert_eq!(rig.run(id, sqe, data.clone()).status(), Status::CONNECT_CTRL_BUSY);
    rig.target.disconnected(hosts[3].0, &mut Vec::new());
    let done = rig.run(id, sqe, data);
    assert_eq!((done.status(), done.cqe.dw0()), (Status::SUCCESS, 9), "numbers are not used again soon");
    assert_eq!(FabricsType::of(9), None);
}
