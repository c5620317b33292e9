//! What goes over the socket, as server and client both know it. Addresses and lengths are bytes. A key that is
//! not here is refused.

use crate::config::{CacheMode, CopyBackend, CopyModeName, DiskConfig, PoolConfig, PoolType};
use crate::debug::ThreadKind;
use crate::timing::TimingConfig;
use crate::units::{optional_size, size};
use emulation::ledger::Ledger;
use emulation::timing::Lateness;
use emulation::{BlkStatus, Bytes, Usage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The largest body of a request and the largest piece of data: 1 MiB.
pub const DATA_MAX: u64 = 1 << 20;

/// A failure, as every answer that is not 2xx carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The failure.
    pub error: ApiError,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The status of the answer.
    #[serde(skip)]
    pub status: u16,
    /// For programs: lower case, words joined by `-`.
    pub code: String,
    /// For people: what failed and why.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ApiError {
    /// A failure with a status, a code and a message.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_string(), message: message.into(), hint: None }
    }

    /// The same with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "bad-request", message)
    }

    /// A failure of two lines: what and why, then what to do.
    pub fn from_lines(status: u16, code: &str, text: &str) -> Self {
        let (message, hint) = text.split_once('\n').map_or((text, None), |(m, h)| (m, Some(h.to_string())));
        Self { status, code: code.to_string(), message: message.to_string(), hint }
    }

    /// A request that the pool answered with this status.
    pub fn of_status(what: &str, status: BlkStatus) -> Self {
        let code = status.name().to_ascii_lowercase().replace('_', "-");
        Self::new(422, &code, format!("{what}: {status}"))
    }
}

/// A body of `POST /v1/disks`: a disk, and nothing about its pool.
pub type AddDisk = DiskConfig;

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The number of its block device; none without one.
    pub id: Option<u32>,
    /// Its name.
    pub name: String,
    /// Its block device; none without one.
    pub path: Option<PathBuf>,
    /// Its pool.
    pub pool: String,
    /// Where the pool's bytes live.
    #[serde(rename = "type")]
    pub kind: PoolType,
    /// Its size.
    #[serde(with = "size")]
    pub size: Bytes,
    /// The unit of every range.
    #[serde(with = "size")]
    pub logical_block_size: Bytes,
    /// The map block.
    #[serde(with = "size")]
    pub physical_block_size: Bytes,
    /// Hardware queues it has; 0 without a block device.
    pub queues: u16,
    /// Requests in a queue; 0 without a block device.
    pub depth: u16,
    /// Writes are refused.
    pub read_only: bool,
    /// What is promised before a flush.
    pub cache: CacheMode,
    /// The server.
    pub pid: u32,
    /// The queue threads, by queue.
    pub queue_tids: Vec<i32>,
    /// The namespace that it is over NVMe/TCP; none without that door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme: Option<NvmeView>,
    /// Its zones; none when it is not zoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<GeometryView>,
    /// What can change while it runs.
    pub limits: LimitsView,
    /// The configuration that makes it again.
    pub config: DiskConfig,
}

/// How a disk is divided into zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeometryView {
    /// So many.
    pub count: u32,
    /// The distance between their starts.
    pub size: u64,
    /// What can be written of a sequential zone.
    pub capacity: u64,
    /// Conventional zones, at the start of the disk.
    pub conventional: u32,
    /// The most open zones; 0 for no limit.
    pub max_open: u32,
    /// The most active zones; 0 for no limit.
    pub max_active: u32,
    /// The longest append.
    pub max_append: u64,
}

/// A disk over NVMe/TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmeView {
    /// Where hosts connect.
    pub listen: SocketAddr,
    /// Where the discovery controller listens alone.
    pub discovery: Option<SocketAddr>,
    /// The subsystem of the pool.
    pub nqn: String,
    /// The number of the namespace.
    pub nsid: u32,
    /// Its UUID.
    pub uuid: String,
    /// The connected hosts.
    pub hosts: Vec<NvmeHost>,
    /// Bytes received by the door, for all disks of the pool, without those of TCP and below.
    pub received_bytes: u64,
    /// Bytes sent by the door.
    pub sent_bytes: u64,
}

/// A connected host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmeHost {
    /// Its name.
    pub nqn: String,
    /// Its queues, with the admin queue.
    pub queues: usize,
}

/// What can change while a disk runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsView {
    /// How copies are carried out.
    pub copy: CopyModeName,
    /// How copies that move bytes are carried out in a file.
    #[serde(default)]
    pub copy_backend: CopyBackend,
    /// The most bytes of a copy command (NVMe MCL).
    #[serde(with = "size")]
    pub copy_max_bytes: Bytes,
    /// The most bytes of one segment (NVMe MSSRL).
    #[serde(with = "size")]
    pub copy_max_segment_bytes: Bytes,
    /// The most segments of a command (NVMe MSRC + 1).
    pub copy_max_segments: u32,
    /// How long it takes, where that is set.
    #[serde(default, skip_serializing_if = "TimingConfig::is_none")]
    pub timing: TimingConfig,
}

/// A body of `PATCH /v1/disks/ID/limits`: what is not there stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsPatch {
    /// How copies are carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyModeName>,
    /// How copies that move bytes are carried out in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_backend: Option<CopyBackend>,
    /// The most bytes of a copy command.
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub copy_max_bytes: Option<Bytes>,
    /// The most bytes of one segment.
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub copy_max_segment_bytes: Option<Bytes>,
    /// The most segments of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_max_segments: Option<u32>,
    /// How long it takes: what is not there stays, `none` takes a setting back.
    #[serde(skip_serializing_if = "TimingConfig::is_none")]
    pub timing: TimingConfig,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolView {
    /// What it is made of.
    pub config: PoolConfig,
    /// The server.
    pub pid: u32,
    /// The version of the program.
    pub version: String,
    /// Its disks, by name.
    pub disks: Vec<String>,
    /// How its space is used.
    pub usage: UsageView,
}

/// How a pool's space is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageView {
    /// The most that may be mapped and held back together.
    pub cap_bytes: u64,
    /// Named by a map, each block once.
    pub mapped_bytes: u64,
    /// Named by the durable image alone.
    pub held_bytes: u64,
    /// Being given back.
    pub trimming_bytes: u64,
    /// Extents in the maps of all disks.
    pub extents: u64,
    /// Physical ranges that more than one extent names.
    pub shared_ranges: u64,
    /// Memory that the maps take.
    pub map_bytes: u64,
}

impl From<Usage> for UsageView {
    fn from(usage: Usage) -> Self {
        Self {
            cap_bytes: usage.cap.bytes().0,
            mapped_bytes: usage.mapped.bytes().0,
            held_bytes: usage.held.bytes().0,
            trimming_bytes: usage.trimming.bytes().0,
            extents: usage.extents,
            shared_ranges: usage.shared_ranges,
            map_bytes: usage.map_bytes,
        }
    }
}

/// The ledger of a disk: what moved where. Counters rise where the work is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Requests begun, by operation.
    pub commands: BTreeMap<String, u64>,
    /// The other counters, by name.
    pub counters: BTreeMap<String, u64>,
    /// How well the pool keeps the instants that timings of its disks ask for, since its start; none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<LatenessView>,
}

/// By how much requests end later than a timing asks for, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatenessView {
    /// Plans that had an instant.
    pub count: u64,
    /// The least: what the machine adds to every latency.
    pub floor_ns: u64,
    /// Half are no later, to a quarter.
    pub p50_ns: u64,
    /// 99 of 100 are no later, to a quarter.
    pub p99_ns: u64,
    /// The latest.
    pub max_ns: u64,
}

impl LatenessView {
    /// What there is to show.
    pub fn of(lateness: &Lateness) -> Option<Self> {
        Some(Self {
            count: lateness.count(),
            floor_ns: lateness.floor()?.0,
            p50_ns: lateness.quantile(500_000).0,
            p99_ns: lateness.quantile(990_000).0,
            max_ns: lateness.max().0,
        })
    }
}

impl From<&Ledger> for Stats {
    fn from(ledger: &Ledger) -> Self {
        let commands =
            Ledger::OPS.iter().zip(ledger.commands).map(|(name, count)| (name.to_string(), count)).collect();
        let counters = [
            ("failed", ledger.failed),
            ("door_read_bytes", ledger.door_read.0),
            ("door_written_bytes", ledger.door_written.0),
            ("descriptor_bytes", ledger.descriptors.0),
            ("inside_read_bytes", ledger.inside_read.0),
            ("inside_written_bytes", ledger.inside_written.0),
            ("remapped_bytes", ledger.remapped.0),
            ("copied_hole_bytes", ledger.copied_holes.0),
            ("moved_mode_bytes", ledger.moved_mode.0),
            ("moved_incongruent_bytes", ledger.moved_incongruent.0),
            ("moved_head_tail_bytes", ledger.moved_head_tail.0),
            ("moved_cfr_bytes", ledger.moved_cfr.0),
            ("moved_part_block_bytes", ledger.moved_part_block.0),
            ("bounced_bytes", ledger.bounced.0),
            ("copied_bytes", ledger.copied().0),
            ("avoided_bytes", ledger.avoided().0),
            ("trimmed_bytes", ledger.trimmed.0),
            ("undone_bytes", ledger.undone.0),
            ("syncs", ledger.syncs),
            ("commits", ledger.commits),
        ];
        let counters = counters.into_iter().map(|(name, count)| (name.to_string(), count)).collect();
        Self { commands, counters, lateness: None }
    }
}

impl Stats {
    /// What was counted since `earlier`; a counter that was reset in between counts from 0.
    pub fn since(&self, earlier: &Self) -> Self {
        let minus = |now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>| {
            let before = |name| then.get(name).copied().unwrap_or(0);
            now.iter().map(|(name, n)| (name.clone(), n.checked_sub(before(name)).unwrap_or(*n))).collect()
        };
        Self {
            commands: minus(&self.commands, &earlier.commands),
            counters: minus(&self.counters, &earlier.counters),
            lateness: self.lateness,
        }
    }

    /// A counter, 0 when it is not known.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

/// How long requests of a disk took, from the moment a thread of the server had them to their answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyView {
    /// By operation; those that there were.
    pub operations: BTreeMap<String, OperationLatency>,
}

/// How long the requests of an operation took, in ns, each percentile to a quarter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationLatency {
    /// Requests.
    pub count: u64,
    /// Half took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Requests of a disk that were answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceView {
    /// In the order of their answers.
    pub records: Vec<TraceRecord>,
    /// What to ask for next.
    pub next: u64,
    /// So many of those asked for are lost: they were not asked for in time.
    pub lost: u64,
}

/// A request that was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// When a thread of the server had it, in ns since the server started.
    pub begun_ns: u64,
    /// When it was answered.
    pub ended_ns: u64,
    /// What it is, by the names of the ledger.
    pub operation: String,
    /// What it is of; of a copy the first destination.
    pub offset: u64,
    /// So many bytes; of a copy all of it.
    pub length: u64,
    /// Of a copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<TraceSegment>,
    /// Of a change of a zone: what it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// `fua`, `append` and the like.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// `Ok`, or why it failed.
    pub status: String,
    /// Bytes done.
    pub bytes: u64,
    /// The thread of the server.
    pub thread: u16,
}

/// A segment of a copy, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSegment {
    /// The number of the source's volume in the pool.
    pub volume: u32,
    /// From here.
    pub source: u64,
    /// So many.
    pub length: u64,
    /// To here.
    pub destination: u64,
}

/// A body of `POST /v1/disks/ID/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatsRequest {
    /// Set every counter to 0 after reading it.
    pub reset: bool,
}

/// A body of `POST /v1/disks/ID/copies`: a copy into disk ID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CopyRequest {
    /// What to copy. No destination may overlap a source on the same disk or another destination.
    pub segments: Vec<Segment>,
    /// Durable before it is done.
    pub fua: bool,
    /// Move no bytes, or fail.
    pub fast_only: bool,
    /// Send it as one command, whatever the limits say.
    pub one_command: bool,
    /// Let the disk choose the place: each destination is the start of one sequential zone, and the segments go to its
    /// write pointer one behind the other.
    pub append: bool,
    /// Compare source and destination afterwards.
    pub verify: bool,
    /// Copy although a disk is mounted or held exclusively.
    pub force: bool,
}

/// One run of bytes to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// The disk to copy from, of the same pool; the destination's own when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The first byte to copy.
    #[serde(with = "size")]
    pub source: Bytes,
    /// So many.
    #[serde(with = "size")]
    pub length: Bytes,
    /// Where the first of them goes.
    #[serde(with = "size")]
    pub destination: Bytes,
}

/// What a copy job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// The host's cached writes to both ranges go to the disk.
    WritingBack,
    /// Copy commands run.
    Copying,
    /// The host's cached pages of the destination are dropped, and it is told where the zones are written next.
    Dropping,
    /// Source and destination are compared.
    Verifying,
    /// All is done.
    Done,
    /// It failed; `error` says why.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// True when nothing follows.
    pub const fn ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// A copy job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// The disk it copies to.
    pub disk: String,
    /// What it does.
    pub state: JobState,
    /// The finished prefix.
    pub bytes: u64,
    /// All that was asked for.
    pub total_bytes: u64,
    /// Copy commands it was split into.
    pub commands: u64,
    /// Those that are done.
    pub commands_done: u64,
    /// The lowest segment, as it was asked for, that is not wholly copied; of a failed or cancelled job.
    pub first_failed_segment: Option<u32>,
    /// Where an append began to write; none for other copies, and while it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub appended_at: Option<u64>,
    /// Pages of the destination that stayed in the host's cache and may be stale.
    pub stale_pages: u64,
    /// Why it failed.
    pub error: Option<ApiError>,
    /// What the ledger of the disk counted while the commands ran, those of others included.
    pub ledger: Stats,
}

/// A zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneView {
    /// The number of the zone.
    pub zone: u32,
    /// Its first byte.
    pub start: u64,
    /// The distance to the start of the next.
    pub length: u64,
    /// What can be written of it.
    pub capacity: u64,
    /// Where the next write goes; the end of the zone when it is full or conventional.
    pub wp: u64,
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: ZoneTypeName,
    /// Its state.
    pub condition: ZoneConditionName,
}

/// The kind of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneTypeName {
    /// Written anywhere.
    Conventional,
    /// Written at its write pointer only.
    SeqWriteRequired,
}

/// The state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneConditionName {
    /// Conventional: it has no write pointer.
    NotWp,
    /// Nothing is written.
    Empty,
    /// Open since it was written.
    ImpOpen,
    /// Open by command.
    ExpOpen,
    /// Active, not open.
    Closed,
    /// Not writable any more.
    ReadOnly,
    /// Written to its capacity, or finished.
    Full,
    /// Neither readable nor writable any more.
    Offline,
}

/// An answer of `GET /v1/disks/ID/zones`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneReport {
    /// The zones, in order.
    pub zones: Vec<ZoneView>,
}

/// A change of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneActionName {
    /// Open explicitly.
    Open,
    /// Close.
    Close,
    /// Move to full.
    Finish,
    /// Move to empty.
    Reset,
    /// Fail: not writable any more.
    ReadOnly,
    /// Fail: neither readable nor writable any more.
    Offline,
}

/// A body of `POST /v1/disks/ID/zones`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneRequest {
    /// What to do.
    pub action: ZoneActionName,
    /// The start of the first zone.
    #[serde(with = "size", default)]
    pub offset: Bytes,
    /// So many zones; missing: all from there on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Although the disk is mounted or held exclusively.
    #[serde(default)]
    pub force: bool,
}

/// A body of `POST /v1/debug/panic`, of a server started for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PanicRequest {
    /// The kind of thread that shall panic.
    pub thread: ThreadKind,
}

/// An answer that says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}
