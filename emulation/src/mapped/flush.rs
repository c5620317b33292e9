//! The durable image: FLUSH, FUA and the device's own write-back.
//!
//! A flush waits for no write: it takes a snapshot of the changes finished so far, syncs the data, commits the
//! metadata, and then the snapshot is the durable image. One runs at a time; all that come meanwhile share the
//! next.

use super::*;
use crate::redo::Commit;
use crate::time::Nanos;

/// After a commit that failed the device tries again by itself only so much later.
const RETRY: Nanos = Nanos(1_000_000_000);

/// The commits of a pool.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    running: Option<Running>,
    /// Who shares the next, each with its volume.
    next: Vec<(RequestId, VolumeId)>,
    /// Volumes removed since the last snapshot.
    removed: Vec<VolumeId>,
    /// The last redo record in the durable image.
    sequence: u64,
    /// Not before this time by the device itself.
    retry_at: Option<Instant>,
}

#[derive(Debug)]
struct Running {
    waiters: Vec<RequestId>,
    removed: Vec<VolumeId>,
    sequence: u64,
}

impl Flushes {
    pub(super) fn running(&self) -> bool {
        self.running.is_some()
    }

    pub(super) fn removed(&mut self, volume: VolumeId) {
        self.removed.push(volume);
    }

    /// The durable image has the redo records up to this number.
    pub(super) fn recovered(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    /// The last redo record in the durable image.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) fn awaited_by(&self, id: RequestId) -> bool {
        self.next.iter().any(|(waiter, _)| *waiter == id)
            || self.running.as_ref().is_some_and(|running| running.waiters.contains(&id))
    }

    /// Takes out who shares the next commit and is of this volume.
    pub(super) fn leave(&mut self, volume: VolumeId) -> Vec<RequestId> {
        self.next.extract_if(.., |(_, of)| *of == volume).map(|(id, _)| id).collect()
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }
}

impl Mapped {
    pub(super) fn begin_flush(
        &mut self,
        cx: &mut Cx<'_>,
        id: RequestId,
        volume: VolumeId,
        out: &mut Out,
    ) -> Next {
        if !self.imaged() || (!self.flushes.running() && !self.is_dirty(cx)) {
            return Next::Done(Completion::ok(Bytes(0)));
        }
        self.join_flush(cx, id, volume, out)
    }

    /// The request is answered by the first commit whose snapshot is yet to be taken.
    pub(super) fn join_flush(
        &mut self,
        cx: &mut Cx<'_>,
        id: RequestId,
        volume: VolumeId,
        out: &mut Out,
    ) -> Next {
        if self.flushes.running() {
            self.flushes.next.push((id, volume));
        } else {
            self.start_flush(cx, vec![id], out);
        }
        Next::Wait
    }

    pub(super) fn finish_flush(&mut self, cx: &mut Cx<'_>, plan: &Plan, status: BlkStatus, out: &mut Out) {
        let running = self.flushes.running.take().expect("a flush plan runs one flush");
        let durable = status.is_ok();
        self.space.committed(durable);
        for volume in self.volumes.iter_mut().filter_map(|slot| slot.volume.as_mut()) {
            let committing = std::mem::take(&mut volume.committing);
            if !durable {
                volume.unsaved(&committing, &mut self.links);
            }
        }
        if durable {
            self.links.forget();
            self.flushes.sequence = running.sequence;
            self.flushes.retry_at = None;
            cx.log.committed(running.sequence);
        } else {
            self.flushes.removed.extend(running.removed);
            self.flushes.retry_at = Some(cx.now + RETRY);
        }
        assert!(plan.request.is_internal(), "a flush is the device's own plan");
        for id in running.waiters {
            let next = if let Some(waiting) = self.waiting.remove(&id) {
                waiting.committed(status)
            } else if durable {
                Next::Done(Completion::ok(Bytes(0)))
            } else {
                Next::Done(Completion::refused(status))
            };
            out.push((id, next));
        }
        let next: Vec<_> = std::mem::take(&mut self.flushes.next).into_iter().map(|(id, _)| id).collect();
        if !next.is_empty() {
            self.start_flush(cx, next, out);
        }
    }

    /// True when a commit runs that will give back what is held now, started here if need be.
    pub(super) fn commit_is_coming(&mut self, cx: &mut Cx<'_>, out: &mut Out) -> bool {
        if !self.imaged() {
            return false;
        }
        if !self.flushes.running() && self.may_write_back(cx.now) {
            self.start_flush(cx, Vec::new(), out);
        }
        self.flushes.running()
    }

    /// The device's own write-back, when too much is held back or the log fills up.
    pub(super) fn write_back(&mut self, cx: &mut Cx<'_>, out: &mut Out) {
        if self.needs_write_back(cx) && !self.flushes.running() && self.may_write_back(cx.now) {
            self.start_flush(cx, Vec::new(), out);
        }
    }

    /// When [`BlockDevice::wake`] has something to try again.
    pub(super) fn next_wake(&self, cx: &Cx<'_>) -> Option<Instant> {
        if self.needs_write_back(cx) && !self.flushes.running() { self.flushes.retry_at() } else { None }
    }

    fn needs_write_back(&self, cx: &Cx<'_>) -> bool {
        let Some(held_max) = self.held_max() else {
            return false;
        };
        let log = cx.log.fill() != Fill::Low && cx.log.last() > self.flushes.sequence;
        log || self.space.held_blocks() * self.block() > held_max.0
    }

    fn may_write_back(&self, now: Instant) -> bool {
        self.flushes.retry_at.is_none_or(|at| now >= at)
    }

    /// True when something was recorded or removed that no durable image has.
    fn is_dirty(&self, cx: &Cx<'_>) -> bool {
        !self.flushes.removed.is_empty() || cx.log.last() > self.flushes.sequence
    }

    fn start_flush(&mut self, cx: &mut Cx<'_>, waiters: Vec<RequestId>, out: &mut Out) {
        self.space.snapshot();
        self.links.snapshot();
        let mut changes = Vec::new();
        for (index, slot) in self.volumes.iter_mut().enumerate() {
            let Some(volume) = slot.volume.as_mut() else {
                continue;
            };
            let id = VolumeId(u32::try_from(index).expect("volume numbers are 32 bits"));
            volume.committing = std::mem::take(&mut volume.dirty);
            for dirty in volume.committing.iter() {
                changes.extend(volume.map.pieces_and_holes(dirty.range).map(|(logical, physical)| {
                    MapChange { volume: id, logical, physical: physical.map(|first| first.0) }
                }));
            }
        }
        let removed = std::mem::take(&mut self.flushes.removed);
        let sequence = cx.log.last();
        // Zones are added by the layer that keeps them.
        let commit = Commit { changes, zones: Vec::new(), removed: removed.clone(), sequence };
        self.flushes.running = Some(Running { waiters, removed, sequence });
        let request = self.internal();
        let link = Link { volume: VolumeId::POOL, source: None, destination: None };
        let steps = smallvec![Step::Sync, Step::Commit(Box::new(commit))];
        let plan = self.plan(Work::Flush, request, PortKind::None, link, steps);
        out.push((request, Next::Run(plan)));
    }
}
