//! Links of the map layer: what a plan does to the store, and what its finish does to the map.

use super::space::Blocks;
use super::*;
use crate::copy::{CopyLink, LINK_EXTENTS_MAX, Way};
use crate::device::StoreRange;
use crate::ledger::MoveReason;
use crate::parking::Entered;
use crate::units::{PhysSector, Sector, SectorRange};

/// The next piece of a chain, before the map is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// The door's data, all of it.
    Write(SectorRange),
    /// Zeroes in blocks of their own.
    Zero(SectorRange),
    /// Zeroes in a part of one block, if it is mapped.
    ZeroPart(SectorRange),
    /// No blocks at all.
    Unmap(SectorRange),
    /// A copy from a volume.
    Copy(VolumeId, CopyLink),
}

impl Shape {
    pub(super) fn destination(&self) -> SectorRange {
        match self {
            Self::Write(range) | Self::Zero(range) | Self::ZeroPart(range) | Self::Unmap(range) => *range,
            Self::Copy(_, link) => link.destination,
        }
    }

    /// The most redo records of a link of this shape over `blocks`.
    pub(super) fn records_max(&self, blocks: &Blocks) -> u64 {
        match self {
            Self::Unmap(_) => 1,
            Self::Copy(_, CopyLink { way: Way::Remap, .. }) => count(blocks).min(LINK_EXTENTS_MAX as u64),
            Self::Write(_) | Self::Zero(_) | Self::ZeroPart(_) | Self::Copy(..) => count(blocks),
        }
    }
}

/// What building a link gives.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "made and taken apart once; a plan is the common case")]
pub(super) enum Built {
    /// What a plan is made of.
    Run(Change, PortKind, Link, Steps),
    /// So many sectors are as they should be already.
    Skip(Sectors),
}

/// What a link may find wanting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The cap is reached.
    Room,
    /// The store has no free block, though the cap is not reached.
    Blocks,
    /// The redo log is full.
    Log,
}

/// A live plan that changes a volume.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) claim: Entered,
    volume: VolumeId,
    puts: SmallVec<[Put; 1]>,
    pub(super) pins: Pins,
    pub(super) reserved: u64,
    /// The most redo records that are appended when it is committed.
    pub(super) records: u64,
    /// How far the chain is when this is committed.
    pub(super) progress: Sectors,
    remapped: Sectors,
    holes: Sectors,
    /// The blocks it replaces go back to the store: it takes none itself.
    give_back: bool,
}

/// What logical blocks become.
#[derive(Clone, Debug)]
struct Put {
    logical: Range<u64>,
    to: To,
}

#[derive(Clone, Copy, Debug)]
enum To {
    /// Blocks that this plan allocated.
    Fresh(u64),
    /// Blocks of which this plan took a reference.
    Shared(u64),
    /// None.
    Nothing,
}

impl Change {
    /// Physical blocks of which it holds a reference.
    pub(super) fn shared_runs(&self) -> impl Iterator<Item = Blocks> + '_ {
        self.puts.iter().filter_map(|put| match put.to {
            To::Shared(first) => Some(first..first + count(&put.logical)),
            To::Fresh(_) | To::Nothing => None,
        })
    }
}

/// The parts of a change under construction.
#[derive(Default)]
struct Draft {
    steps: Steps,
    puts: SmallVec<[Put; 1]>,
    pins: Pins,
    reserved: u64,
    remapped: Sectors,
    holes: Sectors,
    give_back: bool,
}

/// Where new blocks for a range should go, and what they add.
struct Place {
    /// Behind the block before the range.
    near: Option<u64>,
    /// How many blocks more are mapped once the range has blocks of its own.
    more: u64,
}

/// Where the new contents of a range come from.
#[derive(Clone, Copy)]
enum Contents {
    Port,
    Zeroes,
    Copy(VolumeId, SectorRange, MoveReason),
}

impl Mapped {
    pub(super) fn begin_read(&mut self, id: RequestId, volume: VolumeId, range: SectorRange) -> Next {
        let mut steps = SmallVec::new();
        let mut pins = Pins::new();
        self.each_piece(volume, range, |at, piece| {
            let port = at.start - range.start;
            match piece {
                Some(from) => {
                    let from = StoreRange { start: from, len: at.len };
                    steps.push(Step::Read { from, port });
                    pins.push(self.run_of(from));
                }
                None => steps.push(Step::ReadZeroes { port, len: at.len }),
            }
        });
        #[cfg(feature = "canary")]
        if self.canary == Some(Canary::ReadUnpinned) {
            pins.clear();
        }
        for run in &pins {
            self.space.pin(run.clone());
        }
        let link = Link { volume, source: Some((volume, range)), destination: None };
        let work = Work::Read { pins, bytes: range.len.bytes() };
        Next::Run(self.plan(work, id, PortKind::Door, link, steps))
    }

    pub(super) fn unpin(&mut self, pins: Pins) {
        for run in pins {
            self.space.unpin(run);
        }
    }

    /// Builds the link of a shape whose claim is free.
    pub(super) fn build(
        &mut self,
        volume: VolumeId,
        claim: &BlockClaim,
        shape: Shape,
    ) -> Result<Built, Lack> {
        let mut draft = Draft::default();
        let mut source = None;
        let mut port = PortKind::None;
        let progress = match shape {
            Shape::Write(range) => {
                port = PortKind::Door;
                self.draft_contents(volume, range, claim.blocks(), Contents::Port, &mut draft)?;
                range.len
            }
            Shape::Zero(range) => {
                self.draft_contents(volume, range, claim.blocks(), Contents::Zeroes, &mut draft)?;
                range.len
            }
            Shape::ZeroPart(range) => {
                if self.map(volume).get(claim.blocks().start).is_none() {
                    return Ok(Built::Skip(range.len));
                }
                self.draft_contents(volume, range, claim.blocks(), Contents::Zeroes, &mut draft)?;
                range.len
            }
            Shape::Unmap(range) => {
                let blocks = self.unmappable(volume, claim.blocks());
                let len = Sectors(count(&blocks) * self.block());
                if self.map(volume).overlapping(blocks.clone()).next().is_none() {
                    return Ok(Built::Skip(len));
                }
                draft_unmap(blocks, &mut draft);
                range.split_at(len).0.len
            }
            Shape::Copy(from, link) => {
                let len = self.draft_copy(volume, from, link, claim.blocks(), &mut draft)?;
                source = Some((from, link.source.split_at(len).0));
                len
            }
        };
        let destination = Some(shape.destination().split_at(progress).0);
        for run in &draft.pins {
            self.space.pin(run.clone());
        }
        self.reserved += draft.reserved;
        let records = draft.puts.len() as u64 + self.zone_records(volume);
        self.promised += records;
        let change = Change {
            claim: self.parking.enter(claim.clone()),
            volume,
            puts: draft.puts,
            pins: draft.pins,
            reserved: draft.reserved,
            records,
            progress,
            remapped: draft.remapped,
            holes: draft.holes,
            give_back: draft.give_back,
        };
        Ok(Built::Run(change, port, Link { volume, source, destination }, draft.steps))
    }

    /// A layer above records the zone that a plan has written to.
    pub(super) fn zone_records(&self, volume: VolumeId) -> u64 {
        u64::from(self.volume(volume).is_some_and(|volume| volume.limits.zones.is_some()))
    }

    /// Switches the map to what the plan made.
    pub(super) fn commit_change(&mut self, cx: &mut Cx<'_>, change: Change) {
        let imaged = self.imaged();
        let link = if change.remapped.is_zero() { 0 } else { self.links.next() };
        let mut replaced = Pins::new();
        for put in change.puts {
            let len = count(&put.logical);
            let physical = match put.to {
                To::Fresh(first) => {
                    self.space.publish(first..first + len);
                    Some(first)
                }
                To::Shared(first) => Some(first),
                To::Nothing => None,
            };
            let volume =
                self.volumes[change.volume.index()].volume.as_mut().expect("the epoch is that of begin");
            if imaged {
                volume.soil(put.logical.clone(), link, &mut self.links);
            }
            let mut take = |old: crate::range_map::Piece<Physical>| {
                replaced.push(old.value.0..old.value.0 + count(&old.range));
            };
            match physical {
                Some(first) => volume.map.insert(put.logical.clone(), Physical(first), &mut take),
                None => volume.map.remove(put.logical.clone(), &mut take),
            }
            cx.log.append(&MapChange { volume: change.volume, logical: put.logical, physical });
        }
        #[cfg(feature = "canary")]
        if self.canary == Some(Canary::ReferenceLeak) && !change.remapped.is_zero() {
            replaced.clear();
        }
        for run in replaced {
            self.space.release(run, change.give_back);
        }
        self.unpin(change.pins);
        let ledger = cx.ledgers.of(change.volume);
        ledger.remapped.0 += change.remapped.bytes().0;
        ledger.copied_holes.0 += change.holes.bytes().0;
    }

    /// Gives back what a plan reserved that commits nothing.
    pub(super) fn undo_change(&mut self, change: Change) {
        for put in change.puts {
            let len = count(&put.logical);
            match put.to {
                To::Fresh(first) => self.space.abandon(first..first + len),
                To::Shared(first) => self.space.release(first..first + len, true),
                To::Nothing => {}
            }
        }
        self.unpin(change.pins);
    }

    pub(super) fn store_range(&self, run: Blocks) -> StoreRange {
        StoreRange { start: PhysSector(run.start * self.block()), len: Sectors(count(&run) * self.block()) }
    }

    /// The blocks that a run of sectors of the store lies in.
    fn run_of(&self, range: StoreRange) -> Blocks {
        range.start.0 / self.block()..(range.start + range.len).0.div_ceil(self.block())
    }

    fn map(&self, volume: VolumeId) -> &RangeMap<Physical> {
        &self.volume(volume).expect("the epoch is that of begin").map
    }

    /// Covers `range` in order: where each part lies in the store, or that it is unmapped.
    fn each_piece(
        &self,
        volume: VolumeId,
        range: SectorRange,
        mut each: impl FnMut(SectorRange, Option<PhysSector>),
    ) {
        let block = self.block();
        let blocks = range.start.0 / block..range.end().0.div_ceil(block);
        for (logical, physical) in self.map(volume).pieces_and_holes(blocks) {
            let piece = SectorRange::between(Sector(logical.start * block), Sector(logical.end * block));
            let at = piece.intersection(range).expect("the blocks of the range overlap it");
            let offset = at.start - piece.start;
            each(at, physical.map(|first| PhysSector(first.0 * block) + offset));
        }
    }

    /// New blocks for `blocks`, with `contents` in `range` and what the blocks held around it.
    fn draft_contents(
        &mut self,
        volume: VolumeId,
        range: SectorRange,
        blocks: Blocks,
        contents: Contents,
        draft: &mut Draft,
    ) -> Result<(), Lack> {
        #[cfg(feature = "canary")]
        if self.draft_in_place(volume, range, blocks.clone(), contents, draft) {
            return Ok(());
        }
        let Place { near, more } = self.place(volume, &blocks);
        if !self.space.has_room(self.reserved, more) {
            return Err(Lack::Room);
        }
        let runs = self.space.allocate(count(&blocks), near).ok_or(Lack::Blocks)?;
        draft.reserved = more;
        let mut logical = blocks.start;
        for run in runs {
            let end = logical + count(&run);
            self.draft_run(volume, range, logical, run.clone(), contents, draft);
            draft.puts.push(Put { logical: logical..end, to: To::Fresh(run.start) });
            logical = end;
        }
        Ok(())
    }

    /// The steps that fill one run of new blocks, which stands for the blocks from `logical` on.
    fn draft_run(
        &self,
        volume: VolumeId,
        range: SectorRange,
        logical: u64,
        run: Blocks,
        contents: Contents,
        draft: &mut Draft,
    ) {
        let block = self.block();
        let whole = SectorRange { start: Sector(logical * block), len: Sectors(count(&run) * block) };
        let to = |at: Sector| PhysSector(run.start * block) + (at - whole.start);
        let inside = whole.intersection(range).expect("new blocks are for the range");
        let head = SectorRange::between(whole.start, inside.start);
        let tail = SectorRange::between(inside.end(), whole.end());
        for rest in [head, tail] {
            if !rest.is_empty() {
                self.draft_move(volume, rest, to(rest.start), MoveReason::PartBlock, draft);
            }
        }
        match contents {
            Contents::Port => draft.steps.push(Step::Write {
                port: inside.start - range.start,
                to: StoreRange { start: to(inside.start), len: inside.len },
            }),
            Contents::Zeroes => {
                draft.steps.push(Step::Zero {
                    at: StoreRange { start: to(inside.start), len: inside.len },
                    unmap: false,
                });
            }
            Contents::Copy(from, source, reason) => {
                let (_, source) = source.split_at(inside.start - range.start);
                let source = source.split_at(inside.len).0;
                let holes = self.draft_move(from, source, to(inside.start), reason, draft);
                draft.holes += holes;
            }
        }
    }

    /// Moves what `source` holds to the store at `to`; gives the sectors that were unmapped.
    fn draft_move(
        &self,
        volume: VolumeId,
        source: SectorRange,
        to: PhysSector,
        reason: MoveReason,
        draft: &mut Draft,
    ) -> Sectors {
        let mut holes = Sectors::ZERO;
        self.each_piece(volume, source, |at, piece| {
            let to = to + (at.start - source.start);
            match piece {
                Some(from) => {
                    let from = StoreRange { start: from, len: at.len };
                    draft.steps.push(Step::Move { from, to, reason });
                    #[cfg(feature = "canary")]
                    if self.canary == Some(Canary::CopyUnpinned) {
                        return;
                    }
                    draft.pins.push(self.run_of(from));
                }
                None => {
                    holes += at.len;
                    draft.steps.push(Step::Zero { at: StoreRange { start: to, len: at.len }, unmap: false });
                }
            }
        });
        holes
    }

    /// One link of a copy; gives its length, which is that of `link` or less.
    fn draft_copy(
        &mut self,
        volume: VolumeId,
        from: VolumeId,
        link: CopyLink,
        blocks: Blocks,
        draft: &mut Draft,
    ) -> Result<Sectors, Lack> {
        match link.way {
            Way::Remap => Ok(self.draft_remap(volume, from, link, blocks, draft)),
            Way::Move(reason) => {
                let mut mapped = false;
                self.each_piece(from, link.source, |_, piece| mapped |= piece.is_some());
                let whole = link.destination.start.0.is_multiple_of(self.block())
                    && link.destination.len.0.is_multiple_of(self.block());
                if mapped || !whole {
                    let contents = Contents::Copy(from, link.source, reason);
                    self.draft_contents(volume, link.destination, blocks, contents, draft)?;
                } else {
                    draft_unmap(blocks, draft);
                    draft.holes = link.source.len;
                }
                Ok(link.source.len)
            }
        }
    }

    /// Whole blocks by sharing: references are taken now, so the source is as of this moment.
    fn draft_remap(
        &mut self,
        volume: VolumeId,
        from: VolumeId,
        link: CopyLink,
        blocks: Blocks,
        draft: &mut Draft,
    ) -> Sectors {
        let block = self.block();
        let blocks = self.unmappable(volume, blocks);
        let first = link.source.start.0 / block;
        let source = first..first + count(&blocks);
        let mut end = source.start;
        for (run, physical) in self.map(from).pieces_and_holes(source.clone()).take(LINK_EXTENTS_MAX) {
            end = run.end;
            let at = blocks.start + (run.start - source.start);
            let to = physical.map_or(To::Nothing, |physical| To::Shared(physical.0));
            draft.puts.push(Put { logical: at..at + count(&run), to });
        }
        for put in &draft.puts {
            let len = count(&put.logical);
            match put.to {
                To::Shared(physical) => {
                    self.space.reference(physical..physical + len);
                    draft.remapped += Sectors(len * block);
                }
                To::Fresh(_) | To::Nothing => draft.holes += Sectors(len * block),
            }
        }
        draft.give_back = true;
        Sectors((end - source.start) * block)
    }

    /// The first blocks of `blocks` that hold no more extents than a link may change.
    fn unmappable(&self, volume: VolumeId, blocks: Blocks) -> Blocks {
        let next = self.map(volume).overlapping(blocks.clone()).nth(LINK_EXTENTS_MAX);
        blocks.start..next.map_or(blocks.end, |piece| piece.range.start)
    }

    fn place(&self, volume: VolumeId, blocks: &Blocks) -> Place {
        let mut place = Place { near: None, more: count(blocks) };
        for piece in self.map(volume).overlapping(blocks.start.saturating_sub(1)..blocks.end) {
            if piece.range.start < blocks.start {
                place.near = Some(piece.value.0 + 1);
            }
            if let Some(inside) = piece.clip(blocks) {
                let run = inside.value.0..inside.value.0 + count(&inside.range);
                place.more -= count(&run) - self.space.shared_in(run);
            }
        }
        place
    }

    /// The mistake of writing in place.
    #[cfg(feature = "canary")]
    fn draft_in_place(
        &self,
        volume: VolumeId,
        range: SectorRange,
        blocks: Blocks,
        contents: Contents,
        draft: &mut Draft,
    ) -> bool {
        let Some(piece) = self.map(volume).get(blocks.start) else {
            return false;
        };
        let wrong = self.canary == Some(Canary::RewriteShared)
            && matches!(contents, Contents::Port)
            && piece.range.end >= blocks.end;
        if wrong {
            let at = PhysSector((piece.value.0 + blocks.start - piece.range.start) * self.block());
            let to = StoreRange {
                start: at + Sectors(range.start.0 - blocks.start * self.block()),
                len: range.len,
            };
            draft.steps.push(Step::Write { port: Sectors::ZERO, to });
        }
        wrong
    }
}

fn draft_unmap(blocks: Blocks, draft: &mut Draft) {
    draft.puts.push(Put { logical: blocks, to: To::Nothing });
    draft.give_back = true;
}
