//! The log on a real device: a state machine that emits [`Request`]s and takes their [`Completion`]s.
//!
//! What is written where, and what is collected when, is the [`Log`]'s decision, made when the user's write is taken
//! in; the client carries it out in that order. It waits only where one request needs another: a move for the writes
//! of its source, a write for the reset of its zone, a reset for the moves out of its zone. Requests are to begin in
//! the order in which they are emitted, as one queue of a block device begins them; they may end in any order.
//!
//! A request that fails ends the client: the log has gone on, so nothing after it would mean what it says. What is
//! under way may still end.

mod config;
mod flights;
mod work;

pub use config::{Clearing, ClientConfig, ConfigError, Movement};
pub use flights::Failure;

use super::ledger::Traffic;
use super::log::{Log, Slot};
use super::workload::Random;
use emulation::request::ZoneAction;
use emulation::{
    Completion, CopyCommand, CopySegment, Flags, Limits, Op, Request, RequestId, Sector, SectorRange, Sectors,
};
use flights::{Flight, Flights};
use smallvec::SmallVec;
use work::{Action, Move, Read, Run, Work};
/// A request, and whose bytes it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What to ask for.
    pub request: Request,
    /// Its data.
    pub data: Data,
}

/// The data of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// None.
    None,
    /// A write of these pages of the user, in this order, each with its latest contents.
    Pages(SmallVec<[u32; 4]>),
    /// A read into this buffer of the client, or a write from it, so far from its start.
    Buffer {
        /// Its number, below [`Movement::Host`]'s count.
        buffer: u32,
        /// Where in it. It is as long as the volume's largest write.
        offset: Sectors,
    },
}

/// The client.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    log: Log,
    work: Work,
    flights: Flights,
    /// Buffers that no move has.
    buffers: Vec<u32>,
    traffic: Traffic,
    failure: Option<Failure>,
}

impl Client {
    /// An empty log on a volume with these limits. What the zones hold counts for nothing: they have to be empty when
    /// the device is zoned.
    ///
    /// # Errors
    /// Why it can never work.
    pub fn new(config: ClientConfig, limits: &Limits) -> Result<Self, ConfigError> {
        config.validate(limits)?;
        let buffers = match config.movement {
            Movement::Host { buffers } => (0..buffers).rev().collect(),
            Movement::Copy | Movement::Remap => Vec::new(),
        };
        Ok(Self {
            log: Log::new(config.geometry, config.policy, config.layout)?,
            work: Work::new(&config, limits),
            flights: Flights::new(config.first_id, config.depth),
            buffers,
            traffic: Traffic::default(),
            failure: None,
            config,
        })
    }

    /// True when so little waits that another write may be taken in.
    pub fn ready(&self) -> bool {
        self.failure.is_none() && self.work.len() < self.config.depth as usize
    }

    /// Takes in a write of a page, and whatever is collected to make room for it. Panics for a page past the last.
    pub fn write(&mut self, page: u32, random: &mut impl Random) {
        self.log.write(page, random, &mut self.work);
    }

    /// The next request, when one may begin now.
    pub fn emit(&mut self) -> Option<Command> {
        if self.failure.is_some() || self.flights.full() {
            return None;
        }
        if let Some(zone) = self.work.take_clear() {
            return Some(self.clear(zone));
        }
        if let Some(action) = self.work.take() {
            return self.act(action);
        }
        self.read_ahead()
    }

    /// Takes the end of a request.
    ///
    /// # Errors
    /// It failed, or did less than all of it, or is not one of the client's: the client ends.
    pub fn complete(&mut self, id: RequestId, completion: &Completion) -> Result<(), Failure> {
        match self.flights.land(id, completion) {
            Ok(flight) => {
                self.landed(flight);
                Ok(())
            }
            Err(failure) => {
                self.failure.get_or_insert_with(|| failure.clone());
                Err(failure)
            }
        }
    }

    /// True when nothing waits and nothing is under way.
    pub fn idle(&self) -> bool {
        self.work.len() == 0 && self.flights.under_way() == 0
    }

    /// Why it ended, if it did.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// The decisions.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What the device did for it.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Where a page lies, once the client is idle; `None` when it was never written. Panics for a page past the last.
    pub fn locate(&self, page: u32) -> Option<SectorRange> {
        self.log.locate(page).map(|slot| self.range(slot, 1))
    }

    fn range(&self, at: Slot, pages: u32) -> SectorRange {
        let page = self.config.page.0;
        let start = self.zone_start(at.zone) + Sectors(u64::from(at.offset) * page);
        SectorRange { start, len: Sectors(u64::from(pages) * page) }
    }

    fn zone_start(&self, zone: u32) -> Sector {
        self.config.start + Sectors(u64::from(zone) * self.config.zone_size.0)
    }

    fn act(&mut self, action: Action) -> Option<Command> {
        match action {
            Action::Write { pages, to, .. } => {
                let count = u32::try_from(pages.len()).expect("at most `write_pages`");
                let range = self.range(to, count);
                let flight = Flight::Write { zone: to.zone, len: range.len.bytes() };
                Some(self.command(Op::Write(range), Flags::NONE, flight, Data::Pages(pages)))
            }
            Action::Move(it) => match self.config.movement {
                Movement::Host { .. } => Some(self.write_buffer(&it)),
                Movement::Copy => Some(self.copy(&it, Flags::NONE)),
                Movement::Remap => Some(self.copy(&it, Flags::FAST_ONLY)),
            },
        }
    }

    fn clear(&mut self, zone: u32) -> Command {
        let start = self.zone_start(zone);
        let op = match self.config.clearing {
            Clearing::Reset => Op::ZoneMgmt { zone: start, action: ZoneAction::Reset },
            Clearing::Discard => {
                Op::Discard(self.range(Slot { zone, offset: 0 }, self.config.geometry.zone_pages))
            }
        };
        self.command(op, Flags::NONE, Flight::Clear { zone }, Data::None)
    }

    fn copy(&mut self, it: &Move, flags: Flags) -> Command {
        let mut at = self.range(it.to, it.pages).start;
        let segments = it.runs.iter().map(|&Run { first, pages }| {
            let source = self.range(Slot { zone: it.from, offset: first }, pages);
            let destination = at;
            at = at + source.len;
            CopySegment { source_volume: self.config.volume, source, destination }
        });
        let command = CopyCommand { segments: segments.collect() };
        let flight = Flight::Copy {
            from: it.from,
            to: it.to.zone,
            len: self.range(it.to, it.pages).len.bytes(),
            segments: command.segments.len() as u64,
            fast: flags.has(Flags::FAST_ONLY),
        };
        self.command(Op::Copy(command), flags, flight, Data::None)
    }

    fn write_buffer(&mut self, it: &Move) -> Command {
        let buffer = it.reads.buffer.expect("a move by the host is read first");
        let range = self.range(it.to, it.pages);
        let flight = Flight::WriteBuffer { from: it.from, to: it.to.zone, len: range.len.bytes(), buffer };
        self.command(Op::Write(range), Flags::NONE, flight, Data::Buffer { buffer, offset: Sectors::ZERO })
    }

    fn read_ahead(&mut self) -> Option<Command> {
        let buffers = &mut self.buffers;
        let Read { number, from, run, buffer, before } = self.work.take_read(|| buffers.pop())?;
        let range = self.range(Slot { zone: from, offset: run.first }, run.pages);
        let flight = Flight::Read { number, len: range.len.bytes() };
        let data = Data::Buffer { buffer, offset: Sectors(u64::from(before) * self.config.page.0) };
        Some(self.command(Op::Read(range), Flags::NONE, flight, data))
    }

    fn command(&mut self, op: Op, flags: Flags, flight: Flight, data: Data) -> Command {
        let id = self.flights.start(flight);
        Command { request: Request { id, volume: self.config.volume, op, flags }, data }
    }

    fn landed(&mut self, flight: Flight) {
        let traffic = &mut self.traffic;
        match flight {
            Flight::Write { zone, len } => {
                traffic.user_written.0 += len.0;
                traffic.writes += 1;
                self.work.written(zone);
            }
            Flight::Read { number, len } => {
                traffic.host_read.0 += len.0;
                traffic.reads += 1;
                self.work.read_done(number);
            }
            Flight::WriteBuffer { from, to, len, buffer } => {
                traffic.host_written.0 += len.0;
                traffic.writes += 1;
                self.buffers.push(buffer);
                self.work.moved(from, to);
            }
            Flight::Copy { from, to, len, segments, fast } => {
                let bytes = if fast { &mut traffic.remapped } else { &mut traffic.copied };
                bytes.0 += len.0;
                traffic.copies += 1;
                traffic.segments += segments;
                self.work.moved(from, to);
            }
            Flight::Clear { zone } => {
                match self.config.clearing {
                    Clearing::Reset => traffic.resets += 1,
                    Clearing::Discard => traffic.discards += 1,
                }
                self.work.cleared(zone);
            }
        }
    }
}

#[cfg(test)]
mod tests;
