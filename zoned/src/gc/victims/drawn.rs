//! Zones to draw from.

use crate::gc::workload::{Random, below};

#[derive(Debug)]
pub(in crate::gc) struct Drawn {
    full: Vec<u32>,
}

impl Drawn {
    pub(in crate::gc) fn new(zones: u32) -> Self {
        Self { full: Vec::with_capacity(zones as usize) }
    }

    pub(in crate::gc) fn add(&mut self, zone: u32) {
        self.full.push(zone);
    }

    /// The one with the fewest live pages of `d` draws.
    pub(in crate::gc) fn take(&mut self, live: &[u32], d: u32, random: &mut impl Random) -> Option<u32> {
        let count = u32::try_from(self.full.len()).ok().filter(|&count| count > 0)?;
        let best = (0..d)
            .map(|_| below(random, count) as usize)
            .min_by_key(|&index| live[self.full[index] as usize])?;
        Some(self.full.swap_remove(best))
    }
}
