//! NVMe/TCP between host and disk: what a command and its answer weigh on the wire, and how long they take.

use emulation::timing::Rate;
use emulation::{Bytes, Instant, Nanos, Op};

/// The NVMe/TCP header and the command of a capsule (NVMe/TCP Transport 3.6.2.2).
const CAPSULE: u64 = 72;
/// A completion with its header, and the headers of R2T, H2CData and C2HData.
const ANSWER: u64 = 24;
/// A source range of a Copy command, formats 0h and 2h.
const RANGE: u64 = 32;
/// Data that a write command carries itself (IOCCSZ of the kernel's target); more of it is asked for by R2T.
const IN_CAPSULE: u64 = 8192;
/// A segment of TCP over Ethernet with an MTU of 1500: its data, and all else (20 IP, 32 TCP, 14 + 4 Ethernet, 8 + 12
/// preamble and gap).
const SEGMENT: u64 = 1448;
const OVERHEAD: u64 = 90;

/// Bytes that a run put on the wire, each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// To the disk.
    pub up: u64,
    /// To the host.
    pub down: u64,
}

impl Wire {
    /// Both ways.
    pub fn total(self) -> u64 {
        self.up + self.down
    }

    /// What a command and its answer put on the wire, and whether data has to be asked for first.
    pub fn of(op: &Op) -> (Self, bool) {
        match op {
            Op::Read(range) => {
                (Self { up: framed(CAPSULE), down: framed(ANSWER + range.len.bytes().0) }, false)
            }
            Op::Write(range) if range.len.bytes().0 <= IN_CAPSULE => {
                (Self { up: framed(CAPSULE + range.len.bytes().0), down: framed(ANSWER) }, false)
            }
            Op::Write(range) => {
                let up = framed(CAPSULE) + framed(ANSWER + range.len.bytes().0);
                (Self { up, down: 2 * framed(ANSWER) }, true)
            }
            Op::Copy(copy) => {
                let up = framed(CAPSULE + RANGE * copy.segments.len() as u64);
                (Self { up, down: framed(ANSWER) }, false)
            }
            Op::Flush
            | Op::Discard(_)
            | Op::WriteZeroes(_)
            | Op::ZoneMgmt { .. }
            | Op::ZoneResetAll
            | Op::ReportZones { .. } => (Self { up: framed(CAPSULE), down: framed(ANSWER) }, false),
        }
    }
}

/// A message with what carries it.
fn framed(bytes: u64) -> u64 {
    bytes + OVERHEAD * bytes.div_ceil(SEGMENT)
}

/// The way to a disk. Both directions carry at once; each is first come, first served.
#[derive(Clone, Copy, Debug)]
pub struct Fabric {
    /// Of each direction, framing included.
    pub rate: Rate,
    /// There and back.
    pub round_trip: Nanos,
    up: Instant,
    down: Instant,
    /// What it carried.
    pub wire: Wire,
}

impl Fabric {
    /// An idle link.
    pub fn new(rate: Rate, round_trip: Nanos) -> Self {
        Self { rate, round_trip, up: Instant::ORIGIN, down: Instant::ORIGIN, wire: Wire::default() }
    }

    /// When the disk has a command that the host sends now, and what its answer will weigh.
    pub fn send(&mut self, now: Instant, op: &Op) -> (Instant, u64) {
        let (wire, asked) = Wire::of(op);
        self.wire.up += wire.up;
        self.up = self.up.max(now) + self.rate.time(Bytes(wire.up));
        // The data of a long write leave when the disk has asked for them: a round trip more.
        let way = Nanos(self.round_trip.0 / 2 + if asked { self.round_trip.0 } else { 0 });
        (self.up + way, wire.down)
    }

    /// When the host has an answer of so many bytes on the wire that the disk gives now.
    pub fn answer(&mut self, now: Instant, bytes: u64) -> Instant {
        self.wire.down += bytes;
        self.down = self.down.max(now) + self.rate.time(Bytes(bytes));
        self.down + Nanos(self.round_trip.0 / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::{copy, range};

    #[test]
    fn messages_weigh_what_the_transport_says() {
        let read = Wire::of(&Op::Read(range(Bytes(0), Bytes(4096)))).0;
        assert_eq!((read.up, read.down), (72 + 90, 24 + 4096 + 3 * 90));
        let (write, asked) = Wire::of(&Op::Write(range(Bytes(0), Bytes(16384))));
        assert_eq!((write.up, write.down, asked), (72 + 90 + 24 + 16384 + 12 * 90, 2 * 114, true));
        let copied = Wire::of(&copy([(Bytes(0), Bytes::mib(1))], Bytes::mib(1))).0;
        // Whatever the length: about 300 bytes, which is what was published for 8 KiB.
        assert_eq!((copied.up, copied.down, copied.total()), (72 + 32 + 90, 24 + 90, 308));
    }

    #[test]
    fn both_directions_carry_at_once_and_each_in_order() {
        let mut fabric = Fabric::new(Rate(1_000_000_000), Nanos(10_000));
        let read = Op::Read(range(Bytes(0), Bytes(4096)));
        assert_eq!(fabric.send(Instant(0), &read), (Instant(162 + 5_000), 4_390));
        assert_eq!(fabric.send(Instant(0), &read), (Instant(2 * 162 + 5_000), 4_390));
        assert_eq!(fabric.answer(Instant(0), 4_390), Instant(4_390 + 5_000));
        assert_eq!(fabric.answer(Instant(0), 4_390), Instant(2 * 4_390 + 5_000));
    }
}
