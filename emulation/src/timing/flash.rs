//! Flash: channels with dies, each with a line of its own. A die is busy while its cells are read, programmed or
//! erased, and while it hands over what was read; a channel is busy while bytes pass. Pages of the store go round the
//! channels first, then round the dies of a channel, as drives stripe.
//!
//! Not modelled: planes, suspended programs, garbage collection inside the drive.

use super::config::{Rate, TimingError, bearable, fast};
use crate::device::StoreRange;
use crate::time::{Instant, Nanos};
use crate::units::{Bytes, PhysSector, Sectors};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Flash, as its data sheet has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flash {
    /// Channels, 1 to 64.
    pub channels: u32,
    /// Dies on each channel, 1 to 64.
    pub dies_per_channel: u32,
    /// What a die programs at once, all planes and bits of a cell together; a multiple of 4 KiB.
    pub page: Bytes,
    /// From the cells into the die's register.
    pub read: Nanos,
    /// From the register into the cells, a page.
    pub program: Nanos,
    /// One block.
    pub erase: Nanos,
    /// Of each channel.
    pub channel: Rate,
    /// Blocks of each die that a zone reset erases.
    pub reset_blocks: u32,
    /// How long a zone finish keeps each die busy.
    pub finish: Nanos,
    /// The write buffer: a write ends once it is in there, and pages are programmed whole. With 0 a write ends when
    /// it is in the cells, and a part of a page costs as much as a whole one.
    pub buffer: Bytes,
    /// The buffer outlives a power cut, so a flush does not wait for it.
    pub power_loss_protection: bool,
}

impl Flash {
    pub(super) fn validate(&self) -> Result<(), TimingError> {
        let counts = [
            ("channels", u64::from(self.channels), 64),
            ("dies_per_channel", u64::from(self.dies_per_channel), 64),
        ];
        for (name, value, max) in counts {
            if !(1..=max).contains(&value) {
                return Err(TimingError::Count { name, value, min: 1, max });
            }
        }
        if !self.page.0.is_multiple_of(4096) || !(4096..=Bytes::mib(16).0).contains(&self.page.0) {
            return Err(TimingError::Page(self.page.0));
        }
        for (name, time) in [
            ("read", self.read),
            ("program", self.program),
            ("erase", self.erase),
            ("finish", self.finish),
            ("reset", self.reset()),
        ] {
            bearable(name, time)?;
        }
        fast("media channel", self.channel)
    }

    fn reset(&self) -> Nanos {
        Nanos(self.erase.0.saturating_mul(u64::from(self.reset_blocks)))
    }
}

/// A piece within one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    page: u64,
    /// Sectors from the start of the page.
    offset: u64,
    len: Sectors,
}

/// The state of the lines.
#[derive(Clone, Debug)]
pub(super) struct FlashLines {
    flash: Flash,
    page: Sectors,
    dies: Vec<Instant>,
    channels: Vec<Instant>,
    /// What the buffer holds, by when it will be in the cells.
    buffered: BinaryHeap<Reverse<(Instant, u64)>>,
    in_buffer: u64,
    /// When everything written so far is in the cells.
    programmed: Instant,
}

impl FlashLines {
    pub(super) fn new(flash: Flash) -> Self {
        let channels = usize::try_from(flash.channels).expect("checked");
        let dies = channels * usize::try_from(flash.dies_per_channel).expect("checked");
        Self {
            page: flash.page.whole_sectors(),
            dies: vec![Instant::ORIGIN; dies],
            channels: vec![Instant::ORIGIN; channels],
            buffered: BinaryHeap::new(),
            in_buffer: 0,
            programmed: Instant::ORIGIN,
            flash,
        }
    }

    /// Reads for the host.
    pub(super) fn read(&mut self, from: Instant, range: StoreRange) -> Instant {
        self.pieces(range).into_iter().map(|piece| self.read_piece(from, piece)).max().unwrap_or(from)
    }

    /// Writes for the host.
    pub(super) fn write(&mut self, from: Instant, range: StoreRange) -> Instant {
        let mut end = from;
        for piece in self.pieces(range) {
            let start = self.room(from, piece.len.bytes().0);
            let programmed = self.program_piece(start, piece);
            if self.flash.buffer.0 > 0 {
                self.buffered.push(Reverse((programmed, piece.len.bytes().0)));
                self.in_buffer += piece.len.bytes().0;
                end = end.max(start);
            } else {
                end = end.max(programmed);
            }
        }
        end
    }

    /// Moves within the drive; true when bytes passed the controller. A whole page that stays on its die is copied
    /// back: read and programmed without passing a channel.
    pub(super) fn copy(&mut self, from: Instant, source: StoreRange, to: PhysSector) -> (Instant, Bytes) {
        let mut end = from;
        let mut passed = Bytes(0);
        let mut at = Sectors::ZERO;
        while at < source.len {
            let rest = source.len - at;
            let read = self.piece(source.start + at, rest);
            let write = self.piece(to + at, rest);
            let len = read.len.min(write.len);
            let (read, write) = (Piece { len, ..read }, Piece { len, ..write });
            if len == self.page && self.die(read.page) == self.die(write.page) {
                let die = self.die(read.page);
                let done = self.dies[die].max(from) + self.flash.read + self.flash.program;
                self.dies[die] = done;
                self.programmed = self.programmed.max(done);
                end = end.max(done);
            } else {
                let arrived = self.read_piece(from, read);
                end = end.max(self.program_piece(arrived, write));
                passed.0 += 2 * len.bytes().0;
            }
            at += len;
        }
        (end, passed)
    }

    /// When everything written so far outlives a power cut.
    pub(super) fn sync(&self, from: Instant) -> Instant {
        if self.flash.power_loss_protection { from } else { from.max(self.programmed) }
    }

    /// A zone reset: every die erases its blocks of the zone.
    pub(super) fn reset(&mut self, from: Instant) -> Instant {
        self.all_dies(from, self.flash.reset())
    }

    /// A zone finish.
    pub(super) fn finish(&mut self, from: Instant) -> Instant {
        self.all_dies(from, self.flash.finish)
    }

    fn all_dies(&mut self, from: Instant, busy: Nanos) -> Instant {
        if busy.0 == 0 {
            return from;
        }
        for die in &mut self.dies {
            *die = (*die).max(from) + busy;
        }
        self.dies.iter().copied().max().unwrap_or(from)
    }

    fn read_piece(&mut self, from: Instant, piece: Piece) -> Instant {
        let die = self.die(piece.page);
        let channel = die % self.channels.len();
        let in_register = self.dies[die].max(from) + self.flash.read;
        let out = self.channels[channel].max(in_register) + self.flash.channel.time(piece.len.bytes());
        self.channels[channel] = out;
        // The register holds the page until it is out.
        self.dies[die] = out;
        out
    }

    fn program_piece(&mut self, from: Instant, piece: Piece) -> Instant {
        let die = self.die(piece.page);
        let channel = die % self.channels.len();
        let start = self.channels[channel].max(self.dies[die]).max(from);
        let in_register = start + self.flash.channel.time(piece.len.bytes());
        self.channels[channel] = in_register;
        let programmed = in_register + self.program_time(piece.len);
        self.dies[die] = programmed;
        self.programmed = self.programmed.max(programmed);
        programmed
    }

    /// With a buffer the rest of the page will be others' data: each pays its share.
    fn program_time(&self, len: Sectors) -> Nanos {
        if self.flash.buffer.0 == 0 {
            return self.flash.program;
        }
        let share = u128::from(self.flash.program.0) * u128::from(len.0) / u128::from(self.page.0);
        Nanos(u64::try_from(share).expect("less than the whole"))
    }

    /// When the buffer has room for so many bytes; at once without a buffer.
    fn room(&mut self, from: Instant, bytes: u64) -> Instant {
        let mut start = from;
        while self.buffered.peek().is_some_and(|Reverse((at, _))| *at <= from) {
            self.leave();
        }
        while self.in_buffer + bytes > self.flash.buffer.0 && self.flash.buffer.0 > 0 {
            match self.leave() {
                Some(at) => start = start.max(at),
                // Longer than the buffer: it passes through.
                None => break,
            }
        }
        start
    }

    fn leave(&mut self) -> Option<Instant> {
        let Reverse((at, bytes)) = self.buffered.pop()?;
        self.in_buffer -= bytes;
        Some(at)
    }

    fn die(&self, page: u64) -> usize {
        let dies = u64::try_from(self.dies.len()).expect("checked");
        usize::try_from(page % dies).expect("below the number of dies")
    }

    /// The first piece of `len` sectors from `at`.
    fn piece(&self, at: PhysSector, len: Sectors) -> Piece {
        let (page, offset) = (at.0 / self.page.0, at.0 % self.page.0);
        Piece { page, offset, len: len.min(Sectors(self.page.0 - offset)) }
    }

    fn pieces(&self, range: StoreRange) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = Sectors::ZERO;
        while at < range.len {
            let piece = self.piece(range.start + at, range.len - at);
            at += piece.len;
            pieces.push(piece);
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two channels of two dies, pages of 8 KiB; 10 us a read, 100 us a program, 8 KiB in 8,192 ns.
    fn flash() -> Flash {
        Flash {
            channels: 2,
            dies_per_channel: 2,
            page: Bytes::kib(8),
            read: Nanos(10_000),
            program: Nanos(100_000),
            erase: Nanos(1_000_000),
            channel: Rate(1_000_000_000),
            reset_blocks: 3,
            finish: Nanos(50_000),
            buffer: Bytes(0),
            power_loss_protection: false,
        }
    }

    fn pages(first: u64, count: u64) -> StoreRange {
        StoreRange { start: PhysSector(16 * first), len: Sectors(16 * count) }
    }

    const T: Instant = Instant(0);

    #[test]
    fn two_reads_of_one_die_follow_each_other_and_of_two_dies_overlap() {
        let mut lines = FlashLines::new(flash());
        assert_eq!(lines.read(T, pages(0, 1)), Instant(18_192));
        // Page 4 is on die 0 too: it begins when the register is free.
        assert_eq!(lines.read(T, pages(4, 1)), Instant(36_384));
        // Page 1 is on the other channel.
        assert_eq!(lines.read(T, pages(1, 1)), Instant(18_192));
        // Page 2 is on die 2, channel 0: its cells are read meanwhile, the channel is free at 36,384.
        assert_eq!(lines.read(T, pages(2, 1)), Instant(44_576));
        // Half a page takes half the transfer: die 3, channel 1, free at 18,192.
        let half = StoreRange { start: PhysSector(16 * 3 + 8), len: Sectors(8) };
        assert_eq!(lines.read(T, half), Instant(22_288));
    }

    #[test]
    fn a_program_passes_the_channel_first() {
        let mut lines = FlashLines::new(flash());
        assert_eq!(lines.write(T, pages(0, 1)), Instant(108_192));
        // Die 2 shares the channel, not the cells.
        assert_eq!(lines.write(T, pages(2, 1)), Instant(116_384));
        // A part of a page costs a whole program: die 1.
        let part = StoreRange { start: PhysSector(16), len: Sectors(8) };
        assert_eq!(lines.write(T, part), Instant(104_096));
        assert_eq!(lines.sync(Instant(1)), Instant(116_384));
    }

    #[test]
    fn a_copy_on_one_die_is_cheaper_than_one_through_the_controller() {
        let mut lines = FlashLines::new(flash());
        // Page 0 to page 4: die 0. Cells to register to cells.
        assert_eq!(lines.copy(T, pages(0, 1), PhysSector(16 * 4)), (Instant(110_000), Bytes(0)));
        // Page 1 (die 1) to page 7 (die 3), both on channel 1: out and in again.
        let (end, passed) = lines.copy(T, pages(1, 1), PhysSector(16 * 7));
        assert_eq!((end, passed), (Instant(10_000 + 8_192 + 8_192 + 100_000), Bytes::kib(16)));
        // A page that does not lie on pages cannot stay on its die.
        let crooked = StoreRange { start: PhysSector(8), len: Sectors(16) };
        assert_eq!(FlashLines::new(flash()).copy(T, crooked, PhysSector(16 * 4 + 8)).1, Bytes::kib(16));
    }

    #[test]
    fn the_buffer_answers_early_until_it_is_full() {
        let buffered = Flash { buffer: Bytes::kib(16), ..flash() };
        let mut lines = FlashLines::new(buffered.clone());
        assert_eq!(lines.write(T, pages(0, 1)), T);
        assert_eq!(lines.write(T, pages(4, 1)), T);
        // Full. Die 0 has programmed the first page at 108,192 and the second one program and transfer later.
        assert_eq!(lines.write(T, pages(8, 1)), Instant(108_192));
        assert_eq!(lines.sync(T), Instant(3 * 108_192));
        // A quarter of a page is a quarter of a program.
        let quarter = StoreRange { start: PhysSector(16), len: Sectors(4) };
        let mut fresh = FlashLines::new(buffered.clone());
        assert_eq!(fresh.write(T, quarter), T);
        assert_eq!(fresh.sync(T), Instant(2_048 + 25_000));
        let mut protected = FlashLines::new(Flash { power_loss_protection: true, ..buffered });
        protected.write(T, pages(0, 1));
        assert_eq!(protected.sync(T), T);
    }

    #[test]
    fn a_reset_erases_on_every_die_and_a_read_waits_for_it() {
        let mut lines = FlashLines::new(flash());
        assert_eq!(lines.reset(Instant(5)), Instant(3_000_005));
        assert_eq!(lines.finish(Instant(5)), Instant(3_050_005));
        assert_eq!(lines.read(T, pages(3, 1)), Instant(3_050_005 + 18_192));
    }
}
