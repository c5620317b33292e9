//! The clauses of SEMANTICS.md that can be seen from outside, one function each, named by their numbers.

use super::Failure;
use super::target::{Done, Options, Outcome, Segment, Target};

/// The least scratch range: sixteen areas of 64 KiB.
pub(super) const SCRATCH_MIN: u64 = 16 * AREA;
/// A part of the scratch range that one side of a copy uses, or as much of it as the limits allow.
const AREA: u64 = 64 << 10;

/// How a clause did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Holds,
    Broken(String),
    /// Not tested, and what was lacking.
    Skipped(String),
}

/// A clause: its number, its words, what tries it.
pub(super) struct Clause {
    pub(super) number: &'static str,
    pub(super) words: &'static str,
    /// It writes to the scratch range.
    pub(super) writes: bool,
    pub(super) run: fn(&Bench) -> Result<Verdict, Failure>,
}

/// A target and the range that may be overwritten.
pub(super) struct Bench {
    pub(super) target: Box<dyn Target>,
    pub(super) start: u64,
    pub(super) length: u64,
}

/// Every clause, in the order of their numbers.
pub(super) const CLAUSES: [Clause; 11] = [
    Clause {
        number: "1.1",
        words: "a copy leaves the source's bytes in the destination",
        writes: true,
        run: copies,
    },
    Clause {
        number: "1.2",
        words: "segments are copied as if one after another",
        writes: true,
        run: in_order,
    },
    Clause {
        number: "1.3",
        words: "a later write to the source does not reach the copy",
        writes: true,
        run: kept,
    },
    Clause {
        number: "1.4",
        words: "heads and tails touch nothing beside them",
        writes: true,
        run: heads_and_tails,
    },
    Clause {
        number: "1.6",
        words: "fast-only moves nothing or changes nothing",
        writes: true,
        run: fast_only,
    },
    Clause {
        number: "2.0",
        words: "the limits can be used, and both ends can be read",
        writes: false,
        run: readable,
    },
    Clause {
        number: "2.1",
        words: "as many segments as the limit says and not one more",
        writes: true,
        run: segments,
    },
    Clause {
        number: "2.2",
        words: "malformed and outlying ranges are refused",
        writes: true,
        run: malformed,
    },
    Clause { number: "2.3", words: "a refused command changes nothing", writes: true, run: unchanged },
    Clause { number: "3.1", words: "overlap is refused exactly", writes: true, run: overlap },
    Clause { number: "6.1", words: "a copy with FUA is carried out", writes: true, run: fua },
];

impl Bench {
    fn block(&self) -> u64 {
        self.target.shape().logical_block
    }

    /// The bytes of one side of a copy: a command may have two such segments.
    fn side(&self) -> u64 {
        let shape = self.target.shape();
        let most = AREA.min(shape.copy_max_segment_bytes).min(shape.copy_max_bytes / 2);
        most - most % (2 * self.block())
    }

    /// Why nothing can be copied, if the limits are too low for that.
    pub(super) fn too_small(&self) -> Option<String> {
        let least = 8 * self.block();
        (self.side() < least)
            .then(|| format!("needs limits of {least} bytes a segment and {} a command", 2 * least))
    }

    /// Sends a command without options.
    fn copy(&self, segments: &[Segment]) -> Result<Outcome, Failure> {
        self.target.copy(segments, Options::default())
    }

    /// The first byte of an area.
    fn area(&self, n: u64) -> u64 {
        self.start + n * AREA
    }

    /// Bytes that differ from block to block and from seed to seed.
    fn fill(&self, offset: u64, length: u64, seed: u64) -> Result<Vec<u8>, Failure> {
        let word = |n: u64| (n ^ (seed << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let data: Vec<u8> = (offset / 8..(offset + length) / 8).flat_map(word).collect();
        self.target.write(offset, &data)?;
        Ok(data)
    }

    fn holds(&self, offset: u64, expected: &[u8], what: &str) -> Result<Option<Verdict>, Failure> {
        let data = self.target.read(offset, expected.len() as u64)?;
        let place = data.iter().zip(expected).position(|(is, should)| is != should);
        Ok(place.map(|place| Verdict::Broken(format!("{what} differs at byte {}", offset + place as u64))))
    }

    /// The verdict of the first of several comparisons that fails.
    fn all(&self, expected: &[(u64, &[u8], &str)]) -> Result<Verdict, Failure> {
        for (offset, data, what) in expected {
            if let Some(broken) = self.holds(*offset, data, what)? {
                return Ok(broken);
            }
        }
        Ok(Verdict::Holds)
    }
}

fn refused(code: &str) -> Result<Verdict, Failure> {
    Ok(Verdict::Broken(format!("the copy failed: {code}")))
}

fn copies(bench: &Bench) -> Result<Verdict, Failure> {
    let source = bench.fill(bench.area(0), bench.side(), 1)?;
    bench.fill(bench.area(2), bench.side(), 2)?;
    match bench.copy(&[(bench.area(0), bench.side(), bench.area(2))])? {
        Err(code) => refused(&code),
        Ok(Done { bytes, .. }) if bytes != bench.side() => {
            Ok(Verdict::Broken(format!("success with {bytes} of {} bytes", bench.side())))
        }
        Ok(_) => {
            bench.all(&[(bench.area(2), &source, "the destination"), (bench.area(0), &source, "the source")])
        }
    }
}

fn in_order(bench: &Bench) -> Result<Verdict, Failure> {
    let parts = [bench.fill(bench.area(0), bench.side(), 3)?, bench.fill(bench.area(1), bench.side(), 4)?];
    let side = bench.side();
    let half = side / 2;
    let list = [
        (bench.area(1), half, bench.area(4)),
        (bench.area(0) + half, half, bench.area(4) + half),
        (bench.area(0), side, bench.area(4) + side),
    ];
    if let Err(code) = bench.copy(&list)? {
        return refused(&code);
    }
    let middle = usize::try_from(half).unwrap_or(usize::MAX);
    bench.all(&[
        (bench.area(4), &parts[1][..middle], "the first segment"),
        (bench.area(4) + half, &parts[0][middle..], "the second segment"),
        (bench.area(4) + side, &parts[0], "the third segment"),
    ])
}

fn kept(bench: &Bench) -> Result<Verdict, Failure> {
    let source = bench.fill(bench.area(0), bench.side(), 5)?;
    if let Err(code) = bench.copy(&[(bench.area(0), bench.side(), bench.area(2))])? {
        return refused(&code);
    }
    let later = bench.fill(bench.area(0), bench.side(), 6)?;
    bench.all(&[(bench.area(2), &source, "the destination"), (bench.area(0), &later, "the source")])
}

fn heads_and_tails(bench: &Bench) -> Result<Verdict, Failure> {
    let block = bench.block();
    let source = bench.fill(bench.area(0), bench.side(), 7)?;
    // Congruent, and then one block off.
    for shift in [block, 2 * block] {
        let mut expected = bench.fill(bench.area(2), bench.side(), 8)?;
        let length = bench.side() - 4 * block;
        if let Err(code) = bench.copy(&[(bench.area(0) + block, length, bench.area(2) + shift)])? {
            return refused(&code);
        }
        let at = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        expected[at(shift)..at(shift + length)].copy_from_slice(&source[at(block)..at(block + length)]);
        if let Some(broken) = bench.holds(bench.area(2), &expected, "the destination or what is beside it")? {
            return Ok(broken);
        }
    }
    Ok(Verdict::Holds)
}

fn fast_only(bench: &Bench) -> Result<Verdict, Failure> {
    let block = bench.block();
    let source = bench.fill(bench.area(0), bench.side(), 9)?;
    let before = bench.fill(bench.area(2), bench.side(), 10)?;
    let length = bench.side() - block;
    let list = [(bench.area(0), length, bench.area(2) + block)];
    let options = Options { fast_only: true, ..Options::default() };
    if let Some(why) = bench.target.cannot(&list, options) {
        return Ok(Verdict::Skipped(why));
    }
    // One block off the map block: not possible without moving, unless a block is all there is to share.
    match bench.target.copy(&list, options)? {
        Err(_) => bench.all(&[(bench.area(2), &before, "after a refusal the destination")]),
        Ok(Done { moved, .. }) if moved > 0 => Ok(Verdict::Broken(format!("{moved} bytes were moved"))),
        Ok(_) => {
            let end = usize::try_from(length).unwrap_or(usize::MAX);
            bench.all(&[(bench.area(2) + block, &source[..end], "the destination")])
        }
    }
}

fn readable(bench: &Bench) -> Result<Verdict, Failure> {
    let (shape, block) = (bench.target.shape(), bench.block());
    bench.target.read(0, block)?;
    bench.target.read(shape.size - block, block)?;
    let usable =
        shape.copy_max_segments > 0 && shape.copy_max_bytes >= block && shape.copy_max_segment_bytes >= block;
    Ok(if usable { Verdict::Holds } else { Verdict::Broken(format!("limits that allow no copy: {shape:?}")) })
}

fn segments(bench: &Bench) -> Result<Verdict, Failure> {
    let block = bench.block();
    let most = u64::from(bench.target.shape().copy_max_segments);
    let half = bench.length / 2;
    if (most + 1) * block > half || (most + 1) * block > bench.target.shape().copy_max_bytes {
        let need = 2 * (most + 1) * block;
        return Ok(Verdict::Skipped(format!(
            "needs a scratch range of {need} bytes and copy_max_bytes of half of it"
        )));
    }
    let list = |count: u64| -> Vec<Segment> {
        (0..count).map(|n| (bench.start + n * block, block, bench.start + half + n * block)).collect()
    };
    if let Err(code) = bench.copy(&list(most))? {
        return Ok(Verdict::Broken(format!("{most} segments are refused: {code}")));
    }
    // Where no command can name one more, none is taken.
    if bench.target.cannot(&list(most + 1), Options::default()).is_some() {
        return Ok(Verdict::Holds);
    }
    match bench.copy(&list(most + 1))? {
        Ok(_) => Ok(Verdict::Broken(format!("{} segments are accepted", most + 1))),
        Err(_) => Ok(Verdict::Holds),
    }
}

fn malformed(bench: &Bench) -> Result<Verdict, Failure> {
    let (block, end) = (bench.block(), bench.target.shape().size);
    let (from, to) = (bench.area(0), bench.area(2));
    let cases = [
        ("no segment", vec![]),
        ("an empty segment", vec![(from, 0, to)]),
        ("a source that is no whole block", vec![(from + 1, block, to)]),
        ("a length that is no whole block", vec![(from, block - 1, to)]),
        ("a destination that is no whole block", vec![(from, block, to + 1)]),
        ("a source beyond the end", vec![(end, block, to)]),
        ("a source across the end", vec![(end - block, 2 * block, to)]),
        ("a second source beyond the end", vec![(from, block, to), (end, block, to + block)]),
        ("a destination beyond the end", vec![(from, block, end)]),
    ];
    let options = Options::default();
    let said = |list: &Vec<Segment>| bench.target.cannot(list, options).is_none();
    for (what, list) in cases.into_iter().filter(|(_, list)| said(list)) {
        if bench.copy(&list)?.is_ok() {
            return Ok(Verdict::Broken(format!("{what} is accepted")));
        }
    }
    Ok(Verdict::Holds)
}

fn unchanged(bench: &Bench) -> Result<Verdict, Failure> {
    let block = bench.block();
    bench.fill(bench.area(0), bench.side(), 11)?;
    let before = bench.fill(bench.area(2), bench.side(), 12)?;
    // A good segment before the one for which the command is refused.
    let list =
        [(bench.area(0), block, bench.area(2)), (bench.target.shape().size, block, bench.area(2) + block)];
    match bench.copy(&list)? {
        Ok(_) => Ok(Verdict::Broken("a source beyond the end is accepted".to_string())),
        Err(_) => bench.all(&[(bench.area(2), &before, "the destination")]),
    }
}

/// Two intervals of every length and distance up to three blocks, as source and destination and as two destinations.
fn overlap(bench: &Bench) -> Result<Verdict, Failure> {
    let block = bench.block();
    let place = |blocks: u64| bench.area(4) + blocks * block;
    let options = Options { no_overlap: true, ..Options::default() };
    if let Some(why) = bench.target.cannot(&[(bench.area(0), block, place(0))], options) {
        return Ok(Verdict::Skipped(why));
    }
    for source in 0..=6u64 {
        for length in 1..=3u64 {
            // The destination is three blocks from the middle on.
            let list = [(place(source), length * block, place(3))];
            let overlaps = source < 3 + length && 3 < source + length;
            if bench.target.copy(&list, options)?.is_err() != overlaps {
                let said = if overlaps { "accepted" } else { "refused" };
                return Ok(Verdict::Broken(format!("{length} blocks from {source} to 3 are {said}")));
            }
        }
        let list = [(bench.area(0), 2 * block, place(3)), (bench.area(1), 2 * block, place(source))];
        let overlaps = source < 5 && 3 < source + 2;
        if bench.target.cannot(&list, options).is_some() {
            continue;
        }
        if bench.target.copy(&list, options)?.is_err() != overlaps {
            let said = if overlaps { "accepted" } else { "refused" };
            return Ok(Verdict::Broken(format!("destinations of 2 blocks at 3 and {source} are {said}")));
        }
    }
    Ok(Verdict::Holds)
}

fn fua(bench: &Bench) -> Result<Verdict, Failure> {
    let source = bench.fill(bench.area(0), bench.side(), 13)?;
    let options = Options { fua: true, ..Options::default() };
    match bench.target.copy(&[(bench.area(0), bench.side(), bench.area(2))], options)? {
        Err(code) => refused(&code),
        Ok(_) => bench.all(&[(bench.area(2), &source, "the destination")]),
    }
}
