//! `ublk import` and `ublk export`: between a raw image and a volume of a file of type `file`.

use super::Failure;
use crate::cli::{ExportArgs, ImportArgs};
use crate::config::{PoolConfig, PoolType};
use crate::options::AddOptions;
use crate::server::Offline;
use emulation::Bytes;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The configuration of the pool in a file.
fn pool(path: &Path) -> Result<PoolConfig, Failure> {
    let options =
        AddOptions { kind: Some(PoolType::File), file: Some(path.to_path_buf()), ..AddOptions::default() };
    Ok(options.new_pool(Bytes(0))?)
}

pub(super) fn import(args: &ImportArgs) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("{}: {error}", args.image.display()));
    let mut image = File::open(&args.image).map_err(failed)?;
    let len = image.seek(SeekFrom::End(0)).map_err(failed)?;
    let pool = pool(&args.path)?;
    if len == 0 || !len.is_multiple_of(pool.map_block.0) {
        let why = format!("{} has {len} bytes: not a multiple of {}", args.image.display(), pool.map_block);
        return Err(Failure::failed(why).hint("lengthen it with truncate(1)"));
    }
    let volume = Offline::open(&pool, args.name.clone(), Some(Bytes(len)))?;
    let mut written = 0;
    for start in (0..len).step_by(Offline::CHUNK as usize) {
        let mut data = vec![0; Offline::CHUNK.min(len - start) as usize];
        image.read_exact_at(&mut data, start).map_err(failed)?;
        if data.iter().any(|byte| *byte != 0) {
            written += data.len() as u64;
            volume.write(start, data)?;
        }
    }
    volume.close()?;
    Ok(format!("{} imported, {} of it not zero\n", Bytes(len), Bytes(written)))
}

pub(super) fn export(args: &ExportArgs) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("{}: {error}", args.image.display()));
    if !args.path.exists() {
        return Err(Failure::failed(format!("{} does not exist", args.path.display())));
    }
    let pool = pool(&args.path)?;
    let image = File::options().write(true).create_new(true).open(&args.image).map_err(failed)?;
    let volume = Offline::open(&pool, args.name.clone(), None).inspect_err(|_| {
        // Made just now, for nothing.
        drop(std::fs::remove_file(&args.image));
    })?;
    image.set_len(volume.size().0).map_err(failed)?;
    let mut written = 0;
    for range in volume.mapped()? {
        for start in range.clone().step_by(Offline::CHUNK as usize) {
            let end = range.end.min(start + Offline::CHUNK);
            image.write_all_at(&volume.read(start..end)?, start).map_err(failed)?;
            written += end - start;
        }
    }
    image.sync_all().map_err(failed)?;
    let size = volume.size();
    volume.close()?;
    Ok(format!("{size} exported, {} of it mapped\n", Bytes(written)))
}
