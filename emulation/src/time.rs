//! Time is an argument: nanoseconds since an origin that the caller chose.

use std::ops::Add;

/// A point in time, in nanoseconds since the caller's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Instant {
    /// The caller's origin; as a deadline, "at once".
    pub const ORIGIN: Self = Self(0);
}

impl Add<Nanos> for Instant {
    type Output = Self;
    /// Saturates at the end of time.
    fn add(self, length: Nanos) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}
