//! A disk behind NVMe/TCP: host copy against copy commands, by block size and link.

use super::outcome::{Axis, Free, Latency, Model, Origin, Outcome, Plot, Point, Scale, Series};
use super::params::{Kind, Param, Params};
use super::{Experiment, ROUNDS, RTT_US, SEED, SIMULATED, mbit, rounds};
use crate::pools::VOLUME;
use crate::rounds::Spread;
use crate::sim::{Engine, Fabric, Measured, Order, Work, World};
use emulation::timing::{Rate, Timing};
use emulation::{Bytes, CopyMode, Nanos};
use indicatif::ProgressBar;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "fabrics",
    about: "copies on a disk behind NVMe/TCP, by block size and link",
    needs: SIMULATED,
    params: &[
        Param {
            name: "link_mbit",
            about: "the link, in Mbit/s each way",
            kind: Kind::Numbers { min: 10, max: 800_000 },
            default: "1000,100000",
        },
        RTT_US,
        Param {
            name: "block_kib",
            about: "length of a range, in KiB",
            kind: Kind::Numbers { min: 4, max: 2048 },
            default: "4,8,16,32,64,128,256,512,1024,2048",
        },
        Param {
            name: "ranges",
            about: "ranges of a copy command",
            kind: Kind::Number { min: 1, max: 256 },
            default: "1",
        },
        Param {
            name: "depth",
            about: "commands under way",
            kind: Kind::Number { min: 1, max: 1024 },
            default: "32",
        },
        Param {
            name: "target",
            about: "how the disk copies",
            kind: Kind::Choice(&["emulate", "memcpy", "remap"]),
            default: "emulate",
        },
        Param {
            name: "mib",
            about: "copied for each point, in MiB",
            kind: Kind::Number { min: 1, max: 4096 },
            default: "64",
        },
        SEED,
        ROUNDS,
    ],
    run,
};

/// The two free parameters, from one published point: over 100 Gbit/s, where the link is no limit, copies of 8 KiB
/// reached 794 MiB/s by the host and 933 MiB/s by commands. With a time `t` a command and a rate `b` of the disk, which
/// reads and writes every byte once in both: 2 t + 16 KiB / b = 8 KiB / 794 MiB/s and t + 16 KiB / b = 8 KiB / 933 MiB/s.
const COMMAND: Nanos = Nanos(1_466);
const DISK: Rate = Rate(2_371_800_000);
const SET_FROM: &str = "block copy offload, version 20 (May 2024), cover letter: NVMe/TCP over 100 Gbit/s, 8 KiB, \
     794 MiB/s without and 933 MiB/s with offload";

/// One setting.
#[derive(Clone, Copy)]
struct Setting {
    link_mbit: u64,
    round_trip: Nanos,
    mode: CopyMode,
    work: Work,
}

impl Setting {
    fn run(&self, engine: Engine) -> Result<(Measured, World), String> {
        let mut limits = self.work.limits();
        limits.copy_mode = self.mode;
        let mut world = World::new(&[limits]);
        world.set_timing(&Timing { bandwidth: Some(DISK), ..Timing::default() });
        world.set_fabric(Fabric::new(mbit(self.link_mbit), self.round_trip));
        world.set_order(Order::OneByOne(COMMAND));
        Ok((self.work.run(&mut world, engine)?, world))
    }

    /// The share of the link that the busier direction used, in percent.
    fn share(&self, measured: &Measured) -> f64 {
        let busier = measured.wire.up.max(measured.wire.down) as f64;
        100.0 * busier / (mbit(self.link_mbit).0 as f64 * measured.elapsed.0 as f64 / 1e9)
    }
}

/// The settings of other publications: name, link in Mbit/s, KiB a range, ranges.
const ELSEWHERE: [(&str, u64, u64, u64); 7] = [
    ("v20-1g-8k", 1_000, 8, 1),
    ("v20-1g-1m", 1_000, 1024, 1),
    ("v20-100g-8k", 100_000, 8, 1),
    ("v5-1g-2m-16", 1_000, 2048, 16),
    ("v5-100g-2m-16", 100_000, 2048, 16),
    ("v5-100g-8k-8", 100_000, 8, 8),
    ("v5-1g-8k-8", 1_000, 8, 8),
];

fn predictions(bar: &ProgressBar) -> Result<Vec<(String, f64)>, String> {
    let mut all = Vec::new();
    for (name, link_mbit, kib, ranges) in ELSEWHERE {
        let block = Bytes::kib(kib);
        let total = Bytes((64 * 1024 * 1024).max(block.0 * ranges * 8));
        let work = Work { block, ranges, depth: 32, total, seed: 1 };
        let setting = Setting { link_mbit, round_trip: Nanos(100_000), mode: CopyMode::Emulate, work };
        for (engine, what, share) in
            [(Engine::Host, "host", "host-net"), (Engine::Offload, "offload", "offload-net")]
        {
            let (measured, _) = setting.run(engine)?;
            all.push((format!("{name}-{what}"), measured.throughput()));
            all.push((format!("{name}-{share}"), setting.share(&measured)));
        }
        bar.inc(1);
    }
    Ok(all)
}

fn run(params: &Params, bar: &ProgressBar) -> Result<Outcome, String> {
    let blocks = params.numbers("block_kib");
    if let Some(odd) = blocks.iter().find(|kib| !kib.is_multiple_of(4)) {
        return Err(format!("block_kib={odd}: must be a multiple of 4"));
    }
    let links = params.numbers("link_mbit");
    bar.set_length((links.len() * blocks.len() + ELSEWHERE.len()) as u64);
    let mode = params.copy_mode("target");
    let axis = |label, unit| Axis::new(label, unit, Scale::Log);
    let plot = |id, title: &str, y| Plot {
        id,
        title: title.to_string(),
        x: axis("range", "KiB"),
        y,
        categories: Vec::new(),
        series: Vec::new(),
    };
    let mut throughput = plot("throughput", "Copied data", axis("copied", "MiB/s"));
    let mut wire = plot("wire", "What the link carries", axis("on the wire for each byte copied", "B"));
    let mut tail = plot("latency", "Latency", axis("99th percentile", "us"));
    let mut outcome = Outcome::default();
    for link_mbit in &links {
        for engine in [Engine::Host, Engine::Offload] {
            let name = format!("{}, {} Gbit/s", engine.name(), *link_mbit as f64 / 1000.0);
            let mut series = [(); 3].map(|()| Series::new(name.clone(), Origin::Simulated));
            for kib in &blocks {
                let mut rows = [Vec::new(), Vec::new(), Vec::new()];
                for seed in rounds(params) {
                    let work = Work {
                        block: Bytes::kib(*kib),
                        ranges: params.number("ranges"),
                        depth: params.number("depth"),
                        total: Bytes::mib(params.number("mib")),
                        seed,
                    };
                    let round_trip = Nanos(params.number("rtt_us") * 1000);
                    let setting = Setting { link_mbit: *link_mbit, round_trip, mode, work };
                    let (measured, mut world) = setting.run(engine)?;
                    outcome.requests += measured.requests;
                    let numbers =
                        [measured.throughput(), measured.wire_per_byte(), measured.latency_us(0.99)];
                    rows.iter_mut().zip(numbers).for_each(|(row, number)| row.push(number));
                    let first = seed == params.number("seed");
                    if first && (kib == &blocks[0] || Some(kib) == blocks.last()) {
                        let of = format!("{name}, {kib} KiB");
                        outcome.latencies.push(Latency::of(&of, Origin::Simulated, &measured.latency));
                        outcome.value(&of, "blocks verified", measured.verified, "", Origin::Simulated);
                        let share = format!("{:.2}", setting.share(&measured));
                        outcome.value(&of, "of the link used", share, "%", Origin::Simulated);
                        outcome.ledger(&of, world.pool().ledger(VOLUME));
                    }
                }
                for (series, row) in series.iter_mut().zip(rows) {
                    series.points.push(Point::of(*kib as f64, Spread::of(row)));
                }
                if engine == Engine::Host {
                    bar.inc(1);
                }
            }
            let [a, b, c] = series;
            throughput.series.push(a);
            wire.series.push(b);
            tail.series.push(c);
        }
    }
    outcome.plots = vec![throughput, wire, tail];
    outcome.model = Some(Model {
        about: "A link of two directions with the framing of NVMe/TCP, TCP and Ethernet; behind it a disk that does one \
                command after the other, each in a fixed time and the time of its bytes. An emulated copy reads and \
                writes every byte. No acknowledgements, losses, interrupts or processors of the host.",
        free: vec![
            Free { name: "time of a command", value: COMMAND.0 as f64 / 1e3, unit: "us" },
            Free { name: "rate of the disk", value: DISK.0 as f64 / 1e6, unit: "MB/s" },
        ],
        set_from: SET_FROM,
        predicted: predictions(bar)?,
    });
    outcome.notes.push(
        "Processor time of the host is not modelled: `ublk-bench copy` and `ublk copy` measure it on a disk."
            .to_string(),
    );
    Ok(outcome)
}
