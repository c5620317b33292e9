//! What the clauses are run against: a disk that is written, read, and sent copy commands.

use super::Failure;
use super::namespace::{self, Namespace};
use super::zoned::ZonedTarget;
use crate::cli::Target as Named;
use crate::commands::locate;
use crate::control::api::{
    self, CopyRequest, Disk, Empty, Job, JobState, ZoneActionName, ZoneReport, ZoneRequest, ZoneView,
};
use crate::control::client::{Client, ClientError};
use crate::state::State;
use emulation::Bytes;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest wait for one copy command.
const COPY_MAX: Duration = Duration::from_secs(60);
/// The largest piece of data in one request to the API.
const PIECE: u64 = 1 << 20;
/// The counters of bytes that a copy has moved.
const MOVED: [&str; 4] =
    ["moved_mode_bytes", "moved_incongruent_bytes", "moved_head_tail_bytes", "bounced_bytes"];

/// What the clauses are run against.
pub(super) trait Target {
    /// What does not change while the clauses run.
    fn shape(&self) -> &Shape;

    /// # Errors
    /// The disk cannot be read there.
    fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Failure>;

    /// # Errors
    /// The disk cannot be written there.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Failure>;

    /// Why the command cannot be put into the words of the target, if it cannot.
    fn cannot(&self, segments: &[Segment], options: Options) -> Option<String>;

    /// Sends one copy command that can be put into its words, and waits for its end.
    ///
    /// # Errors
    /// The command cannot be sent, or does not end. One that is refused or fails is an [`Outcome`].
    fn copy(&self, segments: &[Segment], options: Options) -> Result<Outcome, Failure>;
}

/// Source, length and destination in bytes.
pub(super) type Segment = (u64, u64, u64);

/// How a copy is meant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// Durable before it completes.
    pub(super) fua: bool,
    /// No byte is moved.
    pub(super) fast_only: bool,
    /// A command whose ranges overlap is refused.
    pub(super) no_overlap: bool,
}

/// A disk as the clauses see it, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) logical_block: u64,
    pub(super) physical_block: u64,
    pub(super) copy_max_bytes: u64,
    pub(super) copy_max_segment_bytes: u64,
    pub(super) copy_max_segments: u32,
    /// It is zoned.
    pub(super) zone_size: Option<u64>,
}

/// A copy command that was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// The bytes it says it copied.
    pub(super) bytes: u64,
    /// The bytes that were moved rather than remapped, as far as the target says.
    pub(super) moved: u64,
}

/// How a command ended: done, or the code of its failure.
pub(super) type Outcome = Result<Done, String>;

/// A disk behind a control API, and its block device when that was named.
pub(super) struct Served {
    client: Client,
    shape: Shape,
    node: Option<File>,
}

/// A target as it was named.
pub(super) enum Opened {
    /// A disk of this program.
    Served(Served),
    /// A namespace of the kernel's NVMe driver.
    Namespace(Box<Namespace>),
}

impl Opened {
    pub(super) fn shape(&self) -> &Shape {
        match self {
            Self::Served(served) => served.shape(),
            Self::Namespace(namespace) => namespace.shape(),
        }
    }
}

/// `unix:SOCK` is the first disk of a pool, through its control API; `/dev/ublkbN` is a disk of this program, its data
/// through the block device; `/dev/nvmeXnY` is any namespace that the kernel's NVMe driver has.
///
/// # Errors
/// There is no such disk, or nobody answers for it.
pub(super) fn open(text: &str) -> Result<Opened, Failure> {
    if let Some(socket) = text.strip_prefix("unix:") {
        let client = Client::new(Path::new(socket));
        let disks: Vec<Disk> = client.call("GET", "/v1/disks")?;
        let disk = disks.into_iter().next();
        let disk = disk.ok_or_else(|| Failure::failed(format!("{socket}: the pool has no disk")))?;
        return Ok(Opened::Served(Served { client, shape: shape(disk), node: None }));
    }
    if text.strip_prefix("/dev/nvme").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Ok(Opened::Namespace(Box::new(namespace::open(text)?)));
    }
    let named: Named = text.parse().map_err(|_| unknown(text))?;
    if !text.starts_with("/dev/ublkb") {
        return Err(unknown(text));
    }
    let served = locate::served(&State::open()?, &named)?;
    let shape = shape(served.disk()?);
    // Through the page cache zones are written in pages, in an order of its own.
    let node = match shape.zone_size {
        Some(_) => None,
        None => {
            let node = File::options().read(true).write(true).open(text);
            Some(node.map_err(|error| Failure::failed(format!("{text}: {error}")))?)
        }
    };
    Ok(Opened::Served(Served { shape, client: served.client, node }))
}

fn shape(disk: Disk) -> Shape {
    Shape {
        size: disk.size.0,
        logical_block: disk.logical_block_size.0,
        physical_block: disk.physical_block_size.0,
        copy_max_bytes: disk.limits.copy_max_bytes.0,
        copy_max_segment_bytes: disk.limits.copy_max_segment_bytes.0,
        copy_max_segments: disk.limits.copy_max_segments,
        zone_size: disk.zones.as_ref().map(|zones| zones.size),
        name: disk.name,
    }
}

impl Served {
    fn path(&self, rest: &str) -> String {
        format!("/v1/disks/{}{rest}", self.shape.name)
    }

    /// Sends a copy command and waits for its end; the code of a refusal or a failure.
    fn carry_out(&self, request: &CopyRequest) -> Result<Result<Job, String>, Failure> {
        let mut job: Job = match refusal(self.client.send("POST", &self.path("/copies"), request))? {
            Ok(job) => job,
            Err(code) => return Ok(Err(code)),
        };
        let end = Instant::now() + COPY_MAX;
        while !job.state.ended() {
            if Instant::now() > end {
                return Err(Failure::failed(format!("a copy did not end within {} s", COPY_MAX.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(2));
            job = self.client.call("GET", &self.path(&format!("/copies/{}", job.id)))?;
        }
        Ok(match (job.state, &job.error) {
            (JobState::Done, _) => Ok(job),
            (_, Some(error)) => Err(error.code.clone()),
            (_, None) => Err("cancelled".to_string()),
        })
    }
}

impl Target for Served {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Failure> {
        let mut data = Vec::new();
        if let Some(node) = &self.node {
            data.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
            let read = node.read_exact_at(&mut data, offset);
            return read
                .map(|()| data)
                .map_err(|error| Failure::failed(format!("read at {offset}: {error}")));
        }
        for at in (offset..offset + length).step_by(usize::try_from(PIECE).unwrap_or(usize::MAX)) {
            let piece = PIECE.min(offset + length - at);
            data.extend(self.client.exchange(
                "GET",
                &self.path(&format!("/data?offset={at}&length={piece}")),
                b"",
            )?);
        }
        Ok(data)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        if let Some(node) = &self.node {
            let written = node.write_all_at(data, offset);
            return written.map_err(|error| Failure::failed(format!("write at {offset}: {error}")));
        }
        let pieces = data.chunks(usize::try_from(PIECE).unwrap_or(usize::MAX));
        for (at, piece) in (offset..).step_by(usize::try_from(PIECE).unwrap_or(usize::MAX)).zip(pieces) {
            // A disk whose block device was not named is written beside it.
            let path = self.path(&format!("/data?offset={at}&force=true"));
            let answer = self.client.exchange("PUT", &path, piece)?;
            serde_json::from_slice::<Empty>(&answer).map_err(|error| Failure::failed(error.to_string()))?;
        }
        Ok(())
    }

    fn cannot(&self, _: &[Segment], _: Options) -> Option<String> {
        None
    }

    fn copy(&self, segments: &[Segment], options: Options) -> Result<Outcome, Failure> {
        let Options { fua, fast_only, .. } = options;
        let request = CopyRequest { fua, fast_only, ..request(segments) };
        Ok(self.carry_out(&request)?.map(|job| {
            let moved = MOVED.iter().map(|name| job.ledger.counter(name)).sum();
            Done { bytes: job.bytes, moved }
        }))
    }
}

impl ZonedTarget for Served {
    fn report(&self) -> Result<Vec<ZoneView>, Failure> {
        let report: ZoneReport = self.client.call("GET", &self.path("/zones"))?;
        Ok(report.zones)
    }

    fn act(&self, action: ZoneActionName, zone: &ZoneView) -> Result<Result<(), String>, Failure> {
        let request = ZoneRequest { action, offset: Bytes(zone.start), count: Some(1), force: false };
        let answer = self.client.send::<Empty>("POST", &self.path("/zones"), &request);
        refusal(answer.map(|Empty {}| ()))
    }

    fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Failure> {
        Target::read(self, offset, length)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<Result<(), String>, Failure> {
        let path = self.path(&format!("/data?offset={offset}&force=true"));
        refusal(self.client.exchange("PUT", &path, data).map(drop))
    }

    fn copy(&self, segments: &[Segment], append: bool) -> Result<Result<Option<u64>, String>, Failure> {
        let request = CopyRequest { append, ..request(segments) };
        Ok(self.carry_out(&request)?.map(|job| job.appended_at))
    }
}

/// What was refused is told by its code; any other failure ends the clause.
fn refusal<T>(answer: Result<T, ClientError>) -> Result<Result<T, String>, Failure> {
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(ClientError::Api(error)) => Ok(Err(error.code)),
        Err(other) => Err(other.into()),
    }
}

/// One command of these segments.
fn request(segments: &[Segment]) -> CopyRequest {
    let segment = |(source, length, destination): &Segment| api::Segment {
        from: None,
        source: Bytes(*source),
        length: Bytes(*length),
        destination: Bytes(*destination),
    };
    CopyRequest {
        segments: segments.iter().map(segment).collect(),
        one_command: true,
        ..CopyRequest::default()
    }
}

fn unknown(text: &str) -> Failure {
    Failure::usage(format!(
        "target {text}: must be /dev/ublkbN, /dev/nvmeXnY or unix:SOCKET of a control API"
    ))
}
