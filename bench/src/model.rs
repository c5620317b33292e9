//! What the models of device mapper's targets say that a disk will be sent: one request a line, to be held against what a
//! real disk was sent (`ublk trace`).

use crate::failure::Failure;
use crate::pools;
use crate::sim::{World, driven};
use clap::ValueEnum;
use emulation::host::kcopyd::users::{
    Driven, Hydration, Mirror, Snapshot, SnapshotWrite, Thin, ThinWrite, User,
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
    /// dm-snapshot, a part of each chunk of the origin written in turn
    Snapshot,
    /// dm-thin, a part of each block of a volume written after a snapshot of it was taken
    Thin,
}

/// The options of `model`.
#[derive(clap::Args, Debug)]
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
}

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
    let requests = match options.target {
        Target::Clone => {
            let mut clone = Hydration::new(A, B, size, chunk);
            (clone.batch, clone.threshold) = (options.batch, options.threshold);
            all(options, clone)
        }
        Target::Mirror => all(options, Mirror::new(vec![A, B], size, chunk, true)),
        Target::Snapshot => {
            let write = |at| SnapshotWrite { to_snapshot: false, range: part(at) };
            all(options, Snapshot::new(A, B, chunk, (0..count).map(write).collect()))
        }
        Target::Thin => {
            let write = |at| ThinWrite { range: part(at), shared: Some(at) };
            all(options, Thin::new(A, chunk, count, (0..count).map(write).collect()))
        }
    };
    let requests = requests.map_err(Failure::failed)?;
    let mut text = String::new();
    for request in requests {
        let (name, range) = match request.op {
            Op::Read(range) => ("read", range),
            Op::Write(range) => ("write", range),
            Op::WriteZeroes(range) => ("write_zeroes", range),
            _ => continue,
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} {} {} {}", request.volume.0, range.start.0, range.len.0);
    }
    Ok(text)
}

fn all<U: User>(options: &ModelOptions, user: U) -> Result<Vec<Request>, String> {
    let size = Bytes(4 * Bytes::mib(options.mib).0 + Bytes::mib(1).0);
    let mut world = World::new(&[(); 2].map(|()| pools::limits(size, CopyMode::Memcpy)));
    let mut driven = Driven::new(user, Kcopyd::new(Config::default()), 1 << 32);
    let mut requests = Vec::new();
    driven::watched(&mut world, &mut driven, &mut |request| requests.push(request.clone()))?;
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_is_read_and_written_region_by_region() {
        let options = ModelOptions { target: Target::Clone, mib: 1, chunk_kib: 512, batch: 1, threshold: 1 };
        let text = run(&options).unwrap();
        assert_eq!(text, "read 0 0 1024\nwrite 1 0 1024\nread 0 1024 1024\nwrite 1 1024 1024\n");
        let wrong = ModelOptions { chunk_kib: 48, ..options };
        assert_eq!(run(&wrong).unwrap_err().exit, crate::failure::Exit::Usage);
    }
}
