//! Sectors that read wrong. The data below is pristine: what is wrong is kept here, moves with copies and goes with
//! what is written.

use crate::device::{Link, Plan, Step, Steps, StoreRange};
use crate::range_map::RangeMap;
use crate::request::VolumeId;
use crate::timing::chance::Chance;
use crate::units::{PhysSector, Sector, SectorRange, Sectors};
use smallvec::SmallVec;

/// Bits of a sector.
const BITS: u32 = 4096;

/// The marks of a pool's volumes: sectors to the rule that spoiled them.
#[derive(Debug, Default)]
pub(super) struct Marks {
    volumes: Vec<RangeMap<u32>>,
}

impl Marks {
    pub(super) fn is_empty(&self) -> bool {
        self.volumes.iter().all(RangeMap::is_empty)
    }

    fn of(&mut self, volume: VolumeId) -> &mut RangeMap<u32> {
        if self.volumes.len() <= volume.index() {
            self.volumes.resize_with(volume.index() + 1, RangeMap::new);
        }
        &mut self.volumes[volume.index()]
    }

    /// A sector reads wrong from now on.
    pub(super) fn mark(&mut self, volume: VolumeId, sector: Sector, rule: u32) {
        self.of(volume).insert(sector.0..sector.0 + 1, rule, &mut |_| {});
    }

    /// Every sector of a volume is as it should be.
    pub(super) fn clear(&mut self, volume: VolumeId) {
        *self.of(volume) = RangeMap::new();
    }

    /// What a rule spoiled is as it should be.
    pub(super) fn heal(&mut self, rule: u32) {
        for marks in &mut self.volumes {
            let end = marks.iter().last().map_or(0, |piece| piece.range.end);
            marks.update(0..end, &mut |_, old| old.filter(|by| *by != rule));
        }
    }

    /// A link was carried out: what it wrote is as its source was, or as it should be.
    pub(super) fn carried_out(&mut self, link: &Link) {
        let Some(to) = link.destination else { return };
        let mut moved: SmallVec<[(u64, u64, u32); 2]> = SmallVec::new();
        if let Some((from, source)) = link.source {
            let pieces = self.of(from).overlapping(source.start.0..source.end().0);
            moved.extend(pieces.map(|piece| {
                (piece.range.start - source.start.0, piece.range.end - source.start.0, piece.value)
            }));
        }
        let marks = self.of(link.volume);
        marks.remove(to.start.0..to.end().0, &mut |_| {});
        for (start, end, rule) in moved {
            let (start, end) = (to.start.0 + start, (to.start.0 + end).min(to.end().0));
            marks.insert(start..end, rule, &mut |_| {});
        }
    }

    /// Lets a plan that reads spoiled sectors into its port read them wrong, one bit of a logical block at most. `block`:
    /// the logical block of a volume.
    pub(super) fn spoil(&mut self, plan: &mut Plan, block: impl Fn(VolumeId) -> Sectors) {
        let Some((volume, source)) = plan.link.source else { return };
        let bad: SmallVec<[(u64, u32); 4]> = self
            .of(volume)
            .overlapping(source.start.0..source.end().0)
            .flat_map(|piece| piece.range.map(move |sector| (sector, piece.value)))
            .map(|(sector, rule)| (sector - source.start.0, bit_of(rule)))
            .collect();
        for (port, bit) in bad {
            spoil_one(&mut plan.steps, Sectors(port), block(volume), bit);
        }
    }
}

/// The same bit for all that a rule spoils, so that a copy of a spoiled sector is its equal.
fn bit_of(rule: u32) -> u32 {
    Chance::new(u64::from(rule)).below(BITS)
}

/// Splits the step that fills the sector of the port at `sector`, so that its logical block is read by itself.
fn spoil_one(steps: &mut Steps, sector: Sectors, block: Sectors, bit: u32) {
    let place = |step: &Step| match step {
        Step::Read { from, port: at } => Some((*at, from.len, Some(from.start))),
        Step::ReadZeroes { port: at, len } => Some((*at, *len, None)),
        Step::ReadFlipped { .. }
        | Step::Write { .. }
        | Step::Move { .. }
        | Step::Zero { .. }
        | Step::Trim { .. }
        | Step::Sync
        | Step::Commit(_) => None,
    };
    let found = steps.iter().enumerate().find_map(|(index, step)| {
        let found = place(step).filter(|(at, len, _)| (at.0..at.0 + len.0).contains(&sector.0));
        found.map(|found| (index, found))
    });
    // A copy inside the store moves the bytes as they are; its mark moves with it.
    let Some((index, (at, len, from))) = found else { return };
    let piece = |start: u64, end: u64| match from {
        Some(from) => Step::Read {
            from: StoreRange { start: from + Sectors(start - at.0), len: Sectors(end - start) },
            port: Sectors(start),
        },
        None => Step::ReadZeroes { port: Sectors(start), len: Sectors(end - start) },
    };
    let port = Sectors((sector.0 - sector.0 % block.0).max(at.0));
    let end = (port.0 + block.0).min(at.0 + len.0);
    let mut pieces: SmallVec<[Step; 3]> = SmallVec::new();
    if at < port {
        pieces.push(piece(at.0, port.0));
    }
    let from: Option<PhysSector> = from.map(|from| from + (port - at));
    let bit = bit + u32::try_from(sector.0 - port.0).unwrap_or(0) * BITS;
    pieces.push(Step::ReadFlipped { from, len: Sectors(end - port.0), port, bit });
    if end < at.0 + len.0 {
        pieces.push(piece(end, at.0 + len.0));
    }
    steps.remove(index);
    steps.insert_many(index, pieces);
}

/// The sector at `offset` of what a plan that begins at `done` of its request works on.
pub(super) fn sector_at(link: &Link, done: Sectors, offset: Sectors) -> Option<Sector> {
    let range: SectorRange = link.destination?;
    let inside = offset.0.checked_sub(done.0).filter(|inside| *inside < range.len.0)?;
    Some(range.start + Sectors(inside))
}
