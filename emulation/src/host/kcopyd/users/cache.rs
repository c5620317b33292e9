//! The migrations of a cache: promotions, demotions and write-backs of whole blocks, as many at a time as the threshold
//! has room for. A clean demotion copies nothing. Source: `drivers/md/dm-cache-target.c` (`copy`, `mg_start`,
//! `spare_migration_bandwidth`, `accounted` with `migration_threshold`, 2048 sectors unless set).

use super::{Act, Outcome, User, blocks};
use crate::host::kcopyd::Job;
use crate::request::{Flags, Op, VolumeId};
use crate::units::Sectors;
use std::collections::{BTreeMap, VecDeque};

/// A migration between a block of the origin and one of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// Origin block to cache block. Nothing is copied where the origin's was discarded.
    Promote {
        /// Of the origin.
        origin: u64,
        /// Of the cache.
        cache: u64,
        /// The origin's contents are not needed.
        discarded: bool,
    },
    /// Cache block to origin block, if it is dirty; then the metadata are committed.
    Demote {
        /// Of the cache.
        cache: u64,
        /// Of the origin.
        origin: u64,
        /// It differs from the origin.
        dirty: bool,
    },
    /// Cache block to origin block; it stays in the cache.
    Writeback {
        /// Of the cache.
        cache: u64,
        /// Of the origin.
        origin: u64,
    },
}

/// A cache with migrations to do.
#[derive(Debug)]
pub struct Cache {
    origin: VolumeId,
    fast: VolumeId,
    block: Sectors,
    /// `migration_threshold`: the most sectors of copies under way.
    pub threshold: Sectors,
    queue: VecDeque<Migration>,
    /// Copies under way, and the commits that follow demotions.
    copies: BTreeMap<u64, Migration>,
    commits: VecDeque<u64>,
    committing: BTreeMap<u64, ()>,
    next_act: u64,
    failed: u64,
}

impl Cache {
    /// A cache with blocks of `block` sectors: a multiple of 64.
    pub fn new(origin: VolumeId, fast: VolumeId, block: Sectors, migrations: Vec<Migration>) -> Self {
        Self {
            origin,
            fast,
            block,
            threshold: Sectors(2048),
            queue: migrations.into(),
            copies: BTreeMap::new(),
            commits: VecDeque::new(),
            committing: BTreeMap::new(),
            next_act: 0,
            failed: 0,
        }
    }

    /// Migrations that failed; their blocks stay where they were.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    fn job(&self, migration: Migration) -> Option<Job> {
        let of = |volume, number| blocks(volume, number, 1, self.block);
        match migration {
            Migration::Promote { origin, cache, discarded: false } => {
                Some(Job::copy(of(self.origin, origin), of(self.fast, cache)))
            }
            Migration::Demote { cache, origin, dirty: true } | Migration::Writeback { cache, origin } => {
                Some(Job::copy(of(self.fast, cache), of(self.origin, origin)))
            }
            Migration::Promote { discarded: true, .. } | Migration::Demote { dirty: false, .. } => None,
        }
    }

    fn settled(&mut self, migration: Migration) {
        if matches!(migration, Migration::Demote { .. }) {
            self.next_act += 1;
            self.commits.push_back(self.next_act);
        }
    }
}

impl User for Cache {
    fn next(&mut self) -> Vec<(u64, Act)> {
        let mut acts = Vec::new();
        while let Some(migration) = self.queue.front().copied() {
            let Some(job) = self.job(migration) else {
                self.queue.pop_front();
                self.settled(migration);
                continue;
            };
            let sectors = (self.copies.len() as u64 + 1) * self.block.0;
            if sectors > self.threshold.0 {
                break;
            }
            self.queue.pop_front();
            self.next_act += 1;
            self.copies.insert(self.next_act, migration);
            acts.push((self.next_act, Act::Copy(job)));
        }
        for act in std::mem::take(&mut self.commits) {
            self.committing.insert(act, ());
            acts.push((act, Act::Io(self.fast, Op::Flush, Flags::NONE)));
        }
        acts
    }

    fn done(&mut self, act: u64, outcome: Outcome) {
        self.failed += u64::from(!outcome.is_ok());
        match self.copies.remove(&act) {
            Some(migration) if outcome.is_ok() => self.settled(migration),
            Some(_) => {}
            None => {
                self.committing.remove(&act).expect("it is under way");
            }
        }
    }

    fn is_over(&self) -> bool {
        let idle = self.copies.is_empty() && self.commits.is_empty() && self.committing.is_empty();
        // A block that the threshold has no room for is never migrated.
        idle && (self.queue.is_empty() || self.block > self.threshold)
    }
}
