//! The copy-offload disk: doors, stores and commands.

pub mod blkcopy;
pub mod cli;
pub mod coherence;
pub mod commands;
pub mod config;
pub mod control;
pub mod debug;
pub mod engine;
pub mod logging;
pub mod nvme;
pub mod options;
pub mod replay;
pub mod server;
pub mod signals;
pub mod state;
pub mod store;
pub mod timing;
pub mod ublk;
pub mod units;
