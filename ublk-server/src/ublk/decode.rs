//! A descriptor of the driver as a request of the pool, and an answer as the driver's result. Pure.

use emulation::request::ZoneAction;
use emulation::zone::REPORT_ENTRY;
use emulation::{BlkStatus, Completion, Flags, Op, Sector, SectorRange, Sectors};
use libublk::sys;

/// What the driver says about a request (`struct ublksrv_io_desc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Operation in the low byte, `UBLK_IO_F_*` above it, each at its own bit.
    pub op_flags: u32,
    /// Length in 512-byte sectors; of a report the number of zones.
    pub nr_sectors: u32,
    /// First sector, of the zone for an action and an append.
    pub start_sector: u64,
}

/// A request of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// What to do.
    pub op: Op,
    /// How.
    pub flags: Flags,
    /// The driver's result when it is done.
    pub whole: i32,
}

/// Understands a descriptor. `max_io` is the most sectors of a read or write that the device was made with. The driver
/// sends actions, appends and reports to zoned devices only.
///
/// # Errors
/// The status to answer with.
pub fn decode(descriptor: Descriptor, max_io: Sectors) -> Result<Decoded, BlkStatus> {
    let mut flags = Flags::NONE;
    if descriptor.op_flags & sys::UBLK_IO_F_FUA != 0 {
        flags = flags | Flags::FUA;
    }
    let range = || {
        let len = Sectors(descriptor.nr_sectors.into());
        let range = SectorRange::new(Sector(descriptor.start_sector), len).ok_or(BlkStatus::OutOfRange)?;
        if range.is_empty() { Err(BlkStatus::Inval) } else { Ok(range) }
    };
    // The driver takes a read or write that returns fewer bytes for whole, or repeats it for ever at 0.
    let data = || {
        let range = range()?;
        if range.len > max_io {
            return Err(BlkStatus::Inval);
        }
        let whole = i32::try_from(range.len.bytes().0).map_err(|_| BlkStatus::Inval)?;
        Ok((range, whole))
    };
    let manage = |action| {
        let op = Op::ZoneMgmt { zone: Sector(descriptor.start_sector), action };
        Decoded { op, flags, whole: 0 }
    };
    match descriptor.op_flags & 0xff {
        sys::UBLK_IO_OP_READ => data().map(|(range, whole)| Decoded { op: Op::Read(range), flags, whole }),
        sys::UBLK_IO_OP_WRITE => data().map(|(range, whole)| Decoded { op: Op::Write(range), flags, whole }),
        sys::UBLK_IO_OP_FLUSH => Ok(Decoded { op: Op::Flush, flags, whole: 0 }),
        sys::UBLK_IO_OP_DISCARD => Ok(Decoded { op: Op::Discard(range()?), flags, whole: 0 }),
        sys::UBLK_IO_OP_WRITE_ZEROES => {
            if descriptor.op_flags & sys::UBLK_IO_F_NOUNMAP != 0 {
                flags = flags | Flags::NOUNMAP;
            }
            Ok(Decoded { op: Op::WriteZeroes(range()?), flags, whole: 0 })
        }
        sys::UBLK_IO_OP_ZONE_APPEND => data().map(|(range, whole)| {
            let flags = flags | Flags::APPEND;
            Decoded { op: Op::Write(range), flags, whole }
        }),
        sys::UBLK_IO_OP_ZONE_OPEN => Ok(manage(ZoneAction::Open)),
        sys::UBLK_IO_OP_ZONE_CLOSE => Ok(manage(ZoneAction::Close)),
        sys::UBLK_IO_OP_ZONE_FINISH => Ok(manage(ZoneAction::Finish)),
        sys::UBLK_IO_OP_ZONE_RESET => Ok(manage(ZoneAction::Reset)),
        sys::UBLK_IO_OP_ZONE_RESET_ALL => Ok(Decoded { op: Op::ZoneResetAll, flags, whole: 0 }),
        sys::UBLK_IO_OP_REPORT_ZONES => {
            let max = descriptor.nr_sectors;
            // The driver's buffer is as long as the report that it asks for.
            let bytes = u64::from(max) * REPORT_ENTRY.0;
            if bytes > max_io.bytes().0 {
                return Err(BlkStatus::Inval);
            }
            let whole = i32::try_from(bytes).map_err(|_| BlkStatus::Inval)?;
            let op = Op::ReportZones { from: Sector(descriptor.start_sector), max };
            Ok(Decoded { op, flags: Flags::NONE, whole })
        }
        _ => Err(BlkStatus::NotSupp),
    }
}

/// The driver's result: `whole` when all is done, else a negative errno, never anything between.
pub fn encode(completion: &Completion, whole: i32) -> i32 {
    if completion.status.is_ok() { whole } else { refusal(completion.status) }
}

/// How much of a copy is done that failed, as the driver takes it: whole logical blocks, never all of them.
pub fn copied(completion: &Completion, whole: i32, logical_block: Sectors) -> u64 {
    let block = logical_block.bytes().0;
    let most = u64::from(whole.unsigned_abs()).saturating_sub(block);
    if completion.status.is_ok() { 0 } else { completion.bytes.0.min(most) / block * block }
}

/// The driver's result of a request that failed with `status`.
pub fn refusal(status: BlkStatus) -> i32 {
    -status.errno()
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulation::Bytes;

    const MAX_IO: Sectors = Sectors(2048);
    const FUA: u32 = 1 << 13;
    const NOUNMAP: u32 = 1 << 15;
    /// Failfast, meta, swap: bits that change nothing here.
    const OTHER: u32 = 7 << 8 | 1 << 11 | 1 << 16;

    fn descriptor(op_flags: u32, start_sector: u64, nr_sectors: u32) -> Descriptor {
        Descriptor { op_flags, nr_sectors, start_sector }
    }

    fn range(start: u64, len: u64) -> SectorRange {
        SectorRange { start: Sector(start), len: Sectors(len) }
    }

    fn manage(action: ZoneAction) -> Op {
        Op::ZoneMgmt { zone: Sector(8), action }
    }

    #[test]
    fn every_operation_is_understood() {
        let table = [
            (0, Op::Read(range(8, 16)), Flags::NONE, 8192),
            (OTHER, Op::Read(range(8, 16)), Flags::NONE, 8192),
            (1, Op::Write(range(8, 16)), Flags::NONE, 8192),
            (1 | FUA | OTHER, Op::Write(range(8, 16)), Flags::FUA, 8192),
            (1 | NOUNMAP, Op::Write(range(8, 16)), Flags::NONE, 8192),
            (3, Op::Discard(range(8, 16)), Flags::NONE, 0),
            (5, Op::WriteZeroes(range(8, 16)), Flags::NONE, 0),
            (5 | NOUNMAP, Op::WriteZeroes(range(8, 16)), Flags::NOUNMAP, 0),
            (5 | NOUNMAP | FUA, Op::WriteZeroes(range(8, 16)), Flags::NOUNMAP | Flags::FUA, 0),
            (2, Op::Flush, Flags::NONE, 0),
            (13, Op::Write(range(8, 16)), Flags::APPEND, 8192),
            (13 | FUA | OTHER, Op::Write(range(8, 16)), Flags::APPEND | Flags::FUA, 8192),
            (10, manage(ZoneAction::Open), Flags::NONE, 0),
            (11, manage(ZoneAction::Close), Flags::NONE, 0),
            (12, manage(ZoneAction::Finish), Flags::NONE, 0),
            (14, Op::ZoneResetAll, Flags::NONE, 0),
            (15 | OTHER, manage(ZoneAction::Reset), Flags::NONE, 0),
            (18, Op::ReportZones { from: Sector(8), max: 16 }, Flags::NONE, 1024),
        ];
        for (op_flags, op, flags, whole) in table {
            let decoded = decode(descriptor(op_flags, 8, 16), MAX_IO);
            assert_eq!(decoded, Ok(Decoded { op, flags, whole }), "{op_flags:#x}");
        }
        assert_eq!(decode(descriptor(2, 0, 0), MAX_IO).map(|d| d.op), Ok(Op::Flush), "a flush has no range");
    }

    #[test]
    fn every_other_operation_is_not_supported() {
        for op in (0..=255).filter(|op| ![0, 1, 2, 3, 5, 10, 11, 12, 13, 14, 15, 18].contains(op)) {
            assert_eq!(decode(descriptor(op | FUA, 8, 16), MAX_IO), Err(BlkStatus::NotSupp), "{op}");
        }
        assert_eq!(refusal(BlkStatus::NotSupp), -libc::EOPNOTSUPP);
    }

    #[test]
    fn sizes_are_checked() {
        for op in [0, 1, 3, 5, 13] {
            assert_eq!(decode(descriptor(op, 8, 0), MAX_IO), Err(BlkStatus::Inval), "{op}");
            assert_eq!(decode(descriptor(op, u64::MAX, 1), MAX_IO), Err(BlkStatus::OutOfRange), "{op}");
        }
        for op in [0, 1, 13] {
            assert!(decode(descriptor(op, 8, 2048), MAX_IO).is_ok());
            assert_eq!(decode(descriptor(op, 8, 2049), MAX_IO), Err(BlkStatus::Inval));
            assert_eq!(decode(descriptor(op, 8, u32::MAX), Sectors(u64::MAX)), Err(BlkStatus::Inval));
            assert_eq!(decode(descriptor(op, 8, 1 << 22), Sectors(u64::MAX)), Err(BlkStatus::Inval));
        }
        for op in [3, 5] {
            assert!(decode(descriptor(op, 8, u32::MAX), MAX_IO).is_ok(), "no data, no limit of data");
        }
        assert!(decode(descriptor(18, 8, 16384), MAX_IO).is_ok());
        assert_eq!(decode(descriptor(18, 8, 16385), MAX_IO), Err(BlkStatus::Inval), "the report has to fit");
        assert_eq!(decode(descriptor(18, 8, u32::MAX), Sectors(u64::MAX >> 16)), Err(BlkStatus::Inval));
    }

    #[test]
    fn a_result_is_whole_or_an_error() {
        assert_eq!(encode(&Completion::ok(Bytes(8192)), 8192), 8192);
        assert_eq!(encode(&Completion::ok(Bytes(0)), 0), 0);
        for &status in BlkStatus::ALL.iter().filter(|status| !status.is_ok()) {
            assert!(encode(&Completion::refused(status), 8192) < 0, "{status:?}");
        }
        let part = Completion { bytes: Bytes(4096), ..Completion::refused(BlkStatus::NoSpc) };
        assert_eq!(encode(&part, 8192), -libc::ENOSPC);
    }

    #[test]
    fn the_finished_prefix_of_a_copy_is_whole_blocks_and_never_everything() {
        let failed = |bytes| Completion { bytes: Bytes(bytes), ..Completion::refused(BlkStatus::IoErr) };
        for (bytes, copied_bytes) in [(0, 0), (4095, 0), (4096, 4096), (8191, 4096), (12288, 8192)] {
            assert_eq!(copied(&failed(bytes), 12288, Sectors(8)), copied_bytes, "{bytes}");
        }
        assert_eq!(copied(&Completion::ok(Bytes(12288)), 12288, Sectors(8)), 0);
    }
}
