//! The kernel's copy operation as the ublk driver hands it on: numbers and layouts that `libublk` does not have,
//! from the series in `kernel/patches`. Pure.

use super::decode::{Decoded, Descriptor};
use emulation::limits::SEGMENTS_MAX;
use emulation::{
    BlkStatus, Bytes, CopyCommand, CopyMode, CopySegment, Flags, Limits, Op, Sector, SectorRange, Sectors,
    VolumeId,
};
use libublk::sys;
use serde::{Deserialize, Serialize};

/// `UBLK_F_COPY`: the driver takes copies to the server.
pub const FEATURE: u64 = 1 << 21;
/// `UBLK_IO_OP_COPY`, in the low byte of a descriptor's `op_flags`.
pub(crate) const OP: u32 = 6;
/// `UBLKSRV_IO_COPY_FLAG`: added to the position of a request's data, it is that of the request's sources.
pub(crate) const POSITION: u64 = 1 << 61;

/// `UBLK_U_CMD_UPDATE_COPY`: `_IOWR('u', 0x1a, struct ublksrv_ctrl_cmd)`.
pub(crate) const UPDATE_COPY: u32 =
    3 << 30 | (size_of::<sys::ublksrv_ctrl_cmd>() as u32) << 16 | 0x75 << 8 | 0x1a;

/// `UBLK_PARAM_TYPE_COPY`.
const PARAM_TYPE: u32 = 1 << 7;
/// The length of `struct ublk_copy_source`: first sector, number of sectors, four bytes of zeroes.
const SOURCE_LEN: usize = 16;
/// The room for the sources of any command, whatever the limits of its disk become.
pub(crate) const SOURCES_LEN: usize = SEGMENTS_MAX as usize * SOURCE_LEN;
/// The longest command the driver takes, so that its length in bytes is an `int`.
const BYTES_MAX: Bytes = Bytes(i32::MAX as u64);

/// The limits of a disk's copies as the driver has them (`struct ublk_param_copy`); all zero for a disk that does not
/// copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub struct CopyLimits {
    max_copy_sectors: u32,
    max_copy_segment_sectors: u32,
    max_copy_segments: u16,
    #[serde(skip)]
    reserved: [u16; 3],
}

impl CopyLimits {
    /// Those of a disk.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        let sectors = |bytes: Bytes| {
            let sectors = bytes.min(BYTES_MAX).whole_sectors().0;
            sectors - sectors % limits.logical_block.0
        };
        let total = sectors(limits.copy_max_bytes);
        let segment = sectors(limits.copy_max_segment_bytes).min(total);
        let segments = limits.copy_max_segments.min(SEGMENTS_MAX);
        if limits.copy_mode == CopyMode::Off || segment == 0 || segments == 0 {
            return Self::default();
        }
        Self {
            max_copy_sectors: total as u32,
            max_copy_segment_sectors: segment as u32,
            max_copy_segments: segments as u16,
            reserved: [0; 3],
        }
    }

    /// The lower of each.
    #[must_use]
    pub fn lowest(self, other: Self) -> Self {
        Self {
            max_copy_sectors: self.max_copy_sectors.min(other.max_copy_sectors),
            max_copy_segment_sectors: self.max_copy_segment_sectors.min(other.max_copy_segment_sectors),
            max_copy_segments: self.max_copy_segments.min(other.max_copy_segments),
            reserved: [0; 3],
        }
    }
}

/// `struct ublk_params` up to the parameters of copies.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Params {
    base: sys::ublk_params,
    /// Parameters that are not set: `dma`, `seg`, `integrity`. The first of them begins in the padding of `base`.
    between: [u8; 40],
    copy: CopyLimits,
}

/// The parameters of a disk and those of its copies.
pub(crate) fn params(base: sys::ublk_params, limits: &Limits) -> Params {
    Params {
        base: sys::ublk_params { len: size_of::<Params>() as u32, types: base.types | PARAM_TYPE, ..base },
        between: [0; 40],
        copy: CopyLimits::new(limits),
    }
}

/// Understands a copy: its descriptor, which is the destination, and its sources as the driver wrote them.
///
/// # Errors
/// The status to answer with: the sources are not as long as the destination, or pass the end of all sectors.
pub(crate) fn decode(descriptor: Descriptor, sources: &[u8], volume: VolumeId) -> Result<Decoded, BlkStatus> {
    let len = Sectors(descriptor.nr_sectors.into());
    let range = SectorRange::new(Sector(descriptor.start_sector), len).ok_or(BlkStatus::OutOfRange)?;
    let whole = i32::try_from(len.bytes().0).map_err(|_| BlkStatus::Inval)?;
    let (entries, rest) = sources.as_chunks::<SOURCE_LEN>();
    if range.is_empty() || !rest.is_empty() {
        return Err(BlkStatus::Inval);
    }
    let mut command = CopyCommand { segments: Default::default() };
    let mut done = Sectors(0);
    for entry in entries {
        let (start, len) = source(entry);
        let source = SectorRange::new(start, len).ok_or(BlkStatus::OutOfRange)?;
        // Both are below 2^32 each, and there are fewer than 2^32 of them.
        let destination = Sector(range.start.0 + done.0);
        done += len;
        if source.is_empty() || done > range.len {
            return Err(BlkStatus::Inval);
        }
        command.segments.push(CopySegment { source_volume: volume, source, destination });
    }
    if done != range.len {
        return Err(BlkStatus::Inval);
    }
    Ok(Decoded { op: Op::Copy(command), flags: Flags::NONE, whole })
}

fn source(entry: &[u8; SOURCE_LEN]) -> (Sector, Sectors) {
    let (start, rest) = entry.split_first_chunk().expect("16 bytes hold 8");
    let len = rest.first_chunk().expect("8 bytes hold 4");
    (Sector(u64::from_ne_bytes(*start)), Sectors(u32::from_ne_bytes(*len).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId(3);

    fn limits() -> Limits {
        Limits::new(Sectors(1 << 21), Sectors(1), Sectors(8))
    }

    fn entry(start: u64, len: u32) -> Vec<u8> {
        [&start.to_ne_bytes()[..], &len.to_ne_bytes(), &[0; 4]].concat()
    }

    fn descriptor(start_sector: u64, nr_sectors: u32) -> Descriptor {
        Descriptor { op_flags: OP, nr_sectors, start_sector }
    }

    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!(size_of::<Params>(), 168);
        assert_eq!(std::mem::offset_of!(Params, copy), 152);
        assert_eq!(size_of::<CopyLimits>(), 16);
        assert_eq!(std::mem::offset_of!(CopyLimits, max_copy_segments), 8);
        assert_eq!(UPDATE_COPY, 0xc020_751a);
    }

    #[test]
    fn limits_become_parameters() {
        let made = params(sys::ublk_params::default(), &limits());
        assert_eq!((made.base.len, made.base.types), (168, 1 << 7));
        assert_eq!((made.copy.max_copy_sectors, made.copy.max_copy_segment_sectors), (1 << 18, 1 << 15));
        assert_eq!(made.copy.max_copy_segments, 128);
        let huge = Limits { copy_max_bytes: Bytes(u64::MAX - 511), copy_max_segments: 1000, ..limits() };
        let huge = CopyLimits::new(&huge);
        assert_eq!((huge.max_copy_sectors, huge.max_copy_segments), ((1 << 22) - 1, 256));
    }

    #[test]
    fn a_disk_that_copies_nothing_has_none() {
        for limits in [
            Limits { copy_mode: CopyMode::Off, ..limits() },
            Limits { copy_max_segments: 0, ..limits() },
            Limits { copy_max_segment_bytes: Bytes(0), ..limits() },
            Limits { copy_max_bytes: Bytes(0), ..limits() },
        ] {
            assert_eq!(CopyLimits::new(&limits), CopyLimits::default(), "{limits:?}");
        }
    }

    #[test]
    fn the_lowest_of_two_fits_both() {
        let few = CopyLimits::new(&Limits { copy_max_segments: 2, ..limits() });
        let short = CopyLimits::new(&Limits { copy_max_segment_bytes: Bytes::kib(64), ..limits() });
        let both = few.lowest(short);
        assert_eq!((both.max_copy_segments, both.max_copy_segment_sectors), (2, 128));
        assert_eq!(few.lowest(CopyLimits::default()), CopyLimits::default());
    }

    #[test]
    fn sources_follow_each_other_at_the_destination() {
        let sources = [entry(100, 8), entry(7, 16)].concat();
        let decoded = decode(descriptor(1000, 24), &sources, VOLUME).unwrap();
        let Op::Copy(command) = decoded.op else { panic!("not a copy") };
        let segment = |start, len, destination| CopySegment {
            source_volume: VOLUME,
            source: SectorRange { start: Sector(start), len: Sectors(len) },
            destination: Sector(destination),
        };
        assert_eq!(command.segments[..], [segment(100, 8, 1000), segment(7, 16, 1008)]);
        assert_eq!(decoded.whole, 24 * 512);
    }

    #[test]
    fn what_the_driver_would_never_send_is_refused() {
        let cases = [
            (descriptor(0, 8), vec![], BlkStatus::Inval),
            (descriptor(0, 0), vec![], BlkStatus::Inval),
            (descriptor(0, 8), entry(0, 8)[..15].to_vec(), BlkStatus::Inval),
            (descriptor(0, 8), entry(0, 7), BlkStatus::Inval),
            (descriptor(0, 8), entry(0, 9), BlkStatus::Inval),
            (descriptor(0, 8), [entry(0, 8), entry(0, 0)].concat(), BlkStatus::Inval),
            (descriptor(0, 8), entry(u64::MAX, 8), BlkStatus::OutOfRange),
            (descriptor(u64::MAX, 8), entry(0, 8), BlkStatus::OutOfRange),
            (descriptor(0, 1 << 22), entry(0, 1 << 22), BlkStatus::Inval),
        ];
        for (descriptor, sources, status) in cases {
            assert_eq!(decode(descriptor, &sources, VOLUME), Err(status), "{descriptor:?} {sources:?}");
        }
    }
}
