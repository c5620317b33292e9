//! The data of a request, wherever its door keeps it.

use crate::store;
use emulation::{Bytes, Sectors};
use rustix::io::Errno;
use std::fs::File;

/// The buffer that a plan's port offsets mean.
#[derive(Debug)]
pub(crate) enum Port<'a> {
    /// A request in the kernel, reached by reading and writing `/dev/ublkcN` from `position` on.
    UserCopy { device: &'a File, position: u64 },
    /// Memory of this process.
    Memory(&'a mut [u8]),
    /// The plan has none.
    None,
}

impl Port<'_> {
    /// The port's bytes from `offset` into `to`.
    pub(crate) fn take(&self, offset: Sectors, to: &mut [u8]) -> Result<(), Errno> {
        match self {
            Self::UserCopy { device, position } => {
                store::read_exact_at(device, to, position + offset.bytes().0)
            }
            Self::Memory(memory) => {
                let start = offset.bytes().0 as usize;
                to.copy_from_slice(&memory[start..start + to.len()]);
                Ok(())
            }
            Self::None => panic!("a plan without a port reads it"),
        }
    }

    /// `from` into the port from `offset` on.
    pub(crate) fn put(&mut self, offset: Sectors, from: &[u8]) -> Result<(), Errno> {
        match self {
            Self::UserCopy { device, position } => {
                store::write_all_at(device, from, *position + offset.bytes().0)
            }
            Self::Memory(memory) => {
                let start = offset.bytes().0 as usize;
                memory[start..start + from.len()].copy_from_slice(from);
                Ok(())
            }
            Self::None => panic!("a plan without a port writes it"),
        }
    }

    /// `len` zeroes into the port from `offset` on.
    pub(crate) fn put_zeroes(&mut self, offset: Sectors, len: Bytes) -> Result<(), Errno> {
        match self {
            Self::UserCopy { device, position } => {
                store::write_zeroes_at(device, len.0, *position + offset.bytes().0)
            }
            Self::Memory(memory) => {
                let start = offset.bytes().0 as usize;
                memory[start..start + len.0 as usize].fill(0);
                Ok(())
            }
            Self::None => panic!("a plan without a port writes it"),
        }
    }
}
