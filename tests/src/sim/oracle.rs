//! What every sector may hold. For each sector the oracle keeps the *set* of values that it may hold now: those
//! of the changes that were answered last, and those of every change under way; for a copy any value that its
//! source could hold meanwhile. Reads and answers narrow the set. What left the set is kept with the time it
//! left, for reads that are under way and for what a crash may bring back.
//!
//! The oracle knows requests and answers only: no map, no plan, no block.

use super::changes::{Place, Value, ZEROES, changes, name, overlapped};
use emulation::{BlkStatus, Completion, Flags, Op, Request, RequestId, SectorRange, VolumeId};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;

type Values = SmallVec<[u64; 4]>;
/// Places looked at, each with the time since which.
type Seen = SmallVec<[(Place, u64); 4]>;
const UNDER_WAY: u64 = u64::MAX;
/// What an admitted request and a check are sure of.
const THERE: &str = "the volume is there";
/// Stands for values too many to follow.
const ANYTHING: u64 = u64::MAX - 3;
/// More values than this make a sector crowded.
const PRESENT_MAX: usize = 16;
const PAST_MAX: usize = 128;
/// The most places followed from copy to copy.
const PLACES_MAX: usize = 32;

/// A value that a sector may hold now.
#[derive(Clone, Copy, Debug)]
struct Present {
    value: Value,
    /// Whose, while it is under way.
    id: RequestId,
    /// From this time on it may be there.
    from: u64,
    /// Answered at this time: whatever begins later replaces it.
    done: u64,
}

/// A value that a sector held at most until a time.
#[derive(Clone, Copy, Debug)]
struct Past {
    value: u64,
    done: u64,
    until: u64,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    present: SmallVec<[Present; 1]>,
    /// In the order of `until`.
    past: Vec<Past>,
    /// A durable change began at this time: what was answered before cannot come back after a crash.
    durable: u64,
}

#[derive(Debug)]
struct Volume {
    cells: Vec<Cell>,
    /// Everything was durable at this time: what was replaced before cannot come back after a crash.
    durable: u64,
}

#[derive(Debug)]
struct Live {
    request: Request,
    begun: u64,
    /// Its volume is gone or lost its power: nothing is expected of it.
    orphan: bool,
    /// Destination ranges of a copy that overlap another range of it: old data is as good there.
    overlapped: Vec<SectorRange>,
}

/// The oracle of a pool.
#[derive(Debug, Default)]
pub struct Oracle {
    clock: u64,
    volumes: Vec<Option<Volume>>,
    live: BTreeMap<RequestId, Live>,
    /// What was replaced may come back.
    crashes: bool,
    crowded: bool,
}

impl Oracle {
    /// An oracle of a pool without volumes; `crashes`: changes that are not flushed may be lost.
    pub fn new(crashes: bool) -> Self {
        let oracle = Self::default();
        Self { crashes, ..oracle }
    }

    /// A volume that reads as zeroes.
    pub fn add_volume(&mut self, id: VolumeId, sectors: u64) {
        self.set_volume(id, (0..sectors).map(|_| ZEROES));
    }

    /// A volume that certainly holds this, and whose past is over.
    pub fn set_volume(&mut self, id: VolumeId, values: impl Iterator<Item = u64>) {
        self.clock += 1;
        let done = self.clock;
        let cell = |value| {
            let mut cell = Cell::default();
            cell.add(value, done, done);
            cell
        };
        let cells = values.map(cell).collect();
        if self.volumes.len() <= id.index() {
            self.volumes.resize_with(id.index() + 1, || None);
        }
        self.volumes[id.index()] = Some(Volume { cells, durable: done });
    }

    /// The server died, and this is what the volumes certainly hold. What was there before may come back after a crash:
    /// nothing became durable by that.
    pub fn revive(&mut self, contents: &[(VolumeId, Vec<u64>)]) {
        self.clock += 1;
        self.hold(contents, 0);
        self.forget_requests();
    }

    /// The power of a volume failed, and this is what it holds: what was under way on it changes nothing any more. As
    /// with [`Oracle::revive`] nothing became durable by that.
    pub fn power_cut(&mut self, id: VolumeId, values: Vec<u64>) {
        self.orphan(id);
        self.clock += 1;
        // What has come back was answered long ago, but nothing that began before replaces it any more.
        self.hold(&[(id, values)], self.clock);
    }

    /// The volumes certainly hold this, answered at `done` at least; what they held before may come back after a crash.
    fn hold(&mut self, contents: &[(VolumeId, Vec<u64>)], done: u64) {
        let now = self.clock;
        let mut over = Vec::new();
        for (id, values) in contents {
            for sector in 0..values.len() as u64 {
                for entry in &self.cell((*id, sector)).present {
                    let values = self.values_of(entry.value, entry.from);
                    over.extend(values.into_iter().map(|value| ((*id, sector), value, entry.done.min(now))));
                }
            }
        }
        for (id, values) in contents {
            for (sector, &value) in (0..).zip(values) {
                let cell = self.cell_mut((*id, sector));
                cell.present.clear();
                cell.add(value, 0, done);
            }
        }
        for (place, old, done) in over {
            let cell = self.cell_mut(place);
            let present = &mut cell.present[0];
            if present.value == Value::Stamp(old) {
                present.done = present.done.max(done);
            } else {
                cell.past.push(Past { value: old, done, until: now });
            }
        }
    }

    /// A volume is gone: its live requests may be answered anyhow.
    pub fn remove_volume(&mut self, id: VolumeId) {
        self.orphan(id);
        self.volumes[id.index()] = None;
    }

    /// Nothing is expected of the live requests of a volume. Copies from it have read what they read.
    fn orphan(&mut self, id: VolumeId) {
        let places: Vec<Place> = self
            .live
            .values()
            .filter(|live| live.request.volume != id && !live.orphan)
            .flat_map(|live| changes(&live.request))
            .filter(|(_, _, value)| matches!(value, Value::Copied((volume, _)) if *volume == id))
            .map(|(place, _, _)| place)
            .collect();
        for place in places {
            let copied = |p: &Present| matches!(p.value, Value::Copied((volume, _)) if volume == id);
            let present = self.cell(place).present.clone();
            let mut kept: SmallVec<[Present; 1]> = present.iter().copied().filter(|p| !copied(p)).collect();
            for entry in present.iter().filter(|p| copied(p)) {
                let values = self.values_of(entry.value, entry.from);
                kept.extend(values.iter().map(|&v| Present { value: Value::Stamp(v), ..*entry }));
            }
            self.cell_mut(place).present = kept;
        }
        for live in self.live.values_mut().filter(|live| live.request.volume == id) {
            live.orphan = true;
        }
    }

    /// Forgets the requests under way: they will not be answered.
    pub fn forget_requests(&mut self) {
        self.live.clear();
        self.crowded = false;
    }

    /// A request that must not be refused begins.
    pub fn begin(&mut self, request: &Request) {
        self.clock += 1;
        let begun = self.clock;
        let overlapped = overlapped(request);
        let live = Live { request: request.clone(), begun, orphan: false, overlapped };
        self.live.insert(request.id, live);
        let horizon = self.live.values().map(|live| live.begun).min().unwrap_or(begun);
        let crashes = self.crashes;
        for ((volume, sector), _, value) in changes(request) {
            let volume = self.volumes[volume.index()].as_mut().expect(THERE);
            let cell = &mut volume.cells[sector as usize];
            if cell.past.len() > 4 {
                let needed = |past: &Past| {
                    past.until >= horizon || (crashes && past.survives(volume.durable, cell.durable))
                };
                let old = cell.past.iter().position(needed).unwrap_or(cell.past.len());
                cell.past.drain(..old);
            }
            cell.present.push(Present { value, id: request.id, from: begun, done: UNDER_WAY });
        }
    }

    /// A request is answered; `data`: what a read put into its buffer. `exactly`: of what it changed these sectors
    /// are done, and nobody ever sees the others.
    pub fn complete(
        &mut self,
        id: RequestId,
        completion: &Completion,
        data: &[u64],
        exactly: Option<u64>,
    ) -> Result<(), String> {
        self.clock += 1;
        let live = self.live.remove(&id).expect("a live request is answered");
        if live.orphan {
            return Ok(());
        }
        let whole = completion.status == BlkStatus::Ok;
        match live.request.op {
            Op::Read(range) if whole => return self.read(&live, range, data),
            Op::Flush if whole => {
                let volume = self.volumes[live.request.volume.index()].as_mut().expect(THERE);
                volume.durable = volume.durable.max(live.begun);
            }
            _ => {}
        }
        let prefix = exactly.unwrap_or(completion.bytes.whole_sectors().0);
        let fua = whole && live.request.flags.has(Flags::FUA);
        for (place, offset, _) in changes(&live.request) {
            if exactly.is_some() && !whole && offset >= prefix {
                self.cell_mut(place).present.retain(|entry| entry.id != id || entry.done != UNDER_WAY);
                continue;
            }
            let sure = (whole || offset < prefix) && !holds(&live.overlapped, place.1);
            self.settle(place, &live, sure);
            if fua {
                let cell = self.cell_mut(place);
                cell.durable = cell.durable.max(live.begun);
            }
        }
        Ok(())
    }

    /// True when some sector may hold so much that little is left to check: time to read everything.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Says whether a sector may hold this value after a crash now.
    pub fn may_survive(&self, volume: VolumeId, sector: u64, value: u64) -> Result<(), String> {
        let place = (volume, sector);
        let cell = self.cell(place);
        let durable = self.volumes[volume.index()].as_ref().expect(THERE).durable;
        let survives = |past: &Past| is(past.value, value) && past.survives(durable, cell.durable);
        if cell.past.iter().any(survives) {
            return Ok(());
        }
        self.expect(place, value, self.clock + 1, "beside the past, after a crash")
    }

    /// Says whether a sector may hold this value now.
    pub fn may_hold(&self, volume: VolumeId, sector: u64, value: u64) -> Result<(), String> {
        self.expect((volume, sector), value, self.clock + 1, "now")
    }

    fn read(&mut self, live: &Live, range: SectorRange, data: &[u64]) -> Result<(), String> {
        for (offset, &value) in data.iter().enumerate() {
            let place = (live.request.volume, range.start.0 + offset as u64);
            self.expect(place, value, live.begun, "for this read")?;
            self.narrow(place, value, live.begun);
        }
        Ok(())
    }

    fn expect(&self, place: Place, value: u64, since: u64, when: &str) -> Result<(), String> {
        if self.could_hold(place, value, since, &mut Seen::new()) {
            return Ok(());
        }
        let allowed = self.values_of(Value::Copied(place), since);
        Err(format!(
            "sector {} of volume {} holds {}, allowed {when}: {:?}; {:?}",
            place.1,
            place.0.0,
            name(value),
            allowed.iter().map(|&value| name(value)).collect::<Vec<_>>(),
            self.cell(place),
        ))
    }

    /// True when the place could hold the value at any time from `since` to now.
    fn could_hold(&self, place: Place, value: u64, since: u64, seen: &mut Seen) -> bool {
        let cell = self.cell(place);
        if cell.present.iter().any(|entry| matches!(entry.value, Value::Stamp(stamp) if is(stamp, value))) {
            return true;
        }
        if cell.past.iter().rev().take_while(|past| past.until >= since).any(|past| is(past.value, value)) {
            return true;
        }
        if seen.iter().any(|&(other, from)| other == place && from <= since) {
            return false;
        }
        seen.push((place, since));
        // Copies of copies of copies, all under way: anything goes.
        seen.len() > PLACES_MAX
            || cell.present.iter().any(|entry| match entry.value {
                Value::Stamp(_) => false,
                Value::Copied(source) => self.could_hold(source, value, entry.from, seen),
            })
    }

    /// Every value that this one may be from `since` to now; [`ANYTHING`] where it is too much to follow.
    fn values_of(&self, value: Value, since: u64) -> Values {
        if let Some(value) = self.only_value(value, since) {
            return smallvec![value];
        }
        let mut values = Values::new();
        let mut seen = Seen::new();
        let mut open: SmallVec<[(Value, u64); 4]> = smallvec![(value, since)];
        while let Some((value, since)) = open.pop() {
            match value {
                Value::Stamp(stamp) if !values.contains(&stamp) => values.push(stamp),
                Value::Copied(place) if !seen.iter().any(|&(p, from)| p == place && from <= since) => {
                    seen.push((place, since));
                    let cell = self.cell(place);
                    open.extend(cell.present.iter().map(|entry| (entry.value, entry.from)));
                    let past = cell.past.iter().rev().take_while(|past| past.until >= since);
                    open.extend(past.map(|past| (Value::Stamp(past.value), 0)));
                }
                Value::Stamp(_) | Value::Copied(_) => {}
            }
            if seen.len() > PLACES_MAX || values.len() > PRESENT_MAX {
                return smallvec![ANYTHING];
            }
        }
        values
    }

    /// The value where there is no doubt: the common case.
    fn only_value(&self, value: Value, since: u64) -> Option<u64> {
        match value {
            Value::Stamp(stamp) => Some(stamp),
            Value::Copied(place) => {
                let cell = self.cell(place);
                match (&cell.present[..], cell.past.last()) {
                    ([Present { value: Value::Stamp(stamp), .. }], past)
                        if past.is_none_or(|p| p.until < since) =>
                    {
                        Some(*stamp)
                    }
                    _ => None,
                }
            }
        }
    }

    /// A change is over; `sure`: it is certainly done, so that what was answered before it began is gone.
    fn settle(&mut self, place: Place, live: &Live, sure: bool) {
        let id = live.request.id;
        let now = self.clock;
        let mut values = Values::new();
        let mine = |entry: &Present| entry.id == id && entry.done == UNDER_WAY;
        for entry in self.cell(place).present.iter().filter(|entry| mine(entry)) {
            values.extend(self.values_of(entry.value, entry.from));
        }
        if values.is_empty() {
            // A sector that several segments name was settled by the first.
            return;
        }
        let cell = self.cell_mut(place);
        cell.present.retain(|entry| !mine(entry));
        if sure {
            cell.replace(now, |entry| entry.done <= live.begun);
        }
        for value in values {
            cell.add(value, live.begun, now);
        }
        let anything = cell.present.iter().any(|entry| entry.value == Value::Stamp(ANYTHING));
        let crowded = anything || cell.present.len() > PRESENT_MAX || cell.past.len() > PAST_MAX;
        self.crowded |= crowded;
    }

    /// A read that began at `since` has seen this value: what was answered before that and is another is gone.
    fn narrow(&mut self, place: Place, value: u64, since: u64) {
        let cell = self.cell(place);
        if cell.present.len() == 1 {
            return;
        }
        if cell.past.iter().rev().take_while(|past| past.until >= since).any(|past| is(past.value, value)) {
            // It may have been replaced since.
            return;
        }
        let under_way = cell.present.iter().any(|entry| match entry.value {
            _ if entry.done != UNDER_WAY => false,
            Value::Stamp(stamp) => stamp == value,
            Value::Copied(source) => self.could_hold(source, value, entry.from, &mut Seen::new()),
        });
        let known = cell.present.iter().any(|entry| entry.value == Value::Stamp(value));
        let now = self.clock;
        let cell = self.cell_mut(place);
        cell.replace(now, |entry| entry.done <= since && entry.value != Value::Stamp(value));
        if under_way || !known {
            cell.add(value, since, now);
        }
    }

    fn cell(&self, place: Place) -> &Cell {
        let volume = self.volumes[place.0.index()].as_ref().expect(THERE);
        &volume.cells[place.1 as usize]
    }

    fn cell_mut(&mut self, place: Place) -> &mut Cell {
        let volume = self.volumes[place.0.index()].as_mut().expect(THERE);
        &mut volume.cells[place.1 as usize]
    }
}

impl Past {
    /// True when it may come back after a crash, given the times of [`Volume::durable`] and [`Cell::durable`].
    fn survives(&self, volume: u64, cell: u64) -> bool {
        self.until > volume && self.done > cell
    }
}

impl Cell {
    /// Moves the values for which `gone` holds to the past.
    fn replace(&mut self, now: u64, gone: impl Fn(&Present) -> bool) {
        let past = &mut self.past;
        self.present.retain(|entry| {
            let Value::Stamp(value) = entry.value else {
                return true;
            };
            let gone = gone(entry);
            if gone {
                past.push(Past { value, done: entry.done, until: now });
            }
            !gone
        });
    }

    /// A value that is certainly over: answered or seen.
    fn add(&mut self, value: u64, from: u64, done: u64) {
        let same = |e: &&mut Present| e.done != UNDER_WAY && e.value == Value::Stamp(value);
        match self.present.iter_mut().find(same) {
            Some(entry) => entry.done = done,
            None => self.present.push(Present { value: Value::Stamp(value), id: RequestId(0), from, done }),
        }
    }
}

/// True when a stamp stands for the value.
fn is(stamp: u64, value: u64) -> bool {
    stamp == value || stamp == ANYTHING
}

fn holds(ranges: &[SectorRange], sector: u64) -> bool {
    let below = ranges.partition_point(|range| range.start.0 <= sector);
    below > 0 && sector < ranges[below - 1].end().0
}
