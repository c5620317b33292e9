//! The disk under load: its copies and its contents.

use super::namespace::Namespace;
use super::native::Lane;
use super::options::{CopyOptions, Door, Engine};
use super::pattern::Segment;
use super::stats::Stats;
use crate::failure::Failure;
use emulation::Bytes;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;
use ublk_server::cli::Target as DiskName;
use ublk_server::control::api::{self, CopyRequest, DATA_MAX, Disk, Job, JobState};
use ublk_server::control::client::{Client, ClientError};
use ublk_server::state::State;

/// Where buffers of direct I/O begin: no device asks for more.
const ALIGN: usize = 4096;

/// A copy that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopyError {
    /// For the result.
    pub(super) errno: i32,
    /// For people.
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// The disk.
#[derive(Debug)]
pub(super) struct Target {
    kind: Kind,
    /// Bytes.
    pub(super) size: u64,
    /// What it is called in the result.
    pub(super) name: String,
}

#[derive(Debug)]
enum Kind {
    /// The control API of a disk, and its block device, if it has one.
    Device { client: Client, path: String, block_device: Option<File> },
    /// A namespace, and its block device for what is not copied.
    Nvme(Namespace, File),
    /// A block device, for the kernel's copy operation, and the control API of its disk if it is one of this program.
    Native { device: File, api: Option<(Client, String)> },
    /// A block device or a file.
    Host(File),
}

/// Memory for direct I/O of one thread.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Zeroes.
    pub(super) fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN);
        Self { bytes, start, len }
    }

    /// Its bytes.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl Target {
    /// Opens the disk that the options name.
    pub(super) fn open(options: &CopyOptions) -> Result<Self, Failure> {
        if options.engine == Engine::Host && options.door != Door::Api {
            return Err(Failure::usage("--door is for --engine=device"));
        }
        if options.door != Door::Api {
            return Self::native(options);
        }
        match (options.engine, &options.filename, &options.disk) {
            (Engine::Host, Some(path), _) => Self::host(path),
            (Engine::Host, None, Some(disk)) => match device(disk)?.1.path {
                Some(path) => Self::host(&path),
                None => Err(Failure::usage(format!("disk {disk} has no block device"))
                    .hint("engine host reads and writes one: use --engine=device")),
            },
            (Engine::Nvme, Some(path), _) => Self::nvme(path),
            (Engine::Nvme, None, Some(disk)) => {
                Err(Failure::usage(format!("disk {disk}: engine nvme needs --filename=/dev/nvmeXnY")))
            }
            (Engine::Device, Some(path), _) => Self::device(&named(path)?),
            (Engine::Device, None, Some(disk)) => Self::device(disk),
            (_, None, None) => Err(Failure::usage("neither --filename nor --disk: no disk to load")),
        }
    }

    fn device(name: &DiskName) -> Result<Self, Failure> {
        let (client, disk) = device(name)?;
        let block_device = disk.path.as_deref().map(|path| open(path, false)).transpose()?;
        Ok(Self {
            kind: Kind::Device { client, path: format!("/v1/disks/{}", disk.name), block_device },
            size: disk.size.0,
            name: disk.path.map_or(disk.name, |path| path.display().to_string()),
        })
    }

    fn native(options: &CopyOptions) -> Result<Self, Failure> {
        let name = match (&options.filename, &options.disk) {
            (Some(path), _) => named(path).ok(),
            (None, disk) => disk.clone(),
        };
        let served = match (name, &options.filename) {
            (Some(name), None) => Some(device(&name)?),
            // Of another program, perhaps.
            (name, _) => name.and_then(|name| device(&name).ok()),
        };
        let of_disk = served.as_ref().and_then(|(_, disk)| disk.path.clone());
        let path = options.filename.clone().or(of_disk).ok_or_else(|| {
            Failure::usage("the disk has no block device, which --door=native copies on")
                .hint("use --door=api")
        })?;
        let Self { kind, size, name } = Self::host(&path)?;
        let Kind::Host(device) = kind else { unreachable!("a host's target is a file") };
        let api = served.map(|(client, disk)| (client, format!("/v1/disks/{}", disk.name)));
        Ok(Self { kind: Kind::Native { device, api }, size, name })
    }

    fn host(path: &Path) -> Result<Self, Failure> {
        let mut file = open(path, true)?;
        let size = file.seek(SeekFrom::End(0)).map_err(|error| failed(path, &error))?;
        Ok(Self { kind: Kind::Host(file), size, name: path.display().to_string() })
    }

    fn nvme(path: &Path) -> Result<Self, Failure> {
        let Self { kind, size, name } = Self::host(path)?;
        let Kind::Host(file) = kind else { unreachable!("a block device was opened") };
        let commands = file.try_clone().map_err(|error| failed(path, &error))?;
        Ok(Self { kind: Kind::Nvme(Namespace::new(commands, path)?, file), size, name })
    }

    /// A file as it is, for tests.
    #[cfg(test)]
    pub(super) fn of_file(file: File, size: u64) -> Self {
        Self { kind: Kind::Host(file), size, name: "a file".to_string() }
    }

    /// Does one command and counts it.
    pub(super) fn copy(
        &self,
        segments: &[Segment],
        bs: u64,
        lane: Option<&mut Lane>,
        buffer: &mut Buffer,
        stats: &mut Stats,
    ) -> Result<(), CopyError> {
        let begun = Instant::now();
        match &self.kind {
            Kind::Device { client, path, .. } => by_device(client, path, segments, bs)?,
            Kind::Nvme(namespace, _) => namespace.copy(segments, bs)?,
            Kind::Native { device, .. } => {
                lane.expect("a native door gives each thread one").copy(device, segments, bs)?;
            }
            Kind::Host(file) => by_host(file, segments, buffer, stats)?,
        }
        stats.copy.done(bs * segments.len() as u64, begun.elapsed());
        Ok(())
    }

    /// Reads from the disk, past the host's cache.
    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Failure> {
        match &self.kind {
            Kind::Host(file)
            | Kind::Nvme(_, file)
            | Kind::Native { device: file, .. }
            | Kind::Device { block_device: Some(file), .. } => file
                .read_exact_at(to, offset)
                .map_err(|error| Failure::failed(format!("{}: read at {offset}: {error}", self.name))),
            Kind::Device { client, path, block_device: None } => {
                for (at, to) in (offset..).step_by(DATA_MAX as usize).zip(to.chunks_mut(DATA_MAX as usize)) {
                    let query = format!("{path}/data?offset={at}&length={}", to.len());
                    let data = client.exchange("GET", &query, b"").map_err(unreachable)?;
                    if data.len() != to.len() {
                        return Err(Failure::failed(format!("{}: short read at {at}", self.name)));
                    }
                    to.copy_from_slice(&data);
                }
                Ok(())
            }
        }
    }

    /// What the disk has counted; `None` for a host copy.
    pub(super) fn ledger(&self) -> Result<Option<api::Stats>, Failure> {
        match &self.kind {
            Kind::Device { client, path, .. } | Kind::Native { api: Some((client, path)), .. } => {
                client.call("GET", &format!("{path}/stats")).map(Some).map_err(unreachable)
            }
            Kind::Host(_) | Kind::Nvme(..) | Kind::Native { api: None, .. } => Ok(None),
        }
    }
}

/// One copy command of the control API; the answer comes when it has ended.
fn by_device(client: &Client, path: &str, segments: &[Segment], bs: u64) -> Result<(), CopyError> {
    let segment = |segment: &Segment| api::Segment {
        from: None,
        source: Bytes(segment.source),
        length: Bytes(bs),
        destination: Bytes(segment.destination),
    };
    let request = CopyRequest {
        segments: segments.iter().map(segment).collect(),
        one_command: true,
        ..CopyRequest::default()
    };
    let job: Job = match client.send("POST", &format!("{path}/copies?wait=true"), &request) {
        Ok(job) => job,
        Err(ClientError::Api(error)) => return Err(api_error(error)),
        Err(error) => {
            return Err(CopyError { errno: libc::EIO, message: error.to_string(), hint: None });
        }
    };
    match job.error {
        Some(error) => Err(api_error(error)),
        None if job.state == JobState::Done => Ok(()),
        None => Err(CopyError {
            errno: libc::EIO,
            message: format!("the copy ended as {:?}", job.state),
            hint: None,
        }),
    }
}

fn api_error(error: api::ApiError) -> CopyError {
    CopyError { errno: libc::EIO, message: error.message, hint: error.hint }
}

/// Reads and writes each segment.
fn by_host(
    file: &File,
    segments: &[Segment],
    buffer: &mut Buffer,
    stats: &mut Stats,
) -> Result<(), CopyError> {
    let failed = |what: &str, at: u64, error: &io::Error| CopyError {
        errno: error.raw_os_error().unwrap_or(libc::EIO),
        message: format!("{what} at {at}: {error}"),
        hint: None,
    };
    let bytes = buffer.bytes_mut();
    for segment in segments {
        let begun = Instant::now();
        file.read_exact_at(bytes, segment.source).map_err(|error| failed("read", segment.source, &error))?;
        stats.read.done(bytes.len() as u64, begun.elapsed());
        let begun = Instant::now();
        file.write_all_at(bytes, segment.destination)
            .map_err(|error| failed("write", segment.destination, &error))?;
        stats.write.done(bytes.len() as u64, begun.elapsed());
    }
    Ok(())
}

/// A disk of this project by the path of its block device.
fn named(path: &Path) -> Result<DiskName, Failure> {
    let name = path.to_str().filter(|text| text.starts_with("/dev/ublkb")).and_then(|text| text.parse().ok());
    name.ok_or_else(|| {
        Failure::usage(format!("{}: engine device copies on disks /dev/ublkbN", path.display()))
            .hint("use --engine=host for any other device")
    })
}

/// The server of a disk, and the disk as it shows it.
fn device(name: &DiskName) -> Result<(Client, Disk), Failure> {
    let state = State::open().map_err(|error| Failure::failed(error.to_string()))?;
    let records = state.disks().map_err(|error| Failure::failed(error.to_string()))?;
    let record = records.into_iter().find(|record| match name {
        DiskName::Id(id) => record.id == Some(*id),
        DiskName::Name(name) => record.name == *name,
    });
    let record = record.ok_or_else(|| {
        Failure::failed(format!("there is no disk {name} of this program"))
            .hint("`ublk list` shows what there is")
    })?;
    let client = Client::new(&state.socket(&record.pool));
    let disk = client.call("GET", &format!("/v1/disks/{}", record.name)).map_err(unreachable)?;
    Ok((client, disk))
}

fn unreachable(error: ClientError) -> Failure {
    match error {
        ClientError::Api(error) => Failure { hint: error.hint, ..Failure::failed(error.message) },
        ClientError::Connect(..) | ClientError::Transport(_) | ClientError::Answer(_) => {
            Failure::failed(error.to_string()).hint("`ublk list` shows whether the server is alive")
        }
    }
}

/// Opens for direct I/O. A block device that is to be written is taken exclusively, so that none in use is
/// overwritten.
fn open(path: &Path, write: bool) -> Result<File, Failure> {
    let kind = std::fs::metadata(path).map_err(|error| failed(path, &error))?.file_type();
    if !kind.is_block_device() && !kind.is_file() {
        return Err(Failure::usage(format!("{}: neither a block device nor a file", path.display())));
    }
    let exclusive = if kind.is_block_device() && write { libc::O_EXCL } else { 0 };
    File::options()
        .read(true)
        .write(write)
        .custom_flags(libc::O_DIRECT | exclusive)
        .open(path)
        .map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let why = format!("{}: {error}", path.display());
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Failure::cannot_run(why).hint("try as root"),
        Some(libc::EBUSY) => {
            Failure::failed(why).hint("it is mounted or held by another program: release it first")
        }
        Some(libc::EINVAL) => {
            Failure::cannot_run(why).hint("its file system takes no direct I/O: use another place")
        }
        _ => Failure::failed(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_where_direct_io_can() {
        for len in [512, 4096, 1 << 20] {
            let mut buffer = Buffer::new(len);
            assert_eq!(buffer.bytes_mut().as_ptr() as usize % ALIGN, 0);
            assert_eq!(buffer.bytes_mut().len(), len);
        }
    }

    #[test]
    fn engine_device_takes_paths_of_its_own_disks_only() {
        assert_eq!(named(Path::new("/dev/ublkb7")), Ok(DiskName::Id(7)));
        for path in ["/dev/sda", "/dev/ublkbx", "ublkb7", "/tmp/ublkb7"] {
            assert_eq!(named(Path::new(path)).unwrap_err().exit, crate::failure::Exit::Usage, "{path}");
        }
    }
}
