//! The targets of device mapper that copy with kcopyd, with offload and without.

use super::outcome::{Axis, Model, Origin, Outcome, Plot, Point, Scale, Series};
use super::params::{Kind, Param, Params};
use super::{Experiment, MEDIA, MODE, ROUNDS, RTT_US, SEED, SIMULATED, mbit, rounds};
use crate::pools::{self, Random};
use crate::rounds::Spread;
use crate::sim::{Fabric, World, driven, world::map_blocks};
use emulation::host::kcopyd::users::{
    Cache, DirtyBlock, Driven, Exception, Hydration, Merge, Migration, Mirror, Snapshot, SnapshotWrite, Thin,
    ThinWrite, User, Writecache,
};
use emulation::host::kcopyd::{Config, Kcopyd};
use emulation::timing::{Rate, Timing, profile};
use emulation::{Bytes, Instant, Limits, Nanos, Sector, SectorRange, Sectors, VolumeId};
use indicatif::ProgressBar;

const USERS: [&str; 7] = ["mirror", "clone", "snapshot", "merge", "cache", "thin", "writecache"];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "kcopyd",
    about: "targets of device mapper that copy with kcopyd: what offload saves each of them",
    needs: SIMULATED,
    params: &[
        Param {
            name: "users",
            about: "the targets",
            kind: Kind::Choices(&USERS),
            default: "mirror,clone,snapshot,merge,cache,thin,writecache",
        },
        Param {
            name: "chunk_kib",
            about: "their region, chunk or block, in KiB: a power of two",
            kind: Kind::Number { min: 32, max: 2048 },
            default: "64",
        },
        Param {
            name: "mib",
            about: "copied by each target, in MiB",
            kind: Kind::Number { min: 1, max: 2048 },
            default: "64",
        },
        Param {
            name: "link_mbit",
            about: "the link to the disk, in Mbit/s each way",
            kind: Kind::Number { min: 10, max: 800_000 },
            default: "25000",
        },
        Param { default: "50", ..RTT_US },
        MODE,
        Param { kind: Kind::Choice(&["none", "tlc-ssd", "zns", "hdd"]), ..MEDIA },
        SEED,
        ROUNDS,
    ],
    run,
};

const A: VolumeId = VolumeId(0);
const B: VolumeId = VolumeId(1);
const C: VolumeId = VolumeId(2);

/// Where contents have to be that were elsewhere: from volume and sector, to volume and sector, sectors.
type Moved = Vec<(VolumeId, u64, VolumeId, u64, u64)>;

/// One run of one target.
struct Run {
    chunk: Sectors,
    count: u64,
    order: Vec<u64>,
    offload: bool,
    world: World,
}

/// What it gave.
struct Numbers {
    elapsed: Nanos,
    wire: u64,
    requests: u64,
    copied: u64,
    verified: u64,
}

impl Run {
    fn new(params: &Params, offload: bool, seed: u64) -> Self {
        let chunk = Bytes::kib(params.number("chunk_kib"));
        let count = (Bytes::mib(params.number("mib")).0 / chunk.0).max(1);
        let mut order: Vec<u64> = (0..count).collect();
        let mut random = Random::new(seed);
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mode = params.copy_mode("mode");
        // Room for metadata of a cow device beside the chunks: a record of 16 bytes for each.
        let metadata = count.div_ceil(chunk.0 / 16) + 4;
        let limits = |_| -> Limits { pools::limits(Bytes((2 * count + metadata) * chunk.0), mode) };
        let mut world = World::new(&[0, 1, 2].map(limits));
        let timing = match profile::named(params.text("media")) {
            Some(profile) => profile.timing(),
            None => Timing { bandwidth: Some(Rate::mb(1_000_000)), ..Timing::default() },
        };
        world.set_timing(&timing);
        let round_trip = Nanos(params.number("rtt_us") * 1000);
        world.set_fabric(Fabric::new(mbit(params.number("link_mbit")), round_trip));
        Self { chunk: chunk.whole_sectors(), count, order, offload, world }
    }

    fn drive<U: User>(&mut self, user: U) -> Result<(Instant, Driven<U>), String> {
        let segment = Bytes::mib(16).whole_sectors();
        let config = Config { offload: self.offload.then_some(segment), ..Config::default() };
        let mut driven = Driven::new(user, Kcopyd::new(config), 1 << 32);
        let end = driven::run(&mut self.world, &mut driven)?;
        Ok((end, driven))
    }

    fn part(&self, chunk: u64) -> SectorRange {
        // The first map block of a chunk: what makes a target copy the rest.
        SectorRange { start: Sector(chunk * self.chunk.0), len: Sectors(8) }
    }

    fn user(&mut self, name: &str) -> Result<(Instant, Moved), String> {
        let (chunk, count) = (self.chunk, self.count);
        let size = Sectors(count * chunk.0);
        let whole = |to, place: &dyn Fn(u64) -> u64| -> Moved {
            (0..count).map(|at| (A, at * chunk.0, to, place(at) * chunk.0, chunk.0)).collect()
        };
        match name {
            "mirror" => {
                let (end, _) = self.drive(Mirror::new(vec![A, B, C], size, chunk, true))?;
                Ok((end, [whole(B, &|at| at), whole(C, &|at| at)].concat()))
            }
            "clone" => {
                let mut user = Hydration::new(A, B, size, chunk);
                (user.threshold, user.batch) = (16, 4);
                Ok((self.drive(user)?.0, whole(B, &|at| at)))
            }
            "snapshot" => {
                let write = |at: &u64| SnapshotWrite { to_snapshot: false, range: self.part(*at) };
                let writes = self.order.iter().map(write).collect();
                let (end, driven) = self.drive(Snapshot::new(A, B, chunk, writes))?;
                let place = |at| driven.user.place(at).expect("every chunk was written to");
                Ok((end, whole(B, &place)))
            }
            "merge" => {
                let exceptions = (0..count).map(|at| Exception { old: at, new: at }).collect();
                let (end, _) = self.drive(Merge::new(B, A, chunk, exceptions))?;
                // The records that were cleared went to the start of the cow device.
                Ok((end, whole(B, &|at| at).into_iter().skip(1).collect()))
            }
            "cache" => {
                let migrate = |(at, origin): (u64, &u64)| Migration::Writeback { cache: at, origin: *origin };
                let migrations = (0..).zip(&self.order).map(migrate).collect();
                let order = self.order.clone();
                let (end, _) = self.drive(Cache::new(B, A, chunk, migrations))?;
                Ok((end, whole(B, &|at| order[at as usize])))
            }
            "thin" => {
                let write = |at: &u64| ThinWrite { range: self.part(*at), shared: Some(*at) };
                let writes = self.order.iter().map(write).collect();
                let order = self.order.clone();
                let (end, _) = self.drive(Thin::new(A, chunk, count, writes))?;
                // Blocks are given in the order of the writes; the first map block of each was written then.
                let moved = (0..)
                    .zip(order)
                    .map(|(at, from)| (A, from * chunk.0 + 8, A, (count + at) * chunk.0 + 8, chunk.0 - 8));
                Ok((end, moved.collect()))
            }
            _ => {
                let dirty = |(at, origin): (u64, &u64)| DirtyBlock { origin: *origin, cache: at };
                let dirty = (0..).zip(&self.order).map(dirty).collect();
                let order = self.order.clone();
                let (end, _) = self.drive(Writecache::new(A, B, chunk, dirty))?;
                Ok((end, whole(B, &|at| order[at as usize])))
            }
        }
    }

    /// Compares what was moved with what was there first; the map blocks that were compared.
    fn verify(&mut self, name: &str, moved: &Moved) -> Result<u64, String> {
        let whole = SectorRange { start: Sector(0), len: self.world.capacity(A) };
        let volumes = [A, B, C].map(|volume| self.world.contents(volume, whole));
        let mut verified = 0;
        for (from, source, to, start, len) in moved {
            let block = |sector: u64| map_blocks(Sectors(sector).bytes());
            let (at, first, count) = (block(*start), block(*source), block(*len));
            let found = &volumes[to.index()][at as usize..(at + count) as usize];
            let right = (first..).zip(found).all(|(block, value)| *value == World::fresh(*from, block));
            if !right {
                return Err(format!("{name}: sector {start} of {to:?} is not what was copied to it"));
            }
            verified += count;
        }
        Ok(verified)
    }

    fn run(mut self, name: &str) -> Result<Numbers, String> {
        let begun = self.world.now();
        let (end, moved) = self.user(name)?;
        let (wire, requests) = (self.world.wire().total(), self.world.requests());
        let verified = self.verify(name, &moved)?;
        let copied = moved.iter().map(|moved| Sectors(moved.4).bytes().0).sum();
        Ok(Numbers { elapsed: Nanos(end.0 - begun.0), wire, requests, copied, verified })
    }
}

fn run(params: &Params, bar: &ProgressBar) -> Result<Outcome, String> {
    let kib = params.number("chunk_kib");
    if !kib.is_power_of_two() {
        return Err(format!("chunk_kib={kib}: must be a power of two"));
    }
    let users = params.choices("users");
    bar.set_length(users.len() as u64);
    let mut outcome = Outcome::default();
    let plot = |id, title: &str, label: &str, unit: &str| Plot {
        id,
        title: title.to_string(),
        x: Axis::new("target", "", Scale::Categories),
        y: Axis::new(label, unit, Scale::Linear),
        categories: users.iter().map(|name| (*name).to_string()).collect(),
        series: ["host copy", "offload"].map(|name| Series::new(name, Origin::Simulated)).into(),
    };
    let mut plots = [
        plot("wire", "What the link carries", "on the wire for each byte copied", "B"),
        plot("requests", "Requests to the disk", "requests for each chunk", ""),
        plot("throughput", "Copied data", "copied", "MiB/s"),
    ];
    for (x, name) in users.iter().enumerate() {
        for (index, offload) in [false, true].into_iter().enumerate() {
            let mut rows = [Vec::new(), Vec::new(), Vec::new()];
            for seed in rounds(params) {
                let run = Run::new(params, offload, seed);
                let chunks = run.count as f64;
                let result = run.run(name)?;
                outcome.requests += result.requests;
                let mib = result.copied as f64 / f64::from(1 << 20);
                let numbers = [
                    result.wire as f64 / result.copied as f64,
                    result.requests as f64 / chunks,
                    mib / (result.elapsed.0 as f64 / 1e9),
                ];
                rows.iter_mut().zip(numbers).for_each(|(row, number)| row.push(number));
                if seed == params.number("seed") {
                    let of = format!("{name}, {}", if offload { "offload" } else { "host copy" });
                    outcome.value(&of, "blocks verified", result.verified, "", Origin::Simulated);
                    outcome.value(&of, "requests", result.requests, "", Origin::Simulated);
                }
            }
            for (plot, row) in plots.iter_mut().zip(rows) {
                plot.series[index].points.push(Point::of(x as f64, Spread::of(row)));
            }
        }
        bar.inc(1);
    }
    outcome.plots = plots.into();
    outcome.model = Some(Model {
        about: "dm-kcopyd of Linux 7.3.4 and its users as state machines, over the link and the media that are set. \
                Nothing is set from a publication: there is none of kcopyd with offload that says what it ran on.",
        free: Vec::new(),
        set_from: "nothing",
        predicted: Vec::new(),
    });
    outcome
        .notes
        .push("A mirror copies to two legs: each byte copied is counted for each of them.".to_string());
    Ok(outcome)
}
