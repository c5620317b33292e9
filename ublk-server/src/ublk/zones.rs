//! A report of zones as the driver takes it. Pure.

use emulation::zone::{REPORT_ENTRY, ZoneDescriptor};

/// An array of `struct blk_zone`.
pub(super) fn report(zones: &[ZoneDescriptor]) -> Vec<u8> {
    zones.iter().flat_map(entry).collect()
}

/// `struct blk_zone`: sectors of 512 bytes, in the byte order of the machine.
fn entry(zone: &ZoneDescriptor) -> [u8; REPORT_ENTRY.0 as usize] {
    let mut bytes = [0; REPORT_ENTRY.0 as usize];
    bytes[0..8].copy_from_slice(&zone.start.0.to_ne_bytes());
    bytes[8..16].copy_from_slice(&zone.len.0.to_ne_bytes());
    bytes[16..24].copy_from_slice(&zone.wp.0.to_ne_bytes());
    bytes[24] = zone.kind as u8;
    bytes[25] = zone.condition as u8;
    bytes[32..40].copy_from_slice(&zone.capacity.0.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulation::zone::{ZoneCondition, ZoneType};
    use emulation::{Sector, Sectors};

    #[test]
    fn an_entry_is_laid_out_as_the_kernel_has_it() {
        let zone = ZoneDescriptor {
            start: Sector(0x1000),
            len: Sectors(0x800),
            capacity: Sectors(0x600),
            wp: Sector(0x1234),
            kind: ZoneType::SeqwriteReq,
            condition: ZoneCondition::Full,
        };
        let bytes = report(&[zone, zone]);
        assert_eq!((bytes.len(), &bytes[..64]), (128, &bytes[64..]));
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!([word(0), word(8), word(16), word(32)], [0x1000, 0x800, 0x1234, 0x600]);
        assert_eq!(bytes[24..32], [2, 14, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[40..64], [0; 24]);
    }
}
