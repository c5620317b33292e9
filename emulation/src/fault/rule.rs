//! What goes wrong, with which requests, how often. The words are those of `ublk fault`.

use crate::device::Keep;
use crate::limits::Limits;
use crate::request::{Flags, Op, Request, RequestId};
use crate::status::BlkStatus;
use crate::time::{Instant, Nanos};
use crate::timing::chance::Chance;
use crate::units::{Bytes, Sector, SectorRange, Sectors};
use crate::zone::ZoneFailure;
use std::collections::VecDeque;

/// The requests that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOp {
    /// All that the action can strike.
    Any,
    /// Reads.
    Read,
    /// Writes, appends included.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
    /// Write zeroes.
    WriteZeroes,
    /// Copies to the volume.
    Copy,
    /// Actions on zones.
    ZoneMgmt,
    /// Reports of zones.
    ReportZones,
}

impl FaultOp {
    /// Each with its name on the command line.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Any, "any"),
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Flush, "flush"),
        (Self::Discard, "discard"),
        (Self::WriteZeroes, "write-zeroes"),
        (Self::Copy, "copy"),
        (Self::ZoneMgmt, "zone-mgmt"),
        (Self::ReportZones, "report-zones"),
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(op, _)| *op == self).expect("each has a name").1
    }

    /// What an operation is called.
    pub fn of(op: &Op) -> Self {
        match op {
            Op::Read(_) => Self::Read,
            Op::Write(_) => Self::Write,
            Op::Flush => Self::Flush,
            Op::Discard(_) => Self::Discard,
            Op::WriteZeroes(_) => Self::WriteZeroes,
            Op::Copy(_) => Self::Copy,
            Op::ZoneMgmt { .. } | Op::ZoneResetAll => Self::ZoneMgmt,
            Op::ReportZones { .. } => Self::ReportZones,
        }
    }
}

/// What a struck request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// It fails and does nothing.
    Error(BlkStatus),
    /// It is answered no earlier than so long after it began.
    Delay(Nanos),
    /// It is not answered, until the rule or the volume is removed or somebody aborts it.
    Hang,
    /// A copy fails at the segment with this index, those before it done. Strikes copies that have that segment.
    FailAt(u32),
    /// It fails when so much of it is done. Strikes what is longer.
    StopAt(Bytes),
    /// One bit of one sector reads wrong from now on: of those that are read, written or copied. The data below stays
    /// as it is: a retry sees the same, a new write ends it, and so does the end of the rule.
    Corrupt,
    /// Fewer logical blocks than asked for are written, and success is reported.
    Torn,
    /// It reads or writes at this sector instead of its own.
    Misdirect(Sector),
    /// A flush does nothing and reports success; FUA is not heard.
    LostFlush,
    /// The zone that it works on fails while the middle of the request is under way.
    Zone(ZoneFailure),
    /// The power of the volume fails while the middle of the request is under way, at the latest when it ends. `None`: what
    /// is kept is drawn from the seed of the rule.
    PowerCut(Option<Keep>),
}

impl FaultAction {
    /// True when it can strike such a request at all.
    fn fits(self, op: FaultOp) -> bool {
        use FaultOp::{Any, Copy, Discard, Flush, Read, Write, WriteZeroes};
        match self {
            Self::Error(_) | Self::Delay(_) | Self::Hang => true,
            Self::FailAt(_) => matches!(op, Any | Copy),
            Self::StopAt(_) => matches!(op, Any | Read | Write | WriteZeroes | Discard | Copy),
            Self::Corrupt => matches!(op, Any | Read | Write | WriteZeroes | Copy),
            Self::Torn => matches!(op, Any | Write | WriteZeroes | Copy),
            Self::Misdirect(_) => matches!(op, Any | Read | Write | WriteZeroes),
            Self::LostFlush => matches!(op, Any | Flush | Write | WriteZeroes | Discard | Copy),
            Self::Zone(_) => matches!(op, Any | Read | Write | Copy),
            Self::PowerCut(_) => matches!(op, Any | Write | WriteZeroes | Discard | Copy),
        }
    }

    /// True when the data or what is said of it can be wrong afterwards.
    pub fn changes_data(self) -> bool {
        match self {
            Self::Corrupt | Self::Torn | Self::Misdirect(_) => true,
            Self::Error(_)
            | Self::Delay(_)
            | Self::Hang
            | Self::FailAt(_)
            | Self::StopAt(_)
            | Self::LostFlush
            | Self::Zone(_)
            | Self::PowerCut(_) => false,
        }
    }
}

/// Which of the matching requests are struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultPick {
    /// From the one with this number on, counted from 1.
    From(u64),
    /// So many of so many, by chance from the seed of the rule.
    Ratio(u32, u32),
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// Its name, one of its volume.
    pub name: String,
    /// The requests it is about.
    pub op: FaultOp,
    /// Those that touch this range of the volume; `None`: all.
    pub range: Option<SectorRange>,
    /// Which of them.
    pub pick: FaultPick,
    /// The most that are struck.
    pub count: Option<u64>,
    /// Where chance begins.
    pub seed: u64,
    /// What they meet.
    pub action: FaultAction,
}

/// Why a rule cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// A rule of this name is there.
    #[error("there is a rule \"{0}\"")]
    Exists(String),
    /// More rules than a volume takes.
    #[error("a disk has at most {0} rules")]
    TooMany(usize),
    /// Nothing would ever be struck.
    #[error("op={0}: the action cannot strike it")]
    Op(&'static str),
    /// Counting begins with 1.
    #[error("nth: counted from 1")]
    Nth,
    /// Not a part of a whole.
    #[error("ratio {0}/{1}: a part of a whole, such as 1/100")]
    Ratio(u32, u32),
    /// Nothing would ever be struck.
    #[error("count: at least 1")]
    Count,
    /// No range of the volume.
    #[error("range {0}: not a range of the disk")]
    Range(SectorRange),
    /// Not a whole number of logical blocks.
    #[error("{0}: must be a multiple of the logical block size")]
    Block(&'static str),
    /// Success is no error.
    #[error("error: OK is none")]
    NoError,
    /// The volume has no zones.
    #[error("zone: the disk has no zones")]
    NoZones,
    /// The write pointer of a zone knows what was written.
    #[error("torn, misdirect: not on a zoned disk")]
    Zoned,
}

/// The most rules of a volume.
pub const RULES_MAX: usize = 64;

impl FaultRule {
    /// A rule that strikes every request which the action can strike.
    pub fn new(name: &str, action: FaultAction) -> Self {
        let (op, pick) = (FaultOp::Any, FaultPick::From(1));
        Self { name: name.to_string(), op, range: None, pick, count: None, seed: 0, action }
    }

    /// Refuses what could never strike, or not do what it says.
    ///
    /// # Errors
    /// The first reason.
    pub fn validate(&self, limits: &Limits) -> Result<(), FaultError> {
        if !self.action.fits(self.op) {
            return Err(FaultError::Op(self.op.name()));
        }
        match self.pick {
            FaultPick::From(0) => return Err(FaultError::Nth),
            FaultPick::Ratio(part, of) if part == 0 || part > of => return Err(FaultError::Ratio(part, of)),
            FaultPick::From(_) | FaultPick::Ratio(..) => {}
        }
        if self.count == Some(0) {
            return Err(FaultError::Count);
        }
        let inside = |range: SectorRange| {
            let end = range.start.0.checked_add(range.len.0);
            !range.is_empty() && end.is_some_and(|end| end <= limits.capacity.0)
        };
        if let Some(range) = self.range.filter(|range| !inside(*range)) {
            return Err(FaultError::Range(range));
        }
        let whole = |sectors: u64| sectors.is_multiple_of(limits.logical_block.0);
        match self.action {
            FaultAction::Error(BlkStatus::Ok) => Err(FaultError::NoError),
            FaultAction::StopAt(bytes) if !bytes.sectors().is_some_and(|sectors| whole(sectors.0)) => {
                Err(FaultError::Block("stop-at"))
            }
            FaultAction::Misdirect(sector) if !whole(sector.0) => Err(FaultError::Block("misdirect")),
            FaultAction::Misdirect(sector) if sector.0 >= limits.capacity.0 => {
                Err(FaultError::Range(SectorRange { start: sector, len: Sectors(1) }))
            }
            FaultAction::Zone(_) if limits.zones.is_none() => Err(FaultError::NoZones),
            FaultAction::Torn | FaultAction::Misdirect(_) if limits.zones.is_some() => Err(FaultError::Zoned),
            FaultAction::Error(_)
            | FaultAction::Delay(_)
            | FaultAction::Hang
            | FaultAction::FailAt(_)
            | FaultAction::StopAt(_)
            | FaultAction::Corrupt
            | FaultAction::Torn
            | FaultAction::Misdirect(_)
            | FaultAction::LostFlush
            | FaultAction::Zone(_)
            | FaultAction::PowerCut(_) => Ok(()),
        }
    }
}

/// A request that was struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// The request.
    pub request: RequestId,
    /// What it asked for.
    pub op: FaultOp,
    /// Its range; of a copy its first destination.
    pub range: Option<SectorRange>,
    /// When it began.
    pub at: Instant,
}

/// How a rule has done.
#[derive(Clone, Debug)]
pub struct RuleState {
    /// The rule.
    pub rule: FaultRule,
    /// Requests that it matched.
    pub matched: u64,
    /// Those that it struck.
    pub struck: u64,
    /// The last [`STRIKES_KEPT`] of them.
    pub strikes: VecDeque<Strike>,
    /// Names the rule in marks; never used again.
    pub(super) serial: u32,
    pub(super) chance: Chance,
}

/// Struck requests that are remembered of a rule.
pub const STRIKES_KEPT: usize = 32;

impl RuleState {
    pub(super) fn new(rule: FaultRule, serial: u32) -> Self {
        let chance = Chance::new(rule.seed);
        Self { rule, matched: 0, struck: 0, strikes: VecDeque::new(), serial, chance }
    }

    /// Looks at a request of the rule's volume; true when it is struck.
    pub(super) fn strikes(&mut self, now: Instant, request: &Request) -> bool {
        let rule = &self.rule;
        let op = FaultOp::of(&request.op);
        let about = (rule.op == FaultOp::Any || rule.op == op) && can_strike(rule.action, request);
        let near = rule.range.is_none_or(|range| touches(request, range));
        if !about || !near || rule.count.is_some_and(|most| self.struck >= most) {
            return false;
        }
        self.matched += 1;
        let picked = match rule.pick {
            FaultPick::From(first) => self.matched >= first,
            FaultPick::Ratio(part, of) => self.chance.below(of) < part,
        };
        if picked {
            self.struck += 1;
            if self.strikes.len() == STRIKES_KEPT {
                self.strikes.pop_front();
            }
            self.strikes.push_back(Strike { request: request.id, op, range: range_of(&request.op), at: now });
        }
        picked
    }
}

fn can_strike(action: FaultAction, request: &Request) -> bool {
    if !action.fits(FaultOp::of(&request.op)) {
        return false;
    }
    match action {
        FaultAction::FailAt(index) => {
            request.op.copy().is_some_and(|command| command.segments.len() > index as usize)
        }
        FaultAction::StopAt(bytes) => len_of(&request.op).bytes() > bytes,
        FaultAction::LostFlush => matches!(request.op, Op::Flush) || request.flags.has(Flags::FUA),
        FaultAction::Corrupt
        | FaultAction::Torn
        | FaultAction::Misdirect(_)
        | FaultAction::Zone(_)
        | FaultAction::PowerCut(_) => !len_of(&request.op).is_zero(),
        FaultAction::Error(_) | FaultAction::Delay(_) | FaultAction::Hang => true,
    }
}

/// All that an admitted request reads, writes or copies.
pub(super) fn len_of(op: &Op) -> Sectors {
    match op {
        Op::Read(range) | Op::Write(range) | Op::Discard(range) | Op::WriteZeroes(range) => range.len,
        Op::Copy(command) => command.total().unwrap_or(Sectors::ZERO),
        Op::Flush | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => Sectors::ZERO,
    }
}

fn range_of(op: &Op) -> Option<SectorRange> {
    match op {
        Op::Read(range) | Op::Write(range) | Op::Discard(range) | Op::WriteZeroes(range) => Some(*range),
        Op::Copy(command) => command.segments.first().map(|segment| segment.destination_range()),
        Op::ZoneMgmt { zone, .. } => Some(SectorRange { start: *zone, len: Sectors(1) }),
        Op::Flush | Op::ZoneResetAll | Op::ReportZones { .. } => None,
    }
}

/// True when a request touches a range of its volume, as source or destination.
fn touches(request: &Request, range: SectorRange) -> bool {
    match request.op.copy() {
        Some(command) => command.segments.iter().any(|segment| {
            range.overlaps(segment.destination_range())
                || (segment.source_volume == request.volume && range.overlaps(segment.source))
        }),
        None => range_of(&request.op).is_some_and(|other| range.overlaps(other)),
    }
}
