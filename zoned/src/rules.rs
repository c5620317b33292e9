//! What each action makes of a zone in each condition: the tables of the zoned block command set (ZBC) and of the
//! zoned namespace command set (NVMe ZNS), one function an action.

use emulation::BlkStatus;
use emulation::zone::ZoneCondition;

use ZoneCondition::{Closed, Empty, ExpOpen, Full, ImpOpen, NotWp, Offline, Readonly};

/// What a zone takes of the limits when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It is open, or never counts.
    Nothing,
    /// It is active and not open.
    Open,
    /// It is neither.
    ActiveAndOpen,
}

/// A read. Above the write pointer a zone reads as zeroes.
///
/// # Errors
/// The zone is offline.
pub fn read(condition: ZoneCondition) -> Result<(), BlkStatus> {
    match condition {
        NotWp | Empty | ImpOpen | ExpOpen | Closed | Readonly | Full => Ok(()),
        Offline => Err(BlkStatus::ZoneOffline),
    }
}

/// A write: the condition in which it leaves the zone as long as it does not fill it.
///
/// # Errors
/// Why the zone takes none.
pub fn write(condition: ZoneCondition) -> Result<(ZoneCondition, Needs), BlkStatus> {
    match condition {
        NotWp => Ok((NotWp, Needs::Nothing)),
        Empty => Ok((ImpOpen, Needs::ActiveAndOpen)),
        Closed => Ok((ImpOpen, Needs::Open)),
        ImpOpen | ExpOpen => Ok((condition, Needs::Nothing)),
        Full => Err(BlkStatus::ZoneFull),
        Readonly => Err(BlkStatus::ZoneReadonly),
        Offline => Err(BlkStatus::ZoneOffline),
    }
}

/// An append: a write that a conventional zone does not take.
///
/// # Errors
/// Why the zone takes none.
pub fn append(condition: ZoneCondition) -> Result<(ZoneCondition, Needs), BlkStatus> {
    match condition {
        NotWp => Err(BlkStatus::ZoneAppend),
        Empty | ImpOpen | ExpOpen | Closed | Readonly | Full | Offline => write(condition),
    }
}

/// An explicit open.
///
/// # Errors
/// Why it cannot be opened.
pub fn open(condition: ZoneCondition) -> Result<(ZoneCondition, Needs), BlkStatus> {
    match condition {
        Empty => Ok((ExpOpen, Needs::ActiveAndOpen)),
        Closed => Ok((ExpOpen, Needs::Open)),
        ImpOpen | ExpOpen => Ok((ExpOpen, Needs::Nothing)),
        NotWp | Full | Readonly | Offline => Err(BlkStatus::ZoneTransition),
    }
}

/// A close; `untouched`: the write pointer is at the start of the zone.
///
/// # Errors
/// Why it cannot be closed.
pub fn close(condition: ZoneCondition, untouched: bool) -> Result<ZoneCondition, BlkStatus> {
    match condition {
        ImpOpen | ExpOpen if untouched => Ok(Empty),
        ImpOpen | ExpOpen | Closed => Ok(Closed),
        NotWp | Empty | Full | Readonly | Offline => Err(BlkStatus::ZoneTransition),
    }
}

/// A finish. It passes through no open condition, so it needs no room there.
///
/// # Errors
/// Why it cannot be finished.
pub fn finish(condition: ZoneCondition) -> Result<ZoneCondition, BlkStatus> {
    match condition {
        Empty | ImpOpen | ExpOpen | Closed | Full => Ok(Full),
        NotWp | Readonly | Offline => Err(BlkStatus::ZoneTransition),
    }
}

/// A reset.
///
/// # Errors
/// Why it cannot be reset.
pub fn reset(condition: ZoneCondition) -> Result<ZoneCondition, BlkStatus> {
    match condition {
        Empty | ImpOpen | ExpOpen | Closed | Full => Ok(Empty),
        NotWp | Readonly | Offline => Err(BlkStatus::ZoneTransition),
    }
}

/// True when a reset of all zones resets this one.
pub fn reset_all(condition: ZoneCondition) -> bool {
    match condition {
        ImpOpen | ExpOpen | Closed | Full => true,
        NotWp | Empty | Readonly | Offline => false,
    }
}

/// The zone turns read-only by itself.
pub fn fail_readonly(condition: ZoneCondition) -> ZoneCondition {
    match condition {
        Empty | ImpOpen | ExpOpen | Closed | Readonly | Full => Readonly,
        NotWp | Offline => condition,
    }
}

/// The zone goes offline by itself.
pub fn fail_offline(condition: ZoneCondition) -> ZoneCondition {
    match condition {
        Empty | ImpOpen | ExpOpen | Closed | Readonly | Full | Offline => Offline,
        NotWp => NotWp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Needs = Needs::Nothing;
    const OPEN: Needs = Needs::Open;
    const BOTH: Needs = Needs::ActiveAndOpen;

    type Opened = Result<(ZoneCondition, Needs), BlkStatus>;
    type Moved = Result<ZoneCondition, BlkStatus>;

    /// A row of the standards' tables: every action on a zone in one condition.
    struct Row {
        from: ZoneCondition,
        read: Result<(), BlkStatus>,
        write: Opened,
        append: Opened,
        open: Opened,
        /// With something written, and with nothing.
        close: [Moved; 2],
        finish: Moved,
        reset: Moved,
        reset_all: bool,
        fails: [ZoneCondition; 2],
    }

    /// ZBC-2 and NVMe ZNS 1.1, the sections on zone conditions; where the two differ or leave a choice, as the clauses
    /// say: a close with nothing written gives an empty zone (ZBC), a finish needs no room (ZNS).
    #[rustfmt::skip]
    fn table() -> [Row; 8] {
        let wrong = Err(BlkStatus::ZoneTransition);
        let (full, readonly, offline) = (Err(BlkStatus::ZoneFull), Err(BlkStatus::ZoneReadonly), Err(BlkStatus::ZoneOffline));
        [
            Row { from: NotWp, read: Ok(()), write: Ok((NotWp, NOTHING)), append: Err(BlkStatus::ZoneAppend), open: Err(BlkStatus::ZoneTransition),
                close: [wrong, wrong], finish: wrong, reset: wrong, reset_all: false, fails: [NotWp, NotWp] },
            Row { from: Empty, read: Ok(()), write: Ok((ImpOpen, BOTH)), append: Ok((ImpOpen, BOTH)), open: Ok((ExpOpen, BOTH)),
                close: [wrong, wrong], finish: Ok(Full), reset: Ok(Empty), reset_all: false, fails: [Readonly, Offline] },
            Row { from: ImpOpen, read: Ok(()), write: Ok((ImpOpen, NOTHING)), append: Ok((ImpOpen, NOTHING)), open: Ok((ExpOpen, NOTHING)),
                close: [Ok(Closed), Ok(Empty)], finish: Ok(Full), reset: Ok(Empty), reset_all: true, fails: [Readonly, Offline] },
            Row { from: ExpOpen, read: Ok(()), write: Ok((ExpOpen, NOTHING)), append: Ok((ExpOpen, NOTHING)), open: Ok((ExpOpen, NOTHING)),
                close: [Ok(Closed), Ok(Empty)], finish: Ok(Full), reset: Ok(Empty), reset_all: true, fails: [Readonly, Offline] },
            Row { from: Closed, read: Ok(()), write: Ok((ImpOpen, OPEN)), append: Ok((ImpOpen, OPEN)), open: Ok((ExpOpen, OPEN)),
                close: [Ok(Closed), Ok(Closed)], finish: Ok(Full), reset: Ok(Empty), reset_all: true, fails: [Readonly, Offline] },
            Row { from: Readonly, read: Ok(()), write: readonly, append: readonly, open: Err(BlkStatus::ZoneTransition),
                close: [wrong, wrong], finish: wrong, reset: wrong, reset_all: false, fails: [Readonly, Offline] },
            Row { from: Full, read: Ok(()), write: full, append: full, open: Err(BlkStatus::ZoneTransition),
                close: [wrong, wrong], finish: Ok(Full), reset: Ok(Empty), reset_all: true, fails: [Readonly, Offline] },
            Row { from: Offline, read: Err(BlkStatus::ZoneOffline), write: offline, append: offline, open: Err(BlkStatus::ZoneTransition),
                close: [wrong, wrong], finish: wrong, reset: wrong, reset_all: false, fails: [Offline, Offline] },
        ]
    }

    #[test]
    fn every_action_on_every_condition_is_as_the_standards_have_it() {
        let table = table();
        assert_eq!(table.each_ref().map(|row| row.from), ZoneCondition::ALL);
        for row in table {
            let from = row.from;
            assert_eq!(read(from), row.read, "read, {from:?}");
            assert_eq!(write(from), row.write, "write, {from:?}");
            assert_eq!(append(from), row.append, "append, {from:?}");
            assert_eq!(open(from), row.open, "open, {from:?}");
            assert_eq!([close(from, false), close(from, true)], row.close, "close, {from:?}");
            assert_eq!(finish(from), row.finish, "finish, {from:?}");
            assert_eq!(reset(from), row.reset, "reset, {from:?}");
            assert_eq!(reset_all(from), row.reset_all, "reset all, {from:?}");
            assert_eq!([fail_readonly(from), fail_offline(from)], row.fails, "failure, {from:?}");
        }
    }

    #[test]
    fn the_block_layer_sees_the_standard_error_for_each_refusal() {
        for status in [BlkStatus::ZoneOffline, BlkStatus::ZoneReadonly, BlkStatus::ZoneFull] {
            assert_eq!(BlkStatus::from_errno(status.errno()), BlkStatus::IoErr);
        }
        for status in [BlkStatus::ZoneTransition, BlkStatus::ZoneInvalidWrite, BlkStatus::ZoneBoundary] {
            assert_eq!(BlkStatus::from_errno(status.errno()), BlkStatus::IoErr);
        }
        for status in [BlkStatus::ZoneOpenResource, BlkStatus::ZoneActiveResource] {
            assert_eq!(BlkStatus::from_errno(status.errno()), status);
        }
    }
}
