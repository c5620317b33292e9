//! A log-structured store without bytes: where each page lies, and when which zone is collected.

use super::geometry::{Geometry, GeometryError};
use super::ledger::Ledger;
use super::policy::{Layout, Policy};
use super::victims::Victims;
use super::workload::Random;
use std::collections::VecDeque;
use std::fmt::Debug;

/// No page, and no slot.
const NONE: u32 = u32::MAX;

/// A place for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// The zone's number.
    pub zone: u32,
    /// Pages from the start of the zone.
    pub offset: u32,
}

/// Who carries out what a log decides, in this order.
pub trait Media {
    /// The user writes a page.
    fn user(&mut self, page: u32, to: Slot);
    /// The collector moves a live page.
    fn moved(&mut self, page: u32, from: Slot, to: Slot);
    /// Nothing in the zone counts any more; it is to be reset.
    fn emptied(&mut self, zone: u32);
}

/// The media of the policy alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untouched;

impl Media for Untouched {
    fn user(&mut self, _page: u32, _to: Slot) {}
    fn moved(&mut self, _page: u32, _from: Slot, _to: Slot) {}
    fn emptied(&mut self, _zone: u32) {}
}

/// An open zone and the offset of its next page.
#[derive(Clone, Copy, Debug)]
struct Open {
    zone: u32,
    next: u32,
}

/// The log.
#[derive(Debug)]
pub struct Log {
    geometry: Geometry,
    layout: Layout,
    /// Slots are numbered with a power of two a zone, so that a shift finds the zone.
    shift: u32,
    /// The slot of each page.
    slots: Vec<u32>,
    /// The page of each live slot, `NONE` for a dead one. Of slots that are not written, anything.
    pages: Vec<u32>,
    /// Live pages of each zone.
    live: Vec<u32>,
    open: [Option<Open>; 2],
    /// Empty zones, the one that was emptied first in front.
    free: VecDeque<u32>,
    victims: Victims,
    ages: Ages,
    ledger: Ledger,
}

/// When pages were written by the user, kept for policies that ask for it.
#[derive(Debug, Default)]
struct Ages {
    kept: bool,
    of_page: Vec<u64>,
    /// The time of the newest page of each zone.
    newest: Vec<u64>,
}

impl Log {
    /// An empty log.
    ///
    /// # Errors
    /// A geometry that cannot work with the layout.
    pub fn new(geometry: Geometry, policy: Policy, layout: Layout) -> Result<Self, GeometryError> {
        geometry.validate(layout)?;
        let shift = geometry.zone_pages.next_power_of_two().trailing_zeros();
        let zones = geometry.zones as usize;
        let kept = policy == Policy::CostBenefit;
        let ages = Ages {
            kept,
            of_page: if kept { vec![0; geometry.pages as usize] } else { Vec::new() },
            newest: if kept { vec![0; zones] } else { Vec::new() },
        };
        Ok(Self {
            geometry,
            layout,
            shift,
            slots: vec![NONE; geometry.pages as usize],
            pages: vec![NONE; zones << shift],
            live: vec![0; zones],
            open: [None; 2],
            free: (0..geometry.zones).collect(),
            victims: Victims::new(policy, &geometry),
            ages,
            ledger: Ledger::default(),
        })
    }

    /// Its size.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What it did so far.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Where a page lies; `None` when it was never written. Panics for a page past the last.
    pub fn locate(&self, page: u32) -> Option<Slot> {
        let slot = self.slots[page as usize];
        (slot != NONE).then(|| self.slot(slot))
    }

    /// The user writes a page. Zones are collected first when too few are free. Panics for a page past the last.
    pub fn write(&mut self, page: u32, random: &mut impl Random, media: &mut impl Media) {
        assert!(page < self.geometry.pages, "page {page} of {}", self.geometry.pages);
        self.make_room(random, media);
        self.kill(page);
        if self.ages.kept {
            self.ages.of_page[page as usize] = self.ledger.user_pages;
        }
        let to = self.append(page, self.layout.user_log(page));
        media.user(page, self.slot(to));
        self.ledger.user_pages += 1;
    }

    /// Checks that every page lies where the zones say, and that the counts are right. Slow: for tests.
    ///
    /// # Errors
    /// What does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut live = vec![0u32; self.live.len()];
        for (page, &slot) in (0u32..).zip(&self.slots).filter(|(_, slot)| **slot != NONE) {
            if self.pages[slot as usize] != page {
                return Err(format!("page {page} is not in its slot, {:?}", self.slot(slot)));
            }
            live[(slot >> self.shift) as usize] += 1;
        }
        if live != self.live {
            return Err("zones count other pages than they hold".into());
        }
        let free = self.free.iter().filter(|zone| live[**zone as usize] > 0).count();
        if free > 0 {
            return Err(format!("{free} free zones hold live pages"));
        }
        Ok(())
    }

    fn slot(&self, slot: u32) -> Slot {
        Slot { zone: slot >> self.shift, offset: slot & ((1 << self.shift) - 1) }
    }

    fn make_room(&mut self, random: &mut impl Random, media: &mut impl Media) {
        // A pass gains the dead pages of its victim. A policy that looks at none may meet full zones first, but
        // not so often.
        let mut passes = 0u64;
        while self.free.len() < self.layout.reserve() as usize {
            passes += 1;
            assert!(passes <= 64 * u64::from(self.geometry.zones), "the collector gains nothing");
            self.collect(random, media);
        }
    }

    fn collect(&mut self, random: &mut impl Random, media: &mut impl Media) {
        let victim = self.victims.take(&self.live, self.ledger.user_pages, random);
        let first = victim << self.shift;
        for from in first..first + self.geometry.zone_pages {
            let page = self.pages[from as usize];
            if page != NONE {
                let to = self.append(page, self.layout.gc_log(page));
                media.moved(page, self.slot(from), self.slot(to));
            }
        }
        self.ledger.moved_pages += u64::from(self.live[victim as usize]);
        self.ledger.victims += 1;
        self.ledger.victim_pages += u64::from(self.geometry.zone_pages);
        self.live[victim as usize] = 0;
        self.free.push_back(victim);
        media.emptied(victim);
    }

    /// The old copy of a page does not count any more.
    fn kill(&mut self, page: u32) {
        let slot = self.slots[page as usize];
        if slot == NONE {
            return;
        }
        self.pages[slot as usize] = NONE;
        let zone = slot >> self.shift;
        let live = &mut self.live[zone as usize];
        *live -= 1;
        self.victims.shrunk(zone, *live);
    }

    fn append(&mut self, page: u32, log: usize) -> u32 {
        let open = match self.open[log] {
            Some(open) => open,
            None => Open { zone: self.open_zone(), next: 0 },
        };
        let slot = (open.zone << self.shift) + open.next;
        self.slots[page as usize] = slot;
        self.pages[slot as usize] = page;
        self.live[open.zone as usize] += 1;
        if self.ages.kept {
            let newest = &mut self.ages.newest[open.zone as usize];
            *newest = (*newest).max(self.ages.of_page[page as usize]);
        }
        if open.next + 1 < self.geometry.zone_pages {
            self.open[log] = Some(Open { next: open.next + 1, ..open });
        } else {
            self.open[log] = None;
            let newest = self.ages.newest.get(open.zone as usize).copied().unwrap_or(0);
            self.victims.filled(open.zone, self.live[open.zone as usize], newest);
        }
        slot
    }

    fn open_zone(&mut self) -> u32 {
        let zone = self.free.pop_front().expect("the reserve is larger than what a pass takes");
        if self.ages.kept {
            self.ages.newest[zone as usize] = 0;
        }
        zone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gc::SplitMix;
    use crate::gc::workload::{Generator, Workload};

    /// Holds what it is told, as a zoned device would, and panics where one would refuse.
    struct Zones {
        pages: Vec<Vec<u32>>,
        zone_pages: usize,
        written: [u64; 2],
    }

    impl Zones {
        fn write(&mut self, page: u32, to: Slot) {
            let zone = &mut self.pages[to.zone as usize];
            assert_eq!(zone.len(), to.offset as usize, "not at the write pointer");
            assert!(zone.len() < self.zone_pages, "past the capacity");
            zone.push(page);
        }
    }

    impl Media for Zones {
        fn user(&mut self, page: u32, to: Slot) {
            self.write(page, to);
            self.written[0] += 1;
        }

        fn moved(&mut self, page: u32, from: Slot, to: Slot) {
            assert_eq!(self.pages[from.zone as usize][from.offset as usize], page);
            self.write(page, to);
            self.written[1] += 1;
        }

        fn emptied(&mut self, zone: u32) {
            self.pages[zone as usize].clear();
        }
    }

    #[test]
    fn every_policy_and_layout_writes_in_order_and_loses_nothing() {
        let policies = [
            Policy::Greedy,
            Policy::CostBenefit,
            Policy::Fifo,
            Policy::DChoices { d: 3 },
            Policy::WindowedGreedy { window: 4 },
        ];
        for policy in policies {
            for layout in [Layout::OneLog, Layout::GcLog, Layout::HotCold { hot_pages: 30 }] {
                // Zones of a number of pages that is no power of two.
                let geometry = Geometry { pages: 300, zones: 40, zone_pages: 12 };
                let mut log = Log::new(geometry, policy, layout).unwrap();
                let mut zones = Zones { pages: vec![Vec::new(); 40], zone_pages: 12, written: [0; 2] };
                let mut random = SplitMix(1);
                let workload = Workload::HotCold { pages: 10, writes: 90 };
                let generator = Generator::new(workload, geometry.pages).unwrap();
                for n in 0..20_000u32 {
                    let page = if n < geometry.pages { n } else { generator.next(&mut random) };
                    log.write(page, &mut random, &mut zones);
                    if n.is_multiple_of(500) {
                        log.check().unwrap();
                    }
                }
                for page in 0..geometry.pages {
                    let slot = log.locate(page).unwrap();
                    assert_eq!(zones.pages[slot.zone as usize][slot.offset as usize], page);
                }
                let ledger = log.ledger();
                assert_eq!([ledger.user_pages, ledger.moved_pages], zones.written, "{policy}, {layout}");
                assert_eq!(ledger.victim_pages, 12 * ledger.victims);
                assert!(ledger.victims > 1000);
            }
        }
    }

    #[test]
    fn a_log_that_is_as_full_as_may_be_goes_on() {
        for layout in [Layout::OneLog, Layout::GcLog, Layout::HotCold { hot_pages: 3 }] {
            let zones = 12;
            let pages = (zones - layout.reserve() - layout.logs()) * 4 - 1;
            let geometry = Geometry { pages, zones, zone_pages: 4 };
            for policy in [Policy::Greedy, Policy::CostBenefit, Policy::Fifo] {
                let mut log = Log::new(geometry, policy, layout).unwrap();
                let mut random = SplitMix(2);
                for n in 0..5_000u32 {
                    log.write(n % pages, &mut random, &mut Untouched);
                }
                log.check().unwrap();
            }
        }
    }
}
