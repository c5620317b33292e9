//! The signals that end a command: blocked in every thread and read from a descriptor, so that they interrupt no
//! system call and run no handler.
//!
//! `unsafe` here is the C interface of signal masks and signalfd, which no safe crate of this program wraps.
#![allow(unsafe_code)]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// SIGTERM, SIGINT and SIGHUP, waiting to be read.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks them in this thread and in those it starts from now on; called before any thread is started.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initialises the set that its argument points to; the other calls read and write
        // that set, which lives on this stack frame, and the null pointer tells the kernel to keep the old mask
        // to itself.
        let fd = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just returned this descriptor to us and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Waits until a signal is there, `other` can be read, or the time is over. True for a signal, which is taken.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn wait(&self, other: Option<BorrowedFd<'_>>, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let own = PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN);
        let both = other.map(|other| PollFd::from_borrowed_fd(other, PollFlags::IN));
        let mut fds = vec![own];
        fds.extend(both);
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut record) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Lets no descriptor above the three usual ones pass to the programs that this one starts: a server must not keep
/// a caller's lock file or pipe open.
///
/// # Errors
/// The kernel refused; before Linux 5.11 it does not know the call.
pub fn close_on_exec() -> io::Result<()> {
    // SAFETY: with CLOSE_RANGE_CLOEXEC the call closes nothing; it sets a flag on descriptors.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_once_and_a_wait_ends() {
        let signals = Signals::block().unwrap();
        assert!(!signals.wait(None, Some(Duration::from_millis(1))).unwrap());
        let thread = rustix::thread::gettid();
        let process = rustix::process::getpid();
        assert_ne!(thread, process, "a test runs in a thread of its own");
        // SAFETY: `tgkill` takes numbers; the signal is blocked in this thread, the only one it is sent to.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_tgkill,
                process.as_raw_nonzero().get(),
                thread.as_raw_nonzero().get(),
                libc::SIGHUP,
            )
        };
        assert_eq!(sent, 0);
        assert!(signals.wait(None, Some(Duration::from_secs(5))).unwrap());
        assert!(!signals.wait(None, Some(Duration::from_millis(1))).unwrap());
    }
}
