//! What moved where. A counter rises where the work is done: for a step when its plan comes back executed,
//! for a remap when the map is switched, never from what a request asked for.

use crate::device::{IoResult, Plan, PortKind, Step};
use crate::request::{Op, VolumeId};
use crate::timing::Lateness;
use crate::units::{Bytes, Sectors};

/// Why a copy moved bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReason {
    /// The mode is not remap.
    Mode,
    /// Source and destination differ in their place within a map block.
    Incongruent,
    /// The part of a segment that is no whole map block.
    HeadTail,
    /// No copy: the rest of a map block of which a request changes a part.
    PartBlock,
}

/// The counters of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Requests begun, by operation, in the order of [`Ledger::OPS`].
    pub commands: [u64; Ledger::OPS.len()],
    /// Requests answered with a failure.
    pub failed: u64,
    /// Bytes read for a door.
    pub door_read: Bytes,
    /// Bytes written by a door.
    pub door_written: Bytes,
    /// Bytes of commands and descriptors that a door took, without the data.
    pub descriptors: Bytes,
    /// Bytes read inside the store: moves and bounce reads.
    pub inside_read: Bytes,
    /// Bytes written inside the store: moves, bounce writes, zeroes.
    pub inside_written: Bytes,
    /// Copied by remapping.
    pub remapped: Bytes,
    /// Copied by naming no block: the source was unmapped.
    pub copied_holes: Bytes,
    /// Copied by moving, since the mode is not remap.
    pub moved_mode: Bytes,
    /// Copied by moving, since source and destination are incongruent.
    pub moved_incongruent: Bytes,
    /// Copied by moving, as head or tail of a segment.
    pub moved_head_tail: Bytes,
    /// Copied by the file system that the store lies in (`copy_file_range`): bytes that it moved, or blocks that it shares.
    pub moved_cfr: Bytes,
    /// Moved for requests that change a part of a map block.
    pub moved_part_block: Bytes,
    /// Copied through the bounce buffer of mode `emulate`.
    pub bounced: Bytes,
    /// Bytes given back to the store.
    pub trimmed: Bytes,
    /// Answered and undone again by a power cut.
    pub undone: Bytes,
    /// Data syncs.
    pub syncs: u64,
    /// Metadata commits.
    pub commits: u64,
}

impl Ledger {
    /// The names of the operations, in the order of [`Ledger::commands`].
    pub const OPS: [&'static str; 9] = [
        "read",
        "write",
        "flush",
        "discard",
        "write_zeroes",
        "copy",
        "zone_mgmt",
        "zone_reset_all",
        "report_zones",
    ];

    /// The place of an operation in [`Ledger::OPS`].
    pub fn index(op: &Op) -> usize {
        match op {
            Op::Read(_) => 0,
            Op::Write(_) => 1,
            Op::Flush => 2,
            Op::Discard(_) => 3,
            Op::WriteZeroes(_) => 4,
            Op::Copy(_) => 5,
            Op::ZoneMgmt { .. } => 6,
            Op::ZoneResetAll => 7,
            Op::ReportZones { .. } => 8,
        }
    }

    /// Counts a request.
    pub fn begun(&mut self, op: &Op) {
        self.commands[Self::index(op)] += 1;
    }

    /// Counts the steps of a plan that were done.
    pub fn executed(&mut self, plan: &Plan, io: IoResult) {
        let mut cfr = io.cfr;
        for step in plan.steps.iter().take(io.steps_done) {
            match step {
                Step::Read { from, .. } => self.read(plan.port, from.len),
                Step::ReadFlipped { len, .. } | Step::ReadZeroes { len, .. } => self.read(plan.port, *len),
                Step::Write { to, .. } => self.written(plan.port, to.len),
                Step::Move { from, reason, .. } => {
                    let all = from.len.bytes();
                    let by_file = all.min(cfr);
                    cfr.0 -= by_file.0;
                    self.moved_cfr.0 += by_file.0;
                    self.moved(*reason, Bytes(all.0 - by_file.0));
                }
                Step::Zero { at, .. } => self.inside_written.0 += at.len.bytes().0,
                Step::Trim { at } => self.trimmed.0 += at.len.bytes().0,
                Step::Sync => self.syncs += 1,
                Step::Commit(_) => self.commits += 1,
            }
        }
    }

    /// Bytes that copies put into place, however they did.
    pub fn copied(&self) -> Bytes {
        Bytes(
            self.remapped.0
                + self.copied_holes.0
                + self.moved_mode.0
                + self.moved_incongruent.0
                + self.moved_head_tail.0
                + self.moved_cfr.0
                + self.bounced.0,
        )
    }

    /// Bytes that the link did not carry, since the host neither read nor wrote them for its copies.
    pub fn avoided(&self) -> Bytes {
        Bytes(2 * self.copied().0)
    }

    fn read(&mut self, port: PortKind, len: Sectors) {
        match port {
            PortKind::Door => self.door_read.0 += len.bytes().0,
            PortKind::Bounce | PortKind::None => self.inside_read.0 += len.bytes().0,
        }
    }

    fn written(&mut self, port: PortKind, len: Sectors) {
        match port {
            PortKind::Door => self.door_written.0 += len.bytes().0,
            PortKind::Bounce | PortKind::None => {
                self.inside_written.0 += len.bytes().0;
                self.bounced.0 += len.bytes().0;
            }
        }
    }

    fn moved(&mut self, reason: MoveReason, len: Bytes) {
        self.inside_read.0 += len.0;
        self.inside_written.0 += len.0;
        match reason {
            MoveReason::Mode => self.moved_mode.0 += len.0,
            MoveReason::Incongruent => self.moved_incongruent.0 += len.0,
            MoveReason::HeadTail => self.moved_head_tail.0 += len.0,
            MoveReason::PartBlock => self.moved_part_block.0 += len.0,
        }
    }
}

/// The ledgers of a pool's volumes.
#[derive(Clone, Debug, Default)]
pub struct Ledgers {
    pool: Ledger,
    volumes: Vec<Ledger>,
    /// How well the deadlines of the timing models were kept.
    pub lateness: Lateness,
}

impl Ledgers {
    /// The counters of a volume, made on first use; those of the device's own work for [`VolumeId::POOL`].
    pub fn of(&mut self, volume: VolumeId) -> &mut Ledger {
        if volume == VolumeId::POOL {
            return &mut self.pool;
        }
        if self.volumes.len() <= volume.index() {
            self.volumes.resize(volume.index() + 1, Ledger::default());
        }
        &mut self.volumes[volume.index()]
    }
}
