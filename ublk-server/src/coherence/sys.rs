//! Two system calls on the page cache that no safe crate of this program wraps.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `cachestat(2)`, the same number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    off: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    nr_cache: u64,
    nr_dirty: u64,
    nr_writeback: u64,
    nr_evicted: u64,
    nr_recently_evicted: u64,
}

/// Writes the dirty pages of a range to the device and waits for them, also for those under way.
pub(super) fn write_back(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the call takes numbers alone; the descriptor is open for as long as `file` is borrowed.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number of pages of a range that are cached; `None` before Linux 6.5, which cannot say.
pub(crate) fn cached_pages(file: &File, offset: u64, length: u64) -> io::Result<Option<u64>> {
    let range = CachestatRange { off: offset, len: length };
    let mut stat = Cachestat::default();
    // SAFETY: both pointers are to live values of the layout that the kernel reads and writes
    // (include/uapi/linux/mman.h); the descriptor is open for as long as `file` is borrowed.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0) };
    if result == 0 {
        return Ok(Some(stat.nr_cache));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOSYS) { Ok(None) } else { Err(error) }
}
