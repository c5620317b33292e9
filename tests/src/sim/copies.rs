//! Copies of every shape: whole blocks, heads and tails, incongruent, across volumes, overlapping, and those that
//! have to be refused.

use super::relation::{Pair, Relation};
use super::workload::{Target, Workload};
use emulation::{
    Bytes, CopyCommand, CopySegment, Flags, Limits, Op, Request, RequestId, Sector, SectorRange, Sectors,
    VolumeId,
};

/// A segment before its places are known: its length, and the place of source and destination in a map block
/// where that matters.
#[derive(Clone, Copy, Debug)]
struct Sketch {
    len: u64,
    source_phase: Option<u64>,
    destination_phase: Option<u64>,
}

impl Workload<'_> {
    pub(super) fn copy(&mut self, id: RequestId) -> Request {
        let copies = self.options.copies;
        let weights = [
            copies.whole,
            copies.head_tail,
            copies.incongruent,
            copies.related,
            copies.overlapping,
            copies.refused,
        ];
        let mut flags = Flags::NONE;
        let aim = self.aim();
        let volume = aim.map_or_else(|| self.volume(), |target| target.volume);
        let kind = self.prng.weighted(&weights).unwrap_or(0);
        let command = match kind {
            0..=2 if self.zones.volumes.contains_key(&volume) => self.zone_copy(volume, &mut flags),
            3 => {
                if self.prng.one_in(4) {
                    flags = flags | Flags::MAY_OVERLAP;
                }
                self.related(volume)
            }
            4 => {
                flags = flags | Flags::MAY_OVERLAP;
                self.overlapping(volume, aim)
            }
            kind => {
                let sketches = self.sketches(volume, kind);
                self.lay_out(volume, &sketches, aim)
            }
        };
        if self.prng.chance(self.options.fast_only) {
            flags = flags | Flags::FAST_ONLY;
        }
        if self.prng.chance(self.options.fua) {
            flags = flags | Flags::FUA;
        }
        let mut request = Request { id, volume, op: Op::Copy(command), flags };
        if kind == 5 {
            self.spoil_copy(&mut request);
        }
        request
    }

    fn segment_count(&mut self) -> u64 {
        match self.prng.below(64) {
            0 => self.prng.range(1, 128),
            1..=24 => 1,
            _ => self.prng.skewed(self.options.segments),
        }
    }

    fn sketches(&mut self, volume: VolumeId, kind: usize) -> Vec<Sketch> {
        let limits = &self.volumes[&volume];
        let (block, map_block) = (limits.logical_block.0, limits.map_block.0);
        let count = self.segment_count();
        let share =
            (limits.capacity.0 / (2 * count)).clamp(block, limits.copy_max_segment_bytes.whole_sectors().0);
        (0..count)
            .map(|_| {
                let whole = kind == 0 || (kind == 2 && self.prng.one_in(3));
                let unit = if whole && share >= map_block { map_block } else { block };
                let most = if self.prng.one_in(8) { share } else { share.min(4 * map_block.max(8)) };
                let len = self.prng.skewed((most / unit).max(1)) * unit;
                let phase = self.prng.below(map_block / block) * block;
                let (source_phase, destination_phase) = match kind {
                    _ if whole => (Some(0), Some(0)),
                    2 => (None, None),
                    _ => (Some(phase), Some(phase)),
                };
                Sketch { len, source_phase, destination_phase }
            })
            .collect()
    }

    /// Gives each sketch its places: destinations apart from each other and from the sources of their volume, in any
    /// order, many of them touching. What finds no room is left out.
    fn lay_out(&mut self, volume: VolumeId, sketches: &[Sketch], aim: Option<Target>) -> CopyCommand {
        let limits = &self.volumes[&volume];
        let (capacity, block, map_block) = (limits.capacity.0, limits.logical_block.0, limits.map_block.0);
        let others: Vec<VolumeId> = self.others(volume);
        let cross = if others.is_empty() { 0 } else { self.prng.pick(&[0, 0, 1, 2, 4]) };
        let sources: Vec<VolumeId> = sketches
            .iter()
            .map(|_| if self.prng.below(4) < cross { self.prng.pick(&others) } else { volume })
            .collect();
        // Even numbers are sources, odd ones destinations.
        let mut items: Vec<usize> =
            (0..2 * sketches.len()).filter(|item| item % 2 == 1 || sources[item / 2] == volume).collect();
        if self.prng.one_in(2) {
            self.prng.shuffle(&mut items);
        }
        let total: u64 = sketches.iter().map(|sketch| sketch.len).sum();
        let mut at = self.start(capacity, block, (2 * total).min(capacity), aim.map(|target| target.range));
        let gaps = self.prng.pick(&[0, 1, 3]) * block;
        let mut places = vec![None; 2 * sketches.len()];
        for item in items {
            let sketch = sketches[item / 2];
            let phase = if item % 2 == 0 { sketch.source_phase } else { sketch.destination_phase };
            at += self.prng.below(gaps / block + 1) * block;
            if let Some(phase) = phase {
                at += (map_block + phase - at % map_block) % map_block;
            }
            if at + sketch.len <= capacity {
                places[item] = Some(at);
                at += sketch.len;
            }
        }
        let mut segments = Vec::new();
        for (index, sketch) in sketches.iter().enumerate() {
            let source = if sources[index] == volume {
                places[2 * index]
            } else {
                self.anywhere(sources[index], sketch)
            };
            if let (Some(source), Some(destination)) = (source, places[2 * index + 1]) {
                segments.push(segment(sources[index], source, sketch.len, destination));
            }
        }
        CopyCommand { segments: segments.into() }
    }

    /// A place of the sketch's source on another volume.
    fn anywhere(&mut self, volume: VolumeId, sketch: &Sketch) -> Option<u64> {
        let aim = self.aim().filter(|target| target.volume == volume);
        let limits = &self.volumes[&volume];
        let (capacity, map_block) = (limits.capacity.0, limits.map_block.0);
        if sketch.len > capacity {
            return None;
        }
        let start = self.start(capacity, limits.logical_block.0, sketch.len, aim.map(|target| target.range));
        let start = match sketch.source_phase {
            Some(phase) => start - start % map_block + phase,
            None => start,
        };
        (start + sketch.len <= capacity).then_some(start)
    }

    pub(super) fn others(&self, volume: VolumeId) -> Vec<VolumeId> {
        let same = |limits: &Limits| limits.logical_block == self.volumes[&volume].logical_block;
        self.volumes.iter().filter(|(id, limits)| **id != volume && same(limits)).map(|(&id, _)| id).collect()
    }

    /// Two ranges in one of the thirteen relations, and what makes a command of them.
    fn related(&mut self, volume: VolumeId) -> CopyCommand {
        let limits = &self.volumes[&volume];
        let (block, all) = (limits.logical_block.0, limits.capacity.0 / limits.logical_block.0);
        let relation = self.prng.pick(&Relation::ALL);
        let pair = self.prng.pick(&Pair::ALL);
        let pair = if relation.of_equal_lengths() || pair != Pair::Own { pair } else { Pair::Cross };
        // In all at most 4 * most for the two, and as much again for each partner.
        let most = (all / 16).clamp(1, 2 * self.options.map_block.max(4));
        let ((a, a_end), (b, b_end)) = relation.draw(self.prng, most.max(2), pair == Pair::Own);
        let (a_len, b_len) = (a_end - a, b_end - b);
        let used = a_end.max(b_end) + a_len + b_len;
        if used > all {
            return CopyCommand::default();
        }
        let base = self.prng.range(0, all - used);
        let (partner_a, partner_b) = (used - a_len - b_len, used - b_len);
        let place = |at: u64| (base + at) * block;
        let segment =
            |source, len: u64, destination| segment(volume, place(source), len * block, place(destination));
        let mut segments = match pair {
            Pair::Own => vec![segment(a, a_len, b)],
            Pair::Cross => vec![segment(a, a_len, partner_a), segment(partner_b, b_len, b)],
            Pair::Destinations => vec![segment(partner_a, a_len, a), segment(partner_b, b_len, b)],
        };
        if self.prng.one_in(2) {
            segments.reverse();
        }
        CopyCommand { segments: segments.into() }
    }

    /// Segments whose ranges overlap as chance has it.
    fn overlapping(&mut self, volume: VolumeId, aim: Option<Target>) -> CopyCommand {
        let limits = &self.volumes[&volume];
        let (capacity, block) = (limits.capacity.0, limits.logical_block.0);
        let window = (16 * self.options.map_block).min(capacity);
        let base = self.start(capacity, block, window, aim.map(|target| target.range));
        let segments = (0..self.prng.skewed(8))
            .map(|_| {
                let len = self.prng.skewed((window / block / 2).max(1)) * block;
                let mut place = || base + self.prng.range(0, (window - len) / block) * block;
                segment(volume, place(), len, place())
            })
            .collect();
        CopyCommand { segments }
    }

    /// Makes a copy one that has to be refused, unless the limits of the moment allow it.
    fn spoil_copy(&mut self, request: &mut Request) {
        let limits = &self.volumes[&request.volume];
        let (capacity, block) = (limits.capacity.0, limits.logical_block.0);
        let kind = self.prng.below(10);
        let other = self.volumes.iter().find(|(_, other)| other.logical_block != limits.logical_block);
        let other = other.map_or(VolumeId(77), |(&id, _)| id);
        let blocks = |bytes: Bytes| bytes.whole_sectors().0 / block;
        let Op::Copy(command) = &mut request.op else {
            return;
        };
        let last = command.segments.len();
        if last == 0 {
            return;
        }
        let at = self.prng.index(last);
        let segment = &mut command.segments[at];
        match kind {
            0 => segment.source.len = Sectors((blocks(limits.copy_max_segment_bytes) + 1) * block),
            1 => segment.source.start = Sector(capacity + block - segment.source.len.0.min(capacity)),
            2 => segment.destination = Sector(capacity + block - segment.source.len.0.min(capacity)),
            3 => segment.source.start = Sector(u64::MAX - u64::MAX % block - block),
            4 => segment.destination = Sector(u64::MAX - u64::MAX % block - block),
            5 => segment.source.len = Sectors(0),
            6 => segment.source.start = Sector(segment.source.start.0 + 1),
            7 => segment.source_volume = other,
            8 => command.segments.clear(),
            _ => {
                // One block more than the command may have, or one segment more.
                let segments = u64::from(limits.copy_max_segments) + 1;
                let count = if self.prng.one_in(2) { segments } else { blocks(limits.copy_max_bytes) + 1 };
                if count <= 257 && 2 * count * block <= capacity {
                    let place = |at: u64| at * block;
                    let segments = (0..count)
                        .map(|at| self::segment(request.volume, place(at), block, place(count + at)));
                    command.segments = segments.collect();
                }
            }
        }
    }
}

pub(super) fn segment(source_volume: VolumeId, source: u64, len: u64, destination: u64) -> CopySegment {
    let source = SectorRange { start: Sector(source), len: Sectors(len) };
    CopySegment { source_volume, source, destination: Sector(destination) }
}
