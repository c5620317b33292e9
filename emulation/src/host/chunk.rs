//! What a caller submits at a time, and when all of it has ended.

use super::bio::Side;
use super::stack::Node;
use crate::status::BlkStatus;
use crate::units::SectorRange;

/// A chunk's number; bios of one copy carry it, which is what they are joined by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkId(pub(crate) u64);

/// A bio of a context at its disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parked {
    pub(crate) side: Side,
    pub(crate) index: usize,
    pub(crate) disk: Node,
    pub(crate) range: SectorRange,
}

/// One command of a caller.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// The task that it belongs to.
    pub(crate) task: u32,
    /// Bios that have not ended.
    pub(crate) pending: u64,
    /// The first failure.
    pub(crate) status: BlkStatus,
    /// Bios of a context that are not translated yet.
    pub(crate) untranslated: u64,
    /// Those that are.
    pub(crate) parked: Vec<Parked>,
}

impl Chunk {
    pub(crate) fn new(task: u32, bios: u64) -> Self {
        Self { task, pending: bios, status: BlkStatus::Ok, untranslated: bios, parked: Vec::new() }
    }

    /// A bio ended; true when it was the last.
    pub(crate) fn end(&mut self, status: BlkStatus) -> bool {
        if self.status.is_ok() {
            self.status = status;
        }
        self.pending -= 1;
        self.pending == 0
    }
}
