//! The simulator's store: one stamp for each sector. It executes a step in pieces as small as one sector, so that
//! several live plans interleave in any way that unlocked work can. What is written is durable only after a
//! sync; until then a crash may keep it or lose it.

use super::changes::{ZEROES, stamp};
use super::prng::Prng;
use emulation::{PortKind, RequestId, Step, StoreRange};

/// A sector of the store that nobody wrote.
pub const NEVER_WRITTEN: u64 = u64::MAX;
/// A sector of the store whose contents were given back.
pub const TRIMMED: u64 = u64::MAX - 1;
/// A sector of a buffer that nobody filled.
pub const UNREAD: u64 = u64::MAX - 2;

/// What a wrong bit makes of the value of a sector.
pub const FLIPPED: u64 = 1 << 62;

/// The buffers of a request.
#[derive(Debug)]
pub struct Buffers {
    id: RequestId,
    /// Sectors that a write brings.
    written: u64,
    /// What a read fills.
    pub read: Vec<u64>,
    bounce: Vec<u64>,
}

impl Buffers {
    /// The buffers of a request that writes or reads so many sectors.
    pub fn new(id: RequestId, written: u64, read: u64) -> Self {
        Self { id, written, read: vec![UNREAD; read as usize], bounce: Vec::new() }
    }

    fn take(&self, port: PortKind, offset: u64) -> Result<u64, String> {
        match port {
            PortKind::Door if offset < self.written => Ok(stamp(self.id, offset)),
            PortKind::Bounce => Ok(self.bounce.get(offset as usize).copied().unwrap_or(UNREAD)),
            PortKind::Door | PortKind::None => Err(format!("no sector {offset} to take from port {port:?}")),
        }
    }

    fn put(&mut self, port: PortKind, offset: u64, value: u64) -> Result<(), String> {
        /// 128 KiB.
        const BOUNCE_SECTORS: u64 = 256;
        let at = offset as usize;
        match port {
            PortKind::Door if at < self.read.len() => self.read[at] = value,
            PortKind::Bounce if offset < BOUNCE_SECTORS => {
                if self.bounce.len() <= at {
                    self.bounce.resize(at + 1, UNREAD);
                }
                self.bounce[at] = value;
            }
            PortKind::Door | PortKind::Bounce | PortKind::None => {
                return Err(format!("no sector {offset} to put into port {port:?}"));
            }
        }
        Ok(())
    }
}

/// A sync under way.
#[derive(Debug, Default)]
pub struct Sync {
    begun: u64,
    /// The sector, what it holds, when that was written.
    contents: Vec<(usize, u64, u64)>,
}

/// The store.
#[derive(Debug)]
pub struct Store {
    live: Vec<u64>,
    durable: Vec<u64>,
    /// When that was written.
    durable_since: Vec<u64>,
    /// When an unsynced sector was written; 0 for the others.
    unsynced: Vec<u64>,
    dirty: Vec<u64>,
    clock: u64,
    /// What is durable is kept.
    durability: bool,
    /// A trim leaves zeroes or old data, where the map does not hide it.
    in_place: bool,
}

impl Store {
    /// A store of so many sectors; `in_place`: it begins with zeroes, as a disk does.
    pub fn new(sectors: u64, durability: bool, in_place: bool) -> Self {
        let len = sectors as usize;
        let fresh = if in_place { ZEROES } else { NEVER_WRITTEN };
        let durable = if durability { len } else { 0 };
        Self {
            live: vec![fresh; len],
            durable: vec![fresh; durable],
            durable_since: vec![0; durable],
            unsynced: vec![0; durable],
            dirty: Vec::new(),
            clock: 0,
            durability,
            in_place,
        }
    }

    /// The sectors that a step works on: what [`Store::work`] can be asked for piece by piece.
    pub fn len_of(step: &Step) -> u64 {
        match step {
            Step::Read { from, .. } | Step::Move { from, .. } => from.len.0,
            Step::ReadFlipped { len, .. } | Step::ReadZeroes { len, .. } => len.0,
            Step::Write { to, .. } => to.len.0,
            Step::Zero { at, .. } | Step::Trim { at } => at.len.0,
            // Begun, and done.
            Step::Sync => 2,
            Step::Commit(_) => 1,
        }
    }

    /// Does sectors `from..to` of a step that works on sectors.
    pub fn work(
        &mut self,
        step: &Step,
        port: PortKind,
        (from, to): (u64, u64),
        buffers: Option<&mut Buffers>,
    ) -> Result<(), String> {
        let buffers = buffers.ok_or("a plan of the device's own has no port");
        match step {
            Step::Read { from: place, port: offset } => {
                let buffers = buffers?;
                for at in from..to {
                    buffers.put(port, offset.0 + at, self.live[self.index(place, at)?])?;
                }
            }
            Step::ReadFlipped { from: start, len, port: offset, bit } => {
                let buffers = buffers?;
                for at in from..to {
                    let value = match start {
                        Some(start) => self.live[self.index(&StoreRange { start: *start, len: *len }, at)?],
                        None => ZEROES,
                    };
                    let wrong = u64::from(*bit) / 4096 == at;
                    buffers.put(port, offset.0 + at, if wrong { value ^ FLIPPED } else { value })?;
                }
            }
            Step::ReadZeroes { port: offset, .. } => {
                let buffers = buffers?;
                for at in from..to {
                    buffers.put(port, offset.0 + at, ZEROES)?;
                }
            }
            Step::Write { port: offset, to: place } => {
                let buffers = buffers?;
                for at in from..to {
                    let value = buffers.take(port, offset.0 + at)?;
                    self.write(self.index(place, at)?, value);
                }
            }
            Step::Move { from: source, to: place, .. } => {
                let place = StoreRange { start: *place, len: source.len };
                for at in from..to {
                    let value = self.live[self.index(source, at)?];
                    self.write(self.index(&place, at)?, value);
                }
            }
            Step::Zero { at: place, .. } => {
                for at in from..to {
                    self.write(self.index(place, at)?, ZEROES);
                }
            }
            Step::Trim { at: place } => {
                for at in from..to {
                    let index = self.index(place, at)?;
                    if !self.in_place {
                        self.write(index, TRIMMED);
                    } else if at.is_multiple_of(2) {
                        self.write(index, ZEROES);
                    }
                }
            }
            Step::Sync | Step::Commit(_) => {}
        }
        Ok(())
    }

    /// A sync begins: what is written by now is durable when it ends, and nothing else.
    pub fn sync_begins(&self) -> Sync {
        let contents = self.dirty.iter().map(|&sector| {
            let at = sector as usize;
            (at, self.live[at], self.unsynced[at])
        });
        Sync { begun: self.clock, contents: contents.collect() }
    }

    /// A sync ends.
    pub fn sync_done(&mut self, sync: Sync) {
        for (at, value, written) in sync.contents {
            // Another sync may have made newer contents durable meanwhile.
            if self.durable_since[at] < written {
                self.durable[at] = value;
                self.durable_since[at] = written;
            }
        }
        let unsynced = &mut self.unsynced;
        self.dirty.retain(|&sector| {
            let at = sector as usize;
            if unsynced[at] <= sync.begun {
                unsynced[at] = 0;
            }
            unsynced[at] != 0
        });
    }

    /// True when a crash could lose what this sector holds.
    pub fn is_unsynced(&self, sector: u64) -> bool {
        self.unsynced[sector as usize] != 0
    }

    /// What this sector holds.
    pub fn live(&self, sector: u64) -> u64 {
        self.live[sector as usize]
    }

    /// What a crash could leave of this sector at least.
    pub fn durable(&self, sector: u64) -> u64 {
        self.durable[sector as usize]
    }

    /// The host crashes: of what is not synced some is kept and some is lost.
    pub fn crash(&mut self, prng: &mut Prng) {
        let kept = prng.pick(&[0, 1, 2, 3, 4]);
        for sector in std::mem::take(&mut self.dirty) {
            let at = sector as usize;
            if prng.below(4) < kept {
                self.durable[at] = self.live[at];
                self.durable_since[at] = self.unsynced[at];
            } else {
                self.live[at] = self.durable[at];
            }
            self.unsynced[at] = 0;
        }
    }

    fn index(&self, range: &StoreRange, at: u64) -> Result<usize, String> {
        let sector = range.start.0 + at;
        let index = sector as usize;
        if at < range.len.0 && index < self.live.len() {
            Ok(index)
        } else {
            Err(format!("sector {sector} is not in the step or not in the store"))
        }
    }

    fn write(&mut self, index: usize, value: u64) {
        self.live[index] = value;
        if self.durability {
            self.clock += 1;
            if self.unsynced[index] == 0 {
                self.dirty.push(index as u64);
            }
            self.unsynced[index] = self.clock;
        }
    }
}
