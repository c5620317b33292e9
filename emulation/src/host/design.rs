//! The designs, and how a copy becomes what each of them submits.

use super::defect::{Defect, Defects};
use super::stack::CopyLimits;
use crate::status::BlkStatus;
use crate::units::{Sector, SectorRange, Sectors};

/// How the block layer carries a copy from its caller to a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Two bios without data, destination first, joined to one request in the caller's plug (Samsung, version 20, May
    /// 2024).
    Pair,
    /// One bio: its extent is the destination, its vector holds the sources (Busch, May 2025).
    Vector,
    /// Many sources and many destinations. Every bio is translated to its device first, then one command is
    /// sent (Van Assche, April 2026).
    Context,
    /// The two bios of [`Design::Pair`] over drivers without requests, which match the halves themselves.
    Matched,
}

impl Design {
    /// Every design.
    pub const ALL: [Self; 4] = [Self::Pair, Self::Vector, Self::Context, Self::Matched];

    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Vector => "vector",
            Self::Context => "context",
            Self::Matched => "matched",
        }
    }

    /// True when a stripe passes copies on. Device mapper's linear target does in all.
    pub(crate) const fn passes_stripes(self) -> bool {
        match self {
            Self::Pair | Self::Context => false,
            Self::Vector | Self::Matched => true,
        }
    }

    /// True when source and destination may lie on different devices of the stack.
    pub(crate) const fn crosses_devices(self) -> bool {
        match self {
            Self::Context => true,
            Self::Pair | Self::Vector | Self::Matched => false,
        }
    }

    /// True when the caller goes on by reading and writing after this failure. `Pair` has no such way since its
    /// version 16.
    pub(crate) fn falls_back(self, status: BlkStatus) -> bool {
        match self {
            Self::Pair => false,
            Self::Vector | Self::Matched => {
                status == BlkStatus::NotSupp || status == BlkStatus::CopyIncompatible
            }
            Self::Context => !status.is_ok(),
        }
    }
}

/// A run of sectors and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// From here.
    pub source: SectorRange,
    /// To here.
    pub destination: Sector,
}

impl Piece {
    /// The sectors it writes.
    pub fn destination_range(&self) -> SectorRange {
        SectorRange { start: self.destination, len: self.source.len }
    }

    /// The first `len` sectors and the rest.
    fn split_at(self, len: Sectors) -> (Self, Self) {
        let (source, rest) = self.source.split_at(len);
        (Self { source, ..self }, Self { source: rest, destination: self.destination + source.len })
    }
}

/// Sources and destinations, each as one run of sectors, cut where either has a border. What one of the two
/// has more than the other is left out.
pub fn pair_up(sources: &[SectorRange], destinations: &[SectorRange]) -> Vec<Piece> {
    let on = |ranges: &[SectorRange]| ranges.iter().map(|range| ((), *range)).collect::<Vec<_>>();
    pair_up_on(&on(sources), &on(destinations)).into_iter().map(|(_, _, piece)| piece).collect()
}

/// The same for ranges on devices: each piece with the device of its source and that of its destination.
pub(crate) fn pair_up_on<D: Copy>(
    sources: &[(D, SectorRange)],
    destinations: &[(D, SectorRange)],
) -> Vec<(D, D, Piece)> {
    let mut pieces = Vec::new();
    let (mut from, mut to) = (sources.iter().copied(), destinations.iter().copied());
    let (mut source, mut destination) = (from.next(), to.next());
    while let (Some((from_device, from_range)), Some((to_device, to_range))) = (source, destination) {
        let len = from_range.len.min(to_range.len);
        let (now, later) = from_range.split_at(len);
        let (here, beyond) = to_range.split_at(len);
        if !len.is_zero() {
            pieces.push((from_device, to_device, Piece { source: now, destination: here.start }));
        }
        source = if later.is_empty() { from.next() } else { Some((from_device, later)) };
        destination = if beyond.is_empty() { to.next() } else { Some((to_device, beyond)) };
    }
    pieces
}

/// Pieces cut to the limit of one segment and put together to commands within the limits of a command.
pub(crate) fn commands(pieces: &[Piece], limits: &CopyLimits) -> Vec<Vec<Piece>> {
    let mut commands = Vec::new();
    let mut command = Vec::new();
    let mut total = Sectors::ZERO;
    for &piece in pieces {
        let mut rest = piece;
        while !rest.source.is_empty() {
            let room = Sectors(limits.bytes.0 - total.0);
            if room.is_zero() || command.len() >= limits.segments as usize {
                commands.push(std::mem::take(&mut command));
                total = Sectors::ZERO;
                continue;
            }
            let (now, later) = rest.split_at(limits.segment.min(room));
            command.push(now);
            total += now.source.len;
            rest = later;
        }
    }
    if !command.is_empty() {
        commands.push(command);
    }
    commands
}

/// Runs of pieces with neighbouring destinations, each as its first destination sector and its sources.
pub(crate) fn vectors(pieces: &[Piece], defects: Defects) -> Vec<(Sector, Vec<SectorRange>)> {
    let mut vectors: Vec<(Sector, Vec<SectorRange>)> = Vec::new();
    let mut end = Sector(u64::MAX);
    for piece in pieces {
        match vectors.last_mut().filter(|_| piece.destination == end) {
            Some((_, sources)) => join(sources, piece.source, defects),
            None => vectors.push((piece.destination, vec![piece.source])),
        }
        end = piece.destination + piece.source.len;
    }
    vectors
}

/// Adds a source to a vector; one that follows the last becomes a part of it.
fn join(sources: &mut Vec<SectorRange>, source: SectorRange, defects: Defects) {
    match sources.last_mut() {
        Some(last) => {
            let len = if defects.has(Defect::SourcesJoinedByNewLength) { source.len } else { last.len };
            if last.start + len == source.start {
                last.len += source.len;
            } else {
                sources.push(source);
            }
        }
        None => sources.push(source),
    }
}

/// Runs of neighbouring ranges put together.
pub(crate) fn joined(ranges: impl Iterator<Item = SectorRange>) -> Vec<SectorRange> {
    let mut joined = Vec::new();
    ranges.for_each(|range| join(&mut joined, range, Defects::NONE));
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64) -> SectorRange {
        SectorRange { start: Sector(start), len: Sectors(len) }
    }

    fn piece(source: u64, len: u64, to: u64) -> Piece {
        Piece { source: range(source, len), destination: Sector(to) }
    }

    #[test]
    fn pieces_end_at_the_borders_of_both_sides() {
        let pieces = pair_up(&[range(0, 8), range(100, 4)], &[range(50, 6), range(200, 6)]);
        assert_eq!(pieces, [piece(0, 6, 50), piece(6, 2, 200), piece(100, 4, 202)]);
    }

    #[test]
    fn commands_stay_within_each_limit() {
        let limits = CopyLimits { bytes: Sectors(10), segment: Sectors(4), segments: 3 };
        let cut = commands(&[piece(0, 11, 100), piece(50, 1, 300)], &limits);
        let expected = [
            vec![piece(0, 4, 100), piece(4, 4, 104), piece(8, 2, 108)],
            vec![piece(10, 1, 110), piece(50, 1, 300)],
        ];
        assert_eq!(cut, expected);
    }

    #[test]
    fn neighbouring_sources_become_one() {
        let pieces = [piece(0, 8, 100), piece(8, 16, 108), piece(40, 8, 124), piece(0, 8, 500)];
        let vectors = vectors(&pieces, Defects::NONE);
        assert_eq!(
            vectors,
            [(Sector(100), vec![range(0, 24), range(40, 8)]), (Sector(500), vec![range(0, 8)])]
        );
    }
}
