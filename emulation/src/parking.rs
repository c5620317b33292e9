//! Waiting, first come first served. A claim says what a link changes; a link whose claim conflicts with an
//! earlier one, live or parked, is parked. Waits go to earlier tickets only, so there is no cycle.

use crate::request::RequestId;
use crate::slots::Slots;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// What a link changes.
pub(crate) trait Claim: Debug {
    /// True when it conflicts with claims that are not exclusive. Two that are not never conflict.
    fn exclusive(&self) -> bool;

    /// True when one of the two must wait for the other; asked only when one is exclusive.
    fn conflicts(&self, other: &Self) -> bool;
}

/// A place in the line: lower came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// A claim whose link is live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered(u64);

/// The claims of a device.
#[derive(Debug)]
pub(crate) struct Parking<C> {
    next: u64,
    live: Slots<C>,
    parked: BTreeMap<Ticket, (RequestId, C)>,
    /// Exclusive claims among both: while there are none, a claim that is not exclusive needs no search.
    exclusive: usize,
}

impl<C: Claim> Parking<C> {
    pub(crate) fn new() -> Self {
        Self { next: 0, live: Slots::default(), parked: BTreeMap::new(), exclusive: 0 }
    }

    /// The next place in the line.
    pub(crate) fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }

    /// True when a claim with this ticket has to wait.
    pub(crate) fn blocked(&self, ticket: Ticket, claim: &C) -> bool {
        if self.exclusive == 0 && !claim.exclusive() {
            return false;
        }
        let conflict = |other: &C| (claim.exclusive() || other.exclusive()) && claim.conflicts(other);
        self.live.values().any(conflict) || self.parked.range(..ticket).any(|(_, (_, other))| conflict(other))
    }

    /// The claim's link is live.
    pub(crate) fn enter(&mut self, claim: C) -> Entered {
        self.exclusive += usize::from(claim.exclusive());
        Entered(self.live.insert(claim))
    }

    /// The link is no longer live.
    pub(crate) fn leave(&mut self, entered: Entered) {
        let claim = self.live.remove(entered.0).expect("a link leaves once");
        self.exclusive -= usize::from(claim.exclusive());
    }

    /// The claim's link waits.
    pub(crate) fn park(&mut self, ticket: Ticket, request: RequestId, claim: C) {
        self.exclusive += usize::from(claim.exclusive());
        assert!(self.parked.insert(ticket, (request, claim)).is_none(), "{ticket:?} is parked already");
    }

    /// The link waits no longer. Its ticket stays its place in the line.
    pub(crate) fn unpark(&mut self, ticket: Ticket) -> C {
        let (_, claim) = self.parked.remove(&ticket).expect("a link is unparked once");
        self.exclusive -= usize::from(claim.exclusive());
        claim
    }

    /// The first parked link at or after `from`.
    pub(crate) fn parked_from(&self, from: Ticket) -> Option<(Ticket, RequestId, &C)> {
        self.parked.range(from..).next().map(|(&ticket, (request, claim))| (ticket, *request, claim))
    }

    /// The first parked link after `ticket`.
    pub(crate) fn parked_after(&self, ticket: Ticket) -> Option<(Ticket, RequestId, &C)> {
        self.parked_from(Ticket(ticket.0 + 1))
    }

    /// The first place of any line.
    pub(crate) const FIRST: Ticket = Ticket(0);

    /// Links that are live.
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    /// Links that wait.
    pub(crate) fn parked(&self) -> usize {
        self.parked.len()
    }
}
