//! Writes blocks of a disk and keeps what was acknowledged in its own memory, outside the disk; reads them all the
//! time and at the end. A write that failed may have happened or not; one that was acknowledged has, and no read may
//! say otherwise, whatever becomes of the server meanwhile.
//!
//! `acked DISK BLOCKS THREADS STOP`: until the file STOP is there. Prints what it counted.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const BLOCK: usize = 4096;

/// Memory at an address that direct I/O takes.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new() -> Self {
        let memory = vec![0; 2 * BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        Self { memory, start }
    }

    fn block(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + BLOCK]
    }

    fn fill(&mut self, block: u64, version: u64) {
        for (at, word) in (0u64..).zip(self.block().chunks_exact_mut(8)) {
            word.copy_from_slice(&word_of(block, version, at).to_le_bytes());
        }
    }

    /// The version of a block that it holds, if it holds one and nothing else.
    fn version(&mut self, block: u64) -> Result<u64, String> {
        let words: Vec<u64> = self
            .block()
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
            .collect();
        let version = words[1];
        match (0u64..).zip(&words).find(|(at, word)| **word != word_of(block, version, *at)) {
            None => Ok(version),
            Some((at, word)) => Err(format!("word {at} is {word:#x}, word 1 is {version:#x}")),
        }
    }
}

/// Version 0 is zeroes, what the disk begins with.
fn word_of(block: u64, version: u64, at: u64) -> u64 {
    match (version, at) {
        (0, _) => 0,
        (_, 1) => version,
        _ => (block << 40 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at << 3,
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    acknowledged: u64,
    /// Sent after that, and failed: there or not.
    perhaps: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    acknowledged: u64,
    failed: u64,
    read: u64,
}

struct Thread {
    disk: File,
    /// The blocks from `first` on.
    first: u64,
    blocks: Vec<Block>,
    counts: Counts,
    buffer: Buffer,
    seed: u64,
}

impl Thread {
    fn draw(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.seed >> 33) as usize % below
    }

    fn place(&self, index: usize) -> (u64, u64) {
        let block = self.first + index as u64;
        (block, block * BLOCK as u64)
    }

    fn write(&mut self, index: usize) {
        let (block, at) = self.place(index);
        let version = self.blocks[index].perhaps.unwrap_or(self.blocks[index].acknowledged) + 1;
        self.buffer.fill(block, version);
        match self.disk.write_all_at(self.buffer.block(), at) {
            Ok(()) => {
                self.blocks[index] = Block { acknowledged: version, perhaps: None };
                self.counts.acknowledged += 1;
            }
            Err(_) => {
                // Several that failed: any of them. The lowest that can still be is kept.
                self.blocks[index].perhaps = Some(version);
                self.counts.failed += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn read(&mut self, index: usize) -> Result<bool, String> {
        let (block, at) = self.place(index);
        if self.disk.read_exact_at(self.buffer.block(), at).is_err() {
            std::thread::sleep(Duration::from_millis(20));
            return Ok(false);
        }
        let version = self.buffer.version(block).map_err(|error| format!("block {block}: {error}"))?;
        let known = self.blocks[index];
        let newest = known.perhaps.unwrap_or(known.acknowledged);
        if version < known.acknowledged || version > newest {
            return Err(format!("block {block} holds version {version}, acknowledged is {known:?}"));
        }
        self.counts.read += 1;
        Ok(true)
    }

    fn run(&mut self, stop: &Path) -> Result<Counts, String> {
        while !stop.exists() {
            for _ in 0..16 {
                let index = self.draw(self.blocks.len());
                match self.draw(4) {
                    0 => drop(self.read(index)?),
                    _ => self.write(index),
                }
            }
        }
        for index in 0..self.blocks.len() {
            let mut tries = 0..200;
            while !self.read(index)? {
                tries.next().ok_or_else(|| format!("block {index} cannot be read at the end"))?;
            }
        }
        Ok(self.counts)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [disk, blocks, threads, stop] = &arguments[..] else {
        bail!("usage: acked DISK BLOCKS THREADS STOP");
    };
    let (blocks, threads): (u64, u64) = (blocks.parse()?, threads.parse()?);
    let each = blocks / threads.max(1);
    let stop = PathBuf::from(stop);
    let mut running = Vec::new();
    for number in 0..threads {
        let disk = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(disk)
            .with_context(|| disk.clone())?;
        let mut thread = Thread {
            disk,
            first: number * each,
            blocks: vec![Block::default(); usize::try_from(each)?],
            counts: Counts::default(),
            buffer: Buffer::new(),
            seed: number + 1,
        };
        let stop = stop.clone();
        running.push(std::thread::spawn(move || thread.run(&stop)));
    }
    let mut total = Counts::default();
    for thread in running {
        match thread.join().expect("a thread does not panic") {
            Ok(counts) => {
                total.acknowledged += counts.acknowledged;
                total.failed += counts.failed;
                total.read += counts.read;
            }
            Err(error) => bail!("{error}"),
        }
    }
    println!("acknowledged {} failed {} read {}", total.acknowledged, total.failed, total.read);
    Ok(())
}
