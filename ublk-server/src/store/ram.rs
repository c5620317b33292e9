//! A store in memory: one sparse mapping, made page by page on first use.
//!
//! The one file with `unsafe` for that mapping. Its callers hand in the ranges of a live plan's steps. A pool writes
//! a physical block by one plan only, the one that allocated it, and frees it only when no plan reads it; a trim
//! names free blocks. So nobody else touches the bytes of a step while it runs, except to read what is only read.

use super::stream;
use emulation::{PhysSector, Sectors, StoreRange};
use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// A sparse memory.
#[derive(Debug)]
pub struct RamStore {
    mapping: MmapRaw,
    page: usize,
    /// The file in shared memory that it is a mapping of, and that outlives the server.
    file: Option<File>,
}

impl RamStore {
    /// Room for `physical` sectors; costs address space until written.
    ///
    /// # Errors
    /// The address space could not be had: the machine forbids overcommitment (`vm.overcommit_memory=2`) or the
    /// process is limited.
    pub fn new(physical: Sectors) -> io::Result<Self> {
        let len = usize::try_from(physical.bytes().0).map_err(|_| Errno::NOMEM)?;
        let mapping = MmapRaw::from(MmapOptions::new().len(len).no_reserve_swap().map_anon()?);
        // Huge pages would cost up to 512 times what was written, beyond the cap of the pool. A kernel without
        // them refuses the advice, and needs none.
        match mapping.advise(Advice::NoHugePage) {
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
            Ok(()) | Err(_) => {}
        }
        mapping.advise(Advice::DontDump)?;
        Ok(Self { mapping, page: rustix::param::page_size(), file: None })
    }

    /// The same in a file of shared memory, sparse, private, and of this server alone while it lives.
    ///
    /// # Errors
    /// The file cannot be made so large, or the address space could not be had.
    pub fn shared(file: File, physical: Sectors) -> io::Result<Self> {
        let len = usize::try_from(physical.bytes().0).map_err(|_| Errno::NOMEM)?;
        file.set_len(len as u64)?;
        let mapping = MmapOptions::new().len(len).no_reserve_swap().map_raw(&file)?;
        mapping.advise(Advice::DontDump)?;
        Ok(Self { mapping, page: rustix::param::page_size(), file: Some(file) })
    }

    /// Has the memory of a range made: where it cannot be had a store to it would be fatal.
    fn make(&self, range: StoreRange) -> Result<(), Errno> {
        let Some(file) = &self.file else { return Ok(()) };
        let (start, len) = (range.start.bytes().0, range.len.bytes().0);
        rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, start, len)
    }

    /// Where a range begins and how long it is, in bytes. Panics outside of the store.
    fn locate(&self, range: StoreRange) -> (usize, usize) {
        let start = range.start.bytes().0 as usize;
        let len = range.len.bytes().0 as usize;
        assert!(
            start.checked_add(len).is_some_and(|end| end <= self.mapping.len()),
            "{range:?} is not in the store"
        );
        (start, len)
    }

    fn bytes(&self, range: StoreRange) -> &[u8] {
        let (start, len) = self.locate(range);
        // SAFETY: in bounds by `locate`; mapped, readable and initialised (zero pages) as long as `self` lives. A
        // range that a plan reads is written by nobody until the plan is finished, see the head of this file.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().add(start), len) }
    }

    #[expect(clippy::mut_from_ref, reason = "exclusive by the pool's rule, not by the borrow checker")]
    fn bytes_mut(&self, range: StoreRange) -> &mut [u8] {
        let (start, len) = self.locate(range);
        // SAFETY: as in `bytes`, and writable. A range that a plan writes was allocated for it: no other plan reads
        // or writes it until the plan is finished, and this thread runs the plan's steps one after another.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_mut_ptr().add(start), len) }
    }

    /// Store to memory of the same length.
    pub(crate) fn read(&self, from: StoreRange, to: &mut [u8]) {
        to.copy_from_slice(self.bytes(from));
    }

    /// Memory to store, the same length.
    pub(crate) fn write(&self, from: &[u8], to: StoreRange) -> Result<(), Errno> {
        self.make(to)?;
        self.bytes_mut(to).copy_from_slice(from);
        Ok(())
    }

    /// Store to a file at `position`, all of it.
    pub(crate) fn read_to_file(&self, from: StoreRange, file: &File, position: u64) -> Result<(), Errno> {
        super::write_all_at(file, self.bytes(from), position)
    }

    /// A file at `position` to the store, all of it.
    pub(crate) fn write_from_file(&self, file: &File, position: u64, to: StoreRange) -> Result<(), Errno> {
        self.make(to)?;
        super::read_exact_at(file, self.bytes_mut(to), position)
    }

    /// Store to store. Panics when the two overlap: new blocks are never those that a plan reads.
    pub(crate) fn copy(&self, from: StoreRange, to: PhysSector) -> Result<(), Errno> {
        let to = StoreRange { start: to, len: from.len };
        assert!(
            from.start + from.len <= to.start || to.start + to.len <= from.start,
            "{from:?} overlaps {to:?}"
        );
        self.make(to)?;
        stream::copy(self.bytes_mut(to), self.bytes(from));
        Ok(())
    }

    /// Zeroes to the store.
    pub(crate) fn zero(&self, at: StoreRange) -> Result<(), Errno> {
        self.make(at)?;
        self.bytes_mut(at).fill(0);
        Ok(())
    }

    /// Gives the whole pages of a range back.
    pub(crate) fn trim(&self, at: StoreRange) -> io::Result<()> {
        let (start, len) = self.locate(at);
        let first = start.next_multiple_of(self.page);
        let end = (start + len) / self.page * self.page;
        if first >= end {
            return Ok(());
        }
        if let Some(file) = &self.file {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            return Ok(rustix::fs::fallocate(file, flags, first as u64, (end - first) as u64)?);
        }
        // SAFETY: the pages hold only blocks that are free, so that nobody holds a reference into them; they read as
        // zeroes afterwards, which are initialised bytes.
        unsafe { self.mapping.unchecked_advise_range(UncheckedAdvice::DontNeed, first, end - first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, len: u64) -> StoreRange {
        StoreRange { start: PhysSector(start), len: Sectors(len) }
    }

    #[test]
    fn a_terabyte_costs_nothing_and_its_last_sector_works() {
        let store = RamStore::new(Sectors(1 << 31)).unwrap();
        let last = range((1 << 31) - 1, 1);
        store.write(&[7; 512], last).unwrap();
        let mut read = [0; 512];
        store.read(last, &mut read);
        assert_eq!(read, [7; 512]);
    }

    #[test]
    fn a_trim_gives_back_whole_pages_only() {
        let page = rustix::param::page_size() as u64 / 512;
        let store = RamStore::new(Sectors(4 * page)).unwrap();
        let all = range(0, 4 * page);
        store.bytes_mut(all).fill(1);
        store.trim(range(1, 3 * page)).unwrap();
        let bytes = store.bytes(all);
        let page = page as usize * 512;
        assert!(bytes[..page].iter().all(|&b| b == 1));
        assert!(bytes[page..3 * page].iter().all(|&b| b == 0));
        assert!(bytes[3 * page..].iter().all(|&b| b == 1));
        store.trim(range(1, 2)).unwrap();
        assert_eq!(store.bytes(range(1, 1))[0], 1);
    }

    #[test]
    #[should_panic(expected = "is not in the store")]
    fn a_step_beyond_the_end_is_a_bug() {
        RamStore::new(Sectors(8)).unwrap().zero(range(7, 2)).unwrap();
    }
}
