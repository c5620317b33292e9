//! A snapshot with a persistent store: before a chunk of the origin is written for the first time, its old contents go
//! to the cow device; so do they before a part of a chunk of the snapshot is written. A write of a whole chunk of the
//! snapshot needs no copy.
//!
//! Copies may end in any order; exceptions are committed in the order in which they began. The store writes its area
//! when no exception is pending or the area is full, in which case the next area is zeroed first. Source:
//! `drivers/md/dm-snap.c` (`start_copy`, `copy_callback`, `start_full_bio`), `dm-snap-persistent.c`.

use super::{Act, Outcome, User, blocks, covers, touched};
use crate::host::kcopyd::Job;
use crate::request::{Flags, Op, VolumeId};
use crate::units::{Sector, SectorRange, Sectors};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// `DEFAULT_COW_THRESHOLD`: exceptions in progress above which writers sleep.
const COW_THRESHOLD: usize = 2048;
/// A record of an exception.
const RECORD: u64 = 16;

/// A write to the origin or to the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotWrite {
    /// To the snapshot, not the origin.
    pub to_snapshot: bool,
    /// What it writes.
    pub range: SectorRange,
}

/// What an act was.
#[derive(Clone, Copy, Debug)]
enum Doing {
    /// The copy of a chunk, or the callback in its place.
    Exception(u64),
    /// The write of a whole chunk to the cow device; its callback follows.
    Full(u64),
    /// Zeroes for the next area.
    Zero,
    /// The area's records.
    Records,
    /// A write that was let go.
    Write,
}

/// A snapshot with writes to come.
#[derive(Debug)]
pub struct Snapshot {
    origin: VolumeId,
    cow: VolumeId,
    chunk: Sectors,
    /// Writes under way at a time; all unless set.
    pub depth: usize,
    writes: VecDeque<SnapshotWrite>,
    /// Chunks with an exception, each with its place on the cow device.
    exceptions: BTreeMap<u64, u64>,
    /// Those that are not committed yet.
    pending: BTreeSet<u64>,
    /// Chunks in the order in which their exceptions began and are to be committed.
    order: VecDeque<u64>,
    copied: BTreeSet<u64>,
    /// Records in the area that is not written yet, and of the area in all.
    uncommitted: Vec<u64>,
    in_area: u64,
    area: u64,
    /// Exceptions that were given a place and have not reached the store.
    allocated: usize,
    next_free: u64,
    /// Writes that wait, each with the chunks that its own exceptions write whole.
    waiting: Vec<(SnapshotWrite, Vec<u64>)>,
    /// Requests of writes that were let go.
    writing: usize,
    ready: VecDeque<(Doing, Act)>,
    acts: BTreeMap<u64, Doing>,
    next_act: u64,
    /// The store waits for its own writes; what comes meanwhile waits.
    storing: bool,
    valid: bool,
}

impl Snapshot {
    /// A snapshot with chunks of `chunk` sectors: a power of two of at least 8.
    pub fn new(origin: VolumeId, cow: VolumeId, chunk: Sectors, writes: Vec<SnapshotWrite>) -> Self {
        Self {
            origin,
            cow,
            chunk,
            depth: usize::MAX,
            writes: writes.into(),
            exceptions: BTreeMap::new(),
            pending: BTreeSet::new(),
            order: VecDeque::new(),
            copied: BTreeSet::new(),
            uncommitted: Vec::new(),
            in_area: 0,
            area: 0,
            allocated: 0,
            // The header, then the first area.
            next_free: 2,
            waiting: Vec::new(),
            writing: 0,
            ready: VecDeque::new(),
            acts: BTreeMap::new(),
            next_act: 0,
            storing: false,
            valid: true,
        }
    }

    /// False after an error: the snapshot is gone, the origin goes on.
    pub fn is_valid(&self) -> bool {
        self.valid
    }

    /// Where a chunk went on the cow device.
    pub fn place(&self, chunk: u64) -> Option<u64> {
        self.exceptions.get(&chunk).copied()
    }

    fn per_area(&self) -> u64 {
        self.chunk.bytes().0 / RECORD
    }

    /// The next free chunk of the cow device; areas lie between the data.
    fn allocate(&mut self) -> u64 {
        let place = self.next_free;
        self.next_free += 1;
        if self.next_free % (self.per_area() + 1) == 1 {
            self.next_free += 1;
        }
        self.allocated += 1;
        place
    }

    fn take_writes(&mut self) {
        let before = self.waiting.len();
        while self.pending.len() < COW_THRESHOLD
            && self.waiting.len() + self.writing < self.depth
            && let Some(write) = self.writes.pop_front()
        {
            let mut own = Vec::new();
            for chunk in touched(write.range, self.chunk) {
                if self.valid && !self.exceptions.contains_key(&chunk) && self.begin(chunk, write) {
                    own.push(chunk);
                }
            }
            self.waiting.push((write, own));
        }
        // Whatever else lets writes go does so itself.
        if self.waiting.len() > before {
            self.let_go();
        }
    }

    /// Begins an exception; true when the write itself fills it.
    fn begin(&mut self, chunk: u64, write: SnapshotWrite) -> bool {
        let place = self.allocate();
        self.exceptions.insert(chunk, place);
        self.pending.insert(chunk);
        self.order.push_back(chunk);
        let to = blocks(self.cow, place, 1, self.chunk);
        let full = write.to_snapshot && covers(write.range, chunk, self.chunk);
        if full {
            self.ready.push_back((Doing::Full(chunk), Act::Io(self.cow, Op::Write(to.range), Flags::NONE)));
        } else {
            let job = Job::copy(blocks(self.origin, chunk, 1, self.chunk), to);
            self.ready.push_back((Doing::Exception(chunk), Act::Copy(job)));
        }
        full
    }

    /// Writes none of whose chunks is pending go.
    fn let_go(&mut self) {
        let (stay, go): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(write, _)| {
                touched(write.range, self.chunk).any(|chunk| self.pending.contains(&chunk))
            });
        self.waiting = stay;
        let before = self.ready.len();
        for (write, own) in go {
            if !write.to_snapshot {
                let act = Act::Io(self.origin, Op::Write(write.range), Flags::NONE);
                self.ready.push_back((Doing::Write, act));
                continue;
            }
            for chunk in touched(write.range, self.chunk) {
                let left = self.valid && !own.contains(&chunk);
                let Some(place) = self.exceptions.get(&chunk).filter(|_| left) else { continue };
                let whole = blocks(self.origin, chunk, 1, self.chunk).range;
                let part = whole.intersection(write.range).expect("it touches the chunk");
                let start = Sector(place * self.chunk.0) + (part.start - whole.start);
                let act = Act::Io(self.cow, Op::Write(SectorRange { start, len: part.len }), Flags::NONE);
                self.ready.push_back((Doing::Write, act));
            }
        }
        self.writing += self.ready.len() - before;
    }

    /// Commits what is copied, as far as the order goes.
    fn commit(&mut self) {
        while !self.storing
            && let Some(&chunk) = self.order.front().filter(|chunk| self.copied.contains(chunk))
        {
            self.order.pop_front();
            self.copied.remove(&chunk);
            self.uncommitted.push(chunk);
            self.in_area += 1;
            self.allocated -= 1;
            if self.in_area == self.per_area() {
                self.storing = true;
                let next = blocks(self.cow, self.area_place(self.area + 1), 1, self.chunk);
                self.ready.push_back((Doing::Zero, Act::Io(self.cow, Op::Write(next.range), Flags::NONE)));
            } else if self.allocated == 0 {
                self.storing = true;
                self.write_records();
            }
        }
    }

    fn area_place(&self, area: u64) -> u64 {
        1 + area * (self.per_area() + 1)
    }

    /// `REQ_PREFLUSH | REQ_FUA`: what was copied is durable before the record that names it.
    fn write_records(&mut self) {
        let place = blocks(self.cow, self.area_place(self.area), 1, self.chunk);
        self.ready.push_back((Doing::Records, Act::Io(self.cow, Op::Flush, Flags::NONE)));
        self.ready.push_back((Doing::Records, Act::Io(self.cow, Op::Write(place.range), Flags::FUA)));
    }

    fn recorded(&mut self) {
        if self
            .acts
            .values()
            .chain(self.ready.iter().map(|ready| &ready.0))
            .any(|a| matches!(a, Doing::Records))
        {
            return;
        }
        self.storing = false;
        if self.in_area == self.per_area() {
            self.in_area = 0;
            self.area += 1;
        }
        for chunk in std::mem::take(&mut self.uncommitted) {
            self.pending.remove(&chunk);
        }
        self.commit();
        self.let_go();
    }

    /// After an error nothing is copied any more and every write goes.
    fn invalidate(&mut self) {
        self.valid = false;
        self.pending.clear();
        self.order.clear();
        self.let_go();
    }
}

impl User for Snapshot {
    fn next(&mut self) -> Vec<(u64, Act)> {
        self.take_writes();
        let mut acts = Vec::new();
        while let Some((doing, act)) = self.ready.pop_front() {
            // The flush before the records ends before they are written.
            let is_record = |doing: &Doing| matches!(doing, Doing::Records);
            if is_record(&doing) && self.acts.values().any(is_record) {
                self.ready.push_front((doing, act));
                break;
            }
            self.next_act += 1;
            self.acts.insert(self.next_act, doing);
            acts.push((self.next_act, act));
        }
        acts
    }

    fn done(&mut self, act: u64, outcome: Outcome) {
        let doing = self.acts.remove(&act).expect("it is under way");
        if !outcome.is_ok() && !matches!(doing, Doing::Write) {
            return self.invalidate();
        }
        match doing {
            Doing::Exception(chunk) => {
                self.copied.insert(chunk);
                self.commit();
            }
            Doing::Full(chunk) => self.ready.push_back((Doing::Exception(chunk), Act::Callback)),
            Doing::Zero => self.write_records(),
            Doing::Records => self.recorded(),
            Doing::Write => self.writing -= 1,
        }
    }

    fn is_over(&self) -> bool {
        self.writes.is_empty() && self.waiting.is_empty() && self.ready.is_empty() && self.acts.is_empty()
    }
}
