//! What a caller checks of a copy, and the steps that it submits it in.

use super::bio::{Bio, Part, Side, total};
use super::chunk::{Chunk, ChunkId};
use super::copier::{Copier, HostCopy, Step, Task};
use super::defect::Defect;
use super::design::{Design, Piece, commands, joined, vectors};
use super::stack::{CopyLimits, Node};
use crate::status::BlkStatus;
use crate::units::{SectorRange, Sectors};

impl Copier {
    pub(super) fn admit(&self, copy: &HostCopy, total: Sectors) -> Result<(), BlkStatus> {
        let sum = |ranges: &[SectorRange]| {
            ranges.iter().try_fold(0u64, |sum, range| {
                let end = range.start.0.checked_add(range.len.0);
                if range.is_empty() { None } else { end.and(sum.checked_add(range.len.0)) }
            })
        };
        let (from, to) = (sum(&copy.sources), sum(&copy.destinations));
        if from.is_none() || from != to {
            return Err(BlkStatus::Inval);
        }
        if total.is_zero() {
            let accepted = self.defects.has(Defect::EmptyAccepted);
            return Err(if accepted { BlkStatus::Ok } else { BlkStatus::Inval });
        }
        let block = self.stack.logical_block(copy.from).max(self.stack.logical_block(copy.to)).0;
        let mut ranges = copy.sources.iter().chain(&copy.destinations);
        if !ranges.all(|range| range.start.0.is_multiple_of(block) && range.len.0.is_multiple_of(block)) {
            return Err(BlkStatus::Inval);
        }
        let limits = self.stack.copy_limits(copy.to, self.design);
        if self.defects.has(Defect::LimitExclusive) && total >= limits.bytes && !limits.is_none() {
            return Err(BlkStatus::Inval);
        }
        if self.overlaps(copy) { Err(BlkStatus::CopyOverlap) } else { Ok(()) }
    }

    /// True when a destination shares a sector of a disk with a source or another destination.
    fn overlaps(&self, copy: &HostCopy) -> bool {
        let places = |node: Node, ranges: &[SectorRange]| -> Vec<(Node, SectorRange)> {
            let whole = SectorRange { start: Default::default(), len: self.stack.capacity(node) };
            let within = ranges.iter().filter_map(|range| whole.intersection(*range));
            within.flat_map(|range| self.stack.flatten(node, range)).collect()
        };
        let first_only = self.defects.has(Defect::OverlapOfFirstOnly);
        let looked_at = if first_only { &copy.destinations[..1] } else { &copy.destinations[..] };
        let (from, to) = (places(copy.from, &copy.sources), places(copy.to, looked_at));
        let meet = |a: &(Node, SectorRange), b: &(Node, SectorRange)| a.0 == b.0 && a.1.overlaps(b.1);
        to.iter().enumerate().any(|(index, range)| {
            from.iter().any(|source| meet(source, range))
                || to[..index].iter().any(|other| meet(other, range))
        })
    }

    /// Makes the steps of the design, or begins the fallback where the devices take no copy.
    pub(super) fn offload(&mut self, number: u32) {
        let Task { copy: HostCopy { from, to, .. }, .. } = self.tasks[number as usize];
        let limits = self.stack.copy_limits(to, self.design);
        let others = self.stack.copy_limits(from, self.design);
        let same = from == to || self.design.crosses_devices();
        if limits.is_none() || others.is_none() || !same {
            return self.fall_back(number);
        }
        let pieces = self.task(number).pieces.clone();
        let all = self.task(number).total;
        match self.design {
            Design::Pair | Design::Matched => {
                let one = CopyLimits { segments: 1, ..limits };
                for command in commands(&pieces, &one) {
                    let piece = command[0];
                    let chunk = self.chunk(number, piece.source.len, 2);
                    let half = |side, range| Part::Half { side, range, offset: Sectors::ZERO };
                    let parts = vec![
                        (to, half(Side::Destination, piece.destination_range())),
                        (from, half(Side::Source, piece.source)),
                    ];
                    self.steps(number, chunk, parts, true, true);
                }
            }
            Design::Vector => {
                let vectors = vectors(&pieces, self.defects);
                let last = vectors.len() - 1;
                for (index, (destination, sources)) in vectors.into_iter().enumerate() {
                    let chunk = self.chunk(number, total(&sources), 1);
                    let parts = vec![(to, Part::Vector { destination, sources })];
                    self.steps(number, chunk, parts, index == 0, index == last);
                }
            }
            Design::Context => {
                let whole = CopyLimits { bytes: all, segment: all, segments: u32::MAX };
                let ignored = self.defects.has(Defect::LimitsIgnored);
                for command in commands(&pieces, if ignored { &whole } else { &limits }) {
                    let side = |side, node, ranges: Vec<SectorRange>| {
                        let part = move |(index, range)| (node, Part::Translated { side, index, range });
                        ranges.into_iter().enumerate().map(part)
                    };
                    let sources = joined(command.iter().map(|piece| piece.source));
                    let destinations = joined(command.iter().map(Piece::destination_range));
                    let len = total(&sources);
                    let extra =
                        if self.defects.has(Defect::ReferencePerSource) { sources.len() - 1 } else { 0 };
                    let parts: Vec<_> = side(Side::Source, from, sources)
                        .chain(side(Side::Destination, to, destinations))
                        .collect();
                    let chunk = self.chunk(number, len, parts.len() as u64);
                    self.chunks.get_mut(&chunk).expect("just made").pending += extra as u64;
                    self.steps(number, chunk, parts, false, false);
                }
            }
        }
    }

    pub(super) fn chunk(&mut self, number: u32, len: Sectors, bios: u64) -> ChunkId {
        self.next_chunk += 1;
        let id = ChunkId(self.next_chunk);
        self.chunks.insert(id, Chunk::new(number, bios));
        self.task(number).chunks.push((id, len, None));
        id
    }

    pub(super) fn steps(
        &mut self,
        number: u32,
        chunk: ChunkId,
        parts: Vec<(Node, Part)>,
        plug: bool,
        unplug: bool,
    ) {
        let steps = &mut self.task(number).steps;
        steps.extend(plug.then_some(Step::Plug));
        steps.extend(parts.into_iter().map(|(node, part)| Step::Bio(Bio { chunk, node, part })));
        steps.extend(unplug.then_some(Step::Unplug));
    }
}
