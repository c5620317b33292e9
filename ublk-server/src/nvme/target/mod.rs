//! The controller side without sockets and clock: bytes and time in, bytes and requests out.
//!
//! A [`Connection`] is one TCP connection, which is one queue. It takes PDUs apart, moves the data of commands and
//! turns I/O commands into calls of the pool. What needs more than one queue to know, fabrics and admin commands, it
//! hands to the [`Target`]: the subsystem, its namespaces and its controllers. The shell around them carries
//! [`Work`] and [`Effect`]s between connections, target and pool.

mod admin;
mod connect;
mod connection;
mod controller;
mod copy;
mod discovery;
mod features;
mod identify;
mod io;
mod logs;
mod pointer;
mod slots;
mod subsystem;
#[cfg(test)]
mod tests;
mod zones;

pub use connection::{Connection, ConnectionLimits, Wire, Work};
pub use io::Call;
pub use subsystem::{
    Cx, Effect, Health, Namespace, Namespaces, SubsystemConfig, Target, View, identifier, uuid_text,
};

use super::wire::status::Status;

/// A connection, by a number that the shell gives and never uses again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A live command of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u16);

/// A queue, as Connect made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its controller.
    pub controller: u16,
    /// Its number; 0 is the admin queue.
    pub qid: u16,
    /// Entries.
    pub size: u16,
    /// Completions carry the head of the submission queue.
    pub flow_control: bool,
}

/// How the target answers a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It has ended. Data only with success.
    Done {
        /// How.
        status: Status,
        /// Dwords 0 and 1 of the completion.
        result: u64,
        /// What it returns.
        data: Vec<u8>,
    },
    /// Connect has made a queue of the connection.
    Connected(Queue),
    /// It is answered later, by [`Effect::Complete`].
    Parked,
}

impl Reply {
    fn ok(result: u64) -> Self {
        Self::Done { status: Status::SUCCESS, result, data: Vec::new() }
    }

    fn data(data: Vec<u8>) -> Self {
        Self::Done { status: Status::SUCCESS, result: 0, data }
    }
}

impl From<Status> for Reply {
    fn from(status: Status) -> Self {
        Self::Done { status, result: 0, data: Vec::new() }
    }
}

/// The data that a command moves over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// None.
    None,
    /// To the controller: so many bytes, or more when `or_more`.
    FromHost {
        /// Bytes.
        len: u32,
        /// The host may send more, which means nothing.
        or_more: bool,
    },
    /// To the host, so many bytes.
    ToHost(u32),
}

/// The most data of a command: 2^MDTS pages of 4 KiB.
pub const TRANSFER_MAX: u32 = 1 << 20;
/// TRANSFER_MAX as Identify Controller says it.
const MDTS: u8 = 8;
const _: () = assert!(TRANSFER_MAX == 4096 << MDTS);
/// The most data in a command capsule: the list of a Copy of 256 ranges, twice.
pub const IN_CAPSULE_MAX: u32 = 16 << 10;
/// The most namespaces of a subsystem, and the highest namespace number.
pub const NAMESPACES_MAX: u32 = 1024;
/// The most entries of a queue.
pub const QUEUE_ENTRIES_MAX: u16 = 1024;
