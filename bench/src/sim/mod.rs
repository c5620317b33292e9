//! Experiments in virtual time: a pool, its bytes as one value a map block, a link to it, and what drives it.
//!
//! Nothing here reads a clock, so the same seed gives the same numbers on every machine.

pub mod driven;
pub mod link;
pub mod load;
pub mod world;

pub use link::{Fabric, Wire};
pub use load::{Engine, Measured, Work};
pub use world::{Happening, Order, World};
