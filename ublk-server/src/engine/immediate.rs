//! File I/O that waits for nothing: a file system in memory has no operation without waiting to offer, so that a ring would
//! hand each one to a worker thread, for the sake of a copy between two places in memory.

use super::ring::FileOp;
use crate::store::Buffer;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;

/// Writes from this length on are left to the ring, whose workers copy beside the thread.
const LONG_WRITE: usize = 64 << 10;

impl FileOp {
    /// False when a worker of the ring does it better, even in memory.
    pub(crate) fn is_short(&self) -> bool {
        !matches!(self, Self::Write { len, .. } if *len >= LONG_WRITE)
    }

    /// Does it at once. The result is what a ring's would be, as is the buffer.
    pub(crate) fn run(self, file: &File) -> (i32, Option<Buffer>) {
        match self {
            Self::Read { mut buffer, skip, len, position } => {
                let result = rustix::io::pread(file, &mut buffer.bytes_mut()[skip..skip + len], position);
                (answer(result), Some(buffer))
            }
            Self::Write { buffer, skip, len, position } => {
                let result = rustix::io::pwrite(file, &buffer.bytes()[skip..skip + len], position);
                (answer(result), Some(buffer))
            }
            Self::Allocate { mode, position, len } => {
                let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
                (answer(rustix::fs::fallocate(file, flags, position, len).map(|()| 0)), None)
            }
            Self::Sync => (answer(rustix::fs::fdatasync(file).map(|()| 0)), None),
        }
    }
}

fn answer(result: Result<usize, Errno>) -> i32 {
    match result {
        Ok(bytes) => i32::try_from(bytes).expect("an operation moves less than 2 GiB"),
        Err(error) => -error.raw_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_says_what_a_ring_would_say() {
        let path = std::env::temp_dir().join(format!("ublk-immediate-{}", std::process::id()));
        std::fs::write(&path, [3; 4096]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let only_read = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let write = |buffer, file| FileOp::Write { buffer, skip: 512, len: 512, position: 1024 }.run(file);
        let (result, buffer) = write(Buffer::zeroed(1024), &file);
        assert_eq!(result, 512);
        let (result, buffer) =
            FileOp::Read { buffer: buffer.unwrap(), skip: 0, len: 1024, position: 512 }.run(&file);
        let buffer = buffer.unwrap();
        assert_eq!(
            (result, &buffer.bytes()[..512], &buffer.bytes()[512..1024]),
            (1024, &[3; 512][..], &[0; 512][..])
        );
        assert_eq!(write(buffer, &only_read).0, -libc::EBADF);
        assert_eq!(FileOp::Sync.run(&file).0, 0);
        let beyond = FileOp::Read { buffer: Buffer::zeroed(512), skip: 0, len: 512, position: 4096 };
        assert_eq!(beyond.run(&file).0, 0);
        assert_eq!(FileOp::Allocate { mode: 0, position: 4096, len: 512 }.run(&file).0, 0);
        assert_eq!(file.metadata().unwrap().len(), 4608);
        assert_eq!(FileOp::Allocate { mode: 0, position: 0, len: 0 }.run(&file).0, -libc::EINVAL);
    }
}
