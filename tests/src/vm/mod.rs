//! Runs the guest tests of `tests/vm/guest` and judges what they report; `tests/vm/README.md` has the rules.
//!
//! The guest sends lines over a serial line ([`report::Event`]); what they mean for the count is decided in
//! [`verdict`], which knows nothing of processes. [`guest`] holds the virtual machine, [`run`] the order of
//! things: which tests go into which boot and how long each step may take.

pub mod guest;
pub mod report;
pub mod run;
pub mod script;
pub mod skips;
pub mod verdict;
