//! Garbage collection on zones: write amplification by policy and spare, and what its moves cost the link.

use super::outcome::{Axis, Model, Origin, Outcome, Plot, Point, Scale, Series};
use super::params::{Kind, Param, Params};
use super::{Experiment, ROUNDS, SEED, SIMULATED, rounds};
use crate::pools::{self, Driver, MAP_BLOCK, Random, VOLUME};
use crate::rounds::Spread;
use emulation::{Bytes, CopyMode, RequestId, Sector};
use indicatif::ProgressBar;
use zoned::gc::{
    Clearing, Client, ClientConfig, Generator, Geometry, Layout, Ledger, Log, Movement, Policy, Untouched,
    Workload, model,
};

const POLICIES: [&str; 5] = ["greedy", "cost-benefit", "fifo", "d-choices", "windowed"];
const MOVEMENTS: [&str; 3] = ["host", "copy", "remap"];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "gc",
    about: "garbage collection on zones: policy, movement and over-provisioning",
    needs: SIMULATED,
    params: &[
        Param {
            name: "policies",
            about: "how the zone to collect is chosen",
            kind: Kind::Choices(&POLICIES),
            default: "greedy,cost-benefit,fifo",
        },
        Param {
            name: "movements",
            about: "who moves the pages",
            kind: Kind::Choices(&MOVEMENTS),
            default: "host,copy,remap",
        },
        Param {
            name: "over_provisioning",
            about: "all pages over those of the user, less one, in percent",
            kind: Kind::Numbers { min: 5, max: 100 },
            default: "7,15,28,50",
        },
        Param {
            name: "workload",
            about: "uniform writes, or 90 % of them to 10 % of the pages",
            kind: Kind::Choice(&["uniform", "hot-cold"]),
            default: "uniform",
        },
        Param {
            name: "zones",
            about: "zones of 64 pages",
            kind: Kind::Number { min: 256, max: 65_536 },
            default: "1024",
        },
        SEED,
        ROUNDS,
    ],
    run,
};

/// Pages of a zone.
const ZONE_PAGES: u32 = 64;
/// Pages written before the measurement and in it, as multiples of all pages.
const WARM: u64 = 8;
const MEASURED: u64 = 2;
/// Zones of a run through a pool, where every move is a request.
const POOL_ZONES: u32 = 256;

fn policy(name: &str) -> Policy {
    match name {
        "cost-benefit" => Policy::CostBenefit,
        "fifo" => Policy::Fifo,
        "d-choices" => Policy::DChoices { d: 10 },
        "windowed" => Policy::WindowedGreedy { window: 64 },
        _ => Policy::Greedy,
    }
}

/// The pages of a run, in order: all of them, then as the workload draws.
struct Pages {
    generator: Generator,
    random: Random,
    fill: std::ops::Range<u32>,
}

impl Pages {
    fn new(workload: Workload, geometry: &Geometry, seed: u64) -> Result<Self, String> {
        let generator = Generator::new(workload, geometry.pages).map_err(|error| error.to_string())?;
        Ok(Self { generator, random: Random::new(seed), fill: 0..geometry.pages })
    }

    fn next(&mut self) -> u32 {
        self.fill.next().unwrap_or_else(|| self.generator.next(&mut self.random))
    }
}

fn alone(geometry: Geometry, policy: Policy, workload: Workload, seed: u64) -> Result<f64, String> {
    let mut log = Log::new(geometry, policy, Layout::OneLog).map_err(|error| error.to_string())?;
    let mut pages = Pages::new(workload, &geometry, seed)?;
    let mut write = |count: u64| -> Ledger {
        for _ in 0..count {
            let page = pages.next();
            log.write(page, &mut pages.random, &mut Untouched);
        }
        *log.ledger()
    };
    let before = write(WARM * geometry.total());
    let after = write(MEASURED * geometry.total());
    after.since(&before).write_amplification().ok_or_else(|| "nothing was written".to_string())
}

/// Link bytes for each byte of the user, write amplification, and requests, through a pool.
fn moved(
    geometry: Geometry,
    movement: &str,
    workload: Workload,
    seed: u64,
) -> Result<(f64, f64, u64), String> {
    let zone = Bytes(MAP_BLOCK.0 * u64::from(ZONE_PAGES));
    let mode = if movement == "copy" { CopyMode::Memcpy } else { CopyMode::Remap };
    let mut pool = pools::mapped(Bytes(zone.0 * u64::from(geometry.zones)), mode);
    let config = ClientConfig {
        volume: VOLUME,
        geometry,
        policy: Policy::Greedy,
        layout: Layout::OneLog,
        page: MAP_BLOCK.whole_sectors(),
        start: Sector(0),
        zone_size: zone.whole_sectors(),
        movement: match movement {
            "host" => Movement::Host { buffers: 2 },
            "copy" => Movement::Copy,
            _ => Movement::Remap,
        },
        clearing: Clearing::Discard,
        depth: 64,
        write_pages: 1,
        first_id: RequestId(1),
    };
    let limits = pool.limits(VOLUME).expect("the volume").clone();
    let mut client = Client::new(config, &limits).map_err(|error| error.to_string())?;
    let mut driver = Driver::default();
    let mut pages = Pages::new(workload, &geometry, seed)?;
    let mut requests = 0;
    let mut write = |count: u64| -> Result<_, String> {
        for _ in 0..count {
            let page = pages.next();
            client.write(page, &mut pages.random);
            while let Some(command) = client.emit() {
                requests += 1;
                let id = command.request.id;
                let completion = driver.request(&mut pool, command.request);
                client.complete(id, &completion).map_err(|failure| format!("{failure:?}"))?;
            }
        }
        Ok(*client.traffic())
    };
    let before = write(WARM / 2 * geometry.total())?;
    let traffic = write(MEASURED / 2 * geometry.total())?.since(&before);
    let amplification = traffic.write_amplification().ok_or("nothing was written")?;
    Ok((traffic.link().0 as f64 / traffic.user_written.0 as f64, amplification, requests))
}

fn run(params: &Params, bar: &ProgressBar) -> Result<Outcome, String> {
    let spares = params.numbers("over_provisioning");
    let (policies, movements) = (params.choices("policies"), params.choices("movements"));
    let zones = u32::try_from(params.number("zones")).expect("checked");
    let workload = match params.text("workload") {
        "uniform" => Workload::Uniform,
        _ => Workload::HotCold { pages: 10, writes: 90 },
    };
    bar.set_length((spares.len() * (policies.len() + movements.len()) + 1) as u64);
    let percent = |spare: &u64| u32::try_from(*spare).expect("checked");
    let geometry = |spare: &u64| Geometry::with_over_provisioning(zones, ZONE_PAGES, percent(spare));
    let small = |spare: &u64| Geometry::with_over_provisioning(POOL_ZONES, ZONE_PAGES, percent(spare));
    let plot = |id, title: &str, label: &str| Plot {
        id,
        title: title.to_string(),
        x: Axis::new("over-provisioning, T/U - 1", "%", Scale::Linear),
        y: Axis::new(label, "", Scale::Linear),
        categories: Vec::new(),
        series: Vec::new(),
    };
    let mut amplification = plot("waf", "Write amplification", "written for each page of the user");
    let mut outcome = Outcome::default();
    for name in &policies {
        let mut series = Series::new(policy(name).to_string(), Origin::Simulated);
        for spare in &spares {
            let run = |seed| alone(geometry(spare), policy(name), workload, seed);
            let row: Vec<_> = rounds(params).map(run).collect::<Result<_, _>>()?;
            series.points.push(Point::of(*spare as f64, Spread::of(row)));
            bar.inc(1);
        }
        amplification.series.push(series);
    }
    if workload == Workload::Uniform {
        let mut fifo = Series::new("FIFO, formula", Origin::Published);
        let mut greedy = Series::new("greedy, formula", Origin::Published);
        for spare in &spares {
            let ratio = geometry(spare).ratio();
            fifo.points.push(Point::new(*spare as f64, model::fifo(ratio)));
            greedy.points.push(Point::new(*spare as f64, model::greedy(ratio, ZONE_PAGES)));
        }
        amplification.series.extend([fifo, greedy]);
    }
    let mut link = plot("link", "What the link carries, greedy", "on the link for each byte of the user");
    let mut ceiling = Series::new("ceiling 2A - 1", Origin::Simulated);
    for name in &movements {
        let mut series = Series::new(format!("moves by {name}"), Origin::Simulated);
        for spare in &spares {
            let mut row = Vec::new();
            let mut of_ceiling = Vec::new();
            for seed in rounds(params) {
                let (bytes, a, requests) = moved(small(spare), name, workload, seed)?;
                outcome.requests += requests;
                row.push(bytes);
                of_ceiling.push(2.0 * a - 1.0);
            }
            series.points.push(Point::of(*spare as f64, Spread::of(row)));
            if *name == movements[0] {
                ceiling.points.push(Point::of(*spare as f64, Spread::of(of_ceiling)));
            }
            bar.inc(1);
        }
        link.series.push(series);
    }
    link.series.push(ceiling);
    for (series, point) in link.series.iter().flat_map(|s| s.points.iter().map(move |p| (s, p))) {
        let of = format!("{}, {} % spare", series.name, point.x);
        outcome.value(
            of,
            "link bytes for each byte of the user",
            format!("{:.3}", point.y),
            "",
            series.origin,
        );
    }
    outcome.plots = vec![amplification, link];
    let greedy = |zone_pages, percent| {
        let geometry = Geometry::with_over_provisioning(zones.max(2048), zone_pages, percent);
        alone(geometry, Policy::Greedy, Workload::Uniform, 1)
    };
    outcome.model = Some(Model {
        about: "A log on zones with the policies as they are written down. Nothing is set from a publication.",
        free: Vec::new(),
        set_from: "nothing",
        predicted: vec![("xiang-kurkoski-30".to_string(), greedy(256, 30)?)],
    });
    bar.inc(1);
    outcome.notes.push(
        "A host that moves pages reads and writes each over the link: 2A - 1 bytes for one of the user. A disk that \
         moves them carries 1 and the commands. What is moved is checked by the clause tests of garbage collection."
            .to_string(),
    );
    Ok(outcome)
}
