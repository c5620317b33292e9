//! The seeded simulation of a whole pool.
//!
//! One seed draws everything: the pool, the requests, the order in which work is done, what fails and when the
//! host crashes. The [`oracle`] knows what every sector may hold; [`names`] knows who names every physical block.
//! Neither asks the device. A run is made twice and has to be the same both times.

pub mod admission;
mod answers;
pub mod changes;
mod closing;
mod copies;
mod crash;
mod faults;
pub mod log;
pub mod names;
pub mod options;
pub mod oracle;
mod plans;
pub mod prng;
pub mod relation;
pub mod run;
pub mod store;
pub mod trace;
mod volumes;
pub mod workload;
mod world;
pub mod wrong;
mod zone_requests;
mod zoned;
pub mod zones;
