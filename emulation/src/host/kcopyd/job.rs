//! Jobs and their slices.

use crate::request::VolumeId;
use crate::units::{SectorRange, Sectors};

/// `DM_KCOPYD_MAX_REGIONS`: the destinations of a job.
pub const DESTINATIONS_MAX: usize = 8;

/// A job's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// A run of sectors of a disk (`dm_io_region`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The disk.
    pub volume: VolumeId,
    /// The sectors.
    pub range: SectorRange,
}

/// What to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// From here; `None`: write zeroes.
    pub source: Option<Region>,
    /// To each of these, all as long as the source; 1 to [`DESTINATIONS_MAX`].
    pub destinations: Vec<Region>,
    /// `DM_KCOPYD_IGNORE_ERROR`: go on after an error. What could not be read is written as zeroes.
    pub ignore_error: bool,
    /// `DM_KCOPYD_WRITE_SEQ`: issue writes in order. Always so where a destination is zoned.
    pub write_seq: bool,
}

/// Why there is no such job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// None or too many.
    #[error("{0} destinations: must be from 1 to {DESTINATIONS_MAX}")]
    Destinations(usize),
    /// They differ, or are empty.
    #[error("source and destinations: must be of one length, and not 0")]
    Lengths,
}

impl Job {
    /// A copy to one destination.
    pub fn copy(source: Region, destination: Region) -> Self {
        Self { source: Some(source), destinations: vec![destination], ignore_error: false, write_seq: false }
    }

    /// Zeroes to one destination.
    pub fn zero(destination: Region) -> Self {
        Self { source: None, destinations: vec![destination], ignore_error: false, write_seq: false }
    }

    pub(super) fn check(&self) -> Result<Sectors, JobError> {
        let count = self.destinations.len();
        if !(1..=DESTINATIONS_MAX).contains(&count) {
            return Err(JobError::Destinations(count));
        }
        let len = self.destinations[0].range.len;
        let same = self.destinations.iter().chain(&self.source).all(|region| region.range.len == len);
        if same && !len.is_zero() { Ok(len) } else { Err(JobError::Lengths) }
    }
}

/// A job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which.
    pub job: JobId,
    /// Its source could not be read.
    pub read_err: bool,
    /// Bit n: destination n could not be written.
    pub write_err: u64,
}

impl Notice {
    /// True when nothing failed.
    pub fn is_ok(&self) -> bool {
        !self.read_err && self.write_err == 0
    }
}

/// A job with the state that its slices share.
#[derive(Debug)]
pub(super) struct Master {
    pub(super) job: Option<Job>,
    pub(super) len: Sectors,
    /// Taken by slices so far.
    pub(super) progress: Sectors,
    /// Where the next write of a sequential job begins.
    pub(super) write_offset: Sectors,
    /// Sub-jobs under way; 0 for a job that is not split.
    pub(super) subs: u64,
    pub(super) read_err: bool,
    pub(super) write_err: u64,
}

impl Master {
    pub(super) fn new(job: Option<Job>, len: Sectors) -> Self {
        Self {
            job,
            len,
            progress: Sectors::ZERO,
            write_offset: Sectors::ZERO,
            subs: 0,
            read_err: false,
            write_err: 0,
        }
    }

    /// True when new slices may begin.
    pub(super) fn goes_on(&self) -> bool {
        let ignore = self.job.as_ref().is_some_and(|job| job.ignore_error);
        ignore || !self.read_err && self.write_err == 0
    }
}

/// A slice's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SubId(pub(super) u64);

/// What a slice does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Copy,
    Read,
    Write,
    Zero,
}

/// A slice.
#[derive(Debug)]
pub(super) struct SubJob {
    pub(super) master: JobId,
    pub(super) offset: Sectors,
    pub(super) len: Sectors,
    pub(super) doing: Doing,
    /// Bit n: destination n is still to be written.
    pub(super) left: u64,
    pub(super) pages: u64,
    pub(super) outstanding: u64,
    pub(super) throttled: bool,
    pub(super) read_failed: bool,
    /// Destinations that failed in the step under way.
    pub(super) failed: u64,
    pub(super) write_err: u64,
}

impl SubJob {
    pub(super) fn new(master: JobId, offset: Sectors, len: Sectors, doing: Doing, left: u64) -> Self {
        Self {
            master,
            offset,
            len,
            doing,
            left,
            pages: 0,
            outstanding: 0,
            throttled: false,
            read_failed: false,
            failed: 0,
            write_err: 0,
        }
    }
}
