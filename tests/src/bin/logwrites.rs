//! Work whose every flush is known, and the check of a disk against it; see `tests::logwrites`.
//!
//! - `logwrites work DISK BLOCKS FIRST LAST ACKS DEVICE`: changes blocks and flushes them, in the first round all of them;
//!   writes what is flushed to ACKS before, and after it tells the log of the dm-log-writes DEVICE `ackROUND`, or prints `ack ROUND`
//!   where DEVICE is `-`
//! - `logwrites flushes LOG`: prints the number of flushes in a log
//! - `logwrites replay LOG FROM TO DISK`: does again what the log has from its flush FROM to its flush TO; prints the last
//!   round that was acknowledged by then
//! - `logwrites verify DISK BLOCKS ACKS ROUND`: every block holds what it may when this round was acknowledged

use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::Write;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::process::Command;
use tests::logwrites::{Acknowledged, Action, read, until_flush};

const BLOCK: usize = 4096;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["work", disk, blocks, first, last, acks, device] => {
            work(disk, blocks.parse()?, first.parse()?..=last.parse()?, acks, device)
        }
        ["flushes", log] => {
            let entries = read(&File::open(log)?).context(log.to_string())?;
            println!("{}", entries.iter().filter(|entry| entry.flush).count());
            Ok(())
        }
        ["replay", log, from, to, disk] => replay(log, from.parse()?, to.parse()?, disk),
        ["verify", disk, blocks, acks, round] => verify(disk, blocks.parse()?, acks, round.parse()?),
        _ => bail!("usage: logwrites work|flushes|replay|verify ARGUMENT..."),
    }
}

/// What a block holds in a version; version 0: zeroes.
fn filled(block: u64, version: u64) -> Vec<u8> {
    let word = |at: u64| match version {
        0 => 0,
        _ => (block << 32 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at,
    };
    (0..BLOCK as u64 / 8).flat_map(|at| word(at).to_le_bytes()).collect()
}

fn work(disk: &str, blocks: u64, rounds: RangeInclusive<u64>, acks: &str, device: &str) -> Result<()> {
    let disk = File::options().read(true).write(true).open(disk).context(disk.to_string())?;
    let mut acks = File::options().append(true).create(true).open(acks).context(acks.to_string())?;
    let mut seed = *rounds.start();
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for round in rounds.clone() {
        let changed: Vec<u64> = match round == *rounds.start() {
            true => (0..blocks).collect(),
            false => (0..1 + draw(12)).map(|_| draw(blocks)).collect(),
        };
        let lines: String = changed.iter().map(|block| format!("{round} {block} {round}\n")).collect();
        // Said before it is done: what reaches the disk without a flush is known too.
        acks.write_all(lines.as_bytes())?;
        if rustix::termios::isatty(&acks) {
            rustix::termios::tcdrain(&acks)?;
        }
        for block in changed {
            disk.write_all_at(&filled(block, round), block * BLOCK as u64)?;
        }
        disk.sync_all()?;
        if device == "-" {
            println!("ack {round}");
            continue;
        }
        let status = Command::new("dmsetup")
            .args(["message", device, "0", "mark", &format!("ack{round}")])
            .status()?;
        ensure!(status.success(), "dmsetup: {status}");
    }
    Ok(())
}

fn replay(log: &str, from: usize, to: usize, disk: &str) -> Result<()> {
    let file = File::open(log).context(log.to_string())?;
    let entries = read(&file).context(log.to_string())?;
    let disk = File::options().write(true).open(disk).context(disk.to_string())?;
    let all = until_flush(&entries, to);
    let done = until_flush(&entries, from).len();
    for entry in &all[done..] {
        match &entry.action {
            Action::Write { to, at, len } => {
                let mut data = vec![0; usize::try_from(*len)?];
                file.read_exact_at(&mut data, *at)?;
                disk.write_all_at(&data, *to)?;
            }
            // A device may keep what it need not.
            Action::Discard { .. } | Action::Mark(_) => {}
        }
    }
    disk.sync_all()?;
    let marks = all.iter().rev().filter_map(|entry| match &entry.action {
        Action::Mark(text) => text.strip_prefix("ack")?.parse::<u64>().ok(),
        Action::Write { .. } | Action::Discard { .. } => None,
    });
    println!("{}", marks.max().unwrap_or(0));
    Ok(())
}

fn verify(disk: &str, blocks: u64, acks: &str, round: usize) -> Result<()> {
    let disk = File::open(disk).context(disk.to_string())?;
    let text = std::fs::read_to_string(acks).context(acks.to_string())?;
    let log = Acknowledged::parse(&text).map_err(anyhow::Error::msg)?;
    let mut data = vec![0; BLOCK];
    for block in 0..blocks {
        disk.read_exact_at(&mut data, block * BLOCK as u64)?;
        let may = log.may_hold(block, round);
        if !may.iter().any(|version| data == filled(block, *version)) {
            bail!("block {block} holds none of the versions {may:?} after round {round}");
        }
    }
    Ok(())
}
