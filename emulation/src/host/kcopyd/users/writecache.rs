//! The write-back of a write cache on an SSD: runs of blocks that are neighbours in the cache and on the origin, up to
//! 256 blocks a job, no more jobs than `writeback_jobs`. Then the origin is flushed, before the entries are freed.
//! Source: `drivers/md/dm-writecache.c` (`writecache_writeback`, `__writecache_writeback_ssd`,
//! `__writecache_endio_ssd`).

use super::{Act, Outcome, User, blocks};
use crate::host::kcopyd::Job;
use crate::request::{Flags, Op, VolumeId};
use crate::units::Sectors;
use std::collections::{BTreeSet, VecDeque};

/// `BIO_MAX_VECS`: the blocks of a job.
const BLOCKS_MAX: u64 = 256;

/// A dirty block of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirtyBlock {
    /// Of the origin.
    pub origin: u64,
    /// Of the cache.
    pub cache: u64,
}

/// A cache to be written back.
#[derive(Debug)]
pub struct Writecache {
    cache: VolumeId,
    origin: VolumeId,
    block: Sectors,
    /// `max_writeback_jobs`; `None`: as many as there are.
    pub writeback_jobs: Option<usize>,
    /// Runs to write: first blocks and length.
    runs: VecDeque<(DirtyBlock, u64)>,
    under_way: BTreeSet<u64>,
    next_act: u64,
    /// The act of the flush, once everything is written.
    flush: Option<u64>,
    flushed: bool,
    failed: bool,
}

impl Writecache {
    /// The write-back of these blocks.
    pub fn new(cache: VolumeId, origin: VolumeId, block: Sectors, dirty: Vec<DirtyBlock>) -> Self {
        let mut dirty = dirty;
        dirty.sort_unstable();
        let mut runs: VecDeque<(DirtyBlock, u64)> = VecDeque::new();
        for next in dirty {
            match runs.back_mut() {
                Some((first, count))
                    if *count < BLOCKS_MAX
                        && first.origin + *count == next.origin
                        && first.cache + *count == next.cache =>
                {
                    *count += 1;
                }
                Some(_) | None => runs.push_back((next, 1)),
            }
        }
        Self {
            cache,
            origin,
            block,
            writeback_jobs: None,
            runs,
            under_way: BTreeSet::new(),
            next_act: 0,
            flush: None,
            flushed: false,
            failed: false,
        }
    }

    /// True when a block could not be written: the cache stops.
    pub fn has_error(&self) -> bool {
        self.failed
    }
}

impl User for Writecache {
    fn next(&mut self) -> Vec<(u64, Act)> {
        let mut acts = Vec::new();
        let most = self.writeback_jobs.unwrap_or(usize::MAX);
        while self.under_way.len() < most
            && !self.failed
            && let Some((first, count)) = self.runs.pop_front()
        {
            self.next_act += 1;
            self.under_way.insert(self.next_act);
            let from = blocks(self.cache, first.cache, count, self.block);
            let to = blocks(self.origin, first.origin, count, self.block);
            acts.push((self.next_act, Act::Copy(Job::copy(from, to))));
        }
        if self.runs.is_empty() && self.under_way.is_empty() && self.flush.is_none() && !self.failed {
            self.next_act += 1;
            self.flush = Some(self.next_act);
            acts.push((self.next_act, Act::Io(self.origin, Op::Flush, Flags::NONE)));
        }
        acts
    }

    fn done(&mut self, act: u64, outcome: Outcome) {
        self.failed |= !outcome.is_ok();
        self.flushed |= self.flush == Some(act);
        self.under_way.remove(&act);
    }

    fn is_over(&self) -> bool {
        self.flushed || self.failed && self.under_way.is_empty()
    }
}
