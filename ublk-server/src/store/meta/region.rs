//! Where the metadata lies: a file of its own, or the end of a block device.

use redb::StorageBackend;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What was asked of the medium.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes written.
    pub written: AtomicU64,
    /// Syncs.
    pub syncs: AtomicU64,
}

/// A file, as the database sees it.
#[derive(Debug)]
pub(super) struct WholeFile {
    pub(super) file: File,
    pub(super) traffic: Arc<Traffic>,
}

impl StorageBackend for WholeFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let old = self.file.metadata()?.len();
        // Space that is there: a commit that needs no more pages must not fail for it.
        if len > old {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), old, len - old) {
                Err(Errno::OPNOTSUPP) => {}
                other => return Ok(other?),
            }
        }
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.traffic.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.traffic.written.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(data, offset)
    }
}

/// The bytes of a region before the database: its length as a number, then unused.
const REGION_HEADER: u64 = 4096;

/// A region of a device, as the database sees it: its length is a number in the first block of the region.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) file: File,
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) traffic: Arc<Traffic>,
}

impl Region {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, self.start + offset)
    }

    fn check(&self, end: Option<u64>) -> io::Result<()> {
        match end.and_then(|end| end.checked_add(REGION_HEADER)) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(Errno::NOSPC.into()),
        }
    }
}

impl StorageBackend for Region {
    fn len(&self) -> io::Result<u64> {
        let mut len = [0; 8];
        self.read_at(0, &mut len)?;
        let len = u64::from_le_bytes(len);
        self.check(Some(len))?;
        Ok(len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.check(offset.checked_add(out.len() as u64))?;
        self.read_at(REGION_HEADER + offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check(Some(len))?;
        let old = self.len()?;
        // New places hold zeroes, whatever was there.
        let zeroes = vec![0; 1 << 20];
        let mut at = old;
        while at < len {
            let part = (len - at).min(zeroes.len() as u64);
            self.file.write_all_at(&zeroes[..part as usize], self.start + REGION_HEADER + at)?;
            at += part;
        }
        self.file.write_all_at(&len.to_le_bytes(), self.start)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.traffic.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset.checked_add(data.len() as u64))?;
        self.traffic.written.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(data, self.start + REGION_HEADER + offset)
    }
}

impl Region {
    /// The whole database.
    pub(super) fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.len()?).map_err(|_| Errno::NOMEM)?];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }
}
