//! Starting a server in the background. It is a new program, not a fork: threads and rings do not survive a fork.
//!
//! The configuration goes in on standard input, one line of readiness comes back on standard output, and then
//! the server lets go of both, so that a caller's pipe ends. A server that dies before is seen by the end of
//! that pipe.

use super::{COMMAND, Readiness, StartConfig};
use crate::control::api::{ApiError, Disk};
use crate::signals;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest wait for the end of a server whose pipe has ended.
const EXIT_MAX: Duration = Duration::from_secs(5);
/// The last words of a server that are passed on.
const LAST_WORDS: usize = 2000;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// It said why.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// It could not be started.
    #[error("the server cannot be started: {0}")]
    Start(#[source] io::Error),
    /// It died without a word on the pipe.
    #[error("the server ended before the disk was ready: {0}{1}")]
    Died(String, String),
}

/// Starts a server and waits until its disk is ready. The driver's commands are bounded, so this is.
///
/// # Errors
/// See [`SpawnError`]. Nothing is left behind, unless the server died.
pub fn spawn(config: &StartConfig) -> Result<Disk, SpawnError> {
    // A kernel without the call keeps the caller's descriptors open in the server; nothing else is lost.
    drop(signals::close_on_exec());
    let mut child = Command::new("/proc/self/exe")
        .arg(COMMAND)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(SpawnError::Start)?;
    let line = hand_over(&mut child, config).map_err(SpawnError::Start)?;
    match serde_json::from_slice(&line) {
        Ok(Readiness::Ok(disk)) => Ok(*disk),
        Ok(Readiness::Error(error)) => {
            wait(&mut child);
            Err(error.into())
        }
        Err(_) => Err(SpawnError::Died(wait(&mut child), last_words(&mut child))),
    }
}

/// Sends the configuration and reads until the server closes its end.
fn hand_over(child: &mut Child, config: &StartConfig) -> io::Result<Vec<u8>> {
    let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
    let text = serde_json::to_vec(config)?;
    // A server that died at once is found by what it did not say.
    drop(child.stdin.take().ok_or_else(pipe)?.write_all(&text));
    let mut line = Vec::new();
    child.stdout.take().ok_or_else(pipe)?.read_to_end(&mut line)?;
    Ok(line)
}

/// How the server ended, in words.
fn wait(child: &mut Child) -> String {
    let end = Instant::now() + EXIT_MAX;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.to_string(),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => return "it still runs".to_string(),
            Err(error) => return error.to_string(),
        }
    }
}

/// What the server wrote to standard error, which is a pipe until it is ready.
fn last_words(child: &mut Child) -> String {
    let mut text = Vec::new();
    if let (Some(mut stderr), Ok(Some(_))) = (child.stderr.take(), child.try_wait()) {
        // It is dead: the pipe ends.
        drop(stderr.read_to_end(&mut text));
    }
    let from = text.len().saturating_sub(LAST_WORDS);
    let words = String::from_utf8_lossy(&text[from..]).trim().to_string();
    if words.is_empty() { words } else { format!("\n{words}") }
}
