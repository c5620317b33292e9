//! The three limits of a copy command, swept one at a time.

use super::outcome::{Axis, Model, Origin, Outcome, Plot, Point, Scale, Series};
use super::params::{Kind, Param, Params};
use super::{Experiment, LINK_MBIT, MODE, ROUNDS, RTT_US, SEED, SIMULATED, mbit, rounds};
use crate::pools::VOLUME;
use crate::rounds::Spread;
use crate::sim::{Engine, Fabric, Measured, Work, World};
use emulation::timing::profile;
use emulation::{Bytes, Nanos};
use indicatif::ProgressBar;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "limits",
    about: "MSSRL, MCL and MSRC: what tight limits cost",
    needs: SIMULATED,
    params: &[
        Param {
            name: "extent_kib",
            about: "extents of the file that is copied, in KiB: a power of two",
            kind: Kind::Number { min: 4, max: 2048 },
            default: "256",
        },
        Param {
            name: "mib",
            about: "the file, in MiB",
            kind: Kind::Number { min: 1, max: 2048 },
            default: "128",
        },
        Param {
            name: "depth",
            about: "commands under way",
            kind: Kind::Number { min: 1, max: 256 },
            default: "4",
        },
        LINK_MBIT,
        RTT_US,
        MODE,
        SEED,
        ROUNDS,
    ],
    run,
};

/// The limits of a command.
#[derive(Clone, Copy)]
struct Limit {
    segment: Bytes,
    bytes: Bytes,
    segments: u64,
}

/// As `ublk add` has them.
const USUAL: Limit = Limit { segment: Bytes::mib(16), bytes: Bytes::mib(128), segments: 128 };

/// A limit with its label, its unit and the values that it takes.
type Sweep = (&'static str, &'static str, &'static str, Vec<(f64, Limit)>);

fn measure(params: &Params, limit: Limit, seed: u64) -> Result<(Measured, World), String> {
    let block = Bytes(Bytes::kib(params.number("extent_kib")).0.min(limit.segment.0).min(limit.bytes.0));
    let total = Bytes::mib(params.number("mib"));
    let ranges = (limit.bytes.0 / block.0).clamp(1, limit.segments).min(total.0 / block.0).max(1);
    let work = Work { block, ranges, depth: params.number("depth"), total, seed };
    let mut limits = work.limits();
    limits.copy_mode = params.copy_mode("mode");
    // The disk refuses what passes them: a command that is too long fails the run.
    limits.copy_max_segment_bytes = limit.segment;
    limits.copy_max_bytes = limit.bytes;
    limits.copy_max_segments = u32::try_from(limit.segments).expect("at most 256");
    let mut world = World::new(&[limits]);
    world.set_timing(&profile::named("tlc-ssd").expect("a profile").timing());
    world.set_fabric(Fabric::new(mbit(params.number("link_mbit")), Nanos(params.number("rtt_us") * 1000)));
    Ok((work.run(&mut world, Engine::Offload)?, world))
}

fn run(params: &Params, bar: &ProgressBar) -> Result<Outcome, String> {
    let extent = params.number("extent_kib");
    if !extent.is_power_of_two() {
        return Err(format!("extent_kib={extent}: must be a power of two"));
    }
    let kib = |n: u64| Bytes::kib(n);
    let powers = |from: u32, to: u32| (from..=to).map(|power| 1u64 << power);
    let sweeps: [Sweep; 3] = [
        (
            "mssrl",
            "MSSRL, the length of a segment",
            "KiB",
            powers(2, 14).map(|n| (n as f64, Limit { segment: kib(n), ..USUAL })).collect(),
        ),
        (
            "mcl",
            "MCL, the length of a command",
            "KiB",
            powers(2, 17).map(|n| (n as f64, Limit { bytes: kib(n), ..USUAL })).collect(),
        ),
        (
            "msrc",
            "MSRC + 1, the segments of a command",
            "",
            powers(0, 8).map(|n| (n as f64, Limit { segments: n, ..USUAL })).collect(),
        ),
    ];
    bar.set_length(sweeps.iter().map(|sweep| sweep.3.len() as u64).sum());
    let mut outcome = Outcome::default();
    for (id, label, unit, points) in sweeps {
        let mut series = Series::new("offload", Origin::Simulated);
        let mut commands = Series::new("commands for each MiB", Origin::Simulated);
        for (x, limit) in points {
            let mut row = Vec::new();
            let mut sent = Vec::new();
            for seed in rounds(params) {
                let (measured, mut world) = measure(params, limit, seed)?;
                outcome.requests += measured.requests;
                row.push(measured.throughput());
                sent.push(measured.requests as f64 / (measured.copied.0 as f64 / f64::from(1 << 20)));
                if seed == params.number("seed") && x == 64.0 {
                    let of = format!("{label} {x} {unit}");
                    outcome.value(&of, "blocks verified", measured.verified, "", Origin::Simulated);
                    outcome.ledger(&of, world.pool().ledger(VOLUME));
                }
            }
            series.points.push(Point::of(x, Spread::of(row)));
            commands.points.push(Point::of(x, Spread::of(sent)));
            bar.inc(1);
        }
        let plot = |id, title: String, y, series| Plot {
            id,
            title,
            x: Axis::new(label, unit, Scale::Log),
            y,
            categories: Vec::new(),
            series: vec![series],
        };
        let copied = Axis::new("copied", "MiB/s", Scale::Linear);
        outcome.plots.push(plot(id, format!("Copied data by {label}"), copied, series));
        let each = Axis::new("commands for each MiB", "", Scale::Log);
        let commands_id = match id {
            "mssrl" => "mssrl-commands",
            "mcl" => "mcl-commands",
            _ => "msrc-commands",
        };
        outcome.plots.push(plot(commands_id, format!("Commands by {label}"), each, commands));
    }
    outcome.model = Some(Model {
        about: "A fragmented file on the drive of profile tlc-ssd behind NVMe/TCP; all limits but the one that is swept \
                are those of `ublk add`. Nothing is set from a publication.",
        free: Vec::new(),
        set_from: "nothing",
        predicted: Vec::new(),
    });
    Ok(outcome)
}
