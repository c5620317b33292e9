//! The command line: one definition for parsing, help, manual pages and completions.

use crate::coherence;
use crate::control::fault_rules::parse_keep;
use crate::options::AddOptions;
use crate::replay::{Format, FormatOptions};
use crate::server;
use crate::timing::{MediaConfig, parse_media};
use crate::units::parse_size;
use clap::{Args, Parser, Subcommand, ValueEnum};
use emulation::{Bytes, Keep, Nanos};
use std::path::PathBuf;
use std::str::FromStr;

const AFTER_HELP: &str = "\
Sizes take K, M, G and T (binary). ID is a device number, /dev/ublkbN, or a name given by --name.
Exit status: 0 done, 1 failed, 2 usage, 3 cannot run here.
State is kept in /run/ublk (root), else in $XDG_RUNTIME_DIR/ublk; UBLK_STATE_DIR names another place.";

/// The copy-offload disk: block devices whose store executes copy commands itself
#[derive(Parser, Debug)]
#[command(name = "ublk", version, after_help = AFTER_HELP, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make a disk and print its path
    ///
    /// Without any option: a thin disk of 1 GiB in memory that copies by remapping. The options under "Pool" are
    /// those of the pool that the disk is in: the first `add` of a pool sets them, later ones omit or repeat them.
    Add(Box<AddArgs>),
    /// Serve the disks of a pool again whose server died
    ///
    /// All disks of the pool, which were made with --user-recovery: requests that waited go on, and everything that
    /// was acknowledged is there. It can be repeated when it fails.
    Recover(TargetArgs),
    /// Delete a disk
    ///
    /// Deleting what is gone succeeds. A disk of another program, one that is mounted and one that is held
    /// exclusively need --force. A pool ends with its last disk.
    Del(DelArgs),
    /// List disks, those of other programs too
    List(ListArgs),
    /// Show everything about a disk
    Info(InfoArgs),
    /// Show what the ublk driver of this kernel can do
    Features(JsonArgs),
    /// Print the log of a disk's server
    Log(TargetArgs),
    /// Copy bytes within a disk or into it from another
    ///
    /// Engine `device` sends copy commands to the disk; the bytes do not pass through this program. Cached writes
    /// of the block device are written back first, and its cached pages of the destination are dropped. Engine
    /// `host` reads and writes the block devices, as a host without copy commands must; `kcopyd` does so the way the kernel's
    /// copy service does.
    Copy(CopyArgs),
    /// Change a disk while it runs
    ///
    /// The keys are the long options of `add` that can change: copy, copy-backend, copy-max-bytes, copy-max-segment-bytes,
    /// copy-max-segments, and latency, bandwidth and media, of which `none` takes one back.
    Set(SetArgs),
    /// Show the ledger of a disk: what moved where
    Stats(StatsArgs),
    /// Make requests of a disk fail, hang, stop half-way, or lie
    Fault {
        /// What to do.
        #[command(subcommand)]
        action: FaultCommand,
    },
    /// Cut the power of a disk: what no flush has made durable is lost, as far as it may be
    ///
    /// Requests that are under way fail. Each map block holds what was flushed last or what was written last; what a host
    /// has cached is dropped. Of a disk whose server is dead, the state is changed that `ublk recover` or the next `ublk
    /// add` finds.
    PowerCut(PowerCutArgs),
    /// Show or change the zones of a zoned disk
    Zone {
        /// What to do.
        #[command(subcommand)]
        action: ZoneCommand,
    },
    /// Print the requests of a disk as they are answered, until interrupted
    Trace(TraceArgs),
    /// Show all disks, live
    ///
    /// Operations and bytes of each second; latencies since the start of the server or the last `stats --reset`. Keys: up
    /// and down choose a disk, q ends.
    Top(TopArgs),
    /// Do what a trace did, to a disk or to the model of one
    ///
    /// To a disk: what it writes overwrites the disk. Entries beyond its end are taken modulo its size, and such as are no
    /// whole blocks are widened; both are counted. Malformed lines are printed with their number and left out.
    Replay(ReplayArgs),
    /// Check that disks can be made here and try one, or judge a disk
    ///
    /// With --target: the clauses of SEMANTICS.md against that disk, as TAP. Those that write need --scratch.
    Selftest(SelftestArgs),
    /// Verify a file of type file, which no server has open, and say what is in it
    Check(CheckArgs),
    /// Copy a raw image into a volume of a file of type file, which no server has open
    Import(ImportArgs),
    /// Copy a volume of a file of type file, which no server has open, into a raw image
    Export(ExportArgs),
    /// Print the completions of a shell
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands to a directory
    Man {
        /// The directory.
        dir: Option<PathBuf>,
    },
    /// The server in the background
    #[command(name = server::COMMAND, hide = true)]
    Serve,
    /// The helper for the page cache
    #[command(name = coherence::COMMAND, hide = true)]
    CoherenceHelper,
}

/// The options of `add`.
#[derive(Args, Debug)]
pub struct AddArgs {
    /// The disk and its pool.
    #[command(flatten)]
    pub options: AddOptions,
    /// Read options from a file; their long names are its keys, and those given here win
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Serve in the foreground and log to standard error
    #[arg(long)]
    pub foreground: bool,
    /// Make a disk although this kernel is known to crash when one is made
    #[arg(long)]
    pub force: bool,
    /// Let the control API arm panics in the server
    #[arg(long, hide = true)]
    pub debug: bool,
}

/// A disk, as it was named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// By number.
    Id(u32),
    /// By name.
    Name(String),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("/dev/ublkb").or_else(|| text.strip_prefix("ublkb")).unwrap_or(text);
        if let Ok(id) = number.parse() {
            return Ok(Self::Id(id));
        }
        if text.is_empty() || text.contains('/') || text.starts_with('-') || number != text {
            return Err("a device number, /dev/ublkbN, or a name".to_string());
        }
        Ok(Self::Name(text.to_string()))
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// A disk.
#[derive(Args, Debug)]
pub struct TargetArgs {
    /// The disk: its number, /dev/ublkbN, or its name
    #[arg(short = 'n', long = "number", value_name = "ID")]
    pub target: Target,
}

/// A command that only prints.
#[derive(Args, Debug)]
pub struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `selftest`.
#[derive(Args, Debug)]
pub struct SelftestArgs {
    /// Judge this disk: /dev/ublkbN of this program, any NVMe namespace, or the first disk behind a control API
    #[arg(long, value_name = "/dev/ublkbN|/dev/nvmeXnY|unix:SOCKET")]
    pub target: Option<String>,
    /// A range of the disk that may be overwritten
    #[arg(long, value_name = "START+LENGTH", requires = "target")]
    pub scratch: Option<Span>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `del`.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["target", "all"])))]
pub struct DelArgs {
    /// The disk: its number, /dev/ublkbN, or its name
    #[arg(short = 'n', long = "number", value_name = "ID")]
    pub target: Option<Target>,
    /// Delete every disk of this program
    #[arg(short, long)]
    pub all: bool,
    /// Delete it although it is mounted, held, or of another program
    #[arg(long)]
    pub force: bool,
}

/// The options of `check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The file or block device
    pub path: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// The raw image
    pub image: PathBuf,
    /// The file or block device, made when it is not there
    pub path: PathBuf,
    /// The name of the new volume [default: the one of a disk that is given no name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// The options of `export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The file or block device
    pub path: PathBuf,
    /// The raw image, which is made
    pub image: PathBuf,
    /// The name of the volume [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// The form of `list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// As ublksrv prints it.
    Ublksrv,
    /// As rublk prints it.
    Rublk,
}

/// The options of `list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only this disk
    #[arg(short = 'n', long = "number", value_name = "ID")]
    pub target: Option<Target>,
    /// As which program prints it
    #[arg(long, default_value = "ublksrv")]
    pub format: ListFormat,
    /// Print JSON
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

/// The options of `info`.
#[derive(Args, Debug)]
pub struct InfoArgs {
    /// The disk.
    #[command(flatten)]
    pub disk: TargetArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print the file that makes this disk with `add --config`
    #[arg(long, conflicts_with = "json")]
    pub toml: bool,
}

/// Who moves the bytes of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// The disk.
    Device,
    /// This program: it reads and writes the block devices.
    Host,
    /// The model of the kernel's copy service: it reads and writes the block devices as dm-kcopyd does.
    Kcopyd,
}

/// The way of copy commands to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Door {
    /// The kernel's copy operation, by ioctl.
    Native,
    /// The kernel's copy operation, by io_uring.
    NativeAsync,
    /// The control API.
    Api,
}

/// `SRC+LEN:DST`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte to copy.
    pub source: Bytes,
    /// So many.
    pub length: Bytes,
    /// Where they go; given elsewhere for a positional range.
    pub destination: Option<Bytes>,
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (range, destination) = text.split_once(':').map_or((text, None), |(range, to)| (range, Some(to)));
        let (source, length) =
            range.split_once('+').ok_or("a range is SRC+LEN: first byte, +, number of bytes")?;
        Ok(Self {
            source: parse_size(source)?,
            length: parse_size(length)?,
            destination: destination.map(parse_size).transpose()?,
        })
    }
}

/// The options of `copy`.
#[derive(Args, Debug)]
#[command(override_usage = "ublk copy [OPTIONS] -n <ID> <SRC+LEN>... <DST>\n       \
                            ublk copy [OPTIONS] -n <ID> --segment <SRC+LEN:DST>...")]
pub struct CopyArgs {
    /// The disk to copy to: its number, /dev/ublkbN, or its name
    #[arg(short = 'n', long = "number", value_name = "ID")]
    pub target: Target,
    /// Ranges SRC+LEN in bytes, then DST, the byte at which the first of them goes; the others follow it
    #[arg(value_name = "SRC+LEN... DST")]
    pub ranges: Vec<String>,
    /// One range with a destination of its own; may be repeated
    #[arg(long, value_name = "SRC+LEN:DST", conflicts_with = "ranges")]
    pub segment: Vec<Span>,
    /// Copy from this disk [default: the one that is copied to]
    #[arg(long, value_name = "ID")]
    pub from: Option<Target>,
    /// Who moves the bytes
    #[arg(long, default_value = "device")]
    pub engine: Engine,
    /// The way of copy commands to the disk [default: native where the kernel and the disk have it and the options
    /// allow it, else api]
    #[arg(long)]
    pub door: Option<Door>,
    /// The block device for the native door, such as a partition [default: that of the disk]
    #[arg(long, value_name = "PATH")]
    pub node: Option<PathBuf>,
    /// Send everything as one command, whatever the limits of the disk say
    #[arg(long)]
    pub one_command: bool,
    /// Make the copy durable before it completes
    #[arg(long)]
    pub fua: bool,
    /// Copy by remapping alone, or fail
    #[arg(long)]
    pub fast_only: bool,
    /// Write at the write pointer of the zone that begins at DST, one range behind the other
    #[arg(long)]
    pub append: bool,
    /// Compare source and destination afterwards
    #[arg(long)]
    pub verify: bool,
    /// Copy although a disk is mounted or held exclusively
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `set`.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// The disk.
    #[command(flatten)]
    pub disk: TargetArgs,
    /// What to change
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub changes: Vec<String>,
    /// Print the limits as JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `stats`.
#[derive(Args, Debug)]
pub struct StatsArgs {
    /// The disk.
    #[command(flatten)]
    pub disk: TargetArgs,
    /// Set every counter to 0 after printing it
    #[arg(long)]
    pub reset: bool,
    /// Print what was counted in each second, until interrupted
    #[arg(long, conflicts_with = "reset")]
    pub watch: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The form of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// As blkparse prints it
    Blkparse,
    /// An object a line
    Json,
}

/// The options of `trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// The disk.
    #[command(flatten)]
    pub disk: TargetArgs,
    /// The form
    #[arg(long, default_value = "blkparse")]
    pub format: TraceFormat,
    /// End after so many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

/// The options of `top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Seconds between two looks
    #[arg(long, value_name = "S", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub period: u64,
}

/// How fast a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Speed {
    /// At the times that it says
    Recorded,
    /// As fast as it goes
    Full,
}

/// The unit of time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeUnit {
    /// Microseconds
    Us,
    /// Milliseconds
    Ms,
}

/// The options of `replay`.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("where").required(true).args(["target", "sim"])))]
pub struct ReplayArgs {
    /// The trace; `-` for standard input
    pub file: PathBuf,
    /// Its format
    #[arg(long)]
    pub format: Format,
    /// The disk: its number, /dev/ublkbN, or its name
    #[arg(short = 'n', long = "number", value_name = "ID")]
    pub target: Option<Target>,
    /// The model of a disk, in virtual time
    #[arg(long)]
    pub sim: bool,
    /// How fast
    #[arg(long, default_value = "recorded")]
    pub speed: Speed,
    /// Requests under way: at full speed, and threads on a disk
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub depth: u16,
    /// Only entries of this device, as the trace names it
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// The unit of time stamps in version 3 of fio's format
    #[arg(long, value_name = "UNIT", default_value = "us")]
    pub fio_unit: TimeUnit,
    /// The action of blkparse that counts
    #[arg(long, value_name = "A", default_value = "D")]
    pub blkparse_action: String,
    /// The size of the model
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "1T", conflicts_with = "target")]
    pub size: Bytes,
    /// Latencies of the model, as for `add`
    #[arg(long, value_name = "OP=TIME,…", conflicts_with = "target")]
    pub latency: Option<String>,
    /// Bytes a second through the controller of the model
    #[arg(long, value_name = "SIZE", conflicts_with = "target")]
    pub bandwidth: Option<String>,
    /// What the model is like, as for `add`
    #[arg(long, value_name = "FILE.toml|PROFILE", value_parser = parse_media, conflicts_with = "target")]
    pub media: Option<MediaConfig>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl ReplayArgs {
    /// What the format leaves open.
    pub fn format_options(&self) -> FormatOptions {
        let fio_unit = match self.fio_unit {
            TimeUnit::Us => Nanos(1_000),
            TimeUnit::Ms => Nanos(1_000_000),
        };
        FormatOptions { fio_unit, blkparse_action: self.blkparse_action.clone() }
    }
}

/// What can be done with zones.
#[derive(Subcommand, Debug)]
pub enum ZoneCommand {
    /// Show zones: where they begin, how far they are written, and their condition
    Report(ZoneReportArgs),
    /// Open zones explicitly
    Open(ZoneRangeArgs),
    /// Close zones
    Close(ZoneRangeArgs),
    /// Move zones to full
    Finish(ZoneRangeArgs),
    /// Move zones to empty: what they hold is gone
    Reset(ZoneRangeArgs),
    /// Have zones fail, as those of a real disk may
    SetCondition(ZoneConditionArgs),
}

/// Zones of a disk.
#[derive(Args, Debug)]
pub struct ZoneRangeArgs {
    /// The disk.
    #[command(flatten)]
    pub disk: TargetArgs,
    /// The start of the first zone, in bytes
    #[arg(short, long, value_name = "OFFSET", value_parser = parse_size, default_value = "0")]
    pub offset: Bytes,
    /// So many zones [default: all that follow]
    #[arg(short, long, value_name = "N")]
    pub count: Option<u32>,
    /// Although the disk is mounted or held exclusively
    #[arg(long)]
    pub force: bool,
}

/// The options of `zone report`.
#[derive(Args, Debug)]
pub struct ZoneReportArgs {
    /// The disk.
    #[command(flatten)]
    pub disk: TargetArgs,
    /// A byte of the first zone
    #[arg(short, long, value_name = "OFFSET", value_parser = parse_size, default_value = "0")]
    pub offset: Bytes,
    /// So many zones [default: all that follow]
    #[arg(short, long, value_name = "N")]
    pub count: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How a zone fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ZoneFailureName {
    /// Not writable any more.
    ReadOnly,
    /// Neither readable nor writable any more.
    Offline,
}

/// The options of `zone set-condition`.
#[derive(Args, Debug)]
pub struct ZoneConditionArgs {
    /// The zones.
    #[command(flatten)]
    pub zones: ZoneRangeArgs,
    /// What becomes of them
    #[arg(value_name = "CONDITION")]
    pub condition: ZoneFailureName,
}

/// What can be done with faults.
#[derive(Subcommand, Debug)]
pub enum FaultCommand {
    /// Add a rule and print its name
    ///
    /// Of several rules that would strike a request the first does.
    #[command(after_help = FAULT_HELP)]
    Add(FaultAddArgs),
    /// Show the rules and what they struck
    List(FaultListArgs),
    /// Remove a rule, or all: what hangs by it ends with a timeout, what it corrupted is as it was
    Del(FaultDelArgs),
}

const FAULT_HELP: &str = "\
Keys:
  op=OP            read, write (appends too), flush, discard, write-zeroes, copy, zone-mgmt, report-zones
                   [default: any that the action can strike]
  range=FIRST+LEN  those that touch these bytes [default: all]
  nth=N            those from the Nth on, counted from 1
  ratio=A/B        those that chance chooses, A of B
  count=N          the most that are struck [default: no limit; 1 for power-cut]
  seed=N           where chance begins [default: 0]
  name=NAME        [default: faultN]
  action=ACTION    what they meet:
    error:STATUS     they fail: MEDIUM, IOERR, NOSPC, TIMEOUT, ...
    delay:TIME       they are answered no earlier than so long after they began: 80us, 5ms, 2s
    hang             they are not answered until the rule, the disk or its server ends
    fail-at:K        copies fail at the segment with index K, from 0, those before it done
    stop-at:BYTES    they fail when so much of them is done
    corrupt          one bit reads wrong from now on, until it is written anew or the rule ends
    torn             fewer blocks than asked for are written, and success is reported
    misdirect:SECTOR they read or write there instead
    lost-flush       flushes do nothing and report success, FUA is not heard
    zone:offline     the zone fails while the middle of the request is under way; also zone:read-only
    power-cut[:KEEP] the power fails while the middle of the request is under way";

/// The options of `fault add`.
#[derive(Args, Debug)]
pub struct FaultAddArgs {
    /// The disk.
    #[command(flatten)]
    pub disk: TargetArgs,
    /// The rule
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub words: Vec<String>,
    /// Print the rule as JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `fault list`.
#[derive(Args, Debug)]
pub struct FaultListArgs {
    /// The disk.
    #[command(flatten)]
    pub disk: TargetArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `fault del`.
#[derive(Args, Debug)]
pub struct FaultDelArgs {
    /// The disk.
    #[command(flatten)]
    pub disk: TargetArgs,
    /// The rule [default: all]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// The options of `power-cut`.
#[derive(Args, Debug)]
pub struct PowerCutArgs {
    /// The disk.
    #[command(flatten)]
    pub disk: TargetArgs,
    /// What is kept of what no flush has made durable: nothing, everything, or what chance chooses from a seed
    #[arg(long, value_name = "none|all|SEED", value_parser = parse_keep, default_value = "none")]
    pub keep: Keep,
    /// Although the disk is mounted or held exclusively
    #[arg(long)]
    pub force: bool,
    /// Print what was undone as JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_disk_is_named_by_number_path_or_name() {
        for (text, target) in [
            ("7", Target::Id(7)),
            ("ublkb7", Target::Id(7)),
            ("/dev/ublkb7", Target::Id(7)),
            ("data.1", Target::Name("data.1".to_string())),
        ] {
            assert_eq!(text.parse(), Ok(target), "{text}");
        }
        for text in ["", "/dev/sda", "ublkbx", "-1", "a/b", "/dev/ublkb"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_has_sizes_with_suffixes() {
        let span = |source, length, destination: Option<u64>| Span {
            source: Bytes(source),
            length: Bytes(length),
            destination: destination.map(Bytes),
        };
        assert_eq!("0+1M".parse(), Ok(span(0, 1 << 20, None)));
        assert_eq!("4K+8K:1G".parse(), Ok(span(4096, 8192, Some(1 << 30))));
        for text in ["", "4K", "+", "1+", "+1", "1+1:", "1+1:2:3", "1+1+1"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_spellings_of_ublksrv_are_taken() {
        let line = "ublk add -t null -n 0 -q 2 -d 64 -u 1 -g 0 -r 0 -i 0 -e 0 -z 0 --usercopy --buffered_io";
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let Command::Add(add) = cli.command else { panic!("not add") };
        assert_eq!((add.options.number, add.options.queues, add.options.depth), (Some(0), Some(2), Some(64)));
        assert!(add.options.disk().is_ok());
        for refused in ["-i -e", "-z"] {
            let line = format!("ublk add {refused}");
            let Command::Add(add) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
                panic!("not add")
            };
            assert!(add.options.disk().is_err(), "{refused}");
        }
        assert!(Cli::try_parse_from(["ublk", "add", "--queue", "3", "-n", "-1"]).is_ok());
        assert!(Cli::try_parse_from(["ublk", "del"]).is_err(), "neither -n nor -a");
        assert!(Cli::try_parse_from(["ublk", "del", "-n", "1", "-a"]).is_err(), "both");
    }
}
