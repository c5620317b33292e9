//! What a link of the map layer changes, as far as others have to wait for it: a request that changes a part of
//! a block builds the new block from the old one, so nobody else may change that block meanwhile.

use crate::parking::Claim;
use crate::request::VolumeId;
use crate::units::SectorRange;
use std::ops::Range;

/// Logical blocks that a link changes.
#[derive(Clone, Debug)]
pub(super) struct BlockClaim {
    volume: VolumeId,
    blocks: Range<u64>,
    /// It changes a part of the first block, of the last one.
    head: bool,
    tail: bool,
}

impl BlockClaim {
    pub(super) fn new(volume: VolumeId, range: SectorRange, map_block: u64) -> Self {
        let (start, end) = (range.start.0, range.end().0);
        let blocks = start / map_block..end.div_ceil(map_block);
        let one = blocks.end - blocks.start == 1;
        let (head, tail) = (!start.is_multiple_of(map_block), !end.is_multiple_of(map_block));
        Self { volume, blocks, head: head || (one && tail), tail: tail || (one && head) }
    }

    pub(super) fn blocks(&self) -> Range<u64> {
        self.blocks.clone()
    }

    fn parts(&self) -> impl Iterator<Item = u64> {
        let (head, tail) = (self.head.then_some(self.blocks.start), self.tail.then_some(self.blocks.end - 1));
        head.into_iter().chain(tail)
    }
}

impl Claim for BlockClaim {
    fn exclusive(&self) -> bool {
        self.head || self.tail
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.volume == other.volume
            && (self.parts().any(|block| other.blocks.contains(&block))
                || other.parts().any(|block| self.blocks.contains(&block)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Sector, Sectors};

    fn claim(start: u64, len: u64) -> BlockClaim {
        BlockClaim::new(VolumeId(0), SectorRange { start: Sector(start), len: Sectors(len) }, 8)
    }

    #[test]
    fn whole_block_changes_are_not_exclusive() {
        assert!(!claim(8, 16).exclusive());
        assert!(claim(9, 15).exclusive() && claim(8, 15).exclusive() && claim(9, 1).exclusive());
    }

    #[test]
    fn a_part_conflicts_with_every_change_of_its_block_and_no_other() {
        // 9..23 changes parts of blocks 1 and 2.
        let part = claim(9, 14);
        for (start, len, conflicts) in
            [(0, 8, false), (8, 8, true), (15, 1, true), (16, 8, true), (24, 8, false), (0, 64, true)]
        {
            assert_eq!(part.conflicts(&claim(start, len)), conflicts, "{start}+{len}");
            assert_eq!(claim(start, len).conflicts(&part), conflicts, "{start}+{len}");
        }
        // 9..31 changes parts of blocks 1 and 3, block 2 whole.
        assert!(!claim(9, 22).conflicts(&claim(16, 8)));
        assert!(claim(9, 22).conflicts(&claim(17, 2)));
    }
}
