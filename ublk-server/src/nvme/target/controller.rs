//! A controller: what one host has made of the subsystem.

use super::features::Features;
use super::subsystem::Effect;
use super::{ConnectionId, Queue, Reply, Tag};
use crate::nvme::wire::command::Sqe;
use crate::nvme::wire::fabrics::{Property, PropertyFields, cap, cc, csts};
use crate::nvme::wire::feature::EVENT_NAMESPACE;
use crate::nvme::wire::log::{CHANGED_MAX, ErrorEntry, LogPage, TRTYPE_TCP};
use crate::nvme::wire::status::Status;
use emulation::{Instant, Nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zerocopy::little_endian::{U16, U32, U64};

/// The version of the base specification: 2.1.
pub(super) const VERSION: u32 = 2 << 16 | 1 << 8;
/// Asynchronous Event Requests that a host may leave open, counted from 0 (AERL).
pub(super) const AERL: u8 = 3;
/// Entries of the error log, counted from 0 (ELPE).
pub(super) const ELPE: u8 = 63;
/// The unit of the keep alive timer, in 100 ms (KAS).
pub(super) const KAS: u16 = 1;

/// What a controller is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Namespaces.
    Nvm,
    /// Finding subsystems.
    Discovery,
}

/// A controller.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) id: u16,
    pub(super) kind: Kind,
    pub(super) host_nqn: String,
    pub(super) host_id: [u8; 16],
    /// Its queues, by number.
    pub(super) connections: BTreeMap<u16, ConnectionId>,
    pub(super) features: Features,
    pub(super) errors: Errors,
    /// When the host must have been heard of.
    pub(super) deadline: Option<Instant>,
    cc: u32,
    csts: u32,
    /// Entries of a queue, counted from 0.
    mqes: u16,
    /// Asynchronous Event Requests that wait.
    waiting: VecDeque<Tag>,
    changed: BTreeSet<u32>,
    /// The host was told of changed namespaces and has not read which.
    told: bool,
}

impl Controller {
    pub(super) fn new(id: u16, kind: Kind, host_nqn: String, host_id: [u8; 16], mqes: u16) -> Self {
        Self {
            id,
            kind,
            host_nqn,
            host_id,
            connections: BTreeMap::new(),
            features: Features::default(),
            errors: Errors::default(),
            deadline: None,
            cc: 0,
            csts: 0,
            mqes,
            waiting: VecDeque::new(),
            changed: BTreeSet::new(),
            told: false,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.csts & csts::RDY != 0
    }

    pub(super) fn cross_copy(&self) -> bool {
        self.features.cross_copy()
    }

    /// The host was heard of.
    pub(super) fn alive(&mut self, now: Instant) {
        let kato = u64::from(self.features.kato);
        self.deadline = (kato > 0).then(|| now + Nanos(kato * 1_000_000));
    }

    fn admin(&self) -> Option<ConnectionId> {
        self.connections.get(&0).copied()
    }

    pub(super) fn property_get(&self, sqe: &Sqe) -> Result<Reply, Status> {
        let (_, property) = property(sqe)?;
        let value = match property {
            Property::Cap => {
                // Ready at once; 7.5 s are for hosts that wait for a network.
                u64::from(self.mqes) | cap::CQR | 15 << cap::TO_SHIFT | cap::CSS_NVM | cap::CSS_IOCSS
            }
            Property::Vs => VERSION.into(),
            Property::Cc => self.cc.into(),
            Property::Csts => self.csts.into(),
        };
        Ok(Reply::ok(value))
    }

    pub(super) fn property_set(&mut self, sqe: &Sqe, effects: &mut Vec<Effect>) -> Result<Reply, Status> {
        let (fields, property) = property(sqe)?;
        match property {
            Property::Cc => {
                let value = u32::try_from(fields.value).map_err(|_| Status::INVALID_FIELD.dnr())?;
                self.configure(value, effects)?;
                Ok(Reply::ok(0))
            }
            Property::Cap | Property::Vs | Property::Csts => Err(Status::INVALID_FIELD.dnr()),
        }
    }

    fn configure(&mut self, new: u32, effects: &mut Vec<Effect>) -> Result<(), Status> {
        let enables = new & cc::EN != 0 && self.cc & cc::EN == 0;
        if enables && !can_run(new, self.kind) {
            self.csts |= csts::CFS;
            return Err(Status::INVALID_FIELD.dnr());
        }
        let disables = new & cc::EN == 0 && self.cc & cc::EN != 0;
        let shuts_down = new >> cc::SHN_SHIFT & 3 != 0;
        self.cc = new;
        if enables {
            self.csts = csts::RDY;
        }
        if disables {
            self.csts &= !csts::RDY;
            self.features.reset();
            let queues = self.connections.range(1..).map(|(_, connection)| *connection);
            effects
                .extend(queues.map(|connection| Effect::Close(connection, "the host reset its controller")));
        }
        if shuts_down {
            self.csts |= csts::SHST_COMPLETE;
        } else if new & cc::EN != 0 {
            self.csts &= !csts::SHST_COMPLETE;
        }
        if disables || shuts_down {
            self.end_event_requests(effects);
        }
        Ok(())
    }

    /// Parks an Asynchronous Event Request; one that has something to tell is answered.
    pub(super) fn event_request(&mut self, tag: Tag, effects: &mut Vec<Effect>) -> Result<Reply, Status> {
        if self.waiting.len() > usize::from(AERL) {
            return Err(Status::AER_LIMIT_EXCEEDED.dnr());
        }
        self.waiting.push_back(tag);
        self.tell(effects);
        Ok(Reply::Parked)
    }

    fn end_event_requests(&mut self, effects: &mut Vec<Effect>) {
        if let Some(connection) = self.admin() {
            let status = Status::ABORT_REQUESTED;
            let ends = self.waiting.drain(..);
            effects.extend(ends.map(|tag| Effect::Complete { connection, tag, status, result: 0 }));
        }
    }

    /// Ends an Asynchronous Event Request early, if it is one that waits.
    pub(super) fn abort_event_request(&mut self, tag: Tag, effects: &mut Vec<Effect>) {
        let waits = self.waiting.iter().position(|waiting| *waiting == tag);
        if let (Some(connection), Some(index)) = (self.admin(), waits) {
            self.waiting.remove(index);
            let status = Status::ABORT_REQUESTED;
            effects.push(Effect::Complete { connection, tag, status, result: 0 });
        }
    }

    pub(super) fn namespace_changed(&mut self, nsid: u32, effects: &mut Vec<Effect>) {
        self.changed.insert(nsid);
        self.tell(effects);
    }

    /// Tells of changed namespaces, once until the host has read which.
    fn tell(&mut self, effects: &mut Vec<Effect>) {
        /// Type notice (2), information "namespace attribute changed" (0), log page.
        const NOTICE: u64 = 2 | (LogPage::ChangedNamespaces.code() as u64) << 16;
        if self.told || self.changed.is_empty() || self.features.events & EVENT_NAMESPACE == 0 {
            return;
        }
        if let Some(connection) = self.admin()
            && let Some(tag) = self.waiting.pop_front()
        {
            self.told = true;
            effects.push(Effect::Complete { connection, tag, status: Status::SUCCESS, result: NOTICE });
        }
    }

    /// The changed namespace list. Reading it lets the next change be told, unless `retain`.
    pub(super) fn changed_namespaces(&mut self, retain: bool) -> Vec<u8> {
        let mut log = vec![0; CHANGED_MAX * 4];
        let all = [u32::MAX];
        let listed: Vec<u32> = match self.changed.len() > CHANGED_MAX {
            true => all.to_vec(),
            false => self.changed.iter().copied().collect(),
        };
        for (entry, nsid) in log.chunks_exact_mut(4).zip(listed) {
            entry.copy_from_slice(&nsid.to_le_bytes());
        }
        if !retain {
            self.changed.clear();
            self.told = false;
        }
        log
    }
}

fn property(sqe: &Sqe) -> Result<(PropertyFields, Property), Status> {
    let fields = PropertyFields::of(sqe).ok_or(Status::INVALID_FIELD.dnr())?;
    let property = Property::at(fields.offset).filter(|property| property.is_wide() == fields.wide);
    property.map(|property| (fields, property)).ok_or(Status::INVALID_FIELD.dnr())
}

/// A configuration with which a controller can be enabled.
fn can_run(value: u32, kind: Kind) -> bool {
    let css = value >> cc::CSS_SHIFT & 7;
    let pages = value >> cc::MPS_SHIFT & 0xf;
    let entries = value & 0x00ff_0000;
    let sizes = match kind {
        Kind::Nvm => entries == cc::ENTRY_SIZES,
        // Without I/O queues their entries may have any size.
        Kind::Discovery => true,
    };
    (css == 0 || css == cc::CSS_ALL) && pages == 0 && sizes
}

/// The error log.
#[derive(Debug, Default)]
pub(super) struct Errors {
    count: u64,
    /// The newest first.
    entries: VecDeque<ErrorEntry>,
}

impl Errors {
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The log, the newest entry first.
    pub(super) fn entries(&self) -> impl Iterator<Item = &ErrorEntry> {
        self.entries.iter()
    }

    pub(super) fn note(&mut self, qid: u16, sqe: &Sqe, status: Status) {
        self.count += 1;
        if self.entries.len() > usize::from(ELPE) {
            self.entries.pop_back();
        }
        self.entries.push_front(ErrorEntry {
            error_count: U64::new(self.count),
            sqid: U16::new(qid),
            cid: sqe.cid,
            status: U16::new(status.0 << 1),
            location: U16::new(0xffff),
            lba: U64::new(if qid == 0 { 0 } else { sqe.slba() }),
            nsid: U32::new(if qid == 0 { 0 } else { sqe.nsid.get() }),
            vendor: 0,
            trtype: TRTYPE_TCP,
            reserved30: [0; 34],
        });
    }
}

/// The queue that a controller's configuration allows.
impl Queue {
    /// True for the admin queue.
    pub const fn is_admin(self) -> bool {
        self.qid == 0
    }
}
