//! The background hydration of a clone: regions in order, neighbours together up to the batch size, no more regions
//! in flight than the threshold. Source: `drivers/md/dm-clone-target.c` (`do_hydration`, `__batch_hydration`,
//! `hydration_copy`).

use super::{Act, Outcome, User};
use crate::host::kcopyd::{Job, Region};
use crate::request::VolumeId;
use crate::units::{Sector, SectorRange, Sectors};
use std::collections::{BTreeMap, BTreeSet};

/// A clone of which nothing else is asked.
#[derive(Debug)]
pub struct Hydration {
    source: VolumeId,
    destination: VolumeId,
    size: Sectors,
    region: Sectors,
    /// `hydration_threshold`, in regions; 1 unless set.
    pub threshold: u64,
    /// `hydration_batch_size`, in regions; 1 unless set.
    pub batch: u64,
    offset: u64,
    /// Regions that need no copy: hydrated, or written whole.
    hydrated: BTreeSet<u64>,
    /// Batches under way, by their first region: how many.
    in_flight: BTreeMap<u64, u64>,
}

impl Hydration {
    /// A clone of `size` sectors in regions of `region`, of which nothing is hydrated.
    pub fn new(source: VolumeId, destination: VolumeId, size: Sectors, region: Sectors) -> Self {
        let (hydrated, in_flight) = (BTreeSet::new(), BTreeMap::new());
        Self { source, destination, size, region, threshold: 1, batch: 1, offset: 0, hydrated, in_flight }
    }

    /// A write that covers a whole region makes its copy needless.
    pub fn written_whole(&mut self, region: u64) {
        self.hydrated.insert(region);
    }

    fn regions(&self) -> u64 {
        self.size.0.div_ceil(self.region.0)
    }

    fn copy(&mut self, first: u64, count: u64, acts: &mut Vec<(u64, Act)>) {
        let start = Sector(first * self.region.0);
        let end = (first + count) * self.region.0;
        // The last region may be short.
        let range = SectorRange::between(start, Sector(end.min(self.size.0)));
        let of = |volume| Region { volume, range };
        self.in_flight.insert(first, count);
        acts.push((first, Act::Copy(Job::copy(of(self.source), of(self.destination)))));
    }
}

impl User for Hydration {
    fn next(&mut self) -> Vec<(u64, Act)> {
        let mut acts = Vec::new();
        let mut batch: Option<(u64, u64)> = None;
        while self.offset < self.regions() {
            let volume = self.in_flight.values().sum::<u64>() + batch.map_or(0, |batch| batch.1);
            // The worker counts itself among those in flight.
            if volume + 1 > self.threshold {
                break;
            }
            let region = self.offset;
            self.offset += 1;
            let busy = self.in_flight.iter().any(|(first, count)| (*first..first + count).contains(&region));
            if busy || self.hydrated.contains(&region) {
                continue;
            }
            batch = match batch {
                Some((first, count)) if count < self.batch && first + count == region => {
                    Some((first, count + 1))
                }
                Some((first, count)) => {
                    self.copy(first, count, &mut acts);
                    Some((region, 1))
                }
                None => Some((region, 1)),
            };
            if let Some((first, count)) = batch.filter(|batch| batch.1 >= self.batch) {
                self.copy(first, count, &mut acts);
                batch = None;
            }
        }
        if let Some((first, count)) = batch {
            self.copy(first, count, &mut acts);
        }
        acts
    }

    fn done(&mut self, act: u64, outcome: Outcome) {
        let count = self.in_flight.remove(&act).expect("it is under way");
        if outcome.is_ok() {
            self.hydrated.extend(act..act + count);
        }
    }

    fn is_over(&self) -> bool {
        self.offset >= self.regions() && self.in_flight.is_empty()
    }
}
