//! One hardware queue of a disk, served by one thread.

use super::decode::{self, Decoded, Descriptor, decode};
use super::descriptors::Descriptors;
use super::error::UblkError;
use super::native;
use super::zones;
use crate::debug::{self, ThreadKind};
use crate::engine::mailbox::Mailbox;
use crate::engine::port::Port;
use crate::engine::ring::{Event, QueueCommand, QueueSetup, Ring, Wait};
use crate::engine::runner::{Call, Door, Runner};
use crate::engine::{Engine, Owner, enter_io_thread};
use emulation::{BlkStatus, Completion, Op, Request, RequestId, Sectors, VolumeId};
use libublk::sys;
use rustix::thread::CpuSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// What a queue thread is started with.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) engine: Arc<Engine>,
    /// `/dev/ublkcN`.
    pub(super) device: Arc<File>,
    pub(super) queue: u16,
    pub(super) depth: u16,
    pub(super) volume: VolumeId,
    /// The most sectors of a read or write.
    pub(super) max_io: Sectors,
    /// The device's logical block.
    pub(super) logical_block: Sectors,
    /// The room for the sources of a copy; 0 when the kernel sends no copies.
    pub(super) copy_sources: usize,
    /// The size of a tag's buffer; `None` with user copy.
    pub(super) buffer: Option<usize>,
    /// The CPUs that send to the queue.
    pub(super) cpus: CpuSet,
}

/// A queue thread that serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    pub(super) tid: i32,
    pub(super) io_flusher: bool,
}

impl Queue {
    /// The queue thread: says how it started, then serves until the kernel takes the queue away.
    pub(super) fn serve(self, started: Sender<Result<Started, UblkError>>) {
        let io_flusher = enter_io_thread();
        // A queue that may not be bound runs anywhere.
        let _ = rustix::thread::sched_setaffinity(None, &self.cpus);
        let engine = Arc::clone(&self.engine);
        let queue = self.queue;
        let fail = |error| UblkError::Queue { queue, error };
        let (owner, mailbox) = match engine.register() {
            Ok(registered) => registered,
            Err(error) => return started.send(Err(fail(error))).expect("the starter waits"),
        };
        match self.prepare(owner, mailbox) {
            Ok(runner) => {
                let tid = rustix::thread::gettid().as_raw_nonzero().get();
                started.send(Ok(Started { tid, io_flusher })).expect("the starter waits");
                drop(started);
                runner.run();
            }
            Err(error) => started.send(Err(fail(error))).expect("the starter waits"),
        }
        engine.unregister(owner);
    }

    /// Fetches every tag.
    fn prepare(self, owner: Owner, mailbox: Arc<Mailbox>) -> io::Result<Runner<QueueDoor>> {
        let descriptors = Descriptors::map(&self.device, self.queue, self.depth)?;
        let setup = QueueSetup { device: Arc::clone(&self.device), depth: self.depth, buffer: self.buffer };
        // A tag has one plan at a time; the device's own few come on top.
        let jobs = usize::from(self.depth) + 16;
        let mut ring = Ring::new(Arc::clone(&mailbox), jobs, Some(setup))?;
        let depth = self.depth;
        let door = QueueDoor {
            descriptors,
            owner,
            whole: vec![0; usize::from(depth)],
            copies: vec![false; usize::from(depth)],
            live: depth,
            queue: self.queue,
            volume: self.volume,
            max_io: self.max_io,
            logical_block: self.logical_block,
            copy_sources: vec![0; self.copy_sources],
            user_copy: self.buffer.is_none().then_some(self.device),
        };
        for tag in 0..depth {
            let (op, queue) = (sys::UBLK_U_IO_FETCH_REQ, door.queue);
            ring.command(QueueCommand { op, queue, tag, result: 0, beside: 0 });
        }
        let mut events = Vec::new();
        ring.enter(Wait::No, &mut events);
        for event in events {
            if let Event::Queue { tag, result } = event {
                return Err(io::Error::other(format!(
                    "fetching tag {tag}: {}",
                    io::Error::from_raw_os_error(-result)
                )));
            }
        }
        Ok(Runner::new(self.engine, owner, mailbox, ring, door))
    }
}

/// A queue as the place where requests come from.
#[derive(Debug)]
struct QueueDoor {
    descriptors: Descriptors,
    owner: Owner,
    /// By tag: the driver's result when the request is done.
    whole: Vec<i32>,
    /// By tag: the request is a copy, whose finished part counts when it fails.
    copies: Vec<bool>,
    /// Tags that the kernel has not taken away.
    live: u16,
    queue: u16,
    volume: VolumeId,
    max_io: Sectors,
    logical_block: Sectors,
    /// Where the sources of a copy are read to.
    copy_sources: Vec<u8>,
    user_copy: Option<Arc<File>>,
}

impl QueueDoor {
    fn answer(&self, ring: &mut Ring, tag: u16, result: i32, beside: u64) {
        let op = sys::UBLK_U_IO_COMMIT_AND_FETCH_REQ;
        ring.command(QueueCommand { op, queue: self.queue, tag, result, beside });
    }

    /// Reads the sources of a copy, and understands it.
    fn copy(&mut self, tag: u16, descriptor: Descriptor) -> Result<Decoded, BlkStatus> {
        let device = self.user_copy.as_ref().ok_or(BlkStatus::NotSupp)?;
        let position = user_copy_position(self.queue, tag) + native::POSITION;
        let failed = |error: io::Error| BlkStatus::from_errno(error.raw_os_error().unwrap_or(libc::EIO));
        let len = device.read_at(&mut self.copy_sources, position).map_err(failed)?;
        native::decode(descriptor, &self.copy_sources[..len], self.volume)
    }

    fn tag(id: RequestId) -> u16 {
        u16::try_from(Owner::number(id)).expect("the number of a request is its tag")
    }
}

impl Door for QueueDoor {
    fn event(&mut self, ring: &mut Ring, tag: u16, result: i32) -> Option<Request> {
        debug::check(ThreadKind::Queue);
        match result {
            0 => {}
            sys::UBLK_IO_RES_ABORT => {
                self.live -= 1;
                return None;
            }
            // The request of this tag cannot be answered any more; only the end of the process makes the kernel
            // fail it.
            error => panic!(
                "queue {}: the driver refused the answer of tag {tag}: {}",
                self.queue,
                io::Error::from_raw_os_error(-error)
            ),
        }
        let descriptor = self.descriptors.get(tag);
        let decoded = match descriptor.op_flags & 0xff {
            native::OP => self.copy(tag, descriptor),
            _ => decode(descriptor, self.max_io),
        };
        match decoded {
            Ok(decoded) => {
                self.copies[usize::from(tag)] = matches!(decoded.op, Op::Copy(_));
                self.whole[usize::from(tag)] = decoded.whole;
                let id = self.owner.request(tag.into());
                Some(Request { id, volume: self.volume, op: decoded.op, flags: decoded.flags })
            }
            Err(status) => {
                self.answer(ring, tag, decode::refusal(status), 0);
                None
            }
        }
    }

    fn call(&mut self, call: Call) -> Option<Request> {
        panic!("a queue takes no calls: {call:?}")
    }

    fn stop(&mut self) {
        panic!("a queue ends when the kernel takes it away")
    }

    fn is_over(&self) -> bool {
        self.live == 0
    }

    fn port<'a>(&'a mut self, ring: &'a mut Ring, id: RequestId) -> Port<'a> {
        let tag = Self::tag(id);
        match &self.user_copy {
            Some(device) => Port::UserCopy { device, position: user_copy_position(self.queue, tag) },
            None => Port::Memory(ring.queue_buffer(tag)),
        }
    }

    fn complete(&mut self, ring: &mut Ring, id: RequestId, completion: Completion) {
        let tag = Self::tag(id);
        let whole = self.whole[usize::from(tag)];
        let mut result = decode::encode(&completion, whole);
        if !completion.zones.is_empty() {
            let report = zones::report(&completion.zones);
            if let Err(error) = self.port(ring, id).put(Sectors::ZERO, &report) {
                result = -error.raw_os_error();
            }
        }
        let beside = match (self.copies[usize::from(tag)], completion.appended_at) {
            (true, _) => decode::copied(&completion, whole, self.logical_block),
            (false, Some(at)) => at.0,
            (false, None) => 0,
        };
        self.answer(ring, tag, result, beside);
    }
}

/// Where the data of a request is in `/dev/ublkcN`.
fn user_copy_position(queue: u16, tag: u16) -> u64 {
    u64::from(sys::UBLKSRV_IO_BUF_OFFSET)
        + (u64::from(queue) << sys::UBLK_QID_OFF | u64::from(tag) << sys::UBLK_TAG_OFF)
}
