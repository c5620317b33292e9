//! A loss of power: a zone keeps its writes up to one of them, no zone is open, and nothing that was begun before ends well.

use super::*;
use emulation::Keep;

fn cut(disk: &mut Disk, keep: Keep) {
    let out = disk.pool.control(Instant::ORIGIN, Control::power_cut(V, keep));
    disk.take(out);
}

fn flushed() -> Disk {
    let mut disk = Disk::with_cache(VOLATILE, false, |_| {});
    assert_eq!(disk.write(at(1, 0), 16, 100), BlkStatus::Ok);
    assert_eq!(disk.write(at(2, 0), CAPACITY, 300), BlkStatus::Ok);
    assert_eq!(disk.act(3, ZoneAction::Open), BlkStatus::Ok);
    assert_eq!(disk.write(at(7, 0), 20, 700), BlkStatus::Ok);
    disk.fail_zone(4, ZoneFailure::Offline);
    assert_eq!(disk.run(Op::Flush, Flags::NONE).status, BlkStatus::Ok);
    disk
}

#[test]
fn zones_end_where_their_finished_writes_end_and_none_is_open() {
    for keep in [Keep::None, Keep::All, Keep::Some(1)] {
        let mut disk = flushed();
        let under_way = disk.begin(Op::Write(range(at(1, 16), 8)), Flags::NONE, 200);
        let first = disk.begin(Op::Write(range(at(5, 0), 8)), Flags::NONE, 400);
        let copy = disk.begin_copy(Flags::NONE, &[(at(2, 0), 8, at(6, 0))]);
        assert_eq!(disk.zone(1), (ZoneCondition::ImpOpen, 24));
        cut(&mut disk, keep);
        assert_eq!(disk.zone(1), (ZoneCondition::Closed, 16), "{keep:?}");
        assert_eq!(disk.zone(2).0, ZoneCondition::Full);
        assert_eq!(disk.zone(3), (ZoneCondition::Empty, 0));
        assert_eq!(disk.zone(4).0, ZoneCondition::Offline);
        assert_eq!(disk.zone(5), (ZoneCondition::Empty, 0));
        for id in [under_way, first, copy] {
            assert_eq!(disk.end(id).status, BlkStatus::IoErr, "{keep:?}");
        }
        assert_eq!((disk.zone(1), disk.zone(6)), ((ZoneCondition::Closed, 16), (ZoneCondition::Empty, 0)));
        assert_eq!(disk.read(at(1, 0), 24), [stamps(100, 16), vec![0; 8]].concat());
        assert_eq!(disk.read(at(2, 0), CAPACITY), stamps(300, CAPACITY));
        assert_eq!(disk.write(at(1, 16), 8, 500), BlkStatus::Ok, "it goes on at the pointer");
    }
}

/// Everything that can happen to a zone between a flush and a power cut.
fn dirty() -> Disk {
    let mut disk = flushed();
    // Grows, once by less than a map block.
    for (offset, len) in [(16, 8), (24, 4), (28, 4), (32, 16)] {
        assert_eq!(disk.write(at(1, offset), len, 100 + offset), BlkStatus::Ok);
    }
    // Is reset and written anew.
    assert_eq!(disk.act(2, ZoneAction::Reset), BlkStatus::Ok);
    assert_eq!(disk.write(at(2, 0), 8, 900), BlkStatus::Ok);
    // Is finished.
    assert_eq!(disk.act(7, ZoneAction::Finish), BlkStatus::Ok);
    // Is filled, by a copy and a write.
    assert!(disk.copy(Flags::NONE, &[(at(7, 0), 16, at(8, 0))]).status.is_ok());
    assert_eq!(disk.write(at(8, 16), CAPACITY - 16, 816), BlkStatus::Ok);
    // A conventional zone.
    assert_eq!(disk.write(at(0, 0), 8, 50), BlkStatus::Ok);
    disk
}

#[test]
fn without_what_is_not_durable_zones_are_as_they_were_flushed() {
    let mut disk = dirty();
    cut(&mut disk, Keep::None);
    let zones = [1, 2, 3, 7, 8].map(|zone| disk.zone(zone));
    let closed = |wp| (ZoneCondition::Closed, wp);
    let (empty, full) = ((ZoneCondition::Empty, 0), (ZoneCondition::Full, SIZE));
    assert_eq!(zones, [closed(16), full, empty, closed(20), empty]);
    assert_eq!(disk.read(at(1, 0), 32), [stamps(100, 16), vec![0; 16]].concat());
    assert_eq!(disk.read(at(2, 0), CAPACITY), stamps(300, CAPACITY));
    assert_eq!(disk.read(at(7, 0), 24), [stamps(700, 20), vec![0; 4]].concat());
    assert_eq!((disk.read(at(8, 0), 24), disk.read(0, 8)), (vec![0; 24], vec![0; 8]));
    // What the log has of it is the same, and so is the next image.
    let records = disk.log.0.lock().unwrap().zones.clone();
    let last = |zone| {
        records.iter().rev().find(|(_, change)| change.zone == zone).map(|(_, c)| (c.condition, c.wp.0))
    };
    assert_eq!([1, 2, 8].map(last), [Some(closed(16)), Some((ZoneCondition::Full, CAPACITY)), Some(empty)]);
    assert_eq!(disk.write(at(7, 20), 4, 720), BlkStatus::Ok);
    cut(&mut disk, Keep::None);
    assert_eq!((disk.zone(7), disk.zone(1)), (closed(20), closed(16)), "and once more");
}

#[test]
fn chance_keeps_a_zone_up_to_one_of_its_writes() {
    let mut seen: BTreeMap<u64, Vec<(ZoneCondition, u64)>> = BTreeMap::new();
    for seed in 0..200 {
        let mut disk = dirty();
        cut(&mut disk, Keep::Some(seed));
        for zone in [1, 2, 7, 8] {
            let is = disk.zone(zone);
            let contents = disk.read(at(zone, 0), CAPACITY);
            let of = |first: u64, len: u64| [stamps(first, len), vec![0; (CAPACITY - len) as usize]].concat();
            let expected = match (zone, is) {
                (1, (_, wp)) => of(100, wp),
                (2, (ZoneCondition::Full, _)) => of(300, CAPACITY),
                (2, (_, wp)) => of(900, wp),
                (7, _) => of(700, 20),
                (_, (ZoneCondition::Full, _)) => [stamps(700, 16), stamps(816, CAPACITY - 16)].concat(),
                (_, (_, wp)) => of(700, wp),
            };
            assert_eq!(contents, expected, "seed {seed}: zone {zone} is {is:?}");
            seen.entry(zone).or_default().push(is);
        }
        disk.pool.check().unwrap();
    }
    let closed = |wp| (ZoneCondition::Closed, wp);
    let (empty, full) = ((ZoneCondition::Empty, 0), (ZoneCondition::Full, SIZE));
    for (zone, may) in [
        (1, vec![closed(16), closed(24), closed(32), closed(48)]),
        (2, vec![full, closed(8)]),
        (7, vec![closed(20), full]),
        (8, vec![empty, closed(16), full]),
    ] {
        let is = &seen[&zone];
        assert!(is.iter().all(|is| may.contains(is)), "zone {zone}: {is:?}");
        assert!(may.iter().all(|may| is.contains(may)), "zone {zone}: not all of {may:?} come up");
    }
}

/// Of two zones one was active at the flush and the other is now; both together may not be.
#[test]
fn chance_leaves_no_more_zones_active_than_may_be() {
    for seed in 0..50 {
        let mut disk = Disk::with_cache(VOLATILE, false, |zones| (zones.max_active, zones.max_open) = (2, 2));
        assert_eq!(disk.write(at(1, 0), 8, 100), BlkStatus::Ok);
        assert_eq!(disk.write(at(2, 0), 8, 200), BlkStatus::Ok);
        assert!(disk.run(Op::Flush, Flags::NONE).status.is_ok());
        for (gone, new) in [(1, 3), (2, 4)] {
            assert_eq!(disk.act(gone, ZoneAction::Reset), BlkStatus::Ok);
            assert_eq!(disk.write(at(new, 0), 8, 100 * new), BlkStatus::Ok);
        }
        cut(&mut disk, Keep::Some(seed));
        disk.pool.check().unwrap();
        let closed = disk.conditions(1..5).iter().filter(|is| **is == ZoneCondition::Closed).count();
        assert!(closed <= 2, "seed {seed}");
    }
}

#[test]
fn what_is_durable_in_any_case_or_finds_no_room_in_the_log_stays() {
    let mut plain = Disk::new(|_| {});
    assert_eq!(plain.write(at(1, 0), 8, 100), BlkStatus::Ok);
    cut(&mut plain, Keep::None);
    assert_eq!((plain.zone(1), plain.read(at(1, 0), 8)), ((ZoneCondition::Closed, 8), stamps(100, 8)));
    let mut disk = flushed();
    assert_eq!(disk.write(at(1, 16), 8, 116), BlkStatus::Ok);
    // An open zone would be recorded as closed, in what a log keeps free for actions.
    assert_eq!(disk.act(3, ZoneAction::Close), BlkStatus::Ok);
    disk.log.0.lock().unwrap().full = true;
    cut(&mut disk, Keep::None);
    assert_eq!((disk.zone(1), disk.read(at(1, 0), 24)), ((ZoneCondition::Closed, 24), stamps(100, 24)));
}

#[test]
fn what_waits_for_a_reset_ends_with_the_power() {
    let mut disk = flushed();
    let reset =
        disk.begin(Op::ZoneMgmt { zone: Sector(at(2, 0)), action: ZoneAction::Reset }, Flags::NONE, 0);
    let waits = disk.begin(Op::Write(range(at(2, 0), 8)), Flags::NONE, 200);
    cut(&mut disk, Keep::None);
    assert_eq!([reset, waits].map(|id| disk.end(id).status), [BlkStatus::IoErr; 2]);
    assert_eq!(disk.zone(2).0, ZoneCondition::Full);
    assert_eq!(disk.act(2, ZoneAction::Reset), BlkStatus::Ok);
}

#[test]
fn a_copy_from_a_volume_that_lost_its_power_gives_the_pointer_back() {
    let mut disk = flushed();
    let segment = CopySegment { source_volume: PLAIN, source: range(0, 8), destination: Sector(at(5, 0)) };
    let write = disk.begin_on(PLAIN, Op::Write(range(0, 8)), Flags::NONE, 10);
    assert!(disk.end(write).status.is_ok());
    let copy =
        disk.begin(Op::Copy(CopyCommand { segments: std::iter::once(segment).collect() }), Flags::NONE, 0);
    assert_eq!(disk.zone(5), (ZoneCondition::ImpOpen, 8));
    let out = disk.pool.control(Instant::ORIGIN, Control::power_cut(PLAIN, Keep::All));
    disk.take(out);
    assert_eq!(disk.end(copy).status, BlkStatus::IoErr);
    assert_eq!(disk.zone(5), (ZoneCondition::Empty, 0));
}
