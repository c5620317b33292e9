//! Copies as jobs: their progress, their end, and how they are cancelled.

use super::api::{ApiError, CopyRequest, Job, JobState, Segment, Stats};
use super::split::{self, Piece};
use super::zones;
use crate::coherence::{self, DiskRange, Order, Report};
use crate::engine::{CallHandle, Engine};
use crate::server::Server;
use emulation::{BlkStatus, Bytes, CopySegment, Flags, Limits, Op, RequestId, SectorRange, VolumeId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::task::JoinHandle;

/// Commands of a job that run at the same time.
const IN_FLIGHT: usize = 4;
/// Ended jobs that are remembered.
const ENDED_MAX: usize = 64;
/// How often a command is cut again when the limits are lowered again and again.
const CUT_MAX: usize = 16;
/// Jobs that run at the same time.
const RUNNING_MAX: usize = 64;
/// Bytes read at a time to compare source and destination.
const COMPARE: u64 = 512 << 10;

/// The jobs of a server.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    jobs: BTreeMap<u64, Arc<Running>>,
}

/// A job and what is needed to end it.
#[derive(Debug)]
struct Running {
    volumes: Vec<VolumeId>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    job: Job,
    cancelled: bool,
    in_flight: Vec<RequestId>,
    /// Of an append: where the disk put what.
    placed: Vec<CopySegment>,
}

/// What a job shall do.
#[derive(Debug)]
struct Task {
    volume: VolumeId,
    /// The block device of the destination.
    device: Option<u32>,
    limits: Limits,
    flags: Flags,
    pieces: Vec<Piece>,
    segments: Vec<CopySegment>,
    /// Ranges of disks that the host may have cached.
    sources: Vec<DiskRange>,
    destinations: Vec<DiskRange>,
    one_command: bool,
    force: bool,
    verify: bool,
}

/// How far a command came.
#[derive(Debug)]
struct Answer {
    bytes: u64,
    commands_done: u64,
    /// Why it went no further, and the segment that was asked for where it ended.
    failure: Option<(BlkStatus, Option<u32>)>,
}

impl Running {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("a panic ends the process")
    }

    fn view(&self) -> Job {
        self.inner().job.clone()
    }

    /// Moves on to the next state, unless the job was cancelled.
    fn enter(&self, state: JobState) -> Result<(), End> {
        let mut inner = self.inner();
        if inner.cancelled {
            return Err(End::Cancelled);
        }
        inner.job.state = state;
        Ok(())
    }

    fn cancel(&self, engine: &Engine) {
        let mut inner = self.inner();
        inner.cancelled = true;
        inner.in_flight.iter().for_each(|id| engine.abort(*id));
    }
}

/// Why a job ended before it was done.
#[derive(Debug)]
enum End {
    Cancelled,
    Failed(ApiError),
}

impl From<ApiError> for End {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

impl Jobs {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("a panic ends the process")
    }

    /// The jobs that copy to a disk.
    pub(crate) fn of(&self, disk: &str) -> Vec<Job> {
        self.table().jobs.values().map(|running| running.view()).filter(|job| job.disk == disk).collect()
    }

    /// One job.
    pub(crate) fn get(&self, disk: &str, id: u64) -> Result<Job, ApiError> {
        self.find(disk, id).map(|running| running.view())
    }

    fn find(&self, disk: &str, id: u64) -> Result<Arc<Running>, ApiError> {
        let running = self.table().jobs.get(&id).cloned().filter(|running| running.view().disk == disk);
        running.ok_or_else(|| ApiError::new(404, "no-job", format!("disk {disk} has no copy job {id}")))
    }

    /// Ends a job before its next link. One that has ended stays as it is.
    pub(crate) fn cancel(&self, engine: &Engine, disk: &str, id: u64) -> Result<Job, ApiError> {
        let running = self.find(disk, id)?;
        running.cancel(engine);
        Ok(running.view())
    }

    /// Ends the jobs that read or write a volume.
    pub(crate) fn cancel_of(&self, engine: &Engine, volume: VolumeId) {
        let jobs: Vec<_> = self.table().jobs.values().cloned().collect();
        jobs.iter().filter(|job| job.volumes.contains(&volume)).for_each(|job| job.cancel(engine));
    }

    fn insert(&self, volumes: Vec<VolumeId>, mut job: Job) -> Result<Arc<Running>, ApiError> {
        let mut table = self.table();
        let ended: Vec<u64> =
            table.jobs.iter().filter(|(_, job)| job.view().state.ended()).map(|(id, _)| *id).collect();
        if table.jobs.len() - ended.len() >= RUNNING_MAX {
            let why = format!("{RUNNING_MAX} copy jobs are running");
            return Err(ApiError::new(429, "too-many-jobs", why).hint("wait for one of them, or cancel it"));
        }
        for id in ended.iter().take(ended.len().saturating_sub(ENDED_MAX - 1)) {
            table.jobs.remove(id);
        }
        table.next += 1;
        job.id = table.next;
        let inner = Inner { job, cancelled: false, in_flight: Vec::new(), placed: Vec::new() };
        let running = Arc::new(Running { volumes, inner: Mutex::new(inner) });
        table.jobs.insert(running.view().id, Arc::clone(&running));
        Ok(running)
    }
}

/// Checks a copy, starts it, and gives the job.
///
/// # Errors
/// It can never be done. Nothing has changed.
pub(crate) fn start(server: &Arc<Server>, key: &str, request: &CopyRequest) -> Result<Job, ApiError> {
    start_running(server, key, request).map(|(running, _)| running.view())
}

/// Checks a copy, starts it, waits for its end, and gives the job. Dropping the future neither ends nor cancels it.
///
/// # Errors
/// It can never be done. Nothing has changed.
pub(crate) async fn run(server: &Arc<Server>, key: &str, request: &CopyRequest) -> Result<Job, ApiError> {
    let (running, end) = start_running(server, key, request)?;
    end.await.expect("a panic ends the process");
    Ok(running.view())
}

fn start_running(
    server: &Arc<Server>,
    key: &str,
    request: &CopyRequest,
) -> Result<(Arc<Running>, JoinHandle<()>), ApiError> {
    let (disk, _) = server.find(key)?;
    let task = prepare(server, key, request)?;
    let job = Job {
        id: 0,
        disk,
        state: JobState::WritingBack,
        bytes: 0,
        total_bytes: task.segments.iter().map(|segment| segment.source.len.bytes().0).sum(),
        commands: task.pieces.len() as u64,
        commands_done: 0,
        first_failed_segment: None,
        appended_at: None,
        stale_pages: 0,
        error: None,
        ledger: Stats::default(),
    };
    let mut volumes: Vec<VolumeId> = task.segments.iter().map(|segment| segment.source_volume).collect();
    volumes.push(task.volume);
    let running = server.jobs.insert(volumes, job)?;
    let end = tokio::spawn(drive(Arc::clone(server), Arc::clone(&running), task));
    Ok((running, end))
}

fn prepare(server: &Server, key: &str, request: &CopyRequest) -> Result<Task, ApiError> {
    let (_, own) = server.find(key)?;
    let limits = server.limits(own.volume)?;
    if request.segments.is_empty() {
        return Err(ApiError::bad_request("no segments: nothing to copy"));
    }
    if request.append && limits.zones.is_none() {
        return Err(zones::not_zoned("an append goes to a zone, and the disk is not zoned"));
    }
    let mut segments = Vec::with_capacity(request.segments.len());
    let (mut sources, mut destinations) = (Vec::new(), Vec::new());
    for Segment { from, source, length, destination } in &request.segments {
        let (_, other) = server.find(from.as_deref().unwrap_or(key))?;
        let segment = split::segment(other.volume, *source, *length, *destination, limits.logical_block)?;
        // Before anything is copied: the pool checks each command alone.
        let source_end = server.limits(other.volume)?.capacity.0;
        if segment.source.end().0 > source_end || segment.destination_range().end().0 > limits.capacity.0 {
            return Err(ApiError::of_status("the copy", BlkStatus::OutOfRange));
        }
        segments.push(segment);
        sources.extend(other.id.map(|disk| DiskRange { disk, offset: source.0, length: length.0 }));
        destinations.extend(own.id.map(|disk| DiskRange { disk, offset: destination.0, length: length.0 }));
    }
    let mut flags = Flags::NONE;
    for (set, flag) in
        [(request.fua, Flags::FUA), (request.fast_only, Flags::FAST_ONLY), (request.append, Flags::APPEND)]
    {
        flags = if set { flags | flag } else { flags };
    }
    let pieces = if request.one_command {
        vec![Piece {
            command: emulation::CopyCommand { segments: segments.clone().into() },
            origins: (0u32..).take(segments.len()).collect(),
        }]
    } else {
        split::split(own.volume, &limits, segments.clone(), request.append)?
    };
    let (one_command, force, verify) = (request.one_command, request.force, request.verify);
    Ok(Task {
        volume: own.volume,
        device: own.id,
        limits,
        flags,
        pieces,
        segments,
        sources,
        destinations,
        one_command,
        force,
        verify,
    })
}

/// Runs a job to its end.
async fn drive(server: Arc<Server>, running: Arc<Running>, task: Task) {
    let copied = before(&running, &task).await;
    let copied = match copied {
        Ok(()) => {
            let then = server.stats_of(task.volume, false);
            let copied = copy(&server, &running, &task).await;
            running.inner().job.ledger = server.stats_of(task.volume, false).since(&then);
            // What was changed before the end is changed: the host must not keep older pages of it.
            let dropped = after(&server, &running, &task).await;
            copied.and(dropped)
        }
        refused => refused,
    };
    let end = match copied {
        Ok(()) if task.verify => verify(&server.engine, &running, &task).await,
        other => other,
    };
    let mut inner = running.inner();
    inner.in_flight.clear();
    let job = &mut inner.job;
    match end {
        Ok(()) => job.state = JobState::Done,
        Err(End::Cancelled) => job.state = JobState::Cancelled,
        Err(End::Failed(error)) => {
            job.state = JobState::Failed;
            job.error = Some(error);
        }
    }
    tracing::info!(
        "copy {} to disk {}: {:?}, {} of {} bytes",
        job.id,
        job.disk,
        job.state,
        job.bytes,
        job.total_bytes
    );
}

/// The host's cached writes go to the disk.
async fn before(running: &Running, task: &Task) -> Result<(), End> {
    let ranges: Vec<DiskRange> = task.sources.iter().chain(&task.destinations).copied().collect();
    if ranges.is_empty() {
        return Ok(());
    }
    running.enter(JobState::WritingBack)?;
    let report = help(Order::WriteBack { ranges, free: !task.force }).await?;
    match report.claims.first() {
        Some(claim) => {
            let error = ApiError::new(409, "claimed", claim.clone());
            Err(error.hint("unmount or release it; --force copies below its user").into())
        }
        None => Ok(()),
    }
}

/// The host's cached pages of the destination are dropped, and its kernel learns where the zones are written next.
async fn after(server: &Server, running: &Running, task: &Task) -> Result<(), End> {
    let Some(disk) = task.device else { return Ok(()) };
    running.inner().job.state = JobState::Dropping;
    let written = written(running, task);
    let destinations = match task.flags.has(Flags::APPEND) {
        true => written.iter().map(|range| disk_range(disk, *range)).collect(),
        false => task.destinations.clone(),
    };
    let dropped = help(Order::Drop(destinations)).await;
    // Whatever became of the pages: until then the host cannot write to the zones.
    if let Some(order) = zones::resync(server, task.volume, disk, &task.limits, &written).await? {
        help(order).await?;
    }
    let report = dropped?;
    running.inner().job.stale_pages = report.stale_pages;
    if report.stale_pages == 0 {
        return Ok(());
    }
    let what = if report.stale_pages == 1 { "page is" } else { "pages are" };
    let why = format!("{} {what} still in the host's cache of the destination", report.stale_pages);
    Err(ApiError::new(409, "stale-pages", why)
        .hint("a program has them mapped: readers of the block device may see old data")
        .into())
}

fn disk_range(disk: u32, range: SectorRange) -> DiskRange {
    DiskRange { disk, offset: range.start.bytes().0, length: range.len.bytes().0 }
}

/// The ranges that the copy wrote, or was about to.
fn written(running: &Running, task: &Task) -> Vec<SectorRange> {
    let placed = running.inner().placed.clone();
    let segments = if task.flags.has(Flags::APPEND) { &placed } else { &task.segments };
    segments.iter().map(CopySegment::destination_range).collect()
}

/// Has the helper do something, on a thread that may wait.
async fn help(order: Order) -> Result<Report, End> {
    let report = coherence::ask(order).await;
    Ok(report.map_err(|error| ApiError::from_lines(500, "coherence", &error.to_string()))?)
}

/// Runs the commands, a few at a time.
async fn copy(server: &Server, running: &Running, task: &Task) -> Result<(), End> {
    running.enter(JobState::Copying)?;
    let mut waiting = task.pieces.iter();
    let mut in_flight: VecDeque<(&Piece, CallHandle)> = VecDeque::new();
    let mut failure = None;
    // A zone takes the commands in their order alone.
    let most = if task.limits.zones.is_some() { 1 } else { IN_FLIGHT };
    loop {
        while failure.is_none() && in_flight.len() < most {
            let Some(piece) = waiting.next() else {
                break;
            };
            match begin(&server.engine, running, task, piece) {
                Some(handle) => in_flight.push_back((piece, handle)),
                None => failure = Some(End::Cancelled),
            }
        }
        let Some((piece, handle)) = in_flight.pop_front() else {
            break;
        };
        // The finished prefix ends with the first failure. What runs beyond it is ended, not begun anew.
        let answer = match failure {
            None => answer(server, running, task, piece, handle).await,
            Some(_) => once(running, piece, handle).await,
        };
        let mut inner = running.inner();
        inner.job.commands_done += answer.commands_done;
        if failure.is_some() {
            continue;
        }
        inner.job.bytes += answer.bytes;
        if let Some((status, segment)) = answer.failure {
            inner.job.first_failed_segment = segment;
            failure = Some(failed(&inner, status));
            // The rest would only be copied in vain.
            inner.in_flight.iter().for_each(|id| server.engine.abort(*id));
        }
    }
    failure.map_or(Ok(()), Err)
}

/// The end of a command.
async fn once(running: &Running, piece: &Piece, handle: CallHandle) -> Answer {
    let id = handle.id();
    let completion = handle.result().await.completion;
    let mut inner = running.inner();
    inner.in_flight.retain(|other| *other != id);
    if let Some(at) = completion.appended_at {
        let mut command = piece.command.clone();
        command.place(at);
        inner.job.appended_at.get_or_insert(at.bytes().0);
        inner.placed.extend(command.segments);
    }
    let ok = completion.status.is_ok();
    let origin = |segment: u32| piece.origins[segment as usize];
    Answer {
        bytes: completion.bytes.0,
        commands_done: u64::from(ok),
        failure: (!ok).then(|| (completion.status, completion.first_failed_segment.map(origin))),
    }
}

/// The end of a command. One that is refused since the limits were lowered after it was cut is cut again, unless it was
/// to be one command.
async fn answer(
    server: &Server,
    running: &Running,
    task: &Task,
    piece: &Piece,
    handle: CallHandle,
) -> Answer {
    let mut sum = once(running, piece, handle).await;
    let mut refused = piece.clone();
    let mut rest: VecDeque<Piece> = VecDeque::new();
    for _ in 0..CUT_MAX {
        let limited = sum.failure.is_some_and(|(status, _)| status.is_copy_limit());
        if task.one_command || !limited {
            return sum;
        }
        let Ok(limits) = server.limits(task.volume) else {
            return sum;
        };
        let append = task.flags.has(Flags::APPEND);
        let pieces = split::again(&limits, std::mem::take(&mut refused), append);
        running.inner().job.commands += pieces.len() as u64 - 1;
        pieces.into_iter().rev().for_each(|piece| rest.push_front(piece));
        sum.failure = None;
        while let Some(piece) = rest.pop_front() {
            let Some(handle) = begin(&server.engine, running, task, &piece) else {
                sum.failure = Some((BlkStatus::Aborted, None));
                return sum;
            };
            let part = once(running, &piece, handle).await;
            sum.bytes += part.bytes;
            sum.commands_done += part.commands_done;
            if part.failure.is_some() {
                (sum.failure, refused) = (part.failure, piece);
                break;
            }
        }
    }
    sum
}

fn failed(inner: &Inner, status: BlkStatus) -> End {
    if inner.cancelled && status == BlkStatus::Aborted {
        return End::Cancelled;
    }
    let error = ApiError::of_status("the copy", status);
    End::Failed(match status {
        status if status.is_copy_limit() => {
            error.hint("raise the limit with `ublk set`, or let the copy be split")
        }
        BlkStatus::NotSupp => error.hint("copies are switched off: `ublk set -n ID copy=memcpy`"),
        BlkStatus::CopyNotFast => error.hint("some bytes would have to be moved: leave out --fast-only"),
        _ => error,
    })
}

/// Begins a command; not when the job was cancelled.
fn begin(engine: &Engine, running: &Running, task: &Task, piece: &Piece) -> Option<CallHandle> {
    let mut inner = running.inner();
    if inner.cancelled {
        return None;
    }
    let handle = engine.begin_call(task.volume, Op::Copy(piece.command.clone()), task.flags, None);
    inner.in_flight.push(handle.id());
    Some(handle)
}

/// Reads source and destination and compares them.
async fn verify(engine: &Engine, running: &Running, task: &Task) -> Result<(), End> {
    let placed = running.inner().placed.clone();
    for segment in if task.flags.has(Flags::APPEND) { &placed } else { &task.segments } {
        let mut rest = *segment;
        while !rest.source.is_empty() {
            running.enter(JobState::Verifying)?;
            let len = Bytes(COMPARE).whole_sectors().min(rest.source.len);
            let source = rest.source.split_at(len).0;
            let destination = SectorRange::between(rest.destination, rest.destination + len);
            let (a, b) = tokio::join!(
                read(engine, rest.source_volume, source),
                read(engine, task.volume, destination)
            );
            if let Some(place) = a?.iter().zip(&b?).position(|(a, b)| a != b) {
                let at = destination.start.bytes().0 + place as u64;
                let why = format!("source and destination differ at byte {at} of the destination");
                return Err(ApiError::new(422, "differs", why)
                    .hint("one of them was written meanwhile, or the copy is wrong")
                    .into());
            }
            rest.source = rest.source.split_at(len).1;
            rest.destination = rest.destination + len;
        }
    }
    Ok(())
}

async fn read(engine: &Engine, volume: VolumeId, range: SectorRange) -> Result<Vec<u8>, End> {
    let result = engine.call(volume, Op::Read(range), Flags::NONE, None).await;
    if !result.completion.status.is_ok() {
        return Err(ApiError::of_status("the read to compare", result.completion.status).into());
    }
    Ok(result.data.unwrap_or_default())
}
