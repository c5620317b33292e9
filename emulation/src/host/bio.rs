//! Bios, and what becomes of one at a device that lies on others: end-of-device check, remap, split.

use super::BufferId;
use super::chunk::ChunkId;
use super::defect::{Defect, Defects};
use super::design::{Design, Piece, commands, joined, pair_up, pair_up_on, vectors};
use super::stack::{CopyLimits, Kind, Node, Stack};
use crate::status::BlkStatus;
use crate::units::{Sector, SectorRange, Sectors};

/// Which end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// What a bio asks of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// One of the two bios of a pair; `offset` is its place in the copy.
    Half { side: Side, range: SectorRange, offset: Sectors },
    /// One of the bios of a context; `index` is its place among those of its side.
    Translated { side: Side, index: usize, range: SectorRange },
    /// A destination with its sources.
    Vector { destination: Sector, sources: Vec<SectorRange> },
    /// Data to or from the caller's buffer.
    Io { write: bool, range: SectorRange, buffer: BufferId, offset: Sectors },
}

/// A bio at a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bio {
    pub(crate) chunk: ChunkId,
    pub(crate) node: Node,
    pub(crate) part: Part,
}

/// A piece of a bio, one level below; or its end.
pub(crate) type Below = Result<Bio, BlkStatus>;

impl Bio {
    /// Every range that it names on its device.
    fn ranges(&self, defects: Defects) -> Vec<SectorRange> {
        match &self.part {
            Part::Half { range, .. } | Part::Translated { range, .. } | Part::Io { range, .. } => {
                vec![*range]
            }
            Part::Vector { destination, sources } => {
                let len = total(sources);
                let own = SectorRange { start: *destination, len };
                let sources = sources.iter().filter(|_| !defects.has(Defect::SourcesUnchecked));
                std::iter::once(own).chain(sources.copied()).collect()
            }
        }
    }

    /// True when it passes the end of its device.
    pub(crate) fn passes_end(&self, stack: &Stack, defects: Defects) -> bool {
        let end = stack.capacity(self.node).0;
        let passes = |range: &SectorRange| range.start.0.checked_add(range.len.0).is_none_or(|at| at > end);
        self.ranges(defects).iter().any(passes)
    }

    /// What it becomes one level below. A device on others only; the bio is within it.
    pub(crate) fn below(self, stack: &Stack, design: Design, defects: Defects) -> Vec<Below> {
        let Self { chunk, node, part } = self;
        match part {
            Part::Half { side, range, offset } => {
                let pieces = stack.map(node, range);
                if pieces.len() > 1 && design == Design::Pair {
                    // Device mapper does not split a half.
                    return vec![Err(BlkStatus::IoErr)];
                }
                let mut offset = offset;
                let half = |(node, range): (Node, SectorRange)| {
                    let part = Part::Half { side, range, offset };
                    offset += range.len;
                    Ok(Self { chunk, node, part })
                };
                pieces.into_iter().map(half).collect()
            }
            Part::Translated { side, index, range } => match stack.map(node, range)[..] {
                [(node, range)] => {
                    vec![Ok(Self { chunk, node, part: Part::Translated { side, index, range } })]
                }
                // One that would be split ends the whole copy.
                _ => vec![Err(BlkStatus::NotSupp)],
            },
            Part::Vector { destination, sources } => {
                let sources_stay =
                    defects.has(Defect::SourcesNotRemapped) && matches!(stack.kind(node), Kind::Partition(_));
                let mut below = vector_below(stack, node, chunk, destination, &sources);
                if sources_stay
                    && let [Ok(Self { part: Part::Vector { sources: remapped, .. }, .. })] = &mut below[..]
                {
                    *remapped = sources;
                }
                below
            }
            Part::Io { write, range, buffer, offset } => {
                let mut offset = offset;
                let io = |(node, range): (Node, SectorRange)| {
                    let part = Part::Io { write, range, buffer, offset };
                    offset += range.len;
                    Ok(Self { chunk, node, part })
                };
                stack.map(node, range).into_iter().map(io).collect()
            }
        }
    }
}

pub(crate) fn total(ranges: &[SectorRange]) -> Sectors {
    ranges.iter().fold(Sectors::ZERO, |sum, range| sum + range.len)
}

/// Splits a vector at the borders of destination and sources. A piece whose ends lie on different devices has no
/// bio: the caller has to carry its bytes.
fn vector_below(
    stack: &Stack,
    node: Node,
    chunk: ChunkId,
    destination: Sector,
    sources: &[SectorRange],
) -> Vec<Below> {
    let whole = SectorRange { start: destination, len: total(sources) };
    let to = stack.map(node, whole);
    let from: Vec<_> = sources.iter().flat_map(|source| stack.map(node, *source)).collect();
    let mut below: Vec<Below> = Vec::new();
    let mut run: (Option<Node>, Vec<Piece>) = (None, Vec::new());
    for (source, target, piece) in pair_up_on(&from, &to) {
        let device = (source == target).then_some(target);
        if run.0 != device {
            end_run(&mut below, chunk, std::mem::replace(&mut run, (device, Vec::new())));
        }
        match device {
            Some(_) => run.1.push(piece),
            None => below.push(Err(BlkStatus::NotSupp)),
        }
    }
    end_run(&mut below, chunk, run);
    below
}

fn end_run(below: &mut Vec<Below>, chunk: ChunkId, (node, pieces): (Option<Node>, Vec<Piece>)) {
    let Some(node) = node else { return };
    let bios = vectors(&pieces, Defects::NONE).into_iter();
    below.extend(
        bios.map(|(destination, sources)| {
            Ok(Bio { chunk, node, part: Part::Vector { destination, sources } })
        }),
    );
}

/// Cuts a vector to the limits of a disk, as `bio_split_copy` does: the front goes, the rest is looked at anew.
pub(crate) fn split_vector(
    destination: Sector,
    sources: &[SectorRange],
    limits: &CopyLimits,
) -> Vec<Vec<Piece>> {
    let whole = SectorRange { start: destination, len: total(sources) };
    let sources = joined(sources.iter().copied());
    commands(&pair_up(&sources, &[whole]), limits)
}
