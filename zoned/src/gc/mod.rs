//! Garbage collection as a client of the pool: a log-structured store that writes pages in order into zones, and
//! moves what still counts out of a zone before it resets it.
//!
//! [`Log`] is the policy alone. It knows no device: it decides where each page goes, which zone is collected and in
//! which order its pages move, and tells a [`Media`]. The [`client`] does the same to a real pool, with the very
//! same decisions, so that both have the same write amplification to the page.
//!
//! **Over-provisioning** is `T / U - 1`: `T` are all pages that zones hold, free zones, open zones and the reserve of
//! the collector included; `U` are the pages that the user sees. [`Geometry`] prints it, beside the spare share
//! `1 - U / T` that others call by the same name. **Write amplification** is pages written by user and collector for
//! each page written by the user, over the interval that is looked at; the first fill of the log is a part of it
//! only when the interval begins before it.

pub mod client;
pub mod geometry;
pub mod ledger;
pub mod log;
pub mod model;
pub mod policy;
mod victims;
pub mod workload;

pub use client::{Clearing, Client, ClientConfig, Command, Data, Movement};
pub use geometry::{Geometry, GeometryError};
pub use ledger::{Ledger, Traffic};
pub use log::{Log, Media, Slot, Untouched};
pub use policy::{Layout, Policy};
pub use workload::{Generator, Random, Workload};

/// The numbers of the unit tests (splitmix64).
#[cfg(test)]
#[derive(Clone, Debug)]
struct SplitMix(u64);

#[cfg(test)]
impl Random for SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}
