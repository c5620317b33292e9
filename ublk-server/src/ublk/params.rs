//! What a disk tells the kernel about itself. Pure.

use super::DiskParams;
use super::error::UblkError;
use emulation::{Bytes, Limits, Sectors};
use libublk::sys;

/// The longest discard or write of zeroes stays below this, so that no length of one overflows an `int`.
const RANGE_MAX: Bytes = Bytes::gib(2);

/// The most queues and the deepest queue, and the largest request with data.
const QUEUES_MAX: u64 = sys::UBLK_MAX_NR_QUEUES as u64;
const DEPTH_MAX: u64 = sys::UBLK_MAX_QUEUE_DEPTH as u64;
const MAX_IO_MAX: u64 = 32 << 20;

/// Refuses what the driver cannot take.
pub(super) fn check(params: &DiskParams, page: u64) -> Result<(), UblkError> {
    let max_io = params.limits.max_io.bytes().0;
    for (what, value, min, max) in [
        ("queues", params.queues.into(), 1, QUEUES_MAX),
        ("depth", params.depth.into(), 1, DEPTH_MAX),
        ("largest request", max_io, page, MAX_IO_MAX),
    ] {
        if !(min..=max).contains(&value) {
            return Err(UblkError::Parameter { what, value, min, max });
        }
    }
    Ok(())
}

/// The size of a request's buffer in the driver: the largest request, in whole pages.
pub(super) fn max_io_buf_bytes(limits: &Limits, page: u64) -> u32 {
    u32::try_from(limits.max_io.bytes().0.next_multiple_of(page)).expect("checked: 32 MiB at most")
}

/// `struct ublk_params`.
pub(super) fn params(disk: &DiskParams) -> sys::ublk_params {
    let limits = &disk.limits;
    let block = limits.map_block.bytes().0;
    let longest = (RANGE_MAX.0 - block) / block * block;
    let longest = u32::try_from(Bytes(longest).whole_sectors().0).expect("below 2^22");
    let shift = |bytes: Bytes| bytes.0.trailing_zeros() as u8;
    let mut attrs = 0;
    // The kernel takes FUA with a write cache only.
    for (set, attr) in [
        (limits.read_only, sys::UBLK_ATTR_READ_ONLY),
        (disk.rotational, sys::UBLK_ATTR_ROTATIONAL),
        (disk.volatile_cache, sys::UBLK_ATTR_VOLATILE_CACHE | sys::UBLK_ATTR_FUA),
    ] {
        attrs |= if set { attr } else { 0 };
    }
    let zones = limits.zones;
    sys::ublk_params {
        len: size_of::<sys::ublk_params>() as u32,
        // A zone gives its contents back by a reset, and a write of zeroes must not pass the end of a zone, which the
        // kernel takes care of only for those that carry data: a zoned disk has neither.
        types: sys::UBLK_PARAM_TYPE_BASIC
            | if zones.is_some() { sys::UBLK_PARAM_TYPE_ZONED } else { sys::UBLK_PARAM_TYPE_DISCARD },
        basic: sys::ublk_param_basic {
            attrs,
            logical_bs_shift: shift(limits.logical_block.bytes()),
            physical_bs_shift: shift(limits.map_block.bytes()),
            io_opt_shift: shift(limits.map_block.bytes()),
            io_min_shift: shift(limits.map_block.bytes()),
            max_sectors: u32::try_from(limits.max_io.0).expect("checked: 32 MiB at most"),
            dev_sectors: limits.capacity.0,
            chunk_sectors: zones.map_or(0, |zones| sectors_u32(zones.size)),
            ..Default::default()
        },
        zoned: zones.map_or_else(Default::default, |zones| sys::ublk_param_zoned {
            max_open_zones: zones.max_open,
            max_active_zones: zones.max_active,
            max_zone_append_sectors: sectors_u32(zones.max_append),
            ..Default::default()
        }),
        discard: sys::ublk_param_discard {
            discard_alignment: 0,
            discard_granularity: block as u32,
            max_discard_sectors: longest,
            max_write_zeroes_sectors: longest,
            max_discard_segments: 1,
            ..Default::default()
        },
        ..Default::default()
    }
}

fn sectors_u32(sectors: Sectors) -> u32 {
    u32::try_from(sectors.0).expect("checked: a zone has at most 1 TiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulation::VolumeId;
    use emulation::zone::ZoneGeometry;

    fn disk() -> DiskParams {
        DiskParams {
            id: None,
            queues: 1,
            depth: 128,
            volume: VolumeId(0),
            limits: Limits::new(Sectors(1 << 21), Sectors(1), Sectors(8)),
            unprivileged: false,
            volatile_cache: false,
            rotational: false,
            recovery: None,
            force: false,
        }
    }

    #[test]
    fn the_default_disk() {
        let params = params(&disk());
        assert_eq!((params.basic.logical_bs_shift, params.basic.physical_bs_shift), (9, 12));
        assert_eq!((params.basic.dev_sectors, params.basic.max_sectors), (1 << 21, 2048));
        assert_eq!(params.basic.attrs, 0);
        let discard = params.discard;
        assert_eq!(discard.discard_granularity, 4096);
        assert_eq!(discard.max_discard_sectors, discard.max_write_zeroes_sectors);
        assert_eq!(discard.max_discard_sectors % 8, 0);
        assert!(u64::from(discard.max_discard_sectors) * 512 < 1 << 31);
        assert_eq!(max_io_buf_bytes(&disk().limits, 4096), 1 << 20);
    }

    #[test]
    fn fua_comes_with_the_cache_only() {
        let disk = DiskParams { volatile_cache: true, ..disk() };
        assert_eq!(params(&disk).basic.attrs, 4 | 8);
        let mut disk = DiskParams { rotational: true, volatile_cache: false, ..disk };
        disk.limits.read_only = true;
        assert_eq!(params(&disk).basic.attrs, 1 | 2);
    }

    #[test]
    fn a_zoned_disk() {
        let mut disk = disk();
        let zones = ZoneGeometry::new(Sectors(1 << 13));
        disk.limits.zones =
            Some(ZoneGeometry { max_open: 3, max_active: 5, max_append: Sectors(64), ..zones });
        let params = params(&disk);
        assert_eq!(params.types, sys::UBLK_PARAM_TYPE_BASIC | sys::UBLK_PARAM_TYPE_ZONED);
        assert_eq!(params.basic.chunk_sectors, 1 << 13);
        let zoned = params.zoned;
        assert_eq!((zoned.max_open_zones, zoned.max_active_zones, zoned.max_zone_append_sectors), (3, 5, 64));
    }

    #[test]
    fn what_the_driver_cannot_take_is_refused() {
        assert!(check(&disk(), 4096).is_ok());
        for (queues, depth, max_io) in
            [(0, 1, 8), (4097, 1, 8), (1, 0, 8), (1, 4097, 8), (1, 1, 7), (1, 1, 65537)]
        {
            let mut bad = DiskParams { queues, depth, ..disk() };
            bad.limits.max_io = Sectors(max_io);
            assert!(check(&bad, 4096).is_err(), "{queues} {depth} {max_io}");
        }
    }
}
