//! What a loss of power leaves of zones.

use crate::layer::Zoned;
use crate::table::{Back, Kept, Zones};
use emulation::device::Chosen;
use emulation::zone::ZoneCondition;
use emulation::{BlkStatus, Control, Cx, Keep, Out, Sectors, VolumeId};
use std::collections::BTreeMap;

impl Zoned {
    /// The power of a volume fails. A sequential zone keeps all of its writes up to one of them, so that its pointer tells
    /// what is there; one that was reset or finished since the last flush is as before that or as it is.
    pub(crate) fn power_cut(&mut self, cx: &mut Cx<'_>, volume: VolumeId, keep: Keep) -> Out {
        let mut out = Out::new();
        let generation = self.next_generation();
        let mut chosen = Vec::new();
        if let Some(zones) = self.zones(volume) {
            let block = self.inner.limits(volume).expect("a zoned volume").map_block;
            let mut back = choose(zones, keep, block);
            let undone: Vec<_> = back.values().map(|back| back.undone).collect();
            let room = self.inner.undoable(cx.log, volume, &undone);
            if let Some(&first) = back.keys().nth(room) {
                back.split_off(&first);
            }
            zones.bound_active(&mut back);
            for (zone, _) in zones.undoable() {
                let range = zones.range_of(zone);
                let kept = back.get(&zone).map_or(range.len, |back| back.undone.start - range.start);
                let (head, tail) = range.split_at(kept);
                let parts = [Chosen { range: head, keep: true }, Chosen { range: tail, keep: false }];
                chosen.extend(parts.into_iter().filter(|part| !part.range.is_empty()));
            }
            let zones = self.zones_mut(volume).expect("a zoned volume");
            zones.lose_power(generation, &back);
            let sequential = zones.sequential();
            sequential.into_iter().for_each(|zone| self.record(cx, volume, zone));
            self.zones_mut(volume).expect("a zoned volume").went_back(&back);
        }
        self.lose_source(volume);
        self.end_parked(volume, BlkStatus::IoErr, &mut out);
        self.pass(cx, Control::PowerCut(volume, keep, chosen), &mut out);
        out
    }
}

/// Chooses which zones go back, and to what.
fn choose(zones: &Zones, keep: Keep, block: Sectors) -> BTreeMap<u32, Back> {
    let choice = |(zone, was, points): (u32, Kept, Vec<Sectors>)| {
        let range = zones.range_of(zone);
        // A map block with a pointer in it could not be undone in part.
        let points = points.into_iter().filter(|point| point.0.is_multiple_of(block.0));
        let behind = |point| Back { kept: (ZoneCondition::Closed, point), undone: range.split_at(point).1 };
        let whole = Back { kept: was, undone: range };
        let all: Vec<Back> = std::iter::once(whole).chain(points.map(behind)).collect();
        let index = match keep {
            Keep::None => 0,
            Keep::All => return None,
            // The last: it stays as it is.
            Keep::Some(seed) => {
                let drawn = mix(seed ^ u64::from(zone)) % (all.len() as u64 + 1);
                usize::try_from(drawn).expect("there are few")
            }
        };
        all.get(index).map(|back| (zone, *back))
    };
    zones
        .undoable()
        .filter_map(|(zone, undoable)| undoable.and_then(|(was, points)| choice((zone, was, points))))
        .collect()
}

/// 64 random bits from a seed (the finalizer of splitmix64).
fn mix(seed: u64) -> u64 {
    let bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
