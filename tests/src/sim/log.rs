//! The redo log of a simulated pool: as much room as the run's options say, and every record kept until it may
//! be dropped.

use emulation::VolumeId;
use emulation::redo::{Fill, MapChange, RedoLog, ZoneChange};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// What is in the log.
#[derive(Debug, Default)]
pub struct Records {
    /// The records that were not dropped, each with its number.
    pub kept: VecDeque<(u64, MapChange)>,
    /// Those that were appended since the simulator looked last.
    pub fresh: Vec<MapChange>,
    /// Those of zones.
    pub zones: Vec<(u64, ZoneChange)>,
    /// The number of the last.
    pub last: u64,
    /// Records up to this number were dropped.
    pub dropped: u64,
    capacity: Option<usize>,
}

impl Records {
    fn len(&self) -> usize {
        self.kept.len() + self.zones.len()
    }
}

/// The pool's end of the log.
#[derive(Clone, Debug)]
pub struct SimLog {
    records: Arc<Mutex<Records>>,
}

impl SimLog {
    /// An empty log with room for so many records; `None`: for any number.
    pub fn new(capacity: Option<usize>) -> Self {
        Self { records: Arc::new(Mutex::new(Records { capacity, ..Records::default() })) }
    }

    /// The simulator's end.
    pub fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().expect("a simulation has one thread")
    }

    /// Drops the records of a volume that is removed: its owner writes down that it is gone.
    pub fn forget(&self, volume: VolumeId) {
        let mut records = self.records();
        records.kept.retain(|(_, change)| change.volume != volume);
        records.zones.retain(|(_, change)| change.volume != volume);
    }
}

impl RedoLog for SimLog {
    fn append(&mut self, change: &MapChange) -> u64 {
        let mut records = self.records();
        records.last += 1;
        let last = records.last;
        records.kept.push_back((last, change.clone()));
        records.fresh.push(change.clone());
        last
    }

    fn append_zone(&mut self, change: &ZoneChange) -> u64 {
        let mut records = self.records();
        records.last += 1;
        let last = records.last;
        records.zones.push((last, *change));
        last
    }

    fn fill(&self) -> Fill {
        let records = self.records();
        match records.capacity {
            Some(capacity) if records.len() >= capacity => Fill::Full,
            Some(capacity) if records.len() >= capacity / 2 => Fill::Half,
            Some(_) | None => Fill::Low,
        }
    }

    fn room(&self) -> u64 {
        u64::MAX
    }

    fn last(&self) -> u64 {
        self.records().last
    }

    fn committed(&mut self, sequence: u64) {
        let mut records = self.records();
        records.dropped = records.dropped.max(sequence);
        let kept =
            records.kept.iter().position(|&(number, _)| number > sequence).unwrap_or(records.kept.len());
        records.kept.drain(..kept);
        let zones =
            records.zones.iter().position(|&(number, _)| number > sequence).unwrap_or(records.zones.len());
        records.zones.drain(..zones);
    }
}
