//! Against a model of one truth value a block.

use super::*;
use proptest::prelude::*;

/// An act on an allocator. Numbers are reduced to what there is.
#[derive(Clone, Debug)]
enum Act {
    Allocate(u64),
    AllocateNear(u64, usize),
    /// Gives back a part of what is held, by number.
    Free(usize, u64, u64),
    FreeAll,
    /// Takes certain blocks, as far as they are free.
    Take(u64, u64),
}

/// An allocator with its model: which blocks are in use, and in which runs.
struct Checked {
    allocator: Allocator,
    used: Vec<bool>,
    runs: Vec<Range<u64>>,
    blocks_per_group: u64,
    groups_made: u64,
}

impl Checked {
    fn new(blocks: u64, blocks_per_group: u64) -> Self {
        Self {
            allocator: Allocator::new(blocks, blocks_per_group),
            used: vec![false; index(blocks)],
            runs: Vec::new(),
            blocks_per_group,
            groups_made: 0,
        }
    }

    fn is_used(&self, block: u64) -> bool {
        self.used[index(block)]
    }

    fn mark(&mut self, range: Range<u64>, used: bool) {
        for block in range {
            assert_ne!(self.is_used(block), used, "block {block}");
            self.used[index(block)] = used;
        }
    }

    /// The blocks of the groups made so far.
    fn touched(&self) -> &[bool] {
        let blocks = (self.groups_made * self.blocks_per_group).min(self.allocator.total());
        &self.used[..index(blocks)]
    }

    /// True when a group made so far has a free run of `len`.
    fn has_run(&self, len: u64) -> bool {
        let groups = self.touched().chunks(index(self.blocks_per_group));
        groups.flat_map(|group| group.split(|used| *used)).any(|run| run.len() >= index(len))
    }

    fn allocate(&mut self, want: u64, near: Option<u64>) {
        let run = self.allocator.allocate(want, near);
        let Some(run) = run else {
            assert!(self.used.iter().all(|used| *used), "refused with blocks free");
            return;
        };
        assert!(run.start < run.end && run.end - run.start <= want && run.end <= self.allocator.total());
        let group = run.start / self.blocks_per_group;
        assert_eq!(group, (run.end - 1) / self.blocks_per_group, "a run lies in one group");

        let near = near.filter(|&near| near < self.touched().len() as u64 && !self.is_used(near));
        if let Some(near) = near {
            assert_eq!(run.start, near, "a free block asked for is where it begins");
        }
        if near.is_some() || group == self.groups_made {
            let group_end = ((group + 1) * self.blocks_per_group).min(self.allocator.total());
            let whole = run.end - run.start == want || run.end == group_end || self.is_used(run.end);
            assert!(whole, "{run:?} could go on");
        } else if want.is_power_of_two() && self.groups_made <= SEARCHED_GROUPS as u64 && self.has_run(want) {
            assert_eq!(run.end - run.start, want, "a whole run is found where few groups are to be searched");
        }
        if group == self.groups_made {
            assert!(self.touched().iter().all(|used| *used), "a group is made before all others are full");
            self.groups_made += 1;
        }
        assert!(group < self.groups_made);
        self.mark(run.clone(), true);
        self.runs.push(run);
    }

    fn free(&mut self, run: Range<u64>) {
        self.allocator.free(run.clone());
        self.mark(run, false);
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Allocate(want) => self.allocate(want, None),
            Act::AllocateNear(want, after) => {
                let near = self.runs.get(after % self.runs.len().max(1)).map_or(0, |run| run.end);
                self.allocate(want, Some(near));
            }
            Act::Free(which, skip, len) => {
                if self.runs.is_empty() {
                    return;
                }
                let run = self.runs.swap_remove(which % self.runs.len());
                let start = run.start + skip % (run.end - run.start);
                let end = run.end.min(start + len);
                self.free(start..end);
                self.runs
                    .extend([run.start..start, end..run.end].into_iter().filter(|rest| !rest.is_empty()));
            }
            Act::Take(start, len) => {
                let start = start % self.allocator.total();
                let end = (start + len).min(self.allocator.total());
                let end = (start..end).find(|&block| self.is_used(block)).unwrap_or(end);
                if start == end {
                    return;
                }
                self.allocator.take(start..end);
                self.mark(start..end, true);
                self.runs.push(start..end);
                self.groups_made = self.groups_made.max((end - 1) / self.blocks_per_group + 1);
            }
            Act::FreeAll => {
                for run in std::mem::take(&mut self.runs) {
                    self.free(run);
                }
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.allocator.check(), Ok(()));
        let used = self.used.iter().filter(|used| **used).count() as u64;
        assert_eq!(self.allocator.used_blocks(), used);
        assert_eq!(self.allocator.free_blocks(), self.allocator.total() - used);
        for (block, &used) in (0..).zip(&self.used) {
            assert_eq!(self.allocator.is_used(block), used, "block {block}");
        }
    }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        12 => (1..40u64).prop_map(Act::Allocate),
        6 => (1..40u64, any::<usize>()).prop_map(|(want, after)| Act::AllocateNear(want, after)),
        14 => (any::<usize>(), any::<u64>(), 1..30u64).prop_map(|(which, skip, len)| Act::Free(which, skip, len)),
        1 => Just(Act::FreeAll),
        1 => (any::<u64>(), 1..200u64).prop_map(|(start, len)| Act::Take(start, len)),
    ];
    prop::collection::vec(act, 1..150)
}

proptest! {
    /// Group sizes that are powers of two and not, a last group that is smaller, few groups and many.
    #[test]
    fn like_the_model(blocks in 1..600u64, blocks_per_group in 1..130u64, acts in acts()) {
        let mut checked = Checked::new(blocks, blocks_per_group);
        for act in &acts {
            checked.act(act);
            checked.check();
        }
    }

    /// Nearly full all the time.
    #[test]
    fn like_the_model_when_nearly_full(acts in acts()) {
        let mut checked = Checked::new(512, 128);
        while checked.allocator.free_blocks() > 0 {
            checked.allocate(3, None);
        }
        for act in acts.iter().filter(|act| !matches!(act, Act::FreeAll)) {
            checked.act(act);
            checked.check();
        }
    }
}

#[test]
fn a_sequential_fill_is_one_run() {
    let mut checked = Checked::new(1000, 64);
    let mut near = None;
    let mut end = 0;
    while checked.allocator.free_blocks() > 0 {
        checked.allocate(7, near);
        let run = checked.runs.last().unwrap();
        assert_eq!(run.start, end);
        end = run.end;
        near = Some(end);
    }
    checked.check();
    checked.allocate(1, near);
    assert_eq!(end, 1000);
}

#[test]
fn freed_blocks_are_used_before_untouched_groups() {
    let mut checked = Checked::new(1 << 20, 64);
    for _ in 0..4 {
        checked.allocate(64, None);
    }
    checked.free(5..6);
    checked.free(130..140);
    checked.allocate(64, None);
    assert_eq!(checked.runs.last(), Some(&(130..140)), "the longest there is");
    checked.allocate(64, Some(256));
    assert_eq!(checked.runs.last(), Some(&(5..6)), "before group 4, even if asked for");
    checked.allocate(64, Some(256));
    assert_eq!(checked.runs.last(), Some(&(256..320)));
    checked.check();
}

#[test]
fn a_short_request_leaves_long_runs_whole() {
    let mut checked = Checked::new(256, 64);
    for _ in 0..4 {
        checked.allocate(64, None);
    }
    checked.free(0..32);
    checked.free(70..71);
    checked.allocate(1, None);
    assert_eq!(checked.runs.last(), Some(&(70..71)));
    checked.allocate(32, None);
    assert_eq!(checked.runs.last(), Some(&(0..32)));
}

#[test]
fn a_group_that_is_free_again_keeps_no_bits() {
    let mut allocator = Allocator::new(1 << 30, 1 << 15);
    let run = allocator.allocate(1 << 15, None).unwrap();
    assert!(allocator.groups[0].bits.capacity() > 0);
    allocator.free(run);
    assert_eq!(allocator.groups[0].bits.capacity(), 0);
    assert_eq!(allocator.groups.len(), 1, "an allocator of many blocks has the groups it used");
}

#[test]
#[should_panic(expected = "is free already")]
fn a_double_free_panics() {
    let mut allocator = Allocator::new(100, 64);
    allocator.allocate(20, None);
    allocator.free(3..4);
    allocator.free(2..5);
}

#[test]
#[should_panic(expected = "is free already")]
fn a_double_free_of_a_whole_group_panics() {
    let mut allocator = Allocator::new(100, 64);
    let run = allocator.allocate(20, None).unwrap();
    allocator.free(run.clone());
    allocator.free(run);
}

#[test]
#[should_panic(expected = "was never in use")]
fn a_free_of_what_was_never_used_panics() {
    let mut allocator = Allocator::new(100, 64);
    allocator.allocate(20, None);
    allocator.free(64..65);
}

#[test]
#[should_panic(expected = "is in use already")]
fn taking_a_block_in_use_panics() {
    let mut allocator = Allocator::new(100, 64);
    allocator.take(50..70);
    allocator.take(69..71);
}

#[test]
fn an_empty_free_is_nothing() {
    let mut allocator = Allocator::new(100, 64);
    allocator.free(70..70);
    assert_eq!(allocator.free_blocks(), 100);
    assert_eq!(Allocator::new(0, 64).allocate(1, None), None);
}

#[test]
fn what_an_image_names_is_taken_across_groups_and_not_given_out() {
    let mut allocator = Allocator::new(100, 32);
    allocator.take(20..70);
    allocator.check().unwrap();
    assert_eq!((allocator.used_blocks(), allocator.is_used(19), allocator.is_used(69)), (50, false, true));
    let mut given = Vec::new();
    while let Some(run) = allocator.allocate(7, None) {
        given.extend(run);
    }
    given.sort_unstable();
    assert!(given.into_iter().eq((0..20).chain(70..100)));
    allocator.free(20..70);
    allocator.check().unwrap();
}

#[test]
#[should_panic(expected = "in use already")]
fn a_block_is_not_taken_twice() {
    let mut allocator = Allocator::new(100, 32);
    allocator.take(5..6);
    allocator.take(0..10);
}
