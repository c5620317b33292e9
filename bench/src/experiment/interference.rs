//! What a copy does to the reads of others: no copy, a copy by the host, one that the disk does whole, one that it does
//! link by link.

use super::outcome::{Axis, Latency, Model, Origin, Outcome, Plot, Point, Scale, Series};
use super::params::{Kind, Param, Params};
use super::{Experiment, LINK_MBIT, MEDIA, MODE, ROUNDS, SEED, SIMULATED, mbit, rounds};
use crate::pools::{self, Random, VOLUME, copy, range};
use crate::rounds::Spread;
use crate::sim::load::histogram;
use crate::sim::{Fabric, Happening, Order, World};
use emulation::host::{BufferId, Data, Emit};
use emulation::timing::profile;
use emulation::{Bytes, Flags, Instant, Nanos, Op, Request, RequestId, Sectors};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use std::collections::BTreeMap;

const CASES: [&str; 4] = ["no copy", "host copy", "copy done whole", "copy by links"];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "interference",
    about: "latency of foreground reads beside a copy",
    needs: SIMULATED,
    params: &[
        MEDIA,
        Param { kind: Kind::Choice(&["memcpy", "emulate", "remap"]), ..MODE },
        Param {
            name: "reads_per_s",
            about: "foreground reads of 4 KiB a second, at random times",
            kind: Kind::Number { min: 1, max: 1_000_000 },
            default: "2000",
        },
        Param {
            name: "copy_mib",
            about: "a copy command, in MiB; one follows the other",
            kind: Kind::Number { min: 1, max: 128 },
            default: "64",
        },
        Param {
            name: "seconds",
            about: "of virtual time",
            kind: Kind::Number { min: 1, max: 60 },
            default: "4",
        },
        Param { default: "25000", ..LINK_MBIT },
        SEED,
        ROUNDS,
    ],
    run,
};

/// A host copy keeps so many pieces of this length under way.
const HOST_DEPTH: u64 = 8;
const HOST_PIECE: Bytes = Bytes::kib(128);
/// Foreground reads go to the part behind the copies.
const FOREGROUND: Bytes = Bytes::mib(64);
/// Segments of a copy command.
const SEGMENT: Bytes = Bytes::mib(1);

#[derive(Clone, Copy)]
enum Doing {
    Foreground(Instant),
    Copy,
    /// To this place, from this buffer.
    HostRead(u64, u64),
    HostWrite,
}

struct Run {
    world: World,
    live: BTreeMap<RequestId, Doing>,
    random: Random,
    next: u64,
    copy: Bytes,
    pieces: u64,
    copied: u64,
    latency: Histogram<u64>,
    end: Instant,
    rate: u64,
}

impl Run {
    fn new(params: &Params, case: &str, seed: u64) -> Self {
        let copy = Bytes::mib(params.number("copy_mib"));
        let mode = params.copy_mode("mode");
        let mut world = World::new(&[pools::limits(Bytes(2 * copy.0 + FOREGROUND.0), mode)]);
        world.set_timing(&profile::named(params.text("media")).expect("checked").timing());
        world.set_fabric(Fabric::new(mbit(params.number("link_mbit")), Nanos(20_000)));
        if case == "copy done whole" {
            world.set_order(Order::WholeCopies);
        }
        Self {
            world,
            live: BTreeMap::new(),
            random: Random::new(seed),
            next: 0,
            copy,
            pieces: 0,
            copied: 0,
            latency: histogram(),
            end: Instant(params.number("seconds") * 1_000_000_000),
            rate: params.number("reads_per_s"),
        }
    }

    fn submit(&mut self, op: Op, doing: Doing) {
        self.next += 1;
        let doing = match doing {
            Doing::HostRead(at, _) => Doing::HostRead(at, 1 + self.next),
            Doing::Foreground(_) | Doing::Copy | Doing::HostWrite => doing,
        };
        self.send(op, doing, 1 + self.next);
    }

    /// A request with its data in a buffer.
    fn send(&mut self, op: Op, doing: Doing, buffer: u64) {
        let id = RequestId(self.next);
        let data = match op {
            Op::Copy(_) => Data::None,
            _ => Data::Buffer { id: BufferId(buffer), offset: Sectors::ZERO },
        };
        self.live.insert(id, doing);
        self.world.submit(Emit { request: Request { id, volume: VOLUME, op, flags: Flags::NONE }, data });
    }

    fn piece(&mut self) {
        let pieces = self.copy.0 / HOST_PIECE.0;
        let at = self.pieces % pieces * HOST_PIECE.0;
        self.pieces += 1;
        self.submit(Op::Read(range(Bytes(at), HOST_PIECE)), Doing::HostRead(at, 0));
    }

    fn command(&mut self) {
        let to = self.copy.0;
        let pairs: Vec<_> = (0..self.copy.0 / SEGMENT.0)
            .map(|at| (Bytes(at * SEGMENT.0), Bytes(to + at * SEGMENT.0)))
            .collect();
        self.submit(copy(pairs, SEGMENT), Doing::Copy);
    }

    /// The next read comes after a time that is as likely to end now as at any moment.
    fn arrival(&mut self) {
        let chance = (self.random.below(1 << 32) as f64 + 1.0) / (1u64 << 32) as f64;
        let wait = -chance.ln() * 1e9 / self.rate as f64;
        let at = Instant(self.world.now().0 + wait as u64 + 1);
        if at < self.end {
            self.world.alarm(at, 0);
        }
    }

    fn read(&mut self) {
        let place = self.random.below(FOREGROUND.0 / 4096) * 4096;
        let now = self.world.now();
        self.submit(Op::Read(range(Bytes(2 * self.copy.0 + place), Bytes::kib(4))), Doing::Foreground(now));
        self.arrival();
    }

    fn run(mut self, case: &str) -> Result<Self, String> {
        self.arrival();
        match case {
            "no copy" => {}
            "host copy" => (0..HOST_DEPTH).for_each(|_| self.piece()),
            _ => self.command(),
        }
        while let Some(happening) = self.world.step() {
            let Happening::Done(at, id, completion) = happening else {
                self.read();
                continue;
            };
            if !completion.status.is_ok() {
                return Err(format!("{case}: {completion:?}"));
            }
            let on = at < self.end;
            match self.live.remove(&id).expect("it lived") {
                Doing::Foreground(since) => self.latency.saturating_record((at.0 - since.0).max(1)),
                Doing::HostRead(from, buffer) => {
                    let to = range(Bytes(self.copy.0 + from), HOST_PIECE);
                    self.next += 1;
                    self.send(Op::Write(to), Doing::HostWrite, buffer);
                }
                Doing::HostWrite => {
                    self.copied += HOST_PIECE.0;
                    if on {
                        self.piece();
                    }
                }
                Doing::Copy => {
                    self.copied += completion.bytes.0;
                    if on {
                        self.command();
                    }
                }
            }
        }
        if case != "no copy" && self.copied >= self.copy.0 {
            self.check(case)?;
        }
        Ok(self)
    }

    fn check(&mut self, case: &str) -> Result<(), String> {
        let found = self.world.contents(VOLUME, range(self.copy, self.copy));
        match (0..).zip(&found).find(|(block, value)| **value != World::fresh(VOLUME, *block)) {
            Some((block, _)) => Err(format!("{case}: block {block} is not what was copied to it")),
            None => Ok(()),
        }
    }
}

fn run(params: &Params, bar: &ProgressBar) -> Result<Outcome, String> {
    bar.set_length((CASES.len() as u64) * params.number("rounds"));
    let mut outcome = Outcome::default();
    let plot = |id, title: &str, label: &str, unit: &str, scale| Plot {
        id,
        title: title.to_string(),
        x: Axis::new("beside", "", Scale::Categories),
        y: Axis::new(label, unit, scale),
        categories: CASES.map(str::to_string).into(),
        series: Vec::new(),
    };
    let mut latency = plot("latency", "Foreground reads of 4 KiB", "latency", "us", Scale::Log);
    let mut copied = plot("copied", "The copy meanwhile", "copied", "MiB/s", Scale::Linear);
    let names = ["median", "99th percentile", "99.9th percentile"];
    latency.series = names.map(|name| Series::new(name, Origin::Simulated)).into();
    copied.series = vec![Series::new("copy", Origin::Simulated)];
    for (x, case) in CASES.into_iter().enumerate() {
        let mut rows = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        for seed in rounds(params) {
            let mut run = Run::new(params, case, seed).run(case)?;
            outcome.requests += run.world.requests();
            let us = |quantile| run.latency.value_at_quantile(quantile) as f64 / 1e3;
            let seconds = run.world.now().0 as f64 / 1e9;
            let rate = run.copied as f64 / f64::from(1 << 20) / seconds;
            let numbers = [us(0.5), us(0.99), us(0.999), rate];
            rows.iter_mut().zip(numbers).for_each(|(row, number)| row.push(number));
            if seed == params.number("seed") {
                outcome.latencies.push(Latency::of(case, Origin::Simulated, &run.latency));
                outcome.ledger(case, run.world.pool().ledger(VOLUME));
            }
            bar.inc(1);
        }
        for (index, row) in rows.into_iter().enumerate() {
            let series = if index < 3 { &mut latency.series[index] } else { &mut copied.series[0] };
            series.points.push(Point::of(x as f64, Spread::of(row)));
        }
    }
    outcome.plots = vec![latency, copied];
    outcome.model = Some(Model {
        about: "The media of a profile (`ublk add --media`), whose numbers and their sources `ublk-bench list` does not \
                change. A copy by links gives way after each MiB; one done whole holds everything else back. Nothing is \
                set from a publication.",
        free: Vec::new(),
        set_from: "nothing",
        predicted: Vec::new(),
    });
    Ok(outcome)
}
