//! From what was asked to be copied to commands that the limits of a disk take.

use super::api::ApiError;
use emulation::limits;
use emulation::{BlkStatus, Bytes, CopyCommand, CopySegment, Limits, Sector, SectorRange, Sectors, VolumeId};

/// A command, and which of the segments that were asked for each of its segments is a part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) command: CopyCommand,
    pub(crate) origins: Vec<u32>,
}

impl Piece {
    fn push(&mut self, segment: CopySegment, origin: u32) {
        self.command.segments.push(segment);
        self.origins.push(origin);
    }

    fn bytes(&self) -> u64 {
        self.command.segments.iter().map(|segment| segment.source.len.bytes().0).sum()
    }
}

/// A segment in sectors; refused when its bytes are no whole logical blocks.
pub(crate) fn segment(
    source_volume: VolumeId,
    source: Bytes,
    length: Bytes,
    destination: Bytes,
    logical_block: Sectors,
) -> Result<CopySegment, ApiError> {
    let block = logical_block.bytes().0;
    for (what, bytes) in [("source", source), ("length", length), ("destination", destination)] {
        if !bytes.0.is_multiple_of(block) {
            return Err(ApiError::bad_request(format!("{what} {}: not a multiple of {block}", bytes.0)));
        }
    }
    if length.0 == 0 {
        return Err(ApiError::bad_request("length 0: nothing to copy"));
    }
    let len = length.whole_sectors();
    let range = SectorRange::new(Sector(source.whole_sectors().0), len);
    let destination = SectorRange::new(Sector(destination.whole_sectors().0), len);
    match (range, destination) {
        (Some(source), Some(to)) => Ok(CopySegment { source_volume, source, destination: to.start }),
        _ => Err(ApiError::bad_request("a range passes the end of all addresses")),
    }
}

/// Splits segments into commands within the limits. They are checked as a whole first: no part of a copy is
/// begun whose ranges overlap, since one part would overwrite what another has yet to read. Where an append goes the
/// disk says for each command; all its parts name the start of the zone.
pub(crate) fn split(
    volume: VolumeId,
    limits: &Limits,
    segments: Vec<CopySegment>,
    append: bool,
) -> Result<Vec<Piece>, ApiError> {
    let whole = CopyCommand { segments: segments.into() };
    if !append && limits::overlaps(volume, &whole) {
        let error = ApiError::of_status("the copy", BlkStatus::CopyOverlap);
        return Err(error.hint("a destination may overlap neither a source nor another destination"));
    }
    Ok(cut(limits, (0u32..).zip(whole.segments), append))
}

/// Cuts a command anew that limits have been lowered for since.
pub(crate) fn again(limits: &Limits, piece: Piece, append: bool) -> Vec<Piece> {
    cut(limits, piece.origins.into_iter().zip(piece.command.segments), append)
}

fn cut(limits: &Limits, segments: impl Iterator<Item = (u32, CopySegment)>, append: bool) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut piece = Piece::default();
    for (origin, segment) in segments {
        let mut rest = segment;
        while !rest.source.is_empty() {
            let full = piece.command.segments.len() >= limits.copy_max_segments as usize;
            let room = limits.copy_max_bytes.0 - piece.bytes();
            if full || room == 0 {
                pieces.push(std::mem::take(&mut piece));
                continue;
            }
            let len = part(&rest, limits, Bytes(room).whole_sectors());
            piece.push(CopySegment { source: rest.source.split_at(len).0, ..rest }, origin);
            rest.source = rest.source.split_at(len).1;
            if !append {
                rest.destination = rest.destination + len;
            }
        }
    }
    if !piece.origins.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// The length of the next part of a segment. A part that is not the last ends at a map block of the destination
/// where it can, so that no block is cut in two. None goes on from a zone of the destination into the next.
fn part(rest: &CopySegment, limits: &Limits, room: Sectors) -> Sectors {
    let border = limits.zones.map_or(room, |zones| zones.size - Sectors(rest.destination.0 % zones.size.0));
    let most = room.min(limits.copy_max_segment_bytes.whole_sectors()).min(border);
    if rest.source.len <= most {
        return rest.source.len;
    }
    let end = (rest.destination + most).0;
    let aligned = end - end % limits.map_block.0;
    if aligned > rest.destination.0 { Sectors(aligned - rest.destination.0) } else { most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulation::zone::ZoneGeometry;

    const VOLUME: VolumeId = VolumeId(3);

    fn limits(max: Bytes, segment_max: Bytes, segments: u32) -> Limits {
        let mut limits = Limits::new(Bytes::gib(4).whole_sectors(), Sectors(1), Sectors(8));
        limits.copy_max_bytes = max;
        limits.copy_max_segment_bytes = segment_max;
        limits.copy_max_segments = segments;
        limits
    }

    fn bytes(source: u64, length: u64, destination: u64) -> CopySegment {
        segment(VOLUME, Bytes(source), Bytes(length), Bytes(destination), Sectors(1)).unwrap()
    }

    /// Every byte of the segments is copied once, in order, within the limits.
    fn check(limits: &Limits, asked: &[CopySegment]) -> Vec<Piece> {
        let pieces = split(VOLUME, limits, asked.to_vec(), false).unwrap();
        let mut parts = pieces.iter().flat_map(|piece| piece.command.segments.iter().zip(&piece.origins));
        for (index, segment) in (0u32..).zip(asked) {
            let mut done = Sectors(0);
            while done < segment.source.len {
                let (part, origin) = parts.next().unwrap();
                assert_eq!(*origin, index);
                assert_eq!(part.source.start, segment.source.start + done);
                assert_eq!(part.destination, segment.destination + done);
                assert_eq!(part.source_volume, segment.source_volume);
                done += part.source.len;
            }
            assert_eq!(done, segment.source.len);
        }
        assert!(parts.next().is_none());
        for piece in &pieces {
            assert!(!piece.origins.is_empty() && piece.bytes() <= limits.copy_max_bytes.0);
            assert!(piece.command.segments.len() <= limits.copy_max_segments as usize);
            let longest =
                piece.command.segments.iter().map(|segment| segment.source.len.bytes()).max().unwrap();
            assert!(longest <= limits.copy_max_segment_bytes);
        }
        pieces
    }

    #[test]
    fn a_long_copy_becomes_commands_of_the_largest_size() {
        let limits = limits(Bytes::mib(128), Bytes::mib(16), 128);
        let pieces = check(&limits, &[bytes(0, 256 << 20, 1 << 30)]);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0].command.segments.len(), 8);
    }

    #[test]
    fn parts_end_at_map_blocks_of_the_destination() {
        let limits = limits(Bytes::mib(1), Bytes::kib(64), 4);
        let pieces = check(&limits, &[bytes(512, 300 << 10, (1 << 20) + 512), bytes(0, 512, 3 << 20)]);
        let parts = pieces.iter().flat_map(|piece| piece.command.segments.iter().zip(&piece.origins));
        let ends: Vec<u64> = parts
            .filter(|(_, origin)| **origin == 0)
            .map(|(part, _)| (part.destination + part.source.len).0)
            .collect();
        assert!(ends.len() >= 5, "{ends:?}");
        assert!(ends[..ends.len() - 1].iter().all(|end| end.is_multiple_of(8)), "{ends:?}");
    }

    #[test]
    fn a_command_is_cut_again_for_lower_limits() {
        let asked = [bytes(0, 3 << 20, 1 << 30), bytes(8 << 20, 4 << 20, 2 << 30)];
        let before = check(&limits(Bytes::mib(128), Bytes::mib(16), 128), &asked);
        assert_eq!(before.len(), 1);
        let lower = limits(Bytes::mib(1), Bytes::kib(512), 1);
        let whole = check(&lower, &asked);
        assert_eq!(again(&lower, before[0].clone(), false), whole);
        assert_eq!(again(&lower, whole[9].clone(), false), [whole[9].clone()], "what fits stays as it is");
    }

    #[test]
    fn parts_end_at_the_ends_of_zones() {
        let mut limits = limits(Bytes::mib(128), Bytes::mib(16), 128);
        limits.zones = Some(ZoneGeometry::new(Bytes::mib(4).whole_sectors()));
        let pieces = check(&limits, &[bytes(0, 9 << 20, 1 << 30), bytes(0, 3 << 20, (2 << 30) + (2 << 20))]);
        let lengths = |piece: &Piece| -> Vec<u64> {
            piece.command.segments.iter().map(|segment| segment.source.len.bytes().0 >> 20).collect()
        };
        assert_eq!(pieces.iter().map(lengths).collect::<Vec<_>>(), [[4, 4, 1, 2, 1]]);
    }

    #[test]
    fn every_part_of_an_append_names_the_zone() {
        let limits = limits(Bytes::mib(1), Bytes::kib(256), 2);
        let zone = 1 << 30;
        let asked = vec![bytes(0, 1 << 20, zone), bytes(4 << 20, 512, zone)];
        let pieces = split(VOLUME, &limits, asked, true).unwrap();
        let parts: Vec<_> = pieces.iter().flat_map(|piece| piece.command.segments.clone()).collect();
        assert!(parts.iter().all(|part| part.destination.bytes().0 == zone), "{parts:?}");
        let sources: Vec<u64> = parts.iter().map(|part| part.source.start.bytes().0 >> 10).collect();
        assert_eq!(sources, [0, 256, 512, 768, 4096]);
    }

    #[test]
    fn limits_smaller_than_a_map_block_still_advance() {
        check(&limits(Bytes(512), Bytes(512), 1), &[bytes(512, 8192, 1 << 20)]);
        check(
            &limits(Bytes(1024), Bytes(512), 256),
            &[bytes(0, 8192, 1 << 20), bytes(9000 * 512, 512, 2 << 20)],
        );
    }

    #[test]
    fn a_copy_that_overlaps_as_a_whole_is_refused_before_it_is_split() {
        let limits = limits(Bytes::mib(1), Bytes::mib(1), 1);
        for overlapping in [
            vec![bytes(0, 4 << 20, 2 << 20)],
            vec![bytes(0, 512, 0)],
            vec![bytes(0, 4096, 1 << 20), bytes(8192, 4096, (1 << 20) + 512)],
        ] {
            assert_eq!(split(VOLUME, &limits, overlapping, false).unwrap_err().code, "copy-overlap");
        }
        check(&limits, &[bytes(0, 2 << 20, 2 << 20)]);
    }

    #[test]
    fn bytes_that_are_no_logical_blocks_are_refused() {
        for (source, length, destination) in [(1, 512, 0), (0, 0, 512), (0, 511, 512), (0, 512, 5)] {
            let made = segment(VOLUME, Bytes(source), Bytes(length), Bytes(destination), Sectors(1));
            assert_eq!(made.unwrap_err().code, "bad-request");
        }
        let far = Bytes(u64::MAX - 511);
        assert!(segment(VOLUME, far, Bytes(1 << 63), Bytes(0), Sectors(1)).is_ok(), "sectors hold it");
    }
}
