//! The control plane of the ublk driver. Every command ends within 30 seconds.

use super::command::{self, Command, Failure};
use super::error::UblkError;
use super::native::{self, CopyLimits};
use libublk::sys;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

/// What the kernel says about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The number in its name.
    pub id: u32,
    /// Hardware queues.
    pub queues: u16,
    /// Requests in flight a queue.
    pub depth: u16,
    /// The largest request in bytes.
    pub max_io_bytes: u32,
    /// Its state.
    pub state: DeviceState,
    /// The process that serves it, or served it last; -1 for none.
    pub server_pid: i32,
    /// `UBLK_F_*`.
    pub flags: u64,
    /// The mark of the program that made it: see [`OUR_MARK`].
    pub server_flags: u64,
    /// The user who owns it.
    pub owner_uid: u32,
    /// The group that owns it.
    pub owner_gid: u32,
    /// Size in 512-byte sectors; 0 before it is known.
    pub sectors: u64,
    /// log2 of the logical block size; 0 before it is known.
    pub logical_block_shift: u8,
}

/// `server_flags` of the disks made by this program.
pub const OUR_MARK: u64 = u64::from_be_bytes(*b"ublkcopy");

/// The state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// No server.
    Dead,
    /// Served.
    Live,
    /// Its server died; requests wait for a new one.
    Quiesced,
    /// Its server died; requests fail until there is a new one.
    FailIo,
    /// One that this program does not know.
    Unknown(u16),
}

impl DeviceState {
    fn new(state: u16) -> Self {
        match u32::from(state) {
            sys::UBLK_S_DEV_DEAD => Self::Dead,
            sys::UBLK_S_DEV_LIVE => Self::Live,
            sys::UBLK_S_DEV_QUIESCED => Self::Quiesced,
            sys::UBLK_S_DEV_FAIL_IO => Self::FailIo,
            _ => Self::Unknown(state),
        }
    }

    /// The name as `ublk list` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dead => "DEAD",
            Self::Live => "LIVE",
            Self::Quiesced => "QUIESCED",
            Self::FailIo => "FAIL_IO",
            Self::Unknown(_) => "UNKNOWN",
        }
    }
}

/// The names of the bits of [`DeviceInfo::flags`] and of [`features`], by bit, without their `UBLK_F_`.
pub const FEATURE_NAMES: [&str; 22] = [
    "SUPPORT_ZERO_COPY",
    "URING_CMD_COMP_IN_TASK",
    "NEED_GET_DATA",
    "USER_RECOVERY",
    "USER_RECOVERY_REISSUE",
    "UNPRIVILEGED_DEV",
    "CMD_IOCTL_ENCODE",
    "USER_COPY",
    "ZONED",
    "USER_RECOVERY_FAIL_IO",
    "UPDATE_SIZE",
    "AUTO_BUF_REG",
    "QUIESCE",
    "PER_IO_DAEMON",
    "BUF_REG_OFF_DAEMON",
    "BATCH_IO",
    "INTEGRITY",
    "SAFE_STOP_DEV",
    "NO_AUTO_PART_SCAN",
    "SHMEM_ZC",
    "IO_DESC_SIZE",
    "COPY",
];

/// The numbers of the devices that exist, ascending, whoever made them. Without the driver there are none.
///
/// # Errors
/// sysfs cannot be read.
pub fn device_ids() -> io::Result<Vec<u32>> {
    let entries = match std::fs::read_dir("/sys/class/ublk-char") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut ids = BTreeSet::new();
    for entry in entries {
        let name = entry?.file_name();
        ids.extend(name.to_str().and_then(|name| name.strip_prefix("ublkc")?.parse::<u32>().ok()));
    }
    Ok(ids.into_iter().collect())
}

/// What the kernel says about a device; `None` when there is no such device.
///
/// # Errors
/// See [`UblkError`].
pub fn device_info(id: u32) -> Result<Option<DeviceInfo>, UblkError> {
    Control::open()?.info(id)
}

/// The features of the driver: `UBLK_F_*`.
///
/// # Errors
/// See [`UblkError`].
pub fn features() -> Result<u64, UblkError> {
    Control::open()?.features()
}

/// Stops and deletes a device, with or without a server, whoever made it. One that is gone is no error.
///
/// # Errors
/// See [`UblkError`].
pub fn delete(id: u32) -> Result<(), UblkError> {
    let control = Control::open()?;
    let Some(device) = control.find(id)? else {
        return Ok(());
    };
    control.stop(&device)?;
    control.delete(&device)
}

/// Sets the limits of a device's copies in the kernel. Waits for the requests that its server has, so neither the server
/// nor a thread of it may be the one that asks.
///
/// # Errors
/// See [`UblkError`]; there is no such device.
pub fn update_copy(id: u32, limits: CopyLimits) -> Result<(), UblkError> {
    let control = Control::open()?;
    let device = control.find(id)?.ok_or(UblkError::NoDevice { id })?;
    control.device_command(&device, native::UPDATE_COPY, "UPDATE_COPY", 0, limits).map(drop)
}

/// Refuses the running kernel when it is known to crash as a disk is made.
///
/// # Errors
/// [`UblkError::BadKernel`].
pub fn check_kernel() -> Result<(), UblkError> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if is_bad_kernel(&release) { Err(UblkError::BadKernel { release }) } else { Ok(()) }
}

fn is_bad_kernel(release: &str) -> bool {
    let digits = release.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(release.len());
    matches!(&release[..digits], "6.18.4" | "6.18.5")
}

/// True when this process may do as it likes with every device.
pub(super) fn is_privileged() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// `/dev/ublk-control`.
#[derive(Debug)]
pub(super) struct Control {
    file: File,
}

/// A device as commands name it.
#[derive(Clone, Debug)]
pub(super) struct DeviceRef {
    pub(super) id: u32,
    /// Of the character device, where permission goes by it.
    path: Option<String>,
}

/// `/dev/ublkcN`.
pub(super) fn char_path(id: u32) -> String {
    format!("/dev/ublkc{id}")
}

impl Control {
    pub(super) fn open() -> Result<Self, UblkError> {
        let path = "/dev/ublk-control";
        match File::options().read(true).write(true).open(path) {
            Ok(file) => Ok(Self { file }),
            Err(error) => Err(match Errno::from_io_error(&error) {
                Some(Errno::PERM | Errno::ACCESS) => UblkError::NoPermission { what: path },
                // A node may outlive its module.
                Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) => UblkError::NoModule,
                _ => UblkError::Device { path: path.into(), error },
            }),
        }
    }

    pub(super) fn features(&self) -> Result<u64, UblkError> {
        let op = sys::UBLK_U_CMD_GET_FEATURES;
        let command = Command { op, name: "GET_FEATURES", device: u32::MAX, data: 0, path: None };
        match command::execute(&self.file, command, 0u64) {
            Ok(features) => Ok(features),
            Err(Failure::Errno(Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV)) => {
                Err(UblkError::OldKernel { missing: "GET_FEATURES", since: "6.6" })
            }
            Err(failure) => Err(explain(command.name, failure)),
        }
    }

    /// Makes a device as `info` says, and `info` what the kernel made of it.
    pub(super) fn add(&self, info: &mut sys::ublksrv_ctrl_dev_info) -> Result<DeviceRef, UblkError> {
        let op = sys::UBLK_U_CMD_ADD_DEV;
        let command = Command { op, name: "ADD_DEV", device: info.dev_id, data: 0, path: None };
        match command::execute(&self.file, command, *info) {
            Ok(made) => {
                *info = made;
                let unprivileged = made.flags & u64::from(sys::UBLK_F_UNPRIVILEGED_DEV) != 0;
                Ok(DeviceRef { id: made.dev_id, path: unprivileged.then(|| char_path(made.dev_id)) })
            }
            Err(Failure::Errno(Errno::EXIST)) => Err(UblkError::IdInUse { id: info.dev_id }),
            Err(Failure::Errno(Errno::ACCESS | Errno::NOSPC)) => Err(UblkError::DeviceLimit),
            Err(failure) => Err(explain(command.name, failure)),
        }
    }

    /// `params` is a `struct ublk_params`, of any length that the kernel knows.
    pub(super) fn set_params<P: command::Payload>(
        &self,
        device: &DeviceRef,
        params: P,
    ) -> Result<(), UblkError> {
        self.device_command(device, sys::UBLK_U_CMD_SET_PARAMS, "SET_PARAMS", 0, params).map(drop)
    }

    /// Publishes the block device. The queues are served by this process.
    pub(super) fn start(&self, device: &DeviceRef) -> Result<(), UblkError> {
        let pid = u64::from(std::process::id());
        self.device_command(device, sys::UBLK_U_CMD_START_DEV, "START_DEV", pid, [0u8; 0]).map(drop)
    }

    /// Begins to give a device whose server died to this process. Waits until the driver is done with that server.
    pub(super) fn start_recovery(&self, device: &DeviceRef) -> Result<(), UblkError> {
        let op = sys::UBLK_U_CMD_START_USER_RECOVERY;
        let name = "START_USER_RECOVERY";
        let command = Command { op, name, device: device.id, data: 0, path: device.path.as_deref() };
        let deadline = Instant::now() + command::TIMEOUT;
        loop {
            match command::execute(&self.file, command, [0u8; 0]) {
                Ok(_) => return Ok(()),
                Err(Failure::Errno(Errno::BUSY)) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(Failure::Errno(Errno::NODEV)) => return Err(UblkError::NoDevice { id: device.id }),
                Err(failure) => return Err(explain(name, failure)),
            }
        }
    }

    /// The device is served by this process; requests that waited come.
    pub(super) fn end_recovery(&self, device: &DeviceRef) -> Result<(), UblkError> {
        let pid = u64::from(std::process::id());
        let op = sys::UBLK_U_CMD_END_USER_RECOVERY;
        self.device_command(device, op, "END_USER_RECOVERY", pid, [0u8; 0]).map(drop)
    }

    /// Takes the block device away; its server is told that nothing will come. One that is gone is no error.
    pub(super) fn stop(&self, device: &DeviceRef) -> Result<(), UblkError> {
        self.ending(device, sys::UBLK_U_CMD_STOP_DEV, "STOP_DEV")
    }

    /// Frees the number. Waits until nobody has the character device open. One that is gone is no error.
    pub(super) fn delete(&self, device: &DeviceRef) -> Result<(), UblkError> {
        self.ending(device, sys::UBLK_U_CMD_DEL_DEV, "DEL_DEV")
    }

    fn ending(&self, device: &DeviceRef, op: u32, name: &'static str) -> Result<(), UblkError> {
        let command = Command { op, name, device: device.id, data: 0, path: device.path.as_deref() };
        match command::execute(&self.file, command, [0u8; 0]) {
            Ok(_) | Err(Failure::Errno(Errno::NODEV | Errno::NOENT)) => Ok(()),
            Err(failure) => Err(explain(name, failure)),
        }
    }

    /// The CPUs that send to a queue, as the kernel's mask, lowest first.
    pub(super) fn affinity(&self, device: &DeviceRef, queue: u16) -> Result<[u8; 128], UblkError> {
        let op = sys::UBLK_U_CMD_GET_QUEUE_AFFINITY;
        self.device_command(device, op, "GET_QUEUE_AFFINITY", queue.into(), [0u8; 128])
    }

    /// A device by its number, `None` when there is none.
    fn find(&self, id: u32) -> Result<Option<DeviceRef>, UblkError> {
        Ok(self.raw_info(id)?.map(|(device, _)| device))
    }

    pub(super) fn info(&self, id: u32) -> Result<Option<DeviceInfo>, UblkError> {
        let Some((device, raw)) = self.raw_info(id)? else {
            return Ok(None);
        };
        let asked = sys::ublk_params { len: size_of::<sys::ublk_params>() as u32, ..Default::default() };
        let op = sys::UBLK_U_CMD_GET_PARAMS;
        let params = self.device_command(&device, op, "GET_PARAMS", 0, asked)?;
        Ok(Some(DeviceInfo {
            id: raw.dev_id,
            queues: raw.nr_hw_queues,
            depth: raw.queue_depth,
            max_io_bytes: raw.max_io_buf_bytes,
            state: DeviceState::new(raw.state),
            server_pid: raw.ublksrv_pid,
            flags: raw.flags,
            server_flags: raw.ublksrv_flags,
            owner_uid: raw.owner_uid,
            owner_gid: raw.owner_gid,
            sectors: params.basic.dev_sectors,
            logical_block_shift: params.basic.logical_bs_shift,
        }))
    }

    pub(super) fn raw_info(
        &self,
        id: u32,
    ) -> Result<Option<(DeviceRef, sys::ublksrv_ctrl_dev_info)>, UblkError> {
        let path = char_path(id);
        // The second form answers the owner of an unprivileged device, the first root where there is no node.
        let forms = [
            (sys::UBLK_U_CMD_GET_DEV_INFO2, "GET_DEV_INFO2", Some(path.as_str())),
            (sys::UBLK_U_CMD_GET_DEV_INFO, "GET_DEV_INFO", None),
        ];
        let mut failure = None;
        for (op, name, path) in forms {
            let command = Command { op, name, device: id, data: 0, path };
            match command::execute(&self.file, command, sys::ublksrv_ctrl_dev_info::default()) {
                Ok(raw) => {
                    let unprivileged = raw.flags & u64::from(sys::UBLK_F_UNPRIVILEGED_DEV) != 0;
                    return Ok(Some((DeviceRef { id, path: unprivileged.then(|| char_path(id)) }, raw)));
                }
                Err(Failure::Errno(Errno::NODEV)) => return Ok(None),
                Err(Failure::Errno(errno)) => failure = failure.or(Some(UblkError::refused(name, errno))),
                Err(Failure::Error(error)) => return Err(error),
            }
        }
        Err(failure.expect("both forms failed"))
    }

    fn device_command<P: command::Payload>(
        &self,
        device: &DeviceRef,
        op: u32,
        name: &'static str,
        data: u64,
        payload: P,
    ) -> Result<P, UblkError> {
        let command = Command { op, name, device: device.id, data, path: device.path.as_deref() };
        command::execute(&self.file, command, payload).map_err(|failure| match failure {
            Failure::Errno(Errno::NODEV) => UblkError::NoDevice { id: device.id },
            other => explain(name, other),
        })
    }
}

fn explain(command: &'static str, failure: Failure) -> UblkError {
    match failure {
        Failure::Errno(errno) => UblkError::refused(command, errno),
        Failure::Error(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_broken_releases_are_refused() {
        for release in ["6.18.4", "6.18.5-generic", "6.18.4+deb13-amd64", "6.18.5-fc-v1"] {
            assert!(is_bad_kernel(release), "{release}");
        }
        for release in
            ["6.18.3", "6.18.6", "6.18.40", "6.18.44-fc-v595", "6.1.4", "16.18.4", "7.3.4+deb13-amd64"]
        {
            assert!(!is_bad_kernel(release), "{release}");
        }
    }

    #[test]
    fn every_feature_of_the_driver_has_its_name() {
        let bits = [
            (sys::UBLK_F_SUPPORT_ZERO_COPY, "SUPPORT_ZERO_COPY"),
            (sys::UBLK_F_USER_COPY, "USER_COPY"),
            (sys::UBLK_F_USER_RECOVERY_FAIL_IO, "USER_RECOVERY_FAIL_IO"),
            (sys::UBLK_F_BATCH_IO, "BATCH_IO"),
            (sys::UBLK_F_SHMEM_ZC, "SHMEM_ZC"),
        ];
        for (flag, name) in bits {
            assert_eq!(FEATURE_NAMES[flag.trailing_zeros() as usize], name);
        }
        assert_eq!(FEATURE_NAMES[native::FEATURE.trailing_zeros() as usize], "COPY");
    }

    #[test]
    fn a_machine_without_the_driver_says_so() {
        if std::path::Path::new("/dev/ublk-control").exists() {
            return;
        }
        assert!(matches!(features(), Err(UblkError::NoModule)));
        assert!(device_ids().unwrap().is_empty());
        assert!(UblkError::NoModule.to_string().contains("modprobe ublk_drv"));
    }
}
