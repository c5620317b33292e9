//! Plans of stores that never wait: memory, and nothing.

use super::port::Port;
use crate::store::RamStore;
use emulation::{BlkStatus, Bytes, IoResult, Plan, Sectors, Step, StoreRange};
use rustix::io::Errno;
use std::io;

/// Runs a plan over memory.
pub(crate) fn run_ram(ram: &RamStore, plan: &Plan, mut port: Port<'_>) -> IoResult {
    run(plan, |step| match step {
        Step::Read { from, port: offset } => read(ram, *from, &mut port, *offset),
        Step::ReadFlipped { from, len, port: offset, bit } => {
            let mut bytes = vec![0; len.bytes().0 as usize];
            if let Some(start) = *from {
                ram.read(StoreRange { start, len: *len }, &mut bytes);
            }
            flip(&mut bytes, *bit);
            port.put(*offset, &bytes)
        }
        Step::ReadZeroes { port: offset, len } => port.put_zeroes(*offset, len.bytes()),
        Step::Write { port: offset, to } => write(ram, &port, *offset, *to),
        Step::Move { from, to, reason: _ } => ram.copy(*from, *to),
        Step::Zero { at, unmap: _ } => ram.zero(*at),
        Step::Trim { at } => ram.trim(*at).map_err(errno),
        // Memory needs no sync to outlive its process, if it does; the metadata of memory that does is committed
        // elsewhere.
        Step::Sync | Step::Commit(_) => Ok(()),
    })
}

/// Runs a plan over nothing. A read of memory gives zeroes; one by user copy leaves the reader's buffer as it is.
pub(crate) fn run_null(plan: &Plan, mut port: Port<'_>) -> IoResult {
    run(plan, |step| match step {
        Step::Read { from, port: offset } => null_read(&mut port, *offset, from.len.bytes()),
        Step::ReadFlipped { len, port: offset, bit, .. } => {
            let mut bytes = vec![0; len.bytes().0 as usize];
            flip(&mut bytes, *bit);
            port.put(*offset, &bytes)
        }
        Step::ReadZeroes { port: offset, len } => null_read(&mut port, *offset, len.bytes()),
        Step::Write { .. }
        | Step::Move { .. }
        | Step::Zero { .. }
        | Step::Trim { .. }
        | Step::Sync
        | Step::Commit(_) => Ok(()),
    })
}

fn run(plan: &Plan, mut step: impl FnMut(&Step) -> Result<(), Errno>) -> IoResult {
    for (done, one) in plan.steps.iter().enumerate() {
        if let Err(error) = step(one) {
            return IoResult::failed(BlkStatus::from_errno(error.raw_os_error()), done);
        }
    }
    IoResult::done(plan)
}

/// Makes one bit wrong.
pub(super) fn flip(bytes: &mut [u8], bit: u32) {
    bytes[bit as usize / 8] ^= 1 << (bit % 8);
}

fn read(ram: &RamStore, from: StoreRange, port: &mut Port<'_>, offset: Sectors) -> Result<(), Errno> {
    match port {
        Port::UserCopy { device, position } => ram.read_to_file(from, device, *position + offset.bytes().0),
        Port::Memory(memory) => {
            let start = offset.bytes().0 as usize;
            ram.read(from, &mut memory[start..start + from.len.bytes().0 as usize]);
            Ok(())
        }
        Port::None => panic!("a plan without a port writes it"),
    }
}

fn write(ram: &RamStore, port: &Port<'_>, offset: Sectors, to: StoreRange) -> Result<(), Errno> {
    match port {
        Port::UserCopy { device, position } => ram.write_from_file(device, *position + offset.bytes().0, to),
        Port::Memory(memory) => {
            let start = offset.bytes().0 as usize;
            ram.write(&memory[start..start + to.len.bytes().0 as usize], to)
        }
        Port::None => panic!("a plan without a port reads it"),
    }
}

fn null_read(port: &mut Port<'_>, offset: Sectors, len: Bytes) -> Result<(), Errno> {
    match port {
        Port::Memory(_) => port.put_zeroes(offset, len),
        Port::UserCopy { .. } | Port::None => Ok(()),
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
