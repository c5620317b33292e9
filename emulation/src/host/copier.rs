//! The callers of copies and what carries them down: tasks that submit step by step, the one worker that hands on
//! what drivers deferred, and the fallback by reading and writing.
//!
//! Whoever drives it decides which actor takes its next step, so that any interleaving can be tried.

use super::Emit;
use super::bio::{Bio, Part};
use super::blk_mq::{BlkMq, Ends, HostRequest};
use super::chunk::{Chunk, ChunkId, Parked};
use super::defect::{Defect, Defects};
use super::design::{Design, Piece, commands, pair_up};
use super::matcher::{Half, Matcher};
use super::stack::{Kind, Node, Stack};
use crate::device::Completion;
use crate::request::{CopySegment, RequestId, VolumeId};
use crate::status::BlkStatus;
use crate::units::{Bytes, SectorRange, Sectors};
use std::collections::{BTreeMap, VecDeque};

/// The buffer of the fallback.
pub const BUFFER: Sectors = Bytes::kib(128).whole_sectors();

/// Who submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// The caller of a copy, by the number that [`Copier::start`] gave.
    Task(u32),
    /// The worker that hands on what drivers deferred.
    Worker,
}

/// A copy, as its caller asks for it. Both lists together are one run of sectors each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCopy {
    /// The device of the sources.
    pub from: Node,
    /// The device of the destinations.
    pub to: Node,
    /// What to copy.
    pub sources: Vec<SectorRange>,
    /// Where it goes.
    pub destinations: Vec<SectorRange>,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyResult {
    /// Ok, or why it is not whole.
    pub status: BlkStatus,
    /// The finished prefix.
    pub bytes: Bytes,
    /// Carried by reading and writing.
    pub fell_back: Sectors,
}

#[derive(Debug)]
pub(super) enum Step {
    Plug,
    Unplug,
    Bio(Bio),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Offload,
    Read(Piece),
    Write(Piece),
    Done(CopyResult),
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) copy: HostCopy,
    pub(super) pieces: Vec<Piece>,
    pub(super) total: Sectors,
    pub(super) steps: VecDeque<Step>,
    /// Its chunks in order, with how each ended.
    pub(super) chunks: Vec<(ChunkId, Sectors, Option<BlkStatus>)>,
    pub(super) phase: Phase,
    /// The finished prefix.
    pub(super) done: Sectors,
    pub(super) fell_back: Sectors,
}

/// A host that copies.
#[derive(Debug)]
pub struct Copier {
    pub(super) stack: Stack,
    pub(super) design: Design,
    pub(super) defects: Defects,
    pub(super) tasks: Vec<Task>,
    pub(super) chunks: BTreeMap<ChunkId, Chunk>,
    pub(super) next_chunk: u64,
    pub(super) mq: BlkMq,
    pub(super) matcher: Matcher,
    pub(super) deferred: VecDeque<Bio>,
    pub(super) worker_plugged: bool,
}

impl Copier {
    /// A host over these devices. Its requests are numbered from `first_id` on.
    pub fn new(stack: Stack, design: Design, defects: Defects, first_id: u64) -> Self {
        Self {
            mq: BlkMq::new(&stack, first_id, defects),
            stack,
            design,
            defects,
            tasks: Vec::new(),
            chunks: BTreeMap::new(),
            next_chunk: 0,
            matcher: Matcher::default(),
            deferred: VecDeque::new(),
            worker_plugged: false,
        }
    }

    /// Begins a copy in a task of its own.
    pub fn start(&mut self, copy: HostCopy) -> Actor {
        let number = u32::try_from(self.tasks.len()).expect("fewer tasks than that");
        let pieces = pair_up(&copy.sources, &copy.destinations);
        let total = pieces.iter().fold(Sectors::ZERO, |sum, piece| sum + piece.source.len);
        let verdict = self.admit(&copy, total);
        let phase = match verdict {
            Ok(()) => Phase::Offload,
            Err(status) => Phase::Done(CopyResult { status, bytes: Bytes(0), fell_back: Sectors::ZERO }),
        };
        self.tasks.push(Task {
            copy,
            pieces,
            total,
            steps: VecDeque::new(),
            chunks: Vec::new(),
            phase,
            done: Sectors::ZERO,
            fell_back: Sectors::ZERO,
        });
        if phase == Phase::Offload {
            self.offload(number);
        }
        Actor::Task(number)
    }

    /// Who can take a step.
    pub fn runnable(&self) -> Vec<Actor> {
        let busy = |task: &(u32, &Task)| !task.1.steps.is_empty();
        let tasks = (0..).zip(&self.tasks).filter(busy).map(|(number, _)| Actor::Task(number));
        let worker = !self.deferred.is_empty() || self.worker_plugged;
        tasks.chain(worker.then_some(Actor::Worker)).collect()
    }

    /// The actor takes its next step. Nothing happens when it has none.
    pub fn step(&mut self, actor: Actor) {
        let number = match actor {
            Actor::Worker => return self.worker_step(),
            Actor::Task(number) => number,
        };
        match self.task(number).steps.pop_front() {
            None => return,
            Some(Step::Plug) => self.mq.plug(actor),
            Some(Step::Unplug) => {
                let ends = self.mq.unplug(actor, &self.stack);
                self.ended(ends);
            }
            Some(Step::Bio(bio)) => self.submit(actor, bio, false),
        }
        self.settle(number);
    }

    fn worker_step(&mut self) {
        if let Some(bio) = self.deferred.pop_front() {
            if !std::mem::replace(&mut self.worker_plugged, true) {
                self.mq.plug(Actor::Worker);
            }
            self.submit(Actor::Worker, bio, true);
        } else if std::mem::take(&mut self.worker_plugged) {
            let ends = self.mq.unplug(Actor::Worker, &self.stack);
            self.ended(ends);
        }
    }

    /// The actor is scheduled away in the middle, for want of memory or a lock.
    pub fn preempt(&mut self, actor: Actor) {
        let ends = self.mq.flush(actor, &self.stack);
        self.ended(ends);
    }

    /// What goes to the disks.
    pub fn take_emits(&mut self) -> Vec<Emit> {
        self.mq.take_emits()
    }

    /// A disk answers. Panics for a request that does not live.
    pub fn complete(&mut self, id: RequestId, completion: &Completion) {
        let mut completion = completion.clone();
        if self.design == Design::Context && self.defects.has(Defect::ErrorDropped) {
            completion.status = BlkStatus::Ok;
        }
        let ends = self.mq.complete(id, &completion, &self.stack);
        self.ended(ends);
    }

    /// How a copy ended; `None` while it has not.
    pub fn result(&self, actor: Actor) -> Option<CopyResult> {
        let Actor::Task(number) = actor else { return None };
        match self.tasks[number as usize].phase {
            Phase::Done(result) => Some(result),
            Phase::Offload | Phase::Read(_) | Phase::Write(_) => None,
        }
    }

    /// The devices.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The sectors of completed requests, as the statistics of the queues have them.
    pub fn accounted(&self) -> Sectors {
        self.mq.accounted()
    }

    /// True when nothing is under way: in plugs, queues, at disks, with the worker or with a driver.
    pub fn is_idle(&self) -> bool {
        !self.mq.is_busy() && self.deferred.is_empty() && self.matcher.is_empty()
    }

    pub(super) fn task(&mut self, number: u32) -> &mut Task {
        &mut self.tasks[number as usize]
    }

    /// Takes a bio down to the disks. `resumed`: the worker does, so its device does not defer it again.
    fn submit(&mut self, actor: Actor, bio: Bio, resumed: bool) {
        let mut resumed = resumed;
        let mut todo = VecDeque::from([bio]);
        while let Some(bio) = todo.pop_front() {
            let chunk = bio.chunk;
            let translated = matches!(bio.part, Part::Translated { .. });
            if bio.passes_end(&self.stack, self.defects) {
                self.refuse(chunk, translated, BlkStatus::IoErr);
                continue;
            }
            let deferred = match self.stack.kind(bio.node) {
                Kind::Disk(_) => {
                    self.at_disk(actor, bio);
                    continue;
                }
                Kind::Partition(_) => false,
                Kind::Linear { deferred, .. } | Kind::Stripe { deferred, .. } => *deferred,
            };
            if deferred && !std::mem::take(&mut resumed) {
                self.deferred.push_back(bio);
                continue;
            }
            let below = bio.below(&self.stack, self.design, self.defects);
            self.chunks.get_mut(&chunk).expect("its bio lives").pending += below.len() as u64 - 1;
            let mut place = 0;
            for piece in below {
                match piece {
                    Ok(bio) => {
                        todo.insert(place, bio);
                        place += 1;
                    }
                    Err(status) => self.refuse(chunk, translated, status),
                }
            }
        }
    }

    fn at_disk(&mut self, actor: Actor, bio: Bio) {
        let chunk = bio.chunk;
        match bio.part {
            Part::Half { side, range, offset } if self.design == Design::Matched => {
                let status = self.chunks[&chunk].status;
                if status.is_ok() || self.defects.has(Defect::LoneHalfParked) {
                    self.matched(Half { chunk, side, disk: bio.node, range, offset });
                } else {
                    self.end(chunk, status);
                }
            }
            Part::Translated { side, index, range } => {
                let parked = Parked { side, index, disk: bio.node, range };
                let context = self.chunks.get_mut(&chunk).expect("its bio lives");
                context.parked.push(parked);
                context.untranslated -= 1;
                self.translated(chunk);
            }
            Part::Half { .. } | Part::Vector { .. } | Part::Io { .. } => {
                let (ends, extra) = self.mq.submit(actor, bio, &self.stack, self.design);
                self.chunks.get_mut(&chunk).expect("its bio lives").pending += extra;
                self.ended(ends);
            }
        }
    }

    fn matched(&mut self, half: Half) {
        let chunk = half.chunk;
        let (matches, cut) = self.matcher.arrive(half, self.defects);
        self.chunks.get_mut(&chunk).expect("its bio lives").pending += cut;
        let mut ends = Ends::new();
        for found in matches {
            let (from, to) = (found.source.disk, found.destination.disk);
            let piece = Piece { source: found.source.range, destination: found.destination.range.start };
            let volume = self.stack.disk(from).volume;
            let commands = commands(&[piece], &self.stack.copy_limits(to, self.design));
            let bios = vec![found.destination.chunk, found.source.chunk];
            for bio in &bios {
                self.chunks.get_mut(bio).expect("its bio lives").pending += commands.len() as u64 - 1;
            }
            for command in commands {
                let request = HostRequest::command(to, segments(volume, &command), bios.clone());
                self.mq.dispatch(request, &self.stack, &mut ends);
            }
        }
        self.ended(ends);
    }

    /// A bio that reaches no disk.
    fn refuse(&mut self, chunk: ChunkId, translated: bool, status: BlkStatus) {
        if translated {
            let context = self.chunks.get_mut(&chunk).expect("its bio lives");
            context.untranslated -= 1;
            if context.status.is_ok() {
                context.status = status;
            }
            self.translated(chunk);
        }
        self.end(chunk, status);
    }

    pub(super) fn ended(&mut self, ends: Ends) {
        ends.into_iter().for_each(|(chunk, status)| self.end(chunk, status));
    }

    /// A bio ends.
    pub(super) fn end(&mut self, id: ChunkId, status: BlkStatus) {
        let chunk = self.chunks.get_mut(&id).expect("its bio lives");
        let number = chunk.task;
        if chunk.end(status) {
            let status = self.chunks.remove(&id).expect("it ends once").status;
            let task = self.task(number);
            task.chunks.iter_mut().filter(|chunk| chunk.0 == id).for_each(|chunk| chunk.2 = Some(status));
            self.settle(number);
        } else if !status.is_ok() && !self.defects.has(Defect::LoneHalfParked) {
            // A half whose twin has failed waits for nothing.
            for _ in 0..self.matcher.cancel(id) {
                self.end(id, status);
            }
        }
    }

    /// Goes on when everything that was submitted has ended.
    fn settle(&mut self, number: u32) {
        let task = self.task(number);
        if !task.steps.is_empty() || task.chunks.iter().any(|chunk| chunk.2.is_none()) {
            return;
        }
        let whole = task.chunks.iter().take_while(|chunk| chunk.2 == Some(BlkStatus::Ok));
        let (count, len) = whole.fold((0, Sectors::ZERO), |(count, len), chunk| (count + 1, len + chunk.1));
        let status = task.chunks.get(count).and_then(|chunk| chunk.2).unwrap_or(BlkStatus::Ok);
        task.chunks.clear();
        match task.phase {
            Phase::Done(_) => {}
            Phase::Offload => {
                task.done = len;
                if status.is_ok() || !self.design.falls_back(status) {
                    self.finish(number, status);
                } else {
                    self.fall_back(number);
                }
            }
            Phase::Read(piece) if status.is_ok() => self.write(number, piece),
            Phase::Write(piece) if status.is_ok() => {
                task.done += piece.source.len;
                task.fell_back += piece.source.len;
                self.fall_back(number);
            }
            Phase::Read(_) | Phase::Write(_) => self.finish(number, status),
        }
    }
}

pub(super) fn segments(source_volume: VolumeId, pieces: &[Piece]) -> Vec<CopySegment> {
    let segment =
        |piece: &Piece| CopySegment { source_volume, source: piece.source, destination: piece.destination };
    pieces.iter().map(segment).collect()
}
