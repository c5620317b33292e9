//! The ublk door: block devices `/dev/ublkbN`, served by one thread a queue.
//!
//! Of the crate `libublk` this uses the kernel's types and numbers; commands and queues are our own, since the crate's
//! control commands wait without bound, print to stderr, keep files of their own and refuse newer flags.

pub mod control;

mod command;
pub mod decode;
mod descriptors;
mod error;
pub mod native;
mod params;
mod queue;
mod zones;

use crate::config::RecoveryMode;
use crate::engine::Engine;
use control::{Control, DeviceInfo, DeviceRef};
use emulation::{Limits, VolumeId};
pub use error::UblkError;
use libublk::sys;
use queue::{Queue, Started};
use rustix::io::Errno;
use rustix::thread::CpuSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What a disk is made from.
#[derive(Clone, Debug)]
pub struct DiskParams {
    /// The number in its name; the kernel chooses when `None`.
    pub id: Option<u32>,
    /// Hardware queues, 1 to 4096; the kernel takes at most as many as it has CPUs.
    pub queues: u16,
    /// Requests in flight a queue, 1 to 4096.
    pub depth: u16,
    /// The volume of the engine's pool.
    pub volume: VolumeId,
    /// Its limits at the start: geometry, `read_only`, `max_io` (from a page to 32 MiB).
    pub limits: Limits,
    /// Made for the user who runs this; nothing else for root. Data is copied twice.
    pub unprivileged: bool,
    /// Writes may be lost until flushed: the device advertises a write cache, and FUA.
    pub volatile_cache: bool,
    /// The medium rotates.
    pub rotational: bool,
    /// It outlives its server.
    pub recovery: Option<RecoveryMode>,
    /// Go on with a kernel release known to crash when a disk is made.
    pub force: bool,
}

/// How long a new character device may be held by udev.
const OPEN_TIME: Duration = Duration::from_secs(3);

/// One running disk.
#[derive(Debug)]
pub struct UblkDisk {
    control: Control,
    device: DeviceRef,
    info: DeviceInfo,
    path: PathBuf,
    threads: Threads,
    started: Vec<Started>,
}

impl UblkDisk {
    /// Makes the device, serves it, and returns when the kernel has published it. Blocks.
    ///
    /// # Errors
    /// See [`UblkError`]. Nothing is left behind, unless the kernel did not answer.
    pub fn start(engine: Arc<Engine>, params: DiskParams) -> Result<Self, UblkError> {
        let page = rustix::param::page_size() as u64;
        params::check(&params, page)?;
        let control = Control::open()?;
        if !params.force {
            control::check_kernel()?;
        }
        let user_copy = control::is_privileged() || !params.unprivileged;
        let mut info = new_info(&control, &params, user_copy, page)?;
        let device = control.add(&mut info)?;
        let mut threads = Threads::new();
        match launch(&control, &device, &info, engine, &params, Launch::Start, &mut threads) {
            Ok((started, info)) => {
                let path = PathBuf::from(format!("/dev/ublkb{}", device.id));
                Ok(Self { control, device, info, path, threads, started })
            }
            // What does not answer would not answer the clean-up either.
            Err(error @ UblkError::Timeout { .. }) => Err(error),
            Err(error) => {
                // The first error is the one to report.
                let _ = take_away(&control, &device, threads);
                Err(error)
            }
        }
    }

    /// Serves a device again whose server died. Blocks until the driver has let go of that.
    ///
    /// # Errors
    /// See [`UblkError`]. The device stays, and can be recovered again.
    pub fn recover(engine: Arc<Engine>, params: DiskParams, id: u32) -> Result<Self, UblkError> {
        let control = Control::open()?;
        let Some((device, info)) = control.raw_info(id)? else {
            return Err(UblkError::NoDevice { id });
        };
        if info.flags & u64::from(sys::UBLK_F_USER_RECOVERY) == 0 || info.ublksrv_flags != control::OUR_MARK {
            return Err(UblkError::NotRecoverable { id });
        }
        control.start_recovery(&device)?;
        let mut threads = Threads::new();
        let (started, info) =
            launch(&control, &device, &info, engine, &params, Launch::Recover, &mut threads)?;
        let path = PathBuf::from(format!("/dev/ublkb{}", device.id));
        Ok(Self { control, device, info, path, threads, started })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.device.id
    }

    /// `/dev/ublkbN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the kernel said about it when it was published.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// True when every thread that serves it is exempt from reclaim through itself (`PR_SET_IO_FLUSHER`).
    pub fn io_flusher(&self) -> bool {
        self.started.iter().all(|started| started.io_flusher)
    }

    /// The kernel's thread numbers of the queue threads, by queue.
    pub fn queue_tids(&self) -> Vec<i32> {
        self.started.iter().map(|started| started.tid).collect()
    }

    /// Waits until the kernel has taken every queue away: somebody else stopped the device, perhaps. Call
    /// [`UblkDisk::stop`] then, too.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.threads.ended.clone();
        async move { while ended.changed().await.is_ok() {} }
    }

    /// Takes the disk away: stop while the queues still serve, end them, close, delete. Blocks, with a bound.
    ///
    /// # Errors
    /// The kernel refused or did not answer in time.
    pub fn stop(self) -> Result<(), UblkError> {
        take_away(&self.control, &self.device, self.threads)
    }
}

fn new_info(
    control: &Control,
    params: &DiskParams,
    user_copy: bool,
    page: u64,
) -> Result<sys::ublksrv_ctrl_dev_info, UblkError> {
    let features = control.features()?;
    let mode = if user_copy { sys::UBLK_F_USER_COPY } else { sys::UBLK_F_UNPRIVILEGED_DEV };
    let mut flags = u64::from(sys::UBLK_F_CMD_IOCTL_ENCODE | mode);
    if features & flags != flags {
        let missing = if user_copy { "USER_COPY" } else { "UNPRIVILEGED_DEV" };
        return Err(UblkError::OldKernel { missing, since: "6.6" });
    }
    let recovery = recovery_flags(params.recovery);
    if features & recovery != recovery {
        return Err(match params.recovery {
            Some(RecoveryMode::FailIo) => {
                UblkError::OldKernel { missing: "USER_RECOVERY_FAIL_IO", since: "6.13" }
            }
            _ => UblkError::OldKernel { missing: "USER_RECOVERY", since: "6.1" },
        });
    }
    flags |= recovery;
    // The driver takes copies with user copy alone.
    if user_copy {
        flags |= features & native::FEATURE;
    }
    if params.limits.zones.is_some() {
        flags |= u64::from(sys::UBLK_F_ZONED);
        if features & flags != flags {
            return Err(UblkError::OldKernel { missing: "ZONED", since: "6.6" });
        }
    }
    Ok(sys::ublksrv_ctrl_dev_info {
        nr_hw_queues: params.queues,
        queue_depth: params.depth,
        max_io_buf_bytes: params::max_io_buf_bytes(&params.limits, page),
        dev_id: params.id.unwrap_or(u32::MAX),
        ublksrv_pid: std::process::id().cast_signed(),
        flags,
        ublksrv_flags: control::OUR_MARK,
        ..Default::default()
    })
}

fn recovery_flags(recovery: Option<RecoveryMode>) -> u64 {
    let flags = match recovery {
        None => 0,
        Some(RecoveryMode::Queue) => sys::UBLK_F_USER_RECOVERY,
        Some(RecoveryMode::Reissue) => sys::UBLK_F_USER_RECOVERY | sys::UBLK_F_USER_RECOVERY_REISSUE,
        Some(RecoveryMode::FailIo) => sys::UBLK_F_USER_RECOVERY | sys::UBLK_F_USER_RECOVERY_FAIL_IO,
    };
    flags.into()
}

/// How a device comes to have a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launch {
    /// It is new.
    Start,
    /// Its server died.
    Recover,
}

/// From a device that was added, or whose recovery has begun, to one that is served.
fn launch(
    control: &Control,
    device: &DeviceRef,
    info: &sys::ublksrv_ctrl_dev_info,
    engine: Arc<Engine>,
    params: &DiskParams,
    how: Launch,
    threads: &mut Threads,
) -> Result<(Vec<Started>, DeviceInfo), UblkError> {
    // First of all: where the kernel goes by the node's owner, it refuses other commands until udev has set it.
    let file = Arc::new(open_device(device.id)?);
    let base = params::params(params);
    let native = info.flags & native::FEATURE != 0;
    match (how, native) {
        // It has them already.
        (Launch::Recover, _) => {}
        (Launch::Start, true) => control.set_params(device, native::params(base, &params.limits))?,
        (Launch::Start, false) => control.set_params(device, base)?,
    }
    let user_copy = info.flags & u64::from(sys::UBLK_F_USER_COPY) != 0;
    let mut started = Vec::new();
    for queue in 0..info.nr_hw_queues {
        let queue = Queue {
            engine: Arc::clone(&engine),
            device: Arc::clone(&file),
            queue,
            depth: info.queue_depth,
            volume: params.volume,
            max_io: params.limits.max_io,
            logical_block: params.limits.logical_block,
            copy_sources: if native { native::SOURCES_LEN } else { 0 },
            buffer: (!user_copy).then_some(info.max_io_buf_bytes as usize),
            cpus: cpu_set(control.affinity(device, queue)?),
        };
        started.push(threads.spawn(device.id, queue)?);
    }
    // The threads hold the device from here on, so that it is closed when they have ended.
    drop(file);
    threads.complete();
    match how {
        Launch::Start => control.start(device)?,
        Launch::Recover => control.end_recovery(device)?,
    }
    let info = control.info(device.id)?.ok_or(UblkError::NoDevice { id: device.id })?;
    Ok((started, info))
}

fn take_away(control: &Control, device: &DeviceRef, threads: Threads) -> Result<(), UblkError> {
    control.stop(device)?;
    threads.join(device.id)?;
    control.delete(device)
}

/// Opens `/dev/ublkcN`, which udev may still be about to make, to hand to its owner, or to look at.
fn open_device(id: u32) -> Result<File, UblkError> {
    let path = control::char_path(id);
    let deadline = Instant::now() + OPEN_TIME;
    loop {
        match File::options().read(true).write(true).open(&path) {
            Ok(file) => return Ok(file),
            Err(error) => {
                let passing = matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NXIO | Errno::BUSY)
                );
                if !passing || Instant::now() >= deadline {
                    return Err(UblkError::Device { path, error });
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn cpu_set(mask: [u8; 128]) -> CpuSet {
    let mut set = CpuSet::new();
    for cpu in 0..CpuSet::MAX_CPU.min(mask.len() * 8) {
        if mask[cpu / 8] & 1 << (cpu % 8) != 0 {
            set.set(cpu);
        }
    }
    set
}

/// The queue threads of a disk.
#[derive(Debug)]
struct Threads {
    handles: Vec<JoinHandle<()>>,
    /// For threads to come.
    alive: Option<Alive>,
    over: mpsc::Receiver<()>,
    ended: watch::Receiver<()>,
}

/// Every thread has one; the other ends see when the last is gone.
#[derive(Clone, Debug)]
struct Alive {
    _over: mpsc::Sender<()>,
    _ended: watch::Sender<()>,
}

impl Threads {
    /// How long a queue thread has to start, and the last of all to end.
    const TIME: Duration = command::TIMEOUT;

    fn new() -> Self {
        let (sender, over) = mpsc::channel();
        let (changes, ended) = watch::channel(());
        Self { handles: Vec::new(), alive: Some(Alive { _over: sender, _ended: changes }), over, ended }
    }

    fn spawn(&mut self, id: u32, queue: Queue) -> Result<Started, UblkError> {
        let number = queue.queue;
        let fail = |error| UblkError::Queue { queue: number, error };
        let (sender, receiver) = mpsc::channel();
        let alive = self.alive.clone();
        let handle = std::thread::Builder::new()
            .name(format!("ublk{id}-q{number}"))
            .spawn(move || {
                queue.serve(sender);
                drop(alive);
            })
            .map_err(fail)?;
        self.handles.push(handle);
        receiver.recv_timeout(Self::TIME).map_err(|_| UblkError::ThreadsHang { id })?
    }

    /// No thread will be added.
    fn complete(&mut self) {
        self.alive = None;
    }

    /// Waits for the end of all, which the kernel has been asked for.
    fn join(mut self, id: u32) -> Result<(), UblkError> {
        self.complete();
        match self.over.recv_timeout(Self::TIME) {
            Err(RecvTimeoutError::Disconnected) => {}
            Ok(()) | Err(RecvTimeoutError::Timeout) => return Err(UblkError::ThreadsHang { id }),
        }
        self.handles.into_iter().for_each(|handle| handle.join().expect("a panic ends the process"));
        Ok(())
    }
}
