//! The command line.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::time::Duration;

use crate::sector::SECTOR;

/// How the tool is used.
pub(crate) const USAGE: &str = "\
usage: stamp --disk PATH --source OFFSET+LENGTH --destination OFFSET --copy 'COMMAND' [options]
Stamps the sectors of both ranges of a disk, each as long as LENGTH, again and again while COMMAND copies
parts of the source to the destination, and judges every sector that it reads: it must hold a version that its
source had during the copy, or that was written to it, and may not change unless it is written.
COMMAND is run with the further arguments `SOURCE+LENGTH... DESTINATION`, in bytes.
  --copies N             stop after so many copies, default 20
  --seconds N            stop after so long in any case, default 60
  --source-writers N     default 2
  --destination-writers N  default 1
  --copiers N            copies at a time, default 2
  --readers N            default 1
  --grain BYTES          unit of every write and copy, default 512
  --seed N               default 1
  --max-copy BYTES       longest copy, default 256 KiB
Offsets and lengths are bytes, multiples of the grain. Exit status: 0 when all was right, 1 when a sector was wrong
or an operation failed, 2 on bad options.
";

/// What the command line says.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The disk.
    pub(crate) disk: PathBuf,
    /// First sector of the source.
    pub(crate) source: u64,
    /// First sector of the destination.
    pub(crate) destination: u64,
    /// Sectors of each.
    pub(crate) sectors: usize,
    /// The copy command, in words.
    pub(crate) copy: Vec<String>,
    /// How many copies run.
    pub(crate) copies: u64,
    /// The longest time for them.
    pub(crate) time: Duration,
    /// Threads that write the source.
    pub(crate) source_writers: usize,
    /// Threads that write the destination.
    pub(crate) destination_writers: usize,
    /// Threads that copy.
    pub(crate) copiers: usize,
    /// Threads that read both.
    pub(crate) readers: usize,
    /// Sectors of which every write and copy is a multiple.
    pub(crate) grain: usize,
    /// Of all choices.
    pub(crate) seed: u64,
    /// Sectors of the longest copy.
    pub(crate) max_copy: usize,
}

impl Options {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let (mut disk, mut copy, mut source, mut destination) = (None, Vec::new(), None, None);
        let mut numbers: [(&str, u64); 9] = [
            ("--copies", 20),
            ("--seconds", 60),
            ("--source-writers", 2),
            ("--destination-writers", 1),
            ("--copiers", 2),
            ("--readers", 1),
            ("--grain", SECTOR as u64),
            ("--seed", 1),
            ("--max-copy", 256 << 10),
        ];
        for pair in arguments.chunks(2) {
            let [option, value] = pair else { bail!("`{}` lacks its value", pair[0]) };
            match option.as_str() {
                "--disk" => disk = Some(PathBuf::from(value)),
                "--copy" => copy = value.split_whitespace().map(str::to_owned).collect(),
                "--source" => {
                    let (offset, length) = value.split_once('+').context("--source is OFFSET+LENGTH")?;
                    source = Some((number(offset)?, number(length)?));
                }
                "--destination" => destination = Some(number(value)?),
                _ => {
                    let known = numbers.iter_mut().find(|(name, _)| name == option);
                    known.with_context(|| format!("`{option}` is no option"))?.1 = number(value)?;
                }
            }
        }
        let [copies, seconds, source_writers, destination_writers, copiers, readers, grain, seed, max_copy] =
            numbers.map(|(_, value)| value);
        let (source, length) = source.context("--source is missing")?;
        let destination = destination.context("--destination is missing")?;
        let sector = SECTOR as u64;
        for value in [source, length, destination, max_copy] {
            if grain == 0 || !grain.is_multiple_of(sector) || !value.is_multiple_of(grain) {
                bail!("{value} is no multiple of the grain, {grain} bytes");
            }
        }
        if copy.is_empty() || length == 0 || max_copy == 0 || source.abs_diff(destination) < length {
            bail!("a copy command and two ranges that do not overlap are needed");
        }
        Ok(Self {
            disk: disk.context("--disk is missing")?,
            source: source / sector,
            destination: destination / sector,
            sectors: usize::try_from(length / sector)?,
            copy,
            copies,
            time: Duration::from_secs(seconds),
            source_writers: usize::try_from(source_writers)?,
            destination_writers: usize::try_from(destination_writers)?,
            copiers: usize::try_from(copiers)?,
            readers: usize::try_from(readers)?,
            grain: usize::try_from(grain / sector)?,
            seed,
            max_copy: usize::try_from(max_copy / sector)?,
        })
    }
}

fn number(text: &str) -> Result<u64> {
    text.parse().with_context(|| format!("`{text}` is no number"))
}
