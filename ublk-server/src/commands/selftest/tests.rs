//! The clauses against a small disk in memory, right and with one mistake at a time: every clause has a mistake that
//! only a check of it can find.

use super::Failure;
use super::clauses::{Bench, CLAUSES, Verdict};
use super::target::{Done, Options, Outcome, Segment, Shape, Target};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const SIZE: u64 = 2 << 20;
const BLOCK: u64 = 512;
const MAP_BLOCK: u64 = 4096;
const SEGMENTS: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Success, and the last block is not copied.
    Short,
    /// Success, with fewer bytes.
    SaysLess,
    /// The source gets the destination's bytes.
    Swapped,
    /// All segments go where the first one goes.
    NotAdvancing,
    /// The destination shows what is written to the source later.
    Aliased,
    /// The block after a destination is overwritten.
    TailSpoilt,
    /// Whole map blocks are copied where only a part was asked for.
    HeadRounded,
    MovesAlthoughFastOnly,
    /// A fast-only copy that cannot be done is done by half.
    HalfAlthoughFastOnly,
    LimitsOfNothing,
    LastBlockUnreadable,
    FewerSegments,
    MoreSegments,
    /// Nothing checks that ranges are whole blocks.
    AnyAlignment,
    EmptyAccepted,
    /// A destination beyond the end is cut.
    BeyondTheEnd,
    /// Only the first source is checked against the end.
    SecondSourceUnchecked,
    /// Segments are copied before the next one is checked.
    CheckedLate,
    OverlapAccepted,
    /// Ranges that only touch are refused.
    TouchingRefused,
    DestinationsUnchecked,
    FuaRefused,
    /// With FUA nothing is copied.
    FuaIgnored,
}

struct Memory {
    wrong: Wrong,
    /// Its commands have whole blocks and one destination, and no options.
    terse: bool,
    shape: Shape,
    bytes: RefCell<Vec<u8>>,
    /// Source, length, destination of the last segment that was copied.
    last: Cell<Option<(u64, u64, u64)>>,
    copies: Rc<Cell<u32>>,
}

fn at(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

impl Memory {
    fn new(wrong: Wrong, copies: &Rc<Cell<u32>>) -> Self {
        let most = if wrong == Wrong::LimitsOfNothing { 0 } else { SEGMENTS };
        let shape = Shape {
            name: "memory".to_string(),
            size: SIZE,
            logical_block: BLOCK,
            physical_block: MAP_BLOCK,
            copy_max_bytes: 1 << 20,
            copy_max_segment_bytes: 1 << 20,
            copy_max_segments: most,
            zone_size: None,
        };
        let bytes = RefCell::new(vec![0; at(SIZE)]);
        Self { wrong, terse: false, shape, bytes, last: Cell::new(None), copies: Rc::clone(copies) }
    }

    fn admit(&self, segments: &[(u64, u64, u64)], fua: bool) -> Result<(), String> {
        let refuse = |code: &str| Err(code.to_string());
        let most = match self.wrong {
            Wrong::FewerSegments => SEGMENTS - 1,
            Wrong::MoreSegments => SEGMENTS + 1,
            _ => SEGMENTS,
        };
        if segments.len() > at(most.into()) || (segments.is_empty() && self.wrong != Wrong::EmptyAccepted) {
            return refuse("segments");
        }
        if fua && self.wrong == Wrong::FuaRefused {
            return refuse("fua");
        }
        for (index, &(source, length, destination)) in segments.iter().enumerate() {
            let whole = [source, length, destination].iter().all(|bytes| bytes.is_multiple_of(BLOCK));
            if length == 0 || !(whole || self.wrong == Wrong::AnyAlignment) {
                return refuse("alignment");
            }
            let unchecked = self.wrong == Wrong::SecondSourceUnchecked && index > 0;
            if (source + length > SIZE && !unchecked)
                || (destination + length > SIZE && self.wrong != Wrong::BeyondTheEnd)
            {
                return refuse("end");
            }
        }
        if overlaps(self.wrong, segments) { refuse("overlap") } else { Ok(()) }
    }

    fn move_segment(&self, (source, length, mut destination): (u64, u64, u64), first: u64) {
        let mut bytes = self.bytes.borrow_mut();
        let mut range = at(source.min(SIZE - BLOCK))..at((source + length).min(SIZE));
        match self.wrong {
            Wrong::Short => range.end -= at(BLOCK),
            Wrong::NotAdvancing => destination = first,
            Wrong::HeadRounded => {
                let head = destination % MAP_BLOCK;
                range.start = range.start.saturating_sub(at(head));
                destination -= head;
            }
            Wrong::TailSpoilt => bytes[at(destination + length)] ^= 1,
            Wrong::Swapped => {
                bytes.copy_within(at(destination)..at(destination + length), range.start);
                return;
            }
            _ => {}
        }
        range.end = range.end.min(range.start + at(SIZE - destination.min(SIZE)));
        bytes.copy_within(range, at(destination.min(SIZE)));
    }
}

fn overlaps(wrong: Wrong, segments: &[(u64, u64, u64)]) -> bool {
    let slack = u64::from(wrong == Wrong::TouchingRefused);
    let meet = |a: u64, a_len: u64, b: u64, b_len: u64| a < b + b_len + slack && b < a + a_len + slack;
    segments.iter().enumerate().any(|(index, &(_, length, destination))| {
        segments.iter().enumerate().any(|(other, &(source, other_length, other_destination))| {
            let sources = wrong != Wrong::OverlapAccepted && meet(destination, length, source, other_length);
            let destinations = wrong != Wrong::DestinationsUnchecked
                && index != other
                && meet(destination, length, other_destination, other_length);
            sources || destinations
        })
    })
}

impl Target for Memory {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Failure> {
        if self.wrong == Wrong::LastBlockUnreadable && offset + length == SIZE {
            return Err(Failure::failed("the last block cannot be read"));
        }
        Ok(self.bytes.borrow()[at(offset)..at(offset + length)].to_vec())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        self.bytes.borrow_mut()[at(offset)..][..data.len()].copy_from_slice(data);
        match self.last.get() {
            Some((source, length, destination)) if self.wrong == Wrong::Aliased && source == offset => {
                self.bytes.borrow_mut().copy_within(at(source)..at(source + length), at(destination));
            }
            _ => {}
        }
        Ok(())
    }

    fn cannot(&self, segments: &[Segment], options: Options) -> Option<String> {
        let in_a_row = segments.windows(2).all(|pair| pair[0].2 + pair[0].1 == pair[1].2);
        let said = !self.terse
            || (in_a_row
                && (1..=at(SEGMENTS.into())).contains(&segments.len())
                && segments
                    .iter()
                    .all(|(source, length, to)| (source | length | to) % BLOCK == 0 && *length > 0)
                && !options.fast_only);
        (!said).then(|| "too terse".to_string())
    }

    fn copy(&self, segments: &[Segment], options: Options) -> Result<Outcome, Failure> {
        assert_eq!(self.cannot(segments, options), None);
        let Options { fua, fast_only, .. } = options;
        self.copies.set(self.copies.get() + 1);
        if let Err(code) = self.admit(segments, fua) {
            if let (Wrong::CheckedLate, Some(first)) = (self.wrong, segments.first()) {
                self.move_segment(*first, first.2);
            }
            return Ok(Err(code));
        }
        let congruent = segments.iter().all(|(source, _, to)| source % MAP_BLOCK == to % MAP_BLOCK);
        if fast_only && !congruent && self.wrong != Wrong::MovesAlthoughFastOnly {
            if self.wrong == Wrong::HalfAlthoughFastOnly {
                self.move_segment(segments[0], segments[0].2);
            }
            return Ok(Err("not fast".to_string()));
        }
        if !(fua && self.wrong == Wrong::FuaIgnored) {
            segments.iter().for_each(|segment| self.move_segment(*segment, segments[0].2));
        }
        self.last.set(segments.last().copied());
        let bytes: u64 = segments.iter().map(|(_, length, _)| length).sum();
        let less = if self.wrong == Wrong::SaysLess { BLOCK } else { 0 };
        Ok(Ok(Done { bytes: bytes - less, moved: if congruent { 0 } else { bytes } }))
    }
}

/// The numbers of the clauses that are broken, and the copy commands it took.
fn judge(wrong: Wrong) -> (Vec<&'static str>, u32) {
    let copies = Rc::new(Cell::new(0));
    let target = Box::new(Memory::new(wrong, &copies));
    let bench = Bench { target, start: 0, length: 1 << 20 };
    let broken = CLAUSES.iter().filter(|clause| {
        let verdict = (clause.run)(&bench).unwrap_or_else(|failure| Verdict::Broken(failure.message));
        assert!(!matches!(verdict, Verdict::Skipped(_)), "{}: {verdict:?}", clause.number);
        verdict != Verdict::Holds
    });
    (broken.map(|clause| clause.number).collect(), copies.get())
}

#[test]
fn a_right_disk_breaks_no_clause() {
    let (broken, copies) = judge(Wrong::Nothing);
    assert_eq!(broken, [""; 0]);
    assert!(copies > 40, "{copies}");
}

/// Limits lower than what the clauses would like to copy, and commands that cannot say all that they would like to say.
#[test]
fn a_right_disk_with_few_words_and_low_limits_breaks_no_clause() {
    let copies = Rc::new(Cell::new(0));
    let mut memory = Memory::new(Wrong::Nothing, &copies);
    memory.terse = true;
    (memory.shape.copy_max_bytes, memory.shape.copy_max_segment_bytes) = (48 << 10, 40 << 10);
    let bench = Bench { target: Box::new(memory), start: 0, length: 1 << 20 };
    assert_eq!(bench.too_small(), None);
    for clause in &CLAUSES {
        let verdict = (clause.run)(&bench).unwrap();
        let expected = match clause.number {
            "1.6" => Verdict::Skipped("too terse".to_string()),
            _ => Verdict::Holds,
        };
        assert_eq!(verdict, expected, "{}", clause.number);
    }
    assert!(copies.get() > 25, "{}", copies.get());
}

#[test]
fn limits_too_low_for_a_copy_are_noticed() {
    let mut memory = Memory::new(Wrong::Nothing, &Rc::default());
    memory.shape.copy_max_bytes = 15 * BLOCK;
    let bench = Bench { target: Box::new(memory), start: 0, length: 1 << 20 };
    assert!(bench.too_small().is_some());
}

#[test]
fn each_mistake_breaks_the_clause_that_forbids_it() {
    let canaries = [
        (Wrong::Short, "1.1"),
        (Wrong::SaysLess, "1.1"),
        (Wrong::Swapped, "1.1"),
        (Wrong::NotAdvancing, "1.2"),
        (Wrong::Aliased, "1.3"),
        (Wrong::TailSpoilt, "1.4"),
        (Wrong::HeadRounded, "1.4"),
        (Wrong::MovesAlthoughFastOnly, "1.6"),
        (Wrong::HalfAlthoughFastOnly, "1.6"),
        (Wrong::LimitsOfNothing, "2.0"),
        (Wrong::LastBlockUnreadable, "2.0"),
        (Wrong::FewerSegments, "2.1"),
        (Wrong::MoreSegments, "2.1"),
        (Wrong::AnyAlignment, "2.2"),
        (Wrong::EmptyAccepted, "2.2"),
        (Wrong::BeyondTheEnd, "2.2"),
        (Wrong::SecondSourceUnchecked, "2.2"),
        (Wrong::CheckedLate, "2.3"),
        (Wrong::OverlapAccepted, "3.1"),
        (Wrong::TouchingRefused, "3.1"),
        (Wrong::DestinationsUnchecked, "3.1"),
        (Wrong::FuaRefused, "6.1"),
        (Wrong::FuaIgnored, "6.1"),
    ];
    for (wrong, clause) in canaries {
        let (broken, _) = judge(wrong);
        assert!(broken.contains(&clause), "{wrong:?} breaks {broken:?}, not {clause}");
    }
    let judged: Vec<&str> = canaries.iter().map(|(_, clause)| *clause).collect();
    let without = CLAUSES.iter().find(|clause| !judged.contains(&clause.number));
    assert!(without.is_none(), "{} has no mistake", without.map_or("", |clause| clause.number));
}
