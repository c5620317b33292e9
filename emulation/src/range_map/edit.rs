//! One replacement: which pieces it meets, and what stands in their place afterwards.

use super::leaf::Leaf;
use super::{Piece, RangeValue};
use smallvec::SmallVec;
use std::ops::Range;

/// A replacement on its way through the leaves.
#[derive(Debug)]
pub(super) struct Edit<V> {
    range: Range<u64>,
    value: Option<V>,
    left: Option<Piece<V>>,
    right: Option<Piece<V>>,
    /// Pieces met.
    pub(super) met: usize,
    /// Keys that had a value.
    pub(super) keys: u64,
}

impl<V: RangeValue> Edit<V> {
    /// `range`, which is not empty, gets `value`, or none.
    pub(super) fn new(range: Range<u64>, value: Option<V>) -> Self {
        Self { range, value, left: None, right: None, met: 0, keys: 0 }
    }

    /// Takes note of the pieces of `leaf` that the edit meets, and gives their numbers: those that have keys in the
    /// range, and those that touch it, since what is inserted may become one with them. The parts inside the range
    /// are handed to `removed`.
    pub(super) fn meet(&mut self, leaf: &Leaf<V>, removed: &mut impl FnMut(Piece<V>)) -> Range<usize> {
        let from = leaf.starting_before(self.range.start);
        let to = leaf.starting_before(self.range.end.saturating_add(1));
        let reaches = from > 0 && leaf.piece(from - 1).range.end >= self.range.start;
        let from = from - usize::from(reaches);
        for index in from..to {
            let piece = leaf.piece(index);
            self.met += 1;
            self.left = self.left.take().or_else(|| piece.clip(&(0..self.range.start)));
            self.right = piece.clip(&(self.range.end..u64::MAX));
            if let Some(gone) = piece.clip(&self.range) {
                self.keys += gone.range.end - gone.range.start;
                removed(gone);
            }
        }
        from..to
    }

    /// What stands in the place of all pieces met.
    pub(super) fn result(self) -> SmallVec<[Piece<V>; 3]> {
        let inserted = self.value.map(|value| Piece { range: self.range, value });
        let mut pieces: SmallVec<[Piece<V>; 3]> = SmallVec::new();
        for piece in [self.left, inserted, self.right].into_iter().flatten() {
            match pieces.last_mut().filter(|last| last.continued_by(&piece)) {
                Some(last) => last.range.end = piece.range.end,
                None => pieces.push(piece),
            }
        }
        pieces
    }
}
