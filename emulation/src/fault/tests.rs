use super::*;
use crate::device::{Step, StoreRange};
use crate::emulated::Emulated;
use crate::mapped::{Cache, Mapped, MappedConfig};
use crate::pool::Pool;
use crate::redo::NoLog;
use crate::request::CopySegment;
use crate::time::Nanos;
use crate::units::PhysSector;

mod links;
mod power;

const V: VolumeId = VolumeId(0);
const NOW: Instant = Instant::ORIGIN;
/// What a wrong bit makes of the value of a sector.
const WRONG: u64 = 1 << 40;

/// A pool and its store: a value a sector. Every plan is carried out at once.
struct Disk {
    pool: Pool,
    store: BTreeMap<u64, u64>,
    last: u64,
    /// Sectors of the port of the request under way: the door's, and the bounce buffer.
    port: Vec<u64>,
    /// The latest instant before which a plan was not to be finished.
    not_before: Instant,
}

impl Disk {
    fn new(mode: CopyMode) -> Self {
        Self::with_cache(mode, Cache::None)
    }

    fn with_cache(mode: CopyMode, cache: Cache) -> Self {
        let config = MappedConfig {
            map_block: Sectors(8),
            cap: Sectors(1 << 16),
            physical: Sectors(1 << 17),
            cache,
            trim: true,
        };
        let device = Emulated::new(Box::new(Mapped::new(config)));
        let mut pool = Pool::new(Box::new(device), Box::new(NoLog::default()));
        let mut limits = Limits::new(Sectors(1 << 16), Sectors(1), Sectors(8));
        limits.copy_mode = mode;
        pool.control(NOW, Control::AddVolume(V, limits));
        Self { pool, store: BTreeMap::new(), last: 0, port: Vec::new(), not_before: NOW }
    }

    fn rule(&mut self, action: FaultAction) {
        self.pool.add_fault(V, FaultRule::new("rule", action)).unwrap();
    }

    fn struck(&self) -> u64 {
        self.pool.faults(V).map(|(state, _)| state.struck).sum()
    }

    /// Begins a request and takes it to its end, or to its waiting.
    fn ask(&mut self, op: Op) -> Option<Completion> {
        self.last += 1;
        let id = RequestId(self.last);
        let out = self.pool.begin(NOW, Request { id, volume: V, op, flags: Flags::NONE });
        self.go_on(out)
    }

    fn go_on(&mut self, mut out: Out) -> Option<Completion> {
        let mut answer = None;
        while let Some((id, next)) = out.pop() {
            match next {
                Next::Wait => {}
                Next::Done(completion) if id.0 == self.last => answer = Some(completion),
                Next::Done(_) => {}
                Next::Run(plan) => {
                    self.not_before = self.not_before.max(plan.not_before);
                    plan.steps.iter().for_each(|step| self.step(step));
                    let io = IoResult::done(&plan);
                    out.extend(self.pool.finish(NOW, plan, io));
                }
            }
        }
        self.pool.check().unwrap();
        answer
    }

    fn at(&self, at: PhysSector) -> u64 {
        self.store.get(&at.0).copied().unwrap_or(0)
    }

    fn step(&mut self, step: &Step) {
        let places =
            |range: &StoreRange| (0..range.len.0).map(|i| range.start + Sectors(i)).collect::<Vec<_>>();
        let port = |at: &Sectors, i: usize| usize::try_from(at.0).unwrap() + i;
        self.port.resize(1 << 12, 0);
        match step {
            Step::Read { from, port: to } => {
                for (i, place) in places(from).into_iter().enumerate() {
                    self.port[port(to, i)] = self.at(place);
                }
            }
            Step::ReadFlipped { from, len, port: to, bit } => {
                assert_eq!(*len, Sectors(1), "a logical block");
                assert!(*bit < 4096);
                self.port[port(to, 0)] = from.map_or(0, |from| self.at(from)) ^ WRONG;
            }
            Step::ReadZeroes { port: to, len } => {
                let start = port(to, 0);
                self.port[start..start + usize::try_from(len.0).unwrap()].fill(0);
            }
            Step::Write { port: from, to } => {
                for (i, place) in places(to).into_iter().enumerate() {
                    self.store.insert(place.0, self.port[port(from, i)]);
                }
            }
            Step::Move { from, to, .. } => {
                for (i, place) in places(from).into_iter().enumerate() {
                    let value = self.at(place);
                    self.store.insert((*to + Sectors(i as u64)).0, value);
                }
            }
            Step::Zero { at, .. } => places(at).into_iter().for_each(|place| {
                self.store.insert(place.0, 0);
            }),
            Step::Trim { .. } | Step::Sync | Step::Commit(_) => {}
        }
    }

    /// Writes `value` and its successors.
    fn write(&mut self, start: u64, len: u64, value: u64) -> Completion {
        self.port = (0..len).map(|i| value + i).collect();
        self.ask(Op::Write(range(start, len))).expect("it is answered")
    }

    fn read(&mut self, start: u64, len: u64) -> Vec<u64> {
        let completion = self.ask(Op::Read(range(start, len))).expect("it is answered");
        assert!(completion.status.is_ok(), "{completion:?}");
        self.port[..usize::try_from(len).unwrap()].to_vec()
    }

    fn copy(&mut self, segments: &[(u64, u64, u64)]) -> Completion {
        self.ask(Op::Copy(copy(segments))).expect("it is answered")
    }
}

fn range(start: u64, len: u64) -> SectorRange {
    SectorRange { start: Sector(start), len: Sectors(len) }
}

fn copy(segments: &[(u64, u64, u64)]) -> CopyCommand {
    let segment = |&(source, len, to): &(u64, u64, u64)| CopySegment {
        source_volume: V,
        source: range(source, len),
        destination: Sector(to),
    };
    CopyCommand { segments: segments.iter().map(segment).collect() }
}

fn values(from: u64, len: u64) -> Vec<u64> {
    (from..from + len).collect()
}

/// Sectors that differ.
fn differing(a: &[u64], b: &[u64]) -> Vec<usize> {
    (0..a.len()).filter(|&i| a[i] != b[i]).collect()
}

const MODES: [CopyMode; 3] = [CopyMode::Remap, CopyMode::Memcpy, CopyMode::Emulate];

#[test]
fn a_copy_fails_at_a_segment_and_those_before_it_are_done() {
    for mode in MODES {
        let mut disk = Disk::new(mode);
        disk.write(0, 64, 100);
        disk.rule(FaultAction::FailAt(2));
        let two = disk.copy(&[(0, 8, 1000), (8, 8, 1008)]);
        assert_eq!((two.status, disk.struck()), (BlkStatus::Ok, 0), "{mode:?}: it has no third segment");
        let end = disk.copy(&[(0, 8, 2000), (8, 12, 2100), (24, 8, 2200), (32, 8, 2300)]);
        assert_eq!((end.status, end.bytes), (BlkStatus::Medium, Bytes(20 * 512)), "{mode:?}");
        assert_eq!(end.first_failed_segment, Some(2));
        assert_eq!(disk.read(2000, 8), values(100, 8));
        assert_eq!(disk.read(2100, 12), values(108, 12));
        assert_eq!((disk.read(2200, 8), disk.read(2300, 8)), (vec![0; 8], vec![0; 8]));
    }
}

#[test]
fn a_copy_stops_short_at_a_byte() {
    for mode in MODES {
        let mut disk = Disk::new(mode);
        disk.write(0, 64, 100);
        disk.rule(FaultAction::StopAt(Bytes(13 * 512)));
        let end = disk.copy(&[(0, 8, 2000), (8, 16, 2104)]);
        assert_eq!((end.status, end.bytes), (BlkStatus::IoErr, Bytes(13 * 512)), "{mode:?}");
        assert_eq!(end.first_failed_segment, Some(1));
        assert_eq!(disk.read(2000, 8), values(100, 8));
        let after = [disk.read(2104, 8), disk.read(2112, 8)].concat();
        assert_eq!(after, [values(108, 5), vec![0; 11]].concat(), "{mode:?}");
        assert_eq!(disk.write(500, 13, 1).status, BlkStatus::Ok, "it ends there by itself");
        let write = disk.write(500, 20, 7);
        assert_eq!((write.status, write.bytes), (BlkStatus::IoErr, Bytes(13 * 512)));
        assert_eq!(write.first_failed_segment, None);
        assert_eq!(disk.read(500, 13), values(7, 13));
    }
}

#[test]
fn nothing_of_a_refused_copy_is_done_although_it_was_struck() {
    let mut disk = Disk::new(CopyMode::Remap);
    disk.write(0, 64, 100);
    disk.rule(FaultAction::FailAt(1));
    disk.last += 1;
    let (id, op) = (RequestId(disk.last), Op::Copy(copy(&[(0, 8, 2000), (8, 8, 2101)])));
    let out = disk.pool.begin(NOW, Request { id, volume: V, op, flags: Flags::FAST_ONLY });
    assert_eq!(disk.go_on(out), Some(Completion::refused(BlkStatus::CopyNotFast)));
    assert_eq!(disk.read(2000, 8), vec![0; 8]);
}

#[test]
fn one_sector_of_a_copy_is_corrupt_until_it_is_written_or_the_rule_ends() {
    for mode in MODES {
        let mut disk = Disk::new(mode);
        disk.write(0, 64, 100);
        let rule =
            FaultRule { op: FaultOp::Copy, count: Some(1), ..FaultRule::new("flip", FaultAction::Corrupt) };
        disk.pool.add_fault(V, rule).unwrap();
        assert_eq!(disk.copy(&[(0, 16, 2000), (16, 24, 2104)]).status, BlkStatus::Ok);
        let good = values(100, 40);
        let both = |disk: &mut Disk| [disk.read(2000, 16), disk.read(2104, 24)].concat();
        let wrong = differing(&both(&mut disk), &good);
        assert_eq!(wrong.len(), 1, "{mode:?}");
        assert_eq!(differing(&both(&mut disk), &good), wrong, "{mode:?}: a retry sees the same");
        assert_eq!(disk.read(0, 40), good, "{mode:?}: the source is as it was");
        // A copy of what is wrong is as wrong.
        disk.copy(&[(2000, 16, 5000), (2104, 24, 5016)]);
        assert_eq!(differing(&disk.read(5000, 40), &good), wrong, "{mode:?}");
        let sector = match wrong[0] as u64 {
            early @ 0..16 => 2000 + early,
            late => 2104 + late - 16,
        };
        disk.write(sector, 1, good[wrong[0]]);
        assert!(differing(&both(&mut disk), &good).is_empty(), "{mode:?}: written anew");
        let out = disk.pool.remove_faults(V, Some("flip")).expect("it is there");
        disk.go_on(out);
        let left = usize::from(mode == CopyMode::Emulate);
        assert_eq!(
            differing(&disk.read(5000, 40), &good).len(),
            left,
            "{mode:?}: pristine below, but for what passed the buffer wrong"
        );
    }
}

#[test]
fn a_read_that_is_struck_by_corruption_and_the_next_one_see_the_same() {
    let mut disk = Disk::new(CopyMode::Remap);
    disk.write(8, 32, 100);
    disk.rule(FaultAction::Corrupt);
    let first = disk.read(0, 48);
    let good = [vec![0; 8], values(100, 32), vec![0; 8]].concat();
    assert_eq!(differing(&first, &good).len(), 1);
    let out = disk.pool.remove_faults(V, None).expect("all are always there");
    disk.go_on(out);
    assert_eq!(disk.read(0, 48), good);
}

#[test]
fn a_torn_write_reports_success_and_a_misdirected_one_lands_elsewhere() {
    let mut disk = Disk::new(CopyMode::Remap);
    disk.write(0, 32, 100);
    let torn = FaultRule { seed: 3, count: Some(1), ..FaultRule::new("torn", FaultAction::Torn) };
    disk.pool.add_fault(V, torn).unwrap();
    assert_eq!(disk.write(0, 32, 500), Completion::ok(Bytes(32 * 512)));
    let now = disk.read(0, 32);
    let done = now.iter().take_while(|value| **value >= 500).count();
    assert!(done < 32 && now[done..] == values(100, 32)[done..], "{now:?}");
    let to = FaultRule { op: FaultOp::Write, ..FaultRule::new("to", FaultAction::Misdirect(Sector(4096))) };
    disk.pool.add_fault(V, to).unwrap();
    assert!(disk.write(600, 4, 900).status.is_ok());
    assert_eq!((disk.read(600, 4), disk.read(4096, 4)), (vec![0; 4], values(900, 4)));
}

#[test]
fn what_hangs_ends_with_its_rule_its_volume_or_an_abort() {
    let mut disk = Disk::new(CopyMode::Remap);
    disk.rule(FaultAction::Hang);
    assert_eq!(disk.ask(Op::Copy(copy(&[(0, 8, 100)]))), None);
    let hung: Vec<_> = disk.pool.faults(V).flat_map(|(_, hung)| hung).collect();
    assert_eq!(hung, [RequestId(disk.last)]);
    assert!(disk.pool.remove_faults(V, Some("other")).is_none());
    let out = disk.pool.remove_faults(V, Some("rule")).unwrap();
    let end = disk.go_on(out).expect("it ends");
    assert_eq!((end.status, end.first_failed_segment), (BlkStatus::Timeout, Some(0)));
    disk.rule(FaultAction::Hang);
    assert_eq!(disk.ask(Op::Flush), None);
    let out = disk.pool.abort(NOW, RequestId(disk.last));
    assert_eq!(disk.go_on(out).map(|end| end.status), Some(BlkStatus::Aborted));
    assert_eq!(disk.ask(Op::Write(range(0, 8))), None);
    let out = disk.pool.control(NOW, Control::RemoveVolume(V));
    assert_eq!(disk.go_on(out).map(|end| end.status), Some(BlkStatus::NoVolume));
    assert_eq!(disk.pool.faults(V).count(), 0);
}

#[test]
fn a_delay_is_an_instant_before_which_it_is_not_answered() {
    let mut disk = Disk::new(CopyMode::Remap);
    disk.rule(FaultAction::Delay(Nanos(5_000_000)));
    assert!(disk.ask(Op::Flush).unwrap().status.is_ok());
    assert_eq!(disk.not_before, Instant(5_000_000));
    assert!(disk.copy(&[(0, 8, 100)]).status.is_ok());
}

#[test]
fn rules_count_and_draw_by_their_seed() {
    let errors = |rule: FaultRule| {
        let mut disk = Disk::new(CopyMode::Remap);
        disk.pool.add_fault(V, rule).unwrap();
        (0..200).filter(|i| !disk.write(i * 8, 8, 1).status.is_ok()).collect::<Vec<u64>>()
    };
    let rule = || FaultRule::new("rule", FaultAction::Error(BlkStatus::Medium));
    assert_eq!(errors(FaultRule { pick: FaultPick::From(3), count: Some(2), ..rule() }), [2, 3]);
    assert_eq!(errors(FaultRule { range: Some(range(80, 12)), ..rule() }), [10, 11]);
    assert_eq!(errors(FaultRule { op: FaultOp::Read, ..rule() }), [0; 0]);
    let ratio = |seed| errors(FaultRule { pick: FaultPick::Ratio(1, 10), seed, ..rule() });
    assert_eq!(ratio(7), ratio(7));
    assert_ne!(ratio(7), ratio(8));
    assert!((5..50).contains(&ratio(7).len()), "{:?}", ratio(7));
}

#[test]
fn a_struck_request_is_listed_and_the_first_rule_wins() {
    let mut disk = Disk::new(CopyMode::Remap);
    disk.rule(FaultAction::Error(BlkStatus::Target));
    let second = FaultRule::new("second", FaultAction::Error(BlkStatus::Medium));
    disk.pool.add_fault(V, second.clone()).unwrap();
    assert_eq!(disk.pool.add_fault(V, second), Err(FaultError::Exists("second".into())));
    for _ in 0..40 {
        assert_eq!(disk.copy(&[(0, 8, 104)]), failed(&Op::Copy(copy(&[])), BlkStatus::Target));
    }
    let states: Vec<_> = disk.pool.faults(V).map(|(state, _)| state.clone()).collect();
    assert_eq!((states[0].struck, states[1].matched), (40, 0));
    assert_eq!(states[0].strikes.len(), STRIKES_KEPT);
    let last = states[0].strikes.back().unwrap();
    assert_eq!(
        (last.request, last.op, last.range),
        (RequestId(disk.last), FaultOp::Copy, Some(range(104, 8)))
    );
}

#[test]
fn rules_that_can_never_strike_are_refused() {
    let limits = Limits::new(Sectors(1 << 16), Sectors(8), Sectors(8));
    let rule = |action| FaultRule::new("rule", action);
    let medium = FaultAction::Error(BlkStatus::Medium);
    for (rule, why) in [
        (FaultRule { op: FaultOp::Write, ..rule(FaultAction::FailAt(0)) }, FaultError::Op("write")),
        (FaultRule { op: FaultOp::Flush, ..rule(FaultAction::Corrupt) }, FaultError::Op("flush")),
        (FaultRule { pick: FaultPick::From(0), ..rule(medium) }, FaultError::Nth),
        (FaultRule { pick: FaultPick::Ratio(0, 1), ..rule(medium) }, FaultError::Ratio(0, 1)),
        (FaultRule { pick: FaultPick::Ratio(2, 1), ..rule(medium) }, FaultError::Ratio(2, 1)),
        (FaultRule { count: Some(0), ..rule(medium) }, FaultError::Count),
        (FaultRule { range: Some(range(0, 0)), ..rule(medium) }, FaultError::Range(range(0, 0))),
        (FaultRule { range: Some(range(1 << 16, 1)), ..rule(medium) }, FaultError::Range(range(1 << 16, 1))),
        (
            FaultRule { range: Some(range(u64::MAX, 2)), ..rule(medium) },
            FaultError::Range(range(u64::MAX, 2)),
        ),
        (rule(FaultAction::Error(BlkStatus::Ok)), FaultError::NoError),
        (rule(FaultAction::StopAt(Bytes(512))), FaultError::Block("stop-at")),
        (rule(FaultAction::Misdirect(Sector(4))), FaultError::Block("misdirect")),
        (rule(FaultAction::Misdirect(Sector(1 << 16))), FaultError::Range(range(1 << 16, 1))),
        (rule(FaultAction::Zone(ZoneFailure::Offline)), FaultError::NoZones),
    ] {
        assert_eq!(rule.validate(&limits), Err(why), "{rule:?}");
    }
    assert_eq!(rule(medium).validate(&limits), Ok(()));
}
