//! The host above the disk, as clients of a [`crate::BlockDevice`]: state machines that emit requests and take
//! completions, and know nothing of threads, memory or time that they are not told.
//!
//! [`copier`] is the request path of a copy in the designs that were posted for the Linux block layer, over stacked
//! devices; [`kcopyd`] is the copy service of device mapper, with the targets that use it.
//!
//! A design is modelled in its correct form. Each defect that was published about a posted version can be switched
//! on ([`defect::Defect`]), so that a test suite for such a design can be shown to see it.

mod bio;
mod blk_mq;
mod chunk;
mod context;
pub mod copier;
pub mod defect;
pub mod design;
mod fallback;
pub mod kcopyd;
mod matcher;
mod offload;
pub mod stack;

use crate::request::Request;
use crate::units::Sectors;

/// A buffer in the host's memory, by a number of its client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u64);

/// The host's side of a request's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The request has none.
    None,
    /// It writes zeroes: all its pages are the zero page.
    Zeroes,
    /// It reads into, or writes from, this place of a buffer.
    Buffer {
        /// The buffer.
        id: BufferId,
        /// From its start.
        offset: Sectors,
    },
}

/// A request on its way to the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emit {
    /// The request.
    pub request: Request,
    /// Where its data is.
    pub data: Data,
}

#[cfg(test)]
mod tests;
