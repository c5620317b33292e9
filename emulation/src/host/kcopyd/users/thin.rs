//! The copies of a thin pool: a write to a shared block is answered with a block of its own, copied unless the write
//! covers it whole; a new block is zeroed, or copied from an external origin with its tail zeroed. Source:
//! `drivers/md/dm-thin.c` (`schedule_copy`, `schedule_zero`, `schedule_external_copy`; mapping mempool of 1024).

use super::{Act, Outcome, User, blocks, covers};
use crate::host::kcopyd::{Job, Region};
use crate::request::{Flags, Op, VolumeId};
use crate::units::{Sector, SectorRange, Sectors};
use std::collections::{BTreeMap, VecDeque};

/// `MAPPING_POOL_SIZE`: mappings under way.
const MAPPINGS: usize = 1024;

/// A write to a block of a thin volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinWrite {
    /// What it writes of the volume; within one block.
    pub range: SectorRange,
    /// The block of the pool that holds the old contents and is shared; `None`: the block is new.
    pub shared: Option<u64>,
}

/// What is left to do for a write.
#[derive(Debug)]
struct Mapping {
    write: SectorRange,
    /// The block of the pool that it was given.
    block: u64,
    /// Copies that have not ended.
    left: u64,
}

/// A thin volume with writes to come.
#[derive(Debug)]
pub struct Thin {
    pool: VolumeId,
    block: Sectors,
    /// A new block is not zeroed.
    pub skip_block_zeroing: bool,
    /// What a new block shows before it is written, and how long that is.
    pub external: Option<(VolumeId, Sectors)>,
    /// Writes under way at a time; as many as the kernel has mappings for unless set.
    pub depth: usize,
    next_block: u64,
    writes: VecDeque<ThinWrite>,
    mappings: BTreeMap<u64, Mapping>,
    /// Writes whose block is filled.
    writing: usize,
    /// Acts under way, by the mapping that they are for; writes have none.
    acts: BTreeMap<u64, Option<u64>>,
    ready: Vec<(u64, Act)>,
    next_act: u64,
    failed: u64,
}

impl Thin {
    /// A volume in blocks of `block` sectors whose new blocks are `first_free` and those that follow.
    pub fn new(pool: VolumeId, block: Sectors, first_free: u64, writes: Vec<ThinWrite>) -> Self {
        Self {
            pool,
            block,
            skip_block_zeroing: false,
            external: None,
            depth: usize::MAX,
            next_block: first_free,
            writes: writes.into(),
            mappings: BTreeMap::new(),
            writing: 0,
            acts: BTreeMap::new(),
            ready: Vec::new(),
            next_act: 0,
            failed: 0,
        }
    }

    /// Mappings whose copy failed.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// The jobs that fill a block before it is written.
    fn jobs(&self, write: ThinWrite, block: u64) -> Vec<Job> {
        let number = write.range.start.0 / self.block.0;
        let to = blocks(self.pool, block, 1, self.block);
        if covers(write.range, number, self.block) {
            return Vec::new();
        }
        if let Some(shared) = write.shared {
            return vec![Job::copy(blocks(self.pool, shared, 1, self.block), to)];
        }
        let begin = number * self.block.0;
        let shown = self.external.map_or(0, |(_, len)| len.0.saturating_sub(begin)).min(self.block.0);
        let (head, tail) = to.range.split_at(Sectors(shown));
        let mut jobs = Vec::new();
        if let Some((volume, _)) = self.external.filter(|_| shown > 0) {
            let source = SectorRange { start: Sector(begin), len: head.len };
            jobs.push(Job::copy(Region { volume, range: source }, Region { range: head, ..to }));
        }
        let zeroed = shown > 0 || !self.skip_block_zeroing;
        if zeroed && !tail.is_empty() {
            jobs.push(Job::zero(Region { range: tail, ..to }));
        }
        jobs
    }

    fn act(&mut self, mapping: Option<u64>, act: Act) {
        self.next_act += 1;
        self.acts.insert(self.next_act, mapping);
        self.ready.push((self.next_act, act));
    }

    /// The block is filled: its write goes.
    fn write(&mut self, mapping: &Mapping) {
        let offset = Sectors(mapping.write.start.0 % self.block.0);
        let start = Sector(mapping.block * self.block.0) + offset;
        let range = SectorRange { start, len: mapping.write.len };
        self.writing += 1;
        self.act(None, Act::Io(self.pool, Op::Write(range), Flags::NONE));
    }
}

impl User for Thin {
    fn next(&mut self) -> Vec<(u64, Act)> {
        while self.mappings.len() < MAPPINGS
            && self.mappings.len() + self.writing < self.depth
            && let Some(write) = self.writes.pop_front()
        {
            let block = self.next_block;
            self.next_block += 1;
            let jobs = self.jobs(write, block);
            let mapping = Mapping { write: write.range, block, left: jobs.len() as u64 };
            if jobs.is_empty() {
                self.write(&mapping);
                continue;
            }
            self.mappings.insert(block, mapping);
            jobs.into_iter().for_each(|job| self.act(Some(block), Act::Copy(job)));
        }
        std::mem::take(&mut self.ready)
    }

    fn done(&mut self, act: u64, outcome: Outcome) {
        let Some(block) = self.acts.remove(&act).expect("it is under way") else {
            self.writing -= 1;
            return;
        };
        let Some(mapping) = self.mappings.get_mut(&block) else { return };
        mapping.left -= 1;
        if !outcome.is_ok() {
            // The mapping is given up and its write fails.
            self.failed += 1;
            self.mappings.remove(&block);
        } else if mapping.left == 0 {
            let mapping = self.mappings.remove(&block).expect("just found");
            self.write(&mapping);
        }
    }

    fn is_over(&self) -> bool {
        self.writes.is_empty() && self.mappings.is_empty() && self.acts.is_empty() && self.ready.is_empty()
    }
}
