//! A namespace of the kernel's NVMe driver: Copy commands as they are, past the block layer.

use super::pattern::Segment;
use super::target::CopyError;
use crate::failure::Failure;
use std::fs::File;
use std::path::Path;
use ublk_server::nvme::client;
use ublk_server::nvme::passthrough::{self, Queue};
use ublk_server::nvme::wire::copy::{CopyFormat, CopyRange, RANGES_MAX};

/// The namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    file: File,
    nsid: u32,
    /// Bytes of a logical block.
    block: u64,
}

impl Namespace {
    /// The namespace of a block device that is open.
    pub(super) fn new(file: File, path: &Path) -> Result<Self, Failure> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let attribute = |what: &str| -> Option<u64> {
            std::fs::read_to_string(format!("/sys/class/block/{name}/{what}")).ok()?.trim().parse().ok()
        };
        let found = attribute("nsid").zip(attribute("queue/logical_block_size"));
        let found = found.and_then(|(nsid, block)| Some((u32::try_from(nsid).ok()?, block)));
        let (nsid, block) = found.ok_or_else(|| {
            Failure::usage(format!("{}: engine nvme copies on namespaces /dev/nvmeXnY", path.display()))
                .hint("use --engine=host for any other device")
        })?;
        Ok(Self { file, nsid, block })
    }

    /// Sends one Copy command of format 0h.
    pub(super) fn copy(&self, segments: &[Segment], bs: u64) -> Result<(), CopyError> {
        let refused = |errno, message: String, hint: Option<&str>| {
            Err(CopyError { errno, message, hint: hint.map(str::to_string) })
        };
        let destinations = segments.iter().map(|segment| segment.destination);
        let in_a_row = destinations.clone().zip(destinations.skip(1)).all(|(one, next)| one + bs == next);
        if !in_a_row || !bs.is_multiple_of(self.block) || segments.len() > RANGES_MAX as usize {
            let hint = "give --rw=copy or --ranges=1, at most 256 ranges, and --bs of whole blocks";
            return refused(libc::EINVAL, "no Copy command can say this".to_string(), Some(hint));
        }
        let blocks = u32::try_from(bs / self.block).ok().filter(|blocks| *blocks <= 1 << 16);
        let Some(blocks) = blocks else {
            return refused(libc::EINVAL, format!("bs {bs}: a range has at most 65536 blocks"), None);
        };
        let ranges: Vec<CopyRange> =
            segments.iter().map(|segment| CopyRange::new(0, segment.source / self.block, blocks)).collect();
        let to = segments.first().map_or(0, |segment| segment.destination / self.block);
        let (sqe, mut list) = client::copy(self.nsid, to, CopyFormat::Same, &ranges);
        match passthrough::run(&self.file, Queue::Io, &sqe, &mut list) {
            Ok(ended) if ended.status.is_ok() => Ok(()),
            Ok(ended) => refused(libc::EIO, format!("Copy: {}", ended.status), None),
            Err(error) => refused(error.raw_os_error().unwrap_or(libc::EIO), format!("Copy: {error}"), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_namespace_is_refused() {
        let refused = Namespace::new(File::open("/dev/null").unwrap(), Path::new("/dev/null")).unwrap_err();
        assert_eq!(refused.exit, crate::failure::Exit::Usage);
    }

    #[test]
    fn what_a_command_cannot_say_is_refused() {
        let namespace = Namespace { file: File::open("/dev/null").unwrap(), nsid: 1, block: 512 };
        let to = |destination| Segment { source: 0, destination };
        for (segments, bs) in [
            (vec![to(0), to(8192)], 4096),
            (vec![to(4096), to(0)], 4096),
            (vec![to(0)], 100),
            (vec![to(0)], 65_537 * 512),
            ((0..257).map(|n| to(n * 512)).collect(), 512),
        ] {
            assert_eq!(namespace.copy(&segments, bs).unwrap_err().errno, libc::EINVAL, "{bs}");
        }
        assert_eq!(namespace.copy(&[to(0)], 512).unwrap_err().errno, libc::ENOTTY);
    }
}
