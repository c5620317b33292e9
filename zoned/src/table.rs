//! The zones of one volume: their conditions, their write pointers, and the limits they share.

use crate::resources::{Resources, Room};
use crate::rules::{self, Needs};
use emulation::redo::ZoneChange;
use emulation::request::ZoneAction;
use emulation::zone::{ZoneCondition, ZoneDescriptor, ZoneFailure, ZoneGeometry, ZoneType};
use emulation::{BlkStatus, Sector, SectorRange, Sectors, VolumeId};
use std::collections::{BTreeMap, BTreeSet};

mod power;

use power::Dirty;
pub(crate) use power::{Back, Kept};

/// The zones of a volume. Offsets count from the start of their zone.
#[derive(Debug)]
pub(crate) struct Zones {
    volume: VolumeId,
    /// The generation of its first zones: no other volume of its number has it.
    born: u64,
    geometry: ZoneGeometry,
    zones: Vec<Zone>,
    resources: Resources,
    /// Implicitly opened zones, the one that was opened first in front.
    implicit: BTreeSet<(u64, u32)>,
    clock: u64,
    /// Zones being reset.
    resetting: u32,
    /// Zones recorded since the last snapshot, and those of the running commit.
    dirty: BTreeMap<u32, Dirty>,
    committing: BTreeMap<u32, Dirty>,
    #[cfg(feature = "canary")]
    pub(crate) canary: Option<crate::Canary>,
}

/// A zone.
#[derive(Clone, Debug)]
struct Zone {
    condition: ZoneCondition,
    /// Where the next write goes: behind every write that was let in.
    wp: Sectors,
    /// The end of the highest write that is finished.
    written: Sectors,
    generation: Generation,
    /// It is being reset: what changes it has to wait.
    resetting: bool,
    /// When it was opened implicitly.
    opened: u64,
    /// What was recorded of it last.
    recorded: (ZoneCondition, Sectors),
}

/// Which life of a zone it is; numbers never come back, not with another volume either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    /// Ends with a reset, or when the zone goes offline: what was to be copied from it is gone.
    pub(crate) content: u64,
    /// Ends with these, a finish, or when the zone becomes read-only: no write that began before may end well.
    pub(crate) write: u64,
}

/// A part of a zone that a write was let into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) volume: VolumeId,
    pub(crate) zone: u32,
    start: Sectors,
    end: Sectors,
    /// The write generation.
    generation: u64,
    /// The condition that the write found.
    before: ZoneCondition,
}

impl Reservation {
    pub(crate) fn len(&self) -> Sectors {
        self.end - self.start
    }
}

impl Zones {
    /// The zones of a new volume of so many sectors.
    pub(crate) fn new(volume: VolumeId, geometry: ZoneGeometry, sectors: Sectors, generation: u64) -> Self {
        let generation = Generation { content: generation, write: generation };
        let zone = |index| {
            let condition = match geometry.kind_of(index) {
                ZoneType::Conventional => ZoneCondition::NotWp,
                ZoneType::SeqwriteReq => ZoneCondition::Empty,
            };
            let (wp, written) = (Sectors::ZERO, Sectors::ZERO);
            Zone {
                condition,
                wp,
                written,
                generation,
                resetting: false,
                opened: 0,
                recorded: (condition, written),
            }
        };
        Self {
            volume,
            born: generation.write,
            geometry,
            zones: (0..geometry.zones(sectors)).map(zone).collect(),
            resources: Resources::new(&geometry),
            implicit: BTreeSet::new(),
            clock: 0,
            resetting: 0,
            dirty: BTreeMap::new(),
            committing: BTreeMap::new(),
            #[cfg(feature = "canary")]
            canary: None,
        }
    }

    /// Takes a zone as it was recorded; `fresh`: no commit has it. Fails on one that is none of this volume's
    /// sequential zones, or could not be as it is said to be.
    pub(crate) fn adopt(&mut self, change: &ZoneChange, fresh: bool) -> Result<(), ()> {
        let (zone, empty) = (change.zone, change.wp.is_zero());
        let touched = match change.condition {
            ZoneCondition::NotWp | ZoneCondition::ImpOpen => return Err(()),
            ZoneCondition::Empty => empty,
            ZoneCondition::Closed => !empty,
            ZoneCondition::ExpOpen
            | ZoneCondition::Readonly
            | ZoneCondition::Full
            | ZoneCondition::Offline => true,
        };
        let sequential = (self.geometry.conventional..self.count()).contains(&zone);
        if !touched || !sequential || change.wp > self.geometry.capacity {
            return Err(());
        }
        self.change(zone, change.condition);
        let state = self.zone_mut(zone);
        (state.wp, state.written) = (change.wp, change.wp);
        let was = std::mem::replace(&mut state.recorded, (change.condition, change.wp));
        if fresh {
            self.dirty.entry(zone).or_insert(Dirty::new(was)).changed(was, (change.condition, change.wp));
        }
        Ok(())
    }

    pub(crate) fn born(&self) -> u64 {
        self.born
    }

    pub(crate) fn geometry(&self) -> &ZoneGeometry {
        &self.geometry
    }

    pub(crate) fn resources(&self) -> Resources {
        self.resources
    }

    pub(crate) fn condition(&self, zone: u32) -> ZoneCondition {
        self.zone(zone).condition
    }

    /// The life of a zone, if the volume has the zone.
    pub(crate) fn generation(&self, zone: u32) -> Option<Generation> {
        self.zones.get(zone as usize).map(|zone| zone.generation)
    }

    /// The write pointer of a zone, from its start.
    pub(crate) fn wp(&self, zone: u32) -> Sectors {
        self.zone(zone).wp
    }

    /// True while a zone is being reset, or any with `None`.
    pub(crate) fn is_resetting(&self, zone: Option<u32>) -> bool {
        zone.map_or(self.resetting > 0, |zone| self.zone(zone).resetting)
    }

    /// A sector as a zone and an offset in it.
    pub(crate) fn place(&self, sector: Sector) -> (u32, Sectors) {
        let zone = self.geometry.zone_of(sector);
        (zone, sector - self.geometry.start_of(zone))
    }

    /// The zones that a range, which is not empty, lies in.
    pub(crate) fn zones_of(&self, range: SectorRange) -> std::ops::RangeInclusive<u32> {
        let last = Sector(range.end().0 - 1);
        self.geometry.zone_of(range.start)..=self.geometry.zone_of(last)
    }

    /// The sectors of a zone, those beyond its capacity included.
    pub(crate) fn range_of(&self, zone: u32) -> SectorRange {
        SectorRange { start: self.geometry.start_of(zone), len: self.geometry.size }
    }

    /// Every sequential zone that a reset of all zones resets.
    pub(crate) fn to_reset(&self) -> Vec<u32> {
        (self.geometry.conventional..self.count())
            .filter(|&zone| rules::reset_all(self.condition(zone)))
            .collect()
    }

    /// Refuses a read that touches an offline zone.
    pub(crate) fn admit_read(&self, range: SectorRange) -> Result<(), BlkStatus> {
        #[cfg(feature = "canary")]
        if self.canary == Some(crate::Canary::OfflineReadable) {
            return Ok(());
        }
        self.zones_of(range).try_for_each(|zone| rules::read(self.condition(zone)))
    }

    /// Refuses a change of conventional zones that touches a sequential one.
    pub(crate) fn admit_conventional(&self, range: SectorRange) -> Result<(), BlkStatus> {
        match self.geometry.kind_of(*self.zones_of(range).end()) {
            ZoneType::Conventional => Ok(()),
            ZoneType::SeqwriteReq => Err(BlkStatus::ZoneBoundary),
        }
    }

    /// Says what a write to a sequential zone needs and leaves, when the zone is in this state.
    pub(crate) fn admit_write(
        &self,
        (condition, wp): (ZoneCondition, Sectors),
        offset: Sectors,
        len: Sectors,
    ) -> Result<(ZoneCondition, Needs), BlkStatus> {
        let opened = rules::write(condition)?;
        #[cfg(feature = "canary")]
        let (wp, len) = match self.canary {
            Some(crate::Canary::OffPointer) => (offset, len),
            Some(crate::Canary::BeyondCapacity) if (offset + len) <= self.geometry.size => {
                (wp, Sectors::ZERO)
            }
            _ => (wp, len),
        };
        if offset != wp {
            return Err(BlkStatus::ZoneInvalidWrite);
        }
        if offset + len > self.geometry.capacity { Err(BlkStatus::ZoneBoundary) } else { Ok(opened) }
    }

    /// Lets a write in: the pointer moves behind it.
    pub(crate) fn reserve(
        &mut self,
        zone: u32,
        offset: Sectors,
        len: Sectors,
    ) -> Result<Reservation, BlkStatus> {
        let before = self.condition(zone);
        let (after, needs) = self.admit_write((before, self.wp(zone)), offset, len)?;
        self.make_room(needs)?;
        self.change(zone, after);
        let volume = self.volume;
        let state = self.zone_mut(zone);
        state.wp = offset + len;
        let generation = state.generation.write;
        Ok(Reservation { volume, zone, start: offset, end: state.wp, generation, before })
    }

    /// True when the zone still lives the life in which the write was let in.
    pub(crate) fn is_fresh(&self, reservation: &Reservation) -> bool {
        #[cfg(feature = "canary")]
        if self.canary == Some(crate::Canary::StaleWrite) {
            return true;
        }
        self.generation(reservation.zone).is_some_and(|life| life.write == reservation.generation)
    }

    /// What a write put into a zone counts from now on, though the write may go on or fail.
    pub(crate) fn written(&mut self, reservation: &Reservation) {
        if self.is_fresh(reservation) {
            let state = self.zone_mut(reservation.zone);
            state.written = state.written.max(reservation.end);
        }
    }

    /// A write is over, `done` sectors of it finished. What is not gives the pointer and the condition back, unless
    /// something lies above it.
    pub(crate) fn settle(&mut self, reservation: &Reservation, done: Sectors) {
        if !self.is_fresh(reservation) {
            return;
        }
        let &Reservation { zone, start, end, before, .. } = reservation;
        let capacity = self.geometry.capacity;
        let finished = start + done;
        #[cfg(feature = "canary")]
        let (end, finished) = match self.canary {
            Some(crate::Canary::PointerKept) => (end, end),
            Some(crate::Canary::GivenBackUnder) => (self.wp(zone).max(end), finished),
            _ => (end, finished),
        };
        let state = self.zone_mut(zone);
        if finished < end && state.wp == end {
            state.wp = finished;
            state.written = state.written.min(finished);
            let opened = matches!(before, ZoneCondition::Empty | ZoneCondition::Closed);
            if opened && done.is_zero() && state.condition == ZoneCondition::ImpOpen {
                self.change(zone, before);
            }
        }
        let state = self.zone_mut(zone);
        if !done.is_zero() {
            state.written = state.written.max(finished);
        }
        let untouched = state.wp.is_zero();
        let filled = !done.is_zero() && finished == capacity;
        match state.condition {
            ZoneCondition::ImpOpen | ZoneCondition::Closed if untouched => {
                self.change(zone, ZoneCondition::Empty);
            }
            ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Closed if filled => {
                self.change(zone, ZoneCondition::Full);
            }
            ZoneCondition::NotWp
            | ZoneCondition::Empty
            | ZoneCondition::ImpOpen
            | ZoneCondition::ExpOpen
            | ZoneCondition::Closed
            | ZoneCondition::Readonly
            | ZoneCondition::Full
            | ZoneCondition::Offline => {}
        }
    }

    /// Opens, closes or finishes a zone. `generation`: the next.
    pub(crate) fn manage(&mut self, zone: u32, action: ZoneAction, generation: u64) -> Result<(), BlkStatus> {
        let from = self.condition(zone);
        let to = match action {
            ZoneAction::Open => {
                let (to, needs) = rules::open(from)?;
                self.make_room(needs)?;
                to
            }
            ZoneAction::Close => rules::close(from, self.wp(zone).is_zero())?,
            ZoneAction::Finish => {
                let to = rules::finish(from)?;
                if from != to {
                    self.zone_mut(zone).generation.write = generation;
                }
                to
            }
            ZoneAction::Reset => unreachable!("a reset is a chain"),
        };
        self.change(zone, to);
        Ok(())
    }

    /// A reset begins: what was begun before ends here, what comes later waits. `generation`: the next.
    pub(crate) fn begin_reset(&mut self, zone: u32, generation: u64) {
        self.resetting += 1;
        let state = self.zone_mut(zone);
        assert!(!state.resetting, "a zone is reset once at a time");
        state.resetting = true;
        state.generation = Generation { content: generation, write: generation };
    }

    /// The contents of a zone that is being reset are gone, if it did not fail meanwhile.
    pub(crate) fn reset(&mut self, zone: u32) -> Result<(), BlkStatus> {
        let to = rules::reset(self.condition(zone))?;
        self.change(zone, to);
        let state = self.zone_mut(zone);
        (state.wp, state.written) = (Sectors::ZERO, Sectors::ZERO);
        Ok(())
    }

    /// A reset is over.
    pub(crate) fn end_reset(&mut self, zone: u32) {
        self.resetting -= 1;
        self.zone_mut(zone).resetting = false;
    }

    /// A zone fails. `generation`: the next.
    pub(crate) fn fail(&mut self, zone: u32, failure: ZoneFailure, generation: u64) {
        let from = self.condition(zone);
        let to = match failure {
            ZoneFailure::Readonly => rules::fail_readonly(from),
            ZoneFailure::Offline => rules::fail_offline(from),
        };
        if from == to {
            return;
        }
        self.change(zone, to);
        let old = &mut self.zone_mut(zone).generation;
        old.write = generation;
        match failure {
            ZoneFailure::Readonly => {}
            ZoneFailure::Offline => old.content = generation,
        }
    }

    /// What is to be recorded of a zone since it was recorded last.
    pub(crate) fn record(&mut self, zone: u32) -> Option<ZoneChange> {
        let (volume, capacity) = (self.volume, self.geometry.capacity);
        let state = self.zone_mut(zone);
        let condition = match state.condition {
            ZoneCondition::Empty
            | ZoneCondition::ImpOpen
            | ZoneCondition::ExpOpen
            | ZoneCondition::Closed
                if state.written == capacity =>
            {
                ZoneCondition::Full
            }
            ZoneCondition::Empty | ZoneCondition::ImpOpen | ZoneCondition::Closed => {
                if state.written.is_zero() { ZoneCondition::Empty } else { ZoneCondition::Closed }
            }
            ZoneCondition::NotWp
            | ZoneCondition::ExpOpen
            | ZoneCondition::Readonly
            | ZoneCondition::Full
            | ZoneCondition::Offline => state.condition,
        };
        let wp = state.written;
        if state.recorded == (condition, wp) {
            return None;
        }
        let was = std::mem::replace(&mut state.recorded, (condition, wp));
        self.dirty.entry(zone).or_insert(Dirty::new(was)).changed(was, (condition, wp));
        Some(ZoneChange { volume, zone, condition, wp })
    }

    /// A commit begins: the zones that it has to make durable.
    pub(crate) fn snapshot(&mut self) -> Vec<ZoneChange> {
        self.committing = std::mem::take(&mut self.dirty);
        let change = |&zone: &u32| {
            let (condition, wp) = self.zone(zone).recorded;
            ZoneChange { volume: self.volume, zone, condition, wp }
        };
        self.committing.keys().map(change).collect()
    }

    /// The commit is over.
    pub(crate) fn committed(&mut self, durable: bool) {
        for (zone, mut older) in std::mem::take(&mut self.committing) {
            if !durable {
                older.extend(self.dirty.remove(&zone));
                self.dirty.insert(zone, older);
            }
        }
    }

    /// Describes at most `max` zones from the one that has this sector on.
    pub(crate) fn report(&self, from: Sector, max: u32) -> Vec<ZoneDescriptor> {
        let first = self.geometry.zone_of(from);
        let last = first.saturating_add(max).min(self.count());
        (first..last).map(|zone| self.describe(zone)).collect()
    }

    fn describe(&self, zone: u32) -> ZoneDescriptor {
        let ZoneGeometry { size, capacity, .. } = self.geometry;
        let (start, kind) = (self.geometry.start_of(zone), self.geometry.kind_of(zone));
        let state = self.zone(zone);
        let wp = match state.condition {
            ZoneCondition::NotWp | ZoneCondition::Full => size,
            ZoneCondition::Empty
            | ZoneCondition::ImpOpen
            | ZoneCondition::ExpOpen
            | ZoneCondition::Closed
            | ZoneCondition::Readonly
            | ZoneCondition::Offline => state.wp,
        };
        let capacity = match kind {
            ZoneType::Conventional => size,
            ZoneType::SeqwriteReq => capacity,
        };
        ZoneDescriptor { start, len: size, capacity, wp: start + wp, kind, condition: state.condition }
    }

    /// Makes sure that a zone can be opened, by closing one that was opened implicitly if need be.
    fn make_room(&mut self, needs: Needs) -> Result<(), BlkStatus> {
        #[cfg(feature = "canary")]
        let needs = match self.canary {
            Some(crate::Canary::OpenLimitIgnored) if self.resources.room(Needs::Open) != Ok(Room::Free) => {
                Needs::Nothing
            }
            Some(crate::Canary::ActiveLimitIgnored) if needs == Needs::ActiveAndOpen => Needs::Open,
            _ => needs,
        };
        match self.resources.room(needs)? {
            Room::Free => {}
            Room::CloseOne => {
                let victim = self.implicit.first();
                #[cfg(feature = "canary")]
                let victim = if self.canary == Some(crate::Canary::ClosesNewest) {
                    self.implicit.last()
                } else {
                    victim
                };
                let &(_, victim) = victim.expect("the counts say that there is one");
                self.change(victim, ZoneCondition::Closed);
            }
        }
        Ok(())
    }

    fn change(&mut self, zone: u32, to: ZoneCondition) {
        let from = self.condition(zone);
        if from == to {
            return;
        }
        self.resources.change(from, to);
        if from == ZoneCondition::ImpOpen {
            let opened = self.zone(zone).opened;
            self.implicit.remove(&(opened, zone));
        }
        if to == ZoneCondition::ImpOpen {
            self.clock += 1;
            self.zone_mut(zone).opened = self.clock;
            self.implicit.insert((self.clock, zone));
        }
        self.zone_mut(zone).condition = to;
    }

    fn count(&self) -> u32 {
        u32::try_from(self.zones.len()).expect("zones are numbered by 32 bits")
    }

    fn zone(&self, zone: u32) -> &Zone {
        &self.zones[zone as usize]
    }

    fn zone_mut(&mut self, zone: u32) -> &mut Zone {
        &mut self.zones[zone as usize]
    }

    /// Checks every invariant of the zones.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut resources = Resources::new(&self.geometry);
        for (zone, state) in (0..).zip(&self.zones) {
            let wrong = |what: &str| Err(format!("zone {zone} of {:?}, {what}: {state:?}", self.volume));
            let conventional = self.geometry.kind_of(zone) == ZoneType::Conventional;
            resources.change(ZoneCondition::Empty, state.condition);
            if conventional != (state.condition == ZoneCondition::NotWp) {
                return wrong("its kind");
            }
            if state.written > state.wp || state.wp > self.geometry.capacity {
                return wrong("its pointer");
            }
            let listed = self.implicit.contains(&(state.opened, zone));
            if listed != (state.condition == ZoneCondition::ImpOpen) {
                return wrong("the list of implicitly opened zones");
            }
            let touched = !state.wp.is_zero();
            match state.condition {
                ZoneCondition::Empty if touched => return wrong("empty"),
                ZoneCondition::ImpOpen | ZoneCondition::Closed if !touched => return wrong("active"),
                ZoneCondition::NotWp
                | ZoneCondition::Empty
                | ZoneCondition::ImpOpen
                | ZoneCondition::ExpOpen
                | ZoneCondition::Closed
                | ZoneCondition::Readonly
                | ZoneCondition::Full
                | ZoneCondition::Offline => {}
            }
        }
        let resetting = self.zones.iter().filter(|state| state.resetting).count();
        if resetting != self.resetting as usize {
            return Err(format!("{resetting} zones are reset, {} counted", self.resetting));
        }
        if resources != self.resources || !resources.within_limits() {
            return Err(format!("the zones give {resources:?}, counted {:?}", self.resources));
        }
        Ok(())
    }
}
