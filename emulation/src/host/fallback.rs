//! The fallback of a caller: pieces read into its buffer and written from there, one after the other.

use super::BufferId;
use super::bio::Part;
use super::copier::{BUFFER, Copier, CopyResult, Phase, Task};
use super::defect::{Defect, Defects};
use super::design::{Design, Piece};
use super::stack::Node;
use crate::status::BlkStatus;
use crate::units::{Bytes, SectorRange, Sectors};

impl Copier {
    /// Reads the next piece into the buffer, or ends.
    pub(super) fn fall_back(&mut self, number: u32) {
        let defects = self.defects;
        let task = self.task(number);
        if task.done >= task.total {
            return self.finish(number, BlkStatus::Ok);
        }
        let piece = task.next_piece(defects);
        task.phase = Phase::Read(piece);
        let swapped = defects.has(Defect::OperandsSwapped);
        let from =
            if swapped { (task.copy.to, piece.destination_range()) } else { (task.copy.from, piece.source) };
        self.io(number, from, false, BufferId(u64::from(number)));
    }

    pub(super) fn write(&mut self, number: u32, piece: Piece) {
        let defects = self.defects;
        let task = self.task(number);
        task.phase = Phase::Write(piece);
        let swapped = defects.has(Defect::OperandsSwapped);
        let to =
            if swapped { (task.copy.from, piece.source) } else { (task.copy.to, piece.destination_range()) };
        // A worker that takes another member for its own finds a buffer that was never filled.
        let wrong = defects.has(Defect::WrongWorker);
        let buffer = if wrong { u64::MAX - u64::from(number) } else { u64::from(number) };
        self.io(number, to, true, BufferId(buffer));
    }

    pub(super) fn io(
        &mut self,
        number: u32,
        (node, range): (Node, SectorRange),
        write: bool,
        buffer: BufferId,
    ) {
        let chunk = self.chunk(number, range.len, 1);
        let parts = vec![(node, Part::Io { write, range, buffer, offset: Sectors::ZERO })];
        self.steps(number, chunk, parts, true, true);
    }

    pub(super) fn finish(&mut self, number: u32, status: BlkStatus) {
        let defects = self.defects;
        let design = self.design;
        let task = self.task(number);
        let in_fallback = matches!(task.phase, Phase::Read(_) | Phase::Write(_));
        let mut result = CopyResult { status, bytes: task.done.bytes(), fell_back: task.fell_back };
        if !status.is_ok() {
            if defects.has(Defect::NegativeReturnAdded) {
                result.bytes.0 = result.bytes.0.saturating_sub(u64::from(status.errno().unsigned_abs()));
            }
            if in_fallback && defects.has(Defect::EmulationAlwaysWhole) {
                (result.status, result.bytes) = (BlkStatus::Ok, task.total.bytes());
            }
            if design == Design::Pair && defects.has(Defect::ErrorAsZero) {
                (result.status, result.bytes) = (BlkStatus::Ok, Bytes(0));
            }
        }
        task.phase = Phase::Done(result);
    }
}

impl Task {
    /// The next piece of the fallback: within the buffer, one source and one destination.
    pub(super) fn next_piece(&self, defects: Defects) -> Piece {
        let mut at = Sectors::ZERO;
        let behind = |range: &&SectorRange| {
            let behind = at + range.len <= self.done;
            if behind {
                at += range.len;
            }
            !behind
        };
        let source = *self.copy.sources.iter().find(behind).expect("something is left");
        let in_source = self.done - at;
        let mut start = Sectors::ZERO;
        let piece = self.pieces.iter().find(|piece| {
            start += piece.source.len;
            start > self.done
        });
        let piece = *piece.expect("something is left");
        let in_piece = self.done - (start - piece.source.len);
        let len =
            if defects.has(Defect::PieceNotClipped) { source.len - in_source } else { start - self.done };
        let not_advanced = defects.has(Defect::DestinationNotAdvanced);
        let destination = if not_advanced {
            self.copy.destinations[0].start + in_source
        } else {
            piece.destination + in_piece
        };
        Piece { source: SectorRange { start: source.start + in_source, len: len.min(BUFFER) }, destination }
    }
}
