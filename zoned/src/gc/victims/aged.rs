//! Zones by their number of live pages, each list with a bound of its oldest: among zones with the same live share the
//! oldest has the highest score, so that a list has to be looked at only when its bound beats what was found before.

/// The mark of a zone that is not full.
const NOT_FULL: u32 = u32::MAX;

#[derive(Debug)]
pub(in crate::gc) struct Aged {
    zones: Vec<Zone>,
    lists: Vec<List>,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    live: u32,
    newest: u64,
}

/// The zones with one number of live pages, and entries of zones that had it once, in no order.
#[derive(Debug)]
struct List {
    /// (time of the newest page, zone).
    entries: Vec<(u64, u32)>,
    /// Zones that have it now.
    count: usize,
    /// No zone here is older.
    oldest: u64,
    /// `(1 - u) / (1 + u)`.
    weight: f64,
}

impl Aged {
    pub(in crate::gc) fn new(zones: u32, zone_pages: u32) -> Self {
        let pages = f64::from(zone_pages);
        let list = |live| {
            let weight = (pages - f64::from(live)) / (pages + f64::from(live));
            List { entries: Vec::new(), count: 0, oldest: u64::MAX, weight }
        };
        Self {
            zones: vec![Zone { live: NOT_FULL, newest: 0 }; zones as usize],
            lists: (0..=zone_pages).map(list).collect(),
        }
    }

    pub(in crate::gc) fn add(&mut self, zone: u32, live: u32, newest: u64) {
        self.zones[zone as usize] = Zone { live, newest };
        self.enter(zone);
    }

    pub(in crate::gc) fn shrunk(&mut self, zone: u32, live: u32) {
        let full = &mut self.zones[zone as usize];
        if full.live != NOT_FULL {
            self.lists[full.live as usize].count -= 1;
            full.live = live;
            self.enter(zone);
        }
    }

    /// The zone of highest score. Of several, the one with the fewest live pages, then the lowest number.
    pub(in crate::gc) fn take(&mut self, now: u64) -> Option<u32> {
        let mut best: Option<(f64, u32)> = None;
        for (live, list) in (0u32..).zip(&mut self.lists) {
            let beats = |highest, since| list.weight * super::super::geometry::to_f64(now - since) > highest;
            if list.count == 0 || best.is_some_and(|(highest, _)| !beats(highest, list.oldest)) {
                continue;
            }
            let Some((newest, zone)) = list.look(live, &self.zones) else { continue };
            let score = list.weight * super::super::geometry::to_f64(now - newest);
            if best.is_none_or(|(highest, _)| score > highest) {
                best = Some((score, zone));
            }
        }
        let (_, zone) = best?;
        let taken = &mut self.zones[zone as usize];
        self.lists[taken.live as usize].count -= 1;
        taken.live = NOT_FULL;
        Some(zone)
    }

    fn enter(&mut self, zone: u32) {
        /// Below this, what is left behind costs less than looking for it.
        const SMALL: usize = 64;
        let Zone { live, newest } = self.zones[zone as usize];
        let list = &mut self.lists[live as usize];
        list.count += 1;
        list.oldest = list.oldest.min(newest);
        list.entries.push((newest, zone));
        if list.entries.len() > SMALL + 2 * list.count {
            list.look(live, &self.zones);
        }
    }
}

impl List {
    /// Drops entries of zones that went on. Gives the oldest of the others, of several the lowest number.
    fn look(&mut self, live: u32, zones: &[Zone]) -> Option<(u64, u32)> {
        self.entries.retain(|&(newest, zone)| {
            let now = zones[zone as usize];
            now.live == live && now.newest == newest
        });
        let oldest = self.entries.iter().copied().min();
        self.oldest = oldest.map_or(u64::MAX, |(newest, _)| newest);
        oldest
    }
}
