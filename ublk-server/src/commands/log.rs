//! `ublk log`.

use super::{Failure, locate};
use crate::cli::TargetArgs;
use crate::logging;
use crate::state::State;
use std::io;

pub(super) fn run(args: &TargetArgs) -> Result<String, Failure> {
    let state = State::open()?;
    let record = locate::record(&state, &args.target)?.ok_or_else(|| locate::no_disk(&args.target))?;
    let path = state.log(&record.pool);
    let mut out = String::new();
    for path in [logging::rotated(&path), path] {
        match std::fs::read(&path) {
            Ok(text) => out.push_str(&String::from_utf8_lossy(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Failure::failed(format!("{}: {error}", path.display()))),
        }
    }
    Ok(out)
}
