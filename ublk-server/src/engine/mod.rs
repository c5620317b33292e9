//! The pool behind its one lock, and the threads that run its plans.
//!
//! A request belongs to the thread that began it: a queue thread of a ublk disk, or a worker for the doors that
//! live in tokio. The thread executes the request's plans without the lock and answers it. What a call says about
//! another thread's request goes into that thread's mailbox.

use crate::store::Store;
use crate::store::meta::Meta;
use commit::Committer;
use copier::Copier;
use emulation::{Control, Flags, Instant, Next, Op, Out, Pool, RequestId, VolumeId};
use mailbox::{Mailbox, Message};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, mpsc};
use std::thread::JoinHandle;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

mod calls;
mod commit;
mod copier;
mod file_job;
mod immediate;
mod inline;
pub(crate) mod mailbox;
pub(crate) mod port;
pub(crate) mod ring;
pub(crate) mod runner;
pub(crate) mod tap;
#[cfg(test)]
mod tests;

pub use calls::CallResult;
use calls::{Call, CallDoor, Reply};
use ring::Ring;
use runner::Runner;
use tap::Taps;

/// The most worker threads, and the plans over a file that each runs at once before its ring is emptied early.
const WORKERS_MAX: usize = 4;
const WORKER_JOBS: usize = 64;

/// The number of a thread that owns requests: the high bits of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u16);

impl Owner {
    const SHIFT: u32 = 48;
    const COUNT: usize = (RequestId::INTERNAL >> Self::SHIFT) as usize;

    fn of(id: RequestId) -> usize {
        (id.0 >> Self::SHIFT) as usize
    }

    /// The request with a number within the thread, below 2^48.
    pub(crate) fn request(self, number: u64) -> RequestId {
        debug_assert!(number < 1 << Self::SHIFT);
        RequestId(u64::from(self.0) << Self::SHIFT | number)
    }

    /// The number of a request within its thread.
    pub(crate) fn number(id: RequestId) -> u64 {
        id.0 & ((1 << Self::SHIFT) - 1)
    }

    /// The number of the thread.
    pub(crate) fn thread(self) -> u16 {
        self.0
    }

    pub(crate) fn owns(self, id: RequestId) -> bool {
        Self::of(id) == usize::from(self.0)
    }
}

/// A pool, its store, and the threads that own requests.
#[derive(Debug)]
pub struct Engine {
    pool: Mutex<Pool>,
    store: Store,
    /// Of a pool whose metadata outlives the server.
    committer: Option<Committer>,
    /// Of a pool in a file, and the volumes whose copies it has the file system do.
    copier: Option<Copier>,
    copied_by_file: RwLock<Vec<bool>>,
    origin: std::time::Instant,
    owners: RwLock<Vec<Option<Arc<Mailbox>>>>,
    workers: Vec<Owner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    next_worker: AtomicUsize,
    next_call: AtomicU64,
    /// What requests took, and what they were.
    pub(crate) taps: Arc<Taps>,
    power_cuts: Notify,
}

/// A request that was begun for a door in tokio. Dropping it neither ends nor aborts the request.
#[derive(Debug)]
pub struct CallHandle {
    id: RequestId,
    reply: oneshot::Receiver<CallResult>,
}

impl CallHandle {
    /// The number of the request, for [`Engine::abort`].
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Waits for the answer.
    pub async fn result(self) -> CallResult {
        self.reply.await.expect("a worker answers every call")
    }
}

/// The answers of a queue of calls, by the numbers that [`CallQueue::push`] was given.
pub type CallAnswers = UnboundedReceiver<(u64, CallResult)>;

/// A queue of calls. All of them go to one worker, in batches.
#[derive(Debug)]
pub struct CallQueue {
    engine: Arc<Engine>,
    owner: Owner,
    mailbox: Arc<Mailbox>,
    sender: UnboundedSender<(u64, CallResult)>,
    calls: Vec<Message>,
}

impl CallQueue {
    /// Adds a request to the batch. `number` comes back with the answer; `data` is as for [`Engine::begin_call`].
    pub fn push(
        &mut self,
        number: u64,
        volume: VolumeId,
        op: Op,
        flags: Flags,
        data: Option<Vec<u8>>,
    ) -> RequestId {
        let id = self.owner.request(self.engine.next_call.fetch_add(1, Ordering::Relaxed));
        let reply = Reply::Queue(number, self.sender.clone());
        self.calls.push(Message::Call(Call { id, volume, op, flags, data, reply }));
        id
    }

    /// Hands the batch to the worker.
    pub fn submit(&mut self) {
        if !self.calls.is_empty() {
            self.mailbox.post_all(self.calls.drain(..));
        }
    }
}

impl Engine {
    /// Starts the workers over a pool, the store that its plans name and the metadata that they commit, if any.
    ///
    /// # Errors
    /// A thread, a ring or an eventfd could not be made.
    pub fn new(pool: Pool, store: Store, meta: Option<Arc<Meta>>) -> io::Result<Arc<Self>> {
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
        let mailboxes = (0..count).map(|_| Mailbox::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
        let copier = match &store {
            Store::File(_) => Some(Copier::start()?),
            Store::Ram(_) | Store::Null => None,
        };
        let engine = Arc::new(Self {
            pool: Mutex::new(pool),
            store,
            copier,
            copied_by_file: RwLock::default(),
            committer: meta.map(Committer::start).transpose()?,
            origin: std::time::Instant::now(),
            owners: RwLock::new(mailboxes.iter().cloned().map(Some).collect()),
            workers: (0..count).map(|worker| Owner(worker as u16)).collect(),
            threads: Mutex::default(),
            next_worker: AtomicUsize::new(0),
            next_call: AtomicU64::new(0),
            taps: Arc::default(),
            power_cuts: Notify::new(),
        });
        for (owner, mailbox) in engine.workers.clone().into_iter().zip(mailboxes) {
            if let Err(error) = engine.start_worker(owner, mailbox) {
                engine.shutdown();
                return Err(error);
            }
        }
        Ok(engine)
    }

    fn start_worker(self: &Arc<Self>, owner: Owner, mailbox: Arc<Mailbox>) -> io::Result<()> {
        let engine = Arc::clone(self);
        let (ready, started) = mpsc::channel();
        let thread =
            std::thread::Builder::new().name(format!("ublk-worker-{}", owner.0)).spawn(move || {
                enter_io_thread();
                match Ring::new(Arc::clone(&mailbox), WORKER_JOBS, None) {
                    Ok(ring) => {
                        ready.send(Ok(())).expect("the starter waits");
                        Runner::new(engine, owner, mailbox, ring, CallDoor::default()).run();
                    }
                    Err(error) => ready.send(Err(error)).expect("the starter waits"),
                }
            })?;
        self.threads.lock().expect("a panic ends the process").push(thread);
        started.recv().expect("a worker says how it started")
    }

    /// The time, as the pool knows it.
    pub fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).expect("less than 584 years"))
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().expect("a panic ends the process")
    }

    /// Runs `f` under the pool's lock: short work on limits, ledgers and usage, never a request.
    pub fn with_pool<R>(&self, f: impl FnOnce(&mut Pool) -> R) -> R {
        f(&mut self.lock())
    }

    /// Changes the pool. The requests that this ends are answered by their threads.
    pub fn control(&self, control: Control) {
        self.apply(|pool, now| (pool.control(now, control), ()));
    }

    /// Does what gives answers under the pool's lock, and hands them to the threads of their requests.
    pub fn apply<R>(&self, change: impl FnOnce(&mut Pool, Instant) -> (Out, R)) -> R {
        let (out, result) = change(&mut self.lock(), self.now());
        out.into_iter().for_each(|(id, next)| self.post(id, next));
        self.send(self.workers[0], Message::Wake);
        result
    }

    /// From now on copies within the volume that move bytes are left to the file system, or not.
    pub(crate) fn set_copy_by_file(&self, volume: VolumeId, by_file: bool) {
        let mut all = self.copied_by_file.write().expect("a panic ends the process");
        if all.len() <= volume.index() {
            all.resize(volume.index() + 1, false);
        }
        all[volume.index()] = by_file;
    }

    fn is_copied_by_file(&self, volume: VolumeId) -> bool {
        let all = self.copied_by_file.read().expect("a panic ends the process");
        all.get(volume.index()).copied().unwrap_or(false)
    }

    /// Waits until a rule of faults has cut the power of a volume; [`Pool::take_power_cuts`] says of which.
    pub async fn power_cut(&self) {
        self.power_cuts.notified().await;
    }

    /// The volume is being taken away: what it began takes no longer than the machine from now on.
    pub(crate) fn hurry(&self, volume: VolumeId) {
        self.control(Control::SetTiming(volume, None));
        let owners = self.owners.read().expect("a panic ends the process");
        owners.iter().flatten().for_each(|mailbox| mailbox.post(Message::Hurry(volume)));
    }

    /// Begins a request on a worker thread. `data` is what a write writes, exactly as long as its range.
    pub fn begin_call(&self, volume: VolumeId, op: Op, flags: Flags, data: Option<Vec<u8>>) -> CallHandle {
        let worker = self.next_worker.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        let owner = self.workers[worker];
        let id = owner.request(self.next_call.fetch_add(1, Ordering::Relaxed));
        let (sender, reply) = oneshot::channel();
        let call = Call { id, volume, op, flags, data, reply: Reply::One(sender) };
        self.send(owner, Message::Call(call));
        CallHandle { id, reply }
    }

    /// A queue of calls for a door that has many under way at a time. Its worker is the next in turn.
    pub fn call_queue(self: &Arc<Self>) -> (CallQueue, CallAnswers) {
        let worker = self.next_worker.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        let owner = self.workers[worker];
        let mailbox = self.mailbox(owner.0.into()).expect("a worker is registered");
        let (sender, answers) = unbounded_channel();
        let queue = CallQueue { engine: Arc::clone(self), owner, mailbox, sender, calls: Vec::new() };
        (queue, answers)
    }

    /// Does a request and waits for its answer.
    pub async fn call(&self, volume: VolumeId, op: Op, flags: Flags, data: Option<Vec<u8>>) -> CallResult {
        self.begin_call(volume, op, flags, data).result().await
    }

    /// Asks for the early end of a call: at once when it waits, else before its next link. One that has ended
    /// stays as it is.
    pub fn abort(&self, id: RequestId) {
        let mailbox = self.mailbox(Owner::of(id)).expect("a call is of a worker");
        mailbox.post(Message::Abort(id));
    }

    /// Ends the workers when they have answered what they hold, and waits for that. Called when no door is left;
    /// nothing can be called afterwards.
    pub fn shutdown(&self) {
        self.workers.iter().for_each(|worker| self.send(*worker, Message::Stop));
        let threads = std::mem::take(&mut *self.threads.lock().expect("a panic ends the process"));
        threads.into_iter().for_each(|thread| thread.join().expect("a panic ends the process"));
        self.committer.iter().for_each(Committer::stop);
        self.copier.iter().for_each(Copier::stop);
    }

    /// A number for a new thread that owns requests.
    pub(crate) fn register(&self) -> io::Result<(Owner, Arc<Mailbox>)> {
        let mailbox = Arc::new(Mailbox::new()?);
        let mut owners = self.owners.write().expect("a panic ends the process");
        let index = owners.iter().position(Option::is_none).unwrap_or_else(|| {
            owners.push(None);
            owners.len() - 1
        });
        if index >= Owner::COUNT {
            return Err(io::Error::other(format!("more than {} threads in a pool", Owner::COUNT)));
        }
        owners[index] = Some(Arc::clone(&mailbox));
        Ok((Owner(index as u16), mailbox))
    }

    /// Gives a number back. Every request of the thread was answered.
    pub(crate) fn unregister(&self, owner: Owner) {
        self.owners.write().expect("a panic ends the process")[usize::from(owner.0)] = None;
    }

    fn mailbox(&self, owner: usize) -> Option<Arc<Mailbox>> {
        self.owners.read().expect("a panic ends the process").get(owner)?.clone()
    }

    fn send(&self, owner: Owner, message: Message) {
        self.mailbox(owner.0.into()).expect("a worker is registered").post(message);
    }

    /// Hands an answer to the thread that owns the request, the device's own to the first worker.
    pub(crate) fn post(&self, id: RequestId, next: Next) {
        let owner = if id.is_internal() { 0 } else { Owner::of(id) };
        match next {
            Next::Wait => {}
            Next::Done(_) if id.is_internal() => {}
            next => self.mailbox(owner).expect("the owner of a live request").post(Message::Next(id, next)),
        }
    }
}

/// Makes the calling thread one that serves block I/O: it never waits for memory that only its own disk could free.
/// False when the kernel refuses, as it does without CAP_SYS_RESOURCE.
pub(crate) fn enter_io_thread() -> bool {
    rustix::process::configure_io_flusher_behavior(true).is_ok()
}
