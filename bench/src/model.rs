//! What the models of device mapper's targets say that a disk will be sent: one request a line, to be held against what a
//! real disk was sent (`ublk trace`).

use crate::failure::Failure;
use crate::pools;
use crate::sim::{World, driven};
use clap::ValueEnum;
use emulation::host::kcopyd::users::{
    Driven, Hydration, Mirror, Reclaim, Snapshot, SnapshotWrite, Thin, ThinWrite, User,
};
use emulation::host::kcopyd::{Config, Kcopyd};
use emulation::{Bytes, CopyMode, Op, Request, Sector, SectorRange, Sectors, VolumeId};
use std::fmt::Write;

/// A target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// dm-clone, hydrated in the background
    Clone,
    /// dm-mirror, resynchronised
    Mirror,
    /// dm-snapshot, the first 4 KiB of each chunk of the origin written in turn
    Snapshot,
    /// dm-thin, the first 4 KiB of each block of a volume written after a snapshot of it was taken
    Thin,
    /// dm-zoned, a random zone reclaimed into an empty sequential one
    Zoned,
}

/// The options of `model`.
#[derive(clap::Args, Clone, Debug)]
pub struct ModelOptions {
    /// The target
    pub target: Target,
    /// The size of the device, in MiB
    #[arg(long, default_value = "16", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub mib: u64,
    /// Its region, chunk or block, in KiB: a power of two
    #[arg(long, default_value = "64", value_parser = clap::value_parser!(u64).range(4..=1024))]
    pub chunk_kib: u64,
    /// hydration_batch_size of dm-clone
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub batch: u64,
    /// hydration_threshold of dm-clone
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threshold: u64,
    /// Writes to dm-snapshot or dm-thin under way at a time
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub depth: u64,
    /// The valid extents of the zone that dm-zoned reclaims, from its start: FIRST+COUNT in sectors, in order
    #[arg(long = "extent", value_name = "FIRST+COUNT", value_parser = extent, required_if_eq("target", "zoned"))]
    pub extents: Vec<SectorRange>,
    /// The first sector of that zone
    #[arg(long, default_value = "0", value_name = "SECTOR")]
    pub from: u64,
    /// The first sector of the zone that takes them
    #[arg(long, default_value = "32768", value_name = "SECTOR")]
    pub to: u64,
}

fn extent(text: &str) -> Result<SectorRange, String> {
    let numbers =
        text.split_once('+').and_then(|(start, len)| Some((start.parse().ok()?, len.parse().ok()?)));
    match numbers {
        Some((start, len)) if len > 0 && [start, len].iter().all(|n| n % BLOCK == 0 && *n < DISK.0) => {
            Ok(SectorRange { start: Sector(start), len: Sectors(len) })
        }
        _ => Err(format!("must be FIRST+COUNT in sectors, multiples of {BLOCK} below {}", DISK.0)),
    }
}

/// The disk that the zones of dm-zoned lie on.
const DISK: Sectors = Bytes::mib(1024).whole_sectors();
/// The block of dm-zoned, in sectors.
const BLOCK: u64 = 8;

const A: VolumeId = VolumeId(0);
const B: VolumeId = VolumeId(1);

/// Prints operation, disk, first sector and sectors of each request, in the order in which they are sent. Disk 0 is the
/// source, origin, first leg or data device; disk 1 the destination, cow device or second leg.
///
/// # Errors
/// A chunk that is no power of two, or a model that does not end.
pub fn run(options: &ModelOptions) -> Result<String, Failure> {
    if !options.chunk_kib.is_power_of_two() {
        return Err(Failure::usage(format!("--chunk-kib {}: must be a power of two", options.chunk_kib)));
    }
    let chunk = Bytes::kib(options.chunk_kib).whole_sectors();
    let size = Bytes::mib(options.mib).whole_sectors();
    let count = size.0 / chunk.0;
    let part = |at: u64| SectorRange { start: Sector(at * chunk.0), len: Sectors(8.min(chunk.0)) };
    // Metadata, and what is copied within a disk, lie behind the device.
    let disk = Bytes(4 * Bytes::mib(options.mib).0 + Bytes::mib(1).0);
    let depth = usize::try_from(options.depth).expect("at most 1024");
    let requests = match options.target {
        Target::Clone => {
            let mut clone = Hydration::new(A, B, size, chunk);
            (clone.batch, clone.threshold) = (options.batch, options.threshold);
            all(disk, clone)
        }
        Target::Mirror => all(disk, Mirror::new(vec![A, B], size, chunk, true)),
        Target::Snapshot => {
            let write = |at| SnapshotWrite { to_snapshot: false, range: part(at) };
            let mut snapshot = Snapshot::new(A, B, chunk, (0..count).map(write).collect());
            snapshot.depth = depth;
            all(disk, snapshot)
        }
        Target::Thin => {
            let write = |at| ThinWrite { range: part(at), shared: Some(at) };
            let mut thin = Thin::new(A, chunk, count, (0..count).map(write).collect());
            thin.depth = depth;
            all(disk, thin)
        }
        Target::Zoned => {
            let in_order = options.extents.windows(2).all(|pair| pair[0].end() <= pair[1].start);
            let len = options.extents.last().map_or(0, |extent| extent.end().0);
            let fits = |start: u64| start.is_multiple_of(BLOCK) && start < DISK.0 && start + len <= DISK.0;
            if !in_order || !fits(options.from) || !fits(options.to) {
                let why = format!("extents must follow each other, in zones within {} sectors", DISK.0);
                return Err(Failure::usage(why));
            }
            let zones = (Sector(options.from), Sector(options.to));
            let mut reclaim = Reclaim::new(A, zones, true, Sectors::ZERO, options.extents.clone());
            // Zoned disks of this project have none.
            reclaim.write_zeroes = false;
            all(DISK.bytes(), reclaim)
        }
    };
    let requests = requests.map_err(Failure::failed)?;
    let mut text = String::new();
    for request in requests {
        let (name, range) = match request.op {
            Op::Read(range) => ("read", range),
            Op::Write(range) => ("write", range),
            _ => continue,
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} {} {} {}", request.volume.0, range.start.0, range.len.0);
    }
    Ok(text)
}

fn all<U: User>(size: Bytes, user: U) -> Result<Vec<Request>, String> {
    let mut world = World::new(&[(); 2].map(|()| pools::limits(size, CopyMode::Memcpy)));
    let mut driven = Driven::new(user, Kcopyd::new(Config::default()), 1 << 32);
    let mut requests = Vec::new();
    driven::watched(&mut world, &mut driven, &mut |request| requests.push(request.clone()))?;
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLONE: ModelOptions = ModelOptions {
        target: Target::Clone,
        mib: 1,
        chunk_kib: 512,
        batch: 1,
        threshold: 1,
        depth: 1,
        extents: Vec::new(),
        from: 0,
        to: 32768,
    };

    #[test]
    fn a_clone_is_read_and_written_region_by_region() {
        let text = run(&CLONE).unwrap();
        assert_eq!(text, "read 0 0 1024\nwrite 1 0 1024\nread 0 1024 1024\nwrite 1 1024 1024\n");
        let wrong = ModelOptions { chunk_kib: 48, ..CLONE };
        assert_eq!(run(&wrong).unwrap_err().exit, crate::failure::Exit::Usage);
    }

    #[test]
    fn writes_under_way_together_share_a_write_of_records() {
        let records = |depth| {
            let text = run(&ModelOptions { target: Target::Snapshot, mib: 2, depth, ..CLONE }).unwrap();
            text.lines().filter(|line| *line == "write 1 1024 1024").count()
        };
        assert_eq!([records(1), records(4)], [4, 1]);
    }

    #[test]
    fn a_zone_is_reclaimed_extent_by_extent() {
        let extents = ["0+16", "64+8"].map(|text| extent(text).unwrap()).to_vec();
        let zoned = ModelOptions { target: Target::Zoned, extents, from: 8192, ..CLONE };
        let expected =
            ["read 0 8192 16", "write 0 32768 16", "write 0 32784 48", "read 0 8256 8", "write 0 32832 8"];
        assert_eq!(run(&zoned).unwrap().lines().collect::<Vec<_>>(), expected);
        for text in ["1+8", "8", "8+0", "0+4294967296", "18446744073709551608+8"] {
            assert!(extent(text).is_err(), "{text}");
        }
        let mut wrong = ModelOptions { to: DISK.0 - 8, ..zoned };
        assert_eq!(run(&wrong).unwrap_err().exit, crate::failure::Exit::Usage);
        (wrong.to, wrong.extents) = (0, vec![extent("8+16").unwrap(), extent("16+8").unwrap()]);
        assert_eq!(run(&wrong).unwrap_err().exit, crate::failure::Exit::Usage);
    }
}
