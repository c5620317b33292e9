//! Ratios from alternated rounds: what disturbs a machine disturbs both sides, and the spread shows how much.

use serde::Serialize;

/// A number with its spread over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value, of an even number of rounds the lower one of the two.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// How many there were.
    pub rounds: usize,
}

impl Spread {
    /// The spread of values. Panics when there are none.
    pub fn of(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "no rounds");
        values.sort_by(f64::total_cmp);
        let rounds = values.len();
        Self { median: values[(rounds - 1) / 2], low: values[0], high: values[rounds - 1], rounds }
    }
}

/// Two sides that took turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounds {
    /// What each round gave for the one side.
    pub a: Vec<f64>,
    /// And for the other.
    pub b: Vec<f64>,
}

impl Rounds {
    /// Lets both sides take turns, after one round that does not count. The side that begins changes.
    pub fn alternate(rounds: usize, mut a: impl FnMut() -> f64, mut b: impl FnMut() -> f64) -> Self {
        a();
        b();
        let mut out = Self { a: Vec::with_capacity(rounds), b: Vec::with_capacity(rounds) };
        for round in 0..rounds {
            if round % 2 == 0 {
                out.a.push(a());
                out.b.push(b());
            } else {
                out.b.push(b());
                out.a.push(a());
            }
        }
        out
    }

    /// `a / b`, round by round.
    pub fn ratio(&self) -> Spread {
        Spread::of(self.a.iter().zip(&self.b).map(|(a, b)| a / b).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        let (mut a, mut b) = ([8.0, 2.0, 4.0, 6.0].iter(), [9.0, 1.0, 4.0, 2.0].iter());
        let rounds = Rounds::alternate(3, || *a.next().unwrap(), || *b.next().unwrap());
        assert_eq!(rounds, Rounds { a: vec![2.0, 4.0, 6.0], b: vec![1.0, 4.0, 2.0] });
        assert_eq!(rounds.ratio(), Spread { median: 2.0, low: 1.0, high: 3.0, rounds: 3 });
    }

    #[test]
    fn the_median_of_an_even_number_is_one_that_was_measured() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0, 9.0]).median, 2.0);
    }
}
