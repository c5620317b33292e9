//! What every zone is: written from the clauses on zones and the tables of the standards. It is told of requests,
//! plans and answers in the order in which they come, and knows from that alone each condition and each pointer,
//! now and after a crash.

use super::relation::relations;
use emulation::redo::{Commit, ZoneChange};
use emulation::request::ZoneAction;
use emulation::zone::{ZoneCondition, ZoneDescriptor, ZoneFailure, ZoneGeometry};
use emulation::{
    BlkStatus, CopyCommand, Flags, Limits, Op, PlanId, Request, Sector, SectorRange, Sectors, VolumeId,
};
use std::collections::BTreeMap;
use std::ops::Range;

use ZoneCondition::{Closed, Empty, ExpOpen, Full, ImpOpen, NotWp, Offline, Readonly};

/// What is kept of a zone beyond the life of a server.
pub type Kept = (ZoneCondition, u64);

/// A zone. Pointers count from its start.
#[derive(Clone, Debug)]
pub struct Zone {
    /// Its condition.
    pub condition: ZoneCondition,
    /// Behind every write that was let in.
    pub wp: u64,
    /// The end of the highest finished write.
    written: u64,
    /// Which life of its contents it lives.
    pub content: u64,
    /// The latter.
    pub write: u64,
    /// Changes wait.
    pub resetting: bool,
    /// When it was opened implicitly.
    opened: u64,
    kept: Kept,
    /// What it was, until when.
    past: Vec<(u64, Kept)>,
    /// What it was before cannot come back after a crash.
    durable: u64,
    image: Kept,
}

/// The zones of a volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// How it is divided.
    pub geometry: ZoneGeometry,
    /// All of them.
    pub zones: Vec<Zone>,
    /// No other volume of its number has this.
    pub born: u64,
    /// When one of them changed last.
    pub changed: u64,
}

/// A part of a zone that a write was let into.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    volume: VolumeId,
    zone: usize,
    start: u64,
    /// Behind its last sector.
    pub end: u64,
    life: u64,
    before: ZoneCondition,
    /// When it was settled.
    pub settled: u64,
}

/// The zones of a pool.
#[derive(Debug, Default)]
pub struct Zones {
    /// The zoned volumes.
    pub volumes: BTreeMap<VolumeId, Volume>,
    /// The time: every change has its own.
    pub clock: u64,
    /// When the call to the device began.
    pub call: u64,
    /// Which volumes the commits under way found.
    commits: BTreeMap<PlanId, BTreeMap<VolumeId, u64>>,
    sequence: u64,
}

impl Place {
    /// Its sectors.
    pub fn sectors(&self) -> u64 {
        self.end - self.start
    }
}

impl Volume {
    /// The numbers of the zones of a range.
    fn zones_of(&self, range: SectorRange) -> Range<usize> {
        let size = self.geometry.size.0;
        (range.start.0 / size) as usize..range.end().0.div_ceil(size) as usize
    }

    /// The zone of a sector and the place in it.
    pub fn place(&self, sector: Sector) -> (usize, u64) {
        ((sector.0 / self.geometry.size.0) as usize, sector.0 % self.geometry.size.0)
    }

    /// True when zones are written anywhere up to this one.
    pub fn is_conventional(&self, zone: usize) -> bool {
        zone < self.geometry.conventional as usize
    }

    fn count(&self, conditions: &[ZoneCondition]) -> u32 {
        self.zones.iter().filter(|zone| conditions.contains(&zone.condition)).count() as u32
    }

    /// Why a zone cannot be opened in addition.
    fn lacks_room(&self, from: ZoneCondition) -> Option<BlkStatus> {
        let ZoneGeometry { max_open, max_active, .. } = self.geometry;
        let full = |most: u32, count: u32| most > 0 && count >= most;
        if from == Empty && full(max_active, self.count(&[ImpOpen, ExpOpen, Closed])) {
            return Some(BlkStatus::ZoneActiveResource);
        }
        let closed = matches!(from, Empty | Closed);
        let stuck = closed && full(max_open, self.count(&[ImpOpen, ExpOpen])) && self.count(&[ImpOpen]) == 0;
        stuck.then_some(BlkStatus::ZoneOpenResource)
    }

    /// Opens a zone; the one that was opened implicitly first gives way.
    fn open(&mut self, zone: usize, to: ZoneCondition, now: u64) {
        let most = self.geometry.max_open;
        let new = matches!(self.zones[zone].condition, Empty | Closed);
        if new && most > 0 && self.count(&[ImpOpen, ExpOpen]) >= most {
            let implicit = self.zones.iter_mut().filter(|zone| zone.condition == ImpOpen);
            implicit.min_by_key(|zone| zone.opened).expect("there is room").condition = Closed;
        }
        let zone = &mut self.zones[zone];
        if zone.condition != to {
            (zone.condition, zone.opened) = (to, now);
        }
    }

    /// Why a sequential zone does not take a write.
    pub fn refusal(&self, zone: usize, offset: u64, len: u64) -> Option<BlkStatus> {
        let state = &self.zones[zone];
        match state.condition {
            Full => Some(BlkStatus::ZoneFull),
            Readonly => Some(BlkStatus::ZoneReadonly),
            Offline => Some(BlkStatus::ZoneOffline),
            _ if offset != state.wp => Some(BlkStatus::ZoneInvalidWrite),
            _ if offset + len > self.geometry.capacity.0 => Some(BlkStatus::ZoneBoundary),
            from => self.lacks_room(from),
        }
    }

    fn reserve(&mut self, volume: VolumeId, zone: usize, len: u64, now: u64) -> Place {
        let before = self.zones[zone].condition;
        if before != ExpOpen {
            self.open(zone, ImpOpen, now);
        }
        let state = &mut self.zones[zone];
        let start = state.wp;
        state.wp += len;
        Place { volume, zone, start, end: state.wp, life: state.write, before, settled: 0 }
    }

    /// A write is over, `done` sectors of it finished. What is not gives its place back if nothing lies above it.
    fn settle(&mut self, place: &Place, done: u64) {
        let capacity = self.geometry.capacity.0;
        let zone = &mut self.zones[place.zone];
        let finished = place.start + done;
        if finished < place.end && zone.wp == place.end {
            zone.wp = finished;
            zone.written = zone.written.min(finished);
            if done == 0 && zone.condition == ImpOpen && matches!(place.before, Empty | Closed) {
                zone.condition = place.before;
            }
        }
        if done > 0 {
            zone.written = zone.written.max(finished);
        }
        if zone.wp == 0 && matches!(zone.condition, ImpOpen | Closed) {
            zone.condition = Empty;
        }
        if done > 0 && finished == capacity && matches!(zone.condition, ImpOpen | ExpOpen | Closed) {
            zone.condition = Full;
        }
    }

    /// What an action makes of a zone, or why it cannot be.
    fn action(&self, zone: usize, action: ZoneAction) -> Result<ZoneCondition, BlkStatus> {
        let state = &self.zones[zone];
        match (action, state.condition) {
            (ZoneAction::Open, from @ (Empty | Closed)) => self.lacks_room(from).map_or(Ok(ExpOpen), Err),
            (ZoneAction::Open, ImpOpen | ExpOpen) => Ok(ExpOpen),
            (ZoneAction::Close, ImpOpen | ExpOpen) if state.wp == 0 => Ok(Empty),
            (ZoneAction::Close, ImpOpen | ExpOpen | Closed) => Ok(Closed),
            (ZoneAction::Finish, Empty | ImpOpen | ExpOpen | Closed | Full) => Ok(Full),
            (ZoneAction::Reset, Empty | ImpOpen | ExpOpen | Closed | Full) => Ok(Empty),
            _ => Err(BlkStatus::ZoneTransition),
        }
    }

    /// Why the zones do not take a copy as it stands.
    fn try_copy(&self, id: VolumeId, request: &Request, command: &CopyCommand) -> Option<BlkStatus> {
        let mut trial = self.clone();
        let mut write = |zone, offset, len, now| {
            if let Some(status) = trial.refusal(zone, offset, len) {
                return Some(status);
            }
            let place = trial.reserve(id, zone, len, now);
            trial.settle(&place, len);
            None
        };
        if request.flags.has(Flags::APPEND) {
            let first = command.segments[0].destination;
            let (zone, offset) = self.place(first);
            let one = command.segments.iter().all(|segment| segment.destination == first);
            if !one || offset != 0 || self.is_conventional(zone) {
                return Some(BlkStatus::ZoneAppend);
            }
            let mut placed = command.clone();
            placed.place(Sector(first.0 + self.zones[zone].wp));
            let total = command.segments.iter().map(|segment| segment.source.len.0).sum();
            let refusal = write(zone, self.zones[zone].wp, total, u64::MAX);
            let overlaps = || relations(id, &placed).any(|(_, relation)| relation.overlaps());
            let apart = request.flags.has(Flags::MAY_OVERLAP) || !overlaps();
            return refusal.or_else(|| (!apart).then_some(BlkStatus::CopyOverlap));
        }
        // Later than whatever was opened before.
        (u64::MAX / 2..).zip(&command.segments).find_map(|(now, segment)| {
            let range = segment.destination_range();
            let (zone, offset) = self.place(range.start);
            if self.is_conventional(zone) {
                let inside = self.is_conventional(self.zones_of(range).end - 1);
                return (!inside).then_some(BlkStatus::ZoneBoundary);
            }
            write(zone, offset, range.len.0, now)
        })
    }
}

impl Zone {
    fn new(condition: ZoneCondition, life: u64) -> Self {
        let kept = (condition, 0);
        Self {
            condition,
            wp: 0,
            written: 0,
            content: life,
            write: life,
            resetting: false,
            opened: 0,
            kept,
            past: Vec::new(),
            durable: 0,
            image: kept,
        }
    }

    fn to_keep(&self, capacity: u64) -> Kept {
        let condition = match self.condition {
            Empty | ImpOpen | ExpOpen | Closed if self.written == capacity => Full,
            Empty | ImpOpen | Closed if self.written == 0 => Empty,
            Empty | ImpOpen | Closed => Closed,
            NotWp | ExpOpen | Readonly | Full | Offline => self.condition,
        };
        (condition, self.written)
    }

    fn begin_again(&mut self, (condition, wp): Kept, life: u64) {
        (self.condition, self.wp, self.written) = (condition, wp, wp);
        (self.content, self.write, self.resetting, self.opened) = (life, life, false, 0);
    }
}

fn after_power_loss((condition, wp): Kept) -> Kept {
    match condition {
        ImpOpen | ExpOpen | Closed if wp == 0 => (Empty, 0),
        ImpOpen | ExpOpen => (Closed, wp),
        NotWp | Empty | Closed | Readonly | Full | Offline => (condition, wp),
    }
}

impl Zones {
    /// A volume is added.
    pub fn add_volume(&mut self, id: VolumeId, limits: &Limits) {
        let Some(geometry) = limits.zones else { return };
        self.clock += 1;
        let born = self.clock;
        let zone = |index| if index < geometry.conventional { NotWp } else { Empty };
        let zones = (0..geometry.zones(limits.capacity)).map(|index| Zone::new(zone(index), born)).collect();
        self.volumes.insert(id, Volume { geometry, zones, born, changed: born });
    }

    /// Why a request has to be refused as its zones are now, if they take no other time.
    pub fn refusal(&self, request: &Request) -> Option<BlkStatus> {
        let offline = |id: VolumeId, range| {
            let volume = self.volumes.get(&id)?;
            let found = volume.zones[volume.zones_of(range)].iter().any(|zone| zone.condition == Offline);
            found.then_some(BlkStatus::ZoneOffline)
        };
        if let Op::Copy(command) = &request.op
            && let Some(status) = command.segments.iter().find_map(|s| offline(s.source_volume, s.source))
        {
            return Some(status);
        }
        let volume = self.volumes.get(&request.volume)?;
        match &request.op {
            Op::Read(range) => offline(request.volume, *range),
            Op::Flush | Op::ZoneResetAll | Op::ReportZones { .. } | Op::Discard(_) => None,
            Op::Write(range) | Op::WriteZeroes(range) => {
                let (zone, offset) = volume.place(range.start);
                let appends = request.flags.has(Flags::APPEND);
                let offset = if appends { volume.zones[zone].wp } else { offset };
                if volume.is_conventional(zone) { None } else { volume.refusal(zone, offset, range.len.0) }
            }
            Op::Copy(command) => volume.try_copy(request.volume, request, command),
            Op::ZoneMgmt { zone, action } => volume.action(volume.place(*zone).0, *action).err(),
        }
    }

    /// Why a request has to be refused whatever its zones are.
    pub fn misshapen(&self, request: &Request) -> Option<BlkStatus> {
        let volume = self.volumes.get(&request.volume)?;
        let appends = request.flags.has(Flags::APPEND);
        let end = Sector(volume.geometry.size.0 * volume.zones.len() as u64);
        match &request.op {
            Op::Discard(range) => {
                let inside = volume.is_conventional(volume.zones_of(*range).end - 1);
                (!inside).then_some(BlkStatus::NotSupp)
            }
            Op::Write(range) | Op::WriteZeroes(range) => {
                let (zone, offset) = volume.place(range.start);
                let conventional = volume.is_conventional(zone);
                let long = range.len > volume.geometry.max_append;
                let boundary = conventional && !volume.is_conventional(volume.zones_of(*range).end - 1);
                match appends {
                    true if conventional || offset != 0 || long => Some(BlkStatus::ZoneAppend),
                    true => None,
                    false => boundary.then_some(BlkStatus::ZoneBoundary),
                }
            }
            Op::ZoneMgmt { zone, .. } if *zone >= end => Some(BlkStatus::OutOfRange),
            Op::ZoneMgmt { zone, .. } => (volume.place(*zone).1 != 0).then_some(BlkStatus::Inval),
            Op::ReportZones { from, .. } if *from >= end => Some(BlkStatus::OutOfRange),
            Op::ReportZones { max, .. } => (*max == 0).then_some(BlkStatus::Inval),
            Op::Read(_) | Op::Flush | Op::Copy(_) | Op::ZoneResetAll => None,
        }
    }

    /// The first part of a range that can be read, or cannot.
    pub fn readable(&self, id: VolumeId, range: SectorRange) -> Result<SectorRange, SectorRange> {
        let Some(volume) = self.volumes.get(&id) else { return Ok(range) };
        let (zone, offset) = volume.place(range.start);
        let part = range.split_at(Sectors(range.len.0.min(volume.geometry.size.0 - offset))).0;
        if volume.zones[zone].condition == Offline { Err(part) } else { Ok(part) }
    }

    /// The zones that a request changes, whose resets it waits for.
    pub fn changes(&self, request: &Request) -> Vec<usize> {
        let Some(volume) = self.volumes.get(&request.volume) else { return Vec::new() };
        match &request.op {
            Op::Read(_) | Op::Flush | Op::ReportZones { .. } | Op::Discard(_) => Vec::new(),
            Op::Write(range) | Op::WriteZeroes(range) => {
                let (zone, _) = volume.place(range.start);
                if volume.is_conventional(zone) { Vec::new() } else { vec![zone] }
            }
            Op::Copy(command) => {
                command.segments.iter().flat_map(|s| volume.zones_of(s.destination_range())).collect()
            }
            Op::ZoneMgmt { zone, .. } => vec![volume.place(*zone).0],
            Op::ZoneResetAll => (0..volume.zones.len()).collect(),
        }
    }

    /// Puts an append where it goes.
    pub fn put(&self, request: &mut Request) -> Option<Sector> {
        let volume = self.volumes.get(&request.volume).filter(|_| request.flags.has(Flags::APPEND))?;
        let start = match &request.op {
            Op::Write(range) => range.start,
            Op::Copy(command) => command.segments[0].destination,
            _ => return None,
        };
        let at = Sector(start.0 + volume.zones[volume.place(start).0].wp);
        match &mut request.op {
            Op::Write(range) => range.start = at,
            Op::Copy(command) => command.place(at),
            _ => {}
        }
        request.flags = request.flags.without(Flags::APPEND);
        Some(at)
    }

    /// Lets a write into a sequential zone; `None` for conventional ones and other volumes. Says why it may not.
    pub fn reserve(&mut self, id: VolumeId, range: SectorRange) -> Result<Option<Place>, BlkStatus> {
        self.clock += 1;
        let Some(volume) = self.volumes.get_mut(&id) else { return Ok(None) };
        let (zone, offset) = volume.place(range.start);
        if volume.is_conventional(zone) {
            return Ok(None);
        }
        match volume.refusal(zone, offset, range.len.0) {
            Some(status) => Err(status),
            None => {
                volume.changed = self.clock;
                Ok(Some(volume.reserve(id, zone, range.len.0, self.clock)))
            }
        }
    }

    /// A zone, if it is still there.
    pub fn zone(&self, id: VolumeId, zone: usize) -> Option<&Zone> {
        self.volumes.get(&id)?.zones.get(zone)
    }

    /// True when the zone lives the life in which the write was let in.
    pub fn is_fresh(&self, place: &Place) -> bool {
        self.zone(place.volume, place.zone).is_some_and(|zone| zone.write == place.life)
    }

    /// A write is over, so much of it finished. Gives the time.
    pub fn settle(&mut self, place: &Place, done: u64) -> u64 {
        if self.is_fresh(place) {
            self.change(place.volume, place.zone, |volume| volume.settle(place, done));
        }
        self.clock
    }

    /// What was written counts, though its end is to come.
    pub fn written(&mut self, place: &Place) {
        self.change(place.volume, place.zone, |volume| {
            let zone = &mut volume.zones[place.zone];
            zone.written = zone.written.max(place.end);
        });
    }

    /// The lives of contents and of writes in the zones of a range.
    pub fn lives(&self, id: VolumeId, range: SectorRange) -> Vec<((VolumeId, usize), (u64, u64))> {
        let Some(volume) = self.volumes.get(&id) else { return Vec::new() };
        let life = |zone: usize| ((id, zone), (volume.zones[zone].content, volume.zones[zone].write));
        volume.zones_of(range).map(life).collect()
    }

    /// Opens, closes or finishes a zone that takes it.
    pub fn act(&mut self, id: VolumeId, start: Sector, action: ZoneAction) {
        let zone = self.volumes[&id].place(start).0;
        let to = self.volumes[&id].action(zone, action).expect("it is not refused");
        let now = self.clock + 1;
        self.change(id, zone, |volume| {
            let from = volume.zones[zone].condition;
            if to == ExpOpen {
                volume.open(zone, to, now);
            }
            let state = &mut volume.zones[zone];
            state.condition = to;
            if to == Full && from != Full {
                state.write = now;
            }
        });
    }

    /// A reset begins. What was begun before ends here.
    pub fn begin_reset(&mut self, id: VolumeId, zone: usize) {
        let now = self.clock + 1;
        self.change(id, zone, |volume| {
            let state = &mut volume.zones[zone];
            (state.content, state.write, state.resetting) = (now, now, true);
        });
    }

    /// The contents of a zone are gone. False when the zone failed meanwhile.
    pub fn reset(&mut self, id: VolumeId, zone: usize) -> bool {
        let may = self.volumes[&id].action(zone, ZoneAction::Reset).is_ok();
        if may {
            self.change(id, zone, |volume| {
                let state = &mut volume.zones[zone];
                (state.condition, state.wp, state.written) = (Empty, 0, 0);
            });
        }
        may
    }

    /// A reset is over.
    pub fn end_reset(&mut self, id: VolumeId, zone: usize) {
        self.volumes.get_mut(&id).expect("a zoned volume").zones[zone].resetting = false;
    }

    /// A zone fails by itself.
    pub fn fail(&mut self, id: VolumeId, zone: usize, failure: ZoneFailure) {
        let now = self.clock + 1;
        self.change(id, zone, |volume| {
            let state = &mut volume.zones[zone];
            let to = match failure {
                ZoneFailure::Readonly => Readonly,
                ZoneFailure::Offline => Offline,
            };
            if matches!(state.condition, NotWp | Offline) || state.condition == to {
                return;
            }
            (state.condition, state.write) = (to, now);
            if to == Offline {
                state.content = now;
            }
        });
    }

    /// Changes a zone, and keeps what it was.
    fn change(&mut self, id: VolumeId, zone: usize, change: impl FnOnce(&mut Volume)) {
        self.clock += 1;
        let volume = self.volumes.get_mut(&id).expect("a zoned volume");
        volume.changed = self.clock;
        change(volume);
        let capacity = volume.geometry.capacity.0;
        let state = &mut volume.zones[zone];
        let kept = state.to_keep(capacity);
        if kept != state.kept {
            state.past.push((self.clock, state.kept));
            state.kept = kept;
        }
    }

    /// What was written by then is durable in a volume, or in the zone of a place.
    pub fn made_durable(&mut self, id: VolumeId, place: Option<&Place>, time: u64) {
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        let its = |zone: usize| place.is_none_or(|place| place.zone == zone);
        for (_, zone) in volume.zones.iter_mut().enumerate().filter(|(zone, _)| its(*zone)) {
            zone.durable = zone.durable.max(time);
            zone.past.retain(|(until, _)| *until > zone.durable);
        }
    }

    /// A commit is handed out.
    pub fn claim(&mut self, plan: PlanId) {
        let born = self.volumes.iter().map(|(&id, volume)| (id, volume.born));
        self.commits.insert(plan, born.collect());
    }

    /// A commit is durable.
    pub fn commit(&mut self, plan: PlanId, commit: &Commit) {
        let found = self.commits.remove(&plan).unwrap_or_default();
        for change in &commit.zones {
            if let Some(volume) = self.volumes.get_mut(&change.volume)
                && found.get(&change.volume) == Some(&volume.born)
            {
                volume.zones[change.zone as usize].image = (change.condition, change.wp.0);
            }
        }
        self.sequence = self.sequence.max(commit.sequence);
    }

    fn each(&self) -> impl Iterator<Item = (VolumeId, u32, &Zone)> {
        self.volumes
            .iter()
            .flat_map(|(&id, volume)| (0..).zip(&volume.zones).map(move |(number, zone)| (id, number, zone)))
    }

    /// The zones of the durable image.
    pub fn image(&self) -> Vec<ZoneChange> {
        let known = self.each().filter(|(_, _, zone)| zone.image.0 != NotWp && zone.image != (Empty, 0));
        let entry = |(volume, zone, state): (VolumeId, u32, &Zone)| {
            let (condition, wp) = state.image;
            ZoneChange { volume, zone, condition, wp: Sectors(wp) }
        };
        known.map(entry).collect()
    }

    /// The records that no durable image has.
    pub fn later(&self, records: &[(u64, ZoneChange)]) -> Vec<(u64, ZoneChange)> {
        records.iter().filter(|(number, _)| *number > self.sequence).copied().collect()
    }

    /// Says whether the durable image and the later records give the zones.
    pub fn check_replay(&self, records: &[(u64, ZoneChange)]) -> Result<(), String> {
        let (image, later) = (self.image(), self.later(records));
        let replayed: Vec<&ZoneChange> = image.iter().chain(later.iter().map(|(_, change)| change)).collect();
        for (volume, number, zone) in self.each().filter(|(_, _, zone)| zone.condition != NotWp) {
            let mine = |change: &&ZoneChange| (change.volume, change.zone) == (volume, number);
            let found =
                replayed.iter().rev().copied().find(mine).map_or((Empty, 0), |c| (c.condition, c.wp.0));
            if found != zone.kept {
                return Err(format!(
                    "replay gives zone {number} of volume {} as {found:?}: {zone:?}",
                    volume.0
                ));
            }
        }
        Ok(())
    }

    /// The server died, or the host went down: what every zone is now. Says whether it may be that.
    pub fn begin_again(&mut self, power_loss: bool) -> Result<(), String> {
        self.clock += 1;
        let now = self.clock;
        self.commits.clear();
        if power_loss {
            self.sequence = 0;
        }
        for (&id, volume) in &mut self.volumes {
            let capacity = volume.geometry.capacity.0;
            let zones = (0..).zip(&mut volume.zones);
            for (number, zone) in zones.filter(|(_, zone): &(u32, _)| zone.condition != NotWp) {
                let kept = if power_loss { after_power_loss(zone.image) } else { zone.kept };
                let past = zone.past.iter().map(|(_, kept)| *kept);
                if power_loss && !past.chain([zone.kept]).any(|may| after_power_loss(may) == kept) {
                    return Err(format!(
                        "after a crash zone {number} of volume {} would be {kept:?}, and was made durable: {zone:?}",
                        id.0
                    ));
                }
                zone.begin_again(kept, now);
                if power_loss {
                    (zone.past, zone.image, zone.kept) = (Vec::new(), kept, zone.to_keep(capacity));
                }
            }
        }
        Ok(())
    }

    /// The power of a volume failed: takes its zones from a report and from the records, which have what a report leaves
    /// out. Says whether they may be that.
    pub fn power_cut(
        &mut self,
        id: VolumeId,
        report: &[ZoneDescriptor],
        records: &[(u64, ZoneChange)],
    ) -> Result<(), String> {
        self.clock += 1;
        let now = self.clock;
        let last = |number: u32| {
            let mine = records.iter().rev().find(|(_, change)| (change.volume, change.zone) == (id, number));
            mine.map(|(_, change)| (change.condition, change.wp.0))
        };
        let volume = self.volumes.get_mut(&id).expect("the caller looked it up");
        volume.changed = now;
        for (number, (zone, said)) in (0..).zip(volume.zones.iter_mut().zip(report)) {
            if zone.condition == NotWp {
                continue;
            }
            let kept = last(number).unwrap_or(zone.image);
            let mut may = zone.past.iter().map(|(_, kept)| *kept).chain([zone.kept]);
            let fits = said.condition == kept.0
                && (said.condition == Full || said.wp - said.start == Sectors(kept.1));
            if !fits || !may.any(|may| after_power_loss(may) == kept) {
                return Err(format!(
                    "zone {number} of volume {} is said to be {said:?}, recorded as {kept:?}: {zone:?}",
                    id.0
                ));
            }
            let resetting = zone.resetting;
            if zone.kept != kept {
                zone.past.push((now, zone.kept));
            }
            zone.begin_again(kept, now);
            (zone.kept, zone.resetting) = (kept, resetting);
        }
        Ok(())
    }

    /// Says whether a report of a volume from a zone on is what it has to be.
    pub fn check_report(&self, id: VolumeId, from: Sector, zones: &[ZoneDescriptor]) -> Result<(), String> {
        let volume = &self.volumes[&id];
        let ZoneGeometry { size, capacity, .. } = volume.geometry;
        let first = volume.place(from).0;
        if zones.is_empty() || zones.len() > volume.zones.len() - first {
            return Err(format!("a report of {} zones of volume {} from zone {first}", zones.len(), id.0));
        }
        for (number, said) in (first..).zip(zones) {
            let (zone, conventional) = (&volume.zones[number], volume.is_conventional(number));
            let start = number as u64 * size.0;
            let wp = start + if matches!(zone.condition, NotWp | Full) { size.0 } else { zone.wp };
            let expected = ZoneDescriptor {
                start: Sector(start),
                len: size,
                capacity: if conventional { size } else { capacity },
                wp: Sector(wp),
                kind: volume.geometry.kind_of(number as u32),
                condition: zone.condition,
            };
            if *said != expected {
                return Err(format!(
                    "zone {number} of volume {} is said to be {said:?} and is {zone:?}",
                    id.0
                ));
            }
        }
        Ok(())
    }
}
