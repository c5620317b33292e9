//! A seeded generator: the only source of chance in a simulation. Probabilities are integer ratios, so that a
//! seed means the same run on every machine.

/// A probability, as `n` of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// So many cases.
    pub n: u64,
    /// Of so many; never 0.
    pub of: u64,
}

impl Ratio {
    /// Never.
    pub const NEVER: Self = Self { n: 0, of: 1 };

    /// `n` of `of`.
    pub const fn new(n: u64, of: u64) -> Self {
        assert!(of > 0 && n <= of);
        Self { n, of }
    }
}

/// The generator: xoshiro256** (Blackman and Vigna), seeded by splitmix64.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        let mut at = seed;
        let state = std::array::from_fn(|_| {
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(at)
        });
        Self { state }
    }

    /// 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "the sequence has no end, so there is no Option")]
    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number from 0 to `n` - 1. Panics for 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "no number is below 0");
        // The high half of the product: the bias of so small an `n` is of no consequence here.
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included. Panics when there is none.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "no number is in {low}..={high}");
        low + self.below(high - low + 1)
    }

    /// An index below `n`. Panics for 0.
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// True with this probability.
    pub fn chance(&mut self, ratio: Ratio) -> bool {
        ratio.n > 0 && self.below(ratio.of) < ratio.n
    }

    /// True in one of `of` cases.
    pub fn one_in(&mut self, of: u64) -> bool {
        self.chance(Ratio::new(1, of))
    }

    /// One of `items`. Panics when there is none.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }

    /// An index, each as likely as its weight; `None` when all are 0.
    pub fn weighted(&mut self, weights: &[u64]) -> Option<usize> {
        let total: u64 = weights.iter().sum();
        if total == 0 {
            return None;
        }
        let mut at = self.below(total);
        weights.iter().position(|&weight| {
            let here = at < weight;
            at = at.saturating_sub(weight);
            here
        })
    }

    /// Weights for a whole run: each of `usual` is kept, changed, or, one in five times, switched off.
    pub fn swarm<const N: usize>(&mut self, usual: [u64; N]) -> [u64; N] {
        usual.map(|weight| match self.below(5) {
            0 => 0,
            1 => weight.div_ceil(4),
            2 => weight * 3,
            _ => weight,
        })
    }

    /// A number from 1 to `most`, each power of two as likely as the next: small ones often, large ones at times.
    pub fn skewed(&mut self, most: u64) -> u64 {
        assert!(most > 0, "no number is in 1..=0");
        let bits = u64::from(64 - most.leading_zeros());
        let high = (1u64 << self.below(bits)).saturating_mul(2).saturating_sub(1).min(most);
        self.range(1, high)
    }

    /// Puts `items` in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            let other = self.index(index + 1);
            items.swap(index, other);
        }
    }
}

impl zoned::gc::Random for Prng {
    fn next(&mut self) -> u64 {
        Self::next(self)
    }
}

/// A one-to-one scrambling of 64 bits.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_one_sequence_and_another_seed_another() {
        let draw = |seed| (0..8).scan(Prng::new(seed), |prng, _| Some(prng.next())).collect::<Vec<_>>();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn every_number_of_a_range_comes_up_and_no_other() {
        let mut prng = Prng::new(7);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[prng.range(3, 7) as usize - 3] += 1;
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
    }

    #[test]
    fn weights_of_nought_are_never_chosen() {
        let mut prng = Prng::new(3);
        assert_eq!(prng.weighted(&[0, 0]), None);
        for _ in 0..100 {
            assert_eq!(prng.weighted(&[0, 2, 0]), Some(1));
        }
        let threes = (0..4000).filter(|_| prng.weighted(&[1, 3]) == Some(1)).count();
        assert!((2800..3200).contains(&threes), "{threes}");
    }

    #[test]
    fn skewed_numbers_stay_inside_and_reach_both_ends() {
        let mut prng = Prng::new(11);
        for most in [1, 2, 3, 100] {
            let drawn: Vec<_> = (0..2000).map(|_| prng.skewed(most)).collect();
            assert!(drawn.contains(&1) && drawn.contains(&most), "{most}");
            assert!(drawn.iter().all(|n| (1..=most).contains(n)));
        }
    }
}
