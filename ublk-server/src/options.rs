//! The options of `ublk add` as they were given, on the command line or in a file, and their way to a checked
//! configuration.

use crate::config::{
    CacheMode, ConfigError, CopyBackend, CopyModeName, DEFAULT_CACHE_SIZE, DiskConfig, NvmeConfig,
    PoolConfig, PoolType, RecoveryMode, ZoneConfig,
};
use crate::control::fault_rules::FaultSpec;
use crate::store::header::Header;
use crate::timing::{MediaConfig, TimingConfig, parse_media};
use crate::units::{optional_size, parse_size};
use clap::Args;
use emulation::Bytes;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Reads a switch that may carry a value, as other programs write it: `0` or `1`.
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "0" | "false" => Ok(false),
        "1" | "true" => Ok(true),
        _ => Err("must be 0 or 1".to_string()),
    }
}

/// The options of `ublk add`; in a file their long names are the keys.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AddOptions {
    /// Where the bytes live: in memory; in a file or block device with a map beside it (-f); in a raw image or block
    /// device (-f); or nowhere
    #[arg(short = 't', long = "type", value_name = "TYPE", help_heading = "Pool")]
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<PoolType>,

    /// The number of the block device /dev/ublkbN [default: the first free one]
    #[arg(short = 'n', long, value_name = "ID", allow_negative_numbers = true, help_heading = "Disk")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<i32>,

    /// A name for the disk, to be used wherever its number can
    #[arg(long, value_name = "NAME", help_heading = "Disk")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Hardware queues, at most one a CPU [default: 1]
    #[arg(short = 'q', long, visible_alias = "queue", value_name = "N", help_heading = "Disk")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,

    /// Requests in flight in a queue [default: 128]
    #[arg(short = 'd', long, value_name = "N", help_heading = "Disk")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u16>,

    /// The size of the disk [default: 1G; for type loop that of PATH, for type file that of the volume in PATH]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Disk")]
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,

    /// The file or block device of type file, the raw image or block device of type loop
    #[arg(short = 'f', long, value_name = "PATH", help_heading = "Pool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,

    /// Join the pool of this name or make it: disks of one pool copy into each other [default: a new pool]
    #[arg(long, value_name = "POOL", help_heading = "Pool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,

    /// 512, 1024, 2048 or 4096 [default: 512]
    #[arg(long, value_name = "B", value_parser = parse_size, help_heading = "Disk")]
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub logical_block_size: Option<Bytes>,

    /// The block of the map, the unit of remapping: a power of two from the logical block to 64K [default: 4K]
    #[arg(long, value_name = "B", value_parser = parse_size, help_heading = "Pool")]
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub map_block: Option<Bytes>,

    /// Refuse writes
    #[arg(long, visible_alias = "read_only", num_args = 0..=1, default_missing_value = "1", value_parser = switch,
          value_name = "0|1", help_heading = "Disk")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,

    /// The most memory a pool of type ram takes; beyond it writes fail for lack of space
    /// [default: 75 % of what is available]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Pool")]
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,

    /// How copies are carried out [default: remap for types ram and file, memcpy for others]
    #[arg(long, value_name = "MODE", help_heading = "Copy")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyModeName>,

    /// How copies that move bytes are carried out in the file of types file and loop: rw reads and writes, cfr leaves it to
    /// the file system (copy_file_range), which may share blocks [default: rw]
    #[arg(long, value_name = "rw|cfr", help_heading = "Copy")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_backend: Option<CopyBackend>,

    /// The most bytes of a copy command (NVMe MCL) [default: 128M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Copy")]
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub copy_max_bytes: Option<Bytes>,

    /// The most bytes of one segment of a copy (NVMe MSSRL) [default: 16M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Copy")]
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub copy_max_segment_bytes: Option<Bytes>,

    /// The most segments of a copy command (NVMe MSRC + 1) [default: 128]
    #[arg(long, value_name = "N", help_heading = "Copy")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_max_segments: Option<u32>,

    /// Latencies of operations: OP=TIME with commas between, each TIME like 80us, 80us~5us (mean and standard deviation) or
    /// p50:80us/p99:1ms/max:5ms; read, write, flush, discard, write_zeroes, copy, zone_mgmt, report_zones
    #[arg(long, value_name = "OP=TIME,…", help_heading = "Time")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<String>,

    /// Bytes a second through the controller; a byte that is moved passes it twice
    #[arg(long, value_name = "SIZE", help_heading = "Time")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<String>,

    /// What the disk is like: a file with a table, or a profile: tlc-ssd, zns, hdd, remote
    #[arg(long, value_name = "FILE.toml|PROFILE", value_parser = parse_media, help_heading = "Time")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media: Option<MediaConfig>,

    /// A zoned disk: sequential zones are written at their write pointer only. For types ram
    /// and file
    #[arg(long, num_args = 0..=1, default_missing_value = "1", value_parser = switch, value_name = "0|1",
          help_heading = "Zones")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zoned: Option<bool>,

    /// The size of a zone: a power of two of which the size of the disk is a multiple [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Zones")]
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub zone_size: Option<Bytes>,

    /// What can be written of a sequential zone [default: all of it]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Zones")]
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub zone_capacity: Option<Bytes>,

    /// Conventional zones, written anywhere, at the start of the disk [default: 0]
    #[arg(long, value_name = "N", help_heading = "Zones")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conventional_zones: Option<u32>,

    /// The most open zones; 0 for no limit [default: 0]
    #[arg(long, value_name = "N", help_heading = "Zones")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_open: Option<u32>,

    /// The most active zones, which are the open and the closed ones; 0 for no limit [default: 0]
    #[arg(long, value_name = "N", help_heading = "Zones")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_active: Option<u32>,

    /// The longest append [default: 1M, or the capacity of a zone]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Zones")]
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub max_append: Option<Bytes>,

    /// What is promised before a flush: everything (none) or nothing [default: volatile for types file and loop,
    /// else none]
    #[arg(long, value_name = "CACHE", help_heading = "Pool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheMode>,

    /// The most bytes held back for the durable image with --cache volatile [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Pool")]
    #[serde(with = "optional_size", skip_serializing_if = "Option::is_none")]
    pub cache_size: Option<Bytes>,

    /// Read and write PATH through the page cache of the host
    #[arg(long, visible_alias = "buffered_io", num_args = 0..=1, default_missing_value = "1",
          value_parser = switch, value_name = "0|1", help_heading = "Pool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffered_io: Option<bool>,

    /// Make no block device: the control API and NVMe/TCP are the only doors. Needs neither root nor the driver
    #[arg(long, num_args = 0..=1, default_missing_value = "1", value_parser = switch, value_name = "0|1",
          help_heading = "Doors")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_ublk: Option<bool>,

    /// Serve the disk over NVMe/TCP too, as a namespace of its pool's subsystem; port 0 is any free one
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Doors")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvme_tcp: Option<SocketAddr>,

    /// Serve a discovery controller at an address of its own [default: only at that of --nvme-tcp]
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Doors")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery: Option<SocketAddr>,

    /// The NVMe hosts that may connect, by NQN; may be repeated [default: any]
    #[arg(long, value_name = "NQN", num_args = 1.., help_heading = "Doors")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_host: Vec<String>,

    /// Let NVMe/TCP listen at addresses that other machines reach: there is neither authentication nor encryption
    #[arg(long, num_args = 0..=1, default_missing_value = "1", value_parser = switch, value_name = "0|1",
          help_heading = "Doors")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_remote: Option<bool>,

    /// A device for a user who is not root; the driver must allow it
    #[arg(long, num_args = 0..=1, default_missing_value = "1", value_parser = switch, value_name = "0|1",
          help_heading = "Disk")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unprivileged: Option<bool>,

    /// Keep the disks when the server dies, for `ublk recover`; what becomes of requests meanwhile: those in flight fail
    /// and new ones wait (queue), those in flight are sent again (reissue), all fail (fail-io)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "queue", value_name = "MODE",
          help_heading = "Pool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_recovery: Option<RecoveryMode>,

    /// Rules of faults that the disk begins with: `[[fault]]` in a file.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fault: Vec<FaultSpec>,

    #[command(flatten)]
    #[serde(skip)]
    pub(crate) compatible: CompatibleOptions,
}

/// Switches of ublksrv that choose between ways of moving data of which this program has one, or that it must
/// refuse by name.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompatibleOptions {
    /// Completion through io_uring: always so here
    #[arg(short = 'u', long = "uring_comp", num_args = 0..=1, default_missing_value = "1", value_parser = switch,
          hide = true)]
    pub(crate) uring_comp: Option<bool>,
    /// One more round trip for writes: never needed with user copy
    #[arg(short = 'g', long = "need_get_data", num_args = 0..=1, default_missing_value = "1",
          value_parser = switch, hide = true)]
    pub(crate) need_get_data: Option<bool>,
    /// User copy: always so here
    #[arg(long = "usercopy", visible_alias = "user-copy", num_args = 0..=1, default_missing_value = "1",
          value_parser = switch, hide = true)]
    pub(crate) usercopy: Option<bool>,
    /// As `--user-recovery`
    #[arg(short = 'r', long = "user_recovery", num_args = 0..=1, default_missing_value = "1",
          value_parser = switch, hide = true)]
    pub(crate) recover: Option<bool>,
    /// As `--user-recovery=reissue`
    #[arg(short = 'i', long = "user_recovery_reissue", num_args = 0..=1, default_missing_value = "1",
          value_parser = switch, hide = true)]
    pub(crate) recover_reissue: Option<bool>,
    /// As `--user-recovery=fail-io`
    #[arg(short = 'e', long = "user_recovery_fail_io", num_args = 0..=1, default_missing_value = "1",
          value_parser = switch, hide = true)]
    pub(crate) recover_fail_io: Option<bool>,
    #[arg(short = 'z', num_args = 0..=1, default_missing_value = "1", value_parser = switch, hide = true)]
    pub(crate) zero_copy: Option<bool>,
}

/// Why options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// They contradict each other or a limit.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A device number that cannot be.
    #[error("number {0}: a device number from 0, or -1 for the first free one")]
    Number(i32),
    /// More memory than there is.
    #[error("memory {0}: only {1} are available\ngive at most that, or leave --memory out for 75 % of it")]
    Memory(Bytes, Bytes),
    /// An option that the pool, which exists, contradicts.
    #[error("pool \"{0}\" exists with {1} {2}, not {3}\nleave the option out, or make another pool")]
    Differs(String, &'static str, String, String),
    /// Not available.
    #[error("{0}")]
    NotAvailable(&'static str),
    /// The file's path cannot be made absolute.
    #[error("{0}: {1}")]
    Path(PathBuf, #[source] std::io::Error),
}

impl AddOptions {
    /// These options, and those of `other` where these have none.
    pub fn or(self, other: Self) -> Self {
        Self {
            kind: self.kind.or(other.kind),
            number: self.number.or(other.number),
            name: self.name.or(other.name),
            queues: self.queues.or(other.queues),
            depth: self.depth.or(other.depth),
            size: self.size.or(other.size),
            file: self.file.or(other.file),
            pool: self.pool.or(other.pool),
            logical_block_size: self.logical_block_size.or(other.logical_block_size),
            map_block: self.map_block.or(other.map_block),
            read_only: self.read_only.or(other.read_only),
            memory: self.memory.or(other.memory),
            copy: self.copy.or(other.copy),
            copy_backend: self.copy_backend.or(other.copy_backend),
            copy_max_bytes: self.copy_max_bytes.or(other.copy_max_bytes),
            copy_max_segment_bytes: self.copy_max_segment_bytes.or(other.copy_max_segment_bytes),
            copy_max_segments: self.copy_max_segments.or(other.copy_max_segments),
            latency: self.latency.or(other.latency),
            bandwidth: self.bandwidth.or(other.bandwidth),
            media: self.media.or(other.media),
            zoned: self.zoned.or(other.zoned),
            zone_size: self.zone_size.or(other.zone_size),
            zone_capacity: self.zone_capacity.or(other.zone_capacity),
            conventional_zones: self.conventional_zones.or(other.conventional_zones),
            max_open: self.max_open.or(other.max_open),
            max_active: self.max_active.or(other.max_active),
            max_append: self.max_append.or(other.max_append),
            cache: self.cache.or(other.cache),
            cache_size: self.cache_size.or(other.cache_size),
            buffered_io: self.buffered_io.or(other.buffered_io),
            no_ublk: self.no_ublk.or(other.no_ublk),
            nvme_tcp: self.nvme_tcp.or(other.nvme_tcp),
            discovery: self.discovery.or(other.discovery),
            allow_host: if self.allow_host.is_empty() { other.allow_host } else { self.allow_host },
            allow_remote: self.allow_remote.or(other.allow_remote),
            unprivileged: self.unprivileged.or(other.unprivileged),
            user_recovery: self.user_recovery.or(other.user_recovery),
            fault: if self.fault.is_empty() { other.fault } else { self.fault },
            compatible: self.compatible,
        }
    }

    /// The disk they describe.
    ///
    /// # Errors
    /// A device number that cannot be, or something that is not available.
    pub fn disk(&self) -> Result<DiskConfig, OptionsError> {
        self.compatible.check()?;
        let id = match self.number {
            None | Some(-1) => None,
            Some(number) => Some(u32::try_from(number).map_err(|_| OptionsError::Number(number))?),
        };
        let default = DiskConfig::default();
        Ok(DiskConfig {
            id,
            name: self.name.clone(),
            queues: self.queues.unwrap_or(default.queues),
            depth: self.depth.unwrap_or(default.depth),
            size: self.size,
            logical_block_size: self.logical_block_size,
            read_only: self.read_only.unwrap_or(false),
            copy: self.copy,
            copy_backend: self.copy_backend.unwrap_or_default(),
            copy_max_bytes: self.copy_max_bytes.unwrap_or(default.copy_max_bytes),
            copy_max_segment_bytes: self.copy_max_segment_bytes.unwrap_or(default.copy_max_segment_bytes),
            copy_max_segments: self.copy_max_segments.unwrap_or(default.copy_max_segments),
            unprivileged: self.unprivileged.unwrap_or(false),
            no_ublk: self.no_ublk.unwrap_or(false),
            nvme: self.nvme()?,
            zones: self.zones()?,
            timing: self.timing(),
            faults: self.fault.clone(),
        })
    }

    /// The timing they describe.
    fn timing(&self) -> TimingConfig {
        let (latency, bandwidth, media) = (self.latency.clone(), self.bandwidth.clone(), self.media.clone());
        TimingConfig::default().changed(&TimingConfig { latency, bandwidth, media })
    }

    /// The zones they describe.
    fn zones(&self) -> Result<Option<ZoneConfig>, ConfigError> {
        if self.zoned != Some(true) {
            let more = self.zone_size.is_some() || self.zone_capacity.is_some() || self.max_append.is_some();
            let counts = [self.conventional_zones, self.max_open, self.max_active];
            return match more || counts.iter().any(Option::is_some) {
                true => Err(ConfigError::Excluded(
                    "--zone-size, --zone-capacity, --conventional-zones, --max-open, --max-active and --max-append \
                     are for zoned disks: add --zoned",
                )),
                false => Ok(None),
            };
        }
        let default = ZoneConfig::default();
        Ok(Some(ZoneConfig {
            size: self.zone_size.unwrap_or(default.size),
            capacity: self.zone_capacity,
            conventional: self.conventional_zones.unwrap_or(default.conventional),
            max_open: self.max_open.unwrap_or(default.max_open),
            max_active: self.max_active.unwrap_or(default.max_active),
            max_append: self.max_append,
        }))
    }

    /// The NVMe/TCP door they describe.
    fn nvme(&self) -> Result<Option<NvmeConfig>, ConfigError> {
        let Some(listen) = self.nvme_tcp else {
            let more =
                self.discovery.is_some() || !self.allow_host.is_empty() || self.allow_remote == Some(true);
            return match more {
                true => Err(ConfigError::Excluded(
                    "--discovery, --allow-host and --allow-remote are for NVMe/TCP: give --nvme-tcp ADDR:PORT",
                )),
                false => Ok(None),
            };
        };
        Ok(Some(NvmeConfig {
            listen,
            discovery: self.discovery,
            allow_hosts: self.allow_host.clone(),
            allow_remote: self.allow_remote.unwrap_or(false),
        }))
    }

    /// The new pool they describe; its name is empty when none was given. `available` is the memory that is.
    ///
    /// # Errors
    /// They contradict each other, a limit or the memory.
    pub fn new_pool(&self, available: Bytes) -> Result<PoolConfig, OptionsError> {
        let kind = self.kind.unwrap_or(PoolType::Ram);
        let default_block = Bytes::kib(4).max(self.logical_block_size.unwrap_or_default());
        let path = self.absolute_file()?;
        let map_block = match (self.map_block, kind, &path) {
            (Some(given), _, _) => given,
            (None, PoolType::File, Some(path)) => stored_map_block(path).unwrap_or(default_block),
            (None, _, _) => default_block,
        };
        if self.memory.is_some() && kind != PoolType::Ram {
            let why = "--memory is for type ram: the others keep no data in memory";
            return Err(ConfigError::Excluded(why).into());
        }
        if let Some(memory) = self.memory.filter(|memory| *memory > available) {
            return Err(OptionsError::Memory(memory, available));
        }
        let memory = match kind {
            // Whole MiB, which every map block divides.
            PoolType::Ram => self.memory.unwrap_or(Bytes::mib((available.0 / 4 * 3) >> 20)),
            PoolType::File | PoolType::Loop | PoolType::Null => Bytes(0),
        };
        let cache = match kind {
            PoolType::File | PoolType::Loop => CacheMode::Volatile,
            PoolType::Ram | PoolType::Null => CacheMode::None,
        };
        let pool = PoolConfig {
            name: self.pool.clone().unwrap_or_default(),
            kind,
            memory,
            map_block,
            cache: self.cache.unwrap_or(cache),
            cache_size: self.cache_size.unwrap_or(DEFAULT_CACHE_SIZE),
            path,
            buffered: self.buffered_io.unwrap_or(false),
            recovery: self.recovery(),
            identifier: String::new(),
        };
        pool.check()?;
        Ok(pool)
    }

    /// Refuses options that `pool`, which exists, contradicts.
    ///
    /// # Errors
    /// The first such option.
    pub fn check_pool(&self, pool: &PoolConfig) -> Result<(), OptionsError> {
        let text = |path: Option<PathBuf>| path.map_or("none".to_string(), |path| path.display().to_string());
        let file = self.absolute_file()?;
        let mode = |mode: Option<RecoveryMode>| mode.map_or("none", RecoveryMode::name).to_string();
        let recovery = self.recovery();
        let given: [(&'static str, Option<String>, String); 8] = [
            ("--type", self.kind.map(|kind| kind.name().to_string()), pool.kind.name().to_string()),
            ("--memory", self.memory.map(|m| m.to_string()), pool.memory.to_string()),
            ("--map-block", self.map_block.map(|b| b.to_string()), pool.map_block.to_string()),
            ("--cache", self.cache.map(|c| c.name().to_string()), pool.cache.name().to_string()),
            ("--cache-size", self.cache_size.map(|c| c.to_string()), pool.cache_size.to_string()),
            ("--file", file.clone().map(|path| text(Some(path))), text(pool.path.clone())),
            ("--user-recovery", recovery.map(|given| mode(Some(given))), mode(pool.recovery)),
            ("--buffered-io", self.buffered_io.map(|b| b.to_string()), pool.buffered.to_string()),
        ];
        for (option, asked, has) in given {
            if let Some(asked) = asked.filter(|asked| *asked != has) {
                return Err(OptionsError::Differs(pool.name.clone(), option, has, asked));
            }
        }
        Ok(())
    }

    /// The recovery mode asked for.
    pub fn recovery(&self) -> Option<RecoveryMode> {
        self.user_recovery.or(self.compatible.recovery())
    }

    /// The path made absolute; that of a file to be made by the directory that it will lie in.
    fn absolute_file(&self) -> Result<Option<PathBuf>, OptionsError> {
        let absolute = |path: &PathBuf| {
            let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            let made = self.kind == Some(PoolType::File);
            match (std::fs::canonicalize(path), path.file_name()) {
                (Err(error), Some(name)) if made && missing(&error) => {
                    let dir =
                        path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
                    std::fs::canonicalize(dir).map(|dir| dir.join(name))
                }
                (found, _) => found,
            }
            .map_err(|error| OptionsError::Path(path.clone(), error))
        };
        self.file.as_ref().map(absolute).transpose()
    }

    /// The options that would make this disk again.
    pub fn of(pool: &PoolConfig, disk: &DiskConfig) -> Self {
        let number = disk.id.map(|id| i32::try_from(id).unwrap_or(-1));
        Self {
            kind: Some(pool.kind),
            number,
            name: disk.name.clone(),
            queues: Some(disk.queues),
            depth: Some(disk.depth),
            size: disk.size,
            file: pool.path.clone(),
            pool: Some(pool.name.clone()),
            logical_block_size: Some(disk.logical_block()),
            map_block: Some(pool.map_block),
            read_only: Some(disk.read_only),
            memory: (pool.kind == PoolType::Ram).then_some(pool.memory),
            copy: Some(disk.copy_mode(pool)),
            copy_backend: (disk.copy_backend != CopyBackend::Rw).then_some(disk.copy_backend),
            copy_max_bytes: Some(disk.copy_max_bytes),
            copy_max_segment_bytes: Some(disk.copy_max_segment_bytes),
            copy_max_segments: Some(disk.copy_max_segments),
            latency: disk.timing.latency.clone(),
            bandwidth: disk.timing.bandwidth.clone(),
            media: disk.timing.media.clone(),
            zoned: disk.zones.as_ref().map(|_| true),
            zone_size: disk.zones.as_ref().map(|zones| zones.size),
            zone_capacity: disk.zones.as_ref().and_then(|zones| zones.capacity),
            conventional_zones: disk.zones.as_ref().map(|zones| zones.conventional),
            max_open: disk.zones.as_ref().map(|zones| zones.max_open),
            max_active: disk.zones.as_ref().map(|zones| zones.max_active),
            max_append: disk.zones.as_ref().and_then(|zones| zones.max_append),
            cache: Some(pool.cache),
            cache_size: Some(pool.cache_size),
            buffered_io: Some(pool.buffered),
            no_ublk: Some(disk.no_ublk),
            nvme_tcp: disk.nvme.as_ref().map(|nvme| nvme.listen),
            discovery: disk.nvme.as_ref().and_then(|nvme| nvme.discovery),
            allow_host: disk.nvme.as_ref().map(|nvme| nvme.allow_hosts.clone()).unwrap_or_default(),
            allow_remote: disk.nvme.as_ref().map(|nvme| nvme.allow_remote),
            unprivileged: Some(disk.unprivileged),
            user_recovery: pool.recovery,
            fault: disk.faults.clone(),
            compatible: CompatibleOptions::default(),
        }
    }
}

impl CompatibleOptions {
    fn recovery(&self) -> Option<RecoveryMode> {
        let modes = [
            (self.recover_fail_io, RecoveryMode::FailIo),
            (self.recover_reissue, RecoveryMode::Reissue),
            (self.recover, RecoveryMode::Queue),
        ];
        modes.into_iter().find(|(given, _)| *given == Some(true)).map(|(_, mode)| mode)
    }

    fn check(&self) -> Result<(), OptionsError> {
        // Data moves by user copy, whichever of these was asked for.
        let _any_of = (self.uring_comp, self.need_get_data, self.usercopy);
        if self.recover_reissue == Some(true) && self.recover_fail_io == Some(true) {
            return Err(OptionsError::NotAvailable(
                "-i, -e: requests in flight are sent again or fail\nleave one of the options out",
            ));
        }
        if self.zero_copy == Some(true) {
            return Err(OptionsError::NotAvailable(
                "-z: this version moves data by user copy\nleave the option out",
            ));
        }
        Ok(())
    }
}

/// The map block of the pool in a file, if there is one; whatever is wrong with the file is said by who opens it.
fn stored_map_block(path: &Path) -> Option<Bytes> {
    let file = std::fs::File::open(path).ok()?;
    Some(Header::read(&file).ok()??.map_block)
}

#[cfg(test)]
mod tests;
