//! The counters of a pool as Prometheus reads them.

use super::api::{ApiError, LatenessView, PoolView, Stats};
use crate::server::Server;
use std::fmt::Write;

/// `/metrics`.
pub(crate) fn render(server: &Server) -> Result<String, ApiError> {
    let mut disks = Vec::new();
    for disk in server.all() {
        // A disk may be deleted meanwhile.
        match server.stats(&disk.name, false) {
            Ok(stats) => disks.push((disk.name, disk.size.0, stats)),
            Err(error) if error.code == "no-disk" => {}
            Err(error) => return Err(error),
        }
    }
    Ok(text(&server.pool_view(), &disks))
}

/// Names hold letters, digits, `-`, `_` and `.` alone, so labels need no escapes.
fn text(pool: &PoolView, disks: &[(String, u64, Stats)]) -> String {
    let mut out = String::new();
    let name = &pool.config.name;
    head(&mut out, "ublk_disk_size_bytes", "gauge", "The size of a disk.");
    for (disk, size, _) in disks {
        line(&mut out, "ublk_disk_size_bytes", &format!("pool=\"{name}\",disk=\"{disk}\""), *size);
    }
    head(&mut out, "ublk_commands_total", "counter", "Requests begun, by operation.");
    for (disk, _, stats) in disks {
        for (op, count) in &stats.commands {
            let labels = format!("pool=\"{name}\",disk=\"{disk}\",op=\"{op}\"");
            line(&mut out, "ublk_commands_total", &labels, *count);
        }
    }
    let counters = disks.first().map(|(_, _, stats)| stats.counters.keys()).into_iter().flatten();
    for counter in counters {
        let metric = format!("ublk_{counter}_total");
        head(&mut out, &metric, "counter", "See the ledger in the manual.");
        for (disk, _, stats) in disks {
            let labels = format!("pool=\"{name}\",disk=\"{disk}\"");
            line(&mut out, &metric, &labels, stats.counter(counter));
        }
    }
    // One pool, one lateness: each of its disks shows it.
    let lateness = disks.iter().find_map(|(_, _, stats)| stats.lateness);
    if let Some(LatenessView { count, floor_ns, p50_ns, p99_ns, max_ns }) = lateness {
        for (metric, kind, help, value) in [
            ("ublk_lateness_count", "counter", "Plans that a timing gave an instant.", count),
            ("ublk_lateness_floor_nanoseconds", "gauge", "The least that one ended late.", floor_ns),
            ("ublk_lateness_p50_nanoseconds", "gauge", "Half ended no later.", p50_ns),
            ("ublk_lateness_p99_nanoseconds", "gauge", "99 of 100 ended no later.", p99_ns),
            ("ublk_lateness_max_nanoseconds", "gauge", "The most that one ended late.", max_ns),
        ] {
            head(&mut out, metric, kind, help);
            line(&mut out, metric, &format!("pool=\"{name}\""), value);
        }
    }
    let usage = pool.usage;
    for (metric, help, value) in [
        ("ublk_pool_cap_bytes", "The most that may be mapped and held back together.", usage.cap_bytes),
        ("ublk_pool_mapped_bytes", "Named by a map, each block once.", usage.mapped_bytes),
        ("ublk_pool_held_bytes", "Named by the durable image alone.", usage.held_bytes),
        ("ublk_pool_trimming_bytes", "Being given back.", usage.trimming_bytes),
        ("ublk_pool_extents", "Extents in the maps of all disks.", usage.extents),
        ("ublk_pool_shared_ranges", "Physical ranges with more than one owner.", usage.shared_ranges),
        ("ublk_pool_map_bytes", "Memory that the maps take.", usage.map_bytes),
    ] {
        head(&mut out, metric, "gauge", help);
        line(&mut out, metric, &format!("pool=\"{name}\""), value);
    }
    out
}

fn head(out: &mut String, metric: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = write!(out, "# HELP {metric} {help}\n# TYPE {metric} {kind}\n");
}

fn line(out: &mut String, metric: &str, labels: &str, value: u64) {
    let _ = writeln!(out, "{metric}{{{labels}}} {value}");
}
