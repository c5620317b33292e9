//! Who names a physical block. It is free when no map entry, no live plan and no durable image names it.

use super::pins::PinCounts;
use crate::alloc::Allocator;
use crate::range_map::{Piece, RangeMap};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;

/// Physical blocks, in map blocks.
pub(super) type Blocks = Range<u64>;
/// Runs of physical blocks.
pub(super) type Runs = SmallVec<[Blocks; 1]>;

pub(super) fn count(range: &Blocks) -> u64 {
    range.end - range.start
}

/// How the store's space is used.
#[derive(Debug)]
pub(super) struct Space {
    alloc: Allocator,
    cap: u64,
    /// References by map entries and by remaps under way, where there is not exactly one. A block with none is
    /// here only while a live plan still reads it.
    shares: RangeMap<u32>,
    /// Live plans that read a block.
    pins: PinCounts,
    /// Blocks with a reference.
    mapped: u64,
    /// Blocks allocated for live plans, named by no map yet.
    unpublished: u64,
    /// Blocks without a reference that a live plan reads.
    lingering: u64,
    /// Published since the last snapshot: no durable image names them. Kept for a volatile cache.
    young: RangeMap<()>,
    /// Without a reference, perhaps named by a durable image: free after the next commit.
    held: RangeMap<()>,
    /// Held back when the running commit began: free when it is done.
    held_committing: RangeMap<()>,
    volatile: bool,
    /// Blocks whose contents are to be given back to the store when they become free.
    to_trim: RangeMap<()>,
    trim_queue: VecDeque<Blocks>,
    trimming: u64,
    trim: bool,
    #[cfg(feature = "canary")]
    pub(super) canary: Option<super::Canary>,
}

impl Space {
    pub(super) fn new(blocks: u64, group: u64, cap: u64, volatile: bool, trim: bool) -> Self {
        Self {
            alloc: Allocator::new(blocks, group),
            cap,
            shares: RangeMap::new(),
            pins: PinCounts::default(),
            mapped: 0,
            unpublished: 0,
            lingering: 0,
            young: RangeMap::new(),
            held: RangeMap::new(),
            held_committing: RangeMap::new(),
            volatile,
            to_trim: RangeMap::new(),
            trim_queue: VecDeque::new(),
            trimming: 0,
            trim,
            #[cfg(feature = "canary")]
            canary: None,
        }
    }

    /// The maps name these blocks, so often; blocks with 0 names are those of the durable image alone.
    pub(super) fn adopt(&mut self, names: &RangeMap<u32>) {
        for piece in names.iter() {
            self.alloc.take(piece.range.clone());
            if piece.value == 0 {
                self.held.insert(piece.range, (), &mut |_| {});
                continue;
            }
            self.mapped += count(&piece.range);
            if piece.value > 1 {
                self.shares.insert(piece.range, piece.value, &mut |_| {});
            }
        }
    }

    /// Takes `want` blocks, in as few runs as there are, the first at `near` when that is free; `None`, and
    /// nothing taken, when there are not so many.
    pub(super) fn allocate(&mut self, want: u64, mut near: Option<u64>) -> Option<Runs> {
        if self.alloc.free_blocks() < want {
            return None;
        }
        let mut runs = Runs::new();
        let mut left = want;
        while left > 0 {
            let run = self.alloc.allocate(left, near).expect("there are free blocks");
            left -= count(&run);
            near = Some(run.end);
            runs.push(run);
        }
        self.unpublished += want;
        Some(runs)
    }

    /// The plan that allocated these blocks commits nothing.
    pub(super) fn abandon(&mut self, range: Blocks) {
        self.unpublished -= count(&range);
        self.alloc.free(range);
    }

    /// A map entry names these new blocks.
    pub(super) fn publish(&mut self, range: Blocks) {
        self.unpublished -= count(&range);
        self.mapped += count(&range);
        if self.volatile {
            self.young.insert(range, (), &mut |_| {});
        }
    }

    /// One more reference to blocks that have one.
    pub(super) fn reference(&mut self, range: Blocks) {
        self.shares.update(range, &mut |_, references| match references {
            None => Some(2),
            Some(0) => panic!("a block that no map names is named by a remap"),
            Some(n) => Some(n + 1),
        });
    }

    /// A map names these blocks again, which the last snapshot names: they have other references, are read by a plan, or
    /// are held back.
    pub(super) fn revive(&mut self, range: Blocks) {
        let held: Runs = self.held.overlapping(range.clone()).map(|piece| piece.range).collect();
        for run in &held {
            self.held.remove(run.clone(), &mut |_| {});
            self.to_trim.remove(run.clone(), &mut |_| {});
            self.mapped += count(run);
        }
        let mut at = range.start;
        for run in held.into_iter().chain(std::iter::once(range.end..range.end)) {
            if at < run.start {
                let (mapped, lingering) = (&mut self.mapped, &mut self.lingering);
                self.shares.update(at..run.start, &mut |part, references| match references {
                    None => Some(2),
                    Some(0) => {
                        *mapped += count(&part);
                        *lingering -= count(&part);
                        None
                    }
                    Some(n) => Some(n + 1),
                });
            }
            at = run.end;
        }
    }

    /// One reference less. Blocks that have none left become free as soon as nothing else names them; `give_back`:
    /// their contents then go back to the store.
    pub(super) fn release(&mut self, range: Blocks, give_back: bool) {
        let mut gone = Runs::new();
        if self.shares.is_empty() {
            gone.push(range);
        } else {
            self.shares.update(range, &mut |run, references| match references {
                None => {
                    gone.push(run);
                    None
                }
                Some(0) => panic!("a block is released that has no reference"),
                Some(1 | 2) => None,
                Some(n) => Some(n - 1),
            });
        }
        for run in gone {
            self.mapped -= count(&run);
            self.unnamed(run, give_back);
        }
    }

    /// A live plan reads these blocks.
    pub(super) fn pin(&mut self, range: Blocks) {
        self.pins.add(range);
    }

    /// A plan that read these blocks is finished.
    pub(super) fn unpin(&mut self, range: Blocks) {
        self.pins.remove(range.clone());
        if self.lingering == 0 {
            return;
        }
        for (run, _) in self.pins.parts(range).into_iter().filter(|(_, pinned)| !pinned) {
            let unnamed: Runs = self
                .shares
                .overlapping(run)
                .filter(|piece| piece.value == 0)
                .map(|piece| piece.range)
                .collect();
            for run in unnamed {
                self.shares.remove(run.clone(), &mut |_| {});
                self.lingering -= count(&run);
                self.retire(run, false);
            }
        }
    }

    /// The map as it stands now is about to be made durable.
    pub(super) fn snapshot(&mut self) {
        assert!(self.held_committing.is_empty(), "one commit runs at a time");
        self.held_committing = std::mem::take(&mut self.held);
        self.young = RangeMap::new();
    }

    /// The commit of the last snapshot is over. One that failed may have become durable all the same: what the
    /// old image names and what the new one names both stay held back.
    pub(super) fn committed(&mut self, durable: bool) {
        let held = std::mem::take(&mut self.held_committing);
        for piece in held.iter() {
            if durable {
                self.give_back(piece.range);
            } else {
                self.held.insert(piece.range, (), &mut |_| {});
            }
        }
    }

    /// The next blocks to give back to the store, at most `runs` runs and about `most` blocks.
    pub(super) fn next_trim(&mut self, runs: usize, most: u64) -> Vec<Blocks> {
        let mut batch = Vec::new();
        let mut total = 0;
        while batch.len() < runs && total < most {
            let Some(mut run) = self.trim_queue.pop_front() else {
                break;
            };
            if count(&run) > most - total {
                let rest = run.start + (most - total)..run.end;
                run.end = rest.start;
                self.trim_queue.push_front(rest);
            }
            total += count(&run);
            batch.push(run);
        }
        batch
    }

    /// The store has taken these blocks back.
    pub(super) fn trimmed(&mut self, range: Blocks) {
        self.trimming -= count(&range);
        self.alloc.free(range);
    }

    /// Blocks of `range` that are named more than once.
    pub(super) fn shared_in(&self, range: Blocks) -> u64 {
        if self.shares.is_empty() {
            return 0;
        }
        self.shares.overlapping(range).map(|piece| count(&piece.range)).sum()
    }

    /// True when `more` blocks can be mapped beside those in use and `reserved` others.
    pub(super) fn has_room(&self, reserved: u64, more: u64) -> bool {
        more == 0 || self.mapped + self.held_blocks() + self.trimming + reserved + more <= self.cap
    }

    /// Blocks that only a durable image names.
    pub(super) fn held_blocks(&self) -> u64 {
        self.held.keys() + self.held_committing.keys()
    }

    /// Blocks with a reference.
    pub(super) fn mapped_blocks(&self) -> u64 {
        self.mapped
    }

    /// Blocks that are being given back to the store.
    pub(super) fn trimming_blocks(&self) -> u64 {
        self.trimming
    }

    /// Physical ranges with more than one reference, and the memory that all this takes.
    pub(super) fn shared_ranges(&self) -> u64 {
        self.shares.len() as u64
    }

    /// Bytes of memory of the counts.
    pub(super) fn memory(&self) -> u64 {
        self.shares.memory() + self.pins.memory() + self.young.memory() + self.held.memory()
    }

    /// Nothing references these blocks any more.
    fn unnamed(&mut self, run: Blocks, give_back: bool) {
        if give_back && self.trim {
            self.to_trim.insert(run.clone(), (), &mut |_| {});
        }
        for (part, pinned) in self.pins.parts(run) {
            if pinned {
                self.lingering += count(&part);
                self.shares.insert(part, 0, &mut |_| {});
            } else {
                self.retire(part, true);
            }
        }
    }

    /// No reference, no live plan: the durable image decides. `fresh`: the last reference went just now, so that
    /// a young block is surely in no image; a block that lingered may have been in a snapshot meanwhile.
    fn retire(&mut self, run: Blocks, fresh: bool) {
        if !self.volatile {
            self.give_back(run);
            return;
        }
        let parts: Vec<_> = self.young.pieces_and_holes(run).collect();
        for (part, young) in parts {
            if young.is_some() {
                self.young.remove(part.clone(), &mut |_| {});
            }
            let free = young.is_some() && fresh;
            #[cfg(feature = "canary")]
            let free = free || self.canary == Some(super::Canary::FreedBeforeDurable);
            if free {
                self.give_back(part);
            } else {
                self.held.insert(part, (), &mut |_| {});
            }
        }
    }

    fn give_back(&mut self, run: Blocks) {
        let mut wanted = Vec::new();
        if !self.to_trim.is_empty() {
            self.to_trim.remove(run.clone(), &mut |piece: Piece<()>| wanted.push(piece.range));
        }
        let mut at = run.start;
        for part in wanted {
            if at < part.start {
                self.alloc.free(at..part.start);
            }
            at = part.end;
            self.trimming += count(&part);
            self.trim_queue.push_back(part);
        }
        if at < run.end {
            self.alloc.free(at..run.end);
        }
    }

    /// Checks the counts against the references and the pins as the caller counts them.
    pub(super) fn check(&self, references: &RangeMap<u32>, pins: &RangeMap<u32>) -> Result<(), String> {
        self.alloc.check()?;
        let mut mapped = 0;
        for piece in references.iter() {
            mapped += count(&piece.range);
            for (run, stored) in self.shares.pieces_and_holes(piece.range.clone()) {
                if stored.unwrap_or(1) != piece.value {
                    return Err(format!(
                        "blocks {run:?} have {} references, counted {stored:?}",
                        piece.value
                    ));
                }
            }
        }
        for piece in self.shares.iter() {
            if piece.value == 0 && references.overlapping(piece.range.clone()).next().is_some() {
                return Err(format!("blocks {:?} are named, counted as not", piece.range));
            }
            if piece.value != 0 && references.pieces_and_holes(piece.range.clone()).any(|(_, r)| r.is_none())
            {
                return Err(format!(
                    "blocks {:?} are counted {} times and named less",
                    piece.range, piece.value
                ));
            }
        }
        if !pins.iter().eq(self.pins.counts().iter()) {
            return Err("the pins are not those of the live plans".into());
        }
        let used = mapped + self.unpublished + self.lingering + self.held_blocks() + self.trimming;
        if mapped != self.mapped || used != self.alloc.used_blocks() {
            return Err(format!(
                "{mapped} blocks mapped (counted {}), {} unpublished, {} lingering, {} held, {} trimming: {} in use",
                self.mapped,
                self.unpublished,
                self.lingering,
                self.held_blocks(),
                self.trimming,
                self.alloc.used_blocks()
            ));
        }
        Ok(())
    }
}
