//! A copy that is interrupted at any of its links, in any way, on any kind of volume, leaves of each sector of its
//! destination what was there or what was to be copied, and the finished prefix is copied.

use super::*;
use crate::identity::Identity;

const LEN: u64 = 4600;
const FROM: u64 = 8;
/// Congruent with the source.
const TO: u64 = 20_000;

#[derive(Clone, Copy, Debug)]
enum How {
    /// The store fails before it does anything of the link.
    Fails,
    /// It fails half-way through the first step.
    FailsHalfWay,
    Aborted,
    PowerCut(Keep),
}

impl Disk {
    /// A volume that is written in place.
    fn in_place(mode: CopyMode) -> Self {
        let mut disk = Self::new(mode);
        let device = Emulated::new(Box::new(Identity::new(true)));
        disk.pool = Pool::new(Box::new(device), Box::new(NoLog::default()));
        let mut limits = Limits::new(Sectors(1 << 16), Sectors(1), Sectors(8));
        limits.copy_mode = mode;
        disk.pool.control(NOW, Control::AddVolume(V, limits));
        disk
    }

    fn fill(&mut self) {
        for start in (0..LEN).step_by(2000) {
            let len = 2000.min(LEN - start);
            self.write(FROM + start, len, 10_000 + start);
            self.write(TO + start, len, 90_000 + start);
        }
        assert!(self.ask(Op::Flush).expect("it is answered").status.is_ok());
    }

    /// The first half of a step.
    fn half(&mut self, step: &Step) {
        let half = |range: &StoreRange| StoreRange { start: range.start, len: Sectors(range.len.0 / 2) };
        match step {
            Step::Write { port, to } => self.step(&Step::Write { port: *port, to: half(to) }),
            Step::Move { from, to, reason } => {
                self.step(&Step::Move { from: half(from), to: *to, reason: *reason });
            }
            Step::Zero { at, unmap } => self.step(&Step::Zero { at: half(at), unmap: *unmap }),
            Step::Read { .. }
            | Step::ReadFlipped { .. }
            | Step::ReadZeroes { .. }
            | Step::Trim { .. }
            | Step::Sync
            | Step::Commit(_) => {}
        }
    }

    /// Interrupts a copy at its link `at`, counted from 0. `None`: it has fewer links.
    fn interrupted(&mut self, at: usize, how: How) -> Option<Completion> {
        self.last += 1;
        let id = RequestId(self.last);
        // Two segments, the second of which ends within a map block.
        let op = Op::Copy(copy(&[(FROM, 2500, TO), (FROM + 2500, LEN - 2500, TO + 2500)]));
        let mut out = self.pool.begin(NOW, Request { id, volume: V, op, flags: Flags::NONE });
        let mut links = 0;
        let mut answer = None;
        while let Some((whose, next)) = out.pop() {
            match next {
                Next::Wait => {}
                Next::Done(completion) if whose == id => answer = Some(completion),
                Next::Done(_) => {}
                Next::Run(plan) => {
                    let mut io = IoResult::done(&plan);
                    if whose == id && links == at {
                        let answers = match how {
                            How::Fails => Out::new(),
                            How::FailsHalfWay => {
                                plan.steps.iter().take(1).for_each(|step| self.half(step));
                                Out::new()
                            }
                            How::Aborted => self.pool.abort(NOW, id),
                            How::PowerCut(keep) => self.pool.control(NOW, Control::power_cut(V, keep)),
                        };
                        out.extend(answers);
                        if matches!(how, How::Fails | How::FailsHalfWay) {
                            io = IoResult::failed(BlkStatus::Medium, 0);
                        }
                    }
                    links += usize::from(whose == id);
                    if io.status.is_ok() {
                        plan.steps.iter().for_each(|step| self.step(step));
                    }
                    out.extend(self.pool.finish(NOW, plan, io));
                }
            }
        }
        self.pool.check().unwrap();
        let answer = answer.expect("the copy is answered");
        (links > at).then_some(answer)
    }

    fn look(&mut self, start: u64) -> Vec<u64> {
        let pieces = (0..LEN).step_by(2000);
        pieces.flat_map(|at| self.read(start + at, 2000.min(LEN - at))).collect()
    }
}

/// Gives the links at which it was interrupted.
fn interrupt_everywhere(make: impl Fn() -> Disk, how: How, what: &str) -> usize {
    for at in 0.. {
        let mut disk = make();
        disk.fill();
        let Some(end) = disk.interrupted(at, how) else {
            assert!(end_is_whole(&mut disk), "{what}: without an interruption it is whole");
            return at;
        };
        let done = end.bytes.whole_sectors().0;
        // What a power cut undoes was done before.
        let undone = matches!(how, How::PowerCut(Keep::None | Keep::Some(_)));
        for (i, value) in (0..).zip(disk.look(TO)) {
            let (old, new) = (90_000 + i, 10_000 + i);
            assert!(value == old || value == new, "{what}, link {at}: sector {i} is {value}");
            assert!(
                undone || i >= done || value == new,
                "{what}, link {at}: sector {i} of {done} is not copied"
            );
        }
        assert_eq!(disk.look(FROM), values(10_000, LEN), "{what}, link {at}: the source");
        let ends_well = matches!(how, How::Aborted) && end.status.is_ok();
        assert!(!end.status.is_ok() || ends_well, "{what}, link {at}: {end:?}");
        assert!(disk.copy(&[(FROM, LEN, TO)]).status.is_ok(), "{what}, link {at}: the next one");
        assert!(end_is_whole(&mut disk), "{what}, link {at}: the next one is whole");
    }
    unreachable!("a copy ends")
}

fn end_is_whole(disk: &mut Disk) -> bool {
    disk.look(TO) == values(10_000, LEN)
}

#[test]
fn no_sector_of_an_interrupted_copy_is_neither_old_nor_new() {
    let store_fails = [How::Fails, How::FailsHalfWay, How::Aborted];
    let power = [Keep::None, Keep::All, Keep::Some(1), Keep::Some(2)].map(How::PowerCut);
    let through = Cache::WriteThrough { held_max: Sectors(1 << 14) };
    let volatile = Cache::Volatile { held_max: Sectors(1 << 14) };
    for mode in MODES {
        for cache in [Cache::None, volatile, through] {
            for how in store_fails.into_iter().chain(power) {
                let what = format!("{mode:?}, {cache:?}, {how:?}");
                let links = interrupt_everywhere(|| Disk::with_cache(mode, cache), how, &what);
                assert!(links >= 2, "{what}: {links} links");
            }
        }
    }
    for mode in [CopyMode::Memcpy, CopyMode::Emulate] {
        for how in store_fails {
            let what = format!("in place, {mode:?}, {how:?}");
            let links = interrupt_everywhere(|| Disk::in_place(mode), how, &what);
            assert!(links >= 4, "{what}: {links} links");
        }
    }
}
