//! Zones by their number of live pages: a list for each number, the latest arrival in front.

use super::NIL;

#[derive(Debug)]
pub(in crate::gc) struct Counted {
    links: Vec<Link>,
    /// The first zone with each number of live pages.
    fronts: Vec<u32>,
    /// No list below this one has a zone.
    lowest: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
    /// In a list.
    full: bool,
}

impl Counted {
    pub(in crate::gc) fn new(zones: u32, zone_pages: u32) -> Self {
        Self {
            links: vec![Link { before: NIL, after: NIL, full: false }; zones as usize],
            fronts: vec![NIL; zone_pages as usize + 1],
            lowest: zone_pages as usize,
        }
    }

    pub(in crate::gc) fn add(&mut self, zone: u32, live: u32) {
        let after = std::mem::replace(&mut self.fronts[live as usize], zone);
        self.links[zone as usize] = Link { before: NIL, after, full: true };
        if let Some(link) = self.links.get_mut(after as usize) {
            link.before = zone;
        }
        self.lowest = self.lowest.min(live as usize);
    }

    pub(in crate::gc) fn shrunk(&mut self, zone: u32, live: u32) {
        if self.links[zone as usize].full {
            self.remove(zone, live as usize + 1);
            self.add(zone, live);
        }
    }

    /// Of the zones with the fewest live pages the latest that came to be so.
    pub(in crate::gc) fn take(&mut self) -> Option<u32> {
        self.lowest += self.fronts[self.lowest..].iter().position(|front| *front != NIL)?;
        let zone = self.fronts[self.lowest];
        self.remove(zone, self.lowest);
        Some(zone)
    }

    fn remove(&mut self, zone: u32, live: usize) {
        let Link { before, after, .. } = self.links[zone as usize];
        self.links[zone as usize].full = false;
        match self.links.get_mut(before as usize) {
            Some(link) => link.after = after,
            None => self.fronts[live] = after,
        }
        if let Some(link) = self.links.get_mut(after as usize) {
            link.before = before;
        }
    }
}
