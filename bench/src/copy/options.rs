//! The options of `ublk-bench copy`, by fio's names where it has them.

use clap::{Args, ValueEnum};
use emulation::Bytes;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use ublk_server::blkcopy::Way;
use ublk_server::cli::Target;
use ublk_server::units::{parse_size, size};

/// The order of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum Rw {
    /// From the first byte to the last.
    Copy,
    /// Sources and destinations in random order, each once before any is used again.
    RandCopy,
}

/// Who moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The disk: one copy command for each.
    Device,
    /// The disk: one NVMe Copy command each, by passthrough; any namespace.
    Nvme,
    /// This program: O_DIRECT reads and writes of the block device.
    Host,
}

/// The way of copy commands to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Door {
    /// Its control API.
    Api,
    /// The kernel's copy operation, by ioctl.
    Native,
    /// The kernel's copy operation, by io_uring.
    NativeAsync,
}

impl Door {
    /// The way into the kernel; `None` for the API.
    pub(super) fn way(self) -> Option<Way> {
        match self {
            Self::Api => None,
            Self::Native => Some(Way::Ioctl),
            Self::NativeAsync => Some(Way::Uring),
        }
    }
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    Normal,
    /// As fio prints it, with a section "copy" beside "read" and "write".
    Json,
}

/// The options.
#[derive(Args, Clone, Debug, Serialize)]
#[command(rename_all = "snake_case", group(clap::ArgGroup::new("where").required(true).args(["filename", "disk"])))]
pub struct CopyOptions {
    /// The block device; with --engine=nvme a namespace; with --engine=host any, or a file
    #[arg(long, value_name = "PATH")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<PathBuf>,
    /// The disk: its number, /dev/ublkbN, or its name
    #[arg(long, value_name = "ID")]
    #[serde(skip)]
    pub disk: Option<Target>,
    /// Who moves the bytes
    #[arg(long, default_value = "device")]
    pub engine: Engine,
    /// The way of copy commands to the disk, for --engine=device
    #[arg(long, default_value = "api")]
    pub door: Door,
    /// The order of copies
    #[arg(long, visible_alias = "readwrite", default_value = "copy")]
    pub rw: Rw,
    /// The name of the job in the result [default: that of --rw]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The length of a segment
    #[arg(long, visible_alias = "blocksize", value_name = "SIZE", default_value = "4k", value_parser = parse_size)]
    #[serde(with = "size")]
    pub bs: Bytes,
    /// Segments of a command
    #[arg(long, visible_alias = "num_range", value_name = "N", default_value_t = 1)]
    pub ranges: u32,
    /// Commands of a job under way at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub iodepth: u32,
    /// Jobs; each has its own part of --size
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub numjobs: u32,
    /// The first byte to copy
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    #[serde(with = "size")]
    pub offset: Bytes,
    /// So many bytes are copied [default: half of what follows --offset]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[serde(with = "ublk_server::units::optional_size", skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// The first byte to copy to [default: behind the source]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[serde(with = "ublk_server::units::optional_size", skip_serializing_if = "Option::is_none")]
    pub dest_offset: Option<Bytes>,
    /// End after so long: seconds, or a number with us, ms, s or m
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    #[serde(serialize_with = "as_seconds", skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Duration>,
    /// Go on until --runtime, over the same bytes again and again
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = switch,
          default_value = "0", hide_default_value = true, value_name = "0|1", requires = "runtime")]
    pub time_based: bool,
    /// End each job after so many commands
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_ios: Option<u64>,
    /// Begin no more commands a second than these, for each job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_iops: Option<u32>,
    /// The seed of --rw=randcopy
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub randseed: u64,
    /// Compare every byte copied with what its source held before the load. Nobody else may write to either
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = switch,
          default_value = "0", hide_default_value = true, value_name = "0|1")]
    pub verify: bool,
    /// Report the jobs as one
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = switch,
          default_value = "0", hide_default_value = true, value_name = "0|1")]
    pub group_reporting: bool,
    /// The form of the result
    #[arg(long = "output-format", default_value = "normal")]
    #[serde(skip)]
    pub output_format: Format,
    /// Write the result there [default: standard output]
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    pub output: Option<PathBuf>,
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("must be 0 or 1".to_string()),
    }
}

/// Reads a duration as fio does: a number is seconds.
fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 =
        number.parse().map_err(|_| "not a time: a whole number, then us, ms, s or m".to_string())?;
    let time = match unit {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "" | "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => return Err(format!("unknown unit \"{unit}\": us, ms, s and m are known")),
    };
    let most = Duration::from_secs(30 * 86_400);
    if time.is_zero() || time > most {
        Err("must be more than 0 and at most 30 days".to_string())
    } else {
        Ok(time)
    }
}

fn as_seconds<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.unwrap_or_default().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_seconds() {
        for (text, millis) in [("5", 5000), ("5s", 5000), ("2m", 120_000), ("7ms", 7), ("2000us", 2)] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "0", "s", "1h", "-1", "1.5", "3000000"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
