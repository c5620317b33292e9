//! Who names a physical block: the maps, as the redo records have them; live plans, as their steps have them;
//! the durable image, as the commits have it. Kept without asking the device, and so an independent check of
//! its rules: a block is written by one plan only, and never while anything else names it.

use super::store::Store;
use emulation::redo::{Commit, MapChange};
use emulation::{Limits, Plan, PlanId, Step, StoreRange, VolumeId};
use std::collections::BTreeMap;

const UNMAPPED: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    mapped: u32,
    durable: u32,
    /// Named by commits under way.
    committing: u32,
    plans: u32,
    /// The live plan that writes it.
    writer: Option<PlanId>,
    /// Sectors that its last writer wrote.
    filled: u128,
    /// The call in which the last map entry that named it went.
    unmapped_in: u64,
}

/// A volume of the durable image. Its number may have been given to another volume since.
#[derive(Clone, Debug)]
struct Durable {
    incarnation: u64,
    map: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Live {
    incarnation: u64,
    map: Vec<u64>,
}

/// What a live plan names.
#[derive(Debug, Default)]
pub struct Claim {
    blocks: Vec<u64>,
    committing: Vec<u64>,
    /// The volumes of the commit: number, incarnation, blocks.
    volumes: BTreeMap<VolumeId, (u64, usize)>,
}

/// The names of all blocks of a store.
#[derive(Debug)]
pub struct Names {
    map_block: u64,
    blocks: Vec<Block>,
    /// Of them those that a map names.
    mapped: u64,
    live: BTreeMap<VolumeId, Live>,
    durable: BTreeMap<VolumeId, Durable>,
    /// Redo records up to this number are in the durable image.
    sequence: u64,
    incarnations: u64,
    call: u64,
    /// Only follows, and finds nothing wrong.
    blind: bool,
}

impl Names {
    /// No volume, no name.
    pub fn new(map_block: u64, blocks: u64, blind: bool) -> Self {
        Self {
            map_block,
            blocks: vec![Block::default(); blocks as usize],
            mapped: 0,
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            sequence: 0,
            incarnations: 0,
            call: 0,
            blind,
        }
    }

    /// A volume is added.
    pub fn add_volume(&mut self, id: VolumeId, limits: &Limits) {
        self.incarnations += 1;
        let map = vec![UNMAPPED; (limits.capacity.0 / self.map_block) as usize];
        self.live.insert(id, Live { incarnation: self.incarnations, map });
    }

    /// A volume is removed.
    pub fn remove_volume(&mut self, id: VolumeId) {
        let live = self.live.remove(&id).expect("a volume is removed once");
        for physical in live.map {
            self.unmap(physical);
        }
    }

    /// The device is about to be called.
    pub fn call(&mut self) {
        self.call += 1;
    }

    /// A redo record was appended.
    pub fn change(&mut self, change: &MapChange) -> Result<(), String> {
        let Some(live) = self.live.get(&change.volume) else {
            return Err(format!("a record of volume {}, which is gone: {change:?}", change.volume.0));
        };
        if change.logical.is_empty() || change.logical.end > live.map.len() as u64 {
            return Err(format!("a record beyond its volume: {change:?}"));
        }
        for (offset, logical) in change.logical.clone().enumerate() {
            let new = change.physical.map_or(UNMAPPED, |first| first + offset as u64);
            if new != UNMAPPED {
                self.map(new)?;
            }
            let live = self.live.get_mut(&change.volume).expect("looked up above");
            let old = std::mem::replace(&mut live.map[logical as usize], new);
            self.unmap(old);
        }
        Ok(())
    }

    fn map(&mut self, physical: u64) -> Result<(), String> {
        let full = u128::MAX >> (128 - self.map_block);
        let blind = self.blind;
        let block = self.block_mut(physical)?;
        if let Some(writer) = block.writer.filter(|_| !blind) {
            return Err(format!("block {physical} is mapped while {writer:?} writes it"));
        }
        if block.mapped == 0 && block.filled != full && !blind {
            return Err(format!(
                "block {physical} is mapped and was not wholly written: {:#x}",
                block.filled
            ));
        }
        block.mapped += 1;
        self.mapped += u64::from(block.mapped == 1);
        Ok(())
    }

    fn unmap(&mut self, physical: u64) {
        if physical != UNMAPPED {
            let call = self.call;
            let block = &mut self.blocks[physical as usize];
            block.mapped -= 1;
            if block.mapped == 0 {
                block.unmapped_in = call;
                self.mapped -= 1;
            }
        }
    }

    /// A plan arrives: it may name what it names.
    pub fn receive(&mut self, plan: &Plan) -> Result<Claim, String> {
        let mut claim = Claim::default();
        let mut written = Vec::new();
        for step in &plan.steps {
            match step {
                Step::Read { from, .. } => self.source(*from, &mut claim.blocks)?,
                Step::ReadFlipped { from: Some(start), len, .. } => {
                    self.source(StoreRange { start: *start, len: *len }, &mut claim.blocks)?;
                }
                Step::Write { to, .. } => written.extend(self.blocks_of(*to)),
                Step::Zero { at, .. } | Step::Trim { at } => written.extend(self.blocks_of(*at)),
                Step::Move { from, to, .. } => {
                    self.source(*from, &mut claim.blocks)?;
                    written.extend(self.blocks_of(StoreRange { start: *to, len: from.len }));
                }
                Step::Commit(commit) => self.committing(commit, &mut claim)?,
                Step::ReadFlipped { from: None, .. } | Step::ReadZeroes { .. } | Step::Sync => {}
            }
        }
        written.sort_unstable();
        written.dedup();
        let blind = self.blind;
        for &physical in &written {
            let block = self.block_mut(physical)?;
            let named = [
                (block.mapped, "a map"),
                (block.durable, "the durable image"),
                (block.committing, "a commit under way"),
                (block.plans, "another live plan"),
            ];
            if let Some((_, by)) = named.iter().find(|(count, _)| *count > 0 && !blind) {
                return Err(format!("{:?} writes block {physical}, which {by} names", plan.id));
            }
            block.writer = Some(plan.id);
            block.filled = 0;
        }
        claim.blocks.extend(&written);
        claim.blocks.sort_unstable();
        claim.blocks.dedup();
        for &physical in &claim.blocks {
            self.blocks[physical as usize].plans += 1;
        }
        for &physical in &claim.committing {
            self.blocks[physical as usize].committing += 1;
        }
        Ok(claim)
    }

    /// A plan goes back.
    pub fn release(&mut self, plan: PlanId, claim: &Claim) {
        for &physical in &claim.blocks {
            let block = &mut self.blocks[physical as usize];
            block.plans -= 1;
            if block.writer == Some(plan) {
                block.writer = None;
            }
        }
        for &physical in &claim.committing {
            self.blocks[physical as usize].committing -= 1;
        }
    }

    /// A plan writes these sectors.
    pub fn wrote(&mut self, plan: PlanId, range: StoreRange) -> Result<(), String> {
        let (map_block, blind) = (self.map_block, self.blind);
        let end = range.start.0 + range.len.0;
        for physical in self.blocks_of(range) {
            let first = range.start.0.max(physical * map_block) - physical * map_block;
            let last = end.min((physical + 1) * map_block) - physical * map_block;
            let block = self.block_mut(physical)?;
            if block.writer != Some(plan) && !blind {
                return Err(format!("{plan:?} writes block {physical}, which {:?} allocated", block.writer));
            }
            block.filled |= (u128::MAX >> (128 - (last - first))) << first;
        }
        Ok(())
    }

    /// A commit becomes durable.
    pub fn commit(&mut self, commit: &Commit, claim: &Claim, store: &Store) -> Result<(), String> {
        for change in &commit.changes {
            let Some(first) = change.physical else { continue };
            let sectors = first * self.map_block..(first + span(change)) * self.map_block;
            if let Some(sector) = sectors.clone().find(|&sector| store.is_unsynced(sector) && !self.blind) {
                let block = sector / self.map_block;
                return Err(format!(
                    "a commit publishes block {block} before its data is durable: {change:?}"
                ));
            }
        }
        for id in &commit.removed {
            for physical in self.durable.remove(id).into_iter().flat_map(|durable| durable.map) {
                if physical != UNMAPPED {
                    self.blocks[physical as usize].durable -= 1;
                }
            }
        }
        for change in &commit.changes {
            let (incarnation, len) = claim.volumes[&change.volume];
            let fresh = || Durable { incarnation, map: vec![UNMAPPED; len] };
            let durable = self.durable.entry(change.volume).or_insert_with(fresh);
            if durable.incarnation != incarnation {
                return Err(format!("a commit changes a volume over the image of a removed one: {change:?}"));
            }
            for (offset, logical) in change.logical.clone().enumerate() {
                let new = change.physical.map_or(UNMAPPED, |first| first + offset as u64);
                let old = std::mem::replace(&mut durable.map[logical as usize], new);
                if new != UNMAPPED {
                    self.blocks[new as usize].durable += 1;
                }
                if old != UNMAPPED {
                    self.blocks[old as usize].durable -= 1;
                }
            }
        }
        self.sequence = self.sequence.max(commit.sequence);
        Ok(())
    }

    /// The physical sector that a volume's sector has in the durable image, or `None` where it reads as zeroes.
    pub fn durable_sector(&self, id: VolumeId, sector: u64) -> Option<u64> {
        let durable =
            self.durable.get(&id).filter(|durable| durable.incarnation == self.live[&id].incarnation)?;
        let physical = durable.map[(sector / self.map_block) as usize];
        (physical != UNMAPPED).then(|| physical * self.map_block + sector % self.map_block)
    }

    /// The physical sector that a volume's sector has now.
    pub fn live_sector(&self, id: VolumeId, sector: u64) -> Option<u64> {
        let physical = self.live[&id].map[(sector / self.map_block) as usize];
        (physical != UNMAPPED).then(|| physical * self.map_block + sector % self.map_block)
    }

    /// The host crashes: the maps are those of the durable image, and no record is left. Gives its entries.
    pub fn crash(&mut self) -> Vec<MapChange> {
        self.drop_gone();
        for (id, live) in &mut self.live {
            let durable = self.durable.get(id);
            live.map = durable.map_or_else(|| vec![UNMAPPED; live.map.len()], |durable| durable.map.clone());
        }
        self.sequence = 0;
        self.recount();
        self.entries()
    }

    /// The server dies: its plans are gone, the maps are to be had from the durable image and the records. Gives the
    /// entries of the image and the number of the last record in it.
    pub fn kill(&mut self) -> (Vec<MapChange>, u64) {
        self.drop_gone();
        self.recount();
        (self.entries(), self.sequence)
    }

    /// The owner of the pool has written down which volumes are gone.
    fn drop_gone(&mut self) {
        let live = &self.live;
        self.durable.retain(|id, durable| live.get(id).is_some_and(|l| l.incarnation == durable.incarnation));
    }

    /// Nothing is under way: blocks are named by maps and the durable image alone.
    fn recount(&mut self) {
        for block in &mut self.blocks {
            // What is mapped was wholly written by someone.
            *block = Block { filled: block.filled, unmapped_in: block.unmapped_in, ..Block::default() };
        }
        self.mapped = 0;
        for physical in
            self.live.values().flat_map(|live| &live.map).filter(|physical| **physical != UNMAPPED)
        {
            let block = &mut self.blocks[*physical as usize];
            block.mapped += 1;
            self.mapped += u64::from(block.mapped == 1);
        }
        for physical in self.durable.values().flat_map(|durable| &durable.map) {
            if *physical != UNMAPPED {
                self.blocks[*physical as usize].durable += 1;
            }
        }
    }

    /// The durable image, in as few entries as there are.
    fn entries(&self) -> Vec<MapChange> {
        let mut entries: Vec<MapChange> = Vec::new();
        for (&volume, durable) in &self.durable {
            for (logical, &physical) in (0..).zip(&durable.map).filter(|(_, physical)| **physical != UNMAPPED)
            {
                match entries.last_mut() {
                    Some(last)
                        if last.volume == volume
                            && last.logical.end == logical
                            && last.physical.is_some_and(|first| first + span(last) == physical) =>
                    {
                        last.logical.end += 1;
                    }
                    _ => entries.push(MapChange {
                        volume,
                        logical: logical..logical + 1,
                        physical: Some(physical),
                    }),
                }
            }
        }
        entries
    }

    /// Says whether the durable image and the records that are kept give the maps.
    pub fn check_replay(&self, records: &super::log::Records) -> Result<(), String> {
        if records.dropped > self.sequence {
            let (dropped, durable) = (records.dropped, self.sequence);
            return Err(format!(
                "records up to {dropped} were dropped, the durable image has those to {durable}"
            ));
        }
        for (id, live) in &self.live {
            let same = self.durable.get(id).filter(|durable| durable.incarnation == live.incarnation);
            let mut map = same.map_or_else(|| vec![UNMAPPED; live.map.len()], |durable| durable.map.clone());
            let later = records
                .kept
                .iter()
                .filter(|(number, change)| *number > self.sequence && change.volume == *id);
            for (_, change) in later {
                for (offset, logical) in change.logical.clone().enumerate() {
                    map[logical as usize] = change.physical.map_or(UNMAPPED, |first| first + offset as u64);
                }
            }
            if let Some(at) = (0..map.len()).find(|&at| map[at] != live.map[at]) {
                return Err(format!(
                    "replay gives block {at} of volume {} as {:?}, the map has {:?}",
                    id.0, map[at] as i64, live.map[at] as i64
                ));
            }
        }
        Ok(())
    }

    /// Blocks that maps name.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Blocks that the durable image alone names.
    pub fn held(&self) -> u64 {
        self.blocks.iter().filter(|block| block.mapped == 0 && block.durable > 0).count() as u64
    }

    /// How many of these blocks of a volume are mapped.
    pub fn mapped_of(&self, id: VolumeId, blocks: std::ops::Range<u64>) -> u64 {
        let map = &self.live[&id].map;
        blocks.filter(|&logical| map[logical as usize] != UNMAPPED).count() as u64
    }

    /// True when every map block of the range is mapped and nothing else is mapped to the same place.
    pub fn is_unshared(&self, id: VolumeId, start: u64, end: u64) -> bool {
        let map = &self.live[&id].map;
        (start / self.map_block..end.div_ceil(self.map_block)).all(|logical| {
            let physical = map[logical as usize];
            physical != UNMAPPED && self.blocks[physical as usize].mapped == 1
        })
    }

    fn source(&self, range: StoreRange, blocks: &mut Vec<u64>) -> Result<(), String> {
        for physical in self.blocks_of(range) {
            let block = self.blocks.get(physical as usize).ok_or_else(|| format!("no block {physical}"))?;
            if block.mapped == 0 && block.unmapped_in != self.call && !self.blind {
                return Err(format!("a plan reads block {physical}, which no map names"));
            }
            blocks.push(physical);
        }
        Ok(())
    }

    fn committing(&self, commit: &Commit, claim: &mut Claim) -> Result<(), String> {
        for change in &commit.changes {
            let live = self.live.get(&change.volume);
            let live = live.ok_or_else(|| format!("a commit of a volume that is gone: {change:?}"))?;
            claim.volumes.insert(change.volume, (live.incarnation, live.map.len()));
            if let Some(first) = change.physical {
                claim.committing.extend(first..first + span(change));
            }
        }
        Ok(())
    }

    fn blocks_of(&self, range: StoreRange) -> std::ops::Range<u64> {
        range.start.0 / self.map_block..(range.start.0 + range.len.0).div_ceil(self.map_block)
    }

    fn block_mut(&mut self, physical: u64) -> Result<&mut Block, String> {
        self.blocks.get_mut(physical as usize).ok_or_else(|| format!("no block {physical} in the store"))
    }
}

fn span(change: &MapChange) -> u64 {
    change.logical.end - change.logical.start
}
