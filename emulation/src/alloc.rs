//! The allocator of physical blocks.
//!
//! Blocks are kept in groups, a bit each. A group is made when its first block is used, and not before every
//! block of the groups made so far is in use: what lies beyond was never touched. Each group knows a length that
//! none of its free runs exceeds, and groups are found by the class of that length, so that a search looks only
//! where what it wants may be.

use bitvec::order::Lsb0;
use bitvec::slice::BitSlice;
use bitvec::vec::BitVec;
use std::collections::BTreeSet;
use std::ops::Range;

type Bits = BitSlice<u64, Lsb0>;

/// The most searches of groups that one allocation makes in vain.
const SEARCHED_GROUPS: usize = 4;
/// Bits in a word of a group.
const WORD_BITS: usize = 64;

/// Which blocks of a store are in use.
#[derive(Clone, Debug)]
pub struct Allocator {
    blocks: u64,
    blocks_per_group: usize,
    /// The groups made so far. All blocks behind them are free.
    groups: Vec<Group>,
    /// The groups with free blocks, by the class of [`Group::longest`].
    classes: Vec<BTreeSet<usize>>,
    used: u64,
}

/// A group of blocks. Numbers count from its first block.
#[derive(Clone, Debug)]
struct Group {
    /// A set bit for each block in use; empty when none is.
    bits: BitVec<u64, Lsb0>,
    size: usize,
    free: usize,
    /// No free run is longer.
    longest: usize,
    /// Where the next search begins.
    next: usize,
}

/// The class of a run: log2 of its length, which is not 0.
fn class_of(len: usize) -> usize {
    len.ilog2() as usize
}

/// A block number as an index. Indices fit: the bits of every group made are in memory.
fn index(number: u64) -> usize {
    usize::try_from(number).expect("64-bit indices")
}

impl Group {
    fn new(size: usize) -> Self {
        Self { bits: BitVec::new(), size, free: size, longest: size, next: 0 }
    }

    fn is_used(&self, block: usize) -> bool {
        self.free < self.size && self.bits[block]
    }

    /// The free run of at most `want` blocks that begins at `start`, which is free.
    fn run_at(&self, start: usize, want: usize) -> Range<usize> {
        let most = want.min(self.size - start);
        if self.free == self.size {
            return start..start + most;
        }
        start..start + self.bits[start..start + most].first_one().unwrap_or(most)
    }

    /// The start of a free run of `len` blocks, searched for from where the last search ended.
    fn search(&mut self, len: usize) -> Option<usize> {
        if len > self.longest {
            return None;
        }
        if self.free == self.size {
            return Some(0);
        }
        let words = self.bits.as_raw_slice();
        let found = first_run(words, self.next / WORD_BITS, len).or_else(|| first_run(words, 0, len));
        if found.is_none() {
            self.longest = len - 1;
            self.next = 0;
        }
        found
    }

    fn take(&mut self, run: Range<usize>) {
        if self.free == self.size {
            self.bits = BitVec::repeat(false, self.size.next_multiple_of(WORD_BITS));
            self.bits[self.size..].fill(true);
        }
        self.free -= run.len();
        self.longest = self.longest.min(self.free);
        self.next = run.end;
        self.bits[run].fill(true);
    }

    fn give_back(&mut self, run: Range<usize>) {
        assert!(self.free < self.size && self.bits[run.clone()].all(), "a block of {run:?} is free already");
        self.bits[run.clone()].fill(false);
        self.free += run.len();
        if self.free == self.size {
            *self = Self::new(self.size);
            return;
        }
        let before: &Bits = &self.bits[..run.start];
        let start = before.last_one().map_or(0, |used| used + 1);
        let end = run.end + self.bits[run.end..].first_one().unwrap_or(self.size - run.end);
        if end - start > self.longest {
            // The longest run begins here, so the next search does.
            self.longest = end - start;
            self.next = start;
        }
    }
}

/// The first run of `len` clear bits that begins in word number `from` or behind it.
fn first_run(words: &[u64], from: usize, len: usize) -> Option<usize> {
    // Clear bits up to the end of the word before.
    let mut run = 0;
    for (word, &used) in words.iter().enumerate().skip(from) {
        let at = word * WORD_BITS;
        if run + used.trailing_zeros() as usize >= len {
            return Some(at - run);
        }
        if used == 0 {
            run += WORD_BITS;
            continue;
        }
        if len < WORD_BITS && used != u64::MAX {
            // Bit n says that the `have` bits from bit n on are clear.
            let (mut clear, mut have) = (!used, 1);
            while have < len {
                let more = have.min(len - have);
                clear &= clear >> more;
                have += more;
            }
            if clear != 0 {
                return Some(at + clear.trailing_zeros() as usize);
            }
        }
        run = used.leading_zeros() as usize;
    }
    None
}

impl Allocator {
    /// An allocator of `blocks` blocks, all free, in groups of `blocks_per_group`, which is not 0.
    pub fn new(blocks: u64, blocks_per_group: u64) -> Self {
        let blocks_per_group = index(blocks_per_group);
        let classes = vec![BTreeSet::new(); class_of(blocks_per_group) + 1];
        Self { blocks, blocks_per_group, groups: Vec::new(), classes, used: 0 }
    }

    /// Takes a run of 1 to `want` free blocks; `None` when no block is free. The run begins at `near` if that
    /// block is free and of a group that was used before; otherwise it has `want` blocks if a short search finds
    /// so many. Panics for a `want` of 0.
    pub fn allocate(&mut self, want: u64, near: Option<u64>) -> Option<Range<u64>> {
        assert!(want > 0, "no blocks wanted");
        let want = index(want.min(self.blocks_per_group as u64));
        let (group, run) = near
            .and_then(|block| self.run_near(block, want))
            .or_else(|| self.search(want))
            .or_else(|| self.make_group(want))?;
        self.change(group, |group| group.take(run.clone()));
        self.used += run.len() as u64;
        let first = self.first_block(group);
        Some(first + run.start as u64..first + run.end as u64)
    }

    /// Takes certain blocks, those that a durable image names. Panics when one of them is in use.
    pub fn take(&mut self, range: Range<u64>) {
        assert!(range.end <= self.blocks, "blocks {range:?} of {}", self.blocks);
        let mut at = range.start;
        while at < range.end {
            let (number, start) = self.place(at);
            while self.groups.len() <= number {
                self.push_group();
            }
            let group = &self.groups[number];
            let end = (start + index(range.end - at)).min(group.size);
            let free = group.free == group.size || group.bits[start..end].not_any();
            assert!(free, "a block of {range:?} is in use already");
            self.change(number, |group| group.take(start..end));
            self.used += (end - start) as u64;
            at += (end - start) as u64;
        }
    }

    /// Gives blocks back. Panics when one of them is not in use.
    pub fn free(&mut self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let (group, start) = self.place(at);
            assert!(group < self.groups.len(), "block {at} was never in use");
            let end = (start + index(range.end - at)).min(self.groups[group].size);
            self.change(group, |group| group.give_back(start..end));
            self.used -= (end - start) as u64;
            at += (end - start) as u64;
        }
    }

    /// Blocks not in use.
    pub fn free_blocks(&self) -> u64 {
        self.blocks - self.used
    }

    /// Blocks in use.
    pub fn used_blocks(&self) -> u64 {
        self.used
    }

    /// All blocks.
    pub fn total(&self) -> u64 {
        self.blocks
    }

    /// True when the block is in use.
    pub fn is_used(&self, block: u64) -> bool {
        assert!(block < self.blocks, "block {block} of {}", self.blocks);
        let (group, block) = self.place(block);
        self.groups.get(group).is_some_and(|group| group.is_used(block))
    }

    /// The group of a block, and its number there.
    fn place(&self, block: u64) -> (usize, usize) {
        let block = index(block);
        (block / self.blocks_per_group, block % self.blocks_per_group)
    }

    /// The first block of a group.
    fn first_block(&self, group: usize) -> u64 {
        (group * self.blocks_per_group) as u64
    }

    /// The free run at a block, if it is free.
    fn run_near(&self, block: u64, want: usize) -> Option<(usize, Range<usize>)> {
        let (number, block) = self.place(block);
        let group = self.groups.get(number)?;
        (block < group.size && !group.is_used(block)).then(|| (number, group.run_at(block, want)))
    }

    /// A free run of the groups made so far: of `want` blocks where a short search finds one.
    fn search(&mut self, want: usize) -> Option<(usize, Range<usize>)> {
        for tries in (0..=SEARCHED_GROUPS).rev() {
            let number = self.candidate(want)?;
            let longest = self.groups[number].longest;
            // Where no group may have a whole run, those of the highest class are as good as any.
            let len = if longest >= want { want } else { 1 << class_of(longest) };
            let len = if tries > 0 { len } else { 1 };
            if let Some(start) = self.change(number, |group| group.search(len)) {
                return Some((number, self.groups[number].run_at(start, want)));
            }
        }
        None
    }

    /// The group to search for `want` blocks: of those that may have so many the one with the shortest runs, so
    /// that long runs stay whole; when there is none, one of those with the longest.
    fn candidate(&self, want: usize) -> Option<usize> {
        let class = class_of(want.next_power_of_two()).min(self.classes.len());
        let (below, whole) = self.classes.split_at(class);
        whole.iter().chain(below.iter().rev()).find_map(|groups| groups.first().copied())
    }

    /// Makes the next group, and gives the run of its first blocks; `None` when there is no other.
    fn make_group(&mut self, want: usize) -> Option<(usize, Range<usize>)> {
        let number = self.groups.len();
        if self.first_block(number) >= self.blocks {
            return None;
        }
        self.push_group();
        Some((number, 0..want.min(self.groups[number].size)))
    }

    /// Adds a group, all free.
    fn push_group(&mut self) {
        let number = self.groups.len();
        let left = self.blocks - self.first_block(number);
        let size = index(left.min(self.blocks_per_group as u64));
        self.groups.push(Group::new(size));
        self.classes[class_of(size)].insert(number);
    }

    /// Changes a group and keeps the class under which it is found.
    fn change<T>(&mut self, number: usize, f: impl FnOnce(&mut Group) -> T) -> T {
        let group = &mut self.groups[number];
        let before = group.longest;
        let result = f(group);
        let after = group.longest;
        if before.checked_ilog2() != after.checked_ilog2() {
            if before > 0 {
                self.classes[class_of(before)].remove(&number);
            }
            if after > 0 {
                self.classes[class_of(after)].insert(number);
            }
        }
        result
    }

    /// Checks every invariant. Slow: for simulations and tests.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut used = 0;
        for (number, group) in self.groups.iter().enumerate() {
            let pad = group.bits.len().saturating_sub(group.size);
            let ones = group.bits.count_ones() - pad;
            let bits = if ones == 0 { 0 } else { group.size.next_multiple_of(WORD_BITS) };
            if group.bits.len() != bits || group.free != group.size - ones || group.next > group.size {
                return Err(format!("group {number} has {ones} used blocks: {group:?}"));
            }
            used += ones as u64;
            let longest = if ones == 0 { group.size } else { longest_run(&group.bits) };
            if group.longest < longest || (group.longest > 0) != (group.free > 0) {
                return Err(format!("group {number} has a run of {longest}, not {}", group.longest));
            }
            for (class, groups) in self.classes.iter().enumerate() {
                let expected = group.longest > 0 && class_of(group.longest) == class;
                if groups.contains(&number) != expected {
                    return Err(format!("group {number} with runs of {} in class {class}", group.longest));
                }
            }
        }
        if used != self.used || self.used > self.blocks {
            return Err(format!("{} of {} blocks counted as used; {used} are", self.used, self.blocks));
        }
        Ok(())
    }
}

/// The longest run of clear bits.
fn longest_run(bits: &Bits) -> usize {
    let (mut longest, mut run) = (0, 0);
    for used in bits {
        run = if *used { 0 } else { run + 1 };
        longest = longest.max(run);
    }
    longest
}

#[cfg(test)]
mod tests;
