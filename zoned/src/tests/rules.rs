//! Writes, appends, conditions, limits and resets.

use super::*;
use emulation::zone::ZoneCondition::{Closed, Empty, ExpOpen, Full, ImpOpen, NotWp, Offline, Readonly};
use emulation::zone::ZoneType;
use emulation::{Bytes, Cx};

/// Brings zone 1 into a condition.
fn bring(disk: &mut Disk, condition: ZoneCondition) {
    match condition {
        NotWp => unreachable!("zone 0 is"),
        Empty => {}
        ImpOpen => assert_eq!(disk.write(at(1, 0), 8, 1), BlkStatus::Ok),
        ExpOpen => {
            bring(disk, ImpOpen);
            assert_eq!(disk.act(1, ZoneAction::Open), BlkStatus::Ok);
        }
        Closed => {
            bring(disk, ImpOpen);
            assert_eq!(disk.act(1, ZoneAction::Close), BlkStatus::Ok);
        }
        Full => {
            bring(disk, ImpOpen);
            assert_eq!(disk.act(1, ZoneAction::Finish), BlkStatus::Ok);
        }
        Readonly => {
            bring(disk, ImpOpen);
            disk.fail_zone(1, ZoneFailure::Readonly);
        }
        Offline => {
            bring(disk, ImpOpen);
            disk.fail_zone(1, ZoneFailure::Offline);
        }
    }
    assert_eq!(disk.zone(1).0, condition);
}

/// What the host sees of every action on a zone in every condition: the status and the condition afterwards.
#[test]
#[rustfmt::skip]
fn every_action_through_the_disk() {
    use BlkStatus::{Ok, ZoneFull as F, ZoneOffline as O, ZoneReadonly as R, ZoneTransition as T};
    // Write, append, open, close, finish, reset, reset all, read.
    let table = [
        (Empty,    [(Ok, ImpOpen), (Ok, ImpOpen), (Ok, ExpOpen), (T, Empty), (Ok, Full), (Ok, Empty), (Ok, Empty), (Ok, Empty)]),
        (ImpOpen,  [(Ok, ImpOpen), (Ok, ImpOpen), (Ok, ExpOpen), (Ok, Closed), (Ok, Full), (Ok, Empty), (Ok, Empty), (Ok, ImpOpen)]),
        (ExpOpen,  [(Ok, ExpOpen), (Ok, ExpOpen), (Ok, ExpOpen), (Ok, Closed), (Ok, Full), (Ok, Empty), (Ok, Empty), (Ok, ExpOpen)]),
        (Closed,   [(Ok, ImpOpen), (Ok, ImpOpen), (Ok, ExpOpen), (Ok, Closed), (Ok, Full), (Ok, Empty), (Ok, Empty), (Ok, Closed)]),
        (Full,     [(F, Full), (F, Full), (T, Full), (T, Full), (Ok, Full), (Ok, Empty), (Ok, Empty), (Ok, Full)]),
        (Readonly, [(R, Readonly), (R, Readonly), (T, Readonly), (T, Readonly), (T, Readonly), (T, Readonly), (Ok, Readonly), (Ok, Readonly)]),
        (Offline,  [(O, Offline), (O, Offline), (T, Offline), (T, Offline), (T, Offline), (T, Offline), (Ok, Offline), (O, Offline)]),
    ];
    for (condition, expected) in table {
        for (action, expected) in expected.into_iter().enumerate() {
            let mut disk = Disk::new(|_| {});
            bring(&mut disk, condition);
            let zone = Sector(at(1, 0));
            let wp = if condition == Empty { 0 } else { 8 };
            let manage = |action| (Op::ZoneMgmt { zone, action }, Flags::NONE);
            let (op, flags) = match action {
                0 => (Op::Write(range(at(1, wp), 8)), Flags::NONE),
                1 => (Op::Write(range(at(1, 0), 8)), Flags::APPEND),
                2 => manage(ZoneAction::Open),
                3 => manage(ZoneAction::Close),
                4 => manage(ZoneAction::Finish),
                5 => manage(ZoneAction::Reset),
                6 => (Op::ZoneResetAll, Flags::NONE),
                _ => (Op::Read(range(at(1, 0), 8)), Flags::NONE),
            };
            let status = disk.run(op.clone(), flags).status;
            assert_eq!((status, disk.zone(1).0), expected, "{op:?} on {condition:?}");
        }
    }
}

#[test]
fn a_conventional_zone_takes_writes_anywhere_and_nothing_else() {
    let mut disk = Disk::new(|zones| zones.conventional = 2);
    assert_eq!(disk.write(40, 8, 1), BlkStatus::Ok);
    assert_eq!(disk.write(SIZE - 8, 16, 2), BlkStatus::Ok);
    assert_eq!(disk.write(2 * SIZE - 8, 16, 3), BlkStatus::ZoneBoundary);
    assert_eq!(disk.append(1, 8, 4).status, BlkStatus::ZoneAppend);
    for action in [ZoneAction::Open, ZoneAction::Close, ZoneAction::Finish, ZoneAction::Reset] {
        assert_eq!(disk.act(0, action), BlkStatus::ZoneTransition);
    }
    assert!(disk.run(Op::Discard(range(40, 8)), Flags::NONE).status.is_ok());
    assert_eq!(disk.run(Op::Discard(range(at(2, 0), 8)), Flags::NONE).status, BlkStatus::NotSupp);
    disk.fail_zone(0, ZoneFailure::Offline);
    assert_eq!(disk.read(SIZE - 8, 16), stamps(2, 16));
    assert_eq!(disk.zone(0), (NotWp, SIZE));
}

#[test]
fn a_write_goes_to_the_pointer_and_ends_within_the_capacity() {
    let mut disk = Disk::new(|_| {});
    assert_eq!(disk.write(at(1, 8), 8, 1), BlkStatus::ZoneInvalidWrite);
    assert_eq!(disk.write(at(1, 0), 90, 1), BlkStatus::Ok);
    assert_eq!(disk.write(at(1, 0), 8, 1), BlkStatus::ZoneInvalidWrite);
    assert_eq!(disk.write(at(1, 90), 7, 1), BlkStatus::ZoneBoundary);
    assert_eq!(disk.zone(1), (ImpOpen, 90));
    assert_eq!(disk.write(at(1, 90), 6, 91), BlkStatus::Ok);
    assert_eq!(disk.zone(1), (Full, SIZE));
    assert_eq!(disk.read(at(1, 0), SIZE), [stamps(1, 96), vec![0; 32]].concat());
    assert_eq!(disk.write(at(1, 96), 8, 1), BlkStatus::ZoneFull);
    assert_eq!(disk.write(at(2, 0), 200, 1), BlkStatus::ZoneBoundary);
}

#[test]
fn the_pointer_moves_when_a_write_begins() {
    let mut disk = Disk::new(|_| {});
    let first = disk.begin(Op::Write(range(at(1, 0), 8)), Flags::NONE, 100);
    assert_eq!(disk.zone(1), (ImpOpen, 8));
    let second = disk.begin(Op::Write(range(at(1, 8), 8)), Flags::NONE, 200);
    disk.step(second, None);
    disk.step(first, None);
    assert!(disk.end(first).status.is_ok() && disk.end(second).status.is_ok());
    assert_eq!(disk.read(at(1, 0), 16), [stamps(100, 8), stamps(200, 8)].concat());
}

#[test]
fn a_failed_write_gives_pointer_and_condition_back() {
    let mut disk = Disk::new(|_| {});
    let only = disk.begin(Op::Write(range(at(1, 0), 8)), Flags::NONE, 1);
    disk.step(only, Some(BlkStatus::Medium));
    assert_eq!(disk.zone(1), (Empty, 0));
    for (before, bring) in [(Closed, true), (ImpOpen, false)] {
        disk.act(1, ZoneAction::Reset);
        assert_eq!(disk.write(at(1, 0), 8, 1), BlkStatus::Ok);
        if bring {
            disk.act(1, ZoneAction::Close);
        }
        let id = disk.begin(Op::Write(range(at(1, 8), 8)), Flags::NONE, 1);
        assert_eq!(disk.zone(1), (ImpOpen, 16));
        disk.step(id, Some(BlkStatus::Medium));
        assert_eq!(disk.zone(1), (before, 8));
    }
    // A zone that would be full keeps its place among the open ones until it is.
    let mut disk = Disk::new(|zones| (zones.max_open, zones.max_active) = (1, 1));
    let filling = disk.begin(Op::Write(range(at(1, 0), CAPACITY)), Flags::NONE, 1);
    let other = disk.begin(Op::Write(range(at(2, 0), 8)), Flags::NONE, 1);
    assert_eq!(disk.answers[&other].status, BlkStatus::ZoneActiveResource);
    disk.step(filling, Some(BlkStatus::Medium));
    assert_eq!((disk.zone(1), disk.write(at(2, 0), 8, 1)), ((Empty, 0), BlkStatus::Ok));
}

#[test]
fn what_fails_below_a_write_that_stands_is_a_hole_of_zeroes() {
    let mut disk = Disk::new(|_| {});
    let low = disk.begin(Op::Write(range(at(1, 0), 8)), Flags::NONE, 100);
    let high = disk.begin(Op::Write(range(at(1, 8), 8)), Flags::NONE, 200);
    disk.step(high, None);
    disk.step(low, Some(BlkStatus::Medium));
    assert_eq!(disk.zone(1), (ImpOpen, 16));
    assert_eq!(disk.read(at(1, 0), 16), [vec![0; 8], stamps(200, 8)].concat());
    // Above one under way too, even if that fails as well.
    let low = disk.begin(Op::Write(range(at(1, 16), 8)), Flags::NONE, 100);
    let high = disk.begin(Op::Write(range(at(1, 24), 8)), Flags::NONE, 200);
    disk.step(low, Some(BlkStatus::Medium));
    assert_eq!(disk.zone(1), (ImpOpen, 32));
    disk.step(high, Some(BlkStatus::Medium));
    assert_eq!(disk.zone(1), (ImpOpen, 24));
    assert_eq!(disk.read(at(1, 16), 16), vec![0; 16]);
}

#[test]
fn zeroes_are_written_like_data_and_keep_their_finished_part() {
    let mut disk = Disk::new(|_| {});
    assert!(disk.run(Op::WriteZeroes(range(at(1, 0), 8)), Flags::NONE).status.is_ok());
    assert!(disk.run(Op::WriteZeroes(range(at(1, 8), 8)), Flags::NOUNMAP).status.is_ok());
    assert_eq!(
        disk.run(Op::WriteZeroes(range(at(1, 0), 8)), Flags::NONE).status,
        BlkStatus::ZoneInvalidWrite
    );
    assert_eq!(disk.zone(1), (ImpOpen, 16));
    let id = disk.begin(Op::WriteZeroes(range(at(1, 16), 8)), Flags::NOUNMAP, 0);
    disk.step(id, Some(BlkStatus::Medium));
    assert_eq!(disk.zone(1), (ImpOpen, 16));
    assert_eq!(disk.write(at(1, 16), 8, 5), BlkStatus::Ok);
    assert_eq!(disk.read(at(1, 0), 24), [vec![0; 16], stamps(5, 8)].concat());
}

#[test]
fn a_zone_is_full_when_the_write_to_its_end_is_done() {
    let mut disk = Disk::new(|zones| (zones.max_open, zones.max_active) = (1, 1));
    let first = disk.begin(Op::Write(range(at(1, 0), 80)), Flags::NONE, 1);
    let last = disk.begin(Op::WriteZeroes(range(at(1, 80), 16)), Flags::NOUNMAP, 0);
    disk.step(first, None);
    assert_eq!(disk.zone(1), (ImpOpen, CAPACITY), "it is among the open zones yet");
    assert!(disk.end(last).status.is_ok());
    assert_eq!(disk.zone(1), (Full, SIZE));
}

#[test]
fn an_aborted_reset_of_all_goes_to_no_further_zone() {
    let mut disk = Disk::new(|_| {});
    disk.write(at(1, 0), 8, 1);
    disk.write(at(2, 0), 8, 1);
    let all = disk.begin(Op::ZoneResetAll, Flags::NONE, 0);
    let out = disk.pool.abort(Instant::ORIGIN, all);
    disk.take(out);
    assert_eq!(disk.end(all).status, BlkStatus::Aborted);
    assert_eq!(disk.conditions(1..3), [Empty, ImpOpen]);
}

#[test]
fn an_append_is_told_where_it_went() {
    let mut disk = Disk::new(|_| {});
    let first = disk.begin(Op::Write(range(at(1, 0), 8)), Flags::APPEND, 100);
    let second = disk.begin(Op::Write(range(at(1, 0), 16)), Flags::APPEND, 200);
    disk.step(second, None);
    assert_eq!(disk.end(second).appended_at, Some(Sector(at(1, 8))));
    assert_eq!(disk.end(first).appended_at, Some(Sector(at(1, 0))));
    assert_eq!(disk.read(at(1, 0), 24), [stamps(100, 8), stamps(200, 16)].concat());
    assert_eq!(disk.append(1, 33, 1).status, BlkStatus::ZoneAppend);
    let off = disk.begin(Op::Write(range(at(1, 24), 8)), Flags::APPEND, 1);
    assert_eq!(disk.end(off).status, BlkStatus::ZoneAppend);
    assert_eq!(disk.write(at(1, 24), 64, 1), BlkStatus::Ok);
    assert_eq!(disk.append(1, 16, 1).status, BlkStatus::ZoneBoundary);
    assert_eq!(disk.append(1, 8, 1).appended_at, Some(Sector(at(1, 88))));
    assert_eq!(disk.append(1, 8, 1).status, BlkStatus::ZoneFull);
    let plain = disk.begin_on(PLAIN, Op::Write(range(0, 8)), Flags::APPEND, 1);
    assert_eq!(disk.end(plain).status, BlkStatus::NotSupp);
}

#[test]
fn an_implicitly_opened_zone_gives_way_and_an_explicitly_opened_one_does_not() {
    let mut disk = Disk::new(|zones| zones.max_open = 2);
    for zone in 1..=3 {
        assert_eq!(disk.write(at(zone, 0), 8, 1), BlkStatus::Ok);
    }
    assert_eq!(disk.conditions(1..4), [Closed, ImpOpen, ImpOpen], "the one that was opened first");
    assert_eq!(disk.act(4, ZoneAction::Open), BlkStatus::Ok);
    assert_eq!(disk.act(3, ZoneAction::Open), BlkStatus::Ok);
    assert_eq!(disk.conditions(1..5), [Closed, Closed, ExpOpen, ExpOpen]);
    assert_eq!(disk.write(at(1, 8), 8, 1), BlkStatus::ZoneOpenResource);
    assert_eq!(disk.act(2, ZoneAction::Open), BlkStatus::ZoneOpenResource);
    assert_eq!(disk.act(1, ZoneAction::Finish), BlkStatus::Ok, "a finish needs no room");
    assert_eq!(disk.act(4, ZoneAction::Close), BlkStatus::Ok);
    assert_eq!(disk.zone(4), (Empty, 0), "closed with nothing written");
    assert_eq!(disk.write(at(2, 8), 8, 1), BlkStatus::Ok);
}

#[test]
fn an_active_zone_gives_way_to_none() {
    let mut disk = Disk::new(|zones| (zones.max_open, zones.max_active) = (1, 2));
    assert_eq!(disk.write(at(1, 0), 8, 1), BlkStatus::Ok);
    assert_eq!(disk.write(at(2, 0), 8, 1), BlkStatus::Ok);
    assert_eq!(disk.append(3, 8, 1).status, BlkStatus::ZoneActiveResource);
    assert_eq!(disk.act(3, ZoneAction::Open), BlkStatus::ZoneActiveResource);
    assert_eq!(
        disk.write(at(1, 8), 8, 1),
        BlkStatus::Ok,
        "a closed zone opens with the active limit reached"
    );
    assert_eq!(disk.act(1, ZoneAction::Finish), BlkStatus::Ok);
    assert_eq!(disk.write(at(3, 0), 8, 1), BlkStatus::Ok);
}

#[test]
fn a_write_from_before_a_reset_or_a_finish_ends_and_changes_nothing() {
    for action in [ZoneAction::Reset, ZoneAction::Finish] {
        let mut disk = Disk::new(|_| {});
        assert_eq!(disk.write(at(1, 0), 8, 1), BlkStatus::Ok);
        let late = disk.begin(Op::Write(range(at(1, 8), 8)), Flags::NONE, 100);
        let manage = disk.begin(Op::ZoneMgmt { zone: Sector(at(1, 0)), action }, Flags::NONE, 0);
        if action == ZoneAction::Reset {
            disk.step(manage, None);
        }
        disk.step(late, None);
        assert!(disk.end(manage).status.is_ok());
        assert_eq!(disk.end(late).status, BlkStatus::IoErr);
        assert_eq!(disk.read(at(1, 8), 8), vec![0; 8]);
    }
    for failure in [ZoneFailure::Readonly, ZoneFailure::Offline] {
        let mut disk = Disk::new(|_| {});
        let late = disk.begin(Op::Write(range(at(1, 0), 8)), Flags::NONE, 100);
        disk.fail_zone(1, failure);
        disk.step(late, None);
        assert_eq!(disk.end(late).status, BlkStatus::IoErr);
    }
}

#[test]
fn what_would_change_a_zone_waits_for_its_reset() {
    let mut disk = Disk::new(|_| {});
    assert_eq!(disk.write(at(1, 0), 8, 1), BlkStatus::Ok);
    assert_eq!(disk.write(at(2, 0), 8, 1), BlkStatus::Ok);
    let zone = Sector(at(1, 0));
    let reset = disk.begin(Op::ZoneMgmt { zone, action: ZoneAction::Reset }, Flags::NONE, 0);
    let again = disk.begin(Op::ZoneMgmt { zone, action: ZoneAction::Reset }, Flags::NONE, 0);
    let write = disk.begin(Op::Write(range(at(1, 0), 8)), Flags::NONE, 300);
    let ended = disk.begin(Op::Write(range(at(1, 8), 8)), Flags::NONE, 400);
    assert_eq!(disk.plans.len(), 1, "all of them wait");
    let out = disk.pool.abort(Instant::ORIGIN, ended);
    disk.take(out);
    assert_eq!(disk.end(ended).status, BlkStatus::Aborted);
    for id in [reset, again, write] {
        assert!(disk.end(id).status.is_ok(), "{id:?}");
    }
    assert_eq!(disk.read(at(1, 0), 8), stamps(300, 8));
    // What comes behind a reset of all zones waits for that.
    let reset = disk.begin(Op::ZoneMgmt { zone, action: ZoneAction::Reset }, Flags::NONE, 0);
    let all = disk.begin(Op::ZoneResetAll, Flags::NONE, 0);
    let other = disk.begin(Op::Write(range(at(2, 8), 8)), Flags::NONE, 1);
    assert_eq!(disk.plans.len(), 1, "all of them wait");
    assert!(disk.end(reset).status.is_ok() && disk.end(all).status.is_ok());
    assert_eq!(disk.end(other).status, BlkStatus::ZoneInvalidWrite);
    assert_eq!(disk.conditions(1..3), [Empty, Empty]);
}

#[test]
fn a_removed_volume_answers_what_waits_for_a_reset() {
    let mut disk = Disk::new(|_| {});
    disk.write(at(1, 0), 8, 1);
    let action = Op::ZoneMgmt { zone: Sector(at(1, 0)), action: ZoneAction::Reset };
    let reset = disk.begin(action, Flags::NONE, 0);
    let write = disk.begin(Op::Write(range(at(1, 0), 8)), Flags::NONE, 1);
    let limits = disk.pool.limits(V).unwrap().clone();
    let out = disk.pool.control(Instant::ORIGIN, Control::RemoveVolume(V));
    disk.take(out);
    assert_eq!(disk.end(write).status, BlkStatus::NoVolume);
    let smaller = Limits { capacity: Sectors(2 * SIZE), ..limits };
    disk.pool.control(Instant::ORIGIN, Control::AddVolume(V, smaller));
    assert_eq!(disk.answers.remove(&reset).map(|completion| completion.status), Some(BlkStatus::IoErr));
    assert_eq!(disk.report().len(), 2);
}

#[test]
fn a_reset_of_all_leaves_out_what_cannot_be_reset() {
    let mut disk = Disk::new(|_| {});
    for zone in 1..=5 {
        disk.write(at(zone, 0), 8, zone * 100);
    }
    disk.fail_zone(2, ZoneFailure::Readonly);
    disk.fail_zone(3, ZoneFailure::Offline);
    disk.act(4, ZoneAction::Finish);
    assert!(disk.run(Op::ZoneResetAll, Flags::NONE).status.is_ok());
    assert_eq!(disk.conditions(0..6), [NotWp, Empty, Readonly, Offline, Empty, Empty]);
    assert_eq!(disk.read(at(2, 0), 8), stamps(200, 8));
}

#[test]
fn a_reset_of_many_extents_is_a_chain_of_bounded_links() {
    let blocks = 5000;
    let size = 65_536;
    let mut device = Zoned::new(Box::new(Mapped::new(config(Cache::None))), false);
    let (mut log, mut ledgers) = (NoLog::default(), emulation::ledger::Ledgers::default());
    let mut cx = Cx { now: Instant::ORIGIN, log: &mut log, ledgers: &mut ledgers };
    let mut limits = Limits::new(Sectors(2 * size), Sectors(8), Sectors(8));
    limits.zones = Some(ZoneGeometry::new(Sectors(size)));
    let source = Limits::new(Sectors(2 * size), Sectors(8), Sectors(8));
    use emulation::BlockDevice;
    device.control(&mut cx, Control::AddVolume(V, limits));
    device.control(&mut cx, Control::AddVolume(PLAIN, source));
    let mut run = |volume, op| {
        let mut out = device.begin(&mut cx, Request { id: RequestId(1), volume, op, flags: Flags::NONE });
        let mut links = 0;
        loop {
            match out.pop() {
                Some((_, Next::Run(plan))) => {
                    links += 1;
                    let io = IoResult::done(&plan);
                    out = device.finish(&mut cx, plan, io);
                }
                Some((_, Next::Done(completion))) => return (completion.status, links),
                other => panic!("{other:?}"),
            }
        }
    };
    assert!(run(PLAIN, Op::Write(range(0, 8 * blocks))).0.is_ok());
    // Block after block from the end to the start, so that no two are one extent.
    for first in (0..blocks).step_by(250) {
        let segment = |block| CopySegment {
            source_volume: PLAIN,
            source: range(8 * (blocks - 1 - block), 8),
            destination: Sector(8 * block),
        };
        let segments = (first..first + 250).map(segment).collect();
        assert!(run(V, Op::Copy(CopyCommand { segments })).0.is_ok());
    }
    let action = Op::ZoneMgmt { zone: Sector(0), action: ZoneAction::Reset };
    assert_eq!(run(V, action), (BlkStatus::Ok, 5), "1,024 extents a link");
}

#[test]
fn a_reset_frees_what_is_shared_once_nobody_else_has_it() {
    let mut disk = Disk::new(|_| {});
    disk.write(at(1, 0), 64, 1);
    assert!(disk.copy(Flags::FAST_ONLY, &[(at(1, 0), 64, at(2, 0))]).status.is_ok());
    assert_eq!(disk.pool.usage().mapped, Sectors(64));
    assert_eq!(disk.act(1, ZoneAction::Reset), BlkStatus::Ok);
    assert_eq!(disk.read(at(2, 0), 64), stamps(1, 64));
    assert_eq!(disk.act(2, ZoneAction::Reset), BlkStatus::Ok);
    assert_eq!(disk.pool.usage().mapped, Sectors(0));
}

#[test]
fn a_failed_reset_leaves_the_pointer_where_it_was() {
    let mut disk = Disk::new(|_| {});
    disk.write(at(1, 0), 8, 1);
    let action = Op::ZoneMgmt { zone: Sector(at(1, 0)), action: ZoneAction::Reset };
    let reset = disk.begin(action, Flags::NONE, 0);
    disk.step(reset, Some(BlkStatus::Medium));
    assert_eq!(disk.end(reset).status, BlkStatus::Medium);
    assert_eq!(disk.zone(1), (ImpOpen, 8));
    assert_eq!(disk.write(at(1, 8), 8, 1), BlkStatus::Ok);
}

#[test]
fn a_report_begins_where_it_is_asked_and_is_never_empty() {
    let mut disk = Disk::new(|zones| zones.conventional = 2);
    disk.write(at(3, 0), 8, 1);
    let mut report = |from, max| disk.run(Op::ReportZones { from: Sector(from), max }, Flags::NONE);
    let all = report(0, 1000).zones;
    assert_eq!(all.len(), ZONES as usize);
    for (zone, said) in all.iter().enumerate() {
        assert_eq!((said.start, said.len), (Sector(at(zone as u64, 0)), Sectors(SIZE)));
        let conventional = zone < 2;
        assert_eq!(said.kind == ZoneType::Conventional, conventional);
        assert_eq!(said.condition == NotWp, conventional);
        assert_eq!(said.capacity, Sectors(if conventional { SIZE } else { CAPACITY }));
    }
    assert_eq!(report(at(3, 5), 1).zones[0].wp, Sector(at(3, 8)));
    assert_eq!(report(at(15, 0), 100).zones.len(), 1);
    assert_eq!(report(at(16, 0), 1).status, BlkStatus::OutOfRange);
    assert_eq!(report(0, 0).status, BlkStatus::Inval);
    assert_eq!(report(0, 1).bytes, Bytes(0));
    for zone in [at(1, 1), at(3, 8)] {
        let action = Op::ZoneMgmt { zone: Sector(zone), action: ZoneAction::Open };
        assert_eq!(disk.run(action, Flags::NONE).status, BlkStatus::Inval);
    }
    let beyond = Op::ZoneMgmt { zone: Sector(at(16, 0)), action: ZoneAction::Open };
    assert_eq!(disk.run(beyond, Flags::NONE).status, BlkStatus::OutOfRange);
    let plain = disk.begin_on(PLAIN, Op::ReportZones { from: Sector(0), max: 1 }, Flags::NONE, 0);
    assert_eq!(disk.end(plain).status, BlkStatus::NotSupp);
}

#[test]
fn zeroes_from_before_a_finish_fail_though_they_had_nothing_to_do() {
    let mut disk = Disk::new(|_| {});
    let write = disk.begin(Op::Write(range(at(1, 0), 4)), Flags::NONE, 1);
    let zeroes = disk.begin(Op::WriteZeroes(range(at(1, 4), 4)), Flags::NONE, 0);
    assert_eq!(disk.act_now(1, ZoneAction::Finish), BlkStatus::Ok);
    assert_eq!(disk.end(write).status, BlkStatus::IoErr);
    let ended = disk.answers.remove(&zeroes).map(|answer| (answer.status, answer.bytes));
    assert_eq!(ended, Some((BlkStatus::IoErr, Bytes(0))));
}
