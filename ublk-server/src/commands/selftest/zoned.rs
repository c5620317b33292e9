//! The clauses on zones that can be seen from outside, for zoned disks. They use the first two sequential zones of the
//! scratch range, which they reset.

use super::Failure;
use super::clauses::Verdict;
use crate::control::api::{ZoneActionName, ZoneConditionName, ZoneView};

/// What the clauses on zones are run against. Offsets and lengths are bytes; the inner errors are the codes of refusals.
pub(super) trait ZonedTarget {
    /// The zones, all of them.
    ///
    /// # Errors
    /// They cannot be had.
    fn report(&self) -> Result<Vec<ZoneView>, Failure>;

    /// # Errors
    /// Nobody answers.
    fn act(&self, action: ZoneActionName, zone: &ZoneView) -> Result<Result<(), String>, Failure>;

    /// # Errors
    /// The disk cannot be read there.
    fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Failure>;

    /// # Errors
    /// Nobody answers.
    fn write(&self, offset: u64, data: &[u8]) -> Result<Result<(), String>, Failure>;

    /// One copy command of segments (source, length, destination). Gives where it was appended.
    ///
    /// # Errors
    /// Nobody answers, or it does not end.
    fn copy(
        &self,
        segments: &[(u64, u64, u64)],
        append: bool,
    ) -> Result<Result<Option<u64>, String>, Failure>;
}

/// A clause on zones: its number, its words, what tries it.
pub(super) struct ZoneClause {
    pub(super) number: &'static str,
    pub(super) words: &'static str,
    /// It writes to the scratch range.
    pub(super) writes: bool,
    pub(super) run: fn(&ZoneBench) -> Tried,
}

/// The verdict of a clause, or why it could not be tried.
pub(super) type Tried = Result<Verdict, Failure>;

/// A zoned target and two zones that may be overwritten; none without a scratch range.
pub(super) struct ZoneBench<'a> {
    pub(super) target: &'a dyn ZonedTarget,
    pub(super) size: u64,
    pub(super) block: u64,
    pub(super) zones: Vec<ZoneView>,
}

/// Every clause, in the order of their numbers.
pub(super) const ZONE_CLAUSES: [ZoneClause; 7] = [
    ZoneClause { number: "7.1", words: "actions change the condition of a zone", writes: true, run: actions },
    ZoneClause {
        number: "7.2",
        words: "a write begins at the pointer and ends within the capacity",
        writes: true,
        run: at_the_pointer,
    },
    ZoneClause { number: "7.7", words: "above the pointer there are zeroes", writes: true, run: above },
    ZoneClause { number: "7.9", words: "a reset takes pointer and contents back", writes: true, run: reset },
    ZoneClause {
        number: "7.12",
        words: "a report describes every zone, one behind the other",
        writes: false,
        run: report,
    },
    ZoneClause {
        number: "7.13",
        words: "a copy goes to the pointer, or is refused and changes nothing",
        writes: true,
        run: copies,
    },
    ZoneClause {
        number: "7.15",
        words: "an appended copy is told where it went",
        writes: true,
        run: appends,
    },
];

fn broken(why: impl Into<String>) -> Tried {
    Ok(Verdict::Broken(why.into()))
}

impl ZoneBench<'_> {
    /// Bytes that differ from block to block and from seed to seed.
    fn pattern(&self, blocks: u64, seed: u64) -> Vec<u8> {
        let word = |n: u64| (n ^ (seed << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        (1..=blocks * self.block / 8).flat_map(word).collect()
    }

    /// Both zones, empty.
    ///
    /// # Errors
    /// One of them cannot be reset.
    pub(super) fn fresh(&self) -> Result<(ZoneView, ZoneView), Failure> {
        for zone in &self.zones {
            if let Err(code) = self.target.act(ZoneActionName::Reset, zone)? {
                return Err(Failure::failed(format!("zone {} cannot be reset: {code}", zone.zone)));
            }
        }
        Ok((self.zones[0], self.zones[1]))
    }

    fn now(&self, zone: &ZoneView) -> Result<ZoneView, Failure> {
        let all = self.target.report()?;
        let found = all.into_iter().find(|other| other.start == zone.start);
        found.ok_or_else(|| Failure::failed(format!("the report lacks zone {}", zone.zone)))
    }

    /// Says what is wrong when a zone is not in this condition with this many bytes written.
    fn is(
        &self,
        zone: &ZoneView,
        condition: ZoneConditionName,
        written: u64,
    ) -> Result<Option<Verdict>, Failure> {
        let now = self.now(zone)?;
        let full = condition == ZoneConditionName::Full;
        let right = now.condition == condition && (full || now.wp == zone.start + written);
        let why = || {
            format!("zone {} is {:?} at {}, not {condition:?}", zone.zone, now.condition, now.wp - zone.start)
        };
        Ok((!right).then(|| Verdict::Broken(why())))
    }

    fn holds(&self, offset: u64, expected: &[u8], what: &str) -> Result<Option<Verdict>, Failure> {
        let data = self.target.read(offset, expected.len() as u64)?;
        Ok((data != expected).then(|| Verdict::Broken(format!("{what} differs"))))
    }

    fn written(&self, offset: u64, data: &[u8]) -> Result<Option<Verdict>, Failure> {
        let refused = self.target.write(offset, data)?.err();
        Ok(refused.map(|code| Verdict::Broken(format!("a write at the pointer is refused: {code}"))))
    }
}

/// Returns the verdict that a step gives, when it gives one.
macro_rules! unless {
    ($step:expr) => {
        if let Some(verdict) = $step? {
            return Ok(verdict);
        }
    };
}

fn actions(bench: &ZoneBench) -> Tried {
    use ZoneConditionName::{Closed, Empty, ExpOpen, Full, ImpOpen};
    let (zone, _) = bench.fresh()?;
    unless!(bench.is(&zone, Empty, 0));
    for (action, condition) in [(ZoneActionName::Open, ExpOpen), (ZoneActionName::Close, Empty)] {
        if let Err(code) = bench.target.act(action, &zone)? {
            return broken(format!("{action:?} of an empty zone is refused: {code}"));
        }
        unless!(bench.is(&zone, condition, 0));
    }
    unless!(bench.written(zone.start, &bench.pattern(1, 1)));
    unless!(bench.is(&zone, ImpOpen, bench.block));
    let after = [
        (ZoneActionName::Close, Closed),
        (ZoneActionName::Open, ExpOpen),
        (ZoneActionName::Finish, Full),
        (ZoneActionName::Reset, Empty),
    ];
    for (action, condition) in after {
        if let Err(code) = bench.target.act(action, &zone)? {
            return broken(format!("{action:?} of a zone with data is refused: {code}"));
        }
        unless!(bench.is(&zone, condition, if condition == Empty { 0 } else { bench.block }));
    }
    Ok(Verdict::Holds)
}

fn at_the_pointer(bench: &ZoneBench) -> Tried {
    let (zone, _) = bench.fresh()?;
    let (first, second) = (bench.pattern(1, 2), bench.pattern(2, 3));
    unless!(bench.written(zone.start, &first));
    for (offset, what) in [(0, "below"), (2 * bench.block, "above")] {
        if bench.target.write(zone.start + offset, &second)?.is_ok() {
            return broken(format!("a write {what} the pointer is accepted"));
        }
    }
    unless!(bench.is(&zone, ZoneConditionName::ImpOpen, bench.block));
    unless!(bench.written(zone.start + bench.block, &second));
    unless!(bench.holds(zone.start, &[first, second].concat(), "what was written"));
    if bench.target.act(ZoneActionName::Finish, &zone)?.is_ok()
        && bench.target.write(zone.start + 3 * bench.block, &bench.pattern(1, 4))?.is_ok()
    {
        return broken("a full zone is written");
    }
    if zone.capacity == zone.length {
        return Ok(Verdict::Holds);
    }
    let _ = bench.target.act(ZoneActionName::Reset, &zone)?;
    match bench.target.write(zone.start + zone.capacity, &bench.pattern(1, 5))? {
        Ok(()) => broken("a write beyond the capacity is accepted"),
        Err(_) => Ok(Verdict::Holds),
    }
}

fn above(bench: &ZoneBench) -> Tried {
    let (zone, _) = bench.fresh()?;
    unless!(bench.written(zone.start, &bench.pattern(4, 6)));
    let _ = bench.target.act(ZoneActionName::Reset, &zone)?;
    unless!(bench.written(zone.start, &bench.pattern(1, 7)));
    let zeroes = vec![0; usize::try_from(3 * bench.block).unwrap_or(usize::MAX)];
    unless!(bench.holds(zone.start + bench.block, &zeroes, "what lies above the pointer"));
    Ok(Verdict::Holds)
}

fn reset(bench: &ZoneBench) -> Tried {
    let (zone, other) = bench.fresh()?;
    let kept = bench.pattern(2, 8);
    unless!(bench.written(zone.start, &bench.pattern(2, 9)));
    unless!(bench.written(other.start, &kept));
    if let Err(code) = bench.target.act(ZoneActionName::Reset, &zone)? {
        return broken(format!("a reset is refused: {code}"));
    }
    unless!(bench.is(&zone, ZoneConditionName::Empty, 0));
    unless!(bench.holds(zone.start, &vec![0; kept.len()], "the zone that was reset"));
    unless!(bench.holds(other.start, &kept, "the zone beside it"));
    Ok(Verdict::Holds)
}

fn report(bench: &ZoneBench) -> Tried {
    let zones = bench.target.report()?;
    let mut end = 0;
    for zone in &zones {
        if zone.start != end || zone.length == 0 || zone.capacity > zone.length {
            return broken(format!("zone {} is from {} on: {zone:?}", zone.zone, end));
        }
        if !(zone.start..=zone.start + zone.length).contains(&zone.wp) {
            return broken(format!("zone {} has its pointer at {}", zone.zone, zone.wp));
        }
        end += zone.length;
    }
    if end == bench.size { Ok(Verdict::Holds) } else { broken(format!("the zones end at {end}")) }
}

fn copies(bench: &ZoneBench) -> Tried {
    let (zone, source) = bench.fresh()?;
    let data = bench.pattern(4, 10);
    unless!(bench.written(source.start, &data));
    let (block, length) = (bench.block, data.len() as u64);
    if let Err(code) = bench.target.copy(&[(source.start, length, zone.start)], false)? {
        return broken(format!("a copy to the pointer is refused: {code}"));
    }
    unless!(bench.is(&zone, ZoneConditionName::ImpOpen, length));
    unless!(bench.holds(zone.start, &data, "the destination"));
    let wrong = [
        ("below the pointer", vec![(source.start, block, zone.start)]),
        ("above the pointer", vec![(source.start, block, zone.start + length + block)]),
        (
            "whose second segment is off the pointer",
            vec![
                (source.start, block, zone.start + length),
                (source.start, block, zone.start + length + 2 * block),
            ],
        ),
    ];
    for (what, segments) in wrong {
        if bench.target.copy(&segments, false)?.is_ok() {
            return broken(format!("a copy {what} is accepted"));
        }
        unless!(bench.is(&zone, ZoneConditionName::ImpOpen, length));
    }
    Ok(Verdict::Holds)
}

fn appends(bench: &ZoneBench) -> Tried {
    let (zone, source) = bench.fresh()?;
    let data = bench.pattern(2, 11);
    unless!(bench.written(source.start, &data));
    let (block, length) = (bench.block, data.len() as u64);
    for round in 0..2 {
        let segments = [(source.start + block, block, zone.start), (source.start, block, zone.start)];
        let place = zone.start + round * length;
        match bench.target.copy(&segments, true)? {
            Err(code) => return broken(format!("an appended copy is refused: {code}")),
            Ok(at) if at != Some(place) => {
                return broken(format!("appended at {place}, said to be at {at:?}"));
            }
            Ok(_) => {}
        }
        let half = usize::try_from(block).unwrap_or(usize::MAX);
        let expected = [&data[half..], &data[..half]].concat();
        unless!(bench.holds(place, &expected, "what was appended"));
    }
    Ok(Verdict::Holds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::ZoneTypeName;
    use std::cell::RefCell;

    const ZONE: u64 = 64 << 10;
    const CAPACITY: u64 = 48 << 10;
    const BLOCK: u64 = 512;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Wrong {
        Nothing,
        ActionIgnored,
        WrittenAnywhere,
        BeyondCapacity,
        FullIsWritten,
        OldDataAbove,
        ResetKeepsPointer,
        ResetOfTheNext,
        ShortReport,
        CopiedAnywhere,
        HalfCopied,
        AppendMisplaced,
        AppendToStart,
    }

    struct Memory {
        wrong: Wrong,
        bytes: RefCell<Vec<u8>>,
        /// The condition and the written bytes of each zone.
        zones: RefCell<Vec<(ZoneConditionName, u64)>>,
    }

    impl Memory {
        fn new(wrong: Wrong) -> Self {
            let bytes = RefCell::new(vec![0; 4 * ZONE as usize]);
            Self { wrong, bytes, zones: RefCell::new(vec![(ZoneConditionName::Empty, 0); 4]) }
        }

        fn put(&self, offset: u64, data: &[u8], anywhere: bool) -> Result<(), String> {
            let mut zones = self.zones.borrow_mut();
            let (zone, place) = (&mut zones[(offset / ZONE) as usize], offset % ZONE);
            let end = place + data.len() as u64;
            let full = zone.0 == ZoneConditionName::Full && self.wrong != Wrong::FullIsWritten;
            let outside = end > CAPACITY && self.wrong != Wrong::BeyondCapacity;
            let beyond = self.wrong == Wrong::BeyondCapacity && place >= CAPACITY;
            if full || outside || (place != zone.1 && !anywhere && !beyond) {
                return Err("zone".to_string());
            }
            self.bytes.borrow_mut()[offset as usize..][..data.len()].copy_from_slice(data);
            *zone =
                (if zone.0 == ZoneConditionName::ExpOpen { zone.0 } else { ZoneConditionName::ImpOpen }, end);
            Ok(())
        }
    }

    impl ZonedTarget for Memory {
        fn report(&self) -> Result<Vec<ZoneView>, Failure> {
            let view = |(zone, (condition, written)): (u32, &(ZoneConditionName, u64))| ZoneView {
                zone,
                start: u64::from(zone) * ZONE,
                length: ZONE,
                capacity: CAPACITY,
                wp: u64::from(zone) * ZONE + written,
                kind: ZoneTypeName::SeqWriteRequired,
                condition: *condition,
            };
            let mut zones: Vec<ZoneView> = (0..).zip(&*self.zones.borrow()).map(view).collect();
            if self.wrong == Wrong::ShortReport {
                zones.pop();
            }
            Ok(zones)
        }

        fn act(&self, action: ZoneActionName, zone: &ZoneView) -> Result<Result<(), String>, Failure> {
            let shifted = usize::from(self.wrong == Wrong::ResetOfTheNext && action == ZoneActionName::Reset);
            let number = zone.zone as usize;
            let mut zones = self.zones.borrow_mut();
            let it = &mut zones[number];
            match action {
                ZoneActionName::Finish if self.wrong == Wrong::ActionIgnored => {}
                ZoneActionName::Open => it.0 = ZoneConditionName::ExpOpen,
                ZoneActionName::Close if it.1 == 0 => it.0 = ZoneConditionName::Empty,
                ZoneActionName::Close => it.0 = ZoneConditionName::Closed,
                ZoneActionName::Finish => it.0 = ZoneConditionName::Full,
                ZoneActionName::Reset => {
                    let kept = if self.wrong == Wrong::ResetKeepsPointer { it.1 } else { 0 };
                    *it = (ZoneConditionName::Empty, kept);
                    if self.wrong != Wrong::OldDataAbove {
                        let start = (number + shifted) * ZONE as usize;
                        self.bytes.borrow_mut()[start..][..ZONE as usize].fill(0);
                    }
                }
                ZoneActionName::ReadOnly | ZoneActionName::Offline => {}
            }
            Ok(Ok(()))
        }

        fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Failure> {
            Ok(self.bytes.borrow()[offset as usize..(offset + length) as usize].to_vec())
        }

        fn write(&self, offset: u64, data: &[u8]) -> Result<Result<(), String>, Failure> {
            Ok(self.put(offset, data, self.wrong == Wrong::WrittenAnywhere))
        }

        fn copy(
            &self,
            segments: &[(u64, u64, u64)],
            append: bool,
        ) -> Result<Result<Option<u64>, String>, Failure> {
            let first = segments[0].2;
            let mut at = self.zones.borrow()[(first / ZONE) as usize].1 + first / ZONE * ZONE;
            if append && self.wrong == Wrong::AppendToStart {
                at = first;
            }
            let place = at;
            let mut list = Vec::new();
            for &(source, length, destination) in segments {
                list.push((source, length, if append { at } else { destination }));
                at += length;
            }
            let anywhere = self.wrong == Wrong::CopiedAnywhere || self.wrong == Wrong::AppendToStart;
            let mut next = place;
            let fits = |(_, length, to): &(u64, u64, u64)| {
                let fits = *to == next;
                next += length;
                fits
            };
            if !anywhere && self.wrong != Wrong::HalfCopied && !list.iter().all(fits) {
                return Ok(Err("zone".to_string()));
            }
            for (source, length, to) in list {
                let data = self.read(source, length)?;
                if let Err(code) = self.put(to, &data, anywhere) {
                    return Ok(Err(code));
                }
            }
            let told = if self.wrong == Wrong::AppendMisplaced { first } else { place };
            Ok(Ok(append.then_some(told)))
        }
    }

    fn judge(wrong: Wrong) -> Vec<&'static str> {
        let memory = Memory::new(wrong);
        let zones = memory.report().unwrap()[1..3].to_vec();
        let bench = ZoneBench { target: &memory, size: 4 * ZONE, block: BLOCK, zones };
        let broken = ZONE_CLAUSES.iter().filter(|clause| {
            (clause.run)(&bench).unwrap_or_else(|failure| Verdict::Broken(failure.message)) != Verdict::Holds
        });
        broken.map(|clause| clause.number).collect()
    }

    #[test]
    fn a_right_zoned_disk_breaks_no_clause() {
        assert_eq!(judge(Wrong::Nothing), [""; 0]);
    }

    #[test]
    fn each_mistake_breaks_the_clause_on_zones_that_forbids_it() {
        let canaries = [
            (Wrong::ActionIgnored, "7.1"),
            (Wrong::WrittenAnywhere, "7.2"),
            (Wrong::BeyondCapacity, "7.2"),
            (Wrong::FullIsWritten, "7.2"),
            (Wrong::OldDataAbove, "7.7"),
            (Wrong::ResetKeepsPointer, "7.9"),
            (Wrong::ResetOfTheNext, "7.9"),
            (Wrong::ShortReport, "7.12"),
            (Wrong::CopiedAnywhere, "7.13"),
            (Wrong::HalfCopied, "7.13"),
            (Wrong::AppendMisplaced, "7.15"),
            (Wrong::AppendToStart, "7.15"),
        ];
        for (wrong, clause) in canaries {
            let broken = judge(wrong);
            assert!(broken.contains(&clause), "{wrong:?} breaks {broken:?}, not {clause}");
        }
        let judged: Vec<&str> = canaries.iter().map(|(_, clause)| *clause).collect();
        assert!(ZONE_CLAUSES.iter().all(|clause| judged.contains(&clause.number)));
    }
}
