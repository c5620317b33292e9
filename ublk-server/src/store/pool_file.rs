//! The file or block device of a pool: its header, its data, and the metadata beside it or at its end.

use super::header::{self, Header, HeaderError};
use super::meta::{Meta, MetaError, Place};
use emulation::Bytes;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Of a device, so much is for metadata: one part in so many, and at least so many bytes.
const METADATA_PART: u64 = 64;
const METADATA_MIN: u64 = 4 << 20;

/// How long udev, which looks at a device, or a server that ends may hold it.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// Why a file is no pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolFileError {
    /// It cannot be used.
    #[error("{0}: {1}")]
    Io(PathBuf, #[source] io::Error),
    /// What it begins with.
    #[error("{0}: {1}\nnothing was changed; to use it anew, remove it or clear its first 64 KiB")]
    Header(PathBuf, #[source] HeaderError),
    /// Its metadata.
    #[error("{0}: {1}\nnothing was changed")]
    Meta(PathBuf, #[source] MetaError),
    /// Neither file nor device.
    #[error("{0} is neither a regular file nor a block device")]
    Kind(PathBuf),
    /// Another server.
    #[error("{0} is in use by another server\n`ublk list` shows the disks of this program")]
    InUse(PathBuf),
    /// There is no pool in it.
    #[error("{0} is empty: there is no pool in it")]
    Empty(PathBuf),
    /// A device too small for anything.
    #[error("{0} has {1}: too small for a pool")]
    Small(PathBuf, Bytes),
    /// Parts that do not belong together.
    #[error("{0} {1}\nnothing was changed")]
    Parts(PathBuf, String),
}

/// The file or device, locked.
#[derive(Debug)]
pub struct PoolFile {
    path: PathBuf,
    file: File,
    device: bool,
    size: u64,
    header: Option<Header>,
}

impl PoolFile {
    /// Opens what is at `path`; with `create`, makes an empty file when there is nothing. Another server's is refused.
    ///
    /// # Errors
    /// See [`PoolFileError`].
    pub fn open(path: &Path, create: bool) -> Result<Self, PoolFileError> {
        let failed = |error| PoolFileError::Io(path.to_path_buf(), error);
        // Looked at first: opening some devices has effects.
        match std::fs::metadata(path) {
            Ok(found) if !found.is_file() && !found.file_type().is_block_device() => {
                return Err(PoolFileError::Kind(path.to_path_buf()));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound || !create => return Err(failed(error)),
            Ok(_) | Err(_) => {}
        }
        let file = File::options()
            .read(true)
            .write(create)
            .create(create)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        let end = Instant::now() + LOCK_WAIT;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(LOCK_WAIT / 20),
                Err(Errno::WOULDBLOCK) => return Err(PoolFileError::InUse(path.to_path_buf())),
                Err(error) => return Err(failed(error.into())),
            }
        }
        let device = file.metadata().map_err(failed)?.file_type().is_block_device();
        let size = io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(failed)?;
        let header = Header::read(&file).map_err(|error| PoolFileError::Header(path.to_path_buf(), error))?;
        if header.is_none() && !device && size > 0 {
            return Err(PoolFileError::Header(path.to_path_buf(), HeaderError::Foreign));
        }
        Ok(Self { path: path.to_path_buf(), file, device, size, header })
    }

    /// True when there is no pool in it.
    pub fn is_new(&self) -> bool {
        self.header.is_none()
    }

    /// The header.
    ///
    /// # Errors
    /// There is no pool in it.
    pub fn header(&self) -> Result<&Header, PoolFileError> {
        self.header.as_ref().ok_or_else(|| PoolFileError::Empty(self.path.clone()))
    }

    /// The bytes for data; `None`: as many as the file system gives.
    pub fn room(&self) -> Option<u64> {
        let (start, _) = self.header.as_ref()?.metadata?;
        Some(start - header::LEN)
    }

    /// The file of the metadata of a pool in a regular file.
    pub fn metadata_path(path: &Path) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(".meta");
        name.into()
    }

    /// Makes a pool in it.
    ///
    /// # Errors
    /// See [`PoolFileError`].
    pub fn create(&mut self, map_block: Bytes) -> Result<Meta, PoolFileError> {
        assert!(self.is_new(), "{} holds a pool", self.path.display());
        let failed = |error| PoolFileError::Io(self.path.clone(), error);
        let region = match self.device {
            true => Some(
                region(self.size).ok_or_else(|| PoolFileError::Small(self.path.clone(), Bytes(self.size)))?,
            ),
            false => None,
        };
        let header = Header::new(map_block, region).map_err(failed)?;
        if region.is_none() {
            let beside = Self::metadata_path(&self.path);
            if beside.exists() {
                let why = format!(
                    "is new, and {} is there already: remove one or bring back the other",
                    beside.display()
                );
                return Err(PoolFileError::Parts(self.path.clone(), why));
            }
        }
        let place = self.place(&header, Access::Create)?;
        let meta = Meta::create(place, &header.identifier, map_block)
            .map_err(|error| PoolFileError::Meta(self.path.clone(), error))?;
        header.write(&self.file).map_err(failed)?;
        self.size = self.size.max(header::LEN);
        self.header = Some(header);
        Ok(meta)
    }

    /// Opens the metadata of the pool in it; `look`: without changing anything.
    ///
    /// # Errors
    /// See [`PoolFileError`].
    pub fn meta(&self, look: bool) -> Result<Meta, PoolFileError> {
        let header = self.header()?;
        let place = self.place(header, if look { Access::Look } else { Access::Use })?;
        let opened = if look { Meta::look(place) } else { Meta::open(place) };
        let failed = |error| PoolFileError::Meta(self.path.clone(), error);
        let meta = opened.map_err(failed)?;
        let pool = meta.contents().map_err(failed)?.pool;
        if pool.identifier != header.identifier || pool.map_block != header.map_block {
            let why = "and its metadata are of different pools".to_string();
            return Err(PoolFileError::Parts(self.path.clone(), why));
        }
        Ok(meta)
    }

    /// Refuses a file that ends before `end`, the end of the last block that is named.
    ///
    /// # Errors
    /// It is shorter.
    pub fn check_end(&self, end: Bytes) -> Result<(), PoolFileError> {
        let end = header::LEN + end.0;
        if self.device || self.size >= end {
            return Ok(());
        }
        let why =
            format!("has {} bytes, and its metadata names bytes up to {end}: it was cut off", self.size);
        Err(PoolFileError::Parts(self.path.clone(), why))
    }

    fn place(&self, header: &Header, access: Access) -> Result<Place, PoolFileError> {
        let failed = |path: &Path, error| PoolFileError::Io(path.to_path_buf(), error);
        match header.metadata {
            Some((start, size)) => {
                if start.checked_add(size).is_none_or(|end| end > self.size) || start < header::LEN {
                    let why = format!("has {}, less than when the pool was made", Bytes(self.size));
                    return Err(PoolFileError::Parts(self.path.clone(), why));
                }
                let file = self.file.try_clone().map_err(|error| failed(&self.path, error))?;
                Ok(Place::Region { file, start, size })
            }
            None => {
                let path = Self::metadata_path(&self.path);
                let file = open_metadata(&path, access).map_err(|error| failed(&path, error))?;
                Ok(Place::File(file))
            }
        }
    }
}

/// What the file of the metadata is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Create,
    Use,
    Look,
}

fn open_metadata(path: &Path, access: Access) -> io::Result<File> {
    File::options()
        .read(true)
        .write(access != Access::Look)
        .create(access == Access::Create)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Where the metadata of a device of `size` bytes lies, start and bytes.
fn region(size: u64) -> Option<(u64, u64)> {
    const ALIGN: u64 = 1 << 20;
    let bytes = (size / METADATA_PART).max(METADATA_MIN).next_multiple_of(ALIGN);
    let start = size.checked_sub(bytes)? / ALIGN * ALIGN;
    (start >= 2 * METADATA_MIN).then_some((start, bytes))
}
