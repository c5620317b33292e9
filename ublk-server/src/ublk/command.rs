//! One command to `/dev/ublk-control`, bounded in time.
//!
//! The one file with `unsafe` for control commands. Each has a ring of its own and is carried out by a kernel
//! worker (`IOSQE_ASYNC`), so that only the worker hangs when the driver does.

use super::UblkError;
use crate::debug::{self, ThreadKind};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use libublk::sys;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long the driver has for a command.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// What the kernel and this program pass each other by reference.
///
/// # Safety
/// Plain data: no padding that must not be shown, no pointer that the kernel follows, every bit pattern a value.
pub(crate) unsafe trait Payload: Copy {}
// SAFETY: `repr(C)` structs of integers without padding, laid out as in the kernel's header.
unsafe impl Payload for sys::ublksrv_ctrl_dev_info {}
// SAFETY: as above; its padding is filled by `Default`, and the kernel ignores it.
unsafe impl Payload for sys::ublk_params {}
// SAFETY: as above; integers without padding behind it.
unsafe impl Payload for super::native::Params {}
// SAFETY: as above.
unsafe impl Payload for super::native::CopyLimits {}
// SAFETY: an integer.
unsafe impl Payload for u64 {}
// SAFETY: bytes.
unsafe impl<const N: usize> Payload for [u8; N] {}

/// A command but for its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<'a> {
    /// `UBLK_U_CMD_*`.
    pub(crate) op: u32,
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// The device; `u32::MAX` for none.
    pub(crate) device: u32,
    /// The number that the command takes beside its payload.
    pub(crate) data: u64,
    /// The path of the character device, where the kernel checks the caller's permission by it.
    pub(crate) path: Option<&'a str>,
}

/// How a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// By the driver's answer.
    Errno(Errno),
    /// Otherwise.
    Error(UblkError),
}

/// Sends a command and waits for its end. The payload is what the kernel made of it.
pub(crate) fn execute<P: Payload>(control: &File, command: Command<'_>, payload: P) -> Result<P, Failure> {
    debug::check(ThreadKind::Driver);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match once(control, command, payload, deadline) {
            Err(Failure::Errno(Errno::INTR)) if Instant::now() < deadline => {}
            other => return other,
        }
    }
}

fn once<P: Payload>(
    control: &File,
    command: Command<'_>,
    payload: P,
    deadline: Instant,
) -> Result<P, Failure> {
    let path = command.path.map_or(&[][..], str::as_bytes);
    // The path is followed by the payload and ends in a zero when there is one; its length counts it.
    let path_len = if path.is_empty() { 0 } else { path.len() + 1 };
    let mut bytes = vec![0u8; path_len + size_of::<P>()];
    bytes[..path.len()].copy_from_slice(path);
    // SAFETY: the source is a value of plain data, the destination has room for it behind the path.
    unsafe { bytes.as_mut_ptr().add(path_len).cast::<P>().write_unaligned(payload) };

    let mut ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().build(2).map_err(UblkError::ring)?;
    let entry = opcode::UringCmd80::new(Fd(control.as_raw_fd()), command.op)
        .cmd(header(command, &mut bytes, path_len))
        .build()
        .flags(squeue::Flags::ASYNC);
    // SAFETY: the entry points to `bytes`, which lives until the command has ended, or for ever.
    unsafe { ring.submission().push(&entry) }.expect("an empty ring has room");
    let Some(result) = wait(&mut ring, deadline) else {
        // The kernel may write to them when it wakes up.
        std::mem::forget((bytes, ring));
        return Err(Failure::Error(UblkError::Timeout { command: command.name }));
    };
    let result = result.map_err(|error| {
        // Nothing is known about the command.
        std::mem::forget(std::mem::take(&mut bytes));
        UblkError::ring(error)
    })?;
    if result < 0 {
        return Err(Failure::Errno(Errno::from_raw_os_error(-result)));
    }
    // SAFETY: the bytes behind the path are a `P`, written above and perhaps by the kernel; any bits are a value.
    Ok(unsafe { bytes.as_ptr().add(path_len).cast::<P>().read_unaligned() })
}

impl From<UblkError> for Failure {
    fn from(error: UblkError) -> Self {
        Self::Error(error)
    }
}

/// `struct ublksrv_ctrl_cmd`.
fn header(command: Command<'_>, bytes: &mut [u8], path_len: usize) -> [u8; 80] {
    let len = u16::try_from(bytes.len()).expect("a path and a small struct");
    let path_len = u16::try_from(path_len).expect("part of it");
    let mut header = [0; 80];
    header[0..4].copy_from_slice(&command.device.to_ne_bytes());
    header[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    header[6..8].copy_from_slice(&len.to_ne_bytes());
    header[8..16].copy_from_slice(&(bytes.as_mut_ptr() as u64).to_ne_bytes());
    header[16..24].copy_from_slice(&command.data.to_ne_bytes());
    header[24..26].copy_from_slice(&path_len.to_ne_bytes());
    header
}

/// The result of the one command, `None` at the deadline.
fn wait(
    ring: &mut IoUring<squeue::Entry128, cqueue::Entry>,
    deadline: Instant,
) -> Option<Result<i32, io::Error>> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = Timespec::from(left);
        let entered = ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time));
        if let Some(entry) = ring.completion().next() {
            return Some(Ok(entry.result()));
        }
        match entered {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EAGAIN)) => {
                return Some(Err(error));
            }
            Ok(_) | Err(_) if left.is_zero() => return None,
            Ok(_) | Err(_) => {}
        }
    }
}
