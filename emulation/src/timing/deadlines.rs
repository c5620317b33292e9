//! What has to happen at which time, in one order: by instant, then by when it was asked for.

use crate::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Things that wait for their time. Executors keep executed plans here until [`crate::Plan::not_before`].
#[derive(Clone, Debug)]
pub struct Deadlines<T> {
    sequence: u64,
    /// With the place of the item: items are large, and a heap moves what is in it.
    waiting: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    items: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Self { sequence: 0, waiting: BinaryHeap::new(), items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Deadlines<T> {
    /// Keeps `item` until `at`.
    pub fn push(&mut self, at: Instant, item: T) {
        self.sequence += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() - 1
        });
        self.items[place] = Some(item);
        self.waiting.push(Reverse((at, self.sequence, place)));
    }

    /// The first item whose time has come, with that time; `None` when none is due at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, T)> {
        self.next_at().filter(|at| *at <= now)?;
        let Reverse((at, _, place)) = self.waiting.pop()?;
        self.free.push(place);
        Some((at, self.items[place].take().expect("an item in its place")))
    }

    /// When the next item is due.
    pub fn next_at(&self) -> Option<Instant> {
        self.waiting.peek().map(|Reverse((at, _, _))| *at)
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_by_instant_then_by_sequence() {
        let mut deadlines = Deadlines::default();
        for (at, item) in [(20, 'c'), (10, 'a'), (20, 'd'), (10, 'b')] {
            deadlines.push(Instant(at), item);
        }
        assert_eq!(deadlines.next_at(), Some(Instant(10)));
        assert_eq!(deadlines.pop_due(Instant(9)), None);
        assert_eq!(deadlines.pop_due(Instant(15)), Some((Instant(10), 'a')));
        assert_eq!(deadlines.pop_due(Instant(15)), Some((Instant(10), 'b')));
        assert_eq!(deadlines.pop_due(Instant(15)), None);
        assert_eq!(deadlines.pop_due(Instant(20)), Some((Instant(20), 'c')));
        assert_eq!(deadlines.pop_due(Instant(30)), Some((Instant(20), 'd')));
        assert!(deadlines.is_empty());
    }
}
