//! Starting the helper and waiting for it, never longer than it is silent.

use super::{COMMAND, Line, Order, Report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The longest silence of a helper that works.
const SILENCE_MAX: i64 = 60;

/// Why the helper did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// It could not be started or ended early.
    #[error("the helper for the page cache failed: {0}")]
    Process(#[source] io::Error),
    /// The disk does not answer.
    #[error("the helper for the page cache said nothing for {SILENCE_MAX} s\nsee the kernel's log (dmesg)")]
    Silent,
    /// The kernel refused.
    #[error("{0}")]
    Failed(String),
}

/// Starts the helper, gives it an order and waits for its report. Blocks; not for threads that serve requests.
///
/// # Errors
/// See [`HelperError`].
pub fn run(order: &Order) -> Result<Report, HelperError> {
    let mut child = Command::new("/proc/self/exe")
        .arg(COMMAND)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(HelperError::Process)?;
    let result = converse(&mut child, order);
    if result.is_err() {
        // It may be gone already; what counts is that it is told.
        drop(child.kill());
    }
    // A helper that waits for a disk can only be reaped when the disk answers: not by this thread.
    std::thread::spawn(move || child.wait());
    result
}

fn converse(child: &mut Child, order: &Order) -> Result<Report, HelperError> {
    let missing = || HelperError::Process(io::ErrorKind::BrokenPipe.into());
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    let text = serde_json::to_vec(order).map_err(|error| HelperError::Process(error.into()))?;
    stdin.write_all(&text).map_err(HelperError::Process)?;
    drop(stdin);
    let mut stdout = child.stdout.take().ok_or_else(missing)?;
    let mut text = Vec::new();
    while read_some(&mut stdout, &mut text)? {
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            match serde_json::from_slice(&line).map_err(|error| HelperError::Process(error.into()))? {
                Line::Alive => {}
                Line::Done(report) => return Ok(report),
                Line::Failed(why) => return Err(HelperError::Failed(why)),
            }
        }
    }
    Err(missing())
}

/// Reads what is there, waiting for it. False at the end.
fn read_some(stdout: &mut ChildStdout, text: &mut Vec<u8>) -> Result<bool, HelperError> {
    let timeout = Timespec { tv_sec: SILENCE_MAX, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&timeout));
    match ready {
        Ok(0) => return Err(HelperError::Silent),
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(true),
        Err(error) => return Err(HelperError::Process(error.into())),
    }
    let mut buffer = [0; 4096];
    let read = stdout.read(&mut buffer).map_err(HelperError::Process)?;
    text.extend_from_slice(&buffer[..read]);
    Ok(read > 0)
}
