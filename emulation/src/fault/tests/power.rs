//! Power cuts on demand, by the owner of the pool and by rules.

use super::*;
use crate::redo::{Fill, MapChange, RedoLog, ZoneChange};
use std::collections::BTreeSet;

const VOLATILE: Cache = Cache::Volatile { held_max: Sectors(1 << 14) };

impl Disk {
    fn volatile(mode: CopyMode) -> Self {
        Self::with_cache(mode, VOLATILE)
    }

    fn power_cut(&mut self, keep: Keep) -> Option<Completion> {
        let out = self.pool.control(NOW, Control::power_cut(V, keep));
        self.go_on(out)
    }

    fn flush(&mut self) {
        assert!(self.ask(Op::Flush).expect("it is answered").status.is_ok());
    }

    /// Begins a request and leaves its first plan as it is.
    fn begin(&mut self, op: Op) -> Out {
        self.last += 1;
        self.pool.begin(NOW, Request { id: RequestId(self.last), volume: V, op, flags: Flags::NONE })
    }
}

#[test]
fn what_was_flushed_stays_and_the_rest_is_kept_or_not() {
    for mode in MODES {
        let mut disk = Disk::volatile(mode);
        disk.write(0, 64, 100);
        disk.flush();
        disk.write(0, 16, 500);
        disk.copy(&[(0, 24, 1000)]);
        disk.ask(Op::Discard(range(32, 16)));
        disk.power_cut(Keep::All);
        let kept = [values(500, 16), values(116, 16), vec![0; 16], values(148, 16)].concat();
        assert_eq!(disk.read(0, 64), kept, "{mode:?}");
        disk.power_cut(Keep::None);
        assert_eq!(disk.read(0, 64), values(100, 64), "{mode:?}");
        assert_eq!(disk.read(1000, 24), vec![0; 24]);
        let undone = disk.pool.ledger(V).undone.0;
        assert_eq!(undone, (16 + 24 + 16) * 512, "{mode:?}: whole blocks");
        disk.power_cut(Keep::None);
        assert_eq!(disk.pool.ledger(V).undone.0, undone, "nothing is left to undo");
        assert_eq!(disk.read(0, 64), values(100, 64));
    }
}

#[test]
fn chance_keeps_whole_blocks_and_both_kinds_come_up() {
    let mut seen = BTreeSet::new();
    for seed in 0..20 {
        let mut disk = Disk::volatile(CopyMode::Remap);
        disk.write(0, 32, 100);
        disk.flush();
        disk.write(0, 32, 500);
        disk.power_cut(Keep::Some(seed));
        let now = disk.read(0, 32);
        let new: Vec<bool> = now.chunks(8).map(|block| block[0] >= 500).collect();
        for (block, found) in now.chunks(8).enumerate() {
            let base = if new[block] { 500 } else { 100 } + 8 * block as u64;
            assert_eq!(found, values(base, 8), "seed {seed}: a map block is of one kind");
        }
        seen.insert(new);
    }
    assert!(seen.len() > 8, "{seen:?}");
}

#[test]
fn a_remapped_link_is_there_as_a_whole_or_not_at_all() {
    let mut whole = BTreeSet::new();
    for seed in 0..20 {
        let mut disk = Disk::volatile(CopyMode::Remap);
        disk.write(0, 64, 100);
        disk.write(2000, 64, 500);
        disk.flush();
        disk.copy(&[(0, 64, 2000)]);
        // Over a part of it: the value in between is gone, so that the link and the write are one.
        disk.write(2016, 8, 900);
        disk.power_cut(Keep::Some(seed));
        let now = disk.read(2000, 64);
        let copied = [values(100, 16), values(900, 8), values(124, 40)].concat();
        assert!(now == copied || now == values(500, 64), "seed {seed}: {now:?}");
        whole.insert(now == copied);
    }
    assert_eq!(whole.len(), 2, "both come up");
}

#[test]
fn a_plan_of_an_older_epoch_commits_nothing() {
    for mode in MODES {
        let mut disk = Disk::volatile(mode);
        disk.write(0, 64, 100);
        disk.flush();
        let out = disk.begin(Op::Copy(copy(&[(0, 64, 2000)])));
        assert_eq!(disk.power_cut(Keep::All), None, "{mode:?}: its plan is out");
        let end = disk.go_on(out).expect("it ends");
        assert_eq!((end.status, end.bytes, end.first_failed_segment), (BlkStatus::IoErr, Bytes(0), Some(0)));
        assert_eq!(disk.read(2000, 64), vec![0; 64], "{mode:?}");
        assert!(disk.copy(&[(0, 64, 2000)]).status.is_ok(), "{mode:?}: the next one works");
    }
}

#[test]
fn a_flush_that_waits_for_the_next_commit_fails_and_one_under_way_holds() {
    let mut disk = Disk::volatile(CopyMode::Remap);
    disk.write(0, 8, 100);
    let first = disk.begin(Op::Flush);
    let commit = first.into_iter().find(|(id, _)| id.is_internal()).expect("the commit runs");
    disk.write(0, 8, 500);
    let waits = disk.begin(Op::Flush);
    assert!(matches!(waits[..], [(_, Next::Wait)]), "{waits:?}");
    let end = disk.power_cut(Keep::None).expect("it asks for what is gone");
    assert_eq!(end.status, BlkStatus::IoErr);
    disk.last -= 2;
    let end = disk.go_on(smallvec![commit]).expect("the first one is answered");
    assert!(end.status.is_ok());
    disk.last += 2;
    assert_eq!(disk.read(0, 8), values(100, 8));
}

/// A commit that failed may have become durable all the same, so that its blocks stay named until the next one says
/// otherwise.
#[test]
fn what_a_failed_commit_may_have_made_durable_is_not_used_again() {
    let mut disk = Disk::volatile(CopyMode::Remap);
    disk.write(0, 8, 100);
    disk.flush();
    disk.write(0, 8, 500);
    let mut out = disk.begin(Op::Flush);
    let at = out.iter().position(|(id, _)| id.is_internal()).expect("the commit runs");
    let (_, Next::Run(plan)) = out.remove(at) else { panic!("it is a plan") };
    let out = disk.pool.finish(NOW, plan, IoResult::failed(BlkStatus::IoErr, 1));
    assert_eq!(disk.go_on(out).expect("the flush fails").status, BlkStatus::IoErr);
    disk.power_cut(Keep::None);
    assert_eq!(disk.read(0, 8), values(100, 8));
    let held = disk.pool.usage().held;
    assert_eq!(held, Sectors(8), "the block that may be durable");
    let mut out = disk.begin(Op::Flush);
    let at = out.iter().position(|(id, _)| id.is_internal()).expect("the next commit runs");
    let (_, Next::Run(plan)) = out.remove(at) else { panic!("it is a plan") };
    let Some(Step::Commit(commit)) = plan.steps.last() else { panic!("no commit: {plan:?}") };
    let said: Vec<_> = commit.changes.iter().map(|change| change.logical.clone()).collect();
    assert_eq!(said, std::slice::from_ref(&(0..1)), "it says what the block is, though that did not change");
    let io = IoResult::done(&plan);
    let out = disk.pool.finish(NOW, plan, io);
    disk.go_on(out);
    assert_eq!(disk.pool.usage().held, Sectors::ZERO);
}

#[test]
fn what_waits_for_another_change_of_its_block_fails() {
    let mut disk = Disk::volatile(CopyMode::Remap);
    let first = disk.begin(Op::Write(range(0, 4)));
    let second = disk.begin(Op::Write(range(4, 4)));
    assert!(matches!(second[..], [(_, Next::Wait)]), "{second:?}");
    assert_eq!(disk.power_cut(Keep::All).expect("it ends").status, BlkStatus::IoErr);
    disk.last -= 1;
    assert_eq!(disk.go_on(first).expect("it ends").status, BlkStatus::IoErr);
}

#[test]
fn a_rule_cuts_the_power_while_the_middle_of_a_copy_is_under_way() {
    for mode in MODES {
        let mut disk = Disk::volatile(mode);
        for start in (0..6144).step_by(2048) {
            disk.write(start, 2048, 100 + start);
        }
        disk.flush();
        let action = FaultAction::PowerCut(Some(Keep::All));
        let cut = FaultRule { op: FaultOp::Copy, count: Some(1), ..FaultRule::new("cut", action) };
        disk.pool.add_fault(V, cut).unwrap();
        // Three segments, so that there are three links at least in every mode.
        let to = 16384;
        let end = disk.copy(&[(0, 2048, to), (2048, 2048, to + 2048), (4096, 2048, to + 4096)]);
        assert_eq!(end.status, BlkStatus::IoErr, "{mode:?}");
        assert!(end.bytes.0 > 0 && end.bytes.0 <= 3072 * 512, "{mode:?}: {end:?}");
        assert_eq!(disk.pool.take_power_cuts(), [V]);
        assert_eq!(disk.pool.take_power_cuts(), []);
        let done = end.bytes.whole_sectors().0;
        for start in (0..6144).step_by(2048) {
            for (i, value) in (start..).zip(disk.read(to + start, 2048)) {
                let copied = 100 + i;
                assert!(value == copied || value == 0, "{mode:?}: sector {i} is {value}");
                assert!(i >= done || value == copied, "{mode:?}: {i} is in the finished prefix");
            }
        }
    }
}

#[test]
fn where_the_log_has_no_room_the_rest_is_kept() {
    let mut disk = Disk::volatile(CopyMode::Remap);
    let device = Mapped::new(MappedConfig {
        map_block: Sectors(8),
        cap: Sectors(1 << 16),
        physical: Sectors(1 << 17),
        cache: VOLATILE,
        trim: false,
    });
    disk.pool = Pool::new(Box::new(device), Box::new(Short::default()));
    disk.pool.control(NOW, Control::AddVolume(V, Limits::new(Sectors(1 << 16), Sectors(1), Sectors(8))));
    for block in 0..5 {
        disk.write(block * 16, 8, 100);
    }
    disk.power_cut(Keep::None);
    let left = (0..5).filter(|block| disk.read(block * 16, 1) == [100]).count();
    assert_eq!(left, 2, "8 records: five writes, three of them undone");
}

/// A log of eight records.
#[derive(Debug, Default)]
struct Short {
    last: u64,
}

impl RedoLog for Short {
    fn append(&mut self, _change: &MapChange) -> u64 {
        assert!(self.last < 8, "there is no room");
        self.last += 1;
        self.last
    }

    fn append_zone(&mut self, _change: &ZoneChange) -> u64 {
        unreachable!("no zones")
    }

    fn fill(&self) -> Fill {
        Fill::Low
    }

    fn room(&self) -> u64 {
        8 - self.last
    }

    fn last(&self) -> u64 {
        self.last
    }

    fn committed(&mut self, _sequence: u64) {}
}
