//! The pure core of the copy-offload disk.
//!
//! A *pool* is one [`BlockDevice`]: a store shared by its volumes, one stack of layers, one lock (the
//! caller's). A [`Request`] is decided in `begin`, which reserves and touches no data; the plan it returns is
//! executed by the caller, unlocked; `finish` commits it and may return the next link of the chain. What
//! this crate does not know: who called, where bytes live, what time it is. Time, randomness and bytes are
//! arguments, so that a seed replays every run.

pub mod alloc;
pub mod copy;
pub mod delayed;
pub mod device;
pub mod emulated;
pub mod fault;
pub mod host;
pub mod identity;
pub mod ledger;
pub mod limits;
pub mod mapped;
mod parking;
pub mod pool;
pub mod range_map;
pub mod redo;
pub mod request;
mod slots;
pub mod status;
pub mod time;
pub mod timing;
pub mod units;
pub mod zone;

pub use device::{
    BlockDevice, Completion, Control, Cx, IoResult, Keep, Link, Next, Out, Plan, PlanId, PortKind, Step,
    Steps, StoreRange, Usage,
};
pub use limits::{CopyMode, Limits};
pub use pool::Pool;
pub use request::{CopyCommand, CopySegment, Flags, Op, Request, RequestId, VolumeId};
pub use status::BlkStatus;
pub use time::{Instant, Nanos};
pub use units::{Bytes, PhysSector, Sector, SectorRange, Sectors};
