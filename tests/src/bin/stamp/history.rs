//! What each sector may hold: every write and copy is an event with the time in which it took effect.
//!
//! A write that was made between `begin` and `end` took effect at some moment in between, and so did a copy, which
//! put into its destination what its source held at some moment. From that follows what a read may see.

use std::collections::BTreeMap;

/// Nanoseconds since the start.
pub(crate) type Time = u64;

/// The end of what has not ended.
const OPEN: Time = Time::MAX;

/// Superseded events of a sector are looked for when it has more than this many.
const PRUNE_ABOVE: usize = 48;

/// A run of tracked sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Index of the first.
    pub(crate) first: usize,
    /// So many.
    pub(crate) count: usize,
}

/// A part of a copy: `to` takes what `from` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Index of the first source sector.
    pub(crate) from: usize,
    /// The destination.
    pub(crate) to: Run,
}

/// What a sector holds: it was written to the sector `origin` by the write `version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Index of the sector it was written to first.
    pub(crate) origin: usize,
    /// Number of that write.
    pub(crate) version: u32,
}

/// Where the content of an event came from.
#[derive(Clone, Debug)]
enum Content {
    /// A write of this number.
    Written(u32),
    /// A copy that runs, of this sector.
    Copying(usize),
    /// A copy that ended: one of these versions of that sector.
    Copied(usize, Box<[u32]>),
}

#[derive(Clone, Debug)]
struct Event {
    number: u32,
    begin: Time,
    end: Time,
    content: Content,
}

#[derive(Clone, Debug, Default)]
struct Sector {
    events: Vec<Event>,
    /// Between which times it was last read, and what it held.
    last: Option<(Time, Time, Stamp)>,
}

/// An operation that runs.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ticket {
    /// Its number; the version of what it writes.
    pub(crate) number: u32,
    begin: Time,
    runs: Vec<Run>,
}

/// The history of all tracked sectors.
#[derive(Clone, Debug)]
pub(crate) struct History {
    sectors: Vec<Sector>,
    /// When each operation that runs began, by number.
    active: BTreeMap<u32, Time>,
    next: u32,
}

impl History {
    /// Sectors of which nothing is known until they are written.
    pub(crate) fn new(sectors: usize) -> Self {
        Self { sectors: vec![Sector::default(); sectors], active: BTreeMap::new(), next: 1 }
    }

    fn begin(&mut self, now: Time, runs: Vec<Run>) -> Ticket {
        let number = self.next;
        self.next += 1;
        self.active.insert(number, now);
        Ticket { number, begin: now, runs }
    }

    /// A read begins.
    pub(crate) fn begin_read(&mut self, now: Time) -> Ticket {
        self.begin(now, Vec::new())
    }

    /// A write begins.
    pub(crate) fn begin_write(&mut self, now: Time, run: Run) -> Ticket {
        let ticket = self.begin(now, vec![run]);
        for index in run.first..run.first + run.count {
            self.add(index, ticket.number, now, Content::Written(ticket.number));
        }
        ticket
    }

    /// A copy begins.
    pub(crate) fn begin_copy(&mut self, now: Time, parts: &[Part]) -> Ticket {
        let ticket = self.begin(now, parts.iter().map(|part| part.to).collect());
        for part in parts {
            for offset in 0..part.to.count {
                self.add(part.to.first + offset, ticket.number, now, Content::Copying(part.from + offset));
            }
        }
        ticket
    }

    fn add(&mut self, index: usize, number: u32, begin: Time, content: Content) {
        let oldest = self.active.values().copied().min().unwrap_or(begin);
        let sector = &mut self.sectors[index];
        if sector.events.len() > PRUNE_ABOVE {
            // What no running operation, and none to come, can see.
            let settled = sector.settled(oldest);
            sector.events.retain(|event| event.end >= settled);
        }
        sector.events.push(Event { number, begin, end: OPEN, content });
    }

    /// An operation has ended.
    pub(crate) fn finish(&mut self, now: Time, ticket: Ticket) {
        self.active.remove(&ticket.number);
        for run in ticket.runs {
            for index in run.first..run.first + run.count {
                self.finish_event(now, index, ticket.number);
            }
        }
    }

    fn finish_event(&mut self, now: Time, index: usize, number: u32) {
        let position = self.sectors[index].events.iter().position(|event| event.number == number);
        let position = position.expect("an event is kept until it has ended");
        let event = &self.sectors[index].events[position];
        let copied = match event.content {
            Content::Copying(from) => {
                Some(Content::Copied(from, self.sectors[from].versions(event.begin, now)))
            }
            Content::Written(_) | Content::Copied(..) => None,
        };
        let event = &mut self.sectors[index].events[position];
        event.end = now;
        if let Some(copied) = copied {
            event.content = copied;
        }
    }

    /// Judges what the read of `ticket`, which has just ended, saw in a sector.
    ///
    /// # Errors
    /// Why the sector cannot have held that.
    pub(crate) fn judge(
        &mut self,
        now: Time,
        ticket: &Ticket,
        index: usize,
        seen: Stamp,
    ) -> Result<(), String> {
        let sector = &self.sectors[index];
        let visible: Vec<&Event> = sector.visible(ticket.begin, now).collect();
        let allowed = visible.iter().any(|event| match &event.content {
            Content::Written(version) => seen == Stamp { origin: index, version: *version },
            Content::Copying(from) => {
                seen.origin == *from && self.sectors[*from].versions(event.begin, now).contains(&seen.version)
            }
            Content::Copied(from, versions) => seen.origin == *from && versions.contains(&seen.version),
        });
        if !allowed {
            return Err(format!("holds {seen:?}, which is none of: {visible:?}"));
        }
        if let Some((begin, end, before)) = sector.last {
            // Two readers may come here in another order than they read.
            let (begin, end) = (begin.min(ticket.begin), end.max(now));
            let quiet = sector.events.iter().all(|event| event.end < begin || event.begin > end);
            if quiet && before != seen {
                return Err(format!("changed from {before:?} to {seen:?} without a write: {visible:?}"));
            }
        }
        self.sectors[index].last = Some((ticket.begin, now, seen));
        Ok(())
    }
}

impl Sector {
    /// Whoever looks from `begin` on cannot see an event that ended before this time.
    fn settled(&self, begin: Time) -> Time {
        self.events.iter().filter(|event| event.end < begin).map(|event| event.begin).max().unwrap_or(0)
    }

    /// The events whose content may be seen between `begin` and `end`.
    fn visible(&self, begin: Time, end: Time) -> impl Iterator<Item = &Event> {
        let settled = self.settled(begin);
        self.events.iter().filter(move |event| event.begin <= end && event.end >= settled)
    }

    /// The writes whose content may be seen between `begin` and `end`.
    fn versions(&self, begin: Time, end: Time) -> Box<[u32]> {
        let written = |event: &Event| match event.content {
            Content::Written(version) => Some(version),
            Content::Copying(_) | Content::Copied(..) => None,
        };
        self.visible(begin, end).filter_map(written).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: usize = 0;
    const DESTINATION: usize = 1;

    fn run(first: usize) -> Run {
        Run { first, count: 1 }
    }

    fn write(history: &mut History, index: usize, begin: Time, end: Time) -> Stamp {
        let ticket = history.begin_write(begin, run(index));
        let version = ticket.number;
        history.finish(end, ticket);
        Stamp { origin: index, version }
    }

    fn copy(history: &mut History, begin: Time, end: Time) {
        let ticket = history.begin_copy(begin, &[Part { from: SOURCE, to: run(DESTINATION) }]);
        history.finish(end, ticket);
    }

    fn read(history: &mut History, index: usize, begin: Time, end: Time, seen: Stamp) -> bool {
        let ticket = history.begin_read(begin);
        let allowed = history.judge(end, &ticket, index, seen).is_ok();
        history.finish(end, ticket);
        allowed
    }

    #[test]
    fn a_read_sees_the_last_write_or_one_that_overlaps_it() {
        let mut history = History::new(1);
        let first = write(&mut history, 0, 1, 2);
        let second = write(&mut history, 0, 10, 20);
        let seen = |begin, end, stamp| read(&mut history.clone(), 0, begin, end, stamp);
        assert!(seen(3, 4, first) && !seen(3, 4, second));
        assert!(seen(3, 15, first) && seen(3, 15, second));
        assert!(seen(15, 30, first) && seen(15, 30, second));
        assert!(!seen(21, 30, first) && seen(21, 30, second));
    }

    #[test]
    fn a_copy_brings_what_its_source_held_meanwhile() {
        let mut history = History::new(2);
        let old = write(&mut history, SOURCE, 1, 2);
        write(&mut history, DESTINATION, 1, 2);
        let held = write(&mut history, SOURCE, 10, 11);
        let during = write(&mut history, SOURCE, 25, 26);
        // The copy runs while the last write does; it is entered before it in time, as in a run.
        copy(&mut history, 20, 30);
        let after = write(&mut history, SOURCE, 40, 41);
        let seen = |stamp| read(&mut history.clone(), DESTINATION, 50, 51, stamp);
        assert!(seen(held) && seen(during));
        assert!(!seen(old), "a version that was replaced before the copy");
        assert!(!seen(after), "a version from after the copy");
        assert!(!seen(Stamp { origin: DESTINATION, version: held.version }), "another sector's stamp");
    }

    #[test]
    fn a_direct_write_takes_the_place_of_a_copy() {
        let mut history = History::new(2);
        let copied = write(&mut history, SOURCE, 1, 2);
        copy(&mut history, 3, 4);
        let written = write(&mut history, DESTINATION, 5, 6);
        assert!(read(&mut history, DESTINATION, 7, 8, written));
        assert!(!read(&mut history, DESTINATION, 7, 8, copied));
    }

    #[test]
    fn what_nobody_writes_does_not_change() {
        let mut history = History::new(2);
        let first = history.begin_write(1, run(SOURCE));
        let second = history.begin_write(1, run(SOURCE));
        let versions = [first.number, second.number].map(|version| Stamp { origin: SOURCE, version });
        history.finish(5, first);
        history.finish(5, second);
        // Either may have come last, but not both in turn.
        assert!(read(&mut history, SOURCE, 6, 7, versions[0]));
        assert!(!read(&mut history, SOURCE, 8, 9, versions[1]));
    }

    #[test]
    fn pruning_forgets_only_what_cannot_be_seen() {
        let mut history = History::new(1);
        let slow = history.begin_read(3);
        let first = write(&mut history, 0, 1, 2);
        let mut stamps = Vec::new();
        for n in 0..200 {
            stamps.push(write(&mut history, 0, 10 * n + 10, 10 * n + 15));
        }
        assert!(
            history.judge(5, &slow, 0, first).is_ok(),
            "a read that still runs began before it was replaced"
        );
        history.finish(5, slow);
        for n in 200..400 {
            stamps.push(write(&mut history, 0, 10 * n + 10, 10 * n + 15));
        }
        assert!(history.sectors[0].events.len() < 2 * PRUNE_ABOVE);
        assert!(read(&mut history, 0, 5000, 5001, stamps[399]));
        assert!(!read(&mut history, 0, 5000, 5001, stamps[398]));
    }
}
