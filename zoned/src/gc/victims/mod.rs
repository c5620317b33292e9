//! The full zones, indexed for one policy.

mod aged;
mod counted;
mod drawn;
mod ordered;

use super::geometry::Geometry;
use super::policy::Policy;
use super::workload::Random;
use aged::Aged;
use counted::Counted;
use drawn::Drawn;
use ordered::Ordered;

/// The zones that may be collected. Open and free ones are not among them.
#[derive(Debug)]
pub(super) enum Victims {
    Greedy(Counted),
    CostBenefit(Aged),
    /// FIFO is a window of one.
    Window(Ordered, u32),
    Draws(Drawn, u32),
}

impl Victims {
    pub(super) fn new(policy: Policy, geometry: &Geometry) -> Self {
        let Geometry { zones, zone_pages, .. } = *geometry;
        match policy {
            Policy::Greedy => Self::Greedy(Counted::new(zones, zone_pages)),
            Policy::CostBenefit => Self::CostBenefit(Aged::new(zones, zone_pages)),
            Policy::Fifo => Self::Window(Ordered::new(zones), 1),
            Policy::WindowedGreedy { window } => Self::Window(Ordered::new(zones), window.max(1)),
            Policy::DChoices { d } => Self::Draws(Drawn::new(zones), d.max(1)),
        }
    }

    /// A zone is full now, with `live` live pages, the newest written at `newest`.
    pub(super) fn filled(&mut self, zone: u32, live: u32, newest: u64) {
        match self {
            Self::Greedy(zones) => zones.add(zone, live),
            Self::CostBenefit(zones) => zones.add(zone, live, newest),
            Self::Window(zones, _) => zones.add(zone),
            Self::Draws(zones, _) => zones.add(zone),
        }
    }

    /// A page of any zone died; `live` are left.
    pub(super) fn shrunk(&mut self, zone: u32, live: u32) {
        match self {
            Self::Greedy(zones) => zones.shrunk(zone, live),
            Self::CostBenefit(zones) => zones.shrunk(zone, live),
            Self::Window(..) | Self::Draws(..) => {}
        }
    }

    /// Takes the zone to collect out. Panics when none is full.
    pub(super) fn take(&mut self, live: &[u32], now: u64, random: &mut impl Random) -> u32 {
        let zone = match self {
            Self::Greedy(zones) => zones.take(),
            Self::CostBenefit(zones) => zones.take(now),
            Self::Window(zones, window) => zones.take(live, *window),
            Self::Draws(zones, d) => zones.take(live, *d, random),
        };
        zone.expect("most zones are full when room is lacking")
    }
}

/// No zone.
const NIL: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gc::SplitMix;
    use std::cmp::Reverse;

    /// The full zones as a plain list of (zone, live, newest, last change), in the order in which they were filled.
    type Plain = Vec<(u32, u32, u64, u64)>;

    /// Fills, shrinks and takes zones at random; `choose` looks at all of them.
    fn compare(policy: Policy, choose: impl Fn(&Plain, u64) -> u32) {
        let geometry = Geometry { pages: 1, zones: 40, zone_pages: 8 };
        let mut random = SplitMix(7);
        let mut victims = Victims::new(policy, &geometry);
        let (mut plain, mut live) = (Plain::new(), vec![0; 40]);
        for now in 1..20_000u64 {
            let zone = below(&mut random, 40);
            match plain.iter().position(|(it, ..)| *it == zone) {
                None => {
                    let newest = now - u64::from(below(&mut random, 50)).min(now);
                    live[zone as usize] = 8;
                    plain.push((zone, 8, newest, now));
                    victims.filled(zone, 8, newest);
                }
                Some(at) if plain[at].1 > 0 => {
                    plain[at].1 -= 1;
                    plain[at].3 = now;
                    live[zone as usize] -= 1;
                    victims.shrunk(zone, live[zone as usize]);
                }
                Some(_) => {}
            }
            if below(&mut random, 6) == 0 {
                let expected = choose(&plain, now);
                assert_eq!(victims.take(&live, now, &mut random), expected, "{policy} {plain:?}");
                plain.retain(|(it, ..)| *it != expected);
            }
        }
    }

    use crate::gc::workload::below;

    #[test]
    fn greedy_takes_the_fewest_live_pages_and_of_several_the_latest() {
        compare(Policy::Greedy, |plain, _| {
            plain.iter().min_by_key(|(_, live, _, changed)| (*live, Reverse(*changed))).unwrap().0
        });
    }

    #[test]
    fn cost_benefit_takes_the_highest_score() {
        compare(Policy::CostBenefit, |plain, now| {
            let score = |live: u32, newest: u64| {
                (8.0 - f64::from(live)) / (8.0 + f64::from(live))
                    * f64::from(u32::try_from(now - newest).unwrap())
            };
            let best = plain.iter().max_by(|a, b| {
                let key = |it: &(u32, u32, u64, u64)| (Reverse(it.1), Reverse(it.2), Reverse(it.0));
                score(a.1, a.2).total_cmp(&score(b.1, b.2)).then_with(|| key(a).cmp(&key(b)))
            });
            best.unwrap().0
        });
    }

    #[test]
    fn fifo_takes_the_first_and_a_window_the_best_of_the_first() {
        compare(Policy::Fifo, |plain, _| plain[0].0);
        let best = |plain: &Plain, _| plain.iter().take(5).min_by_key(|(_, live, ..)| *live).unwrap().0;
        compare(Policy::WindowedGreedy { window: 5 }, best);
    }

    #[test]
    fn a_draw_takes_a_full_zone_and_many_draws_the_best() {
        let geometry = Geometry { pages: 1, zones: 16, zone_pages: 8 };
        let mut random = SplitMix(3);
        let live: Vec<u32> = (0..16).map(|zone| 8 - zone / 2).collect();
        let taken = |d, random: &mut SplitMix| {
            let mut victims = Victims::new(Policy::DChoices { d }, &geometry);
            (0..16).filter(|zone| *zone != 15).for_each(|zone| victims.filled(zone, 8, 0));
            victims.take(&live, 0, random)
        };
        let mut seen = [0; 16];
        for _ in 0..400 {
            seen[taken(1, &mut random) as usize] += 1;
            assert_eq!(taken(200, &mut random), 14);
        }
        assert_eq!(seen[15], 0, "a zone that is not full");
        assert!(seen[..15].iter().all(|&count| count > 5), "{seen:?}");
    }
}
