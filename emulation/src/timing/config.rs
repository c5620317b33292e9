//! What a disk's timing can be set to, and the refusal of what makes no sense.

use super::disk::Disk;
use super::flash::Flash;
use super::latency::{LATENCY_MAX, Latency};
use crate::time::Nanos;
use crate::units::Bytes;

/// Nanoseconds in a second.
const SECOND: u128 = 1_000_000_000;

/// Bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

impl Rate {
    /// The slowest rate: with a slower one a single request would outlast every timeout.
    pub const MIN: Self = Self(64 * 1024);

    /// `n` megabytes (10^6) a second.
    pub const fn mb(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// How long so many bytes take, rounded up.
    pub fn time(self, bytes: Bytes) -> Nanos {
        let nanos = (u128::from(bytes.0) * SECOND).div_ceil(u128::from(self.0));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The latency of each operation, charged once for each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Reads.
    pub read: Latency,
    /// Writes and appends.
    pub write: Latency,
    /// Flushes.
    pub flush: Latency,
    /// Discards.
    pub discard: Latency,
    /// Write zeroes.
    pub write_zeroes: Latency,
    /// Copies that the device carries out. An emulated copy is reads and writes.
    pub copy: Latency,
    /// Zone open, close, finish, reset and reset all.
    pub zone_mgmt: Latency,
    /// Zone reports.
    pub report_zones: Latency,
}

impl Latencies {
    /// Each with its name on the command line.
    pub fn named(&self) -> [(&'static str, &Latency); 8] {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("flush", &self.flush),
            ("discard", &self.discard),
            ("write_zeroes", &self.write_zeroes),
            ("copy", &self.copy),
            ("zone_mgmt", &self.zone_mgmt),
            ("report_zones", &self.report_zones),
        ]
    }
}

/// The way between host and disk. What a copy moves inside the disk does not take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLink {
    /// There and back, for each request.
    pub round_trip: Nanos,
    /// For data, in each direction: Ethernet and PCI Express carry both at once.
    pub bandwidth: Rate,
}

/// What holds the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Media {
    /// Takes no time.
    #[default]
    None,
    /// Flash with channels and dies.
    Flash(Flash),
    /// A spinning disk.
    Disk(Disk),
}

/// How long a volume takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Of each operation.
    pub latency: Latencies,
    /// The controller: each byte read or written passes it once, so a byte moved passes it twice. A copy within
    /// one die does not pass it, nor does a remap.
    pub bandwidth: Option<Rate>,
    /// The way to the host, for data that goes through a door.
    pub link: Option<HostLink>,
    /// The most plans at work at a time; the others wait, first come first served.
    pub queue_depth: Option<u32>,
    /// What holds the data.
    pub media: Media,
    /// Of the latencies that chance decides.
    pub seed: u64,
}

/// The deepest queue.
pub const QUEUE_DEPTH_MAX: u32 = 65_535;

/// Why a timing can never work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// Longer than a host waits.
    #[error("latency of {0}, {1} ns: at most {max} ns, a host gives a request up after that", max = LATENCY_MAX.0)]
    LatencyTooLong(&'static str, u64),
    /// Not rising, or without an end.
    #[error("percentiles of {0}: must rise, latencies with them, and end with 100 %")]
    Percentiles(&'static str),
    /// Slower than any request can bear.
    #[error("{0} {1} B/s: at least {min} B/s", min = Rate::MIN.0)]
    Slow(&'static str, u64),
    /// No queue, or too deep a one.
    #[error("queue_depth {0}: must be from 1 to {QUEUE_DEPTH_MAX}")]
    QueueDepth(u32),
    /// A count out of its range.
    #[error("media {name} {value}: must be from {min} to {max}")]
    Count {
        /// Which.
        name: &'static str,
        /// As given.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A page that is none.
    #[error("media page {0} B: must be a multiple of 4096, from 4096 to 16777216")]
    Page(u64),
    /// A time longer than a host waits.
    #[error("media {0} {1} ns: at most {max} ns, a host gives a request up after that", max = LATENCY_MAX.0)]
    MediaTime(&'static str, u64),
    /// A seek to the next track that takes longer than one on average.
    #[error("media track_seek {0} ns: at most average_seek, {1} ns")]
    Seek(u64, u64),
}

impl Timing {
    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// The first thing found, in words for the person who set it.
    pub fn validate(&self) -> Result<(), TimingError> {
        for (name, latency) in self.latency.named() {
            latency.validate(name)?;
        }
        if let Some(rate) = self.bandwidth {
            fast("bandwidth", rate)?;
        }
        if let Some(link) = self.link {
            fast("link bandwidth", link.bandwidth)?;
            if link.round_trip > LATENCY_MAX {
                return Err(TimingError::MediaTime("link round_trip", link.round_trip.0));
            }
        }
        if let Some(depth) = self.queue_depth.filter(|depth| !(1..=QUEUE_DEPTH_MAX).contains(depth)) {
            return Err(TimingError::QueueDepth(depth));
        }
        match &self.media {
            Media::None => Ok(()),
            Media::Flash(flash) => flash.validate(),
            Media::Disk(disk) => disk.validate(),
        }
    }
}

pub(super) fn fast(name: &'static str, rate: Rate) -> Result<(), TimingError> {
    if rate.0 < Rate::MIN.0 { Err(TimingError::Slow(name, rate.0)) } else { Ok(()) }
}

pub(super) fn bearable(name: &'static str, time: Nanos) -> Result<(), TimingError> {
    if time > LATENCY_MAX { Err(TimingError::MediaTime(name, time.0)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::profile;

    #[test]
    fn a_rate_rounds_up_and_does_not_overflow() {
        assert_eq!(Rate(3).time(Bytes(1)), Nanos(333_333_334));
        assert_eq!(Rate::mb(100).time(Bytes(1_000_000)), Nanos(10_000_000));
        assert_eq!(Rate(1).time(Bytes(u64::MAX)), Nanos(u64::MAX));
    }

    #[test]
    fn each_mistake_is_refused_by_name() {
        let said = |change: fn(&mut Timing)| {
            let mut timing = profile::named("tlc-ssd").unwrap().timing();
            change(&mut timing);
            timing.validate().map_or_else(|error| error.to_string(), |()| String::new())
        };
        assert_eq!(said(|_| ()), "");
        assert_eq!(said(|t| t.queue_depth = Some(0)), "queue_depth 0: must be from 1 to 65535");
        assert_eq!(said(|t| t.bandwidth = Some(Rate(0))), "bandwidth 0 B/s: at least 65536 B/s");
        let link = "link bandwidth 9 B/s: at least 65536 B/s";
        assert_eq!(said(|t| t.link = Some(HostLink { round_trip: Nanos(1), bandwidth: Rate(9) })), link);
        assert_eq!(
            said(|t| t.latency.copy = Latency::Percentiles(Vec::new())),
            "percentiles of copy: must rise, latencies with them, and end with 100 %"
        );
        fn flash(t: &mut Timing, change: fn(&mut Flash)) {
            if let Media::Flash(flash) = &mut t.media {
                change(flash);
            }
        }
        assert_eq!(said(|t| flash(t, |f| f.channels = 0)), "media channels 0: must be from 1 to 64");
        assert_eq!(
            said(|t| flash(t, |f| f.page = Bytes(5000))),
            "media page 5000 B: must be a multiple of 4096, from 4096 to 16777216"
        );
        assert_eq!(
            said(|t| flash(t, |f| f.program = Nanos(u64::MAX))),
            "media program 18446744073709551615 ns: at most 30000000000 ns, a host gives a request up after that"
        );
    }
}
