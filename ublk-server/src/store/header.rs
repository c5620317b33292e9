//! The first bytes of a pool's data: what it is, and where its metadata lies.

use emulation::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The bytes before the first block: the largest map block, so that blocks stay aligned.
pub const LEN: u64 = 64 << 10;
const MAGIC: &[u8; 16] = b"copy-offload \x01\x02\n";
const FORMAT: u32 = 1;
/// Bytes that the checksum covers.
const COVERED: usize = 96;

/// What the data of a pool says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The identifier of the pool: 32 hexadecimal digits.
    pub identifier: String,
    /// The map block.
    pub map_block: Bytes,
    /// The region of the metadata, start and bytes; `None`: it lies in a file of its own.
    pub metadata: Option<(u64, u64)>,
}

/// Why there is no header.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It holds something else.
    #[error("it holds something else than a pool of this program")]
    Foreign,
    /// It is torn.
    #[error("its header is damaged")]
    Damaged,
    /// Written by another version.
    #[error("it has format {0}, this version knows {FORMAT}")]
    Format(u32),
}

impl Header {
    /// A header with a new identifier.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn new(map_block: Bytes, metadata: Option<(u64, u64)>) -> io::Result<Self> {
        Ok(Self { identifier: identifier()?, map_block, metadata })
    }

    /// Writes it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &File) -> io::Result<()> {
        let mut bytes = vec![0; LEN as usize];
        let (start, size) = self.metadata.unwrap_or((0, 0));
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..20].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[24..56].copy_from_slice(self.identifier.as_bytes());
        for (at, value) in [(56, self.map_block.0), (64, start), (72, size)] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[..COVERED]);
        bytes[COVERED..COVERED + 4].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&bytes, 0)?;
        file.sync_all()
    }

    /// Reads it; `None`: there are only zeroes, or nothing at all.
    ///
    /// # Errors
    /// It is of something else, torn, or of another version.
    pub fn read(file: &File) -> Result<Option<Self>, HeaderError> {
        let mut bytes = vec![0; LEN as usize];
        let mut len = 0;
        while len < bytes.len() {
            match file.read_at(&mut bytes[len..], len as u64) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if bytes[..16] != *MAGIC {
            return Err(HeaderError::Foreign);
        }
        let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if short(COVERED) != crc32c::crc32c(&bytes[..COVERED]) || len < bytes.len() {
            return Err(HeaderError::Damaged);
        }
        if short(16) != FORMAT {
            return Err(HeaderError::Format(short(16)));
        }
        let identifier = String::from_utf8(bytes[24..56].to_vec()).map_err(|_| HeaderError::Damaged)?;
        let (start, size) = (long(64), long(72));
        Ok(Some(Self {
            identifier,
            map_block: Bytes(long(56)),
            metadata: (size > 0).then_some((start, size)),
        }))
    }
}

/// A new identifier: 32 hexadecimal digits.
///
/// # Errors
/// The kernel has no random numbers.
pub fn identifier() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_a_damaged_or_foreign_one_is_not() {
        let path = std::env::temp_dir().join(format!("ublk-header-{}", std::process::id()));
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(Header::read(&file).unwrap().is_none());
        for metadata in [None, Some((1 << 30, 1 << 20))] {
            let header = Header::new(Bytes::kib(4), metadata).unwrap();
            header.write(&file).unwrap();
            assert_eq!(Header::read(&file).unwrap().unwrap(), header);
        }
        file.write_all_at(b"x", 60).unwrap();
        assert!(matches!(Header::read(&file), Err(HeaderError::Damaged)));
        file.write_all_at(b"x", 3).unwrap();
        assert!(matches!(Header::read(&file), Err(HeaderError::Foreign)));
        file.set_len(0).unwrap();
        file.set_len(1 << 20).unwrap();
        assert!(Header::read(&file).unwrap().is_none());
        file.write_all_at(b"x", LEN - 1).unwrap();
        assert!(matches!(Header::read(&file), Err(HeaderError::Foreign)));
    }
}
