//! Which page is written next.

use super::geometry::to_f64;
use std::fmt;

/// A source of numbers, seeded by whoever makes it.
pub trait Random {
    /// 64 random bits.
    fn next(&mut self) -> u64;
}

/// A number below `end`, which is not 0.
pub(super) fn below(random: &mut impl Random, end: u32) -> u32 {
    // The high half of the product: the bias is below 2^-32.
    let high = (u128::from(random.next()) * u128::from(end)) >> 64;
    u32::try_from(high).expect("less than `end`")
}

/// A pattern of writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Every page as often as any other.
    Uniform,
    /// So many percent of the pages, the first ones, get so many percent of the writes; uniform within both.
    HotCold {
        /// Percent of the pages.
        pages: u32,
        /// Percent of the writes.
        writes: u32,
    },
    /// Page `i`, from 0 on, in proportion to `(i + 1) ^ -exponent`.
    Zipf {
        /// The exponent.
        exponent: f64,
    },
}

/// Why a workload makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// No pages.
    #[error("0 pages: nothing can be written")]
    NoPages,
    /// A share that leaves one of the two sides without pages or writes.
    #[error("{pages} % of {of} pages get {writes} % of the writes: both sides need pages and writes")]
    Shares {
        /// Percent of the pages.
        pages: u32,
        /// Percent of the writes.
        writes: u32,
        /// All pages.
        of: u32,
    },
    /// Not a number from 0 on.
    #[error("zipf exponent {0}: must be a number from 0 to 10")]
    Exponent(f64),
}

impl Workload {
    /// The pages that get more writes than others, when there are two kinds of pages.
    pub fn hot_pages(&self, of: u32) -> Option<u32> {
        match self {
            Self::Uniform | Self::Zipf { .. } => None,
            Self::HotCold { pages, .. } => u32::try_from(u64::from(of) * u64::from(*pages) / 100).ok(),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::HotCold { pages, writes } => {
                write!(f, "{writes} % of the writes to {pages} % of the pages")
            }
            Self::Zipf { exponent } => write!(f, "zipf {exponent}"),
        }
    }
}

/// Draws the page of each write.
#[derive(Clone, Debug)]
pub struct Generator(Draw);

#[derive(Clone, Debug)]
enum Draw {
    Uniform { pages: u32 },
    HotCold { hot: u32, pages: u32, percent: u32 },
    Table(Vec<Alias>),
}

/// An entry of Walker's alias table: a page is itself in `own` of 2^32 cases, else the other.
#[derive(Clone, Copy, Debug)]
struct Alias {
    own: u32,
    other: u32,
}

impl Generator {
    /// The pattern on so many pages.
    ///
    /// # Errors
    /// Why it makes no sense.
    pub fn new(workload: Workload, pages: u32) -> Result<Self, WorkloadError> {
        if pages == 0 {
            return Err(WorkloadError::NoPages);
        }
        Ok(Self(match workload {
            Workload::Uniform => Draw::Uniform { pages },
            Workload::HotCold { pages: share, writes } => {
                let hot = workload.hot_pages(pages).filter(|hot| (1..pages).contains(hot));
                match hot {
                    Some(hot) if (1..100).contains(&writes) => Draw::HotCold { hot, pages, percent: writes },
                    _ => return Err(WorkloadError::Shares { pages: share, writes, of: pages }),
                }
            }
            Workload::Zipf { exponent } => {
                if !(0.0..=10.0).contains(&exponent) {
                    return Err(WorkloadError::Exponent(exponent));
                }
                Draw::Table(aliases((1..=pages).map(|rank| f64::from(rank).powf(-exponent)).collect()))
            }
        }))
    }

    /// The next page.
    pub fn next(&self, random: &mut impl Random) -> u32 {
        match &self.0 {
            Draw::Uniform { pages } => below(random, *pages),
            Draw::HotCold { hot, pages, percent } => {
                if below(random, 100) < *percent {
                    below(random, *hot)
                } else {
                    hot + below(random, pages - hot)
                }
            }
            Draw::Table(table) => {
                let page = below(random, u32::try_from(table.len()).expect("made of that many pages"));
                let Alias { own, other } = table[page as usize];
                if random.next() >> 32 < u64::from(own) { page } else { other }
            }
        }
    }
}

/// The table for weights of which at least one is more than 0 (Vose's construction).
fn aliases(weights: Vec<f64>) -> Vec<Alias> {
    let mean = weights.iter().sum::<f64>() / to_f64(weights.len() as u64);
    let mut table = Vec::with_capacity(weights.len());
    let (mut poor, mut rich) = (Vec::new(), Vec::new());
    let mut left = weights;
    for (page, weight) in (0u32..).zip(&mut left) {
        *weight /= mean;
        table.push(Alias { own: u32::MAX, other: page });
        if *weight < 1.0 { poor.push(page) } else { rich.push(page) }
    }
    while let (Some(small), Some(&large)) = (poor.pop(), rich.last()) {
        table[small as usize] = Alias { own: share(left[small as usize]), other: large };
        left[large as usize] -= 1.0 - left[small as usize];
        if left[large as usize] < 1.0 {
            rich.pop();
            poor.push(large);
        }
    }
    table
}

/// A share from 0 to 1 in parts of 2^32.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates at both ends"
)]
fn share(of_one: f64) -> u32 {
    (of_one * f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gc::SplitMix;

    fn counts(workload: Workload, pages: u32, draws: u32) -> Vec<u32> {
        let generator = Generator::new(workload, pages).unwrap();
        let mut random = SplitMix(9);
        let mut counts = vec![0; pages as usize];
        (0..draws).for_each(|_| counts[generator.next(&mut random) as usize] += 1);
        counts
    }

    fn share(counts: &[u32], of: u32) -> f64 {
        f64::from(counts.iter().sum::<u32>()) / f64::from(of)
    }

    #[test]
    fn shares_of_writes_are_those_asked_for() {
        let draws = 200_000;
        let uniform = counts(Workload::Uniform, 100, draws);
        assert!((share(&uniform[..50], draws) - 0.5).abs() < 0.01);
        let mixed = counts(Workload::HotCold { pages: 10, writes: 90 }, 100, draws);
        assert!((share(&mixed[..10], draws) - 0.9).abs() < 0.01);
        assert!(mixed.iter().all(|&count| count > 0), "every page is written");
        let zipf = counts(Workload::Zipf { exponent: 1.0 }, 100, draws);
        let harmonic: f64 = (1..=100u32).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [1u32, 2, 5, 50] {
            let expected = 1.0 / f64::from(rank) / harmonic;
            let seen = share(&zipf[rank as usize - 1..rank as usize], draws);
            assert!((seen / expected - 1.0).abs() < 0.1, "rank {rank}: {seen} of {expected}");
        }
    }

    #[test]
    fn a_seed_gives_one_sequence() {
        let draw = |seed| {
            let generator = Generator::new(Workload::Zipf { exponent: 0.9 }, 50).unwrap();
            let mut random = SplitMix(seed);
            (0..20).map(|_| generator.next(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |workload, pages| Generator::new(workload, pages).unwrap_err();
        assert_eq!(refused(Workload::Uniform, 0), WorkloadError::NoPages);
        for (pages, writes, of) in [(0, 90, 100), (100, 90, 100), (10, 0, 100), (10, 100, 100), (10, 90, 5)] {
            let shares = WorkloadError::Shares { pages, writes, of };
            assert_eq!(refused(Workload::HotCold { pages, writes }, of), shares);
        }
        assert!(matches!(refused(Workload::Zipf { exponent: f64::NAN }, 9), WorkloadError::Exponent(_)));
    }
}
