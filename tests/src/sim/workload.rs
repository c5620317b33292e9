//! What is asked of the pool: requests drawn from the seed, most of them aimed at what a live request is about.

use super::options::Options;
use super::prng::Prng;
use super::zones::Zones;
use emulation::{Flags, Limits, Op, Request, RequestId, Sector, SectorRange, Sectors, VolumeId};
use std::collections::BTreeMap;

/// A range that a live request reads or changes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its volume.
    pub volume: VolumeId,
    /// The sectors.
    pub range: SectorRange,
    /// It changes them.
    pub changes: bool,
}

impl Target {
    /// True when the two have a sector in common that one of them changes.
    pub fn meets(&self, other: &Self) -> bool {
        (self.changes || other.changes) && self.volume == other.volume && self.range.overlaps(other.range)
    }

    /// True when both change a part of one map block.
    pub fn shares_part(&self, other: &Self, map_block: u64) -> bool {
        let parts = |target: &Self| {
            let (start, end) = (target.range.start.0, target.range.end().0);
            let head = (start % map_block != 0).then_some(start / map_block);
            [head, (end % map_block != 0).then_some(end / map_block)]
        };
        let shared = parts(self).into_iter().flatten().any(|block| parts(other).contains(&Some(block)));
        self.changes && other.changes && self.volume == other.volume && shared
    }

    /// True when they could share a map block of any size.
    pub fn near(&self, other: &Self) -> bool {
        let (from, to) = (self.range.start.0.saturating_sub(128), self.range.end().0 + 128);
        self.volume == other.volume && from < other.range.end().0 && other.range.start.0 < to
    }
}

/// The ranges of a request: those of live ones are what others are aimed at.
pub fn targets(request: &Request) -> Vec<Target> {
    let target = |volume, range, changes| Target { volume, range, changes };
    match &request.op {
        Op::Read(range) => vec![target(request.volume, *range, false)],
        Op::Write(range) | Op::Discard(range) | Op::WriteZeroes(range) => {
            vec![target(request.volume, *range, true)]
        }
        Op::Copy(command) => command
            .segments
            .iter()
            .flat_map(|segment| {
                let source = target(segment.source_volume, segment.source, false);
                [source, target(request.volume, segment.destination_range(), true)]
            })
            .collect(),
        Op::Flush | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => Vec::new(),
    }
}

/// The generator of requests.
#[derive(Debug)]
pub struct Workload<'a> {
    pub(super) options: &'a Options,
    pub(super) volumes: &'a BTreeMap<VolumeId, Limits>,
    live: &'a [(RequestId, Target)],
    pub(super) zones: &'a Zones,
    pub(super) prng: &'a mut Prng,
}

impl<'a> Workload<'a> {
    /// A generator for the pool as it is now: there is at least one volume.
    pub fn new(
        options: &'a Options,
        volumes: &'a BTreeMap<VolumeId, Limits>,
        live: &'a [(RequestId, Target)],
        zones: &'a Zones,
        prng: &'a mut Prng,
    ) -> Self {
        Self { options, volumes, live, zones, prng }
    }

    /// The next request.
    pub fn request(&mut self, id: RequestId) -> Request {
        let ops = self.options.ops;
        let weights = [ops.read, ops.write, ops.flush, ops.discard, ops.write_zeroes, ops.copy, ops.zone];
        let mut flags = Flags::NONE;
        let (volume, op) = match self.prng.weighted(&weights) {
            Some(2) => (self.volume(), Op::Flush),
            Some(5) => return self.copy(id),
            Some(6) => {
                let volume = self.volume();
                (volume, self.zone(volume))
            }
            other => {
                let (volume, range) = self.range(matches!(other, Some(3 | 4)));
                let op = match other {
                    Some(1) => Op::Write(range),
                    Some(3) => Op::Discard(range),
                    Some(4) => {
                        if self.prng.chance(self.options.nounmap) {
                            flags = flags | Flags::NOUNMAP;
                        }
                        Op::WriteZeroes(range)
                    }
                    _ => Op::Read(range),
                };
                (volume, op)
            }
        };
        let flags = flags | self.fua(&op);
        let mut request = Request { id, volume, op, flags };
        self.aim_at_pointer(&mut request);
        if self.prng.one_in(100) {
            self.spoil(&mut request);
        }
        request
    }

    fn fua(&mut self, op: &Op) -> Flags {
        let changes = !matches!(op, Op::Read(_) | Op::Flush);
        if changes && self.prng.chance(self.options.fua) { Flags::FUA } else { Flags::NONE }
    }

    pub(super) fn volume(&mut self) -> VolumeId {
        let index = self.prng.index(self.volumes.len());
        *self.volumes.keys().nth(index).expect("the index is below the number of volumes")
    }

    /// A live range to aim at, or none this time.
    pub(super) fn aim(&mut self) -> Option<Target> {
        if self.live.is_empty() || !self.prng.chance(self.options.aimed) {
            return None;
        }
        let (_, target) = self.live[self.prng.index(self.live.len())];
        self.volumes.contains_key(&target.volume).then_some(target)
    }

    /// A range of a volume; a long one may pass the limit of reads and writes.
    fn range(&mut self, long: bool) -> (VolumeId, SectorRange) {
        let aim = self.aim();
        let volume = aim.map_or_else(|| self.volume(), |target| target.volume);
        let limits = &self.volumes[&volume];
        let (block, map_block) = (limits.logical_block.0, limits.map_block.0);
        let most = if long { limits.capacity } else { limits.max_io.min(limits.capacity) };
        let aligned = self.prng.chance(self.options.aligned) && most.0 >= map_block;
        let unit = if aligned { map_block } else { block };
        let small = 4 * map_block.max(8);
        let most = if self.prng.one_in(12) { most.0 } else { most.0.min(small) };
        let len = self.prng.skewed(most / unit) * unit;
        let start = self.start(limits.capacity.0, unit, len, aim.map(|target| target.range));
        (volume, SectorRange { start: Sector(start), len: Sectors(len) })
    }

    /// A start for `len` sectors, a multiple of `unit`: with a sector of `aim` where there is one.
    pub(super) fn start(&mut self, capacity: u64, unit: u64, len: u64, aim: Option<SectorRange>) -> u64 {
        let last = (capacity - len) / unit;
        let (low, high) = match aim {
            Some(range) => {
                let low = (range.start.0 + 1).saturating_sub(len).div_ceil(unit);
                (low.min(last), ((range.end().0 - 1) / unit).min(last))
            }
            None => (0, last),
        };
        self.prng.range(low.min(high), high) * unit
    }

    /// Makes a request one that has to be refused.
    fn spoil(&mut self, request: &mut Request) {
        let capacity = self.volumes[&request.volume].capacity;
        let kind = self.prng.below(5);
        let (Op::Read(range) | Op::Write(range) | Op::Discard(range) | Op::WriteZeroes(range)) =
            &mut request.op
        else {
            return;
        };
        match kind {
            0 => range.start = Sector(capacity.0 + 1 - range.len.0.min(capacity.0)),
            1 => range.start = Sector(u64::MAX - 7),
            2 => range.len = Sectors(0),
            3 => request.volume = VolumeId(99),
            _ => *range = SectorRange { start: Sector(0), len: capacity },
        }
    }
}
