//! The layer that keeps the zones of a pool's volumes; volumes without zones go through.
//!
//! A write moves the pointer in `begin`. What it wrote counts when its plan comes back: only then is the zone recorded,
//! in the same call as the map, so that no crash finds the pointer behind data that was acknowledged. A plan whose zone
//! began another life meanwhile goes down as failed, so the map below commits nothing of it.

use crate::copies::Copy;
use crate::manage::Reset;
use crate::table::{Reservation, Zones};
use emulation::device;
use emulation::redo::{Fill, Image, RedoLog, ZoneChange};
use emulation::zone::ZoneType;
use emulation::{
    BlkStatus, BlockDevice, Completion, Control, Cx, Flags, Instant, IoResult, Limits, Next, Op, Out, Plan,
    Request, RequestId, Sector, SectorRange, Sectors, Step, Usage, VolumeId,
};
use std::collections::BTreeMap;

/// Known mistakes, one for each rule of zones.
#[cfg(feature = "canary")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A write goes anywhere in its zone.
    OffPointer,
    /// A zone is written to its size.
    BeyondCapacity,
    /// An offline zone is read.
    OfflineReadable,
    /// A write from before a reset or a finish ends well.
    StaleWrite,
    /// A copy goes on from a zone that was reset.
    StaleSource,
    /// More zones are open than may be.
    OpenLimitIgnored,
    /// More zones are active than may be.
    ActiveLimitIgnored,
    /// The zone that was opened implicitly last gives way.
    ClosesNewest,
    /// A failed write keeps its place.
    PointerKept,
    /// A failed write gives the pointer back over what was written above it.
    GivenBackUnder,
    /// A reset moves the pointer and keeps the contents.
    ResetKeepsData,
    /// A reset writes zeroes and keeps the blocks.
    ResetKeepsBlocks,
    /// What changes a zone that is being reset does not wait.
    ResetUnawaited,
    /// A copy is let in without a look at its zones.
    CopyUntried,
    /// An append is told the start of its zone.
    AppendMisplaced,
    /// A commit leaves the zones out.
    NotCommitted,
    /// What is finished is not recorded.
    NotRecorded,
}

/// Zones, as a layer over a device whose failed plans change nothing.
#[derive(Debug)]
pub struct Zoned {
    pub(crate) inner: Box<dyn BlockDevice>,
    /// Every acknowledged change is durable: that of a zone's condition ends with a flush.
    pub(crate) write_through: bool,
    volumes: Vec<Option<Zones>>,
    pub(crate) live: BTreeMap<RequestId, Work>,
    /// What waits for a reset or for room in the log, first come first served. It holds nothing.
    pub(crate) parked: Vec<Request>,
    /// The last commit failed: waiting for room in the log could take for ever.
    pub(crate) commits_fail: bool,
    /// Something that a parked request may have waited for is over.
    pub(crate) freed: bool,
    generation: u64,
    #[cfg(feature = "canary")]
    pub(crate) canary: Option<Canary>,
}

/// A request below this layer that concerns zones.
#[derive(Debug)]
pub(crate) enum Work {
    Write(Write),
    Copy(Copy),
    Reset(Reset),
    /// Done, and to be durable before it is answered so.
    Durable(Completion),
}

/// A write, an append or a write of zeroes, from its begin to its answer.
#[derive(Debug)]
pub(crate) struct Write {
    reservation: Reservation,
    /// Its one plan came back, and what it wrote counts.
    settled: bool,
    appended_at: Option<Sector>,
}

/// What becomes of a request that this layer has looked at.
pub(crate) enum Fate {
    /// It goes on below, perhaps changed.
    Below(Request),
    /// It is answered.
    Done(Completion),
    /// It waits here.
    Park(Request),
}

impl Fate {
    pub(crate) fn refused(status: BlkStatus) -> Self {
        Self::Done(Completion::refused(status))
    }
}

/// Adds an answer behind the others, so that they stand in the order in which things happened to the zones.
fn name(out: &mut Out, id: RequestId, next: Next) {
    out.retain(|(named, next)| *named != id || !matches!(next, Next::Wait));
    device::name(out, id, next);
}

impl Zoned {
    /// The layer over `inner`. `write_through`: every acknowledged change is durable, so that of a condition has to be.
    pub fn new(inner: Box<dyn BlockDevice>, write_through: bool) -> Self {
        Self {
            inner,
            write_through,
            volumes: Vec::new(),
            live: BTreeMap::new(),
            parked: Vec::new(),
            commits_fail: false,
            freed: false,
            generation: 0,
            #[cfg(feature = "canary")]
            canary: None,
        }
    }

    /// The layer with a known mistake.
    #[cfg(feature = "canary")]
    #[must_use]
    pub fn with_canary(mut self, canary: Canary) -> Self {
        self.canary = Some(canary);
        self.volumes.iter_mut().flatten().for_each(|zones| zones.canary = Some(canary));
        self
    }

    /// The layer over the pool of the image that `inner` was recovered from. What the records changed goes into the
    /// next commit. After a loss of power the image has its zones as [`ZoneChange::after_power_loss`] has them.
    ///
    /// # Errors
    /// The first zone that its volume does not have, or that no zone of it could be: the image is torn, or of another
    /// pool.
    pub fn recover(
        inner: Box<dyn BlockDevice>,
        write_through: bool,
        image: &Image,
    ) -> Result<Self, ZoneChange> {
        let mut device = Self::new(inner, write_through);
        for (volume, _) in &image.volumes {
            device.add_volume(*volume);
        }
        let records = image.zone_records.iter().map(|(_, change)| (change, true));
        for (change, recorded) in image.zones.iter().map(|change| (change, false)).chain(records) {
            if !image.volumes.iter().any(|(volume, _)| *volume == change.volume) {
                // Of a volume that is gone.
                continue;
            }
            let zones = device.zones_mut(change.volume).ok_or(*change)?;
            zones.adopt(change, recorded).map_err(|()| *change)?;
        }
        Ok(device)
    }

    pub(crate) fn zones(&self, volume: VolumeId) -> Option<&Zones> {
        self.volumes.get(volume.index())?.as_ref()
    }

    pub(crate) fn zones_mut(&mut self, volume: VolumeId) -> Option<&mut Zones> {
        self.volumes.get_mut(volume.index())?.as_mut()
    }

    /// The number of the next life of a zone.
    pub(crate) fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// Writes down what is to be kept of a zone, if that is something new.
    pub(crate) fn record(&mut self, cx: &mut Cx<'_>, volume: VolumeId, zone: u32) {
        if let Some(change) = self.zones_mut(volume).and_then(|zones| zones.record(zone)) {
            #[cfg(feature = "canary")]
            if self.canary == Some(Canary::NotRecorded) {
                return;
            }
            cx.log.append_zone(&change);
        }
    }

    /// The zones of a volume that the layers below have already, if it is zoned.
    fn add_volume(&mut self, volume: VolumeId) {
        if self.volumes.len() <= volume.index() {
            self.volumes.resize_with(volume.index() + 1, || None);
        }
        let generation = self.next_generation();
        let limits = self.inner.limits(volume);
        let zones = limits.and_then(|limits| Some((limits.zones?, limits.capacity)));
        self.volumes[volume.index()] =
            zones.map(|(geometry, sectors)| Zones::new(volume, geometry, sectors, generation));
        #[cfg(feature = "canary")]
        if let Some(zones) = self.volumes[volume.index()].as_mut() {
            zones.canary = self.canary;
        }
    }

    /// Begins a request that is new or waited here.
    fn start(&mut self, cx: &mut Cx<'_>, request: Request, out: &mut Out) {
        let id = request.id;
        match self.look(cx, request) {
            Fate::Below(request) => {
                let answers = self.inner.begin(cx, request);
                self.route(cx, answers, out);
            }
            Fate::Done(completion) => name(out, id, Next::Done(completion)),
            Fate::Park(request) => self.parked.push(request),
        }
    }

    fn look(&mut self, cx: &mut Cx<'_>, request: Request) -> Fate {
        let Some(zones) = self.zones(request.volume) else {
            return if matches!(request.op, Op::Copy(_)) {
                self.look_at_copy(request)
            } else {
                Fate::Below(request)
            };
        };
        match &request.op {
            Op::Flush => Fate::Below(request),
            Op::Read(range) => match zones.admit_read(*range) {
                Ok(()) => Fate::Below(request),
                Err(status) => Fate::refused(status),
            },
            // A hint that a sequential zone does not take: its contents end with a reset.
            Op::Discard(range) => match zones.admit_conventional(*range) {
                Ok(()) => Fate::Below(request),
                Err(_) => Fate::refused(BlkStatus::NotSupp),
            },
            Op::Write(range) | Op::WriteZeroes(range) => {
                let range = *range;
                self.look_at_write(cx, request, range)
            }
            Op::Copy(_) => self.look_at_copy(request),
            Op::ZoneMgmt { zone, action } => {
                let (zone, action) = (*zone, *action);
                self.look_at_action(cx, request, zone, action)
            }
            Op::ZoneResetAll => self.look_at_reset_all(request),
            Op::ReportZones { from, max } => Fate::Done(self.report(request.volume, *from, *max)),
        }
    }

    fn look_at_write(&mut self, cx: &mut Cx<'_>, mut request: Request, range: SectorRange) -> Fate {
        let zeroes = matches!(request.op, Op::WriteZeroes(_));
        let (id, volume) = (request.id, request.volume);
        let zones = self.zones(volume).expect("a zoned volume");
        let (zone, offset) = zones.place(range.start);
        let append = request.flags.has(Flags::APPEND);
        match zones.geometry().kind_of(zone) {
            ZoneType::Conventional if append => return Fate::refused(BlkStatus::ZoneAppend),
            ZoneType::Conventional => {
                return match zones.admit_conventional(range) {
                    Ok(()) => Fate::Below(request),
                    Err(status) => Fate::refused(status),
                };
            }
            ZoneType::SeqwriteReq => {}
        }
        if append && zeroes {
            return Fate::refused(BlkStatus::NotSupp);
        }
        if append && (!offset.is_zero() || range.len > zones.geometry().max_append) {
            return Fate::refused(BlkStatus::ZoneAppend);
        }
        if self.must_wait(volume, Some(zone)) {
            return Fate::Park(request);
        }
        if zeroes && cx.log.fill() == Fill::Full {
            return self.without_room(request);
        }
        let zones = self.zones_mut(volume).expect("a zoned volume");
        let offset = if append { zones.wp(zone) } else { offset };
        let reservation = match zones.reserve(zone, offset, range.len) {
            Ok(reservation) => reservation,
            Err(status) => return Fate::refused(status),
        };
        let start = zones.geometry().start_of(zone) + offset;
        if zeroes {
            // Above the pointer there are zeroes already, and what is zero needs no plan that would come back.
            zones.written(&reservation);
            self.record(cx, volume, zone);
        } else {
            request.op = Op::Write(SectorRange { start, len: range.len });
        }
        request.flags = request.flags.without(Flags::APPEND);
        let write = Write { reservation, settled: false, appended_at: append.then_some(start) };
        self.live.insert(id, Work::Write(write));
        Fate::Below(request)
    }

    fn report(&self, volume: VolumeId, from: Sector, max: u32) -> Completion {
        let inside = self.inner.limits(volume).is_some_and(|limits| from.0 < limits.capacity.0);
        match self.zones(volume) {
            None => Completion::refused(BlkStatus::NotSupp),
            Some(_) if !inside => Completion::refused(BlkStatus::OutOfRange),
            Some(_) if max == 0 => Completion::refused(BlkStatus::Inval),
            Some(zones) => {
                Completion { zones: zones.report(from, max), ..Completion::ok(Sectors::ZERO.bytes()) }
            }
        }
    }

    /// True when the layer has nothing to do: no volume has zones, and no request is left of one that had.
    fn is_idle(&self) -> bool {
        self.live.is_empty() && self.parked.is_empty() && self.volumes.iter().all(Option::is_none)
    }

    /// Hands answers on. Links that may not begin go back at once; what ends here goes on here.
    pub(crate) fn route(&mut self, cx: &mut Cx<'_>, answers: Out, out: &mut Out) {
        let mut todo = answers;
        while !todo.is_empty() {
            let mut more = Out::new();
            for (id, next) in todo {
                match next {
                    Next::Run(mut plan) => match self.planned(&mut plan) {
                        Ok(()) => name(out, id, Next::Run(plan)),
                        Err(status) => {
                            more.extend(self.inner.finish(cx, plan, IoResult::failed(status, 0)));
                        }
                    },
                    Next::Done(completion) => match self.live.remove(&id) {
                        None => name(out, id, Next::Done(completion)),
                        Some(work) => match self.done(cx, id, work, completion) {
                            Fate::Below(request) => more.extend(self.inner.begin(cx, request)),
                            Fate::Done(completion) => name(out, id, Next::Done(completion)),
                            Fate::Park(request) => self.parked.push(request),
                        },
                    },
                    Next::Wait => name(out, id, Next::Wait),
                }
            }
            todo = more;
        }
    }

    /// A plan is about to be handed out: says why it may not.
    fn planned(&mut self, plan: &mut Plan) -> Result<(), BlkStatus> {
        if plan.request.is_internal() {
            #[cfg(feature = "canary")]
            if self.canary == Some(Canary::NotCommitted) {
                return Ok(());
            }
            for step in &mut plan.steps {
                if let Step::Commit(commit) = step {
                    commit.zones.extend(self.volumes.iter_mut().flatten().flat_map(Zones::snapshot));
                }
            }
            return Ok(());
        }
        match self.live.get(&plan.request) {
            Some(Work::Write(write)) if !self.is_fresh(&write.reservation) => Err(BlkStatus::IoErr),
            Some(Work::Copy(_)) => self.begin_link(plan.request, &plan.link),
            Some(Work::Write(_) | Work::Reset(_) | Work::Durable(_)) | None => Ok(()),
        }
    }

    /// A plan comes back whole: says why it may not end well.
    fn executed(&mut self, cx: &mut Cx<'_>, plan: &Plan) -> Result<(), BlkStatus> {
        match self.live.get(&plan.request) {
            Some(Work::Write(write)) => {
                let reservation = write.reservation;
                if !self.is_fresh(&reservation) {
                    return Err(BlkStatus::IoErr);
                }
                if plan.link.destination.is_some_and(|range| range.len == reservation.len()) {
                    self.settle(cx, &reservation, reservation.len());
                    self.live.entry(plan.request).and_modify(|work| {
                        if let Work::Write(write) = work {
                            write.settled = true;
                        }
                    });
                }
                Ok(())
            }
            Some(Work::Copy(_)) => self.finish_link(cx, plan.request, &plan.link),
            Some(Work::Reset(_) | Work::Durable(_)) | None => Ok(()),
        }
    }

    /// A request of this layer's is answered from below.
    fn done(&mut self, cx: &mut Cx<'_>, id: RequestId, work: Work, mut completion: Completion) -> Fate {
        match work {
            Work::Write(write) => {
                let stale = !write.settled && !self.is_fresh(&write.reservation);
                if stale && completion.status.is_ok() {
                    // Zeroes where there was nothing: no plan came back that could have been turned down.
                    completion = Completion::refused(BlkStatus::IoErr);
                }
                if !write.settled {
                    self.settle(cx, &write.reservation, completion.bytes.whole_sectors());
                }
                completion.appended_at = write.appended_at.filter(|_| completion.status.is_ok());
                #[cfg(feature = "canary")]
                self.misplace(write.reservation.volume, &mut completion);
                Fate::Done(completion)
            }
            Work::Copy(copy) => Fate::Done(self.copied(cx, copy, completion)),
            Work::Reset(reset) => self.discarded(cx, id, reset, &completion),
            Work::Durable(whole) if completion.status.is_ok() => Fate::Done(whole),
            Work::Durable(_) => Fate::Done(completion),
        }
    }

    #[cfg(feature = "canary")]
    pub(crate) fn misplace(&self, volume: VolumeId, completion: &mut Completion) {
        if self.canary == Some(Canary::AppendMisplaced)
            && let (Some(at), Some(zones)) = (&mut completion.appended_at, self.zones(volume))
        {
            *at = zones.geometry().start_of(zones.geometry().zone_of(*at));
        }
    }

    pub(crate) fn is_fresh(&self, reservation: &Reservation) -> bool {
        self.zones(reservation.volume).is_some_and(|zones| zones.is_fresh(reservation))
    }

    /// A write is over, so much of it finished.
    pub(crate) fn settle(&mut self, cx: &mut Cx<'_>, reservation: &Reservation, done: Sectors) {
        if !self.is_fresh(reservation) {
            return;
        }
        if let Some(zones) = self.zones_mut(reservation.volume) {
            zones.settle(reservation, done);
            self.record(cx, reservation.volume, reservation.zone);
        }
    }

    /// Nothing that is copied from a volume counts any more.
    pub(crate) fn lose_source(&mut self, volume: VolumeId) {
        for work in self.live.values_mut() {
            if let Work::Copy(copy) = work {
                copy.lose(volume);
            }
        }
    }

    fn remove_volume(&mut self, gone: VolumeId, out: &mut Out) {
        self.lose_source(gone);
        if let Some(zones) = self.volumes.get_mut(gone.index()) {
            *zones = None;
        }
        self.end_parked(gone, BlkStatus::NoVolume, out);
    }

    /// Ends what waits here and touches a volume.
    pub(crate) fn end_parked(&mut self, volume: VolumeId, status: BlkStatus, out: &mut Out) {
        let reads = |request: &Request| {
            request.op.copy().is_some_and(|copy| copy.segments.iter().any(|s| s.source_volume == volume))
        };
        for request in self.parked.extract_if(.., |request| request.volume == volume || reads(request)) {
            name(out, request.id, Next::Done(Completion::refused(status)));
        }
    }

    /// Lets the layers below have a change of the pool that is done with here.
    pub(crate) fn pass(&mut self, cx: &mut Cx<'_>, control: Control, out: &mut Out) {
        let answers = self.inner.control(cx, control);
        self.freed = true;
        self.route(cx, answers, out);
        self.pump(cx, out);
    }

    /// Tries what waits again, in order, as long as something comes free: each time one of them at least goes on its way.
    fn pump(&mut self, cx: &mut Cx<'_>, out: &mut Out) {
        while std::mem::take(&mut self.freed) {
            for request in std::mem::take(&mut self.parked) {
                self.start(cx, request, out);
            }
        }
    }
}

impl BlockDevice for Zoned {
    fn limits(&self, volume: VolumeId) -> Option<&Limits> {
        self.inner.limits(volume)
    }

    fn admit_copy(&self, request: &Request) -> Result<(), BlkStatus> {
        self.inner.admit_copy(&Request { flags: request.flags.without(Flags::APPEND), ..request.clone() })?;
        self.try_copy(request).map(|_| ())
    }

    fn undoable(&self, log: &dyn RedoLog, volume: VolumeId, ranges: &[SectorRange]) -> usize {
        self.inner.undoable(log, volume, ranges)
    }

    fn begin(&mut self, cx: &mut Cx<'_>, request: Request) -> Out {
        if self.is_idle() {
            return self.inner.begin(cx, request);
        }
        let mut out = Out::new();
        let id = request.id;
        self.start(cx, request, &mut out);
        if self.parked.iter().any(|request| request.id == id) {
            name(&mut out, id, Next::Wait);
            // Room in the log comes by the write-back of the layers below.
            let (answers, _) = self.inner.wake(cx);
            self.route(cx, answers, &mut out);
        }
        self.pump(cx, &mut out);
        out
    }

    fn finish(&mut self, cx: &mut Cx<'_>, plan: Plan, mut io: IoResult) -> Out {
        if self.is_idle() && !plan.request.is_internal() {
            return self.inner.finish(cx, plan, io);
        }
        let mut out = Out::new();
        if io.status.is_ok()
            && let Err(status) = self.executed(cx, &plan)
        {
            io = IoResult::failed(status, io.steps_done);
        }
        let internal = plan.request.is_internal();
        let commits = internal && plan.steps.iter().any(|step| matches!(step, Step::Commit(_)));
        let answers = self.inner.finish(cx, plan, io);
        if commits {
            (self.commits_fail, self.freed) = (!io.status.is_ok(), true);
            self.volumes.iter_mut().flatten().for_each(|zones| zones.committed(io.status.is_ok()));
        }
        self.route(cx, answers, &mut out);
        self.pump(cx, &mut out);
        out
    }

    fn abort(&mut self, cx: &mut Cx<'_>, id: RequestId) -> Out {
        let mut out = Out::new();
        if let Some(at) = self.parked.iter().position(|request| request.id == id) {
            self.parked.remove(at);
            self.freed = true;
            name(&mut out, id, Next::Done(Completion::refused(BlkStatus::Aborted)));
        } else {
            self.abort_reset(id);
            let answers = self.inner.abort(cx, id);
            self.route(cx, answers, &mut out);
        }
        self.pump(cx, &mut out);
        out
    }

    fn wake(&mut self, cx: &mut Cx<'_>) -> (Out, Option<Instant>) {
        let mut out = Out::new();
        let (answers, next) = self.inner.wake(cx);
        self.route(cx, answers, &mut out);
        self.pump(cx, &mut out);
        (out, next)
    }

    fn control(&mut self, cx: &mut Cx<'_>, control: Control) -> Out {
        let mut out = Out::new();
        let added = match &control {
            Control::AddVolume(volume, _) => Some(*volume),
            Control::RemoveVolume(volume) => {
                self.freed = true;
                self.remove_volume(*volume, &mut out);
                None
            }
            Control::FailZone(volume, zone, failure) => {
                self.fail_zone(cx, *volume, *zone, *failure);
                None
            }
            Control::SetLimits(..) | Control::SetTiming(..) => None,
            Control::PowerCut(volume, keep, _) => return self.power_cut(cx, *volume, *keep),
        };
        let answers = self.inner.control(cx, control);
        if let Some(volume) = added {
            self.add_volume(volume);
        }
        self.route(cx, answers, &mut out);
        self.pump(cx, &mut out);
        out
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn check(&self) -> Result<(), String> {
        self.inner.check()?;
        self.volumes.iter().flatten().try_for_each(Zones::check)?;
        self.check_resets()
    }
}
