//! What a server that died costs: the map read back and the redo log replayed, by their size.

use super::outcome::{Axis, Origin, Outcome, Plot, Point, Scale, Series};
use super::params::{Kind, Param, Params};
use super::{Experiment, ROUNDS, SEED, rounds};
use crate::pools::{MAP_BLOCK, Random, VOLUME};
use crate::rounds::Spread;
use emulation::device::BlockDevice;
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::{Image, MapChange};
use emulation::{Bytes, Limits, Sectors};
use indicatif::ProgressBar;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "recovery-cost",
    about: "time to bring a pool back after its server died, by extents and redo records",
    needs: "measured in this process; needs memory (some 200 bytes an extent) and no root",
    params: &[
        Param {
            name: "extents",
            about: "extents of the map",
            kind: Kind::Numbers { min: 1, max: 10_000_000 },
            default: "1000,10000,100000",
        },
        Param {
            name: "records",
            about: "redo records since the last commit",
            kind: Kind::Numbers { min: 0, max: 10_000_000 },
            default: "0,1000,10000,100000",
        },
        SEED,
        ROUNDS,
    ],
    run,
};

/// Extents of one map block each, every second block, to places that are no neighbours; records that write blocks
/// among them anew.
fn image(extents: u64, records: u64, seed: u64) -> (MappedConfig, Image) {
    let blocks = 2 * extents;
    let capacity = Bytes(blocks * MAP_BLOCK.0);
    let physical = Bytes((2 * blocks + records) * MAP_BLOCK.0).whole_sectors();
    let map_block = MAP_BLOCK.whole_sectors();
    let config = MappedConfig {
        map_block,
        cap: physical,
        physical,
        cache: Cache::Volatile { held_max: physical },
        trim: false,
    };
    let change = |logical: u64, physical| MapChange {
        volume: VOLUME,
        logical: logical..logical + 1,
        physical: Some(physical),
    };
    let entries = (0..extents).map(|at| change(2 * at, 2 * (extents - 1 - at))).collect();
    let mut random = Random::new(seed);
    let records =
        (0..records).map(|at| (at + 1, change(2 * random.below(extents), 2 * blocks + at))).collect();
    let volumes = vec![(VOLUME, Limits::new(capacity.whole_sectors(), Sectors(1), map_block))];
    (config, Image { volumes, entries, records, ..Image::default() })
}

fn run(params: &Params, bar: &ProgressBar) -> Result<Outcome, String> {
    let (extents, records) = (params.numbers("extents"), params.numbers("records"));
    bar.set_length((extents.len() * records.len()) as u64);
    let mut time = Plot {
        id: "time",
        title: "Time until the pool is back".to_string(),
        x: Axis::new("extents of the map", "", Scale::Log),
        y: Axis::new("processor time", "ms", Scale::Log),
        categories: Vec::new(),
        series: Vec::new(),
    };
    let mut outcome = Outcome::default();
    for records in &records {
        let mut series = Series::new(format!("{records} redo records"), Origin::Measured);
        for extents in &extents {
            let mut row = Vec::new();
            for seed in rounds(params) {
                let (config, image) = image(*extents, *records, seed);
                let begun = crate::report::cpu();
                let device = Mapped::recover(config, &image).map_err(|error| error.to_string())?;
                row.push((crate::report::cpu() - begun) * 1e3);
                if device.usage().extents != *extents {
                    return Err(format!("{} extents are back of {extents}", device.usage().extents));
                }
            }
            let spread = Spread::of(row);
            let of = format!("{extents} extents, {records} records");
            outcome.value(&of, "time", format!("{:.3}", spread.median), "ms", Origin::Measured);
            series.points.push(Point::of(*extents as f64, spread));
            bar.inc(1);
        }
        time.series.push(series);
    }
    outcome.plots = vec![time];
    outcome.notes.push(
        "The map and the log in memory; reading them from a file comes on top. It is the time of the one thread that does \
         it, by the processor's clock."
            .to_string(),
    );
    Ok(outcome)
}
