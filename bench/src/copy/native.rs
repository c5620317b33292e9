//! Copies by the kernel's own operation on a block device.

use super::options::Door;
use super::pattern::Segment;
use super::target::CopyError;
use crate::failure::Failure;
use emulation::Bytes;
use std::fs::File;
use ublk_server::blkcopy::{Caller, Source};

/// What one thread calls the kernel by.
#[derive(Debug)]
pub(super) struct Lane(Caller);

impl Lane {
    /// One for this door; `None` for the API, which has none.
    pub(super) fn new(door: Door) -> Result<Option<Self>, Failure> {
        let caller = door.way().map(Caller::new).transpose();
        let caller = caller.map_err(|error| Failure::cannot_run(format!("io_uring: {error}")))?;
        Ok(caller.map(Self))
    }

    /// One call. The destinations of the segments follow each other.
    pub(super) fn copy(&mut self, device: &File, segments: &[Segment], bs: u64) -> Result<(), CopyError> {
        let sources: Vec<_> =
            segments.iter().map(|segment| Source { offset: segment.source, length: bs }).collect();
        let destination = segments.first().map_or(0, |segment| segment.destination);
        let (copied, result) = self.0.copy(device, &sources, destination);
        let error = match result {
            Ok(()) if copied == Bytes(bs * segments.len() as u64) => return Ok(()),
            Ok(()) => {
                let message = format!("the kernel copied {copied} bytes and called it success");
                return Err(CopyError { errno: libc::EIO, message, hint: None });
            }
            Err(error) => error,
        };
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let hint = match errno {
            libc::ENOTTY => Some("the running kernel has no copy operation: use --door=api"),
            libc::EOPNOTSUPP => {
                Some("the device does not take it: see copy_max_bytes below its queue in sysfs")
            }
            _ => None,
        };
        let message = format!("copy to {destination}, {copied} bytes done: {error}");
        Err(CopyError { errno, message, hint: hint.map(str::to_string) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_block_device_has_no_operation() {
        assert!(Lane::new(Door::Api).unwrap().is_none());
        let mut lane = Lane::new(Door::Native).unwrap().unwrap();
        let file = File::open("/dev/null").unwrap();
        let error = lane.copy(&file, &[Segment { source: 0, destination: 4096 }], 4096).unwrap_err();
        assert_eq!(error.errno, libc::ENOTTY);
        assert!(error.hint.unwrap().contains("--door=api"));
    }
}
