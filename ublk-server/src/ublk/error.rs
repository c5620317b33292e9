//! Why a ublk operation failed, for people.

use rustix::io::Errno;
use std::io;

/// Why a ublk operation failed. The first line says what and why, the second what to do.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// `/dev/ublk-control` is missing.
    #[error(
        "/dev/ublk-control does not exist: the ublk driver is not loaded\n\
         run `modprobe ublk_drv`, or boot a kernel with CONFIG_BLK_DEV_UBLK"
    )]
    NoModule,
    /// The user may not.
    #[error(
        "no permission for {what}\n\
         run as root; with --unprivileged a udev rule must open /dev/ublk-control to you"
    )]
    NoPermission {
        /// For what.
        what: &'static str,
    },
    /// io_uring is switched off.
    #[error(
        "io_uring is disabled: kernel.io_uring_disabled is {value}\n\
         run `sysctl kernel.io_uring_disabled=0`"
    )]
    IoUringDisabled {
        /// The value of the sysctl.
        value: u32,
    },
    /// io_uring cannot be used for another reason.
    #[error("io_uring cannot be set up: {0}\nit needs a kernel with io_uring, 6.1 or newer")]
    IoUring(io::Error),
    /// The kernel lacks something.
    #[error(
        "the ublk driver of this kernel lacks {missing}\n\
         use a kernel of {since} or newer"
    )]
    OldKernel {
        /// What it lacks.
        missing: &'static str,
        /// The first kernel that has it.
        since: &'static str,
    },
    /// A kernel that crashes when a disk is made.
    #[error(
        "Linux {release} crashes when a ublk disk is made (NULL pointer in ADD_DEV, fixed in 6.18.6)\n\
         boot another kernel, or go on at your own risk with --force"
    )]
    BadKernel {
        /// `uname -r`.
        release: String,
    },
    /// No more devices.
    #[error(
        "the limit of ublk devices is reached\n\
         delete one (`ublk list`), or raise the parameter ublks_max in /sys/module/ublk_drv/parameters"
    )]
    DeviceLimit,
    /// The number is taken.
    #[error("ublk device {id} exists already\nuse another number, or none and the kernel chooses")]
    IdInUse {
        /// The number.
        id: u32,
    },
    /// No such device.
    #[error("there is no ublk device {id}\n`ublk list` shows those that exist")]
    NoDevice {
        /// The number.
        id: u32,
    },
    /// A device that goes with its server, or another program's.
    #[error(
        "ublk device {id} cannot be recovered: it was not made with --user-recovery by this program\ndelete it: ublk del -n {id}"
    )]
    NotRecoverable {
        /// The number.
        id: u32,
    },
    /// The driver said no.
    #[error("the ublk driver refused {command}: {errno}\n`dmesg` may say why")]
    Refused {
        /// The command.
        command: &'static str,
        /// Its answer.
        errno: io::Error,
    },
    /// The driver did not answer.
    #[error(
        "the kernel did not answer {command} within 30 s\n\
         see `dmesg`: the driver may have crashed, or I/O on the device hangs"
    )]
    Timeout {
        /// The command.
        command: &'static str,
    },
    /// The queue threads did not start or end.
    #[error("the threads of ublk device {id} did not start or end within 30 s\nsee the log and `dmesg`")]
    ThreadsHang {
        /// The number of the device.
        id: u32,
    },
    /// The character device cannot be used.
    #[error("{path} cannot be opened: {error}\nis another server using it?")]
    Device {
        /// `/dev/ublkcN`.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// A queue cannot be served.
    #[error("queue {queue} cannot be served: {error}\n`dmesg` may say why")]
    Queue {
        /// Its number.
        queue: u16,
        /// Why.
        error: io::Error,
    },
    /// Numbers that the driver cannot take.
    #[error("{what} {value}: must be from {min} to {max}")]
    Parameter {
        /// Of what.
        what: &'static str,
        /// The number.
        value: u64,
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
}

impl UblkError {
    /// The cause of a failed io_uring_setup.
    pub(crate) fn ring(error: io::Error) -> Self {
        if error.raw_os_error() == Some(libc::EPERM) {
            let value = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
            if let Some(value @ 1..) = value.ok().and_then(|text| text.trim().parse().ok()) {
                return Self::IoUringDisabled { value };
            }
        }
        Self::IoUring(error)
    }

    /// A command's refusal that has no cause of its own here.
    pub(crate) fn refused(command: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => Self::NoPermission { what: command },
            _ => Self::Refused { command, errno: errno.into() },
        }
    }
}
