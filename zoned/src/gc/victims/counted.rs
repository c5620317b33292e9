//! Zones by their number of live pages.

/// The mark of a zone that is not full.
const NOT_FULL: u32 = u32::MAX;

#[derive(Debug)]
pub(in crate::gc) struct Counted {
    /// The zones with each number of live pages, in no order.
    lists: Vec<Vec<u32>>,
    /// Where each zone is in its list.
    places: Vec<u32>,
    /// No list below this one has a zone.
    lowest: usize,
}

impl Counted {
    pub(in crate::gc) fn new(zones: u32, zone_pages: u32) -> Self {
        Self {
            lists: vec![Vec::new(); zone_pages as usize + 1],
            places: vec![NOT_FULL; zones as usize],
            lowest: zone_pages as usize,
        }
    }

    pub(in crate::gc) fn add(&mut self, zone: u32, live: u32) {
        let list = &mut self.lists[live as usize];
        self.places[zone as usize] = u32::try_from(list.len()).expect("fewer than all zones");
        list.push(zone);
        self.lowest = self.lowest.min(live as usize);
    }

    pub(in crate::gc) fn shrunk(&mut self, zone: u32, live: u32) {
        if self.places[zone as usize] != NOT_FULL {
            self.remove(zone, live as usize + 1);
            self.add(zone, live);
        }
    }

    /// The lowest number of those with the fewest live pages. That list is short, so it is looked through.
    pub(in crate::gc) fn take(&mut self) -> Option<u32> {
        let live = (self.lowest..self.lists.len()).find(|&live| !self.lists[live].is_empty())?;
        self.lowest = live;
        let zone = self.lists[live].iter().copied().min()?;
        self.remove(zone, live);
        Some(zone)
    }

    fn remove(&mut self, zone: u32, live: usize) {
        let place = std::mem::replace(&mut self.places[zone as usize], NOT_FULL);
        let list = &mut self.lists[live];
        list.swap_remove(place as usize);
        if let Some(&moved) = list.get(place as usize) {
            self.places[moved as usize] = place;
        }
    }
}
