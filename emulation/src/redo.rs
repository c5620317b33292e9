//! What is recorded of changes: redo records, one for each change as it is committed, and commits, which
//! make a whole image durable.

use crate::request::VolumeId;
use std::fmt::Debug;
use std::ops::Range;

/// A change of a volume's map, in map blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapChange {
    /// The volume.
    pub volume: VolumeId,
    /// The logical blocks.
    pub logical: Range<u64>,
    /// The physical block of the first of them, the rest following; `None`: they read as zeroes.
    pub physical: Option<u64>,
}

/// One metadata commit: the changes of the map since the last, as they stood when the flush began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The changes, in no order that matters: no two overlap.
    pub changes: Vec<MapChange>,
    /// Volumes removed since the last commit; they go before the changes.
    pub removed: Vec<VolumeId>,
    /// The redo records up to this number are in the image.
    pub sequence: u64,
}

/// How full a redo log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Plenty of room.
    Low,
    /// Half full: the device should write its cache back.
    Half,
    /// No room: changes wait for a commit.
    Full,
}

/// Where changes are recorded in the order in which they take effect, before a block that they free can be
/// allocated again.
pub trait RedoLog: Debug + Send {
    /// Records a change and gives its number. Room for the records of every change whose plan is live was
    /// there when [`RedoLog::fill`] last said other than [`Fill::Full`].
    fn append(&mut self, change: &MapChange) -> u64;

    /// How full it is.
    fn fill(&self) -> Fill;

    /// The number of the last record, 0 for none.
    fn last(&self) -> u64;

    /// The records up to `sequence` are in a durable image and may be dropped; no others may.
    fn committed(&mut self, sequence: u64);
}

/// The log of a pool that keeps none: it counts, and is never full.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLog {
    last: u64,
}

impl RedoLog for NoLog {
    fn append(&mut self, _change: &MapChange) -> u64 {
        self.last += 1;
        self.last
    }

    fn fill(&self) -> Fill {
        Fill::Low
    }

    fn last(&self) -> u64 {
        self.last
    }

    fn committed(&mut self, _sequence: u64) {}
}
