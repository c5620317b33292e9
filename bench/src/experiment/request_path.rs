//! The request path of a copy in four designs, over the devices that lie between a caller and a disk.

use super::outcome::{Axis, Model, Origin, Outcome, Plot, Point, Scale, Series};
use super::params::{Kind, Param, Params};
use super::{Experiment, SIMULATED};
use crate::pools::MAP_BLOCK;
use crate::sim::{Happening, World};
use emulation::host::copier::{Copier, CopyResult, HostCopy};
use emulation::host::defect::Defects;
use emulation::host::design::Design;
use emulation::host::stack::{Disk, Kind as Device, Node, Stack, Target};
use emulation::{Bytes, Limits, Op, Sector, SectorRange, Sectors, VolumeId};
use indicatif::ProgressBar;

const SCENES: [&str; 8] = [
    "whole disk",
    "partition",
    "dm-linear",
    "across targets",
    "dm-stripe",
    "late driver",
    "no merges",
    "two tasks, depth 1",
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "request-path",
    about: "the four posted designs of a copy in the block layer: cost and failure over stacked devices",
    needs: SIMULATED,
    params: &[
        Param {
            name: "kib",
            about: "of a copy, in KiB",
            kind: Kind::Number { min: 4, max: 65_536 },
            default: "1024",
        },
        Param {
            name: "sources",
            about: "sources of a copy",
            kind: Kind::Number { min: 1, max: 1024 },
            default: "4",
        },
    ],
    run,
};

/// The size of a disk.
const DISK: Bytes = Bytes::mib(256);

/// Devices, the one to copy on, and how many tasks copy at once.
fn scene(name: &str) -> (Stack, Node, u64) {
    let mut stack = Stack::default();
    let mut disk = |volume, nomerges, depth| {
        let limits = Limits::new(DISK.whole_sectors(), Sectors(1), MAP_BLOCK.whole_sectors());
        stack.add(Device::Disk(Disk { volume: VolumeId(volume), limits, nomerges, depth })).expect("a disk")
    };
    let depth = if name.starts_with("two tasks") { 1 } else { 32 };
    let (a, b) = (disk(0, name == "no merges", depth), disk(1, false, depth));
    let target = |on, start: Bytes, len: Bytes| Target {
        on,
        start: Sector(start.whole_sectors().0),
        len: len.whole_sectors(),
    };
    let most = target(a, Bytes::mib(8), Bytes::mib(240));
    let node = match name {
        "partition" => stack.add(Device::Partition(most)).expect("within the disk"),
        "dm-linear" => stack.add(Device::Linear { targets: vec![most], deferred: false }).expect("within"),
        "late driver" => stack.add(Device::Linear { targets: vec![most], deferred: true }).expect("within"),
        // The destination begins in the middle; half a MiB later the second disk begins.
        "across targets" => {
            let first = target(a, Bytes(0), Bytes(DISK.0 / 2 + Bytes::kib(512).0));
            let targets = vec![first, target(b, Bytes(0), Bytes::mib(120))];
            stack.add(Device::Linear { targets, deferred: false }).expect("within the disks")
        }
        "dm-stripe" => {
            let chunk = Bytes::kib(64).whole_sectors();
            stack.add(Device::Stripe { chunk, on: vec![a, b], deferred: false }).expect("two disks")
        }
        _ => a,
    };
    (stack, node, if name.starts_with("two tasks") { 2 } else { 1 })
}

/// What a scene gave.
struct Seen {
    results: Vec<Option<CopyResult>>,
    requests: u64,
    link: u64,
    copied: u64,
}

fn play(name: &str, design: Design, len: Sectors, sources: u64) -> Result<Seen, String> {
    let (stack, node, tasks) = scene(name);
    let limits: Vec<_> = stack.disks().map(|(_, disk)| disk.limits.clone()).collect();
    let mut world = World::new(&limits);
    let mut host = Copier::new(stack.clone(), design, Defects::NONE, 1);
    let piece = len.0 / sources;
    let copies: Vec<_> = (0..tasks).map(|task| copy(node, task, piece, sources)).collect();
    let actors: Vec<_> = copies.iter().map(|copy| host.start(copy.clone())).collect();
    let (mut turn, mut link) = (0, 0);
    loop {
        for emit in host.take_emits() {
            link += match &emit.request.op {
                Op::Read(range) | Op::Write(range) => range.len.bytes().0,
                _ => 0,
            };
            world.submit(emit);
        }
        let runnable = host.runnable();
        if let Some(actor) = runnable.get(turn % runnable.len().max(1)) {
            host.step(*actor);
            turn += 1;
            continue;
        }
        match world.step() {
            Some(Happening::Done(_, id, completion)) => host.complete(id, &completion),
            Some(Happening::Alarm(..)) => {}
            None => break,
        }
    }
    let requests = world.requests();
    let results: Vec<_> = actors.iter().map(|actor| host.result(*actor)).collect();
    let mut copied = 0;
    for (copy, result) in copies.iter().zip(&results) {
        let Some(result) = result else { continue };
        copied += result.bytes.0;
        check(&mut world, &stack, copy, result.bytes).map_err(|at| {
            format!("{name}, {}: block {at} of the destination is not what was copied to it", design.name())
        })?;
    }
    Ok(Seen { results, requests, link, copied })
}

/// Sources of one length with as much between them, to the middle of the device.
fn copy(node: Node, task: u64, piece: u64, sources: u64) -> HostCopy {
    let source =
        |at| SectorRange { start: Sector((2 * task * sources + 2 * at) * piece), len: Sectors(piece) };
    let to = SectorRange {
        start: Sector((DISK.0 / 2 / 512) + task * piece * sources),
        len: Sectors(piece * sources),
    };
    HostCopy { from: node, to: node, sources: (0..sources).map(source).collect(), destinations: vec![to] }
}

/// The finished prefix is where it was copied to; else which map block is not.
fn check(world: &mut World, stack: &Stack, copy: &HostCopy, done: Bytes) -> Result<(), u64> {
    let blocks = |world: &mut World, node, ranges: &[SectorRange], fresh: bool| -> Vec<u64> {
        let flat: Vec<_> = ranges.iter().flat_map(|range| stack.flatten(node, *range)).collect();
        let mut values = Vec::new();
        for (disk, range) in flat {
            let volume = stack.disks().find(|(node, _)| *node == disk).expect("a disk").1.volume;
            if fresh {
                let first = range.start.bytes().0 / MAP_BLOCK.0;
                let count = range.len.bytes().0 / MAP_BLOCK.0;
                values.extend((first..first + count).map(|block| World::fresh(volume, block)));
            } else {
                values.extend(world.contents(volume, range));
            }
        }
        values
    };
    let expected = blocks(world, copy.from, &copy.sources, true);
    let found = blocks(world, copy.to, &copy.destinations, false);
    let whole = (done.0 / MAP_BLOCK.0) as usize;
    match expected.iter().zip(&found).take(whole).position(|(a, b)| a != b) {
        Some(at) => Err(at as u64),
        None => Ok(()),
    }
}

fn ended(seen: &Seen) -> String {
    let one = |result: &Option<CopyResult>| match result {
        None => "never ends".to_string(),
        Some(result) if !result.status.is_ok() => format!("{:?} after {} B", result.status, result.bytes.0),
        Some(result) if result.fell_back.is_zero() => "copied by the disk".to_string(),
        Some(result) if result.fell_back.bytes() == result.bytes => "copied by the host".to_string(),
        Some(result) => format!("copied, {} B of it by the host", result.fell_back.bytes().0),
    };
    let mut words: Vec<_> = seen.results.iter().map(one).collect();
    words.dedup();
    words.join("; ")
}

fn run(params: &Params, bar: &ProgressBar) -> Result<Outcome, String> {
    let (kib, sources) = (params.number("kib"), params.number("sources"));
    let len = Bytes::kib(kib).whole_sectors();
    if !(kib * 1024).is_multiple_of(sources * MAP_BLOCK.0) {
        return Err(format!("kib={kib} sources={sources}: each source must be a multiple of 4 KiB"));
    }
    bar.set_length((SCENES.len() * Design::ALL.len()) as u64);
    let mut outcome = Outcome::default();
    let plot = |id, title: &str, label: &str, unit: &str| Plot {
        id,
        title: title.to_string(),
        x: Axis::new("device", "", Scale::Categories),
        y: Axis::new(label, unit, Scale::Linear),
        categories: SCENES.map(str::to_string).into(),
        series: Vec::new(),
    };
    let mut requests = plot("requests", "Requests to the disks", "requests for each copy", "");
    let mut link = plot("link", "What the link carries", "on the link for each byte copied", "B");
    for design in Design::ALL {
        let mut rows = [(); 2].map(|()| Series::new(design.name(), Origin::Simulated));
        for (x, name) in SCENES.into_iter().enumerate() {
            let seen = play(name, design, len, sources)?;
            outcome.requests += seen.requests;
            let copies = seen.results.len() as f64;
            rows[0].points.push(Point::new(x as f64, seen.requests as f64 / copies));
            // Where nothing was copied there is no cost of a byte.
            if seen.copied > 0 {
                rows[1].points.push(Point::new(x as f64, seen.link as f64 / seen.copied as f64));
            }
            outcome.value(format!("{}, {name}", design.name()), "end", ended(&seen), "", Origin::Simulated);
            bar.inc(1);
        }
        let [a, b] = rows;
        requests.series.push(a);
        link.series.push(b);
    }
    outcome.plots = vec![requests, link];
    outcome.model = Some(Model {
        about: "Bios, plugs, queues and the stacking of limits, as the series of May 2024 (pair), May 2025 (vector) and \
                April 2026 (context) have them, and a driver that matches the halves itself (matched). Each in its \
                correct form; the published defects are switches of the model and are held by its tests.",
        free: Vec::new(),
        set_from: "nothing",
        predicted: Vec::new(),
    });
    outcome.notes.push("Every design is deterministic here: there is no spread.".to_string());
    Ok(outcome)
}
