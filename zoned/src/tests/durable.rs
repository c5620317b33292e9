//! What is recorded of zones, what a commit makes durable, and what comes back.

use super::*;
use emulation::zone::ZoneCondition::{Closed, Empty, ExpOpen, Full, ImpOpen, Offline};

impl Disk {
    fn recorded(&self) -> Vec<(u32, ZoneCondition, u64)> {
        let told = self.log.0.lock().unwrap();
        told.zones.iter().map(|(_, change)| (change.zone, change.condition, change.wp.0)).collect()
    }

    /// An action that ends at once.
    pub(super) fn act_now(&mut self, zone: u64, action: ZoneAction) -> BlkStatus {
        let id = self.begin(Op::ZoneMgmt { zone: Sector(at(zone, 0)), action }, Flags::NONE, 0);
        self.answers.remove(&id).expect("it ends at once").status
    }

    fn flush(&mut self) -> Commit {
        assert!(self.run(Op::Flush, Flags::NONE).status.is_ok());
        self.commits.last().expect("a commit").clone()
    }

    /// A disk that goes on from these zones of a durable image and these later records.
    fn again(&self, zones: Vec<ZoneChange>, zone_records: Vec<(u64, ZoneChange)>) -> Disk {
        let mut mapped = Mapped::new(config(VOLATILE));
        let (mut log, mut ledgers) = (NoLog::default(), emulation::ledger::Ledgers::default());
        let mut cx = emulation::Cx { now: Instant::ORIGIN, log: &mut log, ledgers: &mut ledgers };
        let limits = self.pool.limits(V).unwrap().clone();
        emulation::BlockDevice::control(&mut mapped, &mut cx, Control::AddVolume(V, limits));
        let log = Log::default();
        log.0.lock().unwrap().last = zone_records.last().map_or(0, |(number, _)| *number);
        let volumes = vec![(V, self.pool.limits(V).unwrap().clone())];
        let image = Image { volumes, zones, zone_records, ..Image::default() };
        let zoned = Zoned::recover(Box::new(mapped), false, &image).expect("the zones of a volume");
        let disk = Disk::over(zoned, log);
        disk.pool.check().unwrap();
        disk
    }
}

fn of(commit: &Commit) -> Vec<(u32, ZoneCondition, u64)> {
    commit.zones.iter().map(|change| (change.zone, change.condition, change.wp.0)).collect()
}

fn volatile(change: impl FnOnce(&mut ZoneGeometry)) -> Disk {
    Disk::with_cache(VOLATILE, false, change)
}

#[test]
fn a_zone_is_recorded_when_what_is_kept_of_it_changes() {
    let mut disk = volatile(|zones| zones.max_open = 1);
    disk.write(at(1, 0), 8, 1);
    let high = {
        let low = disk.begin(Op::Write(range(at(1, 8), 8)), Flags::NONE, 1);
        let high = disk.begin(Op::Write(range(at(1, 16), 8)), Flags::NONE, 1);
        disk.step(high, None);
        disk.step(low, Some(BlkStatus::Medium));
        high
    };
    assert!(disk.end(high).status.is_ok());
    // Implicit opens and closes are not kept.
    disk.write(at(2, 0), 8, 1);
    disk.act(2, ZoneAction::Close);
    disk.act(2, ZoneAction::Open);
    disk.act(2, ZoneAction::Finish);
    disk.act(1, ZoneAction::Reset);
    disk.fail_zone(3, ZoneFailure::Offline);
    let expected = [
        (1, Closed, 8),
        (1, Closed, 24),
        (2, Closed, 8),
        (2, ExpOpen, 8),
        (2, Full, 8),
        (1, Empty, 0),
        (3, Offline, 0),
    ];
    assert_eq!(disk.recorded(), expected);
}

#[test]
fn a_commit_has_the_zones_that_changed_and_nothing_else() {
    let mut disk = volatile(|_| {});
    disk.write(at(1, 0), 8, 1);
    disk.write(at(2, 0), 8, 1);
    let under_way = disk.begin(Op::Write(range(at(2, 8), 8)), Flags::NONE, 1);
    let flush = disk.begin(Op::Flush, Flags::NONE, 0);
    let id = disk.plans.last().expect("the commit").request;
    disk.step(id, None);
    assert!(disk.end(flush).status.is_ok());
    assert_eq!(of(&disk.commits[0]), [(1, Closed, 8), (2, Closed, 8)]);
    assert!(disk.end(under_way).status.is_ok());
    // A change of zones alone is worth a commit; one that failed is tried again.
    disk.act(4, ZoneAction::Open);
    let flush = disk.begin(Op::Flush, Flags::NONE, 0);
    let commit = disk.plans.last().expect("the commit").request;
    disk.step(commit, Some(BlkStatus::Medium));
    assert_eq!(disk.end(flush).status, BlkStatus::Medium);
    assert_eq!(of(&disk.flush()), [(2, Closed, 16), (4, ExpOpen, 0)]);
    disk.run(Op::Flush, Flags::NONE);
    assert_eq!(disk.commits.len(), 2, "a flush of nothing commits nothing");
}

#[test]
fn fua_makes_the_pointer_durable_with_the_data() {
    let mut disk = volatile(|_| {});
    for (op, wp) in [(Op::Write(range(at(1, 0), 8)), 8), (Op::WriteZeroes(range(at(1, 8), 8)), 16)] {
        assert!(disk.run(op, Flags::FUA).status.is_ok());
        let zones = &disk.commits.last().expect("a commit").zones;
        assert_eq!(zones.iter().map(|change| change.wp.0).collect::<Vec<_>>(), [wp]);
    }
    disk.copy(Flags::FUA, &[(at(1, 0), 8, at(2, 0)), (at(1, 0), 8, at(2, 8))]);
    let zones = &disk.commits.last().expect("a commit").zones;
    assert_eq!(zones.iter().map(|change| (change.zone, change.wp.0)).collect::<Vec<_>>(), [(2, 16)]);
}

#[test]
fn a_disk_without_a_cache_makes_conditions_durable_too() {
    let mut disk = Disk::with_cache(VOLATILE, true, |_| {});
    for (count, action) in (1..).zip([ZoneAction::Open, ZoneAction::Finish, ZoneAction::Reset]) {
        assert_eq!(disk.act(1, action), BlkStatus::Ok);
        assert_eq!(disk.commits.len(), count);
    }
    let id = disk.begin(Op::ZoneMgmt { zone: Sector(at(1, 0)), action: ZoneAction::Open }, Flags::NONE, 0);
    let commit = disk.plans[0].request;
    disk.step(commit, Some(BlkStatus::Medium));
    assert_eq!(disk.end(id).status, BlkStatus::Medium);
}

#[test]
fn a_full_log_makes_changes_of_zones_wait() {
    let mut disk = volatile(|_| {});
    disk.write(at(1, 0), 8, 1);
    disk.log.0.lock().unwrap().full = true;
    let open = disk.begin(Op::ZoneMgmt { zone: Sector(at(2, 0)), action: ZoneAction::Open }, Flags::NONE, 0);
    let zeroes = disk.begin(Op::WriteZeroes(range(at(3, 0), 8)), Flags::NONE, 0);
    assert!(disk.answers.is_empty());
    assert!(disk.end(open).status.is_ok() && disk.end(zeroes).status.is_ok());
    disk.log.0.lock().unwrap().full = true;
    let open = disk.begin(Op::ZoneMgmt { zone: Sector(at(4, 0)), action: ZoneAction::Open }, Flags::NONE, 0);
    let commit = disk.plans[0].request;
    disk.step(commit, Some(BlkStatus::Medium));
    assert_eq!(disk.answers.remove(&open).map(|answer| answer.status), Some(BlkStatus::IoErr));
}

#[test]
fn zones_come_back_as_they_were_recorded_and_closed_after_a_loss_of_power() {
    let mut disk = volatile(|_| {});
    disk.write(at(1, 0), 8, 1);
    disk.act(2, ZoneAction::Open);
    disk.write(at(3, 0), 8, 1);
    disk.act(3, ZoneAction::Open);
    disk.write(at(4, 0), CAPACITY, 1);
    disk.fail_zone(5, ZoneFailure::Readonly);
    let records = disk.log.0.lock().unwrap().zones.clone();
    let recorded: Vec<ZoneChange> = records.iter().map(|(_, change)| *change).collect();
    let mut same = disk.again(Vec::new(), records);
    let expected = [(Closed, 8), (ExpOpen, 0), (ExpOpen, 8), (Full, SIZE)];
    assert_eq!([1, 2, 3, 4].map(|zone| same.zone(zone)), expected);
    assert_eq!(same.conditions(5..7), [ZoneCondition::Readonly, Empty]);
    assert_eq!(same.write(at(1, 8), 8, 1), BlkStatus::Ok);
    assert_eq!(same.zone(1), (ImpOpen, 16));
    // No image has what was recorded only.
    let committed = same.flush();
    assert_eq!(of(&committed)[..3], [(1, Closed, 16), (2, ExpOpen, 0), (3, ExpOpen, 8)]);
    let mut cold = disk.again(recorded.into_iter().map(ZoneChange::after_power_loss).collect(), Vec::new());
    assert_eq!(
        [1, 2, 3, 4].map(|zone| cold.zone(zone)),
        [(Closed, 8), (Empty, 0), (Closed, 8), (Full, SIZE)]
    );
}

#[test]
fn zones_that_no_volume_could_have_are_refused() {
    let disk = volatile(|_| {});
    let change = |zone, condition, wp| ZoneChange { volume: V, zone, condition, wp: Sectors(wp) };
    for wrong in [
        change(0, Full, 0),
        change(16, Full, 0),
        change(1, Closed, CAPACITY + 1),
        change(1, Closed, 0),
        change(1, Empty, 8),
        change(1, ImpOpen, 8),
        change(1, ZoneCondition::NotWp, 0),
    ] {
        let volumes = vec![(V, disk.pool.limits(V).unwrap().clone())];
        let image = Image { volumes, zones: vec![wrong], ..Image::default() };
        let mut mapped = Mapped::new(config(VOLATILE));
        let (mut log, mut ledgers) = (NoLog::default(), emulation::ledger::Ledgers::default());
        let mut cx = emulation::Cx { now: Instant::ORIGIN, log: &mut log, ledgers: &mut ledgers };
        let limits = image.volumes[0].1.clone();
        emulation::BlockDevice::control(&mut mapped, &mut cx, Control::AddVolume(V, limits));
        assert_eq!(Zoned::recover(Box::new(mapped), false, &image).unwrap_err(), wrong);
    }
}
