//! A host over disks in one test: who takes the next step is decided by the test, by turns or by chance.

use super::contents::{Disks, index};
use super::pool::PoolDisks;
use crate::device::Completion;
use crate::host::Emit;
use crate::host::copier::{Copier, CopyResult, HostCopy};
use crate::host::defect::Defects;
use crate::host::design::{Design, pair_up_on};
use crate::host::stack::{Disk, Node, Stack};
use crate::limits::Limits;
use crate::request::{RequestId, VolumeId};
use crate::timing::chance::Chance;
use crate::units::{Bytes, Sector, SectorRange, Sectors};
use std::collections::BTreeMap;

/// More steps than any test needs.
const STEPS_MAX: usize = 100_000;

pub(crate) fn range(start: u64, len: u64) -> SectorRange {
    SectorRange { start: Sector(start), len: Sectors(len) }
}

/// A disk of `capacity` sectors with small limits: 64 sectors a command, 24 a segment, 4 segments.
pub(crate) fn disk(volume: u32, capacity: u64) -> Disk {
    let mut limits = Limits::new(Sectors(capacity), Sectors(1), Sectors(8));
    limits.copy_max_bytes = Bytes(64 * 512);
    limits.copy_max_segment_bytes = Bytes(24 * 512);
    limits.copy_max_segments = 4;
    limits.max_io = Sectors(32);
    Disk { volume: VolumeId(volume), limits, nomerges: false, depth: 32 }
}

/// What every volume holds.
pub(crate) type Contents = BTreeMap<VolumeId, Vec<u64>>;

/// One run.
pub(crate) struct Path {
    pub(crate) host: Copier,
    pub(crate) disks: Disks,
    /// The same disks as volumes of a pool, which has to answer alike.
    pub(crate) pool: Option<PoolDisks>,
    /// At the disks.
    waiting: Vec<(RequestId, Completion)>,
    chance: Option<Chance>,
}

impl Path {
    pub(crate) fn new(stack: &Stack, design: Design, defects: Defects) -> Self {
        Self {
            host: Copier::new(stack.clone(), design, defects, 1),
            disks: Disks::new(stack.disks().map(|(_, disk)| (disk.volume, disk.limits.clone()))),
            pool: None,
            waiting: Vec::new(),
            chance: None,
        }
    }

    /// Chance decides the order of everything from now on.
    pub(crate) fn shuffled(mut self, seed: u64) -> Self {
        self.chance = Some(Chance::new(seed));
        self
    }

    fn pick(&mut self, count: usize) -> usize {
        match &mut self.chance {
            None => 0,
            Some(chance) => chance.below(u32::try_from(count).unwrap()) as usize,
        }
    }

    pub(crate) fn deliver(&mut self) {
        for emit in self.host.take_emits() {
            let Emit { request, .. } = &emit;
            let completion = self.disks.execute(&emit);
            if let Some(pool) = &mut self.pool {
                assert_eq!(pool.execute(&emit).status, completion.status, "{emit:?}");
            }
            self.waiting.push((request.id, completion));
        }
    }

    pub(crate) fn answer(&mut self) -> bool {
        self.deliver();
        if self.waiting.is_empty() {
            return false;
        }
        let index = self.pick(self.waiting.len());
        let (id, completion) = self.waiting.remove(index);
        self.host.complete(id, &completion);
        true
    }

    /// Runs until nothing is left to do. Without chance the actors take turns.
    pub(crate) fn run(&mut self) {
        let mut turn = 0;
        for _ in 0..STEPS_MAX {
            let runnable = self.host.runnable();
            let answer = runnable.is_empty() || self.chance.is_some() && self.pick(3) == 0;
            if answer && self.answer() {
                continue;
            }
            if runnable.is_empty() {
                return;
            }
            let index = if self.chance.is_some() { self.pick(runnable.len()) } else { turn % runnable.len() };
            turn += 1;
            if self.chance.is_some() && self.pick(8) == 0 {
                self.host.preempt(runnable[index]);
            }
            self.host.step(runnable[index]);
            self.deliver();
        }
        panic!("it does not end");
    }

    /// One copy, alone.
    pub(crate) fn copy(&mut self, copy: &HostCopy) -> Option<CopyResult> {
        let task = self.host.start(copy.clone());
        self.run();
        self.host.result(task)
    }

    /// What is wrong with how a copy ended, `plain` being what it has to leave. A copy that failed leaves its prefix
    /// new, the rest of its destination old or new, and everything else as it was.
    pub(crate) fn verdict(
        &self,
        copy: &HostCopy,
        before: &Contents,
        plain: &Contents,
        result: Option<CopyResult>,
    ) -> Result<(), String> {
        let Some(result) = result else { return Err("it never ends".into()) };
        let total = copy.destinations.iter().map(|range| range.len.0).sum::<u64>();
        if result.status.is_ok() && result.bytes != Sectors(total).bytes() {
            return Err(format!("a success of {} for {total} sectors", result.bytes));
        }
        let Some(prefix) = result.bytes.sectors().filter(|done| done.0 <= total) else {
            return Err(format!("{} are no prefix of {total} sectors", result.bytes));
        };
        let after = self.disks.snapshot();
        let stack = self.host.stack();
        let mut allowed = before.clone();
        let mut place = 0;
        for (node, range) in copy.destinations.iter().flat_map(|range| stack.flatten(copy.to, *range)) {
            let volume = volume(stack, node);
            for sector in range.start.0..range.end().0 {
                let at = index(sector);
                let (new, is) = (plain[&volume][at], after[&volume][at]);
                if is == new || place >= prefix.0 {
                    allowed.get_mut(&volume).unwrap()[at] = if is == new { new } else { before[&volume][at] };
                } else {
                    return Err(format!("sector {sector} of {volume:?} holds {is:x}, not {new:x}"));
                }
                place += 1;
            }
        }
        if allowed == after { Ok(()) } else { Err("sectors have changed that it does not name".into()) }
    }

    /// What the copy has to leave, by the plain meaning: sector after sector, source to destination.
    pub(crate) fn plain(&self, copy: &HostCopy) -> Contents {
        let mut contents = self.disks.snapshot();
        let stack = self.host.stack();
        let flat = |node, ranges: &[SectorRange]| {
            ranges.iter().flat_map(|range| stack.flatten(node, *range)).collect::<Vec<_>>()
        };
        let pieces = pair_up_on(&flat(copy.from, &copy.sources), &flat(copy.to, &copy.destinations));
        for (from, to, piece) in pieces {
            let values = self.disks.read(volume(stack, from), piece.source).to_vec();
            let start = index(piece.destination.0);
            contents.get_mut(&volume(stack, to)).unwrap()[start..][..values.len()].copy_from_slice(&values);
        }
        contents
    }
}

fn volume(stack: &Stack, node: Node) -> VolumeId {
    stack.disk(node).volume
}

/// A copy within one device.
pub(crate) fn within(node: Node, pieces: &[(u64, u64, u64)]) -> HostCopy {
    HostCopy {
        from: node,
        to: node,
        sources: pieces.iter().map(|piece| range(piece.0, piece.1)).collect(),
        destinations: pieces.iter().map(|piece| range(piece.2, piece.1)).collect(),
    }
}
