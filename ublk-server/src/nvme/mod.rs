//! NVMe over TCP: a host on a stock kernel sees the volumes of a pool as namespaces of one subsystem, and can send
//! it Copy commands.
//!
//! `wire` has the structures, `target` decides (bytes and time in, bytes and requests out), `listener` moves the
//! bytes, and `client` is a small host for tests and benchmarks. `passthrough` has the kernel send commands.

pub mod client;
pub mod listener;
pub mod passthrough;
mod stream;
pub mod target;
pub mod wire;
