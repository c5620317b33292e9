//! Request queues: plugs, merging, and dispatch up to the queue's depth.

use super::bio::{Bio, Part, Side, split_vector};
use super::chunk::ChunkId;
use super::copier::Actor;
use super::defect::{Defect, Defects};
use super::design::{Design, Piece};
use super::stack::{Disk, Node, Stack};
use super::{BufferId, Data, Emit};
use crate::device::Completion;
use crate::request::{CopyCommand, CopySegment, Flags, Op, Request, RequestId};
use crate::status::BlkStatus;
use crate::units::{SectorRange, Sectors};
use std::collections::{BTreeMap, VecDeque};

/// A plug is flushed when it holds so many requests (`BLK_MAX_REQUEST_COUNT`).
const PLUG_MAX: usize = 32;

/// Bios that ended, by their chunk.
pub(crate) type Ends = Vec<(ChunkId, BlkStatus)>;

/// What a request does.
#[derive(Clone, Debug)]
enum Work {
    /// A half whose other half has not come.
    Half { side: Side, range: SectorRange },
    /// Two halves.
    Pair { source: SectorRange, destination: SectorRange },
    /// Sources to neighbouring destinations.
    Vector(Vec<Piece>),
    /// What a driver made of several bios itself.
    Command(Vec<CopySegment>),
    /// Data.
    Io { write: bool, range: SectorRange, buffer: BufferId, offset: Sectors },
}

/// A request under way.
#[derive(Clone, Debug)]
pub(crate) struct HostRequest {
    disk: Node,
    work: Work,
    /// One entry for each bio.
    bios: Vec<ChunkId>,
    holds_tag: bool,
}

impl HostRequest {
    /// A command made by a driver.
    pub(crate) fn command(disk: Node, segments: Vec<CopySegment>, bios: Vec<ChunkId>) -> Self {
        Self { disk, work: Work::Command(segments), bios, holds_tag: false }
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// Tags in use.
    tags: u32,
    waiting: VecDeque<HostRequest>,
}

/// The queues of all disks.
#[derive(Debug)]
pub(crate) struct BlkMq {
    defects: Defects,
    queues: BTreeMap<Node, Queue>,
    plugs: BTreeMap<Actor, Vec<HostRequest>>,
    live: BTreeMap<RequestId, HostRequest>,
    emits: Vec<Emit>,
    next_id: u64,
    /// The sectors of completed requests, as the queues' statistics have them.
    accounted: Sectors,
}

impl BlkMq {
    pub(crate) fn new(stack: &Stack, first_id: u64, defects: Defects) -> Self {
        Self {
            defects,
            queues: stack.disks().map(|(node, _)| (node, Queue::default())).collect(),
            plugs: BTreeMap::new(),
            live: BTreeMap::new(),
            emits: Vec::new(),
            next_id: first_id,
            accounted: Sectors::ZERO,
        }
    }

    pub(crate) fn take_emits(&mut self) -> Vec<Emit> {
        std::mem::take(&mut self.emits)
    }

    pub(crate) fn accounted(&self) -> Sectors {
        self.accounted
    }

    /// True when a plug, a queue or a disk holds something.
    pub(crate) fn is_busy(&self) -> bool {
        !self.live.is_empty()
            || self.plugs.values().any(|plug| !plug.is_empty())
            || self.queues.values().any(|queue| !queue.waiting.is_empty())
    }

    pub(crate) fn plug(&mut self, actor: Actor) {
        self.plugs.entry(actor).or_default();
    }

    /// The actor has submitted all it wanted: everything goes, halves too.
    pub(crate) fn unplug(&mut self, actor: Actor, stack: &Stack) -> Ends {
        let mut ends = Ends::new();
        for request in self.plugs.remove(&actor).unwrap_or_default() {
            self.dispatch(request, stack, &mut ends);
        }
        ends
    }

    /// The actor is scheduled away, or its plug is full. A half stays: its other half is still to come.
    pub(crate) fn flush(&mut self, actor: Actor, stack: &Stack) -> Ends {
        let mut ends = Ends::new();
        let Some(plug) = self.plugs.get_mut(&actor) else { return ends };
        let lost = self.defects.has(Defect::PlugLost) || self.defects.has(Defect::HalfHoldsTag);
        let (stay, go) = std::mem::take(plug)
            .into_iter()
            .partition(|request| !lost && matches!(request.work, Work::Half { .. }));
        *plug = stay;
        for request in go {
            self.dispatch(request, stack, &mut ends);
        }
        ends
    }

    /// A bio reaches a disk. Answers what has ended, and how many bios it was split into beyond one.
    pub(crate) fn submit(&mut self, actor: Actor, bio: Bio, stack: &Stack, design: Design) -> (Ends, u64) {
        let Bio { chunk, node, part } = bio;
        let mut ends = Ends::new();
        let works = match part {
            Part::Half { side, range, .. } => vec![Work::Half { side, range }],
            Part::Vector { destination, sources } => {
                split_vector(destination, &sources, &stack.copy_limits(node, design))
                    .into_iter()
                    .map(Work::Vector)
                    .collect()
            }
            Part::Io { write, range, buffer, offset } => {
                let most = stack.disk(node).limits.max_io;
                let mut works = Vec::new();
                let mut done = Sectors::ZERO;
                while done < range.len {
                    let piece = range.split_at(done).1.split_at(most).0;
                    works.push(Work::Io { write, range: piece, buffer, offset: offset + done });
                    done += piece.len;
                }
                works
            }
            Part::Translated { .. } => panic!("a translated bio is parked, not queued"),
        };
        let extra = works.len() as u64 - 1;
        for work in works {
            self.queue(actor, node, work, chunk, stack, &mut ends);
        }
        (ends, extra)
    }

    fn queue(
        &mut self,
        actor: Actor,
        disk: Node,
        work: Work,
        chunk: ChunkId,
        stack: &Stack,
        ends: &mut Ends,
    ) {
        if self.merge(actor, disk, &work, chunk, stack) {
            return;
        }
        let half = matches!(work, Work::Half { .. });
        let mut request = HostRequest { disk, work, bios: vec![chunk], holds_tag: false };
        if half && self.defects.has(Defect::HalfHoldsTag) {
            let queue = self.queues.get_mut(&disk).expect("a queue for each disk");
            if queue.tags >= stack.disk(disk).depth {
                // It sleeps until there is a tag, and what its actor had plugged goes.
                ends.extend(self.flush(actor, stack));
                return self.dispatch(request, stack, ends);
            }
            queue.tags += 1;
            request.holds_tag = true;
        }
        let Some(plug) = self.plugs.get_mut(&actor) else {
            return self.dispatch(request, stack, ends);
        };
        plug.push(request);
        if plug.len() >= PLUG_MAX {
            ends.extend(self.flush(actor, stack));
        }
    }

    /// Adds a bio to a request of the actor's plug.
    fn merge(&mut self, actor: Actor, disk: Node, work: &Work, chunk: ChunkId, stack: &Stack) -> bool {
        let device = stack.disk(disk);
        let defects = self.defects;
        if device.nomerges && (!matches!(work, Work::Half { .. }) || defects.has(Defect::NomergesHonoured)) {
            return false;
        }
        let Some(plug) = self.plugs.get_mut(&actor) else { return false };
        let mut mine = plug.iter_mut().rev().filter(|request| request.disk == disk);
        let joined = match work {
            Work::Half { side, range } => {
                let twin = |request: &&mut HostRequest| match &request.work {
                    Work::Half { side: other, range: with } => {
                        side != other
                            && range.len == with.len
                            && (defects.has(Defect::PairedBySize) || request.bios[0] == chunk)
                    }
                    Work::Pair { .. } | Work::Vector(_) | Work::Command(_) | Work::Io { .. } => false,
                };
                // By size the last request of the queue is looked at, by copy every one.
                let found = if defects.has(Defect::PairedBySize) {
                    mine.next().filter(twin)
                } else {
                    mine.find(twin)
                };
                found.map(|request| {
                    let Work::Half { range: with, .. } = request.work else { return };
                    let (source, destination) = match side {
                        Side::Source => (*range, with),
                        Side::Destination => (with, *range),
                    };
                    request.work = Work::Pair { source, destination };
                    request.bios.push(chunk);
                })
            }
            Work::Vector(pieces) => mine.next().and_then(|request| {
                let Work::Vector(before) = &mut request.work else { return None };
                let count = before.len() + pieces.len();
                let len = length(before) + length(pieces);
                let end = before.last().map(|piece| piece.destination_range().end());
                let follows = end == pieces.first().map(|piece| piece.destination);
                let fits = count <= device.limits.copy_max_segments as usize
                    && len <= device.limits.copy_max_bytes.whole_sectors();
                (follows && fits).then(|| {
                    before.extend(pieces);
                    request.bios.push(chunk);
                })
            }),
            Work::Io { write, range, buffer, offset } => mine.next().and_then(|request| {
                let Work::Io { write: as_before, range: before, buffer: from, offset: at } =
                    &mut request.work
                else {
                    return None;
                };
                let follows = as_before == write
                    && before.end() == range.start
                    && from == buffer
                    && *at + before.len == *offset;
                (follows && before.len + range.len <= device.limits.max_io).then(|| {
                    before.len += range.len;
                    request.bios.push(chunk);
                })
            }),
            Work::Pair { .. } | Work::Command(_) => None,
        };
        joined.is_some()
    }

    /// Hands a request to its disk, or lets it wait for a tag.
    pub(crate) fn dispatch(&mut self, request: HostRequest, stack: &Stack, ends: &mut Ends) {
        let disk = request.disk;
        self.queues.get_mut(&disk).expect("a queue for each disk").waiting.push_back(request);
        self.pump(disk, stack, ends);
    }

    fn pump(&mut self, disk: Node, stack: &Stack, ends: &mut Ends) {
        let depth = stack.disk(disk).depth;
        loop {
            let queue = self.queues.get_mut(&disk).expect("a queue for each disk");
            let room = queue.tags < depth;
            if !queue.waiting.front().is_some_and(|request| request.holds_tag || room) {
                return;
            }
            let request = queue.waiting.pop_front().expect("there is one");
            queue.tags += u32::from(!request.holds_tag);
            match self.driver(&request, stack.disk(disk)) {
                Ok((op, data)) => {
                    let id = RequestId(self.next_id);
                    self.next_id += 1;
                    let request_to_disk =
                        Request { id, volume: stack.disk(disk).volume, op, flags: Flags::NONE };
                    self.emits.push(Emit { request: request_to_disk, data });
                    self.live.insert(id, request);
                }
                Err(status) => {
                    self.queues.get_mut(&disk).expect("a queue for each disk").tags -= 1;
                    ends.extend(request.bios.into_iter().map(|chunk| (chunk, status)));
                }
            }
        }
    }

    /// What the driver makes of a request.
    fn driver(&self, request: &HostRequest, disk: &Disk) -> Result<(Op, Data), BlkStatus> {
        let segment = |source, destination| CopySegment { source_volume: disk.volume, source, destination };
        let copy = |segments| Ok((Op::Copy(CopyCommand { segments }), Data::None));
        match &request.work {
            Work::Half { .. } => Err(BlkStatus::IoErr),
            Work::Pair { source, destination } => {
                copy([segment(*source, destination.start)].into_iter().collect())
            }
            Work::Vector(pieces)
                if self.defects.has(Defect::SegmentsExclusive)
                    && pieces.len() >= disk.limits.copy_max_segments as usize =>
            {
                Err(BlkStatus::IoErr)
            }
            Work::Vector(pieces) => {
                copy(pieces.iter().map(|piece| segment(piece.source, piece.destination)).collect())
            }
            Work::Command(segments) => copy(segments.iter().copied().collect()),
            Work::Io { write, range, buffer, offset } => {
                let op = if *write { Op::Write(*range) } else { Op::Read(*range) };
                Ok((op, Data::Buffer { id: *buffer, offset: *offset }))
            }
        }
    }

    /// Takes an answer of a disk. Panics for a request that does not live.
    pub(crate) fn complete(&mut self, id: RequestId, completion: &Completion, stack: &Stack) -> Ends {
        let request = self.live.remove(&id).expect("a live request is completed");
        let queue = self.queues.get_mut(&request.disk).expect("a queue for each disk");
        queue.tags -= 1;
        if completion.status.is_ok() {
            self.accounted += self.statistics(&request.work);
        }
        let mut ends: Ends = request.bios.iter().map(|chunk| (*chunk, completion.status)).collect();
        self.pump(request.disk, stack, &mut ends);
        ends
    }

    fn statistics(&self, work: &Work) -> Sectors {
        match work {
            Work::Half { .. } => Sectors::ZERO,
            Work::Pair { source, destination } if self.defects.has(Defect::LengthDoubled) => {
                source.len + destination.len
            }
            Work::Pair { destination, .. } => destination.len,
            Work::Vector(pieces) => length(pieces),
            Work::Command(segments) => segments.iter().fold(Sectors::ZERO, |sum, s| sum + s.source.len),
            Work::Io { range, .. } => range.len,
        }
    }
}

fn length(pieces: &[Piece]) -> Sectors {
    pieces.iter().fold(Sectors::ZERO, |sum, piece| sum + piece.source.len)
}
