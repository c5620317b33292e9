//! The hidden command that is the server in the background; see [`crate::server::spawn`] for the other side.

use super::Failure;
use crate::server::{self, Readiness, StartConfig};
use crate::signals::Signals;
use std::fs::File;
use std::io::{self, Write};

pub(super) fn run() -> Result<(), Failure> {
    let failed = |what: &str, error: io::Error| Failure::failed(format!("{what}: {error}"));
    // Its own session: no terminal ends it. It is never a group leader, so this cannot fail.
    let _ = rustix::process::setsid();
    let signals = Signals::block().map_err(|error| failed("signals", error))?;
    let start: StartConfig = serde_json::from_reader(io::stdin().lock())
        .map_err(|error| failed("standard input", error.into()))?;
    let mut told = Ok(());
    let clean = server::run(start, &signals, |readiness| told = tell(&readiness));
    told.map_err(|error| failed("standard output", error))?;
    if clean { Ok(()) } else { Err(Failure::failed("the server did not end well")) }
}

/// Says how it started, and lets go of the starter's pipes.
fn tell(readiness: &Readiness) -> io::Result<()> {
    let mut line = serde_json::to_vec(readiness)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
