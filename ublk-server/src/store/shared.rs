//! Shared memory that outlives a server, not the host: one private directory for each pool.

use crate::state::{StateError, private_dir};
use emulation::Bytes;
use std::io;
use std::path::{Path, PathBuf};

const MOUNT: &str = "/dev/shm";

fn base() -> PathBuf {
    let user = rustix::process::geteuid();
    let name = if user.is_root() { "ublk".to_string() } else { format!("ublk-{}", user.as_raw()) };
    Path::new(MOUNT).join(name)
}

/// The directory of a pool, by its identifier; it may not be there.
pub fn path(identifier: &str) -> PathBuf {
    base().join(identifier)
}

/// Makes the directory of a pool, unless it is there.
///
/// # Errors
/// It cannot be made, or others could change it.
pub fn dir(identifier: &str) -> Result<PathBuf, StateError> {
    private_dir(&base())?;
    private_dir(&path(identifier))?;
    Ok(path(identifier))
}

/// Removes the directory of a pool and what is in it. One that is gone is no error.
///
/// # Errors
/// It cannot be removed.
pub fn remove(identifier: &str) -> io::Result<()> {
    match std::fs::remove_dir_all(path(identifier)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The shared memory that could be had now.
///
/// # Errors
/// There is none.
pub fn available() -> io::Result<Bytes> {
    let stat = rustix::fs::statvfs(MOUNT)?;
    Ok(Bytes(stat.f_bavail.saturating_mul(stat.f_frsize)))
}
