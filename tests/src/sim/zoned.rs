//! What the simulation does with zones: it tells their model of requests, plans and answers as they come, and holds
//! the device to what the model knows.

use super::admission;
use super::workload::{Target, targets};
use super::world::{Live, World};
use super::zones::Place;
use emulation::request::ZoneAction;
use emulation::zone::{ZoneCondition, ZoneDescriptor, ZoneFailure};
use emulation::{
    BlkStatus, Completion, Control, Flags, Next, Op, Plan, Request, RequestId, Sector, SectorRange, Sectors,
    VolumeId,
};
use std::collections::BTreeMap;

/// The parts of a reset have numbers of their own in the oracle.
const PART: u64 = 1 << 40;

/// What a live request does to zones.
#[derive(Debug)]
pub(super) enum Doing {
    /// It waits for a reset, and was told so.
    Waits {
        told: bool,
    },
    Write {
        place: Place,
        settled: bool,
        appended_at: Option<Sector>,
    },
    Copy(Copying),
    Reset {
        volume: VolumeId,
        born: u64,
        zones: Vec<usize>,
        done: usize,
    },
    /// It waits for nothing, and this was the time when it began.
    Other {
        begun: u64,
    },
}

#[derive(Debug)]
pub(super) struct Copying {
    /// The lives that its zones lived when it began.
    lives: BTreeMap<(VolumeId, usize), (u64, u64)>,
    /// The link under way.
    link: Option<Place>,
    /// The links that are done.
    places: Vec<Place>,
    finished: u64,
    appended_at: Option<Sector>,
}

impl World<'_> {
    /// Looks at a request that the limits let in: says whether it waits, and adds why it has to be refused.
    pub(super) fn look_at_zones(&self, request: &Request, refusal: &mut Vec<BlkStatus>) -> bool {
        refusal.extend(self.zones.misshapen(request));
        if refusal.iter().any(|&status| status != BlkStatus::CopyNotFast) {
            return false;
        }
        if self.must_wait(request) {
            refusal.clear();
            return true;
        }
        refusal.extend(self.zones.refusal(request));
        refusal.extend(self.slow_append(request));
        false
    }

    /// Why a copy that moves no bytes cannot be appended where the pointer is.
    fn slow_append(&self, request: &Request) -> Option<BlkStatus> {
        let mut placed = request.clone();
        self.zones.put(&mut placed)?;
        let reasons = admission::reasons(&placed, &self.volumes, self.options.stack);
        reasons.into_iter().find(|status| *status == BlkStatus::CopyNotFast)
    }

    /// True when a request waits for a reset of a zone that it changes, or behind one of all zones.
    fn must_wait(&self, request: &Request) -> bool {
        let changes = self.zones.changes(request);
        let Some(volume) = self.zones.volumes.get(&request.volume).filter(|_| !changes.is_empty()) else {
            return false;
        };
        let ahead = self.waiting.iter().take_while(|id| **id != request.id).map(|id| &self.live[id].request);
        changes.iter().any(|&zone| volume.zones[zone].resetting)
            || ahead.into_iter().any(|other| other.volume == request.volume && other.op == Op::ZoneResetAll)
    }

    /// A request is let in. Gives what it changes, as the oracle is told.
    pub(super) fn let_in(&mut self, request: &mut Request) -> Vec<Request> {
        let id = request.id;
        let appended_at = self.zones.put(request);
        let zoned = self.zones.volumes.contains_key(&request.volume);
        let doing = match &request.op {
            Op::Write(range) | Op::WriteZeroes(range) => {
                let mut place = self.zones.reserve(request.volume, *range).expect("it is not refused");
                if let (Some(place), Op::WriteZeroes(_)) = (&mut place, &request.op) {
                    self.zones.written(place);
                    // With its data this is durable, not what comes behind it.
                    place.settled = self.zones.clock;
                }
                place.map(|place| Doing::Write { place, settled: false, appended_at })
            }
            Op::Copy(command) => {
                let ranges = command.segments.iter().flat_map(|segment| {
                    [(segment.source_volume, segment.source), (request.volume, segment.destination_range())]
                });
                let lives = ranges.flat_map(|(volume, range)| self.zones.lives(volume, range)).collect();
                let (link, places) = (None, Vec::new());
                Some(Doing::Copy(Copying { lives, link, places, finished: 0, appended_at }))
            }
            Op::ZoneMgmt { zone, action: ZoneAction::Reset } if zoned => {
                let zone = self.zones.volumes[&request.volume].place(*zone).0;
                return self.begin_resets(request, vec![zone]);
            }
            Op::ZoneResetAll if zoned => {
                let zones = 0..self.zones.volumes[&request.volume].zones.len();
                return self.begin_resets(request, zones.collect());
            }
            Op::ZoneMgmt { zone, action } if zoned => {
                self.zones.act(request.volume, *zone, *action);
                None
            }
            Op::Read(_)
            | Op::Flush
            | Op::Discard(_)
            | Op::ZoneMgmt { .. }
            | Op::ZoneResetAll
            | Op::ReportZones { .. } => None,
        };
        self.doing.insert(id, doing.unwrap_or(Doing::Other { begun: self.zones.clock }));
        vec![request.clone()]
    }

    fn begin_resets(&mut self, request: &Request, mut zones: Vec<usize>) -> Vec<Request> {
        let volume = request.volume;
        let its = &self.zones.volumes[&volume];
        zones.retain(|&zone| {
            use ZoneCondition::{Closed, ExpOpen, Full, ImpOpen};
            matches!(its.zones[zone].condition, ImpOpen | ExpOpen | Closed | Full)
        });
        let (born, len) = (its.born, its.geometry.size);
        let part = |&zone: &usize| Request {
            id: part(request.id, zone),
            volume,
            op: Op::Discard(SectorRange { start: Sector(zone as u64 * len.0), len }),
            flags: Flags::NONE,
        };
        let parts = zones.iter().map(part).collect();
        zones.iter().for_each(|&zone| self.zones.begin_reset(volume, zone));
        self.doing.insert(request.id, Doing::Reset { volume, born, zones, done: 0 });
        parts
    }

    /// The device names a request. What waited is let in by that, or was ended.
    pub(super) fn named(&mut self, id: RequestId, next: &Next) -> Result<(), String> {
        if let Some(Doing::Waits { told }) = self.doing.get_mut(&id) {
            match next {
                Next::Wait if !std::mem::replace(told, true) => return Ok(()),
                Next::Done(end) if self.live[&id].ends_early(end) => {
                    self.waiting.retain(|other| *other != id);
                    self.doing.remove(&id);
                    let live = self.live.get_mut(&id).expect("named");
                    // Whether a power cut or a removal found it waiting still is not told.
                    (live.refusal, live.struck) = (vec![end.status], live.struck || live.orphan);
                }
                Next::Wait | Next::Done(_) | Next::Run(_) => self.goes_on(id)?,
            }
        }
        match next {
            Next::Run(plan) => self.goes_to(id, plan),
            Next::Wait => self.waits_on(id),
            Next::Done(_) => Ok(()),
        }
    }

    /// A reset of several zones waits in the middle. Nobody else changes the zones that it is not done with.
    fn waits_on(&mut self, id: RequestId) -> Result<(), String> {
        if let Some(&Doing::Reset { volume, born, .. }) = self.doing.get(&id)
            && self.zones.volumes.get(&volume).is_some_and(|its| its.born == born)
        {
            let report = self.report_zones(volume)?;
            self.adopt_resets(volume, &report);
        }
        Ok(())
    }

    /// A request that waited for zones waits no more.
    fn goes_on(&mut self, id: RequestId) -> Result<(), String> {
        let mut request = self.live[&id].request.clone();
        if self.must_wait(&request) {
            return Err(format!("request {} goes on while its zone is resetting", id.0));
        }
        self.waiting.retain(|other| *other != id);
        let mut refusal = admission::reasons(&request, &self.volumes, self.options.stack);
        refusal.retain(|status| *status == BlkStatus::CopyNotFast);
        refusal.extend(self.zones.refusal(&request));
        refusal.extend(self.slow_append(&request));
        if refusal.is_empty() {
            for effect in self.let_in(&mut request) {
                self.oracle.begin(&effect);
                let mine = targets(&effect);
                for other in self.live.values_mut().filter(|other| other.alone) {
                    other.alone = !targets(&other.request).iter().any(|a| mine.iter().any(|b| a.near(b)));
                }
                self.targets.extend(mine.into_iter().map(|target: Target| (id, target)));
            }
        } else {
            self.doing.remove(&id);
        }
        let live = self.live.get_mut(&id).expect("named");
        (live.request, live.refusal) = (request, refusal);
        Ok(())
    }

    /// A plan of a request is handed out.
    fn goes_to(&mut self, id: RequestId, plan: &Plan) -> Result<(), String> {
        let Some(range) = plan.link.destination else { return Ok(()) };
        if self.live.get(&id).is_some_and(|live| live.orphan) {
            // It began before a power cut, or its volume is gone: nothing comes of it.
            return Ok(());
        }
        match self.doing.get_mut(&id) {
            Some(Doing::Write { place, .. }) if !self.zones.is_fresh(place) => {
                Err(format!("request {} writes to a zone of another life", id.0))
            }
            Some(Doing::Copy(copy)) => {
                let mut ranges = vec![(plan.link.volume, range)];
                ranges.extend(plan.link.source);
                if ranges.iter().any(|(volume, range)| !is_same(&self.zones, copy, *volume, *range, plan)) {
                    return Err(format!("request {} goes on with a zone of another life", id.0));
                }
                copy.link = self.zones.reserve(plan.link.volume, range).map_err(|status| {
                    format!("request {} goes on, and its zone does not take it: {status:?}", id.0)
                })?;
                Ok(())
            }
            Some(Doing::Reset { volume, born, zones, done }) => {
                let Some(its) = self.zones.volumes.get(volume).filter(|its| its.born == *born) else {
                    return Ok(());
                };
                let zone = its.place(range.start).0;
                while zones.get(*done).is_some_and(|&next| next != zone) {
                    self.zones.reset(*volume, zones[*done]);
                    *done += 1;
                }
                Ok(())
            }
            Some(Doing::Waits { .. } | Doing::Write { .. } | Doing::Other { .. }) | None => Ok(()),
        }
    }

    /// A plan was executed, wholly and well, and is about to go back.
    pub(super) fn executed(&mut self, plan: &Plan) {
        let Some(range) = plan.link.destination else { return };
        let orphan = self.live.get(&plan.request).is_some_and(|live| live.orphan);
        match self.doing.get_mut(&plan.request) {
            Some(Doing::Write { place, settled, .. }) => {
                if range.len.0 == place.sectors() && self.zones.is_fresh(place) {
                    *settled = true;
                    place.settled = self.zones.settle(place, place.sectors());
                }
            }
            Some(Doing::Copy(copy)) => {
                let mut ranges = vec![(plan.link.volume, range)];
                ranges.extend(plan.link.source);
                let same = !orphan
                    && ranges.iter().all(|(volume, range)| is_same(&self.zones, copy, *volume, *range, plan));
                if same && let Some(mut place) = copy.link.take() {
                    place.settled = self.zones.settle(&place, place.sectors());
                    copy.finished += place.sectors();
                    copy.places.push(place);
                } else if same {
                    copy.finished += range.len.0;
                }
            }
            Some(Doing::Reset { volume, born, zones, done }) => {
                let its = self.zones.volumes.get(volume).filter(|its| its.born == *born);
                let last =
                    its.is_some_and(|its| !orphan && range.end().0.is_multiple_of(its.geometry.size.0));
                if last && let Some(&zone) = zones.get(*done) {
                    *done += usize::from(self.zones.reset(*volume, zone));
                }
            }
            Some(Doing::Waits { .. } | Doing::Other { .. }) | None => {}
        }
    }

    /// True when the zones are why a request failed with this status.
    pub(super) fn zones_excuse(&self, live: &Live, status: BlkStatus) -> bool {
        match self.doing.get(&live.request.id) {
            Some(Doing::Write { place, .. }) => status == BlkStatus::IoErr && !self.zones.is_fresh(place),
            Some(Doing::Copy(copy)) => {
                let stale = copy.lives.iter().any(|((volume, zone), life)| {
                    self.zones.zone(*volume, *zone).is_none_or(|zone| (zone.content, zone.write) != *life)
                });
                (stale && status == BlkStatus::IoErr) || self.zones_end(live, copy, status)
            }
            Some(Doing::Reset { volume, zones, done, .. }) => {
                let failed = |zone: &usize| {
                    use ZoneCondition::{Offline, Readonly};
                    let zone = self.zones.zone(*volume, *zone);
                    zone.is_none_or(|zone| matches!(zone.condition, Readonly | Offline))
                };
                status == BlkStatus::ZoneTransition && zones[*done..].iter().any(failed)
            }
            Some(Doing::Waits { .. } | Doing::Other { .. }) | None => false,
        }
    }

    /// True when the zones may have ended a copy with this status: they do not take what comes next of it, or something
    /// else of this call came in between, in an order that is not told.
    fn zones_end(&self, live: &Live, copy: &Copying, status: BlkStatus) -> bool {
        use BlkStatus::{ZoneActiveResource, ZoneBoundary, ZoneFull, ZoneInvalidWrite};
        use BlkStatus::{ZoneOffline, ZoneOpenResource, ZoneReadonly};
        let Op::Copy(command) = &live.request.op else { return false };
        let of_zones = [ZoneActiveResource, ZoneBoundary, ZoneFull, ZoneInvalidWrite].into_iter().chain([
            ZoneOffline,
            ZoneOpenResource,
            ZoneReadonly,
        ]);
        if !of_zones.into_iter().any(|other| other == status) {
            return false;
        }
        // It was answered before what orphaned it, in the same call.
        let Some(volume) = self.zones.volumes.get(&live.request.volume).filter(|_| !live.orphan) else {
            return live.orphan;
        };
        let mut left = copy.finished;
        let next = command.segments.iter().find(|segment| {
            let here = left < segment.source.len.0;
            left -= if here { 0 } else { segment.source.len.0 };
            here
        });
        let Some(segment) = next else { return false };
        let (zone, offset) = volume.place(segment.destination + Sectors(left));
        !volume.is_conventional(zone)
            && (volume.changed > self.zones.call || volume.refusal(zone, offset, 1).is_some())
    }

    /// A request is answered. Gives how much of it is there exactly, where that is known.
    pub(super) fn done(
        &mut self,
        id: RequestId,
        live: &Live,
        completion: &Completion,
    ) -> Result<Option<u64>, String> {
        let ok = completion.status.is_ok();
        let bytes = completion.bytes.whole_sectors().0;
        let fua = ok && live.request.flags.has(Flags::FUA);
        let (volume, mut exactly, mut appended_at) = (live.request.volume, None, None);
        match self.doing.remove(&id) {
            Some(Doing::Write { mut place, settled, appended_at: at }) => {
                let fresh = self.zones.is_fresh(&place);
                if ok && !settled && !fresh {
                    return Err("a write ends well in a zone of another life".into());
                }
                if !settled {
                    let now = self.zones.settle(&place, bytes);
                    place.settled = if place.settled == 0 { now } else { place.settled };
                }
                let there = if settled { place.sectors() } else { bytes };
                exactly = (!ok).then_some(if settled || fresh { there } else { 0 });
                appended_at = at.filter(|_| ok);
                if fua {
                    self.zones.made_durable(volume, Some(&place), place.settled);
                }
            }
            Some(Doing::Copy(copy)) => {
                if let Some(place) = copy.link {
                    self.zones.settle(&place, 0);
                }
                let told =
                    bytes == copy.finished || (!ok && bytes == 0 && live.request.flags.has(Flags::FUA));
                let zoned = self.zones.volumes.contains_key(&volume) && !live.orphan;
                if zoned && !told {
                    return Err(format!(
                        "{bytes} sectors are said to be copied, and all but {} met zones of another life",
                        copy.finished
                    ));
                }
                exactly = (zoned && !ok).then_some(copy.finished);
                appended_at = copy.appended_at.filter(|_| bytes > 0);
                for place in copy.places.iter().filter(|_| fua) {
                    self.zones.made_durable(volume, Some(place), place.settled);
                }
            }
            Some(Doing::Reset { volume, born, zones, mut done }) => {
                if self.zones.volumes.get(&volume).is_some_and(|its| its.born == born) {
                    let mut failed = |zone: usize| !self.zones.reset(volume, zone);
                    if ok || completion.status == BlkStatus::ZoneTransition {
                        done += zones[done..].iter().copied().take_while(|zone| !failed(*zone)).count();
                    }
                    if ok && done < zones.len() {
                        return Err("a zone that failed is said to be reset".into());
                    }
                    zones.iter().for_each(|&zone| self.zones.end_reset(volume, zone));
                }
            }
            Some(Doing::Other { begun }) if ok && live.request.op == Op::Flush => {
                self.zones.made_durable(volume, None, begun);
            }
            Some(Doing::Waits { .. } | Doing::Other { .. }) | None => {}
        }
        if let Op::ReportZones { from, .. } = live.request.op
            && ok
        {
            self.zones.check_report(volume, from, &completion.zones)?;
        }
        if completion.appended_at != appended_at && !live.orphan {
            return Err(format!("it was appended at {appended_at:?}"));
        }
        Ok(exactly)
    }

    /// A reset of these zones is over, as the oracle is told.
    pub(super) fn end_parts(&mut self, id: RequestId, completion: &Completion) -> Result<bool, String> {
        let zones = match self.doing.get(&id) {
            Some(Doing::Reset { zones, .. }) => zones.clone(),
            _ => return Ok(false),
        };
        for zone in zones {
            self.oracle.complete(part(id, zone), completion, &[], None)?;
        }
        Ok(true)
    }

    /// Asks for all zones and compares.
    pub(super) fn check_zones(&mut self) -> Result<(), String> {
        for id in self.zones.volumes.keys().copied().collect::<Vec<_>>() {
            let report = self.report_zones(id)?;
            if report.len() != self.zones.volumes[&id].zones.len() {
                return Err(format!("a report of {} zones of volume {}", report.len(), id.0));
            }
            self.adopt_resets(id, &report);
            self.zones.check_report(id, Sector(0), &report)?;
        }
        Ok(())
    }

    fn report_zones(&mut self, id: VolumeId) -> Result<Vec<ZoneDescriptor>, String> {
        self.next_request += 1;
        let op = Op::ReportZones { from: Sector(0), max: u32::MAX };
        let request = Request { id: RequestId(self.next_request), volume: id, op, flags: Flags::NONE };
        if let Some(tally) = self.tallies.get_mut(&id) {
            tally.commands += 1;
        }
        let mut answers = self.pool.begin(self.now, request);
        match answers.pop() {
            Some((_, Next::Done(report))) if answers.is_empty() => Ok(report.zones),
            _ => Err(format!("a report of volume {} is not answered at once", id.0)),
        }
    }

    /// The power of a volume failed: its zones are what they were at some time since they were made durable.
    pub(super) fn zones_after_power_cut(&mut self, id: VolumeId) -> Result<(), String> {
        if !self.zones.volumes.contains_key(&id) {
            return Ok(());
        }
        let report = self.report_zones(id)?;
        self.adopt_resets(id, &report);
        self.zones
            .power_cut(id, &report, &self.log.records().zones)
            .and_then(|()| self.zones.check_report(id, Sector(0), &report))
            .map_err(|error| format!("power cut: {error}"))
    }

    /// Which zones of a reset of several are done by now is not told: a report tells.
    fn adopt_resets(&mut self, id: VolumeId, report: &[ZoneDescriptor]) {
        for doing in self.doing.values_mut() {
            let Doing::Reset { volume, born, zones, done } = doing else { continue };
            let is_empty =
                |zone: usize| report.get(zone).is_some_and(|zone| zone.condition == ZoneCondition::Empty);
            if *volume != id || self.zones.volumes[&id].born != *born {
                continue;
            }
            while zones.get(*done).is_some_and(|&zone| is_empty(zone)) {
                self.zones.reset(id, zones[*done]);
                *done += 1;
            }
        }
    }

    /// True while a reset is under way.
    pub(super) fn resets(&self) -> bool {
        self.doing.values().any(|doing| matches!(doing, Doing::Reset { .. }))
    }

    /// Contents of a volume while nothing is under way: above its pointer and beyond its capacity a zone is zeroes.
    pub(super) fn check_above(&self, id: VolumeId, values: &[u64]) -> Result<(), String> {
        let Some(volume) = self.zones.volumes.get(&id) else { return Ok(()) };
        for (number, contents) in values.chunks(volume.geometry.size.0 as usize).enumerate() {
            let zone = &volume.zones[number];
            let above = &contents[zone.wp as usize..];
            if !volume.is_conventional(number) && above.iter().any(|value| *value != 0) {
                return Err(format!("zone {number} of volume {} holds data above its pointer", id.0));
            }
        }
        Ok(())
    }

    /// Some zone fails.
    pub(super) fn fail_zone(&mut self) -> Result<(), String> {
        let zoned: Vec<VolumeId> = self.zones.volumes.keys().copied().collect();
        if zoned.is_empty() {
            return Ok(());
        }
        let id = self.prng.pick(&zoned);
        let volume = &self.zones.volumes[&id];
        let (zone, size) = (self.prng.index(volume.zones.len()), volume.geometry.size.0);
        let failure = self.prng.pick(&[ZoneFailure::Readonly, ZoneFailure::Offline]);
        self.trace.line(|| format!("zone {zone} of v{}: {failure:?}", id.0));
        self.zones.fail(id, zone, failure);
        let start = Sector(zone as u64 * size);
        self.call(|pool, now| pool.control(now, Control::FailZone(id, start, failure)))
    }
}

impl Live {
    /// True when a request that waited for zones may end like this.
    fn ends_early(&self, end: &Completion) -> bool {
        (end.status == BlkStatus::Aborted && self.aborted) || (self.orphan && !end.status.is_ok())
    }
}

fn part(id: RequestId, zone: usize) -> RequestId {
    RequestId(PART * (zone as u64 + 1) + id.0)
}

/// True when the zones of a range live the lives that they had when the copy began.
fn is_same(
    zones: &super::zones::Zones,
    copy: &Copying,
    volume: VolumeId,
    range: SectorRange,
    plan: &Plan,
) -> bool {
    let is_source = plan.link.source == Some((volume, range));
    zones.lives(volume, range).iter().all(|(zone, (content, write))| {
        copy.lives.get(zone).is_none_or(|life| if is_source { life.0 == *content } else { life.1 == *write })
    })
}
