//! The leaves of a range map: up to [`LEAF_PIECES`] pieces in order, the first keys in an array of their own,
//! so that a search reads nothing else.

use super::{Piece, RangeValue};
use std::array::from_fn;
use std::ops::Range;

/// The most pieces of a leaf.
pub(super) const LEAF_PIECES: usize = 64;

/// The number of `keys`, which are in order, that are less than `key`.
///
/// Of a few hundred keys at most it looks at every eighth, then at the eight that are left. That is more than a
/// binary search looks at, but none of the reads waits for the one before it, and memory is what they wait for.
pub(super) fn count_below(keys: &[u64], key: u64) -> usize {
    const STEP: usize = 8;
    let steps = keys.iter().step_by(STEP).filter(|&&first| first < key).count();
    let from = steps.saturating_sub(1) * STEP;
    from + keys[from..].iter().take(STEP).filter(|&&first| first < key).count()
}

/// Pieces in order. Only a leaf that is the last of its map may have none.
#[derive(Clone, Debug)]
pub(super) struct Leaf<V> {
    len: usize,
    starts: [u64; LEAF_PIECES],
    /// The end of each piece, and its value.
    ends: [(u64, V); LEAF_PIECES],
}

impl<V: RangeValue> Leaf<V> {
    /// A leaf of the given pieces. Panics when there are none or too many.
    pub(super) fn new(pieces: &[Piece<V>]) -> Self {
        let mut leaf = Self { len: 0, starts: [0; LEAF_PIECES], ends: [(0, pieces[0].value); LEAF_PIECES] };
        leaf.splice(0..0, pieces);
        leaf
    }

    /// The number of pieces.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The first key of the first piece.
    pub(super) fn first_key(&self) -> u64 {
        self.starts[..self.len][0]
    }

    /// Piece number `index`.
    pub(super) fn piece(&self, index: usize) -> Piece<V> {
        assert!(index < self.len, "piece {index} of {}", self.len);
        let (end, value) = self.ends[index];
        Piece { range: self.starts[index]..end, value }
    }

    /// The pieces from number `index` on.
    pub(super) fn pieces_from(&self, index: usize) -> impl Iterator<Item = Piece<V>> + '_ {
        (index..self.len).map(|index| self.piece(index))
    }

    /// The number of pieces that start before `key`.
    pub(super) fn starting_before(&self, key: u64) -> usize {
        count_below(&self.starts[..self.len], key)
    }

    /// Puts `with` in the place of the pieces with the numbers `at`. Panics when there is no room.
    fn splice(&mut self, at: Range<usize>, with: &[Piece<V>]) {
        let to = at.start + with.len();
        let len = self.len - at.len() + with.len();
        assert!(at.end <= self.len && len <= LEAF_PIECES, "{at:?} of {} by {}", self.len, with.len());
        self.starts.copy_within(at.end..self.len, to);
        self.ends.copy_within(at.end..self.len, to);
        for (index, piece) in (at.start..).zip(with) {
            self.starts[index] = piece.range.start;
            self.ends[index] = (piece.range.end, piece.value);
        }
        self.len = len;
    }

    /// Takes the first `count` pieces out.
    pub(super) fn remove_first(&mut self, count: usize) {
        self.splice(0..count, &[]);
    }

    /// Puts `with`, at most three pieces, in the place of the pieces with the numbers `at`. When they do not fit,
    /// the higher part of the pieces is returned.
    pub(super) fn replace(&mut self, at: Range<usize>, with: &[Piece<V>]) -> Option<Self> {
        if self.len - at.len() + with.len() <= LEAF_PIECES {
            self.splice(at, with);
            return None;
        }
        let place = at.start;
        self.splice(at, &[]);
        if place == self.len {
            // Growth at the end, as when a map is filled in order: the leaf stays full.
            return Some(Self::new(with));
        }
        let mut high = self.split_off(self.len / 2);
        if place <= self.len {
            self.splice(place..place, with);
        } else {
            let place = place - self.len;
            high.splice(place..place, with);
        }
        Some(high)
    }

    /// Takes the pieces from number `at` on out.
    fn split_off(&mut self, at: usize) -> Self {
        let from = |index: usize| (at + index).min(LEAF_PIECES - 1);
        let high = Self {
            len: self.len - at,
            starts: from_fn(|index| self.starts[from(index)]),
            ends: from_fn(|index| self.ends[from(index)]),
        };
        self.len = at;
        high
    }

    /// Adds the pieces of the next leaf. Panics when there is no room.
    pub(super) fn append(&mut self, next: &Self) {
        let len = self.len + next.len;
        self.starts[self.len..len].copy_from_slice(&next.starts[..next.len]);
        self.ends[self.len..len].copy_from_slice(&next.ends[..next.len]);
        self.len = len;
    }
}
