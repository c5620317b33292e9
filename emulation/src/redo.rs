//! What is recorded of changes: redo records, one for each change as it is committed, and commits, which
//! make a whole image durable.

use crate::limits::Limits;
use crate::request::VolumeId;
use crate::units::Sectors;
use crate::zone::ZoneCondition;
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

/// What is kept of a sequential zone beyond the life of a server: of implicit opens and of unfinished writes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneChange {
    /// The volume.
    pub volume: VolumeId,
    /// The number of the zone.
    pub zone: u32,
    /// Its condition; a zone that was opened implicitly is closed.
    pub condition: ZoneCondition,
    /// The end of its highest finished write, from its start.
    pub wp: Sectors,
}

impl ZoneChange {
    /// The zone as it comes back after a loss of power: no zone is open then.
    #[must_use]
    pub fn after_power_loss(self) -> Self {
        let condition = match self.condition {
            ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Closed if self.wp.is_zero() => {
                ZoneCondition::Empty
            }
            ZoneCondition::ImpOpen | ZoneCondition::ExpOpen => ZoneCondition::Closed,
            ZoneCondition::NotWp
            | ZoneCondition::Empty
            | ZoneCondition::Closed
            | ZoneCondition::Readonly
            | ZoneCondition::Full
            | ZoneCondition::Offline => self.condition,
        };
        Self { condition, ..self }
    }
}

/// One metadata commit: the changes of the map since the last, as they stood when the flush began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The changes, in no order that matters: no two overlap.
    pub changes: Vec<MapChange>,
    /// The zones that changed, each as it was when the flush began or later: none is named twice.
    pub zones: Vec<ZoneChange>,
    /// Volumes removed since the last commit; they go before the changes.
    pub removed: Vec<VolumeId>,
    /// The redo records up to this number are in the image.
    pub sequence: u64,
}

/// What a pool goes on from after its server died or the host went down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The volumes that exist. What is said of others belongs to volumes that are gone.
    pub volumes: Vec<(VolumeId, Limits)>,
    /// The maps as the last commit made them durable; no two entries overlap.
    pub entries: Vec<MapChange>,
    /// The redo records up to this number are in them.
    pub sequence: u64,
    /// The later records with their numbers, in order; none after the host went down, as the data that they name may
    /// be lost.
    pub records: Vec<(u64, MapChange)>,
    /// The zones of the volumes as the last commit made them durable; one that is not named is empty.
    pub zones: Vec<ZoneChange>,
    /// The later records of zones with their numbers, in order; none after the host went down.
    pub zone_records: Vec<(u64, ZoneChange)>,
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
/// allocated again. A log that a recovered pool is given holds no record up to [`Image::sequence`].
pub trait RedoLog: Debug + Send {
    /// Records a change and gives its number. The caller has kept within [`RedoLog::room`].
    fn append(&mut self, change: &MapChange) -> u64;

    /// Records a change of a zone, as [`RedoLog::append`] does one of a map. Each plan that writes to a zone adds
    /// one at most.
    fn append_zone(&mut self, change: &ZoneChange) -> u64;

    /// How full it is.
    fn fill(&self) -> Fill;

    /// Records for which there is room, those that live plans will append included.
    fn room(&self) -> u64;

    /// The number of the last record, 0 for none.
    fn last(&self) -> u64;

    /// The records up to `sequence` are in a durable image and may be dropped; no others may.
    fn committed(&mut self, sequence: u64);
}

/// The log of a pool that keeps none: it counts, and is never full.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLog {
    pub(crate) last: u64,
}

impl RedoLog for NoLog {
    fn append(&mut self, _change: &MapChange) -> u64 {
        self.last += 1;
        self.last
    }

    fn append_zone(&mut self, _change: &ZoneChange) -> u64 {
        self.last += 1;
        self.last
    }

    fn fill(&self) -> Fill {
        Fill::Low
    }

    fn room(&self) -> u64 {
        u64::MAX
    }

    fn last(&self) -> u64 {
        self.last
    }

    fn committed(&mut self, _sequence: u64) {}
}
