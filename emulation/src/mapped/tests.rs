#![expect(clippy::cast_possible_truncation, reason = "small numbers index the port of a test")]

use super::*;
use crate::ledger::Ledger;
use crate::pool::Pool;
use crate::redo::NoLog;
use crate::request::{CopyCommand, CopySegment, Flags};
use crate::units::{Sector, SectorRange};

const MIB: u64 = 2048;
const V: VolumeId = VolumeId(0);

/// Executes every plan at once on one stamp a sector.
struct Disk {
    pool: Pool,
    store: BTreeMap<u64, u64>,
    commits: Vec<crate::redo::Commit>,
    fail: Option<BlkStatus>,
    next: u64,
}

fn config(cap: u64, cache: Cache) -> MappedConfig {
    MappedConfig {
        map_block: Sectors(8),
        cap: Sectors(cap),
        physical: Sectors(cap + 64 * MIB),
        cache,
        trim: true,
    }
}

impl Disk {
    fn new(capacity: u64, cap: u64, cache: Cache) -> Self {
        let mut pool = Pool::new(Box::new(Mapped::new(config(cap, cache))), Box::new(NoLog::default()));
        let limits = Limits::new(Sectors(capacity), Sectors(1), Sectors(8));
        limits.validate().unwrap();
        pool.control(Instant::ORIGIN, Control::AddVolume(V, limits));
        Self { pool, store: BTreeMap::new(), commits: Vec::new(), fail: None, next: 0 }
    }

    fn set(&mut self, change: impl FnOnce(&mut Limits)) {
        let mut limits = self.pool.limits(V).unwrap().clone();
        change(&mut limits);
        self.pool.control(Instant::ORIGIN, Control::SetLimits(V, limits));
    }

    fn run(&mut self, op: Op, flags: Flags, port: &mut [u64]) -> Completion {
        self.next += 1;
        let id = RequestId(self.next);
        let mut out = self.pool.begin(Instant::ORIGIN, Request { id, volume: V, op, flags });
        let mut answer = None;
        while let Some((who, next)) = out.pop() {
            match next {
                Next::Done(completion) if who == id => assert!(answer.replace(completion).is_none()),
                Next::Done(_) => panic!("{who:?} was not asked for"),
                Next::Wait => {}
                Next::Run(plan) => {
                    let io = match self.fail {
                        Some(status) => IoResult::failed(status, 0),
                        None => self.execute(&plan, port),
                    };
                    out.extend(self.pool.finish(Instant::ORIGIN, plan, io));
                }
            }
        }
        self.pool.check().unwrap();
        answer.expect("a request is answered")
    }

    fn execute(&mut self, plan: &Plan, port: &mut [u64]) -> IoResult {
        for step in &plan.steps {
            match step {
                Step::Read { from, port: at } => {
                    for i in 0..from.len.0 {
                        port[(at.0 + i) as usize] = self.store[&(from.start.0 + i)];
                    }
                }
                Step::ReadFlipped { .. } => panic!("no fault was asked for"),
                Step::ReadZeroes { port: at, len } => port[at.0 as usize..(at.0 + len.0) as usize].fill(0),
                Step::Write { port: at, to } => {
                    for i in 0..to.len.0 {
                        self.store.insert(to.start.0 + i, port[(at.0 + i) as usize]);
                    }
                }
                Step::Move { from, to, .. } => {
                    for i in 0..from.len.0 {
                        let value = self.store[&(from.start.0 + i)];
                        self.store.insert(to.0 + i, value);
                    }
                }
                Step::Zero { at, .. } => (0..at.len.0).for_each(|i| {
                    self.store.insert(at.start.0 + i, 0);
                }),
                Step::Trim { at } => (0..at.len.0).for_each(|i| {
                    self.store.remove(&(at.start.0 + i));
                }),
                Step::Sync => {}
                Step::Commit(commit) => self.commits.push((**commit).clone()),
            }
        }
        IoResult::done(plan)
    }

    fn write(&mut self, start: u64, len: u64, stamp: u64) -> Completion {
        let mut port: Vec<u64> = (0..len).map(|i| stamp + i).collect();
        self.run(Op::Write(range(start, len)), Flags::NONE, &mut port)
    }

    fn read(&mut self, start: u64, len: u64) -> Vec<u64> {
        let mut port = vec![u64::MAX; len as usize];
        assert!(self.run(Op::Read(range(start, len)), Flags::NONE, &mut port).status.is_ok());
        port
    }

    fn copy(&mut self, segments: &[(u64, u64, u64)], flags: Flags) -> Completion {
        let segments = segments
            .iter()
            .map(|&(source, len, to)| CopySegment {
                source_volume: V,
                source: range(source, len),
                destination: Sector(to),
            })
            .collect();
        self.run(Op::Copy(CopyCommand { segments }), flags, &mut [])
    }

    fn ledger(&mut self) -> Ledger {
        *self.pool.ledger(V)
    }
}

fn range(start: u64, len: u64) -> SectorRange {
    SectorRange { start: Sector(start), len: Sectors(len) }
}

fn stamps(first: u64, len: u64) -> Vec<u64> {
    (first..first + len).collect()
}

#[test]
fn what_was_never_written_reads_as_zeroes_and_takes_no_space() {
    let mut disk = Disk::new(1 << 31, MIB, Cache::None);
    assert_eq!(disk.read((1 << 31) - 64, 64), vec![0; 64]);
    assert_eq!(disk.pool.usage().mapped, Sectors(0));
}

#[test]
fn a_write_of_a_part_keeps_the_rest_of_its_blocks() {
    let mut disk = Disk::new(MIB, MIB, Cache::None);
    disk.write(0, 24, 100);
    disk.write(5, 14, 500);
    let expected = [stamps(100, 5), stamps(500, 14), stamps(119, 5)].concat();
    assert_eq!(disk.read(0, 24), expected);
    assert_eq!(disk.ledger().moved_part_block, Bytes(512 * (5 + 5)));
}

#[test]
fn a_remap_shares_and_neither_side_sees_later_writes_of_the_other() {
    let mut disk = Disk::new(4 * MIB, MIB, Cache::None);
    disk.write(0, 64, 100);
    assert!(disk.copy(&[(0, 64, 1024)], Flags::FAST_ONLY).status.is_ok());
    assert_eq!((disk.ledger().remapped, disk.ledger().inside_read), (Bytes(64 * 512), Bytes(0)));
    assert_eq!(disk.pool.usage().mapped, Sectors(64));
    disk.write(0, 8, 900);
    disk.write(1032, 3, 800);
    assert_eq!(disk.read(0, 16), [stamps(900, 8), stamps(108, 8)].concat());
    assert_eq!(disk.read(1024, 16), [stamps(100, 8), stamps(800, 3), stamps(111, 5)].concat());
    assert_eq!(disk.pool.usage().mapped, Sectors(64 + 16));
}

#[test]
fn head_and_tail_are_moved_and_the_ledger_says_why() {
    let mut disk = Disk::new(4 * MIB, MIB, Cache::None);
    disk.write(0, 64, 100);
    assert!(disk.copy(&[(3, 40, 1027)], Flags::NONE).status.is_ok());
    assert_eq!(disk.read(1024, 48), [vec![0; 3], stamps(103, 40), vec![0; 5]].concat());
    let ledger = disk.ledger();
    assert_eq!((ledger.remapped, ledger.moved_head_tail), (Bytes(32 * 512), Bytes(8 * 512)));
    assert!(disk.copy(&[(1, 16, 2050)], Flags::NONE).status.is_ok());
    assert_eq!(disk.read(2050, 16), stamps(101, 16));
    assert_eq!(disk.ledger().moved_incongruent, Bytes(16 * 512));
    assert_eq!(disk.ledger().copied(), Bytes((40 + 16) * 512));
}

#[test]
fn fast_only_fails_before_anything_changes() {
    let mut disk = Disk::new(4 * MIB, MIB, Cache::None);
    disk.write(0, 64, 100);
    let completion = disk.copy(&[(0, 8, 1024), (8, 4, 2048)], Flags::FAST_ONLY);
    assert_eq!(completion, Completion::refused(BlkStatus::CopyNotFast));
    assert_eq!(disk.read(1024, 8), vec![0; 8]);
}

#[test]
fn a_copied_hole_unmaps_its_destination() {
    let mut disk = Disk::new(4 * MIB, MIB, Cache::None);
    disk.write(0, 64, 100);
    for mode in [CopyMode::Remap, CopyMode::Memcpy] {
        disk.set(|limits| limits.copy_mode = mode);
        disk.write(1024, 16, 300);
        assert!(disk.copy(&[(2048, 16, 1024)], Flags::NONE).status.is_ok());
        assert_eq!(disk.read(1024, 16), vec![0; 16]);
        assert_eq!(disk.pool.usage().mapped, Sectors(64));
    }
    assert_eq!(disk.ledger().copied_holes, Bytes(2 * 16 * 512));
}

#[test]
fn blocks_that_two_live_writes_reserve_are_mapped_once() {
    let mut disk = Disk::new(4 * MIB, 64, Cache::None);
    let begin = |disk: &mut Disk, id, start| {
        let op = Op::Write(range(start, 64));
        let request = Request { id: RequestId(id), volume: V, op, flags: Flags::NONE };
        disk.pool.begin(Instant::ORIGIN, request).remove(0)
    };
    let (_, Next::Run(first)) = begin(&mut disk, 1, 0) else { panic!("there is room for one") };
    assert!(matches!(begin(&mut disk, 2, 0), (RequestId(2), Next::Wait)));
    assert!(matches!(begin(&mut disk, 3, 64), (RequestId(3), Next::Wait)));
    let io = disk.execute(&first, &mut [1; 64]);
    let mut answers = disk.pool.finish(Instant::ORIGIN, first, io);
    answers.sort_by_key(|(id, _)| *id);
    let [
        (RequestId(1), Next::Done(one)),
        (RequestId(2), Next::Run(second)),
        (RequestId(3), Next::Done(three)),
    ] = &mut answers[..]
    else {
        panic!("{answers:?}")
    };
    assert_eq!((one.status, three.status), (BlkStatus::Ok, BlkStatus::NoSpc));
    let io = disk.execute(second, &mut [2; 64]);
    let (_, Next::Run(second)) = answers.swap_remove(1) else { unreachable!() };
    disk.pool.finish(Instant::ORIGIN, second, io);
    assert_eq!(disk.read(0, 64), [2; 64]);
    disk.pool.check().unwrap();
}

#[test]
fn the_cap_refuses_growth_and_never_an_overwrite() {
    let mut disk = Disk::new(4 * MIB, 64, Cache::None);
    assert!(disk.write(0, 64, 1).status.is_ok());
    assert_eq!(disk.write(64, 8, 1).status, BlkStatus::NoSpc);
    assert!(disk.write(8, 8, 7).status.is_ok());
    assert!(disk.copy(&[(0, 32, 1024)], Flags::NONE).status.is_ok());
    assert_eq!(disk.write(0, 8, 9).status, BlkStatus::NoSpc);
    assert!(disk.run(Op::Discard(range(32, 32)), Flags::NONE, &mut []).status.is_ok());
    assert!(disk.write(0, 8, 9).status.is_ok());
    assert_eq!(disk.pool.ledger(VolumeId::POOL).trimmed, Bytes(32 * 512));
}

#[test]
fn an_overwrite_at_the_cap_writes_the_cache_back_and_never_fails() {
    let mut disk = Disk::new(4 * MIB, 64, Cache::Volatile { held_max: Sectors(MIB) });
    disk.write(0, 64, 1);
    disk.run(Op::Flush, Flags::NONE, &mut []);
    for round in 0..20 {
        assert!(disk.write(0, 64, round).status.is_ok());
        assert_eq!(disk.read(0, 64), stamps(round, 64));
    }
    assert_eq!(disk.commits.len(), 1, "no growth, no commit");
    assert!(disk.run(Op::Discard(range(0, 64)), Flags::NONE, &mut []).status.is_ok());
    assert!(disk.write(64, 64, 1).status.is_ok(), "the held blocks come free by a commit");
    assert_eq!(disk.commits.len(), 2);
}

#[test]
fn a_flush_commits_what_changed_and_nothing_else() {
    let mut disk = Disk::new(4 * MIB, MIB, Cache::Volatile { held_max: Sectors(MIB) });
    disk.write(0, 64, 1);
    disk.run(Op::Flush, Flags::NONE, &mut []);
    disk.write(16, 8, 2);
    disk.run(Op::Discard(range(32, 8)), Flags::NONE, &mut []);
    disk.run(Op::Flush, Flags::NONE, &mut []);
    disk.run(Op::Flush, Flags::NONE, &mut []);
    assert_eq!(disk.commits.len(), 2, "a flush of nothing commits nothing");
    let changes: Vec<_> =
        disk.commits[1].changes.iter().map(|c| (c.logical.clone(), c.physical.is_some())).collect();
    assert_eq!(changes, [(2..3, true), (4..5, false)]);
    assert!(disk.pool.usage().held.is_zero());
}

#[test]
fn a_cache_that_writes_through_commits_before_it_answers() {
    let mut disk = Disk::new(4 * MIB, MIB, Cache::WriteThrough { held_max: Sectors(MIB) });
    assert!(disk.write(0, 64, 1).status.is_ok());
    assert_eq!(disk.commits.len(), 1);
    assert!(disk.copy(&[(0, 64, 1024)], Flags::NONE).status.is_ok());
    assert!(disk.run(Op::Discard(range(0, 8)), Flags::NONE, &mut []).status.is_ok());
    assert!(disk.run(Op::Flush, Flags::NONE, &mut []).status.is_ok());
    assert_eq!(disk.commits.len(), 3, "a flush finds nothing to do");
    disk.fail = Some(BlkStatus::Medium);
    assert_eq!(disk.write(0, 8, 1).status, BlkStatus::Medium);
}

/// A log with room for so many records; a commit makes room.
#[derive(Debug)]
struct ShortLog {
    room: u64,
    last: u64,
    dropped: u64,
}

impl crate::redo::RedoLog for ShortLog {
    fn append(&mut self, _change: &MapChange) -> u64 {
        assert!(self.room() > 0, "no room for a record");
        self.last += 1;
        self.last
    }

    fn append_zone(&mut self, change: &crate::redo::ZoneChange) -> u64 {
        panic!("no volume here has zones: {change:?}")
    }

    fn fill(&self) -> Fill {
        Fill::Low
    }

    fn room(&self) -> u64 {
        self.room - (self.last - self.dropped)
    }

    fn last(&self) -> u64 {
        self.last
    }

    fn committed(&mut self, sequence: u64) {
        self.dropped = sequence;
    }
}

#[test]
fn live_plans_never_append_more_records_than_there_is_room_for() {
    let mut device = Mapped::new(config(MIB, Cache::Volatile { held_max: Sectors(MIB) }));
    let (mut log, mut ledgers) =
        (ShortLog { room: 10, last: 0, dropped: 0 }, crate::ledger::Ledgers::default());
    let mut cx = Cx { now: Instant::ORIGIN, log: &mut log, ledgers: &mut ledgers };
    device.control(&mut cx, Control::AddVolume(V, Limits::new(Sectors(MIB), Sectors(1), Sectors(8))));
    let (mut plans, mut done) = (Vec::new(), 0);
    for id in 0..40 {
        let op = Op::Write(range(id * 32, 32));
        let request = Request { id: RequestId(id), volume: V, op, flags: Flags::NONE };
        plans.extend(device.begin(&mut cx, request));
    }
    let running = plans.iter().filter(|(id, next)| !id.is_internal() && matches!(next, Next::Run(_))).count();
    assert!((1..=7).contains(&running), "{running} writes of up to 4 records run at once");
    while let Some((id, next)) = plans.pop() {
        match next {
            Next::Run(plan) => {
                let io = IoResult::done(&plan);
                plans.extend(device.finish(&mut cx, plan, io));
            }
            Next::Done(completion) => {
                assert!(completion.status.is_ok());
                done += u64::from(!id.is_internal());
            }
            Next::Wait => {}
        }
    }
    assert_eq!(done, 40);
}

#[test]
fn a_failed_plan_changes_nothing_and_names_the_segment() {
    let mut disk = Disk::new(4 * MIB, MIB, Cache::None);
    disk.write(0, 64, 100);
    disk.fail = Some(BlkStatus::Medium);
    assert_eq!(disk.write(0, 9, 500).status, BlkStatus::Medium);
    let completion = disk.copy(&[(0, 3, 1024)], Flags::NONE);
    assert_eq!((completion.status, completion.first_failed_segment), (BlkStatus::Medium, Some(0)));
    disk.fail = None;
    assert_eq!(disk.read(0, 64), stamps(100, 64));
    assert_eq!(disk.read(1024, 8), vec![0; 8]);
    assert_eq!(disk.pool.usage().mapped, Sectors(64));
}

#[test]
fn a_long_remap_of_one_extent_is_one_link_and_few_steps() {
    let mut disk = Disk::new(1 << 24, 1 << 23, Cache::None);
    disk.set(|limits| {
        limits.copy_max_bytes = Bytes::gib(2);
        limits.copy_max_segment_bytes = Bytes::mib(16);
    });
    for mib in 0..16 {
        disk.write(mib * MIB, MIB, mib);
    }
    assert_eq!(disk.pool.usage().extents, 1);
    assert!(disk.copy(&[(0, 16 * MIB, 1 << 23)], Flags::NONE).status.is_ok());
    assert_eq!(disk.pool.usage().extents, 2);
}

#[test]
fn a_sequential_fill_stays_a_handful_of_extents() {
    let tib = 1u64 << 31;
    let mut device = Mapped::new(MappedConfig { physical: Sectors(tib), ..config(tib, Cache::None) });
    let (mut log, mut ledgers) = (NoLog::default(), crate::ledger::Ledgers::default());
    let mut cx = Cx { now: Instant::ORIGIN, log: &mut log, ledgers: &mut ledgers };
    let limits = Limits::new(Sectors(tib), Sectors(1), Sectors(8));
    device.control(&mut cx, Control::AddVolume(V, limits));
    for mib in 0..tib / MIB {
        let request =
            Request { id: RequestId(1), volume: V, op: Op::Write(range(mib * MIB, MIB)), flags: Flags::NONE };
        let mut out = device.begin(&mut cx, request);
        let Some((_, Next::Run(plan))) = out.pop() else { panic!("a write runs") };
        let io = IoResult::done(&plan);
        device.finish(&mut cx, plan, io);
    }
    assert!(device.usage().extents <= 4, "{} extents", device.usage().extents);
}

#[test]
fn a_removed_volume_gives_its_blocks_back_and_late_plans_commit_nothing() {
    let mut disk = Disk::new(4 * MIB, MIB, Cache::None);
    disk.write(0, 64, 100);
    let request = Request { id: RequestId(900), volume: V, op: Op::Write(range(0, 8)), flags: Flags::NONE };
    let mut out = disk.pool.begin(Instant::ORIGIN, request);
    let Some((_, Next::Run(plan))) = out.pop() else { panic!("a write runs") };
    disk.pool.control(Instant::ORIGIN, Control::RemoveVolume(V));
    disk.pool.check().unwrap();
    let limits = Limits::new(Sectors(MIB), Sectors(1), Sectors(8));
    disk.pool.control(Instant::ORIGIN, Control::AddVolume(V, limits));
    let io = IoResult::done(&plan);
    let out = disk.pool.finish(Instant::ORIGIN, plan, io);
    assert!(matches!(&out[0].1, Next::Done(completion) if completion.status == BlkStatus::IoErr));
    assert_eq!(disk.pool.usage().mapped, Sectors(0));
    disk.pool.check().unwrap();
}
