//! Commands to a namespace of the kernel's NVMe driver, as they are: `NVME_IOCTL_ADMIN_CMD` and `NVME_IOCTL_IO_CMD`.
//!
//! The one file with `unsafe` for them.

use super::wire::command::Sqe;
use super::wire::status::Status;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `struct nvme_passthru_cmd` of the kernel, whose fields are those of the command.
#[derive(Debug)]
#[repr(C)]
struct PassthruCmd {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}
const _: () = assert!(size_of::<PassthruCmd>() == 72);

/// `_IOWR('N', number, struct nvme_passthru_cmd)`.
const fn request(number: u32) -> u32 {
    3 << 30 | (size_of::<PassthruCmd>() as u32) << 16 | (b'N' as u32) << 8 | number
}

/// The longest time that a command may take.
const TIMEOUT_MS: u32 = 30_000;

/// Where a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// To the admin queue.
    Admin,
    /// To an I/O queue.
    Io,
}

/// How a command ended, and dword 0 of what it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub status: Status,
    /// Dword 0.
    pub result: u32,
}

/// Does a command; `data` is what it sends or where its data goes, by the opcode. The data pointer is the kernel's to
/// make.
///
/// # Errors
/// The kernel has not sent it, or has lost it. A command that fails is none.
pub fn run(device: &File, queue: Queue, sqe: &Sqe, data: &mut [u8]) -> io::Result<Ended> {
    let number = match queue {
        Queue::Admin => 0x41,
        Queue::Io => 0x43,
    };
    let data_len = u32::try_from(data.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut command = PassthruCmd {
        opcode: sqe.opcode,
        flags: 0,
        rsvd1: 0,
        nsid: sqe.nsid.get(),
        cdw2: sqe.cdw2[0].get(),
        cdw3: sqe.cdw2[1].get(),
        metadata: 0,
        addr: if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 },
        metadata_len: 0,
        data_len,
        cdw10: sqe.cdw10.get(),
        cdw11: sqe.cdw11.get(),
        cdw12: sqe.cdw12.get(),
        cdw13: sqe.cdw13.get(),
        cdw14: sqe.cdw14.get(),
        cdw15: sqe.cdw15.get(),
        timeout_ms: TIMEOUT_MS,
        result: 0,
    };
    // SAFETY: the kernel reads and writes the `struct nvme_passthru_cmd`, and `data_len` bytes from `addr` on, which
    // are borrowed for as long; it touches neither after the call has returned.
    let ended = unsafe { libc::ioctl(device.as_raw_fd(), request(number).into(), &raw mut command) };
    match u16::try_from(ended) {
        Ok(status) => Ok(Ended { status: Status(status), result: command.result }),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_kernels() {
        assert_eq!((request(0x41), request(0x43)), (0xc048_4e41, 0xc048_4e43));
    }

    #[test]
    fn a_file_that_is_no_namespace_is_refused() {
        let file = File::open("/dev/null").unwrap();
        let refused = run(&file, Queue::Io, &Sqe::new(0, 1), &mut []).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOTTY));
    }
}
