//! A trace against a block device: threads that read and write past the page cache.

use super::{Action, Planned};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The alignment of memory that every device takes.
const ALIGN: usize = 4096;

/// Memory for direct I/O, made larger when a request needs it.
#[derive(Debug, Default)]
pub struct Memory {
    bytes: Vec<u8>,
}

impl Memory {
    fn of(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len + ALIGN {
            // Something that is neither zeroes nor of one piece.
            self.bytes = (0..len + ALIGN).map(|at| (at / 512) as u8 ^ at as u8 ^ 0x5a).collect();
        }
        let start = self.bytes.as_ptr().align_offset(ALIGN);
        &mut self.bytes[start..start + len]
    }
}

/// Does a request.
///
/// # Errors
/// What the device answers.
pub fn execute(device: &File, request: &Planned, memory: &mut Memory) -> io::Result<()> {
    match request.action {
        Action::Read => device.read_exact_at(memory.of(request.length as usize), request.offset),
        Action::Write => device.write_all_at(memory.of(request.length as usize), request.offset),
        Action::Flush => device.sync_data(),
        Action::Discard => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(rustix::fs::fallocate(device, flags, request.offset, request.length)?)
        }
    }
}
