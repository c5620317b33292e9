//! Where the bytes live.

use emulation::{Bytes, Sectors};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;

pub mod buffer;
pub mod file;
pub mod header;
pub mod load;
pub mod meta;
pub mod pool_file;
pub mod ram;
pub mod redo;
pub mod shared;
mod stream;

pub(crate) use buffer::Buffer;
pub use file::FileStore;
pub use ram::RamStore;

/// The store of a pool.
#[derive(Debug)]
pub enum Store {
    /// Memory of this process, made on first use.
    Ram(RamStore),
    /// Nothing. A write is dropped. A read moves no data either, as in every null device: behind `/dev/ublkbN` the
    /// reader's buffer keeps what it held.
    Null,
    /// A raw image or a block device.
    File(FileStore),
}

impl Store {
    /// A sparse memory of `physical` sectors.
    ///
    /// # Errors
    /// See [`RamStore::new`].
    pub fn ram(physical: Sectors) -> io::Result<Self> {
        RamStore::new(physical).map(Self::Ram)
    }

    /// A raw image or block device; `logical_block` is that of the disk on it.
    ///
    /// # Errors
    /// See [`FileStore::open`].
    pub fn file(path: &Path, logical_block: Bytes, buffered: bool, read_only: bool) -> io::Result<Self> {
        FileStore::open(path, logical_block, buffered, read_only).map(Self::File)
    }
}

/// Fills `to` from the file. An end of file before that is an I/O error.
pub(crate) fn read_exact_at(file: &File, mut to: &mut [u8], mut position: u64) -> Result<(), Errno> {
    while !to.is_empty() {
        match rustix::io::pread(file, &mut *to, position) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                to = &mut to[n..];
                position += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `from` to the file. A write that takes nothing is an I/O error.
pub(crate) fn write_all_at(file: &File, mut from: &[u8], mut position: u64) -> Result<(), Errno> {
    while !from.is_empty() {
        match rustix::io::pwrite(file, from, position) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                from = &from[n..];
                position += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes `len` zeroes to the file.
pub(crate) fn write_zeroes_at(file: &File, mut len: u64, mut position: u64) -> Result<(), Errno> {
    static ZEROES: [u8; 1 << 16] = [0; 1 << 16];
    while len > 0 {
        let now = len.min(ZEROES.len() as u64);
        write_all_at(file, &ZEROES[..now as usize], position)?;
        len -= now;
        position += now;
    }
    Ok(())
}
