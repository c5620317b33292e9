//! The latency of an operation: one value, a bell, or a table of percentiles.

use super::chance::Chance;
use super::config::TimingError;
use crate::time::Nanos;

/// The whole, in the unit of percentiles: parts per million. p99.9 is 999,000.
pub const PPM: u32 = 1_000_000;

/// The longest latency: beyond it a host gives up on a request.
pub const LATENCY_MAX: Nanos = Nanos(30_000_000_000);

/// How long an operation takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Latency {
    /// Always the same.
    Fixed(Nanos),
    /// Around a mean. The bell is the sum of twelve even chances: it ends six deviations away, and at 0.
    Normal {
        /// In the middle.
        mean: Nanos,
        /// The standard deviation.
        deviation: Nanos,
    },
    /// Percentiles in parts per million, each with its latency, both rising; the last is the maximum, at [`PPM`].
    /// Between two points the latency rises evenly; below the first it is that of the first.
    Percentiles(Vec<(u32, Nanos)>),
}

impl Default for Latency {
    fn default() -> Self {
        Self::Fixed(Nanos(0))
    }
}

impl Latency {
    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// Says which operation, and why.
    pub fn validate(&self, operation: &'static str) -> Result<(), TimingError> {
        let within = |latency: Nanos| {
            if latency > LATENCY_MAX {
                Err(TimingError::LatencyTooLong(operation, latency.0))
            } else {
                Ok(())
            }
        };
        match self {
            Self::Fixed(latency) => within(*latency),
            Self::Normal { mean, deviation } => {
                within(*mean)?;
                within(*deviation)
            }
            Self::Percentiles(points) => {
                let rising = points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
                if !rising || points.last().is_none_or(|last| last.0 != PPM) {
                    return Err(TimingError::Percentiles(operation));
                }
                within(points[points.len() - 1].1)
            }
        }
    }

    /// True when it is always 0.
    pub fn is_zero(&self) -> bool {
        match self {
            Self::Fixed(latency) => latency.0 == 0,
            Self::Normal { mean, deviation } => mean.0 == 0 && deviation.0 == 0,
            Self::Percentiles(points) => points.iter().all(|point| point.1.0 == 0),
        }
    }

    /// The latency of the next request.
    pub(crate) fn draw(&self, chance: &mut Chance) -> Nanos {
        match self {
            Self::Fixed(latency) => *latency,
            Self::Normal { mean, deviation } => {
                // Each chance has the variance 1/12, so twelve of them have 1.
                let sum: i128 = (0..12).map(|_| i128::from(chance.below(PPM))).sum();
                let from_mean = (sum - 6 * i128::from(PPM)) * i128::from(deviation.0) / i128::from(PPM);
                let latency = (i128::from(mean.0) + from_mean).max(0);
                Nanos(u64::try_from(latency).unwrap_or(u64::MAX))
            }
            Self::Percentiles(points) => between(points, chance.below(PPM)),
        }
    }
}

fn between(points: &[(u32, Nanos)], at: u32) -> Nanos {
    let above = points.partition_point(|point| point.0 <= at);
    let Some(&(high, slow)) = points.get(above) else {
        return points.last().map_or(Nanos(0), |last| last.1);
    };
    if above == 0 {
        return slow;
    }
    let (low, quick) = points[above - 1];
    let part = u128::from(slow.0 - quick.0) * u128::from(at - low) / u128::from(high - low);
    Nanos(quick.0 + u64::try_from(part).expect("less than the whole"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [(u32, Nanos); 3] =
        [(500_000, Nanos(80_000)), (990_000, Nanos(178_000)), (PPM, Nanos(1_178_000))];

    #[test]
    fn a_table_rises_evenly_between_its_points() {
        let at = |ppm| between(&TABLE, ppm).0;
        assert_eq!((at(0), at(499_999)), (80_000, 80_000));
        // 98 us over 490,000 parts: 0.2 ns a part.
        assert_eq!((at(500_000), at(745_000), at(989_995)), (80_000, 129_000, 177_999));
        // 1 ms over 10,000 parts: 100 ns a part.
        assert_eq!((at(990_000), at(995_000), at(999_999)), (178_000, 678_000, 1_177_900));
    }

    #[test]
    fn a_bell_has_its_mean_and_its_deviation() {
        let latency = Latency::Normal { mean: Nanos(100_000), deviation: Nanos(10_000) };
        let mut chance = Chance::new(1);
        let drawn: Vec<i64> =
            (0..40_000).map(|_| i64::try_from(latency.draw(&mut chance).0).unwrap()).collect();
        let count = i64::try_from(drawn.len()).unwrap();
        let mean = drawn.iter().sum::<i64>() / count;
        let variance = drawn.iter().map(|value| (value - mean).pow(2)).sum::<i64>() / count;
        // The error of the mean is 10,000 / 200 = 50; of the deviation 10,000 / 283 = 35: four times that.
        assert!((mean - 100_000).abs() < 200, "{mean}");
        assert!((variance.isqrt() - 10_000).abs() < 140, "{}", variance.isqrt());
        // 68.3 % lie within one deviation.
        let near = drawn.iter().filter(|value| (**value - 100_000).abs() < 10_000).count();
        assert!((26_900..27_700).contains(&near), "{near}");
    }

    #[test]
    fn a_bell_ends_at_nought() {
        let latency = Latency::Normal { mean: Nanos(1), deviation: Nanos(1_000) };
        let mut chance = Chance::new(2);
        assert!((0..100).any(|_| latency.draw(&mut chance) == Nanos(0)));
    }

    #[test]
    fn a_seed_means_one_sequence() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..8).map(|_| Latency::Percentiles(TABLE.to_vec()).draw(&mut chance)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn tables_that_fall_or_do_not_end_are_refused() {
        let refused =
            |points: &[(u32, Nanos)]| Latency::Percentiles(points.to_vec()).validate("read").is_err();
        assert!(!refused(&TABLE));
        assert!(refused(&[]));
        assert!(refused(&TABLE[..2]));
        assert!(refused(&[(PPM, Nanos(1)), (PPM, Nanos(1))]));
        assert!(refused(&[(1, Nanos(2)), (PPM, Nanos(1))]));
        assert!(Latency::Fixed(Nanos(LATENCY_MAX.0 + 1)).validate("read").is_err());
    }
}
