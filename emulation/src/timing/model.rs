//! One volume's model: when each of its plans ends.

use super::chance::Chance;
use super::config::{Media, Rate, Timing};
use super::disk::Arm;
use super::flash::FlashLines;
use super::latency::Latency;
use crate::device::{Plan, PortKind, Step, StoreRange};
use crate::request::{Op, ZoneAction};
use crate::time::{Instant, Nanos};
use crate::units::{Bytes, PhysSector, Sectors};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a request asks for, as far as it matters to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes,
    Copy,
    ZoneMgmt(ZoneAction),
    ReportZones,
}

impl Command {
    pub(crate) fn of(op: &Op) -> Self {
        match op {
            Op::Read(_) => Self::Read,
            Op::Write(_) => Self::Write,
            Op::Flush => Self::Flush,
            Op::Discard(_) => Self::Discard,
            Op::WriteZeroes(_) => Self::WriteZeroes,
            Op::Copy(_) => Self::Copy,
            Op::ZoneMgmt { action, .. } => Self::ZoneMgmt(*action),
            Op::ZoneResetAll => Self::ZoneMgmt(ZoneAction::Reset),
            Op::ReportZones { .. } => Self::ReportZones,
        }
    }
}

/// The state of a volume's lines.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    timing: Timing,
    chance: Chance,
    /// When each place of the queue is free, of those taken so far.
    places: BinaryHeap<Reverse<Instant>>,
    controller: Instant,
    /// The link, one line each way.
    to_disk: Instant,
    to_host: Instant,
    media: Lines,
}

#[derive(Clone, Debug)]
enum Lines {
    None,
    Flash(FlashLines),
    Disk(Arm),
}

impl Model {
    /// Idle lines. `timing` is valid; `span` is the size of the volume.
    pub(crate) fn new(timing: Timing, span: Sectors) -> Self {
        let media = match &timing.media {
            Media::None => Lines::None,
            Media::Flash(flash) => Lines::Flash(FlashLines::new(flash.clone())),
            Media::Disk(disk) => Lines::Disk(Arm::new(disk.clone(), span)),
        };
        Self {
            chance: Chance::new(timing.seed),
            timing,
            places: BinaryHeap::new(),
            controller: Instant::ORIGIN,
            to_disk: Instant::ORIGIN,
            to_host: Instant::ORIGIN,
            media,
        }
    }

    /// When `plan`, handed out now, ends. `first` is the command of a request whose first plan it is; `inside`: what
    /// goes through its door does not take the link.
    pub(crate) fn plan(
        &mut self,
        now: Instant,
        first: Option<Command>,
        inside: bool,
        plan: &Plan,
    ) -> Instant {
        let start = self.start(now, first);
        let mut end = first.map_or(start, |command| self.zone(start, command));
        let (mut written, mut read) = (Bytes(0), Bytes(0));
        let mut passed = Bytes(0);
        for step in &plan.steps {
            let (done, bytes) = self.step(start, step);
            end = end.max(done);
            passed.0 += bytes.0;
            if plan.port == PortKind::Door {
                let (to_disk, to_host) = door_bytes(step);
                written.0 += to_disk.0;
                read.0 += to_host.0;
            }
        }
        if let Some(rate) = self.timing.bandwidth {
            end = end.max(line(&mut self.controller, start, rate, passed));
        }
        if let Some(link) = self.timing.link.filter(|_| !inside) {
            end = end.max(line(&mut self.to_disk, start, link.bandwidth, written));
            end = end.max(line(&mut self.to_host, start, link.bandwidth, read));
            end = end + first.map_or(Nanos(0), |_| link.round_trip);
        }
        self.leave(end);
        end
    }

    /// When a request that needs no plan ends, `None` when that is at once.
    pub(crate) fn answer(&mut self, now: Instant, command: Command, inside: bool) -> Option<Instant> {
        let round_trip = self.timing.link.filter(|_| !inside).map_or(Nanos(0), |link| link.round_trip);
        if self.latency(command).is_zero() && round_trip.0 == 0 && self.zone(now, command) == now {
            return None;
        }
        let start = self.start(now, Some(command));
        let end = self.zone(start, command) + round_trip;
        self.leave(end);
        Some(end)
    }

    /// A place in the queue, then the latency.
    fn start(&mut self, now: Instant, first: Option<Command>) -> Instant {
        let mut start = now;
        if let Some(depth) = self.timing.queue_depth {
            while self.places.peek().is_some_and(|Reverse(free)| *free <= now) {
                self.places.pop();
            }
            if self.places.len() >= usize::try_from(depth).unwrap_or(usize::MAX) {
                let Reverse(free) = self.places.pop().expect("a queue has a place");
                start = start.max(free);
            }
        }
        match first {
            Some(command) => {
                let mut chance = self.chance.clone();
                let latency = self.latency(command).draw(&mut chance);
                self.chance = chance;
                start + latency
            }
            None => start,
        }
    }

    fn leave(&mut self, end: Instant) {
        if self.timing.queue_depth.is_some() {
            self.places.push(Reverse(end));
        }
    }

    fn latency(&self, command: Command) -> &Latency {
        let latency = &self.timing.latency;
        match command {
            Command::Read => &latency.read,
            Command::Write => &latency.write,
            Command::Flush => &latency.flush,
            Command::Discard => &latency.discard,
            Command::WriteZeroes => &latency.write_zeroes,
            Command::Copy => &latency.copy,
            Command::ZoneMgmt(_) => &latency.zone_mgmt,
            Command::ReportZones => &latency.report_zones,
        }
    }

    /// What a change of a zone costs the media.
    fn zone(&mut self, start: Instant, command: Command) -> Instant {
        let Lines::Flash(flash) = &mut self.media else { return start };
        match command {
            Command::ZoneMgmt(ZoneAction::Reset) => flash.reset(start),
            Command::ZoneMgmt(ZoneAction::Finish) => flash.finish(start),
            Command::ZoneMgmt(ZoneAction::Open | ZoneAction::Close)
            | Command::Read
            | Command::Write
            | Command::Flush
            | Command::Discard
            | Command::WriteZeroes
            | Command::Copy
            | Command::ReportZones => start,
        }
    }

    /// When a step ends in the media, and the bytes that pass the controller.
    fn step(&mut self, start: Instant, step: &Step) -> (Instant, Bytes) {
        match step {
            Step::Read { from, .. } => (self.read(start, *from), from.len.bytes()),
            Step::Write { to, .. } => (self.write(start, *to), to.len.bytes()),
            Step::Move { from, to, .. } => self.copy(start, *from, *to),
            Step::Zero { at, unmap: false } => (self.write(start, *at), at.len.bytes()),
            Step::Sync => (self.sync(start), Bytes(0)),
            Step::ReadFlipped { from: Some(from), len, .. } => {
                (self.read(start, StoreRange { start: *from, len: *len }), len.bytes())
            }
            Step::ReadFlipped { from: None, len, .. } | Step::ReadZeroes { len, .. } => (start, len.bytes()),
            // The map of a drive, not its cells.
            Step::Zero { unmap: true, .. } | Step::Trim { .. } | Step::Commit(_) => (start, Bytes(0)),
        }
    }

    fn read(&mut self, start: Instant, range: StoreRange) -> Instant {
        match &mut self.media {
            Lines::None => start,
            Lines::Flash(flash) => flash.read(start, range),
            Lines::Disk(arm) => arm.access(start, range),
        }
    }

    fn write(&mut self, start: Instant, range: StoreRange) -> Instant {
        match &mut self.media {
            Lines::None => start,
            Lines::Flash(flash) => flash.write(start, range),
            Lines::Disk(arm) => arm.access(start, range),
        }
    }

    fn copy(&mut self, start: Instant, from: StoreRange, to: PhysSector) -> (Instant, Bytes) {
        let twice = Bytes(2 * from.len.bytes().0);
        match &mut self.media {
            Lines::None => (start, twice),
            Lines::Flash(flash) => flash.copy(start, from, to),
            Lines::Disk(arm) => {
                let read = arm.access(start, from);
                (arm.access(read, StoreRange { start: to, len: from.len }), twice)
            }
        }
    }

    fn sync(&self, start: Instant) -> Instant {
        match &self.media {
            Lines::None => start,
            Lines::Flash(flash) => flash.sync(start),
            Lines::Disk(arm) => arm.sync(start),
        }
    }
}

/// Takes a line for so many bytes.
fn line(free: &mut Instant, start: Instant, rate: Rate, bytes: Bytes) -> Instant {
    if bytes.0 > 0 {
        *free = (*free).max(start) + rate.time(bytes);
        *free
    } else {
        start
    }
}

/// What a step carries through the door: to the disk, and to the host.
fn door_bytes(step: &Step) -> (Bytes, Bytes) {
    match step {
        Step::Read { from, .. } => (Bytes(0), from.len.bytes()),
        Step::ReadFlipped { len, .. } | Step::ReadZeroes { len, .. } => (Bytes(0), len.bytes()),
        Step::Write { to, .. } => (to.len.bytes(), Bytes(0)),
        Step::Move { .. } | Step::Zero { .. } | Step::Trim { .. } | Step::Sync | Step::Commit(_) => {
            (Bytes(0), Bytes(0))
        }
    }
}
