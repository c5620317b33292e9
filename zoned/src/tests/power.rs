//! A loss of power: pointers tell of what was finished, no zone is open, and nothing that was begun before ends well.

use super::*;
use emulation::Keep;

#[test]
fn zones_end_where_their_finished_writes_end_and_none_is_open() {
    for keep in [Keep::None, Keep::All, Keep::Some(1)] {
        let mut disk = Disk::with_cache(VOLATILE, false, |_| {});
        assert_eq!(disk.write(at(1, 0), 16, 100), BlkStatus::Ok);
        assert_eq!(disk.write(at(2, 0), CAPACITY, 300), BlkStatus::Ok);
        assert_eq!(disk.act(3, ZoneAction::Open), BlkStatus::Ok);
        disk.fail_zone(4, ZoneFailure::Offline);
        let under_way = disk.begin(Op::Write(range(at(1, 16), 8)), Flags::NONE, 200);
        let first = disk.begin(Op::Write(range(at(5, 0), 8)), Flags::NONE, 400);
        let copy = disk.begin_copy(Flags::NONE, &[(at(2, 0), 8, at(6, 0))]);
        assert_eq!(disk.zone(1), (ZoneCondition::ImpOpen, 24));
        let out = disk.pool.control(Instant::ORIGIN, Control::PowerCut(V, keep));
        disk.take(out);
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
