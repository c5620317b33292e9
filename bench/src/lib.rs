//! Benchmarks and experiments of the copy-offload disk.

pub mod aim;
pub mod copy;
pub mod experiment;
pub mod failure;
pub mod model;
pub mod nvme;
pub mod pools;
pub mod report;
pub mod rounds;
pub mod sim;
