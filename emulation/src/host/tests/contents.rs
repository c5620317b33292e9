//! The disks of a test: plain arrays, and requests carried out one at a time, at once and in full.

use crate::device::Completion;
use crate::host::{BufferId, Data, Emit};
use crate::limits::{Limits, admit};
use crate::request::{Op, VolumeId};
use crate::status::BlkStatus;
use crate::units::{SectorRange, Sectors};
use std::collections::BTreeMap;

/// What a sector holds that nobody wrote: a number of its own.
pub(crate) fn fresh(volume: VolumeId, sector: u64) -> u64 {
    (u64::from(volume.0) + 1) << 32 | sector
}

/// What a buffer holds that nobody filled.
pub(crate) const UNFILLED: u64 = u64::MAX;

/// Disks and the host's buffers.
#[derive(Debug)]
pub(crate) struct Disks {
    limits: BTreeMap<VolumeId, Limits>,
    contents: BTreeMap<VolumeId, Vec<u64>>,
    buffers: BTreeMap<BufferId, Vec<u64>>,
    /// Every request, as it came.
    pub(crate) log: Vec<Emit>,
    /// Requests that were not within the limits.
    pub(crate) refused: Vec<BlkStatus>,
    /// The requests that fail, by their place in the log, and how.
    pub(crate) failures: BTreeMap<usize, BlkStatus>,
}

pub(crate) fn index(sector: u64) -> usize {
    usize::try_from(sector).unwrap()
}

pub(crate) fn span(range: SectorRange) -> std::ops::Range<usize> {
    index(range.start.0)..index(range.end().0)
}

impl Disks {
    pub(crate) fn new(disks: impl Iterator<Item = (VolumeId, Limits)>) -> Self {
        let limits: BTreeMap<_, _> = disks.collect();
        let whole = |(id, limits): (&VolumeId, &Limits)| {
            (*id, (0..limits.capacity.0).map(|sector| fresh(*id, sector)).collect())
        };
        Self {
            contents: limits.iter().map(whole).collect(),
            limits,
            buffers: BTreeMap::new(),
            log: Vec::new(),
            refused: Vec::new(),
            failures: BTreeMap::new(),
        }
    }

    /// What a range holds.
    pub(crate) fn read(&self, volume: VolumeId, range: SectorRange) -> &[u64] {
        &self.contents[&volume][span(range)]
    }

    /// Puts values in place.
    pub(crate) fn write(&mut self, volume: VolumeId, start: u64, values: &[u64]) {
        self.contents.get_mut(&volume).unwrap()[index(start)..][..values.len()].copy_from_slice(values);
    }

    /// Everything there is.
    pub(crate) fn snapshot(&self) -> BTreeMap<VolumeId, Vec<u64>> {
        self.contents.clone()
    }

    fn buffer(&mut self, data: Data, len: Sectors) -> &mut [u64] {
        let Data::Buffer { id, offset } = data else { panic!("no buffer") };
        let buffer = self.buffers.entry(id).or_default();
        let end = index((offset + len).0);
        if buffer.len() < end {
            buffer.resize(end, UNFILLED);
        }
        &mut buffer[index(offset.0)..end]
    }

    /// Carries a request out.
    pub(crate) fn execute(&mut self, emit: &Emit) -> Completion {
        self.log.push(emit.clone());
        if let Err(status) = admit(|volume| self.limits.get(&volume), &emit.request) {
            self.refused.push(status);
            return Completion::refused(status);
        }
        if let Some(status) = self.failures.get(&(self.log.len() - 1)) {
            return Completion::refused(*status);
        }
        let volume = emit.request.volume;
        match &emit.request.op {
            Op::Read(range) => {
                let values = self.read(volume, *range).to_vec();
                self.buffer(emit.data, range.len).copy_from_slice(&values);
                Completion::ok(range.len.bytes())
            }
            Op::Write(range) => {
                let zeroes = vec![0; index(range.len.0)];
                let values = match emit.data {
                    Data::Zeroes => zeroes,
                    Data::Buffer { .. } => self.buffer(emit.data, range.len).to_vec(),
                    Data::None => panic!("a write without data"),
                };
                self.write(volume, range.start.0, &values);
                Completion::ok(range.len.bytes())
            }
            Op::WriteZeroes(range) => {
                self.write(volume, range.start.0, &vec![0; index(range.len.0)]);
                Completion::ok(range.len.bytes())
            }
            Op::Copy(command) => {
                for segment in &command.segments {
                    let values = self.read(segment.source_volume, segment.source).to_vec();
                    self.write(volume, segment.destination.0, &values);
                }
                Completion::ok(command.total().unwrap().bytes())
            }
            Op::Flush => Completion::ok(crate::units::Bytes(0)),
            Op::Discard(_) | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => {
                panic!("no client sends {:?}", emit.request.op)
            }
        }
    }
}
