//! `ublk check`: what is in a file of type `file`, verified without changing anything.

use super::{Failure, json};
use crate::cli::CheckArgs;
use crate::server;
use crate::store::load::{self, Loaded};
use crate::store::pool_file::{PoolFile, PoolFileError};
use crate::store::redo::Owner;
use crate::store::shared;
use crate::units::size;
use emulation::mapped::Mapped;
use emulation::{BlockDevice, Bytes};
use serde::Serialize;
use std::fmt::Write;
use zoned::Zoned;

#[derive(Debug, Serialize)]
struct Report {
    identifier: String,
    #[serde(with = "size")]
    map_block: Bytes,
    volumes: Vec<Volume>,
    extents: u64,
    mapped_bytes: u64,
    held_bytes: u64,
    /// How the last server ended.
    ended: String,
}

#[derive(Debug, Serialize)]
struct Volume {
    name: String,
    #[serde(with = "size")]
    size: Bytes,
    #[serde(with = "size")]
    logical_block_size: Bytes,
}

pub(super) fn run(args: &CheckArgs) -> Result<String, Failure> {
    let report = verify(args)?;
    if args.json {
        return Ok(json(report));
    }
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "pool {}: map block {}, {}", report.identifier, report.map_block, report.ended);
    for volume in &report.volumes {
        let _ = writeln!(
            out,
            "volume {}: {}, logical block {}",
            volume.name, volume.size, volume.logical_block_size
        );
    }
    let mapped = Bytes(report.mapped_bytes);
    let _ = writeln!(out, "{} extents, {mapped} in use: no contradiction found", report.extents);
    Ok(out)
}

fn verify(args: &CheckArgs) -> Result<Report, Failure> {
    let path = &args.path;
    let damaged =
        |why: String| Failure::failed(format!("{}: {why}", path.display())).hint("nothing was changed");
    let file = PoolFile::open(path, false).map_err(file_failure)?;
    let head = file.header().map_err(file_failure)?;
    let meta = file.meta(true).map_err(file_failure)?;
    let owner = Owner::new(&head.identifier).map_err(|error| damaged(error.to_string()))?;
    let Loaded { contents, image, ended, .. } = load::load(&meta, &shared::path(&head.identifier), &owner)
        .map_err(|error| damaged(error.to_string()))?;
    let config = server::file_shape(head.map_block, file.room());
    let map = Mapped::recover(config, &image).map_err(|error| damaged(error.to_string()))?;
    file.check_end(map.store_end().bytes()).map_err(file_failure)?;
    let device = Zoned::recover(Box::new(map), false, &image)
        .map_err(|zone| damaged(format!("volume {} has no such zone: {zone:?}", zone.volume.0)))?;
    device.check().map_err(damaged)?;
    let usage = device.usage();
    let volume = |row: crate::store::meta::VolumeRow| Volume {
        name: row.name,
        size: row.size,
        logical_block_size: row.logical_block_size,
    };
    Ok(Report {
        identifier: head.identifier.clone(),
        map_block: head.map_block,
        volumes: contents.volumes.into_iter().map(|(_, row)| volume(row)).collect(),
        extents: usage.extents,
        mapped_bytes: usage.mapped.bytes().0,
        held_bytes: usage.held.bytes().0,
        ended: ended.to_string(),
    })
}

fn file_failure(error: PoolFileError) -> Failure {
    Failure::from_lines(super::Exit::Failed, &error.to_string())
}
