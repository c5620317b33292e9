//! `ublk info`.

use super::{Failure, json, locate};
use crate::cli::InfoArgs;
use crate::control::api::{GeometryView, NvmeView, PoolView};
use crate::options::AddOptions;
use crate::state::State;
use std::fmt::Write;

pub(super) fn run(args: &InfoArgs) -> Result<String, Failure> {
    let served = locate::served(&State::open()?, &args.disk.target)?;
    let disk = served.disk()?;
    if args.json {
        return Ok(json(&disk));
    }
    let pool: PoolView = served.client.call("GET", "/v1/pool")?;
    if args.toml {
        let options = AddOptions::of(&pool.config, &disk.config);
        return toml::to_string(&options).map_err(|error| Failure::failed(error.to_string()));
    }
    let mut out = String::new();
    let zones = disk.zones.as_ref().map(zones).unwrap_or_default();
    let nvme = disk.nvme.as_ref().map(nvme).unwrap_or_default();
    let doors = copy_doors(disk.id);
    let path = disk.path.map_or("none".to_string(), |path| path.display().to_string());
    let backing = match &pool.config.path {
        Some(path) => format!("{} {}", disk.kind.name(), path.display()),
        None => disk.kind.name().to_string(),
    };
    for (key, value) in [
        ("name", disk.name),
        ("block device", path),
        ("size", disk.size.to_string()),
        ("logical block", disk.logical_block_size.to_string()),
        ("physical block", disk.physical_block_size.to_string()),
        ("queues", disk.queues.to_string()),
        ("depth", disk.depth.to_string()),
        ("read-only", if disk.read_only { "yes" } else { "no" }.to_string()),
        ("cache", disk.cache.name().to_string()),
        ("copy", emulation::CopyMode::from(disk.limits.copy).name().to_string()),
        ("copy-max-bytes", disk.limits.copy_max_bytes.to_string()),
        ("copy-max-segment-bytes", disk.limits.copy_max_segment_bytes.to_string()),
        ("copy-max-segments", disk.limits.copy_max_segments.to_string()),
        ("copy doors", doors.join(" ")),
        ("pool", format!("{} ({backing}), disks: {}", disk.pool, pool.disks.join(" "))),
        ("pool memory", pool.config.memory.to_string()),
        ("pool in use", emulation::Bytes(pool.usage.mapped_bytes).to_string()),
        ("extents", pool.usage.extents.to_string()),
        ("server pid", disk.pid.to_string()),
        ("version", pool.version),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{key:<24}{value}");
    }
    for (key, value) in zones.into_iter().chain(nvme) {
        let _ = writeln!(out, "{key:<24}{value}");
    }
    Ok(out)
}

/// The lines of a zoned disk.
fn zones(zones: &GeometryView) -> Vec<(&'static str, String)> {
    let limit = |most: u32| if most == 0 { "no limit".to_string() } else { most.to_string() };
    let size = |bytes: u64| emulation::Bytes(bytes).to_string();
    vec![
        ("zones", format!("{}, {} of them conventional", zones.count, zones.conventional)),
        ("zone-size", size(zones.size)),
        ("zone-capacity", size(zones.capacity)),
        ("max-open", limit(zones.max_open)),
        ("max-active", limit(zones.max_active)),
        ("max-append", size(zones.max_append)),
    ]
}

/// The lines of a disk that is served over NVMe/TCP.
fn nvme(nvme: &NvmeView) -> Vec<(&'static str, String)> {
    let discovery = nvme.discovery.map_or("at the same address".to_string(), |address| address.to_string());
    let hosts = nvme.hosts.iter().map(|host| format!("{} ({} queues)", host.nqn, host.queues));
    vec![
        ("nvme-tcp", nvme.listen.to_string()),
        ("discovery", discovery),
        ("nvme subsystem", nvme.nqn.clone()),
        ("nvme namespace", format!("{}, uuid {}", nvme.nsid, nvme.uuid)),
        ("nvme hosts", hosts.collect::<Vec<_>>().join(" ")),
        ("nvme bytes", format!("{} received, {} sent", nvme.received_bytes, nvme.sent_bytes)),
    ]
}

/// The doors that take copies to a disk: the native one when the kernel offers the operation on its block device.
pub(super) fn copy_doors(id: Option<u32>) -> Vec<&'static str> {
    let max =
        id.and_then(|id| std::fs::read_to_string(format!("/sys/block/ublkb{id}/queue/copy_max_bytes")).ok());
    match max.and_then(|max| max.trim().parse::<u64>().ok()) {
        Some(1..) => vec!["api", "native"],
        Some(0) | None => vec!["api"],
    }
}
