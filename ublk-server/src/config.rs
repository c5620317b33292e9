//! The checked configuration of a pool and of a disk: what the server is started with and what a request to
//! add a disk carries. Everything here has been validated once, by [`PoolConfig::check`] and
//! [`DiskConfig::limits`]; the rooms behind the door only assert.

use crate::control::fault_rules::{FaultSpec, SpecError};
use crate::nvme::wire::fabrics::NQN_MAX;
use crate::timing::TimingConfig;
use crate::units::{optional_size, size};
use emulation::limits::LimitsError;
use emulation::zone::{ZoneGeometry, ZoneGeometryError};
use emulation::{Bytes, CopyMode, Limits, Sectors};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a pool's bytes live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PoolType {
    /// In the memory of the server.
    Ram,
    /// In a file or a block device, with a map beside it; they outlive the server.
    File,
    /// In a raw image or a block device, at the same addresses; copies move bytes.
    Loop,
    /// Nowhere: what is written is lost.
    Null,
}

impl PoolType {
    /// Its name on the command line and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ram => "ram",
            Self::File => "file",
            Self::Loop => "loop",
            Self::Null => "null",
        }
    }
}

/// What is promised of acknowledged changes before a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CacheMode {
    /// No volatile cache is advertised.
    None,
    /// Changes become durable by a flush.
    Volatile,
}

impl CacheMode {
    /// Its name on the command line and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Volatile => "volatile",
        }
    }
}

/// What becomes of requests when the server dies, until `ublk recover`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryMode {
    /// Those in flight fail, new ones wait.
    Queue,
    /// Those in flight are sent again, new ones wait.
    Reissue,
    /// All fail.
    FailIo,
}

impl RecoveryMode {
    /// Its name on the command line and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Reissue => "reissue",
            Self::FailIo => "fail-io",
        }
    }
}

/// A copy mode, by the name it has on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CopyModeName {
    /// Share blocks where the alignment allows, else move bytes.
    Remap,
    /// Move bytes inside the store.
    Memcpy,
    /// Inner reads and writes through a bounce buffer, as a target without copy would.
    Emulate,
    /// Refuse copies.
    Off,
}

impl From<CopyModeName> for CopyMode {
    fn from(name: CopyModeName) -> Self {
        match name {
            CopyModeName::Remap => Self::Remap,
            CopyModeName::Memcpy => Self::Memcpy,
            CopyModeName::Emulate => Self::Emulate,
            CopyModeName::Off => Self::Off,
        }
    }
}

impl From<CopyMode> for CopyModeName {
    fn from(mode: CopyMode) -> Self {
        match mode {
            CopyMode::Remap => Self::Remap,
            CopyMode::Memcpy => Self::Memcpy,
            CopyMode::Emulate => Self::Emulate,
            CopyMode::Off => Self::Off,
        }
    }
}

/// How copies that move bytes are carried out in a file, by the name it has on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CopyBackend {
    /// By reading and writing.
    #[default]
    Rw,
    /// By copy_file_range(2), where the file system does it: some share blocks then.
    Cfr,
}

/// What all volumes of a pool share; set by the `add` that makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Its name: letters, digits, `-`, `_` and `.`, at most 32; the name of its state directory. Empty: the
    /// server chooses one.
    pub name: String,
    /// Where its bytes live.
    #[serde(rename = "type")]
    pub kind: PoolType,
    /// The most bytes of memory that a RAM pool keeps, in bytes; a multiple of the map block. 0 for others.
    #[serde(with = "size")]
    pub memory: Bytes,
    /// The map block of every volume.
    #[serde(with = "size")]
    pub map_block: Bytes,
    /// What is promised before a flush.
    pub cache: CacheMode,
    /// The most bytes held back for the durable image when the cache is volatile.
    #[serde(with = "size")]
    pub cache_size: Bytes,
    /// The file, image or block device of a `file` or `loop` pool, absolute.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// Go through the page cache of the host to that path.
    #[serde(default)]
    pub buffered: bool,
    /// The disks can be recovered when the server dies.
    #[serde(default)]
    pub recovery: Option<RecoveryMode>,
    /// Names the pool where it keeps what outlives its server; empty before it is made and where nothing does.
    #[serde(default)]
    pub identifier: String,
}

impl PoolConfig {
    /// True when the pool has a map, beside its data or in memory.
    pub fn mapped(&self) -> bool {
        match self.kind {
            PoolType::Ram | PoolType::File => true,
            PoolType::Loop | PoolType::Null => false,
        }
    }
}

/// One disk: a volume of a pool and its block device. What is not given has the default of `ublk add`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskConfig {
    /// The device number asked for; `None` leaves it to the driver.
    pub id: Option<u32>,
    /// The name given by `--name`; `None`: that of the device, or the next free `diskN` without a device.
    pub name: Option<String>,
    /// Hardware queues, 1 to [`QUEUES_MAX`]; the driver lowers it to the number of CPUs.
    pub queues: u16,
    /// Requests in a queue, 1 to [`DEPTH_MAX`].
    pub depth: u16,
    /// Its size; a multiple of the map block. `None`: that of the path of a `loop` pool or of the
    /// volume that is there, [`DEFAULT_SIZE`] for others.
    #[serde(with = "optional_size")]
    pub size: Option<Bytes>,
    /// 512, 1024, 2048 or 4096. `None`: that of the volume that is there, 512 for a new one.
    #[serde(with = "optional_size")]
    pub logical_block_size: Option<Bytes>,
    /// Writes are refused.
    pub read_only: bool,
    /// How copies are carried out. `None`: by remapping where the pool has a map, else by moving bytes.
    pub copy: Option<CopyModeName>,
    /// How copies that move bytes are carried out in a file.
    pub copy_backend: CopyBackend,
    /// The most bytes of a copy command (NVMe MCL).
    #[serde(with = "size")]
    pub copy_max_bytes: Bytes,
    /// The most bytes of one segment of a copy (NVMe MSSRL).
    #[serde(with = "size")]
    pub copy_max_segment_bytes: Bytes,
    /// The most segments of a copy command (NVMe MSRC + 1).
    pub copy_max_segments: u32,
    /// A device that its owner may control without being root.
    pub unprivileged: bool,
    /// No block device: the control API and NVMe/TCP are the only doors.
    pub no_ublk: bool,
    /// The NVMe/TCP door that serves it too, the same for all disks of a pool that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvme: Option<NvmeConfig>,
    /// How it is divided into zones; none: it is not zoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zones: Option<ZoneConfig>,
    /// How long it takes.
    #[serde(skip_serializing_if = "TimingConfig::is_none")]
    pub timing: TimingConfig,
    /// Rules of faults that it begins with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultSpec>,
}

/// The zones of a disk: conventional ones first, then sequential ones, all of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZoneConfig {
    /// The distance between the starts of zones: a power of two.
    #[serde(with = "size")]
    pub size: Bytes,
    /// What can be written of a sequential zone. `None`: all of it.
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Bytes>,
    /// Conventional zones.
    pub conventional: u32,
    /// The most open zones; 0 for no limit.
    pub max_open: u32,
    /// The most active zones; 0 for no limit.
    pub max_active: u32,
    /// The longest append. `None`: 1 MiB, or the capacity of a zone where that is less.
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub max_append: Option<Bytes>,
}

impl Default for ZoneConfig {
    fn default() -> Self {
        Self {
            size: DEFAULT_ZONE_SIZE,
            capacity: None,
            conventional: 0,
            max_open: 0,
            max_active: 0,
            max_append: None,
        }
    }
}

/// An NVMe/TCP door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmeConfig {
    /// Where it listens; port 0: any free one.
    pub listen: SocketAddr,
    /// Where the discovery controller listens alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery: Option<SocketAddr>,
    /// The hosts that may connect, by NQN; none: any.
    #[serde(default)]
    pub allow_hosts: Vec<String>,
    /// Addresses that other machines reach are meant.
    #[serde(default)]
    pub allow_remote: bool,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self {
            id: None,
            name: None,
            queues: 1,
            depth: 128,
            size: None,
            logical_block_size: None,
            read_only: false,
            copy: None,
            copy_backend: CopyBackend::Rw,
            copy_max_bytes: Bytes::mib(128),
            copy_max_segment_bytes: Bytes::mib(16),
            copy_max_segments: 128,
            unprivileged: false,
            no_ublk: false,
            nvme: None,
            zones: None,
            timing: TimingConfig::default(),
            faults: Vec::new(),
        }
    }
}

/// The most hardware queues.
pub const QUEUES_MAX: u16 = 4096;
/// The most requests of a queue.
pub const DEPTH_MAX: u16 = 4096;
/// The size of a disk when none is given.
pub const DEFAULT_SIZE: Bytes = Bytes::gib(1);
/// The bytes held back for the durable image when `--cache-size` is not given.
pub const DEFAULT_CACHE_SIZE: Bytes = Bytes::mib(256);
/// The size of a zone when none is given.
pub const DEFAULT_ZONE_SIZE: Bytes = Bytes::mib(64);
/// The most zones of a disk: the kernel maps no more than 1,024 pages for a report, and its ublk driver misnumbers the
/// zones of a report in pieces.
pub const ZONES_MAX: u64 = 65_536;
/// The least that ZASL, a power of two of pages of 4 KiB without the first, can say.
const NVME_APPEND_MIN: Bytes = Bytes::kib(8);
/// The largest size of a zone: its sectors are 32 bits on the way to Linux, and a power of two.
pub const ZONE_SIZE_MAX: Bytes = Bytes::gib(1 << 10);
/// The largest size of a disk: what a signed 64-bit byte offset reaches.
pub const SIZE_MAX: Bytes = Bytes(1 << 62);

/// Why a configuration can never work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The name could not be a directory's or is hard to type.
    #[error("{0} \"{1}\": 1 to 32 letters, digits, \"-\", \"_\" or \".\", the first a letter")]
    Name(&'static str, String),
    /// A number outside its range.
    #[error("{0} {1}: must be from 1 to {2}")]
    Count(&'static str, u64, u64),
    /// Limits that do not fit each other.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// Larger than any device.
    #[error("size {}: at most {}", .0, SIZE_MAX)]
    TooLarge(Bytes),
    /// An option that another choice excludes.
    #[error("{0}")]
    Excluded(&'static str),
    /// An address that other machines reach.
    #[error(
        "{0} {1}: other machines reach this address\nuse 127.0.0.1, or add --allow-remote: there is neither \
             authentication nor encryption"
    )]
    Remote(&'static str, SocketAddr),
    /// No name of a host.
    #[error("allow-host \"{0}\": the NQN of a host begins with \"nqn.\" and has at most {NQN_MAX} bytes")]
    Nqn(String),
    /// More zones than a report can describe.
    #[error("{0} zones: at most {ZONES_MAX}\nmake the zones larger with --zone-size, or the disk smaller")]
    Zones(u64),
    /// A timing that can never work.
    #[error("{0}")]
    Timing(String),
    /// A rule of faults that cannot be.
    #[error("fault: {0}")]
    Fault(#[from] SpecError),
    /// A size that is no multiple of the map block or zero.
    #[error("{0} {1}: must be a multiple of the map block, {2}, and not 0")]
    Blocks(&'static str, Bytes, Bytes),
}

impl PoolConfig {
    /// Refuses what could never work.
    ///
    /// # Errors
    /// The first reason.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.name.is_empty() {
            check_name("pool", &self.name)?;
        }
        let map = self.map_block;
        if !map.0.is_power_of_two() || !(512..=Bytes::kib(64).0).contains(&map.0) {
            return Err(LimitsError::MapBlock(map.0).into());
        }
        match (self.kind, &self.path) {
            (PoolType::Loop, None) => {
                return Err(ConfigError::Excluded(
                    "type loop needs a raw image or a block device: give -f PATH",
                ));
            }
            (PoolType::File, None) => {
                return Err(ConfigError::Excluded("type file needs a file or a block device: give -f PATH"));
            }
            (PoolType::Ram | PoolType::Null, Some(_)) => {
                return Err(ConfigError::Excluded(
                    "-f PATH is for types file and loop; types ram and null have no file",
                ));
            }
            (PoolType::File | PoolType::Loop, Some(_)) | (PoolType::Ram | PoolType::Null, None) => {}
        }
        if self.kind == PoolType::Ram && (self.memory.0 < map.0 || !self.memory.0.is_multiple_of(map.0)) {
            return Err(ConfigError::Blocks("memory", self.memory, map));
        }
        if self.cache_size.0 < map.0 || !self.cache_size.0.is_multiple_of(map.0) {
            return Err(ConfigError::Blocks("cache-size", self.cache_size, map));
        }
        Ok(())
    }
}

impl DiskConfig {
    /// The limits of the disk in `pool`, checked; `size` is the one to use where the configuration has none.
    ///
    /// # Errors
    /// The first reason for which the disk can never work there.
    pub fn limits(&self, pool: &PoolConfig, size: Bytes) -> Result<Limits, ConfigError> {
        let size = self.size.unwrap_or(size);
        self.check(pool, size)?;
        let sectors = |bytes: Bytes, or: LimitsError| bytes.sectors().ok_or(or);
        let capacity = sectors(size, LimitsError::Capacity(size.0, pool.map_block.0))?;
        let logical_block = self.logical_block();
        let logical_block = sectors(logical_block, LimitsError::LogicalBlock(logical_block.0))?;
        let map_block: Sectors = sectors(pool.map_block, LimitsError::MapBlock(pool.map_block.0))?;
        let mut limits = Limits::new(capacity, logical_block, map_block);
        limits.read_only = self.read_only;
        limits.copy_mode = self.copy_mode(pool).into();
        limits.copy_max_bytes = self.copy_max_bytes;
        limits.copy_max_segment_bytes = self.copy_max_segment_bytes;
        limits.copy_max_segments = self.copy_max_segments;
        limits.zones = self.zones.as_ref().map(|zones| zones.geometry(map_block)).transpose()?;
        limits.validate()?;
        if let Some(zones) = limits.zones {
            let count = capacity.0 / zones.size.0;
            if count > ZONES_MAX {
                return Err(ConfigError::Zones(count));
            }
            // A request of the driver has to hold a report of every zone.
            let report = Bytes(zones.report_bytes(capacity).0.next_multiple_of(4096)).whole_sectors();
            limits.max_io = limits.max_io.max(report);
        }
        for spec in &self.faults {
            spec.checked("fault1", &limits)?;
        }
        Ok(limits)
    }

    /// Without its zones where the size is that of a volume yet to be found: they cannot be checked before.
    #[must_use]
    pub fn without_zones_of_unknown_size(&self) -> Self {
        let zones = self.zones.clone().filter(|_| self.size.is_some());
        Self { zones, ..self.clone() }
    }

    /// With the geometry that its volume has.
    #[must_use]
    pub fn of_volume(self, limits: &Limits) -> Self {
        Self {
            size: Some(limits.capacity.bytes()),
            logical_block_size: Some(limits.logical_block.bytes()),
            zones: limits.zones.as_ref().map(ZoneConfig::from),
            ..self
        }
    }

    /// Its logical block.
    pub fn logical_block(&self) -> Bytes {
        self.logical_block_size.unwrap_or(Bytes(512))
    }

    /// The copy mode of the disk in `pool`.
    pub fn copy_mode(&self, pool: &PoolConfig) -> CopyModeName {
        let default = match pool.kind {
            PoolType::Ram | PoolType::File => CopyModeName::Remap,
            PoolType::Loop | PoolType::Null => CopyModeName::Memcpy,
        };
        self.copy.unwrap_or(default)
    }

    fn check(&self, pool: &PoolConfig, size: Bytes) -> Result<(), ConfigError> {
        if let Some(name) = &self.name {
            check_name("name", name)?;
            if name.strip_prefix("ublkb").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
                return Err(ConfigError::Excluded(
                    "names of the form ublkbN are those of devices: use another",
                ));
            }
        }
        for (what, value, most) in [("queues", self.queues, QUEUES_MAX), ("depth", self.depth, DEPTH_MAX)] {
            if !(1..=most).contains(&value) {
                return Err(ConfigError::Count(what, value.into(), most.into()));
            }
        }
        if size > SIZE_MAX {
            return Err(ConfigError::TooLarge(size));
        }
        self.nvme.as_ref().map_or(Ok(()), NvmeConfig::check)?;
        self.timing.timing().map_err(ConfigError::Timing)?;
        self.zones.as_ref().map_or(Ok(()), |zones| zones.check(self, pool))?;
        if self.no_ublk && (self.unprivileged || self.id.is_some()) {
            return Err(ConfigError::Excluded(
                "--no-ublk makes no block device: -n and --unprivileged do not apply",
            ));
        }
        if pool.recovery.is_some() && self.unprivileged {
            return Err(ConfigError::Excluded(
                "--user-recovery: the driver does not recover devices made with --unprivileged",
            ));
        }
        if self.copy == Some(CopyModeName::Remap) && !pool.mapped() {
            return Err(ConfigError::Excluded(
                "copy remap: types loop and null have no map; use --copy memcpy, emulate or off",
            ));
        }
        if self.copy_backend == CopyBackend::Cfr && !matches!(pool.kind, PoolType::File | PoolType::Loop) {
            return Err(ConfigError::Excluded(
                "copy-backend cfr: types ram and null have no file that the host could copy in; leave it out",
            ));
        }
        Ok(())
    }
}

impl From<&ZoneGeometry> for ZoneConfig {
    /// All of it, as it is written down.
    fn from(zones: &ZoneGeometry) -> Self {
        Self {
            size: zones.size.bytes(),
            capacity: Some(zones.capacity.bytes()),
            conventional: zones.conventional,
            max_open: zones.max_open,
            max_active: zones.max_active,
            max_append: Some(zones.max_append.bytes()),
        }
    }
}

impl ZoneConfig {
    fn check(&self, disk: &DiskConfig, pool: &PoolConfig) -> Result<(), ConfigError> {
        let excluded = match pool.kind {
            PoolType::Loop | PoolType::Null => Some(
                "--zoned is for types ram and file: types loop and null have no map, which keeps the contents of zones",
            ),
            PoolType::Ram | PoolType::File if disk.nvme.is_some() && self.conventional > 0 => Some(
                "--conventional-zones and --nvme-tcp: hosts refuse a namespace with such zones; leave one of them out",
            ),
            PoolType::Ram | PoolType::File if disk.nvme.is_some() && self.max_append() < NVME_APPEND_MIN => {
                Some("max-append: with --nvme-tcp at least 8K, the least that a controller can say")
            }
            PoolType::Ram | PoolType::File if disk.unprivileged => Some(
                "--zoned and --unprivileged: the driver has zones only where it allows user copy, which is not there",
            ),
            PoolType::Ram | PoolType::File if self.size > ZONE_SIZE_MAX => Some("zone-size: at most 1T"),
            PoolType::Ram | PoolType::File => None,
        };
        excluded.map_or(Ok(()), |why| Err(ConfigError::Excluded(why)))
    }

    /// The longest append, given or not.
    fn max_append(&self) -> Bytes {
        self.max_append.unwrap_or(Bytes::mib(1).min(self.capacity.unwrap_or(self.size)))
    }

    /// The zones in sectors, not validated but for that.
    pub(crate) fn geometry(&self, map_block: Sectors) -> Result<ZoneGeometry, LimitsError> {
        let size = self.size.0;
        let zone = self.size.sectors().ok_or(ZoneGeometryError::Size(size, map_block.bytes().0))?;
        let capacity = self.capacity.unwrap_or(self.size);
        let writable = capacity.sectors().ok_or(ZoneGeometryError::Capacity(capacity.0, size))?;
        let append = self.max_append();
        Ok(ZoneGeometry {
            size: zone,
            capacity: writable,
            conventional: self.conventional,
            max_open: self.max_open,
            max_active: self.max_active,
            max_append: append.sectors().ok_or(ZoneGeometryError::Append(append.0, capacity.0))?,
        })
    }
}

impl NvmeConfig {
    fn check(&self) -> Result<(), ConfigError> {
        for (what, address) in [("nvme-tcp", Some(self.listen)), ("discovery", self.discovery)] {
            if let Some(address) = address.filter(|address| !self.allow_remote && !address.ip().is_loopback())
            {
                return Err(ConfigError::Remote(what, address));
            }
        }
        let wrong = |host: &&String| !host.starts_with("nqn.") || host.len() > NQN_MAX;
        match self.allow_hosts.iter().find(wrong) {
            Some(host) => Err(ConfigError::Nqn(host.clone())),
            None => Ok(()),
        }
    }
}

/// Refuses a name that could not be a file's everywhere.
fn check_name(what: &'static str, name: &str) -> Result<(), ConfigError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if starts && name.len() <= 32 && name.chars().all(plain) {
        return Ok(());
    }
    Err(ConfigError::Name(what, name.to_string()))
}
