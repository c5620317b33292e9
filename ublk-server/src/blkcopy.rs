//! Copies on a block device by the kernel's own operation: `BLKCOPY` and its twin in io_uring, from the series in
//! `kernel/patches`.
//!
//! The one file with `unsafe` for them.

use emulation::Bytes;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `BLKCOPY`: `_IOWR(0x12, 143, struct blk_copy)`.
const BLKCOPY: u32 = 3 << 30 | (size_of::<BlkCopy>() as u32) << 16 | 0x12 << 8 | 143;
/// `BLOCK_URING_CMD_COPY`: `_IO(0x12, 2)`.
const BLOCK_URING_CMD_COPY: u32 = 0x12 << 8 | 2;

/// The most sources of one call.
pub const SOURCES_MAX: usize = 1024;
/// The most bytes of one call.
pub const BYTES_MAX: Bytes = Bytes(i32::MAX as u64);

/// A range to copy from (`struct blk_copy_source`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Source {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// `struct blk_copy`.
#[derive(Debug)]
#[repr(C)]
struct BlkCopy {
    destination: u64,
    sources: u64,
    nr_sources: u32,
    flags: u32,
    copied: u64,
}

/// The way of a call into the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `ioctl(2)`.
    Ioctl,
    /// A command of io_uring.
    Uring,
}

/// Makes calls, one at a time, by one way.
pub struct Caller(Option<Box<IoUring>>);

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(&self.0.as_ref().map_or(Way::Ioctl, |_| Way::Uring)).finish()
    }
}

impl Caller {
    /// One for this way.
    ///
    /// # Errors
    /// There is no io_uring.
    pub fn new(way: Way) -> io::Result<Self> {
        Ok(Self(match way {
            Way::Ioctl => None,
            Way::Uring => Some(Box::new(IoUring::new(2)?)),
        }))
    }

    /// Copies `sources`, one behind the other, to `destination` and what follows it. Gives the number of bytes from
    /// there on that were copied, in success as in failure.
    ///
    /// # Errors
    /// `ENOTTY` or `EINVAL` from a kernel without the operation, `EOPNOTSUPP` from a device without it, else what
    /// `BLKCOPY` documents, or what the device answered.
    pub fn copy(&mut self, device: &File, sources: &[Source], destination: u64) -> (Bytes, io::Result<()>) {
        let mut argument = Box::new(BlkCopy {
            destination,
            sources: sources.as_ptr() as u64,
            nr_sources: u32::try_from(sources.len()).unwrap_or(u32::MAX),
            flags: 0,
            copied: 0,
        });
        let result = match &mut self.0 {
            None => by_ioctl(device, &mut argument),
            Some(ring) => by_uring(ring, device, &mut argument),
        };
        (Bytes(argument.copied), result)
    }
}

fn by_ioctl(device: &File, argument: &mut BlkCopy) -> io::Result<()> {
    // SAFETY: the kernel reads and writes the `struct blk_copy` and reads the sources it points to, which the caller
    // holds, and nothing after the call has returned.
    match unsafe { libc::ioctl(device.as_raw_fd(), BLKCOPY.into(), &raw mut *argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn by_uring(ring: &mut IoUring, device: &File, argument: &mut BlkCopy) -> io::Result<()> {
    let entry = opcode::UringCmd16::new(Fd(device.as_raw_fd()), BLOCK_URING_CMD_COPY)
        .addr(Some(&raw mut *argument as u64))
        .build();
    // SAFETY: what the entry points to, and the file, live until its completion, which is awaited below.
    unsafe { ring.submission().push(&entry) }.expect("one entry at a time");
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => {}
            // The command may be under way, and its memory is about to be freed.
            Err(error) => panic!("io_uring does not wait for a copy: {error}"),
        }
        if let Some(entry) = ring.completion().next() {
            return match entry.result() {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_kernels() {
        assert_eq!(size_of::<BlkCopy>(), 32);
        assert_eq!(BLKCOPY, 0xc020_128f);
        assert_eq!(BLOCK_URING_CMD_COPY, 0x1202);
    }

    #[test]
    fn a_file_that_is_no_block_device_is_refused() {
        let file = File::open("/dev/null").unwrap();
        let sources = [Source { offset: 0, length: 4096 }];
        let (copied, result) = Caller::new(Way::Ioctl).unwrap().copy(&file, &sources, 8192);
        assert_eq!(copied, Bytes(0));
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
