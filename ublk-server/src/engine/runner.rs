//! The loop of a thread that owns requests: begin, execute, finish, answer.
//!
//! One round takes what the kernel and other threads brought, begins it all under one lock, runs every plan at
//! hand once, and finishes them all under one lock. The next link of a chain runs in the next round, so that at most
//! one link of each chain runs before a request that was already there begins.

pub(crate) use super::calls::Call;
use super::copier::Work;
use super::file_job::{Buffers, Job, Progress};
use super::inline;
use super::mailbox::{Mailbox, Message};
use super::port::Port;
use super::ring::{Event, Ring, Wait};
use super::tap::Tap;
use super::{Engine, Owner};
use crate::store::{Buffer, FileStore, Store};
use emulation::timing::Deadlines;
use emulation::{
    Completion, Instant, IoResult, Next, Out, Plan, PortKind, Request, RequestId, Step, VolumeId,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Where the requests of a thread come from and where their answers go.
pub(crate) trait Door {
    /// A command for a tag ended: the request it brought, if any.
    fn event(&mut self, ring: &mut Ring, tag: u16, result: i32) -> Option<Request>;
    /// A call arrived: its request, unless it was answered at once.
    fn call(&mut self, call: Call) -> Option<Request>;
    /// End when everything is answered.
    fn stop(&mut self);
    /// Nothing is left to answer and nothing will come.
    fn is_over(&self) -> bool;
    /// The data of a live request.
    fn port<'a>(&'a mut self, ring: &'a mut Ring, id: RequestId) -> Port<'a>;
    /// Answers a request. It is not live any more.
    fn complete(&mut self, ring: &mut Ring, id: RequestId, completion: Completion);
}

/// A thread's loop.
#[derive(Debug)]
pub(crate) struct Runner<D> {
    engine: Arc<Engine>,
    owner: Owner,
    mailbox: Arc<Mailbox>,
    ring: Ring,
    door: D,
    tap: Tap,
    begin: Vec<Request>,
    abort: Vec<RequestId>,
    runnable: Vec<Plan>,
    executed: Vec<(Plan, IoResult)>,
    answers: Vec<(RequestId, Next)>,
    /// Plans over a file.
    jobs: Vec<Option<Job>>,
    free_jobs: Vec<usize>,
    /// Plans whose commit is under way.
    committing: usize,
    buffers: Buffers,
    /// The bounce buffers of requests, kept from plan to plan.
    bounce: HashMap<RequestId, Buffer>,
    /// Plans that are executed and whose time has not come.
    held: Deadlines<(Plan, IoResult)>,
    /// When the pool wants to be asked what is due; kept by one thread of the engine.
    wake_at: Option<Instant>,
}

impl<D: Door> Runner<D> {
    pub(crate) fn new(engine: Arc<Engine>, owner: Owner, mailbox: Arc<Mailbox>, ring: Ring, door: D) -> Self {
        let tap = Tap::new(Arc::clone(&engine.taps), owner.thread());
        Self {
            tap,
            engine,
            owner,
            mailbox,
            ring,
            door,
            begin: Vec::new(),
            abort: Vec::new(),
            runnable: Vec::new(),
            executed: Vec::new(),
            answers: Vec::new(),
            jobs: Vec::new(),
            free_jobs: Vec::new(),
            committing: 0,
            buffers: Buffers::default(),
            bounce: HashMap::new(),
            held: Deadlines::default(),
            wake_at: None,
        }
    }

    /// Runs until the door is over and every plan of this thread is finished.
    pub(crate) fn run(mut self) {
        let engine = Arc::clone(&self.engine);
        let (mut events, mut mail, mut plans) = (Vec::new(), Vec::new(), Vec::new());
        while !self.is_over() {
            let wait = self.wait();
            self.ring.enter(wait, &mut events);
            for event in events.drain(..) {
                match event {
                    Event::Queue { tag, result } => {
                        self.begin.extend(self.door.event(&mut self.ring, tag, result));
                    }
                    Event::File { job, result, buffer } => self.file_event(&engine, job, result, buffer),
                    Event::Mail => {
                        self.mailbox.take(&mut mail);
                        mail.drain(..).for_each(|message| self.message(&engine, message));
                    }
                }
            }
            self.due();
            self.locked(&engine);
            std::mem::swap(&mut self.runnable, &mut plans);
            plans.drain(..).for_each(|plan| self.execute(&engine, plan));
            self.locked(&engine);
        }
    }

    fn is_over(&self) -> bool {
        self.door.is_over()
            && self.runnable.is_empty()
            && self.free_jobs.len() == self.jobs.len()
            && self.committing == 0
            && self.held.is_empty()
    }

    fn wait(&self) -> Wait {
        if !self.runnable.is_empty() {
            return Wait::No;
        }
        match self.held.next_at().into_iter().chain(self.wake_at).min() {
            None => Wait::Forever,
            Some(at) => Wait::For(Duration::from_nanos(at.0.saturating_sub(self.engine.now().0))),
        }
    }

    fn message(&mut self, engine: &Engine, message: Message) {
        match message {
            Message::Next(id, next) => self.answers.push((id, next)),
            Message::Committed(plan, io) => {
                self.committing -= 1;
                self.done_with(plan, io);
            }
            Message::Copied(job, result) => self.file_event(engine, job, result, None),
            Message::Call(call) => self.begin.extend(self.door.call(call)),
            Message::Abort(id) => self.abort.push(id),
            Message::Hurry(volume) => self.hurry(volume),
            Message::Wake => self.wake_at = Some(Instant::ORIGIN),
            Message::Stop => self.door.stop(),
        }
    }

    /// Hands to the pool what there is for it, and its answers to whom they are for.
    fn locked(&mut self, engine: &Engine) {
        if !(self.begin.is_empty() && self.executed.is_empty() && self.abort.is_empty()) {
            let mut pool = engine.lock();
            let now = engine.now();
            for (plan, io) in self.executed.drain(..) {
                self.answers.extend(pool.finish(now, plan, io));
            }
            for request in self.begin.drain(..) {
                self.tap.begin(now, Owner::number(request.id), &request);
                self.answers.extend(pool.begin(now, request));
            }
            // After the begin: both may have come in one delivery.
            for id in self.abort.drain(..) {
                self.answers.extend(pool.abort(now, id));
            }
            if pool.has_power_cuts() {
                engine.power_cuts.notify_one();
            }
        }
        if self.answers.is_empty() {
            return;
        }
        // Once for all of them: a clock is read in less time than a request takes, but not in much less.
        let now = engine.now();
        let mut answers = std::mem::take(&mut self.answers);
        answers.drain(..).for_each(|(id, next)| self.answer(now, id, next));
        self.answers = answers;
    }

    fn answer(&mut self, now: Instant, id: RequestId, next: Next) {
        let mine = id.is_internal() || self.owner.owns(id);
        match next {
            Next::Wait => {}
            next if !mine => self.engine.post(id, next),
            Next::Run(plan) => self.runnable.push(plan),
            Next::Done(_) if id.is_internal() => {}
            Next::Done(completion) => self.done(now, id, completion),
        }
    }

    fn done(&mut self, now: Instant, id: RequestId, completion: Completion) {
        if !self.bounce.is_empty() {
            self.bounce.remove(&id);
        }
        self.tap.end(now, Owner::number(id), id, &completion);
        self.door.complete(&mut self.ring, id, completion);
    }

    /// A plan is executed. It is finished when its time has come.
    fn done_with(&mut self, plan: Plan, io: IoResult) {
        if plan.not_before > Instant::ORIGIN && plan.not_before > self.engine.now() {
            self.held.push(plan.not_before, (plan, io));
        } else {
            self.executed.push((plan, io));
        }
    }

    /// Finishes what is held of a volume that is being taken away.
    fn hurry(&mut self, volume: VolumeId) {
        let mut later = Deadlines::default();
        while let Some((at, (plan, io))) = self.held.pop_due(Instant(u64::MAX)) {
            match plan.link.volume == volume {
                true => self.executed.push((plan, io)),
                false => later.push(at, (plan, io)),
            }
        }
        self.held = later;
    }

    /// Does what the time has come for.
    fn due(&mut self) {
        if self.held.is_empty() && self.wake_at.is_none() {
            return;
        }
        let now = self.engine.now();
        while let Some((_, done)) = self.held.pop_due(now) {
            self.executed.push(done);
        }
        if self.wake_at.is_some_and(|at| at <= now) {
            let (out, next): (Out, _) = self.engine.lock().wake(now);
            self.wake_at = next;
            out.into_iter().for_each(|(id, next)| self.answer(now, id, next));
        }
    }

    fn execute(&mut self, engine: &Engine, plan: Plan) {
        match engine.store() {
            // Memory needs no sync.
            Store::Ram(_) if engine.committer.is_some() && ends_with_commit(&plan) => {
                self.commit(engine, plan)
            }
            Store::Ram(ram) => {
                let io = inline::run_ram(ram, &plan, self.port(&plan));
                self.done_with(plan, io);
            }
            Store::Null => {
                let io = inline::run_null(&plan, self.port(&plan));
                self.done_with(plan, io);
            }
            Store::File(file) => {
                let by_file = plan.link.source.is_some() && engine.is_copied_by_file(plan.link.volume);
                let mut job = Job::new(plan, engine.committer.is_some(), by_file);
                let mut buffers = std::mem::take(&mut self.buffers);
                let progress = job.start(file, &mut buffers, &mut self.port(job.plan()));
                self.buffers = buffers;
                let index = self.free_jobs.pop().unwrap_or_else(|| {
                    self.jobs.push(None);
                    self.jobs.len() - 1
                });
                self.progress(engine, index, job, progress, file);
            }
        }
    }

    fn commit(&mut self, engine: &Engine, plan: Plan) {
        self.committing += 1;
        let committer = engine.committer.as_ref().expect("the pool has metadata");
        committer.commit(plan, Arc::clone(&self.mailbox));
    }

    fn file_event(&mut self, engine: &Engine, index: usize, result: i32, buffer: Option<Buffer>) {
        let Store::File(file) = engine.store() else { panic!("file I/O without a file") };
        let mut job = self.jobs[index].take().expect("file I/O is of a job");
        let progress = self.completed(&mut job, result, buffer, file);
        self.progress(engine, index, job, progress, file);
    }

    fn completed(
        &mut self,
        job: &mut Job,
        result: i32,
        buffer: Option<Buffer>,
        file: &FileStore,
    ) -> Progress {
        let mut buffers = std::mem::take(&mut self.buffers);
        let progress = job.completed(result, buffer, file, &mut buffers, &mut self.port(job.plan()));
        self.buffers = buffers;
        progress
    }

    fn progress(
        &mut self,
        engine: &Engine,
        index: usize,
        mut job: Job,
        mut progress: Progress,
        file: &FileStore,
    ) {
        let waits = loop {
            match progress {
                Progress::Op(op) if file.in_memory() && op.is_short() => {
                    let (result, buffer) = op.run(file.file());
                    progress = self.completed(&mut job, result, buffer, file);
                }
                other => break other,
            }
        };
        match waits {
            Progress::Op(op) => {
                self.ring.file(index, file.file(), op);
                self.jobs[index] = Some(job);
            }
            Progress::Copy { from, to, len } => {
                let (file, mailbox) = (Arc::clone(file.file()), Arc::clone(&self.mailbox));
                let copier = engine.copier.as_ref().expect("the store is a file");
                copier.copy(Work { file, from, to, len, job: index, mailbox });
                self.jobs[index] = Some(job);
            }
            Progress::Commit => {
                self.free_jobs.push(index);
                self.commit(engine, job.into_plan());
            }
            Progress::Finished(io) => {
                self.free_jobs.push(index);
                self.done_with(job.into_plan(), io);
            }
        }
    }

    fn port(&mut self, plan: &Plan) -> Port<'_> {
        match plan.port {
            PortKind::None => Port::None,
            PortKind::Door => self.door.port(&mut self.ring, plan.request),
            PortKind::Bounce => {
                let len = bounce_len(plan);
                let bounce = self.bounce.entry(plan.request).or_insert_with(|| Buffer::zeroed(len));
                if bounce.len() < len {
                    *bounce = Buffer::zeroed(len);
                }
                Port::Memory(bounce.bytes_mut())
            }
        }
    }
}

fn ends_with_commit(plan: &Plan) -> bool {
    matches!(plan.steps.last(), Some(Step::Commit(_)))
}

/// The bytes of a port that a plan uses.
fn bounce_len(plan: &Plan) -> usize {
    let end = |step: &Step| match step {
        Step::Read { from, port } => (*port + from.len).bytes().0,
        Step::ReadFlipped { port, len, .. } | Step::ReadZeroes { port, len } => (*port + *len).bytes().0,
        Step::Write { port, to } => (*port + to.len).bytes().0,
        Step::Move { .. } | Step::Zero { .. } | Step::Trim { .. } | Step::Sync | Step::Commit(_) => 0,
    };
    plan.steps.iter().map(end).max().unwrap_or(0) as usize
}
