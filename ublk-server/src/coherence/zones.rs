//! The ioctls of zoned block devices, and what makes the kernel look where a zone is written next.
//!
//! The one file with `unsafe` for them.
#![allow(unsafe_code)]

use super::{DiskRange, ZoneIoctl, ZoneProbe, named};
use crate::store::Buffer;
use emulation::Bytes;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The number of the ioctls of block devices.
const GROUP: u32 = 0x12;

/// `struct blk_zone_range`, in sectors of 512 bytes.
#[repr(C)]
struct ZoneRange {
    sector: u64,
    nr_sectors: u64,
}

/// `struct blk_zone_report`.
#[repr(C)]
struct ReportHeader {
    sector: u64,
    nr_zones: u32,
    flags: u32,
}

/// A report of one zone: the header and `struct blk_zone`.
#[repr(C)]
struct Report {
    header: ReportHeader,
    zone: [u64; 8],
}

/// Makes the kernel forget where it believes that zones are written next, and look.
///
/// The kernel keeps a pointer of its own for each zone that it has written and refuses writes elsewhere. It corrects
/// the pointer by a report only after a write of the zone has failed; so one is sent that has to fail, then the report.
pub(super) fn resync(
    disk: u32,
    block: u64,
    zones: &[ZoneProbe],
    alive: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let path = path(disk);
    let file = open(&path, libc::O_DIRECT)?;
    let block = usize::try_from(block).map_err(io::Error::other)?;
    let zeroes = Buffer::zeroed(block);
    for zone in zones {
        if file.write_at(zeroes.bytes(), zone.place).is_ok() {
            let why = format!("{}: a write off a write pointer was taken, at {}", path.display(), zone.place);
            return Err(io::Error::other(why));
        }
        report(&file, zone.start).map_err(|error| named(&path, "report a zone", error))?;
        alive()?;
    }
    Ok(())
}

/// Changes zones through the block device.
pub(super) fn manage(action: ZoneIoctl, range: DiskRange) -> io::Result<()> {
    let path = path(range.disk);
    let file = open(&path, 0)?;
    let (number, what) = match action {
        ZoneIoctl::Reset => (131, "reset zones"),
        ZoneIoctl::Open => (134, "open zones"),
        ZoneIoctl::Close => (135, "close zones"),
        ZoneIoctl::Finish => (136, "finish zones"),
    };
    let range = ZoneRange { sector: sectors(range.offset), nr_sectors: sectors(range.length) };
    let request = libc::_IOW::<ZoneRange>(GROUP, number);
    // SAFETY: the kernel reads a `struct blk_zone_range`, which lives until the call is over; the descriptor is open.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, &raw const range) };
    if result == 0 { Ok(()) } else { Err(named(&path, what, io::Error::last_os_error())) }
}

fn report(file: &File, start: u64) -> io::Result<()> {
    let header = ReportHeader { sector: sectors(start), nr_zones: 1, flags: 0 };
    let mut report = Report { header, zone: [0; 8] };
    let request = libc::_IOWR::<ReportHeader>(GROUP, 130);
    // SAFETY: the kernel reads a `struct blk_zone_report` and writes it and one `struct blk_zone` behind it, for which
    // there is room; any bits are a value of both. The descriptor is open.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, &raw mut report) };
    match result {
        0 if report.header.nr_zones == 1 && report.zone[0] == sectors(start) => Ok(()),
        0 => Err(io::Error::other("the kernel reports no zone there")),
        _ => Err(io::Error::last_os_error()),
    }
}

fn sectors(bytes: u64) -> u64 {
    Bytes(bytes).whole_sectors().0
}

fn path(disk: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{disk}"))
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    let opened = File::options().read(true).write(true).custom_flags(flags).open(path);
    opened.map_err(|error| named(path, "open", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_and_sizes_are_those_of_the_kernel() {
        assert_eq!((size_of::<ZoneRange>(), size_of::<ReportHeader>(), size_of::<Report>()), (16, 16, 80));
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        {
            assert_eq!(libc::_IOWR::<ReportHeader>(GROUP, 130), 0xc010_1282);
            assert_eq!(libc::_IOW::<ZoneRange>(GROUP, 131), 0x4010_1283);
        }
    }

    #[test]
    fn what_is_no_zoned_disk_is_an_error() {
        let range = DiskRange { disk: 1 << 30, offset: 0, length: 512 };
        assert_eq!(manage(ZoneIoctl::Reset, range).unwrap_err().kind(), io::ErrorKind::NotFound);
        let probe = ZoneProbe { start: 0, place: 0 };
        assert!(resync(1 << 30, 512, &[probe], &mut || Ok(())).is_err());
    }
}
