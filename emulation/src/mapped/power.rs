//! Power cuts on demand: what a flush has not made durable is undone, all of it or what chance chooses.
//!
//! For each block that was changed since the last snapshot it is known what the snapshot has there, and the blocks of the
//! snapshot are held back, so a change can be undone by naming them again. What a running commit makes durable is not
//! undone: it may be durable already.

use super::*;
use crate::device::{Chosen, Keep};
use crate::range_map::RangeValue;
use crate::redo::{MapChange, RedoLog};
use crate::timing::chance::Chance;

/// What a changed block was in the last snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Was {
    physical: Option<u64>,
    /// The link whose changes are kept or undone with this one; 0 for none.
    link: u64,
    /// A commit that failed may have made something else durable: the next one has to say what the block is, changed or
    /// not.
    unsure: bool,
}

impl RangeValue for Was {
    fn at(self, offset: u64) -> Self {
        Self { physical: self.physical.map(|first| first + offset), ..self }
    }
}

/// Links that remapped since the last durable image. Two that changed a block in common are one: the value in between is
/// gone.
#[derive(Debug, Default)]
pub(super) struct Links {
    last: u64,
    /// The last when the running commit began.
    committing: u64,
    joined: BTreeMap<u64, u64>,
}

impl Links {
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn snapshot(&mut self) {
        self.committing = self.last;
    }

    /// What the commit has made durable is not undone any more.
    pub(super) fn forget(&mut self) {
        let durable = self.committing;
        self.joined.retain(|link, _| *link > durable);
    }

    fn root(&self, mut link: u64) -> u64 {
        while let Some(&other) = self.joined.get(&link) {
            link = other;
        }
        link
    }

    /// Joins two links, either of which may be none, and gives the name of both.
    fn join(&mut self, a: u64, b: u64) -> u64 {
        let (a, b) = (self.root(a), self.root(b));
        if a == b || a == 0 || b == 0 {
            return a.max(b);
        }
        // The later name lives on: names of durable links are forgotten.
        self.joined.insert(a.min(b), a.max(b));
        a.max(b)
    }
}

impl Volume {
    /// These blocks are about to change, by a link that is to be undone as a whole or by none (0).
    pub(super) fn soil(&mut self, logical: Range<u64>, link: u64, links: &mut Links) {
        let known: SmallVec<[_; 2]> = self.dirty.pieces_and_holes(logical).collect();
        for (run, was) in known {
            match was {
                Some(was) => {
                    let link = links.join(was.link, link);
                    if link != was.link {
                        self.dirty.insert(run, Was { link, ..was }, &mut |_| {});
                    }
                }
                None => {
                    let pieces: SmallVec<[_; 2]> = self.map.pieces_and_holes(run).collect();
                    for (part, physical) in pieces {
                        let physical = physical.map(|first| first.0);
                        self.dirty.insert(part, Was { physical, link, unsure: false }, &mut |_| {});
                    }
                }
            }
        }
    }

    /// A commit failed: what it was to make durable is as the snapshot before has it, as far as one can say.
    pub(super) fn unsaved(&mut self, committing: &RangeMap<Was>, links: &mut Links) {
        for piece in committing.iter() {
            let later: SmallVec<[_; 2]> = self.dirty.pieces_and_holes(piece.range.clone()).collect();
            for (run, newer) in later {
                let was = piece.value.at(run.start - piece.range.start);
                let link = links.join(was.link, newer.map_or(0, |newer| newer.link));
                self.dirty.insert(run, Was { link, unsure: true, ..was }, &mut |_| {});
            }
        }
    }

    /// True when these blocks are this already.
    fn is(&self, logical: &Range<u64>, physical: Option<u64>) -> bool {
        self.map.pieces_and_holes(logical.clone()).all(|(run, now)| {
            now.map(|first| first.0) == physical.map(|first| first + (run.start - logical.start))
        })
    }

    /// These blocks are what they were. What no commit is sure of stays to be said by the next.
    fn clean(&mut self, logical: Range<u64>) {
        let mut unsure: SmallVec<[_; 2]> = SmallVec::new();
        self.dirty.remove(logical, &mut |piece| {
            if piece.value.unsure {
                unsure.push(piece);
            }
        });
        for piece in unsure {
            self.dirty.insert(piece.range, Was { link: 0, ..piece.value }, &mut |_| {});
        }
    }
}

/// Blocks and what they become again.
type Undone = Vec<(Range<u64>, Option<u64>)>;

impl Mapped {
    /// The power of a volume fails.
    pub(super) fn power_cut(
        &mut self,
        cx: &mut Cx<'_>,
        id: VolumeId,
        keep: Keep,
        chosen: &[Chosen],
        out: &mut Out,
    ) {
        if self.volume(id).is_none() {
            return;
        }
        self.volumes[id.index()].epoch += 1;
        self.end_parked_of(id, BlkStatus::IoErr, out);
        // They ask for what is gone. Those of the running commit get what they ask for.
        for waiter in self.flushes.leave(id) {
            let next = match self.waiting.remove(&waiter) {
                Some(waiting) => waiting.committed(BlkStatus::IoErr),
                None => Next::Done(Completion::refused(BlkStatus::IoErr)),
            };
            out.push((waiter, next));
        }
        self.given_back = true;
        let mut room = cx.log.room().saturating_sub(self.promised);
        let mut undone = Undone::new();
        let dirty = &self.volume(id).expect("looked up above").dirty;
        let rest = match chosen {
            [] => self.undone(dirty, keep, room),
            _ => {
                let mut left: RangeMap<Was> = RangeMap::new();
                dirty.iter().for_each(|piece| left.insert(piece.range, piece.value, &mut |_| {}));
                for choice in chosen {
                    let blocks = self.blocks_of(choice.range);
                    let was =
                        left.overlapping(blocks.clone()).map(|piece| (piece.range, piece.value.physical));
                    undone.extend(was.filter(|_| !choice.keep));
                    left.remove(blocks, &mut |_| {});
                }
                room = room.checked_sub(undone.len() as u64).expect("the layer above asked for the room");
                self.undone(&left, keep, room)
            }
        };
        undone.extend(rest);
        for (logical, physical) in undone {
            self.undo(cx, id, logical, physical);
        }
    }

    pub(super) fn undoable_of(&self, log: &dyn RedoLog, id: VolumeId, ranges: &[SectorRange]) -> usize {
        let Some(volume) = self.volume(id).filter(|_| self.imaged()) else { return 0 };
        let mut room = log.room().saturating_sub(self.promised);
        let fits = |range: &&SectorRange| {
            let records = volume.dirty.overlapping(self.blocks_of(**range)).count() as u64 + 1;
            let fits = records <= room;
            room = room.saturating_sub(records);
            fits
        };
        ranges.iter().take_while(fits).count()
    }

    /// The map blocks of a range that consists of such.
    fn blocks_of(&self, range: SectorRange) -> Range<u64> {
        range.start.0 / self.block()..range.end().0 / self.block()
    }

    /// Chooses what is undone of these blocks, at most `room` records of it: where the log has no room for more the rest is
    /// kept, as it may be.
    fn undone(&self, dirty: &RangeMap<Was>, keep: Keep, mut room: u64) -> Undone {
        let mut linked: BTreeMap<u64, Undone> = BTreeMap::new();
        let mut single = Undone::new();
        for piece in dirty.iter() {
            match self.links.root(piece.value.link) {
                0 => single.push((piece.range, piece.value.physical)),
                link => linked.entry(link).or_default().push((piece.range, piece.value.physical)),
            }
        }
        let coin = |number: u64| match keep {
            Keep::None => true,
            Keep::All => false,
            Keep::Some(seed) => Chance::new(Chance::new(seed).next() ^ number).below(2) == 0,
        };
        let mut undone = Undone::new();
        for (link, runs) in linked {
            if coin(link << 32) && runs.len() as u64 <= room {
                room -= runs.len() as u64;
                undone.extend(runs);
            }
        }
        for (run, was) in single {
            if matches!(keep, Keep::None) && room > 0 {
                room -= 1;
                undone.push((run, was));
                continue;
            }
            let mut start = run.start;
            while start < run.end && room > 0 {
                let undo = coin(start);
                let end = (start..run.end).find(|&block| coin(block) != undo).unwrap_or(run.end);
                if undo {
                    room -= 1;
                    undone.push((start..end, was.map(|first| first + (start - run.start))));
                }
                start = end;
            }
        }
        undone
    }

    /// Blocks are what they were in the last snapshot.
    fn undo(&mut self, cx: &mut Cx<'_>, id: VolumeId, logical: Range<u64>, physical: Option<u64>) {
        if self.volume(id).is_some_and(|volume| volume.is(&logical, physical)) {
            return;
        }
        if let Some(first) = physical {
            self.space.revive(first..first + count(&logical));
        }
        let mut replaced = Pins::new();
        let mut take = |old: crate::range_map::Piece<Physical>| {
            replaced.push(old.value.0..old.value.0 + count(&old.range));
        };
        let volume = self.volumes[id.index()].volume.as_mut().expect("the caller looked it up");
        match physical {
            Some(first) => volume.map.insert(logical.clone(), Physical(first), &mut take),
            None => volume.map.remove(logical.clone(), &mut take),
        }
        volume.clean(logical.clone());
        let undone = Sectors(count(&logical) * self.block());
        cx.log.append(&MapChange { volume: id, logical, physical });
        for run in replaced {
            self.space.release(run, true);
        }
        cx.ledgers.of(id).undone.0 += undone.bytes().0;
    }
}
