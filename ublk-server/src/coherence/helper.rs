//! Starting helpers and waiting for them, never longer than they are silent.

use super::{COMMAND, Line, Order, Report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

/// The longest silence of a helper that works.
const SILENCE_MAX: i64 = 60;
/// The most helpers that wait for orders.
const IDLE_MAX: usize = 4;

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

/// Helpers without an order, to be used again: to start one takes longer than most orders. They end when their standard
/// input does, which is when this process ends.
static IDLE: Mutex<Vec<Helper>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Helper {
    child: Child,
    orders: ChildStdin,
    lines: ChildStdout,
}

/// Gives a helper an order and waits for its report. Blocks; not for threads that serve requests.
///
/// # Errors
/// See [`HelperError`].
pub fn run(order: &Order) -> Result<Report, HelperError> {
    let idle = IDLE.lock().expect("a panic ends the process").pop();
    if let Some(helper) = idle {
        match helper.obey(order) {
            // It ended while it was idle.
            Err(HelperError::Process(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
            other => return other,
        }
    }
    Helper::start().map_err(HelperError::Process)?.obey(order)
}

/// The same, on a thread that may wait.
///
/// # Errors
/// See [`HelperError`].
pub(crate) async fn ask(order: Order) -> Result<Report, HelperError> {
    tokio::task::spawn_blocking(move || run(&order)).await.expect("a panic ends the process")
}

impl Helper {
    fn start() -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg(COMMAND)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (orders, lines) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { child, orders, lines })
    }

    fn obey(mut self, order: &Order) -> Result<Report, HelperError> {
        let result = self.converse(order);
        match result {
            Ok(_) | Err(HelperError::Failed(_)) => {
                let mut idle = IDLE.lock().expect("a panic ends the process");
                if idle.len() < IDLE_MAX {
                    idle.push(self);
                    return result;
                }
            }
            // It may be gone already; what counts is that it is told.
            Err(HelperError::Process(_) | HelperError::Silent) => drop(self.child.kill()),
        }
        let Self { mut child, orders, .. } = self;
        drop(orders);
        // A helper that waits for a disk can only be reaped when the disk answers: not by this thread.
        std::thread::spawn(move || child.wait());
        result
    }

    fn converse(&mut self, order: &Order) -> Result<Report, HelperError> {
        let mut text = serde_json::to_vec(order).map_err(|error| HelperError::Process(error.into()))?;
        text.push(b'\n');
        self.orders.write_all(&text).map_err(HelperError::Process)?;
        let mut text = Vec::new();
        while read_some(&mut self.lines, &mut text)? {
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                match serde_json::from_slice(&line).map_err(|error| HelperError::Process(error.into()))? {
                    Line::Alive => {}
                    Line::Done(report) => return Ok(report),
                    Line::Failed(why) => return Err(HelperError::Failed(why)),
                }
            }
        }
        Err(HelperError::Process(io::ErrorKind::BrokenPipe.into()))
    }
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
