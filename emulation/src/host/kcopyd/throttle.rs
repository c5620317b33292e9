//! The throttle: it bounds the share of time in which I/O is in flight, by putting the worker to sleep. Bytes do not
//! matter to it. Source: `io_job_start` and `io_job_finish` of `drivers/md/dm-kcopyd.c`.

use crate::time::{Instant, Nanos};

/// How long the worker sleeps at a time.
const SLEEP: Nanos = Nanos(100_000_000);
/// After so many sleeps it goes on anyway.
const SLEEPS_MAX: u32 = 10;
const SECOND: u64 = 1_000_000_000;

/// The state of a throttle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// The share of time with I/O in flight, in percent; at 100 nothing is throttled.
    pub percent: u64,
    /// Ticks a second: 100, 250, 300 or 1000 in a kernel.
    pub hz: u64,
    in_flight: u64,
    io_period: u64,
    total_period: u64,
    last: u64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new(100, 250)
    }
}

impl Throttle {
    /// A throttle of `percent` where a second has `hz` ticks; `hz` is not 0.
    pub fn new(percent: u64, hz: u64) -> Self {
        Self { percent, hz, in_flight: 0, io_period: 0, total_period: 0, last: 0 }
    }

    /// I/O is about to start. `None`: it may. Else the worker sleeps until then, having slept `slept` times.
    pub(super) fn start(&mut self, now: Instant, slept: u32) -> Option<Instant> {
        if self.percent < 100 {
            self.account(now);
            // SHIFT_HZ: both decay when the whole reaches the power of two at or above a second.
            let window = self.hz.next_power_of_two();
            if self.total_period >= window {
                let shift = (self.total_period / window).ilog2() + 1;
                self.total_period >>= shift;
                self.io_period >>= shift;
            }
            if self.io_period > self.percent * self.total_period / 100 && slept < SLEEPS_MAX {
                return Some(now + SLEEP);
            }
        }
        self.in_flight += 1;
        None
    }

    /// I/O has ended.
    pub(super) fn finish(&mut self, now: Instant) {
        self.in_flight -= 1;
        if self.percent < 100 && self.in_flight == 0 {
            // The last of it ended now, so it was in flight until now.
            self.in_flight = 1;
            self.account(now);
            self.in_flight = 0;
        }
    }

    fn account(&mut self, now: Instant) {
        let ticks = self.ticks(now);
        let passed = ticks.saturating_sub(self.last);
        self.last = ticks;
        if self.in_flight > 0 {
            self.io_period += passed;
        }
        self.total_period += passed;
        self.io_period = self.io_period.min(self.total_period);
    }

    fn ticks(&self, now: Instant) -> u64 {
        now.0 / (SECOND / self.hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 1_000_000;

    fn at(ticks: u64) -> Instant {
        Instant(ticks * TICK)
    }

    #[test]
    fn the_worker_sleeps_while_the_share_is_too_high() {
        let mut throttle = Throttle::new(50, 1000);
        assert_eq!(throttle.start(at(0), 0), None);
        throttle.finish(at(100));
        // 100 ticks of 100 with I/O: it sleeps 100 ms, after which 100 of 200 are not more than half.
        assert_eq!(throttle.start(at(100), 0), Some(at(200)));
        assert_eq!(throttle.start(at(200), 1), None);
        assert_eq!((throttle.io_period, throttle.total_period), (100, 200));
    }

    #[test]
    fn ten_sleeps_are_the_most() {
        let mut throttle = Throttle::new(0, 1000);
        throttle.start(at(0), 10);
        throttle.finish(at(500));
        assert_eq!(throttle.start(at(500), 9), Some(at(600)));
        assert_eq!(throttle.start(at(600), 10), None);
    }

    #[test]
    fn both_periods_decay_together() {
        let mut throttle = Throttle::new(99, 1000);
        throttle.start(at(0), 0);
        throttle.finish(at(3000));
        // 3000 is two windows of 1024 and more: divided by 4.
        throttle.start(at(3000), 10);
        assert_eq!((throttle.io_period, throttle.total_period), (750, 750));
        let mut full = Throttle::new(100, 1000);
        assert_eq!(full.start(at(9), 0), None);
        assert_eq!(full.total_period, 0);
    }
}
