//! An ordered map from disjoint ranges of keys to values: the extents of a volume, the counts of shared blocks,
//! and sets of keys.
//!
//! Pieces live in wide leaves (`leaf`), found by a small index (`index`) that stays in the processor's
//! caches when the pieces of a large map do not: a lookup waits for memory about twice.

mod edit;
mod index;
mod leaf;

use edit::Edit;
use index::{Index, Place};
use leaf::{LEAF_PIECES, Leaf};
use smallvec::SmallVec;
use std::fmt::Debug;
use std::ops::Range;

/// The value of a range: it gives each key of the range a value of its own.
pub trait RangeValue: Copy + Eq + Debug {
    /// The value of the key `offset` after the one whose value this is.
    fn at(self, offset: u64) -> Self;
}

/// A set of keys.
impl RangeValue for () {
    fn at(self, _offset: u64) -> Self {}
}

/// Every key of the range has the same number: a count.
impl RangeValue for u32 {
    fn at(self, _offset: u64) -> Self {
        self
    }
}

/// A physical block; the blocks of a range follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Physical(pub u64);

impl RangeValue for Physical {
    fn at(self, offset: u64) -> Self {
        Self(self.0 + offset)
    }
}

/// A range and the value of its first key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<V> {
    /// The keys, never none.
    pub range: Range<u64>,
    /// The value of `range.start`.
    pub value: V,
}

impl<V: RangeValue> Piece<V> {
    /// The part of the piece inside `range`, or `None` when they have no key in common.
    pub fn clip(&self, range: &Range<u64>) -> Option<Self> {
        let start = self.range.start.max(range.start);
        let end = self.range.end.min(range.end);
        (start < end).then(|| Self { range: start..end, value: self.value.at(start - self.range.start) })
    }

    /// True when `next` begins where this piece ends, with the value that follows: the two are one.
    fn continued_by(&self, next: &Self) -> bool {
        self.range.end == next.range.start && self.value.at(self.range.end - self.range.start) == next.value
    }
}

/// The pieces of a range of keys, see [`RangeMap::overlapping`].
#[derive(Debug)]
pub struct Pieces<'a, V> {
    index: &'a Index<V>,
    /// The next piece: a leaf and a number in it.
    at: Option<(Place, &'a Leaf<V>, usize)>,
    range: Range<u64>,
}

impl<V: RangeValue> Iterator for Pieces<'_, V> {
    type Item = Piece<V>;

    fn next(&mut self) -> Option<Piece<V>> {
        let (place, leaf, number) = self.at.as_mut()?;
        loop {
            if *number == leaf.len() {
                match self.index.next(*place) {
                    Some(next) => (*place, *leaf, *number) = (next, self.index.leaf(next), 0),
                    None => break,
                }
                continue;
            }
            let piece = leaf.piece(*number);
            if piece.range.start >= self.range.end {
                break;
            }
            *number += 1;
            if let Some(inside) = piece.clip(&self.range) {
                return Some(inside);
            }
        }
        self.at = None;
        None
    }
}

/// The pieces and holes of a range of keys, see [`RangeMap::pieces_and_holes`].
#[derive(Debug)]
pub struct PiecesAndHoles<'a, V> {
    pieces: Pieces<'a, V>,
    next: Option<Piece<V>>,
    at: u64,
}

impl<V: RangeValue> Iterator for PiecesAndHoles<'_, V> {
    type Item = (Range<u64>, Option<V>);

    fn next(&mut self) -> Option<Self::Item> {
        let (here, end) = (self.at, self.pieces.range.end);
        if here >= end {
            return None;
        }
        let (end, value) = match &self.next {
            Some(piece) if piece.range.start == here => {
                let found = (piece.range.end, Some(piece.value));
                self.next = self.pieces.next();
                found
            }
            Some(piece) => (piece.range.start, None),
            None => (end, None),
        };
        self.at = end;
        Some((here..end, value))
    }
}

/// Two leaves that follow each other are joined when they have at most so many pieces together.
const JOIN_PIECES: usize = LEAF_PIECES * 7 / 8;
/// A leaf is looked at when the number of its pieces falls below a multiple of this.
const LOOK_PIECES: usize = 8;

/// An ordered map from disjoint ranges of keys to values. Ranges that touch and whose values follow each
/// other are one piece.
#[derive(Clone, Debug)]
pub struct RangeMap<V> {
    index: Index<V>,
    pieces: usize,
    keys: u64,
}

impl<V: RangeValue> Default for RangeMap<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: RangeValue> RangeMap<V> {
    /// An empty map.
    pub fn new() -> Self {
        Self { index: Index::new(), pieces: 0, keys: 0 }
    }

    /// The whole stored piece that has `key`.
    pub fn get(&self, key: u64) -> Option<Piece<V>> {
        let after = key.saturating_add(1);
        let leaf = self.index.leaf(self.index.before(after)?);
        let piece = leaf.piece(leaf.starting_before(after).checked_sub(1)?);
        (key < piece.range.end).then_some(piece)
    }

    /// The pieces that have keys in `range`, in order, clipped to it.
    pub fn overlapping(&self, range: Range<u64>) -> Pieces<'_, V> {
        let after = range.start.saturating_add(1);
        let at = self.index.before(after).map(|place| {
            let leaf = self.index.leaf(place);
            (place, leaf, leaf.starting_before(after).saturating_sub(1))
        });
        Pieces { index: &self.index, at, range }
    }

    /// Covers `range` exactly, in order, with the pieces in it and the holes between them.
    pub fn pieces_and_holes(&self, range: Range<u64>) -> PiecesAndHoles<'_, V> {
        let at = range.start;
        let mut pieces = self.overlapping(range);
        let next = pieces.next();
        PiecesAndHoles { pieces, next, at }
    }

    /// Every piece, in order.
    pub fn iter(&self) -> impl Iterator<Item = Piece<V>> + '_ {
        self.index.leaves().flat_map(|leaf| leaf.pieces_from(0))
    }

    /// The number of pieces.
    pub fn len(&self) -> usize {
        self.pieces
    }

    /// True when no key has a value.
    pub fn is_empty(&self) -> bool {
        self.pieces == 0
    }

    /// The number of keys that have a value.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The bytes of memory it takes.
    pub fn memory(&self) -> u64 {
        self.index.memory()
    }

    /// Gives the keys of `range` the value `value` and its successors. What they had is handed to `removed`,
    /// in order.
    pub fn insert(&mut self, range: Range<u64>, value: V, removed: &mut impl FnMut(Piece<V>)) {
        self.replace(range, Some(value), removed);
    }

    /// Takes the keys of `range` out. What they had is handed to `removed`, in order.
    pub fn remove(&mut self, range: Range<u64>, removed: &mut impl FnMut(Piece<V>)) {
        self.replace(range, None, removed);
    }

    /// Rewrites every piece and hole in `range`: `f` is given each, clipped, in order, with the value of its
    /// first key, and answers with the new one.
    pub fn update(&mut self, range: Range<u64>, f: &mut impl FnMut(Range<u64>, Option<V>) -> Option<V>) {
        let mut changed: SmallVec<[(Range<u64>, Option<V>); 2]> = SmallVec::new();
        for (part, old) in self.pieces_and_holes(range) {
            let new = f(part.clone(), old);
            if new != old {
                changed.push((part, new));
            }
        }
        for (part, new) in changed {
            self.replace(part, new, &mut |_| ());
        }
    }

    fn replace(&mut self, range: Range<u64>, value: Option<V>, removed: &mut impl FnMut(Piece<V>)) {
        if range.is_empty() {
            return;
        }
        let mut edit = Edit::new(range.clone(), value);
        // The leaf of the last piece that begins before the range takes the result: only leaves behind it can
        // lose their first piece, and its own stays unless it is the first of all. The last leaf stays when it
        // is empty, since a set that is empty in between is filled again.
        let Some(mut home) = self.index.before(range.start) else {
            return self.start(&edit.result());
        };
        let leaf = self.index.leaf(home);
        let old_len = leaf.len();
        let at = edit.meet(leaf, removed);
        if at.end == old_len {
            self.meet_after(&range, &mut edit, removed);
            home = self.index.before(range.start).expect("the home stays");
        }
        let (met, keys) = (edit.met, edit.keys);
        let result = edit.result();
        self.pieces = self.pieces - met + result.len();
        let inserted = value.map_or(0, |_| range.end - range.start);
        self.keys = self.keys - keys + inserted;

        let leaf = self.index.leaf_mut(home);
        let high = leaf.replace(at.clone(), &result);
        let fell = leaf.len() / LOOK_PIECES < old_len / LOOK_PIECES;
        if leaf.len() > 0 {
            if at.start == 0 {
                self.index.settle(home);
            }
        } else if self.pieces > 0 {
            self.index.remove(home);
        }
        let split = high.is_some();
        if let Some(high) = high {
            self.index.insert_after(Some(home), high);
        }
        if fell || split || at.len() < met {
            self.join(&range);
        }
    }

    /// Fills a map that never had a piece.
    fn start(&mut self, pieces: &[Piece<V>]) {
        let [piece] = pieces else { return };
        self.index.insert_after(None, Leaf::new(pieces));
        self.pieces = 1;
        self.keys = piece.range.end - piece.range.start;
    }

    /// Takes the pieces that an edit of `range` meets out of the leaves behind its home.
    fn meet_after(&mut self, range: &Range<u64>, edit: &mut Edit<V>, removed: &mut impl FnMut(Piece<V>)) {
        while let Some(place) = self.index.before(range.start).and_then(|home| self.index.next(home)) {
            let leaf = self.index.leaf_mut(place);
            let met = edit.meet(leaf, removed).len();
            if met < leaf.len() {
                if met > 0 {
                    leaf.remove_first(met);
                    self.index.settle(place);
                }
                return;
            }
            self.index.remove(place);
        }
    }

    /// Joins leaves near `range`, which has been edited, so that of two neighbours not both are small.
    fn join(&mut self, range: &Range<u64>) {
        // What may have got smaller: the home, a leaf that was split off from it, the first leaf behind the
        // range. Each has a neighbour on both sides.
        let Some(home) = self.index.before(range.start) else {
            return;
        };
        let before = self.index.previous(home).unwrap_or(home);
        let mut place = self.index.previous(before).unwrap_or(before);
        while let Some(next) = self.index.next(place) {
            let (low, high) = (self.index.leaf(place), self.index.leaf(next));
            let key = low.first_key();
            if low.len() + high.len() <= JOIN_PIECES {
                let high = self.index.remove(next);
                place = self.index.before(key + 1).expect("it has the key");
                self.index.leaf_mut(place).append(&high);
            } else if key >= range.end {
                return;
            } else {
                place = next;
            }
        }
    }

    /// Checks every invariant. Slow: for simulations and tests.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        self.index.check()?;
        // When two leaves were last looked at they had more than `JOIN_PIECES` together, and no multiple of
        // `LOOK_PIECES` was passed downwards since.
        let least = (JOIN_PIECES + 1 - 2 * (LOOK_PIECES - 1)).div_ceil(LOOK_PIECES);
        let mut last_len = LEAF_PIECES;
        for leaf in self.index.leaves() {
            if last_len / LOOK_PIECES + leaf.len() / LOOK_PIECES < least {
                return Err(format!("the leaf at {} and the one before it are small", leaf.first_key()));
            }
            last_len = leaf.len();
        }
        let (mut pieces, mut keys) = (0, 0);
        let mut last: Option<Piece<V>> = None;
        for piece in self.iter() {
            if piece.range.is_empty() {
                return Err(format!("{piece:?} is empty"));
            }
            if let Some(last) = last
                && (last.range.end > piece.range.start || last.continued_by(&piece))
            {
                return Err(format!("{last:?} overlaps {piece:?} or is one with it"));
            }
            pieces += 1;
            keys += piece.range.end - piece.range.start;
            last = Some(piece);
        }
        if (pieces, keys) != (self.pieces, self.keys) {
            return Err(format!(
                "{} pieces, {} keys counted; {pieces}, {keys} there",
                self.pieces, self.keys
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
