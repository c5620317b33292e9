//! Open, close, finish, reset: what is asked of zones, and what the device does to them by itself.
//!
//! A reset is a chain of discards below. It moves the pointer when the contents are gone; until then whatever would
//! change the zone waits, so that no link of the reset meets what was written after it.

use crate::layer::{Fate, Work, Zoned};
use emulation::redo::Fill;
use emulation::request::ZoneAction;
use emulation::zone::ZoneFailure;
use emulation::{BlkStatus, Bytes, Completion, Cx, Flags, Op, Request, RequestId, Sector, VolumeId};

/// A reset of one zone, or of all that have something to reset.
#[derive(Debug)]
pub(crate) struct Reset {
    volume: VolumeId,
    /// Which volume of that number.
    born: u64,
    zones: Vec<u32>,
    /// So many of them are done.
    done: usize,
    /// It ends before its next zone.
    aborted: bool,
}

impl Zoned {
    /// True when a change of a zone, or of any with `None`, has to wait for a reset. One of all zones goes first once
    /// it waits.
    pub(crate) fn must_wait(&self, volume: VolumeId, zone: Option<u32>) -> bool {
        #[cfg(feature = "canary")]
        if self.canary == Some(crate::Canary::ResetUnawaited) && zone.is_some() {
            return false;
        }
        let all = |request: &Request| request.volume == volume && request.op == Op::ZoneResetAll;
        self.zones(volume).is_some_and(|zones| zones.is_resetting(zone)) || self.parked.iter().any(all)
    }

    pub(crate) fn look_at_action(
        &mut self,
        cx: &mut Cx<'_>,
        request: Request,
        start: Sector,
        action: ZoneAction,
    ) -> Fate {
        let volume = request.volume;
        let zone = match self.zone_at(volume, start) {
            Ok(zone) => zone,
            Err(status) => return Fate::refused(status),
        };
        if self.must_wait(volume, Some(zone)) {
            return Fate::Park(request);
        }
        if action == ZoneAction::Reset {
            return self.begin_reset(&request, zone);
        }
        if cx.log.fill() == Fill::Full {
            return self.without_room(request);
        }
        let generation = self.next_generation();
        let zones = self.zones_mut(volume).expect("a zoned volume");
        match zones.manage(zone, action, generation) {
            Ok(()) => {
                self.record(cx, volume, zone);
                self.whole(request.id, volume)
            }
            Err(status) => Fate::refused(status),
        }
    }

    /// The log is full: a request waits for the commit that makes room, unless commits fail.
    pub(crate) fn without_room(&self, request: Request) -> Fate {
        if self.commits_fail { Fate::refused(BlkStatus::IoErr) } else { Fate::Park(request) }
    }

    pub(crate) fn look_at_reset_all(&mut self, request: Request) -> Fate {
        let (id, volume) = (request.id, request.volume);
        if self.must_wait(volume, None) {
            return Fate::Park(request);
        }
        let zones = self.zones(volume).expect("a zoned volume").to_reset();
        self.start_resets(id, volume, zones)
    }

    /// The discard of one zone of a reset is over; gives the next.
    pub(crate) fn discarded(
        &mut self,
        cx: &mut Cx<'_>,
        id: RequestId,
        mut reset: Reset,
        discard: &Completion,
    ) -> Fate {
        let volume = reset.volume;
        let Some(zones) = self.zones_mut(volume).filter(|zones| zones.born() == reset.born) else {
            // The volume is gone; another may have its number.
            return Fate::refused(BlkStatus::IoErr);
        };
        let zone = reset.zones[reset.done];
        let ended = if discard.status.is_ok() { zones.reset(zone) } else { Err(discard.status) };
        self.record(cx, volume, zone);
        match ended {
            Ok(()) if reset.aborted && reset.done + 1 < reset.zones.len() => {
                self.end_resets(&reset);
                Fate::refused(BlkStatus::Aborted)
            }
            Ok(()) => {
                reset.done += 1;
                self.next_reset(id, reset)
            }
            Err(status) => {
                self.end_resets(&reset);
                Fate::refused(status)
            }
        }
    }

    /// A reset goes to no further zone.
    pub(crate) fn abort_reset(&mut self, id: RequestId) {
        if let Some(Work::Reset(reset)) = self.live.get_mut(&id) {
            reset.aborted = true;
        }
    }

    /// A zone fails by itself.
    pub(crate) fn fail_zone(
        &mut self,
        cx: &mut Cx<'_>,
        volume: VolumeId,
        start: Sector,
        failure: ZoneFailure,
    ) {
        let generation = self.next_generation();
        if let Ok(zone) = self.zone_at(volume, start)
            && let Some(zones) = self.zones_mut(volume)
        {
            zones.fail(zone, failure, generation);
            self.record(cx, volume, zone);
        }
    }

    pub(crate) fn check_resets(&self) -> Result<(), String> {
        for (id, work) in &self.live {
            let Work::Reset(reset) = work else { continue };
            let Some(zones) = self.zones(reset.volume).filter(|zones| zones.born() == reset.born) else {
                continue;
            };
            if !reset.zones.iter().all(|&zone| zones.is_resetting(Some(zone))) {
                return Err(format!("{id:?} resets zones that are not held for it: {reset:?}"));
            }
        }
        Ok(())
    }

    fn zone_at(&self, volume: VolumeId, start: Sector) -> Result<u32, BlkStatus> {
        let limits = self.inner.limits(volume).ok_or(BlkStatus::NoVolume)?;
        let zones = self.zones(volume).ok_or(BlkStatus::NotSupp)?;
        if start.0 >= limits.capacity.0 {
            return Err(BlkStatus::OutOfRange);
        }
        let (zone, offset) = zones.place(start);
        if offset.is_zero() { Ok(zone) } else { Err(BlkStatus::Inval) }
    }

    fn begin_reset(&mut self, request: &Request, zone: u32) -> Fate {
        let (id, volume) = (request.id, request.volume);
        let zones = self.zones(volume).expect("a zoned volume");
        if let Err(status) = crate::rules::reset(zones.condition(zone)) {
            return Fate::refused(status);
        }
        let empty = !crate::rules::reset_all(zones.condition(zone));
        let zones = if empty { Vec::new() } else { vec![zone] };
        self.start_resets(id, volume, zones)
    }

    fn start_resets(&mut self, id: RequestId, volume: VolumeId, zones: Vec<u32>) -> Fate {
        for &zone in &zones {
            let generation = self.next_generation();
            self.zones_mut(volume).expect("a zoned volume").begin_reset(zone, generation);
        }
        let born = self.zones(volume).expect("a zoned volume").born();
        self.next_reset(id, Reset { volume, born, zones, done: 0, aborted: false })
    }

    fn next_reset(&mut self, id: RequestId, reset: Reset) -> Fate {
        let volume = reset.volume;
        let Some(&zone) = reset.zones.get(reset.done) else {
            self.end_resets(&reset);
            return self.whole(id, volume);
        };
        let range = self.zones(volume).expect("a zoned volume").range_of(zone);
        self.live.insert(id, Work::Reset(reset));
        #[cfg(feature = "canary")]
        if self.canary == Some(crate::Canary::ResetKeepsData) {
            return Fate::Below(Request { id, volume, op: Op::Flush, flags: Flags::NONE });
        }
        #[cfg(feature = "canary")]
        if self.canary == Some(crate::Canary::ResetKeepsBlocks) {
            return Fate::Below(Request { id, volume, op: Op::WriteZeroes(range), flags: Flags::NOUNMAP });
        }
        Fate::Below(Request { id, volume, op: Op::Discard(range), flags: Flags::NONE })
    }

    fn end_resets(&mut self, reset: &Reset) {
        self.freed = true;
        if let Some(zones) = self.zones_mut(reset.volume) {
            reset.zones.iter().for_each(|&zone| zones.end_reset(zone));
        }
    }

    /// An action is done; where that has to be durable, it is flushed first.
    fn whole(&mut self, id: RequestId, volume: VolumeId) -> Fate {
        let completion = Completion::ok(Bytes(0));
        if !self.write_through {
            return Fate::Done(completion);
        }
        self.live.insert(id, Work::Durable(completion));
        Fate::Below(Request { id, volume, op: Op::Flush, flags: Flags::NONE })
    }
}
