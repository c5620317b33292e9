//! `dmz-format` writes the metadata of an empty target `zoned` of device mapper, version 1, to a zoned block device: what
//! `dmzadm --format` of dm-zoned-tools does, which few distributions have.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: dmz-format DEVICE ZONE-SECTORS ZONES CHUNKS
The first two zones take the metadata and have to be conventional; no zone may hold data. CHUNKS zones of the others can be
mapped, two are reserved for reclaim.
";

const BLOCK: usize = 4096;
/// `DMZB`.
const MAGIC: u32 = 0x445a_4244;
const VERSION: u32 = 1;
const GENERATION: u64 = 1;
const RESERVED: u32 = 2;
/// Entries of a block of the mapping table, two numbers of four bytes each; all ones: not mapped.
const ENTRIES: u64 = 512;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dmz-format: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let [device, numbers @ ..] = arguments else { bail!("{USAGE}") };
    let numbers: Vec<u64> = numbers.iter().map(|text| text.parse().context(USAGE)).collect::<Result<_>>()?;
    let [zone_sectors, zones, chunks] = numbers[..] else { bail!("{USAGE}") };
    let zone_bytes = zone_sectors * 512;
    // One block for the bits of a zone, up to as many blocks.
    if zone_bytes > (8 * BLOCK * BLOCK) as u64 {
        bail!("zones of {zone_sectors} sectors are too long for this program");
    }
    let maps = chunks.div_ceil(ENTRIES);
    let blocks = 1 + maps + zones;
    if blocks * BLOCK as u64 > zone_bytes {
        bail!("{blocks} blocks of metadata do not fit into a zone of {zone_sectors} sectors");
    }
    let file = OpenOptions::new()
        .write(true)
        .open(Path::new(device))
        .with_context(|| format!("cannot open {device}"))?;
    for first in [0, zone_bytes] {
        let mut set = vec![0; usize::try_from(blocks)? * BLOCK];
        let zone_block = first / BLOCK as u64;
        set[..BLOCK].copy_from_slice(&super_block(zone_block, blocks, chunks, maps, zones)?);
        set[BLOCK..][..usize::try_from(maps)? * BLOCK].fill(0xff);
        file.write_all_at(&set, first).with_context(|| format!("cannot write to {device}"))?;
    }
    file.sync_all().with_context(|| format!("cannot write to {device}"))
}

/// `struct dmz_super` of Linux, `drivers/md/dm-zoned-metadata.c`.
fn super_block(place: u64, blocks: u64, chunks: u64, maps: u64, bitmaps: u64) -> Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC.to_le_bytes());
    put(4, &VERSION.to_le_bytes());
    put(8, &GENERATION.to_le_bytes());
    put(16, &place.to_le_bytes());
    put(24, &u32::try_from(blocks)?.to_le_bytes());
    put(28, &RESERVED.to_le_bytes());
    put(32, &u32::try_from(chunks)?.to_le_bytes());
    put(36, &u32::try_from(maps)?.to_le_bytes());
    put(40, &u32::try_from(bitmaps)?.to_le_bytes());
    // Begun with the generation, over the block with zeroes here.
    let crc = crc32(u32::try_from(GENERATION)?, &block);
    block[44..48].copy_from_slice(&crc.to_le_bytes());
    Ok(block)
}

/// The kernel's `crc32_le`: the polynomial of Ethernet, least bit first, not inverted.
fn crc32(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_ethernet_without_its_inversions() {
        assert_eq!(!crc32(!0, b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn the_metadata_have_to_fit_into_a_zone() {
        let run = |words: &str| run(&words.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let error = run("/dev/null 128 32 24").unwrap_err().to_string();
        assert_eq!(error, "34 blocks of metadata do not fit into a zone of 128 sectors");
        assert!(run("/dev/null 128").unwrap_err().to_string().starts_with("usage: dmz-format"));
    }
}
