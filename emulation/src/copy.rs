//! How a segment is cut into links: what is remapped, what is moved, and why.

use crate::ledger::MoveReason;
use crate::limits::CopyMode;
use crate::request::CopySegment;
use crate::units::{Bytes, Sector, SectorRange, Sectors};

/// The most media work of a link.
pub const LINK_BYTES_MAX: Bytes = Bytes::mib(1);
/// The most extents that a link changes or names.
pub const LINK_EXTENTS_MAX: usize = 1024;

/// The way of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Whole map blocks, by sharing them.
    Remap,
    /// By moving the bytes.
    Move(MoveReason),
}

/// What `len` sectors from the start of a segment's rest become in one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLink {
    /// From here.
    pub source: SectorRange,
    /// To here, as long as the source.
    pub destination: SectorRange,
    /// How.
    pub way: Way,
}

/// The next link of a segment of which `done` sectors are copied; `None` when it is done. A remap may be
/// shortened by the caller to a multiple of the map block.
pub fn next_link(
    segment: &CopySegment,
    done: Sectors,
    map_block: Sectors,
    mode: CopyMode,
) -> Option<CopyLink> {
    let (_, source) = segment.source.split_at(done);
    let (_, destination) = segment.destination_range().split_at(done);
    if source.is_empty() {
        return None;
    }
    let way = way(source.start, destination, map_block, mode);
    let len = match way {
        Way::Remap => Sectors(destination.len.0 - destination.len.0 % map_block.0),
        Way::Move(MoveReason::HeadTail) => destination.len.min(to_border(destination.start, map_block)),
        Way::Move(MoveReason::Mode | MoveReason::Incongruent | MoveReason::PartBlock) => {
            move_len(destination, map_block)
        }
    };
    Some(CopyLink { source: source.split_at(len).0, destination: destination.split_at(len).0, way })
}

/// True when no byte of the segment would be moved.
pub fn is_fast(segment: &CopySegment, map_block: Sectors, mode: CopyMode) -> bool {
    mode == CopyMode::Remap
        && congruent(segment.source.start, segment.destination, map_block)
        && segment.destination.0.is_multiple_of(map_block.0)
        && segment.source.len.0.is_multiple_of(map_block.0)
}

/// The length of one link of media work on `range`: at most [`LINK_BYTES_MAX`] and [`LINK_EXTENTS_MAX`] blocks,
/// ending at a block border unless it ends the range.
pub fn move_len(range: SectorRange, map_block: Sectors) -> Sectors {
    let most = LINK_BYTES_MAX.whole_sectors().0.min(map_block.0 * LINK_EXTENTS_MAX as u64);
    if range.len.0 <= most {
        return range.len;
    }
    let end = range.start.0 + most;
    Sectors(end - end % map_block.0 - range.start.0)
}

/// The sectors from `start` to the next block border after it.
pub fn to_border(start: Sector, map_block: Sectors) -> Sectors {
    Sectors(map_block.0 - start.0 % map_block.0)
}

fn way(source: Sector, destination: SectorRange, map_block: Sectors, mode: CopyMode) -> Way {
    match mode {
        CopyMode::Remap if !congruent(source, destination.start, map_block) => {
            Way::Move(MoveReason::Incongruent)
        }
        CopyMode::Remap
            if !destination.start.0.is_multiple_of(map_block.0) || destination.len < map_block =>
        {
            Way::Move(MoveReason::HeadTail)
        }
        CopyMode::Remap => Way::Remap,
        // A mode that was changed after the command was let in: the command ends the way a target without
        // remapping would.
        CopyMode::Memcpy | CopyMode::Emulate | CopyMode::Off => Way::Move(MoveReason::Mode),
    }
}

fn congruent(source: Sector, destination: Sector, map_block: Sectors) -> bool {
    source.0 % map_block.0 == destination.0 % map_block.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::VolumeId;
    use proptest::prelude::*;

    fn segment(source: u64, destination: u64, len: u64) -> CopySegment {
        CopySegment {
            source_volume: VolumeId(0),
            source: SectorRange { start: Sector(source), len: Sectors(len) },
            destination: Sector(destination),
        }
    }

    fn links(segment: &CopySegment, mode: CopyMode) -> Vec<CopyLink> {
        let mut done = Sectors::ZERO;
        let mut links = Vec::new();
        while let Some(link) = next_link(segment, done, Sectors(8), mode) {
            done += link.source.len;
            links.push(link);
        }
        links
    }

    #[test]
    fn an_aligned_segment_is_one_remap_of_any_length() {
        let links = links(&segment(0, 1 << 30, 1 << 21), CopyMode::Remap);
        assert_eq!(links.len(), 1);
        assert_eq!(links[0].way, Way::Remap);
    }

    #[test]
    fn head_and_tail_are_moved_around_the_remapped_middle() {
        let ways: Vec<_> = links(&segment(3, 8 * 100 + 3, 8 * 5), CopyMode::Remap)
            .iter()
            .map(|l| (l.source.len.0, l.way))
            .collect();
        let head_tail = Way::Move(MoveReason::HeadTail);
        assert_eq!(ways, [(5, head_tail), (32, Way::Remap), (3, head_tail)]);
    }

    #[test]
    fn an_incongruent_segment_is_moved_whole() {
        let ways: Vec<_> = links(&segment(1, 80, 64), CopyMode::Remap).iter().map(|l| l.way).collect();
        assert_eq!(ways, [Way::Move(MoveReason::Incongruent)]);
    }

    proptest! {
        #[test]
        fn links_cover_the_segment_in_order_and_inside_the_limits(
            source in 0u64..100, destination in 1000u64..1100, len in 1u64..6000,
            mode in prop::sample::select(&CopyMode::ALL[..]),
        ) {
            let segment = segment(source, destination, len);
            let mut at = Sectors::ZERO;
            for link in links(&segment, mode) {
                prop_assert_eq!(link.source.start, Sector(source) + at);
                prop_assert_eq!(link.destination.start, Sector(destination) + at);
                prop_assert_eq!(link.source.len, link.destination.len);
                prop_assert!(!link.source.is_empty());
                at += link.source.len;
                if link.way == Way::Remap {
                    prop_assert!(link.destination.start.0.is_multiple_of(8) && link.source.start.0.is_multiple_of(8));
                    prop_assert!(link.source.len.0.is_multiple_of(8));
                } else {
                    prop_assert!(link.source.len.bytes() <= LINK_BYTES_MAX);
                    prop_assert!(at == Sectors(len) || link.destination.end().0.is_multiple_of(8));
                }
            }
            prop_assert_eq!(at, Sectors(len));
            prop_assert_eq!(is_fast(&segment, Sectors(8), mode), links(&segment, mode).iter().all(|l| l.way == Way::Remap));
        }
    }
}
