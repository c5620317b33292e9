//! What a zone may be when the power fails: what it was in the last snapshot, what it is, or what it was in between.

use super::{Generation, Zones};
use emulation::zone::ZoneCondition;
use emulation::{SectorRange, Sectors};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// What is kept of a zone: its condition and the end of its highest finished write.
pub(crate) type Kept = (ZoneCondition, Sectors);

/// What a zone goes back to when the power fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Back {
    pub(crate) kept: Kept,
    /// The part of it in which nothing is kept that is not durable.
    pub(crate) undone: SectorRange,
}

/// What happened to a zone since the last snapshot.
#[derive(Clone, Debug)]
pub(super) struct Dirty {
    /// What it was in the snapshot.
    was: Kept,
    /// Ends of finished writes behind which nothing else changed of what lies below: pointers to go back to, rising.
    points: SmallVec<[Sectors; 4]>,
    /// It was reset, finished or failed: what lies below a pointer is not told by the pointer any more.
    turned: bool,
}

impl Dirty {
    /// The most pointers that are remembered.
    const POINTS: usize = 16;

    pub(super) fn new(was: Kept) -> Self {
        Self { was, points: SmallVec::new(), turned: false }
    }

    /// The zone is recorded anew.
    pub(super) fn changed(&mut self, from: Kept, to: Kept) {
        let grows = from.1 < to.1;
        let plain = |kept: Kept| {
            matches!(kept.0, ZoneCondition::Empty | ZoneCondition::Closed | ZoneCondition::ExpOpen)
        };
        if !plain(from) || to.1 < from.1 || (!plain(to) && !grows) {
            self.turned = true;
            self.points.clear();
        }
        if self.turned || !grows || from.1.is_zero() || from.1 == self.was.1 {
            return;
        }
        if self.points.len() == Self::POINTS {
            // Every other one, so that they stay spread over all that was written.
            let mut odd = false;
            self.points.retain(|_| {
                odd = !odd;
                odd
            });
        }
        self.points.push(from.1);
    }

    /// The zone is what it was when it was this.
    fn back_to(&mut self, kept: Kept) {
        if kept == self.was {
            *self = Self::new(self.was);
        }
        self.points.retain(|point| *point < kept.1);
    }

    /// What happened after this, if anything did.
    pub(super) fn extend(&mut self, later: Option<Self>) {
        let Some(later) = later else { return };
        self.turned |= later.turned;
        if self.turned {
            self.points.clear();
        } else {
            self.points.extend(later.points);
            self.points.truncate(Self::POINTS);
        }
    }
}

impl Zones {
    /// The power fails: what was being written is not there, no zone is open, and nothing that was begun before ends
    /// well. Zones of `back` go back to what is said there. `generation`: the next.
    pub(crate) fn lose_power(&mut self, generation: u64, back: &BTreeMap<u32, Back>) {
        let capacity = self.geometry.capacity;
        for zone in self.geometry.conventional..self.count() {
            let state = self.zone_mut(zone);
            state.generation = Generation { content: generation, write: generation };
            let (condition, wp) = back.get(&zone).map_or((state.condition, state.written), |back| back.kept);
            (state.wp, state.written) = (wp, wp);
            let to = match condition {
                ZoneCondition::Empty
                | ZoneCondition::ImpOpen
                | ZoneCondition::ExpOpen
                | ZoneCondition::Closed => match wp {
                    Sectors::ZERO => ZoneCondition::Empty,
                    whole if whole == capacity => ZoneCondition::Full,
                    _ => ZoneCondition::Closed,
                },
                ZoneCondition::NotWp
                | ZoneCondition::Readonly
                | ZoneCondition::Full
                | ZoneCondition::Offline => condition,
            };
            self.change(zone, to);
        }
    }

    /// These zones went back and were recorded: from what they are now on it counts what happens to them.
    pub(crate) fn went_back(&mut self, back: &BTreeMap<u32, Back>) {
        for (zone, Back { kept, .. }) in back {
            self.dirty.entry(*zone).and_modify(|dirty| dirty.back_to(*kept));
        }
    }

    /// The sequential zones.
    pub(crate) fn sequential(&self) -> std::ops::Range<u32> {
        self.geometry.conventional..self.count()
    }

    /// The zones that were recorded since the last snapshot, each with what it was then and the pointers since, to which it
    /// can go back; nothing for those that failed or are being reset.
    pub(crate) fn undoable(&self) -> impl Iterator<Item = (u32, Option<(Kept, Vec<Sectors>)>)> + '_ {
        self.dirty.iter().map(|(&zone, dirty)| {
            let state = self.zone(zone);
            let failed = [dirty.was.0, state.condition]
                .iter()
                .any(|condition| matches!(condition, ZoneCondition::Readonly | ZoneCondition::Offline));
            if failed || state.resetting {
                return (zone, None);
            }
            (zone, Some((dirty.was, dirty.points.to_vec())))
        })
    }

    /// Takes out of `back`, from the first zone on, what would leave more zones active than may be.
    pub(crate) fn bound_active(&self, back: &mut BTreeMap<u32, Back>) {
        let active = |(condition, wp): Kept| match condition {
            ZoneCondition::Empty
            | ZoneCondition::ImpOpen
            | ZoneCondition::ExpOpen
            | ZoneCondition::Closed => !wp.is_zero() && wp != self.geometry.capacity,
            ZoneCondition::NotWp | ZoneCondition::Readonly | ZoneCondition::Full | ZoneCondition::Offline => {
                false
            }
        };
        let is = |zone: u32| active((self.condition(zone), self.zone(zone).written));
        let count = |back: &BTreeMap<u32, Back>| {
            let after = |zone: u32| back.get(&zone).map_or_else(|| is(zone), |back| active(back.kept));
            self.sequential().filter(|zone| after(*zone)).count() as u64
        };
        let most = u64::from(self.geometry.max_active);
        if most > 0 && count(back) > most {
            // Without those that would be active again none is that is not now.
            back.retain(|zone, back| is(*zone) || !active(back.kept));
        }
    }
}
