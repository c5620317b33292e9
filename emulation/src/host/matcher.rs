//! A driver without requests that is handed the two halves of copies one by one, whole or in pieces, and matches them
//! itself: by the copy that they belong to and their place in it.

use super::bio::Side;
use super::chunk::ChunkId;
use super::defect::{Defect, Defects};
use super::stack::Node;
use crate::units::{SectorRange, Sectors};

/// A half, or what is left of one, at its disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    pub(crate) chunk: ChunkId,
    pub(crate) side: Side,
    pub(crate) disk: Node,
    pub(crate) range: SectorRange,
    /// Its place in the copy.
    pub(crate) offset: Sectors,
}

impl Half {
    /// The part from place `from` of the copy up to `to`, which lie within it.
    fn part(&self, from: Sectors, to: Sectors) -> Self {
        let range = self.range.split_at(from - self.offset).1.split_at(to - from).0;
        Self { range, offset: from, ..*self }
    }

    fn end(&self) -> Sectors {
        self.offset + self.range.len
    }
}

/// Two halves that belong together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    pub(crate) source: Half,
    pub(crate) destination: Half,
}

/// The halves whose other half has not come.
#[derive(Debug, Default)]
pub(crate) struct Matcher {
    waiting: Vec<Half>,
}

impl Matcher {
    /// A half comes. The count is that of the pieces that halves were cut into, beyond those there were.
    pub(crate) fn arrive(&mut self, half: Half, defects: Defects) -> (Vec<Match>, u64) {
        let mut matches = Vec::new();
        let mut cut = 0;
        let mut todo = vec![half];
        while let Some(half) = todo.pop() {
            let Some(index) = self.waiting.iter().position(|other| fits(&half, other, defects)) else {
                self.waiting.push(half);
                continue;
            };
            let other = self.waiting.remove(index);
            let (mut one, mut two) = (half, other);
            if defects.has(Defect::PairedBySize) || defects.has(Defect::SplitHalvesByOrder) {
                let len = half.range.len.min(other.range.len);
                (one.range.len, two.range.len) = (len, len);
            } else {
                let (from, to) = (half.offset.max(other.offset), half.end().min(other.end()));
                (one, two) = (half.part(from, to), other.part(from, to));
                for (whole, rest) in [(half, &mut todo), (other, &mut self.waiting)] {
                    let left = [whole.part(whole.offset, from), whole.part(to, whole.end())];
                    let left = left.into_iter().filter(|part| !part.range.is_empty());
                    let before = rest.len();
                    rest.extend(left);
                    cut += (rest.len() - before) as u64;
                }
            }
            matches.push(match one.side {
                Side::Source => Match { source: one, destination: two },
                Side::Destination => Match { source: two, destination: one },
            });
        }
        (matches, cut)
    }

    /// True when no half waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A copy has failed: its halves wait for nothing any more. Answers how many there were.
    pub(crate) fn cancel(&mut self, chunk: ChunkId) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|half| half.chunk != chunk);
        before - self.waiting.len()
    }
}

fn fits(half: &Half, other: &Half, defects: Defects) -> bool {
    if half.side == other.side {
        return false;
    }
    if defects.has(Defect::PairedBySize) {
        return half.range.len == other.range.len;
    }
    half.chunk == other.chunk
        && (defects.has(Defect::SplitHalvesByOrder) || half.offset < other.end() && other.offset < half.end())
}
