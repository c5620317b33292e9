//! Zones in the order in which they were filled.

use super::NIL;

#[derive(Debug)]
pub(in crate::gc) struct Ordered {
    /// The zones before and after each.
    links: Vec<(u32, u32)>,
    first: u32,
    last: u32,
}

impl Ordered {
    pub(in crate::gc) fn new(zones: u32) -> Self {
        Self { links: vec![(NIL, NIL); zones as usize], first: NIL, last: NIL }
    }

    pub(in crate::gc) fn add(&mut self, zone: u32) {
        let before = std::mem::replace(&mut self.last, zone);
        self.links[zone as usize] = (before, NIL);
        match self.links.get_mut(before as usize) {
            Some(link) => link.1 = zone,
            None => self.first = zone,
        }
    }

    /// The zone of the `window` first ones with the fewest live pages, the first of several.
    pub(in crate::gc) fn take(&mut self, live: &[u32], window: u32) -> Option<u32> {
        let (mut best, mut at) = (self.first, self.first);
        for _ in 0..window {
            let Some(&(_, after)) = self.links.get(at as usize) else { break };
            if live[at as usize] < live[best as usize] {
                best = at;
            }
            at = after;
        }
        self.remove(best)
    }

    fn remove(&mut self, zone: u32) -> Option<u32> {
        let &(before, after) = self.links.get(zone as usize)?;
        match self.links.get_mut(before as usize) {
            Some(link) => link.1 = after,
            None => self.first = after,
        }
        match self.links.get_mut(after as usize) {
            Some(link) => link.0 = before,
            None => self.last = before,
        }
        Some(zone)
    }
}
