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
    state: State,
    /// How often it waited for space.
    waits: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A link is live, or about to be.
    Live,
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
        let id = request.id;
        let chain = Chain {
            request,
            mode,
            epochs,
            segment: 0,
            done: Sectors::ZERO,
            total: Sectors::ZERO,
            aborted: false,
            state: State::Live,
            waits: 0,
        };
        assert!(self.chains.insert(id, chain).is_none(), "{id:?} lives already");
        self.advance(cx, id, None, out)
    }

    /// Takes a chain to its next link, to its end, or to waiting. `ticket`: the place it waited at.
    pub(super) fn advance(
        &mut self,
        cx: &mut Cx<'_>,
        id: RequestId,
        ticket: Option<Ticket>,
        out: &mut Out,
    ) -> Next {
        loop {
            let chain = &self.chains[&id];
            if self.stale(chain) {
                return self.end(id, BlkStatus::IoErr);
            }
            let Some(shape) = chain.shape(self.config.map_block) else {
                return self.complete(cx, id, out);
            };
            if chain.aborted {
                return self.end(id, BlkStatus::Aborted);
            }
            let volume = chain.request.volume;
            let claim = BlockClaim::new(volume, shape.destination(), self.block());
            let ticket = ticket.unwrap_or_else(|| self.parking.ticket());
            if self.blocked(ticket, &claim) {
                return self.park(id, ticket, claim, Why::Claim);
            }
            let records = self.promised + shape.records_max(&claim.blocks()) + self.zone_records(volume);
            if cx.log.fill() == Fill::Full || cx.log.room() < records {
                // A commit drops what is recorded; what live plans will record has to come first.
                let droppable = cx.log.last() > self.flushes.sequence();
                if (droppable && self.commit_is_coming(cx, out)) || self.promised > 0 {
                    return self.park(id, ticket, claim, Why::Space(Lack::Log));
                }
                return self.end(id, BlkStatus::IoErr);
            }
            match self.build(id, volume, ticket, &claim, shape) {
                Ok(Built::Run(plan)) => {
                    self.chain(id).state = State::Live;
                    return Next::Run(plan);
                }
                Ok(Built::Skip(len)) => self.chain(id).progress(len),
                Err(lack) => {
                    self.chain(id).waits += 1;
                    if self.chain(id).waits <= WAITS_MAX && self.space_is_coming(cx, lack, out) {
                        return self.park(id, ticket, claim, Why::Space(lack));
                    }
                    return self.end(id, BlkStatus::NoSpc);
                }
            }
        }
    }

    pub(super) fn finish_change(
        &mut self,
        cx: &mut Cx<'_>,
        id: RequestId,
        change: Change,
        status: BlkStatus,
        out: &mut Out,
    ) {
        self.parking.leave(change.ticket);
        self.reserved -= change.reserved;
        // What it reserved and did not need is there for others.
        self.given_back |= change.reserved > 0;
        self.promised -= change.records;
        let stale = self.stale(&self.chains[&id]);
        let next = if status.is_ok() && !stale {
            let progress = change.progress;
            self.commit_change(cx, change);
            self.chain(id).progress(progress);
            self.advance(cx, id, None, out)
        } else {
            self.undo_change(change);
            self.end(id, if stale { BlkStatus::IoErr } else { status })
        };
        out.push((id, next));
    }

    /// Goes on with every parked link that nothing holds any more, first come first served.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>, out: &mut Out) {
        let mut next = self.parking.parked_from(Parking::<BlockClaim>::FIRST);
        while let Some((ticket, id, claim)) = next {
            let wanting = match self.chains[&id].state {
                State::Parked(_, Why::Space(Lack::Room)) => !self.given_back,
                State::Parked(_, Why::Claim | Why::Space(Lack::Blocks | Lack::Log))
                | State::Live
                | State::Committing => false,
            };
            if !wanting && !self.blocked(ticket, claim) {
                self.parking.unpark(ticket);
                match self.advance(cx, id, Some(ticket), out) {
                    Next::Wait => {}
                    answer @ (Next::Run(_) | Next::Done(_)) => device::name(out, id, answer),
                }
            }
            next = self.parking.parked_after(ticket);
        }
        self.given_back = false;
    }

    pub(super) fn abort_chain(&mut self, id: RequestId, out: &mut Out) {
        let Some(chain) = self.chains.get_mut(&id) else {
            return;
        };
        match chain.state {
            State::Live => chain.aborted = true,
            State::Parked(ticket, _) => {
                self.parking.unpark(ticket);
                let next = self.end(id, BlkStatus::Aborted);
                out.push((id, next));
            }
            // Nothing is left to end early: it is done and ends with the commit under way.
            State::Committing => {}
        }
    }

    /// Answers what waits for others and touches a volume.
    pub(super) fn end_parked_of(&mut self, volume: VolumeId, status: BlkStatus, out: &mut Out) {
        let ended: Vec<_> = self
            .chains
            .iter()
            .filter(|(_, chain)| chain.epochs.iter().any(|(touched, _)| *touched == volume))
            .filter_map(|(&id, chain)| match chain.state {
                State::Parked(ticket, _) => Some((id, ticket)),
                State::Live | State::Committing => None,
            })
            .collect();
        for (id, ticket) in ended {
            self.parking.unpark(ticket);
            let next = self.end(id, status);
            out.push((id, next));
        }
    }

    /// Answers a chain that waited for its commit.
    pub(super) fn chain_committed(&mut self, id: RequestId, status: BlkStatus) -> Next {
        let chain = self.chains.remove(&id).expect("it waits");
        assert_eq!(chain.state, State::Committing);
        if status.is_ok() {
            return Next::Done(Completion::ok(chain.total.bytes()));
        }
        // Nothing of it is known to be durable, which is what it asked for.
        let first_failed_segment = matches!(chain.request.op, Op::Copy(_)).then_some(0);
        Next::Done(Completion { first_failed_segment, ..Completion::refused(status) })
    }

    pub(super) fn check_waiting(&self) -> Result<(), String> {
        let mut parked = 0;
        for (id, chain) in &self.chains {
            match chain.state {
                State::Live => {}
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
            let state = self.chains.get(&id).map(|chain| chain.state);
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

    fn chain(&mut self, id: RequestId) -> &mut Chain {
        self.chains.get_mut(&id).expect("the chain lives")
    }

    fn park(&mut self, id: RequestId, ticket: Ticket, claim: BlockClaim, why: Why) -> Next {
        self.parking.park(ticket, id, claim);
        self.chain(id).state = State::Parked(ticket, why);
        Next::Wait
    }

    fn end(&mut self, id: RequestId, status: BlkStatus) -> Next {
        let chain = self.chains.remove(&id).expect("the chain lives");
        Next::Done(chain.failed(status))
    }

    fn complete(&mut self, cx: &mut Cx<'_>, id: RequestId, out: &mut Out) -> Next {
        let durable = match self.config.cache {
            Cache::None => false,
            Cache::Volatile { .. } => self.chains[&id].request.flags.has(Flags::FUA),
            Cache::WriteThrough { .. } => true,
        };
        if durable {
            self.chain(id).state = State::Committing;
            let volume = self.chains[&id].request.volume;
            return self.join_flush(cx, id, volume, out);
        }
        let chain = self.chains.remove(&id).expect("the chain lives");
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
