//! A store in a raw image or a block device. It is read and written by the ring of the thread that runs a plan; in memory, but
//! for long writes, by that thread itself.

use emulation::{Bytes, PhysSector};
use rustix::fs::{AtFlags, FsWord, OFlags, StatxFlags};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// `linux/magic.h`.
const TMPFS_MAGIC: FsWord = 0x0102_1994;
const RAMFS_MAGIC: FsWord = 0x8584_58f6;

/// A raw image or a block device.
#[derive(Debug)]
pub struct FileStore {
    file: Arc<File>,
    size: Bytes,
    /// Where the first sector lies.
    base: u64,
    /// A file that grows with what is written.
    grows: bool,
    direct: bool,
    in_memory: bool,
    no_zero_range: AtomicBool,
    no_punch_hole: AtomicBool,
    no_copy: AtomicBool,
}

impl FileStore {
    /// Opens it. `logical_block` is that of the disk on it: direct I/O where the file takes it at that alignment,
    /// unless `buffered`. A block device is taken exclusively, unless `read_only`.
    ///
    /// # Errors
    /// It cannot be opened, it is neither a regular file nor a block device (`InvalidInput`), or a block device's
    /// blocks are larger than those of the disk (`InvalidInput`).
    pub fn open(path: &Path, logical_block: Bytes, buffered: bool, read_only: bool) -> io::Result<Self> {
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(invalid("is neither a regular file nor a block device".into()));
        }
        let exclusive = if kind.is_block_device() && !read_only { OFlags::EXCL } else { OFlags::empty() };
        let open = |flags: OFlags| {
            File::options().read(true).write(!read_only).custom_flags(flags.bits().cast_signed()).open(path)
        };
        let mut file = open(exclusive)?;
        if kind.is_block_device() {
            let block = u64::from(rustix::fs::ioctl_blksszget(&file)?);
            if block > logical_block.0 {
                let disk = logical_block.0;
                return Err(invalid(format!("has logical blocks of {block} B, the disk of {disk} B")));
            }
        }
        let direct = !buffered && direct_alignment(&file).is_some_and(|align| align <= logical_block.0);
        if direct {
            drop(file);
            file = open(exclusive | OFlags::DIRECT)?;
        }
        // The node of a block device is in a file system in memory, too.
        let in_memory = kind.is_file() && is_in_memory(&file)?;
        let size = Bytes(file.seek(SeekFrom::End(0))?);
        Ok(Self {
            file: Arc::new(file),
            size,
            base: 0,
            grows: false,
            direct,
            in_memory,
            no_zero_range: AtomicBool::new(false),
            no_punch_hole: AtomicBool::new(false),
            no_copy: AtomicBool::new(!kind.is_file()),
        })
    }

    /// The same with its first sector at byte `base`, for a mapped pool: the end of a regular file is behind the last
    /// block that was written.
    #[must_use]
    pub fn mapped(self, base: u64, grows: bool) -> Self {
        Self { base, grows, ..self }
    }

    /// Where a sector lies.
    pub(crate) fn position(&self, sector: PhysSector) -> u64 {
        self.base + sector.bytes().0
    }

    /// Its size when it was opened.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// True when it is read and written without the page cache.
    pub fn direct(&self) -> bool {
        self.direct
    }

    /// True when its file system is in memory: no operation waits for a device.
    pub(crate) fn in_memory(&self) -> bool {
        self.in_memory
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The `fallocate` mode that makes zeroes, with `unmap` the one that gives space back if there is a choice, by
    /// what was not refused so far. None is left: write them.
    pub(crate) fn zero_mode(&self, unmap: bool) -> Option<i32> {
        let refused = self.no_zero_range.load(Ordering::Relaxed);
        // What a growing file reads as zeroes has to lie before its end.
        let keep = if self.grows { 0 } else { libc::FALLOC_FL_KEEP_SIZE };
        let zero_range = (!refused).then_some(libc::FALLOC_FL_ZERO_RANGE | keep);
        if unmap { self.trim_mode().or(zero_range) } else { zero_range }
    }

    /// The `fallocate` mode that gives space back, when it was not refused so far.
    pub(crate) fn trim_mode(&self) -> Option<i32> {
        let refused = self.no_punch_hole.load(Ordering::Relaxed);
        (!refused).then_some(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
    }

    /// True when the file system copies within the file, as far as is known.
    pub(crate) fn copies_by_file(&self) -> bool {
        !self.no_copy.load(Ordering::Relaxed)
    }

    /// The file system does not copy within the file.
    pub(crate) fn no_copies_by_file(&self) {
        self.no_copy.store(true, Ordering::Relaxed);
    }

    /// The file system or device does not do this mode.
    pub(crate) fn refused(&self, mode: i32) {
        let flag =
            if mode & libc::FALLOC_FL_ZERO_RANGE != 0 { &self.no_zero_range } else { &self.no_punch_hole };
        flag.store(true, Ordering::Relaxed);
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// True when the file system that holds the file or node is in memory.
pub(crate) fn is_in_memory(file: &File) -> io::Result<bool> {
    Ok([TMPFS_MAGIC, RAMFS_MAGIC].contains(&rustix::fs::fstatfs(file)?.f_type))
}

/// What direct I/O must be aligned to, memory and place; `None` when the file does not take it or nobody knows.
fn direct_alignment(file: &File) -> Option<u64> {
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    if !StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN)
        || stat.stx_dio_offset_align == 0
    {
        return None;
    }
    Some(u64::from(stat.stx_dio_offset_align.max(stat.stx_dio_mem_align)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused() {
        let error = FileStore::open(Path::new("/dev/null"), Bytes(512), false, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let error = FileStore::open(Path::new("/does/not/exist"), Bytes(512), false, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_refused_mode_is_not_tried_again() {
        let path = std::env::temp_dir().join(format!("ublk-file-store-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).unwrap();
        let store = FileStore::open(&path, Bytes(512), true, false).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(store.size(), Bytes(4096));
        assert!(!store.direct());
        let punch = store.zero_mode(true).unwrap();
        let zero = store.zero_mode(false).unwrap();
        assert_ne!(punch, zero);
        assert_eq!(store.trim_mode(), Some(punch));
        store.refused(punch);
        assert_eq!((store.zero_mode(true), store.trim_mode()), (Some(zero), None));
        store.refused(zero);
        assert_eq!((store.zero_mode(true), store.zero_mode(false)), (None, None));
    }
}
