//! When things end. A timing model decides only that: it never sees a byte, and what is not modelled takes no time.
//! Deadlines are absolute, so that what the machine adds does not add up. The layer [`crate::delayed::Delayed`]
//! holds one model for each volume that has one.
//!
//! A plan passes these, each first come first served: a place in the queue (`queue_depth`), the latency of its
//! operation (once for each request), the media, the controller (`bandwidth`) and the link to the host. The
//! last three overlap: the slowest decides.

pub(crate) mod chance;
pub mod config;
pub mod deadlines;
pub mod disk;
pub mod flash;
pub mod latency;
pub mod lateness;
mod model;
pub mod profile;

pub use config::{HostLink, Latencies, Media, Rate, Timing, TimingError};
pub use deadlines::Deadlines;
pub use disk::Disk;
pub use flash::Flash;
pub use latency::{Latency, PPM};
pub use lateness::Lateness;
pub(crate) use model::{Command, Model};
