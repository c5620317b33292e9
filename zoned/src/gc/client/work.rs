//! What the log decided and the device has not been asked for yet, in order.

use super::config::{ClientConfig, Movement};
use crate::gc::log::{Media, Slot};
use emulation::{Limits, Sectors};
use smallvec::{SmallVec, smallvec};
use std::collections::VecDeque;

/// Pages in a row in one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) pages: u32,
}

/// One request of the queue, or for a move by the host its reads and its write.
#[derive(Debug)]
pub(super) enum Action {
    /// Pages of the user, in a row from `to` on.
    Write { pages: SmallVec<[u32; 4]>, to: Slot, cleared: u64 },
    /// Pages of a victim.
    Move(Move),
}

/// Pages of one zone that go to a row in another.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) from: u32,
    pub(super) runs: SmallVec<[Run; 4]>,
    pub(super) to: Slot,
    pub(super) pages: u32,
    /// The source is there after so many writes to its zone.
    written: u64,
    /// The target is empty after so many resets.
    cleared: u64,
    pub(super) reads: Reads,
}

/// How far the host has read the pages of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reads {
    /// The buffer, from the first read on.
    pub(super) buffer: Option<u32>,
    /// Runs asked for.
    pub(super) asked: usize,
    /// Runs that are there.
    pub(super) done: usize,
}

/// A read for a move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// The move.
    pub(super) number: u64,
    /// The zone read from.
    pub(super) from: u32,
    pub(super) run: Run,
    pub(super) buffer: u32,
    /// Pages of the buffer before these.
    pub(super) before: u32,
}

/// A zone to empty.
#[derive(Clone, Copy, Debug)]
struct Clear {
    zone: u32,
    /// After so many writes to it,
    written: u64,
    /// and so many moves out of it.
    moved: u64,
}

/// What was asked of a zone and what is done, since the start. A zone lives many times: a request of an earlier life
/// waits for the counts of its own time, so that it does not wait for one of a later life.
#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    writes: Count,
    moves: Count,
    clears: Count,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    asked: u64,
    done: u64,
}

/// How much goes into one request.
#[derive(Clone, Copy, Debug)]
struct Most {
    write_pages: u32,
    move_pages: u32,
    runs: usize,
    run_pages: u32,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Work {
    queue: VecDeque<Action>,
    /// The number of the action in front; the following ones count on.
    front: u64,
    /// The first action of which reads may still have to be asked for.
    unread: u64,
    /// The move at the end may still get more pages.
    growing: bool,
    clears: VecDeque<Clear>,
    zones: Vec<Zone>,
    most: Most,
    /// Moves are read before they are written.
    by_host: bool,
}

impl Work {
    pub(super) fn new(config: &ClientConfig, limits: &Limits) -> Self {
        let pages = |len: Sectors| u32::try_from(len.0 / config.page.0).unwrap_or(u32::MAX);
        let io = pages(limits.max_io);
        let (move_pages, runs, run_pages) = match config.movement {
            Movement::Host { .. } => (io, usize::MAX, u32::MAX),
            Movement::Copy | Movement::Remap => (
                pages(limits.copy_max_bytes.whole_sectors()),
                limits.copy_max_segments as usize,
                pages(limits.copy_max_segment_bytes.whole_sectors()),
            ),
        };
        Self {
            queue: VecDeque::new(),
            front: 0,
            unread: 0,
            growing: false,
            clears: VecDeque::new(),
            zones: vec![Zone::default(); config.geometry.zones as usize],
            most: Most { write_pages: config.write_pages.min(io), move_pages, runs, run_pages },
            by_host: matches!(config.movement, Movement::Host { .. }),
        }
    }

    /// Actions and zones to empty that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.clears.len()
    }

    /// The action in front, if nothing is in its way any more.
    pub(super) fn take(&mut self) -> Option<Action> {
        let ready = match self.queue.front()? {
            Action::Write { to, cleared, .. } => self.zone(to.zone).clears.done >= *cleared,
            Action::Move(it) => {
                let read = !self.by_host || it.reads.done == it.runs.len();
                read && self.readable(it) && self.zone(it.to.zone).clears.done >= it.cleared
            }
        };
        if !ready {
            return None;
        }
        self.front += 1;
        self.unread = self.unread.max(self.front);
        self.queue.pop_front()
    }

    /// The next run that the host may read; `buffer` gives a buffer for another move.
    pub(super) fn take_read(&mut self, buffer: impl FnOnce() -> Option<u32>) -> Option<Read> {
        if !self.by_host {
            return None;
        }
        let mut at = usize::try_from(self.unread - self.front).ok()?;
        loop {
            match self.queue.get(at)? {
                Action::Move(it) if it.reads.asked < it.runs.len() => break,
                Action::Move(_) | Action::Write { .. } => at += 1,
            }
        }
        self.unread = self.front + at as u64;
        let zones = &self.zones;
        let Action::Move(it) = &mut self.queue[at] else { unreachable!("the loop ends at a move") };
        if zones[it.from as usize].writes.done < it.written {
            return None;
        }
        let given = it.reads.buffer.or_else(buffer)?;
        it.reads.buffer = Some(given);
        let run = it.runs[it.reads.asked];
        let before = it.runs[..it.reads.asked].iter().map(|run| run.pages).sum();
        it.reads.asked += 1;
        Some(Read { number: self.unread, from: it.from, run, buffer: given, before })
    }

    /// A run of the move with this number is there. A move stays in the queue until all its runs are.
    pub(super) fn read_done(&mut self, number: u64) {
        let at = usize::try_from(number - self.front).expect("the queue is shorter than memory");
        match &mut self.queue[at] {
            Action::Move(it) => it.reads.done += 1,
            Action::Write { .. } => unreachable!("the host reads for moves only"),
        }
    }

    /// The zone that has to be emptied next, if nothing of it is needed any more.
    pub(super) fn take_clear(&mut self) -> Option<u32> {
        let Clear { zone, written, moved } = *self.clears.front()?;
        let state = self.zone(zone);
        if state.writes.done < written || state.moves.done < moved {
            return None;
        }
        self.clears.pop_front();
        Some(zone)
    }

    pub(super) fn written(&mut self, zone: u32) {
        self.zones[zone as usize].writes.done += 1;
    }

    pub(super) fn moved(&mut self, from: u32, to: u32) {
        self.zones[from as usize].moves.done += 1;
        self.written(to);
    }

    pub(super) fn cleared(&mut self, zone: u32) {
        self.zones[zone as usize].clears.done += 1;
    }

    fn zone(&self, zone: u32) -> &Zone {
        &self.zones[zone as usize]
    }

    fn readable(&self, it: &Move) -> bool {
        self.zone(it.from).writes.done >= it.written
    }

    /// Adds a page to the move at the end of the queue; false when it does not fit there.
    fn grow_move(&mut self, from: Slot, to: Slot) -> bool {
        let most = self.most;
        let Some(Action::Move(last)) = self.queue.back_mut().filter(|_| self.growing) else { return false };
        let in_row = last.to.zone == to.zone && last.to.offset + last.pages == to.offset;
        if last.from != from.zone || !in_row || last.pages >= most.move_pages {
            return false;
        }
        let another = last.runs.len() < most.runs;
        match last.runs.last_mut() {
            Some(run) if run.first + run.pages == from.offset && run.pages < most.run_pages => run.pages += 1,
            Some(_) | None if another => last.runs.push(Run { first: from.offset, pages: 1 }),
            Some(_) | None => return false,
        }
        last.pages += 1;
        true
    }
}

impl Media for Work {
    fn user(&mut self, page: u32, to: Slot) {
        self.growing = false;
        if let Some(Action::Write { pages, to: first, .. }) = self.queue.back_mut() {
            let in_row = first.zone == to.zone && first.offset as usize + pages.len() == to.offset as usize;
            if in_row && pages.len() < self.most.write_pages as usize {
                pages.push(page);
                return;
            }
        }
        let zone = &mut self.zones[to.zone as usize];
        zone.writes.asked += 1;
        self.queue.push_back(Action::Write { pages: smallvec![page], to, cleared: zone.clears.asked });
    }

    fn moved(&mut self, _page: u32, from: Slot, to: Slot) {
        if self.grow_move(from, to) {
            return;
        }
        self.growing = true;
        let written = self.zone(from.zone).writes.asked;
        self.zones[from.zone as usize].moves.asked += 1;
        let target = &mut self.zones[to.zone as usize];
        target.writes.asked += 1;
        self.queue.push_back(Action::Move(Move {
            from: from.zone,
            runs: smallvec![Run { first: from.offset, pages: 1 }],
            to,
            pages: 1,
            written,
            cleared: target.clears.asked,
            reads: Reads::default(),
        }));
    }

    fn emptied(&mut self, zone: u32) {
        self.growing = false;
        let state = &mut self.zones[zone as usize];
        state.clears.asked += 1;
        self.clears.push_back(Clear { zone, written: state.writes.asked, moved: state.moves.asked });
    }
}
