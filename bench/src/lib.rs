//! Benchmarks and experiments of the copy-offload disk.

pub mod aim;
pub mod copy;
pub mod failure;
pub mod nvme;
pub mod pools;
pub mod rounds;
