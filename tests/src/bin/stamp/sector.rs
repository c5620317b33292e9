//! The content of a stamped sector, and memory that direct I/O takes.

/// Bytes of a sector.
pub(crate) const SECTOR: usize = 512;

/// The first word of each stamped sector, mixed with the number of the run.
const MAGIC: u64 = 0x7374_616d_7065_6421;

/// Writes the stamp of a sector: where it was written to and by which write, in each word.
pub(crate) fn stamp(sector: &mut [u8], run: u64, address: u64, version: u32) {
    for (index, word) in (0u64..).zip(sector.chunks_exact_mut(8)) {
        word.copy_from_slice(&word_of(index, run, address, version).to_le_bytes());
    }
}

fn word_of(index: u64, run: u64, address: u64, version: u32) -> u64 {
    match index {
        0 => MAGIC ^ run,
        1 => address,
        2 => u64::from(version),
        _ => (address ^ run).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(version) << 20 ^ index << 56,
    }
}

/// The address and version in a sector.
///
/// # Errors
/// It was never stamped in this run, or it is made of parts of several stamps.
pub(crate) fn read(sector: &[u8], run: u64) -> Result<(u64, u32), String> {
    let words: Vec<u64> =
        sector.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
    let (address, version) = (words[1], u32::try_from(words[2]).unwrap_or(u32::MAX));
    let wrong = (0u64..).zip(&words).find(|(index, word)| **word != word_of(*index, run, address, version));
    match wrong {
        None => Ok((address, version)),
        Some((0, word)) => Err(format!("holds no stamp; it begins with {word:#018x}")),
        Some((index, word)) => Err(format!(
            "holds parts of several stamps: address {address}, version {version}, but word {index} is {word:#018x}"
        )),
    }
}

/// Memory at an address that direct I/O takes.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    const ALIGN: usize = 4096;

    /// Zeroed memory of `len` bytes.
    pub(crate) fn new(len: usize) -> Self {
        let memory = vec![0; len + Self::ALIGN];
        let start = memory.as_ptr().align_offset(Self::ALIGN);
        Self { memory, start, len }
    }

    /// The first `sectors` sectors.
    pub(crate) fn sectors(&mut self, sectors: usize) -> &mut [u8] {
        assert!(sectors * SECTOR <= self.len, "the buffer is shorter");
        &mut self.memory[self.start..self.start + sectors * SECTOR]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_and_a_torn_or_foreign_one_is_not() {
        let mut buffer = Buffer::new(2 * SECTOR);
        let sectors = buffer.sectors(2);
        assert!(sectors.as_ptr().addr().is_multiple_of(Buffer::ALIGN));
        assert!(read(&sectors[..SECTOR], 7).unwrap_err().contains("no stamp"));
        stamp(&mut sectors[..SECTOR], 7, 1000, 3);
        stamp(&mut sectors[SECTOR..], 7, 1000, 4);
        assert_eq!(read(&sectors[..SECTOR], 7), Ok((1000, 3)));
        assert!(read(&sectors[..SECTOR], 8).is_err());
        sectors.copy_within(SECTOR + 256.., 256);
        assert!(read(&sectors[..SECTOR], 7).unwrap_err().contains("several stamps"));
    }
}
