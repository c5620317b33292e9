//! I/O commands: what each moves over the wire, what it asks of the pool, and how it ends.

use super::subsystem::{Namespace, View};
use super::{TRANSFER_MAX, Transfer};
use super::{copy, zones};
use crate::engine::CallResult;
use crate::nvme::wire::command::{IoOpcode, Sqe};
use crate::nvme::wire::copy::{DSM_DEALLOCATE, DsmRange, entries};
use crate::nvme::wire::status::Status;
use emulation::request::ZoneAction;
use emulation::{BlkStatus, Flags, Op, Sector, SectorRange, Sectors, VolumeId};

/// A request to the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The volume.
    pub volume: VolumeId,
    /// What to do.
    pub op: Op,
    /// How.
    pub flags: Flags,
    /// What a write writes.
    pub data: Option<Vec<u8>>,
}

/// What a command at the pool does with the answer.
#[derive(Debug)]
pub(super) enum Job {
    /// It ends.
    Plain,
    /// It ends, and returns how far it came.
    Copy,
    /// It returns the data.
    Read,
    /// It ends; the data is nobody's.
    Verify,
    /// It compares the data with the host's.
    Compare(Vec<u8>),
    /// It reads these now that everything is durable.
    ReadDurable(VolumeId, SectorRange),
    /// It ends, and returns the place, in blocks of so many sectors.
    Append(Sectors),
    /// It returns the zones.
    Report(zones::Report),
    /// It changes those of the zones that it is for.
    SelectZones(VolumeId, ZoneAction),
    /// It changes these zones too.
    EachZone(VolumeId, ZoneAction, std::vec::IntoIter<Sector>),
    /// It discards these too.
    Discard(VolumeId, std::vec::IntoIter<SectorRange>),
}

/// How a command goes on.
#[derive(Debug)]
pub(super) enum Step {
    /// The pool is asked.
    Ask(Job, Call),
    /// It ends.
    End(End),
}

/// The end of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) status: Status,
    pub(super) result: u64,
    pub(super) data: Option<Vec<u8>>,
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        Self { status, result: 0, data: None }
    }
}

/// The data of a command, known from the command alone.
pub(super) fn transfer(sqe: &Sqe, view: &View) -> Result<Transfer, Status> {
    let (opcode, namespace) = command(sqe, view)?;
    match opcode {
        IoOpcode::Flush | IoOpcode::WriteZeroes | IoOpcode::ZoneManagementSend => Ok(Transfer::None),
        IoOpcode::ZoneManagementReceive => zones::report_transfer(sqe),
        IoOpcode::Verify => {
            moved(sqe, namespace)?;
            Ok(Transfer::None)
        }
        IoOpcode::Read => Ok(Transfer::ToHost(moved(sqe, namespace)?)),
        IoOpcode::Write | IoOpcode::ZoneAppend | IoOpcode::Compare => {
            Ok(Transfer::FromHost { len: moved(sqe, namespace)?, or_more: false })
        }
        // Hosts send a whole page with fewer ranges in it.
        IoOpcode::DatasetManagement => {
            let ranges = (sqe.cdw10.get() & 0xff) + 1;
            Ok(Transfer::FromHost { len: ranges * size_of::<DsmRange>() as u32, or_more: true })
        }
        IoOpcode::Copy => Ok(Transfer::FromHost { len: copy::list_len(sqe, view)?, or_more: false }),
    }
}

/// The command, and the namespace that it is for, if that has it and may be changed by it.
fn command<'a>(sqe: &Sqe, view: &'a View) -> Result<(IoOpcode, &'a Namespace), Status> {
    let opcode = IoOpcode::of(sqe.opcode).ok_or(Status::INVALID_OPCODE.dnr())?;
    let namespace = view.namespaces.named(sqe.nsid.get())?;
    if !opcode.is_of(namespace.command_set()) {
        return Err(Status::INVALID_OPCODE.dnr());
    }
    if opcode.changes() && namespace.limits.read_only {
        return Err(Status::WRITE_PROTECTED.dnr());
    }
    Ok((opcode, namespace))
}

/// The bytes that a command names; checked here so that no data is sent in vain.
fn moved(sqe: &Sqe, namespace: &Namespace) -> Result<u32, Status> {
    let len = namespace.range(sqe.slba(), sqe.blocks())?.len.bytes().0;
    match u32::try_from(len) {
        Ok(len) if len <= TRANSFER_MAX => Ok(len),
        Ok(_) | Err(_) => Err(Status::INVALID_FIELD.dnr()),
    }
}

/// What a command whose data is there asks of the pool.
pub(super) fn begin(sqe: &Sqe, data: Vec<u8>, view: &View) -> Result<Step, Status> {
    let (opcode, namespace) = command(sqe, view)?;
    let volume = namespace.volume;
    let fua = if sqe.has(Sqe::FUA) { Flags::FUA } else { Flags::NONE };
    let call = |op, flags, data| Call { volume, op, flags, data };
    let range = || namespace.range(sqe.slba(), sqe.blocks());
    let step = match opcode {
        IoOpcode::Flush => Step::Ask(Job::Plain, call(Op::Flush, Flags::NONE, None)),
        IoOpcode::Write if sqe.has(Sqe::DTYPE) => return Err(Status::INVALID_FIELD.dnr()),
        IoOpcode::Write => Step::Ask(Job::Plain, call(Op::Write(range()?), fua, Some(data))),
        // What a read with FUA returns has to be durable.
        IoOpcode::Read if sqe.has(Sqe::FUA) => {
            Step::Ask(Job::ReadDurable(volume, range()?), call(Op::Flush, Flags::NONE, None))
        }
        IoOpcode::Read => Step::Ask(Job::Read, call(Op::Read(range()?), Flags::NONE, None)),
        IoOpcode::Verify => Step::Ask(Job::Verify, call(Op::Read(range()?), Flags::NONE, None)),
        IoOpcode::Compare => Step::Ask(Job::Compare(data), call(Op::Read(range()?), Flags::NONE, None)),
        IoOpcode::WriteZeroes => {
            let unmap = if sqe.has(Sqe::DEAC) { Flags::NONE } else { Flags::NOUNMAP };
            Step::Ask(Job::Plain, call(Op::WriteZeroes(range()?), fua | unmap, None))
        }
        IoOpcode::DatasetManagement => discards(sqe, &data, namespace)?,
        IoOpcode::ZoneManagementSend => zones::manage(sqe, namespace)?,
        IoOpcode::ZoneManagementReceive => zones::report(sqe, namespace)?,
        IoOpcode::ZoneAppend => zones::append(sqe, namespace, range()?, fua, data)?,
        IoOpcode::Copy => {
            let (op, flags) = copy::decode(sqe, namespace, &data, view)?;
            Step::Ask(Job::Copy, call(op, flags, None))
        }
    };
    Ok(step)
}

/// Dataset Management: without Deallocate only hints, which change nothing.
fn discards(sqe: &Sqe, list: &[u8], namespace: &Namespace) -> Result<Step, Status> {
    if sqe.cdw11.get() & DSM_DEALLOCATE == 0 {
        return Ok(Step::End(Status::SUCCESS.into()));
    }
    let count = (sqe.cdw10.get() & 0xff) as usize + 1;
    let mut ranges = Vec::with_capacity(count);
    for range in entries::<DsmRange>(list).take(count) {
        if range.nlb.get() > 0 {
            ranges.push(namespace.range(range.slba.get(), range.nlb.get().into())?);
        }
    }
    Ok(next_discard(namespace.volume, ranges.into_iter()))
}

fn next_discard(volume: VolumeId, mut rest: std::vec::IntoIter<SectorRange>) -> Step {
    match rest.next() {
        Some(range) => {
            let call = Call { volume, op: Op::Discard(range), flags: Flags::NONE, data: None };
            Step::Ask(Job::Discard(volume, rest), call)
        }
        None => Step::End(Status::SUCCESS.into()),
    }
}

/// How a command goes on after the pool's answer.
pub(super) fn answered(job: Job, answer: CallResult, aborted: bool) -> Step {
    let CallResult { completion, data } = answer;
    if !completion.status.is_ok() {
        let reads = matches!(job, Job::Read | Job::Verify | Job::Compare(_) | Job::ReadDurable(..));
        let result = match job {
            Job::Copy => completion.first_failed_segment.unwrap_or(0).into(),
            Job::Plain
            | Job::Read
            | Job::Verify
            | Job::Compare(_)
            | Job::ReadDurable(..)
            | Job::Append(_)
            | Job::Report(_)
            | Job::SelectZones(..)
            | Job::EachZone(..)
            | Job::Discard(..) => 0,
        };
        return Step::End(End { status: status(completion.status, reads), result, data: None });
    }
    match job {
        Job::Plain | Job::Copy | Job::Verify => Step::End(Status::SUCCESS.into()),
        Job::Read => Step::End(End { status: Status::SUCCESS, result: 0, data }),
        Job::Compare(expected) if data.as_ref() == Some(&expected) => Step::End(Status::SUCCESS.into()),
        Job::Compare(_) => Step::End(Status::COMPARE_FAILURE.dnr().into()),
        Job::Append(block) => Step::End(zones::appended(&completion, block)),
        Job::Report(report) => {
            Step::End(End { status: Status::SUCCESS, result: 0, data: Some(report.data(&completion.zones)) })
        }
        Job::ReadDurable(..) | Job::Discard(..) | Job::SelectZones(..) | Job::EachZone(..) if aborted => {
            Step::End(Status::ABORT_REQUESTED.into())
        }
        Job::SelectZones(volume, action) => {
            zones::next(volume, action, zones::selected(action, &completion.zones))
        }
        Job::EachZone(volume, action, rest) => zones::next(volume, action, rest),
        Job::ReadDurable(volume, range) => {
            Step::Ask(Job::Read, Call { volume, op: Op::Read(range), flags: Flags::NONE, data: None })
        }
        Job::Discard(volume, rest) => next_discard(volume, rest),
    }
}

/// The status on the wire. Retries of what was refused by its contents would be refused again.
fn status(status: BlkStatus, reads: bool) -> Status {
    match status {
        BlkStatus::Ok => Status::SUCCESS,
        BlkStatus::NotSupp => Status::INVALID_OPCODE.dnr(),
        BlkStatus::NoSpc => Status::CAPACITY_EXCEEDED.dnr(),
        BlkStatus::Transport => Status::TRANSIENT_TRANSPORT,
        BlkStatus::ResvConflict => Status::RESERVATION_CONFLICT.dnr(),
        BlkStatus::Medium if reads => Status::UNRECOVERED_READ.dnr(),
        BlkStatus::Medium => Status::WRITE_FAULT.dnr(),
        BlkStatus::Protection => Status::GUARD_CHECK.dnr(),
        BlkStatus::Resource | BlkStatus::DevResource | BlkStatus::Again => Status::COMMAND_INTERRUPTED,
        BlkStatus::ZoneOpenResource => Status::TOO_MANY_OPEN_ZONES.dnr(),
        BlkStatus::ZoneActiveResource => Status::TOO_MANY_ACTIVE_ZONES.dnr(),
        BlkStatus::ZoneBoundary => Status::ZONE_BOUNDARY.dnr(),
        BlkStatus::ZoneFull => Status::ZONE_FULL.dnr(),
        BlkStatus::ZoneReadonly => Status::ZONE_READ_ONLY.dnr(),
        BlkStatus::ZoneOffline => Status::ZONE_OFFLINE.dnr(),
        BlkStatus::ZoneInvalidWrite => Status::ZONE_INVALID_WRITE.dnr(),
        BlkStatus::ZoneTransition => Status::ZONE_TRANSITION.dnr(),
        BlkStatus::Offline => Status::NAMESPACE_NOT_READY.dnr(),
        BlkStatus::Inval | BlkStatus::ZoneAppend => Status::INVALID_FIELD.dnr(),
        BlkStatus::Timeout | BlkStatus::Target | BlkStatus::DurationLimit | BlkStatus::IoErr => {
            Status::INTERNAL_ERROR.dnr()
        }
        BlkStatus::Aborted => Status::ABORT_REQUESTED,
        BlkStatus::OutOfRange => Status::LBA_OUT_OF_RANGE.dnr(),
        BlkStatus::ReadOnly => Status::WRITE_PROTECTED.dnr(),
        BlkStatus::CopyMaxBytes | BlkStatus::CopyMaxSegmentBytes | BlkStatus::CopyMaxSegments => {
            Status::COMMAND_SIZE_LIMIT.dnr()
        }
        BlkStatus::CopyOverlap => Status::OVERLAPPING_RANGE.dnr(),
        BlkStatus::CopyNotFast => Status::FAST_COPY_NOT_POSSIBLE.dnr(),
        BlkStatus::CopyIncompatible => Status::INCOMPATIBLE_NAMESPACE.dnr(),
        BlkStatus::NoVolume => Status::INVALID_NAMESPACE.dnr(),
    }
}

impl Namespace {
    /// The sectors of `blocks` logical blocks from `slba` on, wherever they end.
    pub(super) fn sectors(&self, slba: u64, blocks: u64) -> Result<SectorRange, Status> {
        let block = self.limits.logical_block.0;
        let (start, len) = (slba.checked_mul(block), blocks.checked_mul(block));
        let range = start.zip(len).and_then(|(start, len)| SectorRange::new(Sector(start), Sectors(len)));
        range.ok_or(Status::LBA_OUT_OF_RANGE.dnr())
    }

    /// The same, refused when they pass the end.
    pub(super) fn range(&self, slba: u64, blocks: u64) -> Result<SectorRange, Status> {
        let range = self.sectors(slba, blocks)?;
        if range.end().0 <= self.limits.capacity.0 { Ok(range) } else { Err(Status::LBA_OUT_OF_RANGE.dnr()) }
    }
}
