//! Blocks that live plans read. Most plans read a few blocks that no other plan reads: those are counted block by
//! block in a table, which costs a tenth of what a change of a [`RangeMap`] does; long runs are in a map.

use super::space::{Blocks, count};
use crate::range_map::RangeMap;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

/// The longest run that is counted block by block.
const SHORT: u64 = 4;

/// How many live plans read each block.
#[derive(Debug, Default)]
pub(super) struct PinCounts {
    short: FxHashMap<u64, u32>,
    long: RangeMap<u32>,
}

/// Parts of a run in order, and whether a plan reads them.
type Parts = SmallVec<[(Blocks, bool); 1]>;

impl PinCounts {
    /// One plan more reads these blocks.
    pub(super) fn add(&mut self, run: Blocks) {
        if count(&run) <= SHORT {
            for block in run {
                *self.short.entry(block).or_default() += 1;
            }
        } else {
            self.long.update(run, &mut |_, plans| Some(plans.unwrap_or(0) + 1));
        }
    }

    /// A plan that was added with this run is finished.
    pub(super) fn remove(&mut self, run: Blocks) {
        if count(&run) > SHORT {
            self.long.update(run, &mut |_, plans| match plans {
                None | Some(0) => panic!("a block is unpinned that was not pinned"),
                Some(1) => None,
                Some(n) => Some(n - 1),
            });
            return;
        }
        for block in run {
            let plans = self.short.get_mut(&block).expect("a block is unpinned that was pinned");
            *plans -= 1;
            if *plans == 0 {
                self.short.remove(&block);
            }
        }
    }

    /// The parts of a run that are pinned and those that are not.
    pub(super) fn parts(&self, run: Blocks) -> Parts {
        let mut pinned: Vec<Blocks> = Vec::new();
        if !self.short.is_empty() {
            // Whichever is less to look at.
            if count(&run) <= self.short.len() as u64 {
                pinned.extend(
                    run.clone().filter(|block| self.short.contains_key(block)).map(|block| block..block + 1),
                );
            } else {
                let inside = self.short.keys().filter(|block| run.contains(block));
                pinned.extend(inside.map(|&block| block..block + 1));
            }
        }
        if !self.long.is_empty() {
            pinned.extend(self.long.overlapping(run.clone()).map(|piece| piece.range));
        }
        if pinned.is_empty() {
            return smallvec![(run, false)];
        }
        pinned.sort_unstable_by_key(|part| part.start);
        let mut parts = Parts::new();
        let mut at = run.start;
        for part in pinned {
            if at < part.start {
                parts.push((at..part.start, false));
            }
            if at < part.end {
                parts.push((at.max(part.start)..part.end, true));
                at = part.end;
            }
        }
        if at < run.end {
            parts.push((at..run.end, false));
        }
        parts
    }

    /// Bytes of memory they take.
    pub(super) fn memory(&self) -> u64 {
        self.long.memory() + (self.short.capacity() * size_of::<(u64, u32)>()) as u64
    }

    /// The counts as one map. Slow: for simulations and tests.
    pub(super) fn counts(&self) -> RangeMap<u32> {
        let mut counts = self.long.clone();
        for (&block, &plans) in &self.short {
            counts.update(block..block + 1, &mut |_, n| Some(n.unwrap_or(0) + plans));
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Against a plain count for each block.
        #[test]
        fn counts_are_those_of_the_runs(runs in prop::collection::vec((0u64..60, 1u64..12, any::<bool>()), 1..40)) {
            let (mut pins, mut model, mut live) = (PinCounts::default(), std::collections::BTreeMap::new(), Vec::new());
            for (start, len, end_one) in runs {
                if end_one && !live.is_empty() {
                    let run: Blocks = live.swap_remove(0);
                    run.clone().for_each(|block| *model.entry(block).or_insert(0u32) -= 1);
                    pins.remove(run);
                } else {
                    let run = start..start + len;
                    run.clone().for_each(|block| *model.entry(block).or_insert(0u32) += 1);
                    pins.add(run.clone());
                    live.push(run);
                }
                let counts = pins.counts();
                let mut at = start;
                for (part, pinned) in pins.parts(start..start + len) {
                    prop_assert_eq!(part.start, at);
                    for block in part.clone() {
                        let plans = model.get(&block).copied().unwrap_or(0);
                        prop_assert_eq!(plans > 0, pinned);
                        prop_assert_eq!(counts.get(block).map_or(0, |piece| piece.value), plans);
                    }
                    at = part.end;
                }
                prop_assert_eq!(at, start + len);
            }
        }
    }
}
