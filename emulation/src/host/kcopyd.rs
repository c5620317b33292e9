//! The copy service of device mapper, `dm-kcopyd`, as a state machine.
//!
//! One worker does everything: it completes jobs, gives pages to those that wait for them, and starts I/O, in this
//! order each time it is woken. A job longer than a sub-job is carried by eight of them, each of which takes the next
//! slice when it is done with one. Throttling puts the worker itself to sleep, so nothing of its client moves then.
//! Source: Linux 7.3.4, `drivers/md/dm-kcopyd.c` and `dm-io.c`; the offload follows what the series of 2021 to 2022
//! did there, without its defects, each of which is a switch.

mod job;
mod throttle;
pub mod users;

pub use job::{DESTINATIONS_MAX, Job, JobError, JobId, Notice, Region};
pub use throttle::Throttle;

use super::{BufferId, Data, Emit};
use crate::device::Completion;
use crate::request::{CopyCommand, CopySegment, Flags, Op, Request, RequestId, VolumeId};
use crate::time::Instant;
use crate::units::{Bytes, SectorRange, Sectors};
use job::{Doing, Master, SubId, SubJob};
use std::collections::{BTreeMap, VecDeque};

/// `SPLIT_COUNT`: the sub-jobs of a split job.
pub const SPLIT_COUNT: u64 = 8;
/// `kcopyd_subjob_size_kb` unless set.
pub const SUB_JOB: Bytes = Bytes::kib(512);
/// The most that it can be set to.
pub const SUB_JOB_MAX: Bytes = Bytes::kib(1024);
/// A page.
pub const PAGE: Sectors = Bytes::kib(4).whole_sectors();

/// A published defect of kcopyd, or of the offload that was posted for it in 2021 to 2022
/// (20221123055827.26996-10-nj.shetty@samsung.com).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KcopydDefect {
    /// The test for the offload looks at the source's disk, which a zero job does not have: the worker is gone.
    ZeroJobWithoutSource,
    /// The pages of a job are counted by its first destination, which may be done: none becomes a great many.
    PagesOfFirstDestination,
    /// The worker waits for each copy.
    SynchronousCopy,
    /// Copies are not throttled.
    ThrottleBypassed,
    /// Copies to a zone are sent in any order.
    OrderIgnored,
    /// By reading of 7.3.4: after a failed read, later slices of a sequential job stay parked.
    ParkedAfterReadError,
}

impl KcopydDefect {
    /// Every defect.
    pub const ALL: [Self; 6] = [
        Self::ZeroJobWithoutSource,
        Self::PagesOfFirstDestination,
        Self::SynchronousCopy,
        Self::ThrottleBypassed,
        Self::OrderIgnored,
        Self::ParkedAfterReadError,
    ];
}

/// A client's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The slice of a sub-job, at most [`SUB_JOB_MAX`]; the page reserve is as large.
    pub sub_job: Sectors,
    /// Pages that the allocator gives beside the reserve, at a time. With 0 one sub-job makes progress.
    pub free_pages: u64,
    /// The most sectors of one read or write request; neighbours within the worker's plug are merged up to it.
    pub max_io: Sectors,
    /// Zeroes are written by WRITE ZEROES; else by writing the zero page.
    pub write_zeroes: bool,
    /// Copies are offloaded, in segments of at most so many sectors.
    pub offload: Option<Sectors>,
    /// The share of time with I/O in flight, in percent, and ticks a second.
    pub throttle: Throttle,
    /// Its requests are numbered from here on.
    pub first_id: u64,
    /// A defect that is on.
    pub defect: Option<KcopydDefect>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sub_job: SUB_JOB.whole_sectors(),
            free_pages: u64::MAX,
            max_io: Bytes::mib(1).whole_sectors(),
            write_zeroes: true,
            offload: None,
            throttle: Throttle::default(),
            first_id: 1,
            defect: None,
        }
    }
}

/// What a request is to the sub-jobs that it serves.
type Serves = Vec<(SubId, Option<usize>)>;

/// What waits to be completed.
#[derive(Clone, Copy, Debug)]
enum Over {
    Slice(SubId),
    Job(JobId),
}

/// A kcopyd client. The buffer of a job has the job's number and its offsets; only what lies in slices under way is in use.
#[derive(Debug)]
pub struct Kcopyd {
    config: Config,
    throttle: Throttle,
    /// Pages that may still be taken: the reserve, and what the allocator gives.
    pages: u64,
    masters: BTreeMap<JobId, Master>,
    subs: BTreeMap<SubId, SubJob>,
    next_job: u64,
    next_sub: u64,
    next_id: u64,
    callback: VecDeque<JobId>,
    complete: VecDeque<Over>,
    copies: VecDeque<SubId>,
    waiting: VecDeque<SubId>,
    io: VecDeque<SubId>,
    live: BTreeMap<RequestId, Serves>,
    plug: Vec<(Emit, Serves)>,
    notices: Vec<Notice>,
    woken: bool,
    /// The worker sleeps, about to start this job's I/O, having slept so often.
    asleep: Option<(Instant, SubId, u32)>,
    /// The worker waits for the copies of this job.
    synchronous: Option<SubId>,
    dead: bool,
}

impl Kcopyd {
    /// A client without jobs.
    pub fn new(config: Config) -> Self {
        let reserve = pages_of(config.sub_job);
        Self {
            throttle: config.throttle.clone(),
            pages: reserve.saturating_add(config.free_pages),
            masters: BTreeMap::new(),
            subs: BTreeMap::new(),
            next_job: 0,
            next_sub: 0,
            next_id: config.first_id,
            callback: VecDeque::new(),
            complete: VecDeque::new(),
            copies: VecDeque::new(),
            waiting: VecDeque::new(),
            io: VecDeque::new(),
            live: BTreeMap::new(),
            plug: Vec::new(),
            notices: Vec::new(),
            woken: false,
            asleep: None,
            synchronous: None,
            dead: false,
            config,
        }
    }

    /// Copies, or zeroes where there is no source.
    ///
    /// # Errors
    /// Says what is wrong with the job; nothing happens then.
    pub fn copy(&mut self, job: Job) -> Result<JobId, JobError> {
        let mut job = job;
        let len = job.check()?;
        // Sequential writes cannot go on after an error.
        job.ignore_error &= !job.write_seq;
        let id = self.master(Some(job), len);
        if len <= self.config.sub_job {
            self.slice(id, len);
        } else {
            self.masters.get_mut(&id).expect("just made").subs = SPLIT_COUNT;
            (0..SPLIT_COUNT).for_each(|_| self.next_slice(id));
        }
        self.woken = true;
        Ok(id)
    }

    /// Calls back in line with the jobs, without I/O: what a user sends instead of a copy that it can do without.
    pub fn callback(&mut self) -> JobId {
        let id = self.master(None, Sectors::ZERO);
        self.callback.push_back(id);
        self.woken = true;
        id
    }

    /// Changes the throttle, in percent of time.
    pub fn set_throttle(&mut self, percent: u64) {
        self.throttle.percent = percent;
    }

    /// Lets the worker work if it is woken and not asleep. What it sends is in order.
    pub fn run(&mut self, now: Instant) -> Vec<Emit> {
        if let Some((until, sub, slept)) = self.asleep
            && until <= now
        {
            self.asleep = None;
            if self.start(sub, slept, now) {
                self.start_all(now);
            }
        }
        while self.woken && self.asleep.is_none() && self.synchronous.is_none() && !self.dead {
            self.woken = false;
            self.work(now);
        }
        self.unplug()
    }

    /// When the worker's sleep ends.
    pub fn wake_at(&self) -> Option<Instant> {
        self.asleep.map(|asleep| asleep.0)
    }

    /// A disk answers. Panics for a request that does not live.
    pub fn complete(&mut self, now: Instant, id: RequestId, completion: &Completion) {
        let serves = self.live.remove(&id).expect("a live request is completed");
        for (sub, destination) in serves {
            let job = self.subs.get_mut(&sub).expect("its request lived");
            job.outstanding -= 1;
            if !completion.status.is_ok() {
                match destination {
                    Some(index) => job.failed |= 1 << index,
                    None => job.read_failed = true,
                }
            }
            if job.outstanding == 0 {
                self.io_done(now, sub);
            }
        }
    }

    /// The jobs that have ended, in the order of their callbacks.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// True when no job lives: the client could be destroyed.
    pub fn is_idle(&self) -> bool {
        self.masters.is_empty()
    }

    fn master(&mut self, job: Option<Job>, len: Sectors) -> JobId {
        self.next_job += 1;
        let id = JobId(self.next_job);
        self.masters.insert(id, Master::new(job, len));
        id
    }

    /// A sub-job takes the next slice, unless there is none or something failed.
    fn next_slice(&mut self, id: JobId) {
        let most = self.config.sub_job;
        let master = self.masters.get_mut(&id).expect("its sub-jobs live");
        let left = if master.goes_on() { master.len - master.progress } else { Sectors::ZERO };
        if !left.is_zero() {
            return self.slice(id, left.min(most));
        }
        master.subs -= 1;
        if master.subs == 0 {
            self.complete.push_back(Over::Job(id));
            self.woken = true;
        }
    }

    fn slice(&mut self, id: JobId, len: Sectors) {
        let master = self.masters.get_mut(&id).expect("it lives");
        let job = master.job.as_ref().expect("a callback has no slice");
        let zeroes = job.source.is_none();
        let doing = match (zeroes, self.config.offload) {
            (true, _) => Doing::Zero,
            (false, Some(_)) => Doing::Copy,
            (false, None) => Doing::Read,
        };
        let left = (1 << job.destinations.len()) - 1;
        let offset = master.progress;
        master.progress += len;
        self.next_sub += 1;
        let sub = SubId(self.next_sub);
        self.subs.insert(sub, SubJob::new(id, offset, len, doing, left));
        match doing {
            Doing::Zero if self.has(KcopydDefect::ZeroJobWithoutSource) && self.config.offload.is_some() => {
                self.dead = true;
            }
            Doing::Zero => self.io.push_back(sub),
            Doing::Copy => self.copies.push_back(sub),
            Doing::Read | Doing::Write => self.waiting.push_back(sub),
        }
        self.woken = true;
    }

    fn has(&self, defect: KcopydDefect) -> bool {
        self.config.defect == Some(defect)
    }

    /// One turn of the worker: completions give pages back, pages make I/O possible, I/O goes out.
    fn work(&mut self, now: Instant) {
        self.complete.extend(self.callback.drain(..).map(Over::Job));
        while let Some(over) = self.complete.pop_front() {
            match over {
                Over::Slice(sub) => self.end(sub),
                Over::Job(id) => self.notify(id),
            }
        }
        while let Some(sub) = self.waiting.pop_front() {
            if !self.take_pages(sub) {
                self.waiting.push_front(sub);
                break;
            }
            self.io.push_back(sub);
        }
        self.start_all(now);
    }

    fn take_pages(&mut self, sub: SubId) -> bool {
        let first_done = self.subs[&sub].left & 1 == 0;
        let pages = if first_done && self.has(KcopydDefect::PagesOfFirstDestination) {
            u64::from(u32::MAX)
        } else {
            pages_of(self.subs[&sub].len)
        };
        // What the allocator has without end is not counted.
        if self.config.free_pages == u64::MAX && pages < u64::from(u32::MAX) {
            return true;
        }
        if pages > self.pages || pages == u64::from(u32::MAX) {
            return false;
        }
        self.pages -= pages;
        self.subs.get_mut(&sub).expect("it lives").pages = pages;
        true
    }

    /// Starts what can be started, until the worker has to sleep or to wait.
    fn start_all(&mut self, now: Instant) {
        while self.synchronous.is_none() {
            let Some(sub) = self.next_copy().or_else(|| self.next_io()) else { return };
            if !self.start(sub, 0, now) {
                return;
            }
        }
    }

    fn next_copy(&mut self) -> Option<SubId> {
        let ordered = !self.has(KcopydDefect::OrderIgnored);
        let place = self.copies.iter().position(|sub| !ordered || self.is_next(*sub))?;
        self.copies.remove(place)
    }

    /// Any read; a write unless it has to wait for its place.
    fn next_io(&mut self) -> Option<SubId> {
        let place =
            self.io.iter().position(|sub| self.subs[sub].doing == Doing::Read || self.is_next(*sub))?;
        let sub = self.io.remove(place)?;
        if self.subs[&sub].doing != Doing::Read {
            self.written(sub);
        }
        Some(sub)
    }

    /// True when the writes of a slice may go: it has no order, or it is the next, or its job has failed and it will
    /// be failed too.
    fn is_next(&self, sub: SubId) -> bool {
        let job = &self.subs[&sub];
        let master = &self.masters[&job.master];
        let sequential = master.job.as_ref().is_some_and(|job| job.write_seq);
        let failed =
            master.read_err && !self.has(KcopydDefect::ParkedAfterReadError) || master.write_err != 0;
        !sequential || job.offset == master.write_offset || failed
    }

    /// A slice's place in the order is taken when its write is picked, not when that is done; a copy's when it is done,
    /// since until then it may have to be written.
    fn written(&mut self, sub: SubId) {
        let job = &self.subs[&sub];
        let (offset, end, master) = (job.offset, job.offset + job.len, job.master);
        let master = self.masters.get_mut(&master).expect("its sub-job lives");
        if offset == master.write_offset {
            master.write_offset = end;
        }
    }

    /// Starts the I/O of a slice. False when the worker went to sleep instead.
    fn start(&mut self, sub: SubId, slept: u32, now: Instant) -> bool {
        let job = &self.subs[&sub];
        let doing = job.doing;
        let master = &self.masters[&job.master];
        let sequential = master.job.as_ref().is_some_and(|job| job.write_seq);
        if sequential && doing != Doing::Read && !master.goes_on() {
            let write_err = if master.write_err != 0 { master.write_err } else { u64::MAX };
            self.subs.get_mut(&sub).expect("it lives").write_err = write_err;
            self.complete.push_back(Over::Slice(sub));
            self.woken = true;
            return true;
        }
        let throttled = doing != Doing::Copy || !self.has(KcopydDefect::ThrottleBypassed);
        if throttled && let Some(until) = self.throttle.start(now, slept) {
            self.asleep = Some((until, sub, slept + 1));
            return false;
        }
        self.subs.get_mut(&sub).expect("it lives").throttled = throttled;
        let requests = self.requests(sub);
        let job = self.subs.get_mut(&sub).expect("it lives");
        job.failed = 0;
        job.outstanding = 0;
        for (emit, destination) in requests {
            self.send(emit, sub, destination);
        }
        if doing == Doing::Copy && self.has(KcopydDefect::SynchronousCopy) {
            self.synchronous = Some(sub);
        }
        true
    }

    /// What a slice sends, each with the destination that it is for.
    fn requests(&self, sub: SubId) -> Vec<((VolumeId, Op, Data), Option<usize>)> {
        let slice = &self.subs[&sub];
        let job = self.masters[&slice.master].job.as_ref().expect("a callback has no slice");
        let part = |region: &Region| region.range.split_at(slice.offset).1.split_at(slice.len).0;
        let data = Data::Buffer { id: BufferId(slice.master.0), offset: slice.offset };
        let destinations =
            job.destinations.iter().enumerate().filter(|(index, _)| slice.left & (1 << index) != 0);
        let io = |volume, range: SectorRange, op: fn(SectorRange) -> Op, data| {
            pieces(range, self.config.max_io)
                .map(move |(offset, piece)| (volume, op(piece), shifted(data, offset)))
        };
        match (slice.doing, &job.source) {
            (Doing::Read, Some(source)) => {
                io(source.volume, part(source), Op::Read, data).map(|request| (request, None)).collect()
            }
            (Doing::Copy, Some(source)) => {
                let most = self.config.offload.expect("a copy is offloaded");
                let command = |to: &Region| {
                    let from = pieces(part(source), most);
                    let segment = |(offset, piece)| CopySegment {
                        source_volume: source.volume,
                        source: piece,
                        destination: part(to).start + offset,
                    };
                    (to.volume, Op::Copy(CopyCommand { segments: from.map(segment).collect() }), Data::None)
                };
                destinations.map(|(index, to)| (command(to), Some(index))).collect()
            }
            (Doing::Zero, _) if self.config.write_zeroes => {
                let zero = |to: &Region| (to.volume, Op::WriteZeroes(part(to)), Data::None);
                destinations.map(|(index, to)| (zero(to), Some(index))).collect()
            }
            (Doing::Write | Doing::Zero | Doing::Read | Doing::Copy, _) => {
                // What could not be read is written as zeroes.
                let zeroes = slice.doing == Doing::Zero || slice.read_failed;
                let data = if zeroes { Data::Zeroes } else { data };
                destinations
                    .flat_map(|(index, to)| {
                        io(to.volume, part(to), Op::Write, data).map(move |request| (request, Some(index)))
                    })
                    .collect()
            }
        }
    }

    /// Puts a request into the worker's plug; one that continues the last read or write becomes a part of it.
    fn send(&mut self, (volume, op, data): (VolumeId, Op, Data), sub: SubId, destination: Option<usize>) {
        self.subs.get_mut(&sub).expect("it lives").outstanding += 1;
        if let Some((last, serves)) = self.plug.last_mut()
            && last.request.volume == volume
            && extend(last, &op, data, self.config.max_io)
        {
            return serves.push((sub, destination));
        }
        let request = Request { id: RequestId(self.next_id), volume, op, flags: Flags::NONE };
        self.next_id += 1;
        self.plug.push((Emit { request, data }, vec![(sub, destination)]));
    }

    fn unplug(&mut self) -> Vec<Emit> {
        let plug = std::mem::take(&mut self.plug);
        let sent = plug.into_iter().map(|(emit, serves)| {
            self.live.insert(emit.request.id, serves);
            emit
        });
        sent.collect()
    }

    /// All requests of a slice are answered.
    fn io_done(&mut self, now: Instant, sub: SubId) {
        if self.subs[&sub].throttled {
            self.throttle.finish(now);
        }
        if self.synchronous == Some(sub) {
            self.synchronous = None;
        }
        self.woken = true;
        let job = self.subs.get_mut(&sub).expect("it lives");
        let ignore = self.masters[&job.master].job.as_ref().is_some_and(|job| job.ignore_error);
        match job.doing {
            Doing::Copy if job.failed != 0 => {
                // The host carries what the disk did not.
                job.left = job.failed;
                job.doing = Doing::Read;
                self.waiting.push_back(sub);
            }
            Doing::Read if !job.read_failed || ignore => {
                job.doing = Doing::Write;
                self.io.push_back(sub);
            }
            doing @ (Doing::Read | Doing::Write | Doing::Zero | Doing::Copy) => {
                job.write_err |= job.failed;
                if doing == Doing::Copy {
                    self.written(sub);
                }
                self.complete.push_back(Over::Slice(sub));
            }
        }
    }

    /// A slice is over: its pages are free, its errors its job's.
    fn end(&mut self, sub: SubId) {
        let job = self.subs.remove(&sub).expect("it ends once");
        self.pages += job.pages;
        let master = self.masters.get_mut(&job.master).expect("its sub-job lived");
        master.read_err |= job.read_failed;
        master.write_err |= job.write_err;
        if master.subs > 0 { self.next_slice(job.master) } else { self.notify(job.master) }
    }

    fn notify(&mut self, id: JobId) {
        let master = self.masters.remove(&id).expect("it ends once");
        self.notices.push(Notice { job: id, read_err: master.read_err, write_err: master.write_err });
    }
}

fn pages_of(len: Sectors) -> u64 {
    len.0.div_ceil(PAGE.0)
}

/// A range in pieces of at most `most` sectors, each with its distance from the start.
fn pieces(range: SectorRange, most: Sectors) -> impl Iterator<Item = (Sectors, SectorRange)> {
    let count = range.len.0.div_ceil(most.0);
    (0..count).map(move |number| {
        let offset = Sectors(number * most.0);
        (offset, range.split_at(offset).1.split_at(most).0)
    })
}

fn shifted(data: Data, by: Sectors) -> Data {
    match data {
        Data::Buffer { id, offset } => Data::Buffer { id, offset: offset + by },
        Data::None | Data::Zeroes => data,
    }
}

/// Adds a read or write to the one before it if it continues that, on the disk and in memory.
fn extend(last: &mut Emit, op: &Op, data: Data, most: Sectors) -> bool {
    let (range, more) = match (&mut last.request.op, op) {
        (Op::Read(range), Op::Read(more)) | (Op::Write(range), Op::Write(more)) => (range, more),
        _ => return false,
    };
    let follows = range.end() == more.start && shifted(last.data, range.len) == data;
    if follows && range.len + more.len <= most {
        range.len += more.len;
        return true;
    }
    false
}

#[cfg(test)]
mod tests;
