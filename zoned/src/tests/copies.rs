//! Copies into zones and out of them.

use super::*;
use emulation::Bytes;
use emulation::zone::ZoneCondition::{Closed, Empty, ExpOpen, Full, ImpOpen};

const MODES: [CopyMode; 3] = [CopyMode::Remap, CopyMode::Memcpy, CopyMode::Emulate];

/// A disk that copies this way, with 64 sectors in each of zones 1 to 3.
fn disk(mode: CopyMode, change: impl FnOnce(&mut ZoneGeometry)) -> Disk {
    let mut disk = Disk::new(change);
    disk.set(|limits| limits.copy_mode = mode);
    for zone in 1..=3 {
        assert_eq!(disk.write(at(zone, 0), 64, zone * 1000), BlkStatus::Ok);
    }
    disk
}

fn bytes(sectors: u64) -> Bytes {
    Sectors(sectors).bytes()
}

#[test]
fn many_zones_are_gathered_into_one() {
    for mode in MODES {
        let mut disk = disk(mode, |_| {});
        let copied = disk.copy(
            Flags::NONE,
            &[(at(1, 8), 16, at(4, 0)), (at(2, 0), 24, at(4, 16)), (at(3, 3), 8, at(4, 40))],
        );
        assert_eq!((copied.status, copied.bytes), (BlkStatus::Ok, bytes(48)), "{mode:?}");
        assert_eq!(disk.zone(4), (ImpOpen, 48));
        let expected = [stamps(1008, 16), stamps(2000, 24), stamps(3003, 8)].concat();
        assert_eq!(disk.read(at(4, 0), 48), expected);
        assert_eq!(disk.write(at(4, 48), 8, 7), BlkStatus::Ok);
    }
}

#[test]
fn several_zones_are_filled_by_one_command() {
    for mode in MODES {
        let mut disk = disk(mode, |_| {});
        let copied = disk.copy(
            Flags::NONE,
            &[(at(1, 0), 64, at(4, 0)), (at(2, 0), 32, at(4, 64)), (at(3, 0), 64, at(5, 0))],
        );
        assert_eq!(copied.status, BlkStatus::Ok, "{mode:?}");
        assert_eq!((disk.zone(4), disk.zone(5)), ((Full, SIZE), (ImpOpen, 64)));
    }
}

#[test]
fn what_the_zones_do_not_take_is_refused_before_anything_changes() {
    for mode in MODES {
        let mut disk = disk(mode, |zones| (zones.max_open, zones.max_active) = (4, 5));
        disk.act(6, ZoneAction::Finish);
        for (second, why) in [
            ((at(2, 0), 8, at(4, 48)), BlkStatus::ZoneInvalidWrite),
            ((at(2, 0), 64, at(4, 40)), BlkStatus::ZoneBoundary),
            ((at(2, 0), 8, at(6, 0)), BlkStatus::ZoneFull),
            ((at(2, 0), 8, at(3, 0)), BlkStatus::ZoneInvalidWrite),
            ((at(2, 0), 8, SIZE - 4), BlkStatus::ZoneBoundary),
        ] {
            let copied = disk.copy(Flags::NONE, &[(at(2, 0), 40, at(4, 0)), second]);
            assert_eq!(copied, Completion::refused(why), "{mode:?} {second:?}");
            assert_eq!(disk.zone(4), (Empty, 0));
        }
        // The sixth active zone is one too many, though the first five are fine.
        let copied = disk
            .copy(Flags::NONE, &[(at(1, 0), 8, at(4, 0)), (at(1, 0), 8, at(5, 0)), (at(1, 0), 8, at(7, 0))]);
        assert_eq!(copied, Completion::refused(BlkStatus::ZoneActiveResource));
        // One that the command fills is none any more.
        let copied = disk.copy(
            Flags::NONE,
            &[
                (at(1, 0), 64, at(4, 0)),
                (at(2, 0), 32, at(4, 64)),
                (at(1, 0), 8, at(5, 0)),
                (at(1, 0), 8, at(7, 0)),
            ],
        );
        assert_eq!(copied.status, BlkStatus::Ok, "{mode:?}");
    }
}

#[test]
fn a_copy_opens_zones_against_the_limits() {
    for mode in MODES {
        let mut disk = disk(mode, |zones| zones.max_open = 1);
        assert_eq!(disk.conditions(1..4), [Closed, Closed, ImpOpen]);
        let copied = disk.copy(Flags::NONE, &[(at(1, 0), 8, at(4, 0)), (at(1, 0), 8, at(3, 64))]);
        assert_eq!(copied.status, BlkStatus::Ok);
        assert_eq!(disk.conditions(1..5), [Closed, Closed, ImpOpen, Closed]);
        assert_eq!(disk.act(3, ZoneAction::Open), BlkStatus::Ok);
        let copied = disk.copy(Flags::NONE, &[(at(1, 0), 8, at(3, 72)), (at(1, 0), 8, at(4, 8))]);
        assert_eq!(copied, Completion::refused(BlkStatus::ZoneOpenResource), "{mode:?}");
        assert_eq!(disk.zone(3), (ExpOpen, 72));
    }
}

#[test]
fn a_zone_that_a_copy_closed_to_make_room_is_opened_again_by_it() {
    let mut disk = disk(CopyMode::Remap, |zones| zones.max_open = 1);
    let segments = [(at(1, 0), 64, at(4, 0)), (at(2, 0), 32, at(4, 64)), (at(1, 0), 8, at(3, 64))];
    assert_eq!(disk.copy(Flags::NONE, &segments).status, BlkStatus::Ok);
    assert_eq!((disk.zone(3), disk.zone(4)), ((ImpOpen, 72), (Full, SIZE)));
}

#[test]
fn an_appended_copy_is_told_where_it_went() {
    for mode in MODES {
        let mut disk = disk(mode, |_| {});
        let zone = at(4, 0);
        disk.write(zone, 8, 1);
        // Longer in all than one append may be.
        let copied = disk.copy(Flags::APPEND, &[(at(1, 0), 40, zone), (at(2, 0), 16, zone)]);
        assert_eq!(copied.status, BlkStatus::Ok, "{mode:?}");
        assert_eq!(copied.appended_at, Some(Sector(at(4, 8))));
        assert_eq!(disk.read(at(4, 8), 56), [stamps(1000, 40), stamps(2000, 16)].concat());
        let mut refused = |segments: &[_], why| {
            assert_eq!(disk.copy(Flags::APPEND, segments), Completion::refused(why), "{mode:?} {segments:?}");
        };
        refused(&[(at(1, 0), 40, zone)], BlkStatus::ZoneBoundary);
        refused(&[(at(1, 0), 8, at(4, 64))], BlkStatus::ZoneAppend);
        refused(&[(at(1, 0), 8, zone), (at(1, 0), 8, at(5, 0))], BlkStatus::ZoneAppend);
        refused(&[(at(1, 0), 8, 0)], BlkStatus::ZoneAppend);
        refused(&[(at(4, 60), 8, zone)], BlkStatus::CopyOverlap);
    }
}

#[test]
fn a_plain_volume_is_copied_into_a_zone_and_a_zone_into_it() {
    let mut disk = disk(CopyMode::Remap, |_| {});
    let written = disk.begin_on(PLAIN, Op::Write(range(0, 16)), Flags::NONE, 500);
    assert!(disk.end(written).status.is_ok());
    let segment = |source_volume, source, to| CopySegment {
        source_volume,
        source: range(source, 16),
        destination: Sector(to),
    };
    let into = CopyCommand { segments: [segment(PLAIN, 0, at(4, 0))].into_iter().collect() };
    assert!(disk.run(Op::Copy(into), Flags::NONE).status.is_ok());
    assert_eq!(disk.read(at(4, 0), 16), stamps(500, 16));
    let out_of = CopyCommand { segments: [segment(V, at(1, 0), 64)].into_iter().collect() };
    let id = disk.begin_on(PLAIN, Op::Copy(out_of.clone()), Flags::NONE, 0);
    assert!(disk.end(id).status.is_ok());
    let id = disk.begin_on(PLAIN, Op::Copy(out_of.clone()), Flags::APPEND, 0);
    assert_eq!(disk.end(id).status, BlkStatus::NotSupp);
    disk.fail_zone(1, ZoneFailure::Offline);
    let id = disk.begin_on(PLAIN, Op::Copy(out_of), Flags::NONE, 0);
    assert_eq!(disk.end(id), Completion::refused(BlkStatus::ZoneOffline));
}

#[test]
fn another_writer_between_two_links_ends_the_copy_with_its_prefix() {
    for mode in [CopyMode::Remap, CopyMode::Memcpy] {
        let mut disk = disk(mode, |_| {});
        let copy = disk.begin_copy(Flags::NONE, &[(at(1, 0), 8, at(4, 0)), (at(2, 0), 8, at(4, 8))]);
        let write = disk.begin(Op::Write(range(at(4, 8), 8)), Flags::NONE, 77);
        disk.step(copy, None);
        let copied = disk.end(copy);
        assert_eq!(copied.status, BlkStatus::ZoneInvalidWrite, "{mode:?}");
        assert_eq!((copied.bytes, copied.first_failed_segment), (bytes(8), Some(1)));
        assert!(disk.end(write).status.is_ok());
        assert_eq!(disk.read(at(4, 0), 16), [stamps(1000, 8), stamps(77, 8)].concat());
    }
}

#[test]
fn a_source_that_is_reset_half_way_ends_the_copy_with_its_prefix() {
    for mode in [CopyMode::Remap, CopyMode::Memcpy] {
        let mut disk = disk(mode, |_| {});
        let segments = [(at(1, 0), 8, at(4, 0)), (at(2, 0), 8, at(4, 8)), (at(1, 8), 8, at(4, 16))];
        let copy = disk.begin_copy(Flags::NONE, &segments);
        disk.step(copy, None);
        assert_eq!(disk.zone(4), (ImpOpen, 16));
        let action = Op::ZoneMgmt { zone: Sector(at(2, 0)), action: ZoneAction::Reset };
        let reset = disk.begin(action, Flags::NONE, 0);
        disk.step(copy, None);
        assert!(disk.end(reset).status.is_ok());
        let copied = disk.end(copy);
        assert_eq!(copied.status, BlkStatus::IoErr, "{mode:?}");
        assert_eq!((copied.bytes, copied.first_failed_segment), (bytes(8), Some(1)));
        assert_eq!(disk.zone(4), (ImpOpen, 8));
        assert_eq!(disk.read(at(4, 0), 16), [stamps(1000, 8), vec![0; 8]].concat());
    }
}

#[test]
fn a_destination_that_changes_half_way_ends_the_copy_with_its_prefix() {
    type Change = fn(&mut Disk);
    let changes: [Change; 4] = [
        |disk| assert_eq!(disk.act_now(4, ZoneAction::Finish), BlkStatus::Ok),
        |disk| disk.fail_zone(4, ZoneFailure::Readonly),
        |disk| disk.fail_zone(4, ZoneFailure::Offline),
        |disk| {
            // Reset, and written again up to where the copy would go on.
            let action = Op::ZoneMgmt { zone: Sector(at(4, 0)), action: ZoneAction::Reset };
            let reset = disk.begin(action, Flags::NONE, 0);
            disk.step(reset, None);
            let write = disk.begin(Op::Write(range(at(4, 0), 8)), Flags::NONE, 9);
            disk.step(write, None);
        },
    ];
    for mode in [CopyMode::Remap, CopyMode::Memcpy] {
        for (number, change) in changes.iter().enumerate() {
            let mut disk = disk(mode, |_| {});
            let copy = disk.begin_copy(Flags::NONE, &[(at(1, 0), 8, at(4, 0)), (at(2, 0), 8, at(4, 8))]);
            disk.step(copy, None);
            change(&mut disk);
            let copied = disk.end(copy);
            assert_eq!(copied.status, BlkStatus::IoErr, "{mode:?} {number}");
            assert_eq!((copied.bytes, copied.first_failed_segment), (bytes(8), Some(1)), "{mode:?} {number}");
        }
    }
}

#[test]
fn a_failed_link_gives_the_pointer_back_to_the_finished_prefix() {
    for mode in MODES {
        let mut disk = disk(mode, |_| {});
        let copy = disk.begin_copy(Flags::NONE, &[(at(1, 0), 8, at(4, 0)), (at(2, 0), 8, at(4, 8))]);
        // In mode emulate a link is a read and a write.
        let links = if mode == CopyMode::Emulate { 3 } else { 1 };
        (0..links).for_each(|_| disk.step(copy, None));
        disk.step(copy, Some(BlkStatus::Medium));
        let copied = disk.end(copy);
        assert_eq!((copied.status, copied.first_failed_segment), (BlkStatus::Medium, Some(1)), "{mode:?}");
        assert_eq!((copied.bytes, disk.zone(4)), (bytes(8), (ImpOpen, 8)));
        let copy = disk.begin_copy(Flags::NONE, &[(at(1, 0), 8, at(5, 0))]);
        disk.step(copy, Some(BlkStatus::Medium));
        assert_eq!((disk.end(copy).bytes, disk.zone(5)), (bytes(0), (Empty, 0)));
    }
}

#[test]
fn a_copy_waits_for_the_reset_of_its_destination() {
    for mode in MODES {
        let mut disk = disk(mode, |_| {});
        let action = Op::ZoneMgmt { zone: Sector(at(3, 0)), action: ZoneAction::Reset };
        let reset = disk.begin(action, Flags::NONE, 0);
        let copy = disk.begin_copy(Flags::NONE, &[(at(1, 0), 8, at(3, 0))]);
        disk.step(reset, None);
        let copied = disk.end(copy);
        assert!(disk.end(reset).status.is_ok());
        // Where the target carries it out by reads and writes, it is tried as a whole when it begins.
        let expected = if mode == CopyMode::Emulate { BlkStatus::ZoneInvalidWrite } else { BlkStatus::Ok };
        assert_eq!(copied.status, expected, "{mode:?}");
    }
}

#[test]
fn fast_copies_into_zones_move_nothing() {
    let mut disk = disk(CopyMode::Remap, |_| {});
    assert!(disk.copy(Flags::FAST_ONLY, &[(at(1, 0), 64, at(4, 0))]).status.is_ok());
    let slow = disk.copy(Flags::FAST_ONLY, &[(at(1, 0), 4, at(4, 64))]);
    assert_eq!(slow, Completion::refused(BlkStatus::CopyNotFast));
    assert_eq!(disk.zone(4), (ImpOpen, 64));
    assert_eq!(disk.pool.ledger(V).inside_read, Bytes(0));
}

#[test]
fn a_source_volume_that_is_removed_gives_the_pointer_back() {
    let mut disk = Disk::new(|_| {});
    disk.set(|limits| limits.copy_mode = CopyMode::Memcpy);
    let written = disk.begin_on(PLAIN, Op::Write(range(0, 8)), Flags::NONE, 1);
    assert!(disk.end(written).status.is_ok());
    let destination = Sector(at(4, 0));
    let segments = [CopySegment { source_volume: PLAIN, source: range(0, 8), destination }];
    let copy = disk.begin(Op::Copy(CopyCommand { segments: segments.into_iter().collect() }), Flags::NONE, 0);
    assert_eq!(disk.zone(4), (ImpOpen, 8));
    let out = disk.pool.control(Instant::ORIGIN, Control::RemoveVolume(PLAIN));
    disk.take(out);
    let ended = disk.end(copy);
    assert_eq!((ended.status, ended.bytes), (BlkStatus::IoErr, Bytes(0)));
    assert_eq!(disk.zone(4), (Empty, 0));
}
