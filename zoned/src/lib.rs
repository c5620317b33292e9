//! Zoned disks.
//!
//! Zone states and rules as a layer over the pool, and garbage collection as a client of it. Like the core below, this
//! crate knows neither bytes nor clocks nor threads: what varies is an argument.

pub mod gc;
