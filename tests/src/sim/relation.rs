//! How two runs of sectors can lie to each other: the thirteen relations of intervals (Allen). Refusal of
//! overlapping copies has to be right for each of them.

use super::prng::Prng;
use emulation::{CopyCommand, Sector, SectorRange, Sectors, VolumeId};

/// The relation of a range to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// Ends before the other begins, with a gap.
    Before,
    /// Ends where the other begins.
    Meets,
    /// Begins before the other and ends inside it.
    Overlaps,
    /// Begins with the other and ends inside it.
    Starts,
    /// Lies inside the other.
    During,
    /// Begins inside the other and ends with it.
    Finishes,
    /// Is the other.
    Equals,
    /// Contains the other, which ends with it.
    FinishedBy,
    /// Contains the other inside.
    Contains,
    /// Contains the other, which begins with it.
    StartedBy,
    /// Begins inside the other and ends behind it.
    OverlappedBy,
    /// Begins where the other ends.
    MetBy,
    /// Begins behind the other, with a gap.
    After,
}

impl Relation {
    /// All thirteen.
    pub const ALL: [Self; 13] = [
        Self::Before,
        Self::Meets,
        Self::Overlaps,
        Self::Starts,
        Self::During,
        Self::Finishes,
        Self::Equals,
        Self::FinishedBy,
        Self::Contains,
        Self::StartedBy,
        Self::OverlappedBy,
        Self::MetBy,
        Self::After,
    ];

    /// The relation of `a` to `b`, neither empty.
    pub fn of(a: SectorRange, b: SectorRange) -> Self {
        use std::cmp::Ordering::{Equal, Greater, Less};
        match (a.start.cmp(&b.start), a.end().cmp(&b.end())) {
            (Equal, Equal) => Self::Equals,
            (Equal, Less) => Self::Starts,
            (Equal, Greater) => Self::StartedBy,
            (Greater, Equal) => Self::Finishes,
            (Less, Equal) => Self::FinishedBy,
            (Greater, Less) => Self::During,
            (Less, Greater) => Self::Contains,
            (Less, Less) => match a.end().cmp(&b.start) {
                Less => Self::Before,
                Equal => Self::Meets,
                Greater => Self::Overlaps,
            },
            (Greater, Greater) => match b.end().cmp(&a.start) {
                Less => Self::After,
                Equal => Self::MetBy,
                Greater => Self::OverlappedBy,
            },
        }
    }

    /// True when the two have a sector in common.
    pub fn overlaps(self) -> bool {
        !matches!(self, Self::Before | Self::Meets | Self::MetBy | Self::After)
    }

    /// True when it can hold between ranges of one length.
    pub fn of_equal_lengths(self) -> bool {
        !self.overlaps() || matches!(self, Self::Overlaps | Self::Equals | Self::OverlappedBy)
    }

    /// Two ranges of this relation in the first `4 * most` units; of one length when `equal`, which the relation
    /// must allow.
    pub fn draw(self, prng: &mut Prng, most: u64, equal: bool) -> ((u64, u64), (u64, u64)) {
        assert!(!equal || self.of_equal_lengths(), "{self:?} is of different lengths");
        let [p, q, r, s] = if equal {
            // Four points that make the two lengths equal, whichever way this relation uses them.
            let (len, gap) = (prng.range(2, most.max(2)), prng.range(1, most));
            match self {
                Self::Overlaps | Self::OverlappedBy => {
                    let step = prng.range(1, len - 1);
                    [0, step, len, len + step]
                }
                Self::Before | Self::After => [0, len, len + gap, 2 * len + gap],
                _ => [0, len, 2 * len, 2 * len + gap],
            }
        } else {
            let mut at = 0;
            let mut points = [0; 4];
            for point in &mut points[1..] {
                at += prng.range(1, most);
                *point = at;
            }
            points
        };
        match self {
            Self::Before => ((p, q), (r, s)),
            Self::Meets => ((p, q), (q, r)),
            Self::Overlaps => ((p, r), (q, s)),
            Self::Starts => ((p, q), (p, r)),
            Self::During => ((q, r), (p, s)),
            Self::Finishes => ((q, r), (p, r)),
            Self::Equals => ((p, q), (p, q)),
            Self::FinishedBy => ((p, r), (q, r)),
            Self::Contains => ((p, s), (q, r)),
            Self::StartedBy => ((p, r), (p, q)),
            Self::OverlappedBy => ((q, s), (p, r)),
            Self::MetBy => ((q, r), (p, q)),
            Self::After => ((r, s), (p, q)),
        }
    }
}

/// Which two ranges of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pair {
    /// The source and the destination of one segment.
    Own,
    /// The source of one and the destination of another.
    Cross,
    /// Two destinations.
    Destinations,
}

impl Pair {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Own, Self::Cross, Self::Destinations];
}

/// Every pair of ranges of a copy to `volume` that counts for overlap, and its relation: of a source to a
/// destination, or of a destination to a later one. Ranges that pass 2^64 are left out.
pub fn relations(volume: VolumeId, command: &CopyCommand) -> impl Iterator<Item = (Pair, Relation)> + '_ {
    let checked =
        |start: Sector, len: Sectors| SectorRange::new(start, len).filter(|range| !range.is_empty());
    let numbered = || command.segments.iter().enumerate();
    numbered().flat_map(move |(i, a)| {
        let source = checked(a.source.start, a.source.len).filter(|_| a.source_volume == volume);
        let own = checked(a.destination, a.source.len);
        numbered().filter_map(move |(j, b)| Some((j, checked(b.destination, b.source.len)?))).flat_map(
            move |(j, destination)| {
                let pair = if i == j { Pair::Own } else { Pair::Cross };
                let to_source = source.map(|source| (pair, Relation::of(source, destination)));
                let later = own.filter(|_| i < j);
                let to_own = later.map(|own| (Pair::Destinations, Relation::of(own, destination)));
                to_source.into_iter().chain(to_own)
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_what_was_asked_for() {
        let mut prng = Prng::new(5);
        let range = |(start, end)| SectorRange::between(Sector(start), Sector(end));
        for relation in Relation::ALL {
            for round in 0..200 {
                let equal = relation.of_equal_lengths() && round % 2 == 0;
                let (a, b) = relation.draw(&mut prng, 6, equal);
                assert_eq!(Relation::of(range(a), range(b)), relation);
                assert_eq!(relation.overlaps(), range(a).overlaps(range(b)));
                assert!(!equal || range(a).len == range(b).len);
            }
        }
    }
}
