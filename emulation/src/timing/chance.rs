//! Chance from a seed: splitmix64 (Steele, Lea and Flood), which is all a latency needs.

/// The generator.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = self.0;
        let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from 0 to `n` - 1. Panics for 0.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        assert!(n > 0, "no number is below 0");
        let high = (u128::from(self.next()) * u128::from(n)) >> 64;
        u32::try_from(high).expect("less than n")
    }
}
