//! Copies into zones and out of them.
//!
//! A command is tried as a whole first: it is refused, unchanged, if its zones as they are now could not take it. After
//! that each link moves the pointer of its zone when it begins, as a write does, and the command ends with its finished
//! prefix at the first link whose zone does not take it, or whose source or destination began another life.

use crate::layer::{Fate, Work, Zoned};
use crate::resources::{Resources, Room};
use crate::table::{Reservation, Zones};
use emulation::limits::admit_overlap;
use emulation::zone::{ZoneCondition, ZoneType};
use emulation::{
    BlkStatus, Completion, CopyCommand, Cx, Flags, Link, Op, Request, RequestId, Sector, SectorRange,
    Sectors, VolumeId,
};
use std::collections::{BTreeMap, BTreeSet};

/// A copy that reads or writes zones, from its begin to its answer.
#[derive(Debug)]
pub(crate) struct Copy {
    #[cfg(feature = "canary")]
    volume: VolumeId,
    /// The lives that its zones lived when it began: those of the contents of its sources and of its destinations.
    sources: BTreeMap<(VolumeId, u32), u64>,
    destinations: BTreeMap<u32, u64>,
    /// The volumes that it copies from, and whether one of them is gone.
    volumes: BTreeSet<VolumeId>,
    gone: bool,
    /// Where the link under way writes.
    link: Option<Reservation>,
    appended_at: Option<Sector>,
}

impl Copy {
    /// A volume is removed or has lost its power: nothing more that is copied from it counts, though another may get its number.
    pub(crate) fn lose(&mut self, volume: VolumeId) {
        self.gone |= self.volumes.contains(&volume);
    }
}

/// The zones as they would be after the first part of a command.
struct Trial<'a> {
    zones: &'a Zones,
    resources: Resources,
    changed: BTreeMap<u32, (ZoneCondition, Sectors)>,
}

impl Trial<'_> {
    fn write(&mut self, zone: u32, offset: Sectors, len: Sectors) -> Result<(), BlkStatus> {
        let now = (self.zones.condition(zone), self.zones.wp(zone));
        let (condition, wp) = self.changed.get(&zone).copied().unwrap_or(now);
        // Which one was closed to make room is not told; where none is left, this one was.
        let closed = condition == ZoneCondition::ImpOpen && !self.resources.has_implicit();
        let condition = if closed { ZoneCondition::Closed } else { condition };
        let (after, needs) = self.zones.admit_write((condition, wp), offset, len)?;
        match self.resources.room(needs)? {
            Room::Free => {}
            // Which one does not matter: any that is closed can be opened again in the same way.
            Room::CloseOne => self.resources.change(ZoneCondition::ImpOpen, ZoneCondition::Closed),
        }
        let end = offset + len;
        let full = end == self.zones.geometry().capacity;
        let after = if full { ZoneCondition::Full } else { after };
        self.resources.change(condition, after);
        self.changed.insert(zone, (after, end));
        Ok(())
    }
}

impl Zoned {
    pub(crate) fn look_at_copy(&mut self, mut request: Request) -> Fate {
        let Op::Copy(command) = &request.op else { unreachable!("a copy") };
        let (id, volume) = (request.id, request.volume);
        let sources = command.segments.iter().any(|segment| self.zones(segment.source_volume).is_some());
        if self.zones(volume).is_none() && !sources {
            return Fate::Below(request);
        }
        if let Some(zones) = self.zones(volume) {
            let touched =
                command.segments.iter().flat_map(|segment| zones.zones_of(segment.destination_range()));
            if touched.into_iter().any(|zone| self.must_wait(volume, Some(zone))) {
                return Fate::Park(request);
            }
        }
        let place = match self.try_copy(&request) {
            Ok(place) => place,
            Err(status) => return Fate::refused(status),
        };
        if let (Some(at), Op::Copy(command)) = (place, &mut request.op) {
            command.place(at);
            request.flags = request.flags.without(Flags::APPEND);
        }
        let copy = self.new_copy(&request, place);
        self.live.insert(id, Work::Copy(copy));
        Fate::Below(request)
    }

    fn new_copy(&self, request: &Request, appended_at: Option<Sector>) -> Copy {
        let mut copy = Copy {
            #[cfg(feature = "canary")]
            volume: request.volume,
            sources: BTreeMap::new(),
            destinations: BTreeMap::new(),
            volumes: BTreeSet::new(),
            gone: false,
            link: None,
            appended_at,
        };
        let Op::Copy(command) = &request.op else { unreachable!("a copy") };
        for segment in &command.segments {
            copy.volumes.insert(segment.source_volume);
            if let Some(zones) = self.zones(segment.source_volume) {
                for zone in zones.zones_of(segment.source) {
                    let life = zones.generation(zone).expect("admitted");
                    copy.sources.insert((segment.source_volume, zone), life.content);
                }
            }
            if let Some(zones) = self.zones(request.volume) {
                for zone in zones.zones_of(segment.destination_range()) {
                    let life = zones.generation(zone).expect("admitted");
                    copy.destinations.insert(zone, life.write);
                }
            }
        }
        copy
    }

    /// Refuses a copy that the zones do not take as they are now. Gives the place of one that is appended.
    pub(crate) fn try_copy(&self, request: &Request) -> Result<Option<Sector>, BlkStatus> {
        let Op::Copy(command) = &request.op else { unreachable!("a copy") };
        for segment in &command.segments {
            if let Some(zones) = self.zones(segment.source_volume) {
                zones.admit_read(segment.source)?;
            }
        }
        #[cfg(feature = "canary")]
        if self.canary == Some(crate::Canary::CopyUntried) && !request.flags.has(Flags::APPEND) {
            return Ok(None);
        }
        let Some(zones) = self.zones(request.volume) else {
            // A volume without zones takes no append.
            return if request.flags.has(Flags::APPEND) { Err(BlkStatus::NotSupp) } else { Ok(None) };
        };
        let mut trial = Trial { zones, resources: zones.resources(), changed: BTreeMap::new() };
        if request.flags.has(Flags::APPEND) {
            return Self::admit_append(&mut trial, request, command).map(Some);
        }
        for segment in &command.segments {
            let range = segment.destination_range();
            let (zone, offset) = zones.place(range.start);
            match zones.geometry().kind_of(zone) {
                ZoneType::Conventional => zones.admit_conventional(range)?,
                ZoneType::SeqwriteReq => trial.write(zone, offset, range.len)?,
            }
        }
        Ok(None)
    }

    fn admit_append(
        trial: &mut Trial<'_>,
        request: &Request,
        command: &CopyCommand,
    ) -> Result<Sector, BlkStatus> {
        let first = command.segments.first().ok_or(BlkStatus::Inval)?.destination;
        let (zone, offset) = trial.zones.place(first);
        let one_place = command.segments.iter().all(|segment| segment.destination == first);
        if !one_place || !offset.is_zero() || trial.zones.geometry().kind_of(zone) == ZoneType::Conventional {
            return Err(BlkStatus::ZoneAppend);
        }
        let (at, len) = (trial.zones.wp(zone), command.total().ok_or(BlkStatus::CopyMaxBytes)?);
        trial.write(zone, at, len)?;
        let mut placed = command.clone();
        placed.place(first + at);
        admit_overlap(request, &placed)?;
        Ok(first + at)
    }

    /// A link is about to begin: its zone takes it, or the copy ends here.
    pub(crate) fn begin_link(&mut self, id: RequestId, link: &Link) -> Result<(), BlkStatus> {
        let Some(Work::Copy(copy)) = self.live.get(&id) else { unreachable!("a copy") };
        let Some(destination) = link.destination else { return Ok(()) };
        self.admit_lives(copy, link)?;
        let Some(zones) = self.zones_mut(link.volume) else { return Ok(()) };
        let (zone, offset) = zones.place(destination.start);
        if zones.geometry().kind_of(zone) == ZoneType::Conventional {
            return Ok(());
        }
        let reservation = zones.reserve(zone, offset, destination.len)?;
        self.set_link(id, Some(reservation));
        Ok(())
    }

    /// A link was executed: what it wrote counts, unless a zone began another life.
    pub(crate) fn finish_link(
        &mut self,
        cx: &mut Cx<'_>,
        id: RequestId,
        link: &Link,
    ) -> Result<(), BlkStatus> {
        let Some(Work::Copy(copy)) = self.live.get(&id) else { unreachable!("a copy") };
        self.admit_lives(copy, link)?;
        if let Some(reservation) = copy.link {
            self.settle(cx, &reservation, reservation.len());
            self.set_link(id, None);
        }
        Ok(())
    }

    /// The copy is answered from below. A link that failed gives back what it reserved.
    pub(crate) fn copied(&mut self, cx: &mut Cx<'_>, copy: Copy, mut completion: Completion) -> Completion {
        if let Some(reservation) = copy.link {
            self.settle(cx, &reservation, Sectors::ZERO);
        }
        completion.appended_at = copy.appended_at.filter(|_| completion.bytes.0 > 0);
        #[cfg(feature = "canary")]
        self.misplace(copy.volume, &mut completion);
        completion
    }

    fn set_link(&mut self, id: RequestId, link: Option<Reservation>) {
        if let Some(Work::Copy(copy)) = self.live.get_mut(&id) {
            copy.link = link;
        }
    }

    /// Refuses a link whose source or destination zones are not what they were when the copy began.
    fn admit_lives(&self, copy: &Copy, link: &Link) -> Result<(), BlkStatus> {
        if copy.gone {
            return Err(BlkStatus::NoVolume);
        }
        let lives = |volume: VolumeId, range: SectorRange| {
            let zones = self.zones(volume);
            zones
                .into_iter()
                .flat_map(move |zones| zones.zones_of(range).map(move |zone| (zone, zones.generation(zone))))
        };
        #[cfg(feature = "canary")]
        let link = &match self.canary {
            Some(crate::Canary::StaleSource) => Link { source: None, ..*link },
            _ => *link,
        };
        if let Some((volume, range)) = link.source {
            for (zone, life) in lives(volume, range) {
                if copy.sources.get(&(volume, zone)).copied() != life.map(|life| life.content) {
                    return Err(BlkStatus::IoErr);
                }
            }
        }
        if let Some(range) = link.destination {
            for (zone, life) in lives(link.volume, range) {
                if copy.destinations.get(&zone).copied() != life.map(|life| life.write) {
                    return Err(BlkStatus::IoErr);
                }
            }
        }
        Ok(())
    }
}
