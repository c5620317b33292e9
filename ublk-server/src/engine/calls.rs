//! Requests of doors that live in tokio, on the worker thread that owns them.

use super::port::Port;
use super::ring::Ring;
use super::runner::Door;
use crate::debug::{self, ThreadKind};
use emulation::{BlkStatus, Completion, Flags, Op, Request, RequestId, SectorRange, VolumeId};
use std::collections::HashMap;
use tokio::sync::{mpsc, oneshot};

/// How a call ended.
#[derive(Debug)]
pub struct CallResult {
    /// The answer.
    pub completion: Completion,
    /// For a read its data, valid up to `completion.bytes` (none when it was refused); for a write what was handed in.
    pub data: Option<Vec<u8>>,
}

/// A request on its way to a worker.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: RequestId,
    pub(crate) volume: VolumeId,
    pub(crate) op: Op,
    pub(crate) flags: Flags,
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) reply: Reply,
}

/// Who is answered. Whoever it is may have gone; the answer is lost then, as it should.
#[derive(Debug)]
pub(crate) enum Reply {
    /// One who waits for this answer alone.
    One(oneshot::Sender<CallResult>),
    /// A queue, by its own number for the call.
    Queue(u64, mpsc::UnboundedSender<(u64, CallResult)>),
}

impl Reply {
    fn send(self, result: CallResult) {
        match self {
            Self::One(one) => drop(one.send(result)),
            Self::Queue(number, queue) => drop(queue.send((number, result))),
        }
    }
}

/// The calls that a worker has.
#[derive(Debug, Default)]
pub(crate) struct CallDoor {
    live: HashMap<RequestId, Live>,
    stopping: bool,
}

#[derive(Debug)]
struct Live {
    range: Option<SectorRange>,
    data: Option<Vec<u8>>,
    reply: Reply,
}

impl Door for CallDoor {
    fn event(&mut self, _ring: &mut Ring, tag: u16, _result: i32) -> Option<Request> {
        panic!("a worker has no queue with tag {tag}")
    }

    fn call(&mut self, call: Call) -> Option<Request> {
        debug::check(ThreadKind::Worker);
        let Call { id, volume, op, flags, data, reply } = call;
        let range = match &op {
            Op::Read(range) | Op::Write(range) => Some(*range),
            Op::Flush
            | Op::Discard(_)
            | Op::WriteZeroes(_)
            | Op::Copy(_)
            | Op::ZoneMgmt { .. }
            | Op::ZoneResetAll
            | Op::ReportZones { .. } => None,
        };
        let fits = match &op {
            Op::Write(range) => {
                let len = data.as_ref().map_or(0, Vec::len) as u64;
                emulation::Bytes(len).sectors() == Some(range.len)
            }
            Op::Read(_)
            | Op::Flush
            | Op::Discard(_)
            | Op::WriteZeroes(_)
            | Op::Copy(_)
            | Op::ZoneMgmt { .. }
            | Op::ZoneResetAll
            | Op::ReportZones { .. } => data.is_none(),
        };
        if !fits {
            reply.send(CallResult { completion: Completion::refused(BlkStatus::Inval), data });
            return None;
        }
        self.live.insert(id, Live { range, data, reply });
        Some(Request { id, volume, op, flags })
    }

    fn stop(&mut self) {
        self.stopping = true;
    }

    fn is_over(&self) -> bool {
        self.stopping && self.live.is_empty()
    }

    fn port<'a>(&'a mut self, _ring: &'a mut Ring, id: RequestId) -> Port<'a> {
        let live = self.live.get_mut(&id).expect("a plan is of a live call");
        // Made here and not earlier: the pool has admitted the length by now.
        let len = live.range.map_or(0, |range| range.len.bytes().0);
        Port::Memory(live.data.get_or_insert_with(|| vec![0; len as usize]))
    }

    fn complete(&mut self, _ring: &mut Ring, id: RequestId, completion: Completion) {
        let live = self.live.remove(&id).expect("a call is answered once");
        live.reply.send(CallResult { completion, data: live.data });
    }
}
