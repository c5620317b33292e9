//! Where offload loses: many small ranges in a command that the disk does one after the other.

use super::outcome::{Axis, Model, Origin, Outcome, Plot, Point, Scale, Series};
use super::params::{Kind, Param, Params};
use super::{Experiment, LINK_MBIT, MEDIA, ROUNDS, SEED, SIMULATED, mbit, rounds};
use crate::pools::VOLUME;
use crate::rounds::Spread;
use crate::sim::{Engine, Fabric, Work, World};
use emulation::timing::profile;
use emulation::{Bytes, Nanos};
use indicatif::ProgressBar;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "many-small-ranges",
    about: "many small ranges in a command, where offload loses to a host with a deep queue",
    needs: SIMULATED,
    params: &[
        Param {
            name: "block_kib",
            about: "length of a range, in KiB",
            kind: Kind::Numbers { min: 4, max: 2048 },
            default: "4,8,16,32,64,128,256,512",
        },
        Param {
            name: "ranges",
            about: "ranges of a command",
            kind: Kind::Numbers { min: 1, max: 256 },
            default: "1,8,32,128",
        },
        Param {
            name: "depth",
            about: "ranges under way, in commands or read and written by the host",
            kind: Kind::Number { min: 1, max: 1024 },
            default: "32",
        },
        Param {
            name: "mode",
            about: "how the disk copies",
            kind: Kind::Choice(&["emulate", "memcpy", "remap"]),
            default: "emulate",
        },
        MEDIA,
        Param { default: "100000", ..LINK_MBIT },
        Param {
            name: "mib",
            about: "copied for each point, in MiB",
            kind: Kind::Number { min: 1, max: 1024 },
            default: "16",
        },
        SEED,
        ROUNDS,
    ],
    run,
};

fn run(params: &Params, bar: &ProgressBar) -> Result<Outcome, String> {
    let blocks = params.numbers("block_kib");
    if let Some(odd) = blocks.iter().find(|kib| !kib.is_multiple_of(4)) {
        return Err(format!("block_kib={odd}: must be a multiple of 4"));
    }
    let ranges = params.numbers("ranges");
    bar.set_length((ranges.len() * blocks.len()) as u64);
    let mode = params.copy_mode("mode");
    let plot = |id, title: &str, y| Plot {
        id,
        title: title.to_string(),
        x: Axis::new("range", "KiB", Scale::Log),
        y,
        categories: Vec::new(),
        series: Vec::new(),
    };
    let ratio_axis = Axis::new("throughput of offload over that of the host", "", Scale::Log);
    let mut ratio = plot("ratio", "Offload against host copy", ratio_axis);
    let mut copied = plot("throughput", "Copied data", Axis::new("copied", "MiB/s", Scale::Log));
    let mut even = Series::new("even", Origin::Simulated);
    even.points = blocks.iter().map(|kib| Point::new(*kib as f64, 1.0)).collect();
    let mut outcome = Outcome::default();
    for count in &ranges {
        let mut of_ratio = Series::new(format!("{count} ranges a command"), Origin::Simulated);
        let mut of_copied = of_ratio.clone();
        let mut of_host = Series::new("host copy", Origin::Simulated);
        for kib in &blocks {
            let mut rows = [Vec::new(), Vec::new(), Vec::new()];
            for seed in rounds(params) {
                let mut one = |engine, depth| -> Result<_, String> {
                    let total = Bytes(Bytes::mib(params.number("mib")).0.max(4 * count * kib * 1024));
                    let work = Work { block: Bytes::kib(*kib), ranges: *count, depth, total, seed };
                    let mut limits = work.limits();
                    limits.copy_mode = mode;
                    let mut world = World::new(&[limits]);
                    world.set_timing(&profile::named(params.text("media")).expect("checked").timing());
                    world.set_fabric(Fabric::new(mbit(params.number("link_mbit")), Nanos(20_000)));
                    let measured = work.run(&mut world, engine)?;
                    outcome.requests += measured.requests;
                    if seed == params.number("seed") && Some(kib) == blocks.first() {
                        let of = format!("{}, {count} ranges of {kib} KiB", engine.name());
                        outcome.value(&of, "blocks verified", measured.verified, "", Origin::Simulated);
                        outcome.ledger(&of, world.pool().ledger(VOLUME));
                    }
                    Ok(measured.throughput())
                };
                let depth = params.number("depth");
                let host = one(Engine::Host, depth)?;
                let offload = one(Engine::Offload, (depth / count).max(1))?;
                let numbers = [offload / host, offload, host];
                rows.iter_mut().zip(numbers).for_each(|(row, number)| row.push(number));
            }
            let [a, b, c] = rows.map(|row| Point::of(*kib as f64, Spread::of(row)));
            of_ratio.points.push(a);
            of_copied.points.push(b);
            of_host.points.push(c);
            bar.inc(1);
        }
        ratio.series.push(of_ratio);
        if copied.series.is_empty() {
            copied.series.push(of_host);
        }
        copied.series.push(of_copied);
    }
    ratio.series.push(even);
    outcome.plots = vec![ratio, copied];
    outcome.model = Some(Model {
        about: "As many ranges under way in both: the host reads and writes them side by side, a command's ranges follow \
                each other. The drive is that of a profile. Nothing is set from a publication.",
        free: Vec::new(),
        set_from: "nothing",
        predicted: Vec::new(),
    });
    Ok(outcome)
}
