//! Mode `emulate`: a copy done the way a target without copy does it, by inner reads and writes through a bounce
//! buffer. Nothing is held between the links, so another writer may come in between.

use crate::device::{BlockDevice, Completion, Control, Cx, IoResult, Next, Out, Plan, PortKind, Usage};
use crate::limits::{CopyMode, Limits};
use crate::redo::RedoLog;
use crate::request::{CopyCommand, Flags, Op, Request, RequestId, VolumeId};
use crate::status::BlkStatus;
use crate::time::Instant;
use crate::units::{Bytes, Sector, SectorRange, Sectors};
use smallvec::smallvec;
use std::collections::BTreeMap;

/// The bounce buffer of a copy.
pub const BOUNCE_BYTES: Bytes = Bytes::kib(128);

/// The layer that carries out copies in mode [`CopyMode::Emulate`]; everything else goes through.
#[derive(Debug)]
pub struct Emulated {
    inner: Box<dyn BlockDevice>,
    copies: BTreeMap<RequestId, Copy>,
}

#[derive(Debug)]
struct Copy {
    volume: VolumeId,
    command: CopyCommand,
    flags: Flags,
    segment: usize,
    /// Sectors done of the segment.
    done: Sectors,
    /// The finished prefix.
    total: Sectors,
    phase: Phase,
    /// Where its first piece was appended; the rest follows as plain writes.
    appended_at: Option<Sector>,
    /// Set from outside: it ends before its next link.
    end: Option<BlkStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Read(Sectors),
    Write(Sectors),
    Flush,
}

impl Copy {
    fn failed(&self, status: BlkStatus) -> Completion {
        Completion {
            bytes: self.total.bytes(),
            first_failed_segment: Some(u32::try_from(self.segment).unwrap_or(u32::MAX)),
            appended_at: self.appended_at,
            ..Completion::refused(status)
        }
    }

    /// The piece of the current segment that starts where it is done.
    fn piece(&self, len: Sectors) -> (VolumeId, SectorRange, SectorRange) {
        let segment = &self.command.segments[self.segment];
        let source = segment.source.split_at(self.done).1.split_at(len).0;
        let destination = segment.destination_range().split_at(self.done).1.split_at(len).0;
        (segment.source_volume, source, destination)
    }

    fn left(&self) -> Option<Sectors> {
        self.command.segments.get(self.segment).map(|segment| segment.source.len - self.done)
    }

    /// True while the device is yet to choose where it goes.
    fn appends(&self) -> bool {
        self.flags.has(Flags::APPEND) && self.appended_at.is_none()
    }

    fn progress(&mut self, len: Sectors) {
        self.done += len;
        self.total += len;
        if self.left() == Some(Sectors::ZERO) {
            self.segment += 1;
            self.done = Sectors::ZERO;
        }
    }
}

impl Emulated {
    /// The layer over `inner`.
    pub fn new(inner: Box<dyn BlockDevice>) -> Self {
        Self { inner, copies: BTreeMap::new() }
    }

    /// Starts the next inner request of a copy and takes its answers to the point where somebody else has to act.
    fn next(&mut self, cx: &mut Cx<'_>, id: RequestId, out: &mut Out) {
        let copy = self.copies.get_mut(&id).expect("the copy lives");
        let Some(left) = copy.left() else {
            copy.phase = Phase::Flush;
            return self.inner_begin(cx, id, Op::Flush, out);
        };
        if let Some(status) = copy.end {
            let completion = copy.failed(status);
            self.copies.remove(&id);
            out.push((id, Next::Done(completion)));
            return;
        }
        let (source_volume, _, _) = copy.piece(left);
        let most = [source_volume, copy.volume]
            .iter()
            .filter_map(|volume| self.inner.limits(*volume))
            .map(|limits| limits.max_io)
            .fold(BOUNCE_BYTES.whole_sectors(), Sectors::min);
        let mut len = left.min(most);
        if copy.appends()
            && let Some(zones) = self.inner.limits(copy.volume).and_then(|limits| limits.zones)
        {
            len = len.min(zones.max_append);
        }
        copy.phase = Phase::Read(len);
        let (_, source, _) = copy.piece(len);
        self.inner_begin(cx, id, Op::Read(source), out);
    }

    fn inner_begin(&mut self, cx: &mut Cx<'_>, id: RequestId, op: Op, out: &mut Out) {
        let copy = &self.copies[&id];
        let volume = match copy.phase {
            Phase::Read(len) => copy.piece(len).0,
            Phase::Write(_) | Phase::Flush => copy.volume,
        };
        let append = matches!(copy.phase, Phase::Write(_)) && copy.appends();
        let flags = if append { Flags::INSIDE | Flags::APPEND } else { Flags::INSIDE };
        let inner = self.inner.begin(cx, Request { id, volume, op, flags });
        self.route(cx, inner, out);
    }

    /// Hands answers on; those for inner requests of a copy take the copy further instead.
    fn route(&mut self, cx: &mut Cx<'_>, answers: Out, out: &mut Out) {
        for (id, next) in answers {
            match next {
                Next::Done(completion) if self.copies.contains_key(&id) => {
                    self.inner_done(cx, id, &completion, out)
                }
                Next::Run(mut plan) if self.copies.contains_key(&id) => {
                    if plan.port == PortKind::Door {
                        plan.port = PortKind::Bounce;
                    }
                    out.push((id, Next::Run(plan)));
                }
                Next::Done(_) | Next::Run(_) | Next::Wait => out.push((id, next)),
            }
        }
    }

    fn routed(&mut self, cx: &mut Cx<'_>, answers: Out) -> Out {
        if self.copies.is_empty() {
            return answers;
        }
        let mut out = Out::new();
        self.route(cx, answers, &mut out);
        out
    }

    fn inner_done(&mut self, cx: &mut Cx<'_>, id: RequestId, completion: &Completion, out: &mut Out) {
        let copy = self.copies.get_mut(&id).expect("the copy lives");
        if !completion.status.is_ok() {
            if copy.phase == Phase::Flush {
                // Nothing of it is known to be durable, which is what it asked for.
                (copy.segment, copy.total) = (0, Sectors::ZERO);
            }
            let status = copy.end.unwrap_or(completion.status);
            let completion = copy.failed(status);
            self.copies.remove(&id);
            out.push((id, Next::Done(completion)));
            return;
        }
        match copy.phase {
            Phase::Read(len) if copy.end.is_none() => {
                copy.phase = Phase::Write(len);
                let (_, _, destination) = copy.piece(len);
                self.inner_begin(cx, id, Op::Write(destination), out);
            }
            Phase::Read(_) => self.next(cx, id, out),
            Phase::Write(len) => {
                if let Some(at) = completion.appended_at {
                    copy.appended_at = Some(at);
                    copy.command.place(at);
                }
                copy.progress(len);
                if copy.left().is_none() && !copy.flags.has(Flags::FUA) {
                    self.whole(id, out);
                } else {
                    self.next(cx, id, out);
                }
            }
            Phase::Flush => self.whole(id, out),
        }
    }

    /// Copies from or to a volume end before their next inner request.
    fn end_copies_of(&mut self, volume: VolumeId, status: BlkStatus) {
        for copy in self.copies.values_mut() {
            let touches = |segment: &crate::request::CopySegment| segment.source_volume == volume;
            if copy.volume == volume || copy.command.segments.iter().any(touches) {
                copy.end = Some(status);
            }
        }
    }

    fn whole(&mut self, id: RequestId, out: &mut Out) {
        let copy = self.copies.remove(&id).expect("the copy lives");
        let completion = Completion { appended_at: copy.appended_at, ..Completion::ok(copy.total.bytes()) };
        out.push((id, Next::Done(completion)));
    }
}

impl BlockDevice for Emulated {
    fn limits(&self, volume: VolumeId) -> Option<&Limits> {
        self.inner.limits(volume)
    }

    fn admit_copy(&self, request: &Request) -> Result<(), BlkStatus> {
        self.inner.admit_copy(request)
    }

    fn undoable(&self, log: &dyn RedoLog, volume: VolumeId, ranges: &[SectorRange]) -> usize {
        self.inner.undoable(log, volume, ranges)
    }

    fn begin(&mut self, cx: &mut Cx<'_>, request: Request) -> Out {
        let emulate =
            self.inner.limits(request.volume).is_some_and(|limits| limits.copy_mode == CopyMode::Emulate);
        let mut out = Out::new();
        match &request.op {
            Op::Copy(command) if emulate => {
                let fast = request.flags.has(Flags::FAST_ONLY);
                let admitted =
                    if fast { Err(BlkStatus::CopyNotFast) } else { self.inner.admit_copy(&request) };
                if let Err(status) = admitted {
                    return smallvec![(request.id, Next::Done(Completion::refused(status)))];
                }
                let copy = Copy {
                    volume: request.volume,
                    command: command.clone(),
                    flags: request.flags,
                    segment: 0,
                    done: Sectors::ZERO,
                    total: Sectors::ZERO,
                    phase: Phase::Flush,
                    appended_at: None,
                    end: None,
                };
                self.copies.insert(request.id, copy);
                self.next(cx, request.id, &mut out);
            }
            Op::Read(_)
            | Op::Write(_)
            | Op::Flush
            | Op::Discard(_)
            | Op::WriteZeroes(_)
            | Op::Copy(_)
            | Op::ZoneMgmt { .. }
            | Op::ZoneResetAll
            | Op::ReportZones { .. } => {
                let inner = self.inner.begin(cx, request);
                return self.routed(cx, inner);
            }
        }
        out
    }

    fn finish(&mut self, cx: &mut Cx<'_>, plan: Plan, io: IoResult) -> Out {
        let inner = self.inner.finish(cx, plan, io);
        self.routed(cx, inner)
    }

    fn abort(&mut self, cx: &mut Cx<'_>, id: RequestId) -> Out {
        if let Some(copy) = self.copies.get_mut(&id) {
            copy.end.get_or_insert(BlkStatus::Aborted);
        }
        let inner = self.inner.abort(cx, id);
        self.routed(cx, inner)
    }

    fn wake(&mut self, cx: &mut Cx<'_>) -> (Out, Option<Instant>) {
        let (inner, next) = self.inner.wake(cx);
        (self.routed(cx, inner), next)
    }

    fn control(&mut self, cx: &mut Cx<'_>, control: Control) -> Out {
        match &control {
            // What is left of a copy must not go on in a volume that takes the number later.
            Control::RemoveVolume(gone) => self.end_copies_of(*gone, BlkStatus::NoVolume),
            // Between two inner writes there may be no plan that the cut reaches.
            Control::PowerCut(cut, ..) => self.end_copies_of(*cut, BlkStatus::IoErr),
            Control::AddVolume(..)
            | Control::SetLimits(..)
            | Control::SetTiming(..)
            | Control::FailZone(..) => {}
        }
        let inner = self.inner.control(cx, control);
        self.routed(cx, inner)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn check(&self) -> Result<(), String> {
        self.inner.check()
    }
}

#[cfg(test)]
mod tests;
