//! Zones: reports, changes of their condition, and appends.

use super::io::{Call, End, Job, Step};
use super::subsystem::Namespace;
use super::{TRANSFER_MAX, Transfer};
use crate::nvme::wire::command::Sqe;
use crate::nvme::wire::status::Status;
use crate::nvme::wire::zeroed;
use crate::nvme::wire::zone::{Listed, ZoneEntry, ZoneReceive, ZoneReportHeader, ZoneSend};
use emulation::request::ZoneAction;
use emulation::zone::{ZoneCondition, ZoneDescriptor, ZoneType};
use emulation::{Completion, Flags, Op, Sector, SectorRange, Sectors, VolumeId};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// A report on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    /// Bytes to return.
    len: usize,
    listed: Listed,
    partial: bool,
    block: Sectors,
}

/// How much data a report returns.
pub(super) fn report_transfer(sqe: &Sqe) -> Result<Transfer, Status> {
    let fields = ZoneReceive::of(sqe);
    let refused = Status::INVALID_FIELD.dnr();
    // Extended reports have descriptor extensions, which no zone here has.
    if fields.zra != ZoneReceive::REPORT || Listed::of(fields.zrasf).is_none() {
        return Err(refused);
    }
    match u32::try_from(fields.len) {
        Ok(len) if (size_of::<ZoneReportHeader>() as u32..=TRANSFER_MAX).contains(&len) => {
            Ok(Transfer::ToHost(len))
        }
        Ok(_) | Err(_) => Err(refused),
    }
}

/// Zone Management Receive.
pub(super) fn report(sqe: &Sqe, namespace: &Namespace) -> Result<Step, Status> {
    let fields = ZoneReceive::of(sqe);
    let refused = Status::INVALID_FIELD.dnr();
    let len = usize::try_from(fields.len).map_err(|_| refused)?;
    let listed = Listed::of(fields.zrasf).ok_or(refused)?;
    let report = Report { len, listed, partial: fields.partial, block: namespace.limits.logical_block };
    // All of them have to be looked at, unless only as many count as are returned.
    let max = match fields.partial && listed == Listed::All {
        true => u32::try_from(report.room()).unwrap_or(u32::MAX).max(1),
        false => u32::MAX,
    };
    let from = namespace.range(sqe.slba(), 1)?.start;
    Ok(ask(namespace.volume, Job::Report(report), Op::ReportZones { from, max }))
}

impl Report {
    /// Descriptors that fit.
    fn room(&self) -> usize {
        (self.len - size_of::<ZoneReportHeader>()) / size_of::<ZoneEntry>()
    }

    /// The report, of the zones that the pool has described.
    pub(super) fn data(&self, zones: &[ZoneDescriptor]) -> Vec<u8> {
        let listed: Vec<ZoneEntry> = zones
            .iter()
            .map(|zone| entry(zone, self.block))
            .filter(|entry| self.listed.has(entry.state()))
            .collect();
        let follow = listed.len().min(self.room());
        let mut header: ZoneReportHeader = zeroed();
        header.zones = U64::new(if self.partial { follow } else { listed.len() } as u64);
        let mut data = header.as_bytes().to_vec();
        data.extend_from_slice(listed[..follow].as_bytes());
        data.resize(self.len, 0);
        data
    }
}

fn entry(zone: &ZoneDescriptor, block: Sectors) -> ZoneEntry {
    let mut entry: ZoneEntry = zeroed();
    entry.zt = match zone.kind {
        ZoneType::SeqwriteReq => ZoneEntry::SEQUENTIAL,
        // The number of ZBC; a disk with such zones is not served.
        ZoneType::Conventional => 1,
    };
    entry.zs = (zone.condition as u8) << 4;
    entry.zcap = U64::new(zone.capacity.0 / block.0);
    entry.zslba = U64::new(zone.start.0 / block.0);
    entry.wp = U64::new(match zone.condition {
        ZoneCondition::Full | ZoneCondition::Readonly | ZoneCondition::Offline | ZoneCondition::NotWp => {
            ZoneEntry::NO_WP
        }
        ZoneCondition::Empty | ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Closed => {
            zone.wp.0 / block.0
        }
    });
    entry
}

/// Zone Management Send.
pub(super) fn manage(sqe: &Sqe, namespace: &Namespace) -> Result<Step, Status> {
    let (send, all) = ZoneSend::of(sqe).ok_or(Status::INVALID_FIELD.dnr())?;
    let volume = namespace.volume;
    let action = match send {
        ZoneSend::Close => ZoneAction::Close,
        ZoneSend::Finish => ZoneAction::Finish,
        ZoneSend::Open => ZoneAction::Open,
        ZoneSend::Reset => ZoneAction::Reset,
    };
    if all && action == ZoneAction::Reset {
        return Ok(ask(volume, Job::Plain, Op::ZoneResetAll));
    }
    if all {
        let report = Op::ReportZones { from: Sector(0), max: u32::MAX };
        return Ok(ask(volume, Job::SelectZones(volume, action), report));
    }
    let zone = namespace.range(sqe.slba(), 1)?.start;
    Ok(ask(volume, Job::Plain, Op::ZoneMgmt { zone, action }))
}

/// Those zones of a report that an action on all of them changes (ZNS, "Select All").
pub(super) fn selected(action: ZoneAction, zones: &[ZoneDescriptor]) -> std::vec::IntoIter<Sector> {
    let changes = |condition| match (action, condition) {
        (ZoneAction::Open, ZoneCondition::Closed)
        | (ZoneAction::Close, ZoneCondition::ImpOpen | ZoneCondition::ExpOpen)
        | (ZoneAction::Finish, ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Closed) => {
            true
        }
        (ZoneAction::Open | ZoneAction::Close | ZoneAction::Finish | ZoneAction::Reset, _) => false,
    };
    let chosen: Vec<Sector> =
        zones.iter().filter(|zone| changes(zone.condition)).map(|zone| zone.start).collect();
    chosen.into_iter()
}

/// The next of the zones that an action on all of them changes.
pub(super) fn next(volume: VolumeId, action: ZoneAction, mut rest: std::vec::IntoIter<Sector>) -> Step {
    match rest.next() {
        Some(zone) => ask(volume, Job::EachZone(volume, action, rest), Op::ZoneMgmt { zone, action }),
        None => Step::End(Status::SUCCESS.into()),
    }
}

/// Zone Append.
pub(super) fn append(
    sqe: &Sqe,
    namespace: &Namespace,
    range: SectorRange,
    fua: Flags,
    data: Vec<u8>,
) -> Result<Step, Status> {
    if sqe.has(Sqe::DTYPE | Sqe::PIREMAP) {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let call =
        Call { volume: namespace.volume, op: Op::Write(range), flags: fua | Flags::APPEND, data: Some(data) };
    Ok(Step::Ask(Job::Append(namespace.limits.logical_block), call))
}

/// The end of an append: it returns the block where it went.
pub(super) fn appended(completion: &Completion, block: Sectors) -> End {
    let at = completion.appended_at.expect("an append that succeeded is told where it went");
    End { status: Status::SUCCESS, result: at.0 / block.0, data: None }
}

fn ask(volume: VolumeId, job: Job, op: Op) -> Step {
    Step::Ask(job, Call { volume, op, flags: Flags::NONE, data: None })
}
