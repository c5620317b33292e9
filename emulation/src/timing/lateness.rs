//! How well the machine keeps the model's deadlines: a result is worth no more than this.

use crate::time::{Instant, Nanos};
use crate::timing::PPM;

/// Four classes for each power of two: a quantile is at most a quarter too high.
const CLASSES: usize = 4 * 64;

/// The differences between planned and actual ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lateness {
    counts: Vec<u64>,
    count: u64,
    max: Nanos,
    floor: Option<Nanos>,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: vec![0; CLASSES], count: 0, max: Nanos(0), floor: None }
    }
}

impl Lateness {
    /// Something planned for one instant ended at another, which is not before.
    pub fn record(&mut self, planned: Instant, actual: Instant) {
        let late = actual.0.saturating_sub(planned.0);
        self.counts[class(late)] += 1;
        self.count += 1;
        self.max = self.max.max(Nanos(late));
        self.floor = Some(self.floor.map_or(Nanos(late), |floor| floor.min(Nanos(late))));
    }

    /// Ends recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latest.
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// The machine's floor: the least it was ever late, which is what it adds to every latency. `None` before the
    /// first end.
    pub fn floor(&self) -> Option<Nanos> {
        self.floor
    }

    /// The lateness that so many parts per million do not pass, rounded up to the end of its class, and no more than
    /// the latest. 0 before the first end.
    pub fn quantile(&self, ppm: u32) -> Nanos {
        let wanted = (u128::from(self.count) * u128::from(ppm)).div_ceil(u128::from(PPM)).max(1);
        let mut seen = 0;
        for (class, &count) in self.counts.iter().enumerate() {
            seen += u128::from(count);
            if seen >= wanted {
                return Nanos(class_end(class)).min(self.max);
            }
        }
        Nanos(0)
    }
}

/// 0 to 3 have classes of their own; above, the two bits after the highest tell the four of a power of two apart.
fn class(late: u64) -> usize {
    if late < 4 {
        return usize::try_from(late).expect("small");
    }
    let power = late.ilog2();
    let within = usize::try_from((late >> (power - 2)) & 3).expect("two bits");
    4 * (usize::try_from(power).expect("below 64") - 1) + within
}

fn class_end(class: usize) -> u64 {
    let class = u64::try_from(class).expect("small");
    if class < 4 {
        return class;
    }
    let (power, within) = (class / 4 + 1, class % 4);
    let quarter = 1 << (power - 2);
    (4 + within) * quarter + (quarter - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lateness_is_in_the_class_that_ends_at_or_after_it() {
        for late in (0..4096).chain([1 << 20, (1 << 20) + 1, u64::MAX / 2, u64::MAX]) {
            let class = class(late);
            assert!(class < CLASSES && class_end(class) >= late, "{late}: {class}");
            assert!(class == 0 || class_end(class - 1) < late, "{late}: {class}");
        }
    }

    #[test]
    fn quantiles_floor_and_maximum() {
        let mut lateness = Lateness::default();
        assert_eq!((lateness.quantile(PPM), lateness.floor()), (Nanos(0), None));
        for late in 1..=100 {
            lateness.record(Instant(1_000), Instant(1_000 + late));
        }
        assert_eq!((lateness.count(), lateness.max(), lateness.floor()), (100, Nanos(100), Some(Nanos(1))));
        // 50 is in 48..=55; 99 is in 96..=111, of which 100 is the latest.
        assert_eq!((lateness.quantile(500_000), lateness.quantile(990_000)), (Nanos(55), Nanos(100)));
    }
}
