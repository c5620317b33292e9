//! Changes as chains of links: a request goes from link to link until it is whole, fails, is aborted, or waits.

use super::link::{Built, Lack, Shape};
use super::*;
use crate::copy;
use crate::device;
use crate::units::SectorRange;

/// A request that changes a volume, from its begin to its answer.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) request: Request,
    /// The mode when it was let in.
    mode: CopyMode,
    /// The volumes it touches and their epochs when it was let in.
    epochs: SmallVec<[(VolumeId, u64); 2]>,
    /// The index of the current segment; 0 for everything but a copy.
    segment: usize,
    /// Sectors done of that segment.
    done: Sectors,
    /// The finished prefix.
    total: Sectors,
    aborted: bool,
    /// How often it waited for space.
    waits: u32,
}

/// A chain without a live plan.
#[derive(Debug)]
pub(super) struct Waiting {
    chain: Box<Chain>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It waits for others at this place of the line.
    Parked(Ticket, Why),
    /// Done, and waits to be durable.
    Committing,
}

/// What a parked link waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Earlier links that change the same block.
    Claim,
    /// What a commit, a trim or another plan gives back.
    Space(Lack),
}

/// A link that found space wanting this often has others eating it: it fails instead of waiting on.
const WAITS_MAX: u32 = 1000;

impl Chain {
    fn range(&self) -> Option<SectorRange> {
        match &self.request.op {
            Op::Write(range) | Op::Discard(range) | Op::WriteZeroes(range) => Some(*range),
            Op::Copy(command) => {
                command.segments.get(self.segment).map(|segment| segment.destination_range())
            }
            Op::Read(_) | Op::Flush | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => {
                unreachable!("no chain is made of {:?}", self.request.op)
            }
        }
    }

    fn progress(&mut self, len: Sectors) {
        self.done += len;
        self.total += len;
        if matches!(self.request.op, Op::Copy(_)) && self.range().is_some_and(|range| range.len == self.done)
        {
            self.segment += 1;
            self.done = Sectors::ZERO;
        }
    }

    /// What is left to do next, before the map is looked at; `None` when it is whole.
    pub(super) fn shape(&self, map_block: Sectors) -> Option<Shape> {
        let (_, rest) = self.range()?.split_at(self.done);
        if rest.is_empty() {
            return None;
        }
        Some(match &self.request.op {
            Op::Write(_) => Shape::Write(rest),
            Op::Discard(_) => unmap_shape(rest, map_block),
            Op::WriteZeroes(_) if self.request.flags.has(Flags::NOUNMAP) => {
                Shape::Zero(rest.split_at(copy::move_len(rest, map_block)).0)
            }
            Op::WriteZeroes(_) => unmap_shape(rest, map_block),
            Op::Copy(command) => {
                let segment = &command.segments[self.segment];
                let link = copy::next_link(segment, self.done, map_block, self.mode)?;
                Shape::Copy(segment.source_volume, link)
            }
            Op::Read(_) | Op::Flush | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => {
                unreachable!("no chain is made of {:?}", self.request.op)
            }
        })
    }

    fn failed(&self, status: BlkStatus) -> Completion {
        let index = u32::try_from(self.segment).unwrap_or(u32::MAX);
        Completion {
            bytes: self.total.bytes(),
            first_failed_segment: matches!(self.request.op, Op::Copy(_)).then_some(index),
            ..Completion::refused(status)
        }
    }

    fn end(&self, status: BlkStatus) -> Next {
        Next::Done(self.failed(status))
    }
}

impl Waiting {
    /// The commit that it waited for has ended.
    pub(super) fn committed(&self, status: BlkStatus) -> Next {
        assert_eq!(self.state, State::Committing);
        if status.is_ok() {
            return Next::Done(Completion::ok(self.chain.total.bytes()));
        }
        // Nothing of it is known to be durable, which is what it asked for.
        let first_failed_segment = matches!(self.chain.request.op, Op::Copy(_)).then_some(0);
        Next::Done(Completion { first_failed_segment, ..Completion::refused(status) })
    }
}

/// Whole blocks are unmapped; a part of a block becomes zeroes.
fn unmap_shape(rest: SectorRange, map_block: Sectors) -> Shape {
    if rest.start.0.is_multiple_of(map_block.0) && rest.len >= map_block {
        Shape::Unmap(rest.split_at(Sectors(rest.len.0 - rest.len.0 % map_block.0)).0)
    } else {
        Shape::ZeroPart(rest.split_at(copy::to_border(rest.start, map_block)).0)
    }
}

impl Mapped {
    pub(super) fn begin_chain(&mut self, cx: &mut Cx<'_>, request: Request, out: &mut Out) -> Next {
        if request.flags.has(Flags::APPEND) {
            return Next::Done(Completion::refused(BlkStatus::NotSupp));
        }
        let mode = self.volume(request.volume).map_or(CopyMode::Off, |volume| volume.limits.copy_mode);
        let mut epochs = smallvec![(request.volume, self.epoch(request.volume))];
        if let Op::Copy(command) = &request.op {
            for segment in &command.segments {
                if self.volume(segment.source_volume).is_none() {
                    return Next::Done(Completion::refused(BlkStatus::NoVolume));
                }
                if request.flags.has(Flags::FAST_ONLY) && !copy::is_fast(segment, self.config.map_block, mode)
                {
                    return Next::Done(Completion::refused(BlkStatus::CopyNotFast));
                }
                let source = (segment.source_volume, self.epoch(segment.source_volume));
                if !epochs.contains(&source) {
                    epochs.push(source);
                }
            }
        }
        let chain = Box::new(Chain {
            request,
            mode,
            epochs,
            segment: 0,
            done: Sectors::ZERO,
            total: Sectors::ZERO,
            aborted: false,
            waits: 0,
        });
        self.advance(cx, chain, None, out)
    }

    /// Takes a chain to its next link, to its end, or to waiting. `ticket`: the place it waited at.
    pub(super) fn advance(
        &mut self,
        cx: &mut Cx<'_>,
        mut chain: Box<Chain>,
        ticket: Option<Ticket>,
        out: &mut Out,
    ) -> Next {
        loop {
            if self.stale(&chain) {
                return chain.end(BlkStatus::IoErr);
            }
            let Some(shape) = chain.shape(self.config.map_block) else {
                return self.complete(cx, chain, out);
            };
            if chain.aborted {
                return chain.end(BlkStatus::Aborted);
            }
            let volume = chain.request.volume;
            let claim = BlockClaim::new(volume, shape.destination(), self.block());
            let ticket = ticket.unwrap_or_else(|| self.parking.ticket());
            if self.blocked(ticket, &claim) {
                return self.park(chain, ticket, claim, Why::Claim);
            }
            let records = self.promised + shape.records_max(&claim.blocks()) + self.zone_records(volume);
            if cx.log.fill() == Fill::Full || cx.log.room() < records {
                // A commit drops what is recorded; what live plans will record has to come first.
                let droppable = cx.log.last() > self.flushes.sequence();
                if (droppable && self.commit_is_coming(cx, out)) || self.promised > 0 {
                    return self.park(chain, ticket, claim, Why::Space(Lack::Log));
                }
                return chain.end(BlkStatus::IoErr);
            }
            match self.build(volume, &claim, shape) {
                Ok(Built::Run(change, port, link, steps)) => {
                    let id = chain.request.id;
                    return Next::Run(self.plan(Work::Change(chain, change), id, port, link, steps));
                }
                Ok(Built::Skip(len)) => chain.progress(len),
                Err(lack) => {
                    chain.waits += 1;
                    if chain.waits <= WAITS_MAX && self.space_is_coming(cx, lack, out) {
                        return self.park(chain, ticket, claim, Why::Space(lack));
                    }
                    return chain.end(BlkStatus::NoSpc);
                }
            }
        }
    }

    pub(super) fn finish_change(
        &mut self,
        cx: &mut Cx<'_>,
        mut chain: Box<Chain>,
        change: Change,
        status: BlkStatus,
        out: &mut Out,
    ) {
        self.parking.leave(change.claim);
        self.reserved -= change.reserved;
        // What it reserved and did not need is there for others.
        self.given_back |= change.reserved > 0;
        self.promised -= change.records;
        let stale = self.stale(&chain);
        let id = chain.request.id;
        let next = if status.is_ok() && !stale {
            let progress = change.progress;
            self.commit_change(cx, change);
            chain.progress(progress);
            self.advance(cx, chain, None, out)
        } else {
            self.undo_change(change);
            chain.end(if stale { BlkStatus::IoErr } else { status })
        };
        out.push((id, next));
    }

    /// Goes on with every parked link that nothing holds any more, first come first served.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>, out: &mut Out) {
        let mut next = self.parking.parked_from(Parking::<BlockClaim>::FIRST);
        while let Some((ticket, id, claim)) = next {
            let wanting = match self.waiting[&id].state {
                State::Parked(_, Why::Space(Lack::Room)) => !self.given_back,
                State::Parked(_, Why::Claim | Why::Space(Lack::Blocks | Lack::Log)) | State::Committing => {
                    false
                }
            };
            if !wanting && !self.blocked(ticket, claim) {
                let chain = self.unpark(id, ticket);
                match self.advance(cx, chain, Some(ticket), out) {
                    Next::Wait => {}
                    answer @ (Next::Run(_) | Next::Done(_)) => device::name(out, id, answer),
                }
            }
            next = self.parking.parked_after(ticket);
        }
        self.given_back = false;
    }

    pub(super) fn abort_chain(&mut self, id: RequestId, out: &mut Out) {
        match self.waiting.get(&id).map(|waiting| waiting.state) {
            Some(State::Parked(ticket, _)) => {
                let chain = self.unpark(id, ticket);
                out.push((id, chain.end(BlkStatus::Aborted)));
            }
            // Nothing is left to end early: it is done and ends with the commit under way.
            Some(State::Committing) => {}
            None => {
                let chains = self.live.values_mut().filter_map(|work| match work {
                    Work::Change(chain, _) if chain.request.id == id => Some(chain),
                    Work::Change(..) | Work::Read { .. } | Work::Flush | Work::Trim(_) => None,
                });
                chains.for_each(|chain| chain.aborted = true);
            }
        }
    }

    /// Answers what waits for others and touches a volume.
    pub(super) fn end_parked_of(&mut self, volume: VolumeId, status: BlkStatus, out: &mut Out) {
        let ended: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.chain.epochs.iter().any(|(touched, _)| *touched == volume))
            .filter_map(|(&id, waiting)| match waiting.state {
                State::Parked(ticket, _) => Some((id, ticket)),
                State::Committing => None,
            })
            .collect();
        for (id, ticket) in ended {
            let chain = self.unpark(id, ticket);
            out.push((id, chain.end(status)));
        }
    }

    pub(super) fn check_waiting(&self) -> Result<(), String> {
        let mut parked = 0;
        for (id, waiting) in &self.waiting {
            match waiting.state {
                State::Committing if self.flushes.awaited_by(*id) => {}
                State::Committing => return Err(format!("{id:?} waits for a commit that does not know it")),
                State::Parked(_, Why::Claim) => parked += 1,
                State::Parked(_, Why::Space(_)) => {
                    parked += 1;
                    if !self.flushes.running() && !self.trim_running && self.live.is_empty() {
                        return Err(format!("{id:?} waits for space that nothing gives back"));
                    }
                }
            }
        }
        if parked != self.parking.parked() {
            return Err(format!("{parked} chains are parked, {} places are taken", self.parking.parked()));
        }
        let mut next = self.parking.parked_from(Parking::<BlockClaim>::FIRST);
        while let Some((ticket, id, claim)) = next {
            let state = self.waiting.get(&id).map(|waiting| waiting.state);
            match state {
                Some(State::Parked(at, Why::Claim)) if at == ticket && self.blocked(ticket, claim) => {}
                Some(State::Parked(at, Why::Space(_))) if at == ticket => {}
                other => return Err(format!("{id:?} is parked at {ticket:?} for nothing: {other:?}")),
            }
            next = self.parking.parked_after(ticket);
        }
        Ok(())
    }

    fn blocked(&self, ticket: Ticket, claim: &BlockClaim) -> bool {
        #[cfg(feature = "canary")]
        if self.canary == Some(Canary::LostUpdate) {
            return false;
        }
        self.parking.blocked(ticket, claim)
    }

    fn stale(&self, chain: &Chain) -> bool {
        chain.epochs.iter().any(|&(volume, epoch)| self.epoch(volume) != epoch)
    }

    fn wait(&mut self, chain: Box<Chain>, state: State) {
        let id = chain.request.id;
        let before = self.waiting.insert(id, Waiting { chain, state });
        assert!(before.is_none(), "{id:?} waits already");
    }

    fn park(&mut self, chain: Box<Chain>, ticket: Ticket, claim: BlockClaim, why: Why) -> Next {
        self.parking.park(ticket, chain.request.id, claim);
        self.wait(chain, State::Parked(ticket, why));
        Next::Wait
    }

    fn unpark(&mut self, id: RequestId, ticket: Ticket) -> Box<Chain> {
        self.parking.unpark(ticket);
        self.waiting.remove(&id).expect("what is parked waits").chain
    }

    fn complete(&mut self, cx: &mut Cx<'_>, chain: Box<Chain>, out: &mut Out) -> Next {
        let durable = match self.config.cache {
            Cache::None => false,
            Cache::Volatile { .. } => chain.request.flags.has(Flags::FUA),
            Cache::WriteThrough { .. } => true,
        };
        if durable {
            let (id, volume) = (chain.request.id, chain.request.volume);
            self.wait(chain, State::Committing);
            return self.join_flush(cx, id, volume, out);
        }
        Next::Done(Completion::ok(chain.total.bytes()))
    }

    /// True when waiting can help a link that found space wanting; starts what gives it back.
    fn space_is_coming(&mut self, cx: &mut Cx<'_>, lack: Lack, out: &mut Out) -> bool {
        let commit = self.space.held_blocks() > 0 && self.commit_is_coming(cx, out);
        let live = match lack {
            Lack::Log => false,
            // Live plans may need less than they reserve: two of the same unmapped blocks map them once.
            Lack::Room => self.reserved > 0,
            Lack::Blocks => !self.live.is_empty(),
        };
        // Queued or under way: a trim that is only queued begins before this call is over.
        commit || self.space.trimming_blocks() > 0 || live
    }
}
