//! Panics on demand, to test that a panic in any thread ends the server at once. Armed through the control API of
//! a server started with `--debug`; otherwise the check is one relaxed load.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU8, Ordering};

/// The kinds of threads of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum ThreadKind {
    /// A queue thread of a ublk disk.
    Queue = 1,
    /// A worker that executes the plans of the control API.
    Worker = 2,
    /// The threads of the control API.
    Control = 3,
    /// A thread that sends a command to the ublk driver.
    Driver = 4,
}

static ARMED: AtomicU8 = AtomicU8::new(0);

/// Lets the next [`check`] of a thread of this kind panic.
pub fn arm(kind: ThreadKind) {
    ARMED.store(kind as u8, Ordering::Relaxed);
}

/// Panics when armed for this kind of thread. Called once for each request that such a thread takes.
#[inline]
pub fn check(kind: ThreadKind) {
    let armed = ARMED.load(Ordering::Relaxed);
    assert!(armed != kind as u8, "a panic was asked for in a {kind:?} thread");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_armed_kind_panics() {
        check(ThreadKind::Queue);
        arm(ThreadKind::Driver);
        check(ThreadKind::Queue);
        assert!(std::panic::catch_unwind(|| check(ThreadKind::Driver)).is_err());
        ARMED.store(0, Ordering::Relaxed);
    }
}
