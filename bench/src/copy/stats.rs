//! What a load did and how long it took.

use hdrhistogram::Histogram;
use std::fs;
use std::time::Duration;

/// The longest latency that is told apart: an hour.
const LATENCY_MAX: u64 = 3_600_000_000_000;

/// One kind of operation.
#[derive(Clone, Debug)]
pub(super) struct Direction {
    pub(super) bytes: u64,
    pub(super) ios: u64,
    /// Nanoseconds, to three digits.
    pub(super) latency: Histogram<u64>,
}

impl Direction {
    fn new() -> Self {
        let latency =
            Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("constant bounds that are in order");
        Self { bytes: 0, ios: 0, latency }
    }

    /// Counts an operation.
    pub(super) fn done(&mut self, bytes: u64, time: Duration) {
        self.bytes += bytes;
        self.ios += 1;
        self.latency.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(LATENCY_MAX));
    }

    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.ios += other.ios;
        self.latency.add(&other.latency).expect("the same bounds");
    }
}

/// What a thread used, after `/proc/thread-self`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Clock ticks.
    pub(super) user: u64,
    /// Clock ticks.
    pub(super) system: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) context_switches: u64,
}

impl Usage {
    /// That of the calling thread since it began; nothing where there is no `/proc`.
    pub(super) fn of_thread() -> Self {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        Self::parse(&stat, &status)
    }

    fn parse(stat: &str, status: &str) -> Self {
        // Fields are counted behind the name, which may hold anything; the first one there is number 3.
        let fields: Vec<u64> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_ascii_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
        let switches = status
            .lines()
            .filter_map(|line| line.split_once(":"))
            .filter(|(name, _)| name.ends_with("_ctxt_switches"))
            .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
            .sum();
        Self {
            user: field(14),
            system: field(15),
            minor_faults: field(10),
            major_faults: field(12),
            context_switches: switches,
        }
    }

    fn add(&mut self, other: &Self) {
        self.user += other.user;
        self.system += other.system;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.context_switches += other.context_switches;
    }
}

/// What a job did.
#[derive(Clone, Debug)]
pub(super) struct Stats {
    pub(super) copy: Direction,
    /// Of engine `host`.
    pub(super) read: Direction,
    /// Of engine `host`.
    pub(super) write: Direction,
    pub(super) usage: Usage,
    /// From the first command to the end of the last.
    pub(super) runtime: Duration,
}

impl Stats {
    pub(super) fn new() -> Self {
        Self {
            copy: Direction::new(),
            read: Direction::new(),
            write: Direction::new(),
            usage: Usage::default(),
            runtime: Duration::ZERO,
        }
    }

    /// Adds what another thread or job did in the same time.
    pub(super) fn add(&mut self, other: &Self) {
        self.copy.add(&other.copy);
        self.read.add(&other.read);
        self.write.add(&other.write);
        self.usage.add(&other.usage);
        self.runtime = self.runtime.max(other.runtime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_behind_a_name_with_brackets() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 70 8 90 10 110 120 13";
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t3\n";
        let usage = Usage { user: 110, system: 120, minor_faults: 70, major_faults: 90, context_switches: 7 };
        assert_eq!(Usage::parse(stat, status), usage);
        assert_eq!(Usage::parse("", ""), Usage::default());
        std::thread::sleep(Duration::from_millis(1));
        assert!(Usage::of_thread().context_switches > 0);
    }

    #[test]
    fn jobs_add_up_over_the_longest_time() {
        let mut all = Stats::new();
        for millis in [2, 1] {
            let mut one = Stats::new();
            one.copy.done(10, Duration::from_millis(millis));
            one.runtime = Duration::from_millis(millis);
            all.add(&one);
        }
        assert_eq!((all.copy.bytes, all.copy.ios, all.copy.latency.len()), (20, 2, 2));
        assert_eq!(all.runtime, Duration::from_millis(2));
    }
}
