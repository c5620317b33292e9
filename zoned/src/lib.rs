//! Zoned disks.
//!
//! Zone states and rules as a layer over the pool, and garbage collection as a client of it. Like the core below, this
//! crate knows neither bytes nor clocks nor threads: what varies is an argument.

mod copies;
pub mod gc;
mod layer;
mod manage;
mod power;
mod resources;
pub mod rules;
mod table;
#[cfg(test)]
mod tests;

#[cfg(feature = "canary")]
pub use layer::Canary;
pub use layer::Zoned;
