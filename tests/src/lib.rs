//! Simulation, oracle and the VM harness of the copy-offload disk.

pub mod logwrites;
pub mod sim;
pub mod vm;
