//! Requests under way.

use emulation::{BlkStatus, Bytes, Completion, RequestId};

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    /// Pages of the user.
    Write { zone: u32, len: Bytes },
    /// A part of a move, by the move's number.
    Read { number: u64, len: Bytes },
    /// The pages of a move by the host.
    WriteBuffer { from: u32, to: u32, len: Bytes, buffer: u32 },
    /// The pages of a move by the device.
    Copy { from: u32, to: u32, len: Bytes, segments: u64, fast: bool },
    /// A zone is emptied.
    Clear { zone: u32 },
}

/// Why a client ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The device failed a request.
    #[error("{what} ended with {status:?} after {done} of {len}: the log is not on the device any more")]
    Request {
        /// What it was.
        what: &'static str,
        /// How it ended.
        status: BlkStatus,
        /// The finished prefix.
        done: Bytes,
        /// What was asked for; 0 for a zone that was to be emptied.
        len: Bytes,
    },
    /// The end of a request that is not under way.
    #[error("request {0} is not under way")]
    Unknown(u64),
}

/// All that is under way, by number.
#[derive(Debug)]
pub(super) struct Flights {
    first: u64,
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
}

impl Flights {
    pub(super) fn new(first: RequestId, depth: u32) -> Self {
        Self { first: first.0, flights: vec![None; depth as usize], free: (0..depth).rev().collect() }
    }

    pub(super) fn full(&self) -> bool {
        self.free.is_empty()
    }

    pub(super) fn under_way(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// A number for a request that is about to begin. Panics when all are in use.
    pub(super) fn start(&mut self, flight: Flight) -> RequestId {
        let place = self.free.pop().expect("not full");
        self.flights[place as usize] = Some(flight);
        RequestId(self.first + u64::from(place))
    }

    /// Takes the request back; an error when it did not do all that it was asked for.
    pub(super) fn land(&mut self, id: RequestId, completion: &Completion) -> Result<Flight, Failure> {
        let place = id.0.checked_sub(self.first).and_then(|place| u32::try_from(place).ok());
        let flight = place.and_then(|place| self.flights.get_mut(place as usize)?.take());
        let (Some(place), Some(flight)) = (place, flight) else { return Err(Failure::Unknown(id.0)) };
        self.free.push(place);
        let (what, len) = match flight {
            Flight::Write { len, .. } => ("a write of the user", len),
            Flight::Read { len, .. } => ("a read of a move", len),
            Flight::WriteBuffer { len, .. } => ("the write of a move", len),
            Flight::Copy { len, .. } => ("the copy of a move", len),
            Flight::Clear { .. } => ("the reset of a zone", Bytes(0)),
        };
        if completion.status.is_ok() && completion.bytes >= len {
            return Ok(flight);
        }
        Err(Failure::Request { what, status: completion.status, done: completion.bytes, len })
    }
}
