//! Which requests have to be refused: written from the clauses, pair by pair, without looking at the code that
//! refuses them.

use super::options::Stack;
use super::relation::relations;
use emulation::{BlkStatus, CopyCommand, CopyMode, Flags, Limits, Op, Request, SectorRange, VolumeId};
use std::collections::BTreeMap;

/// Every reason for which the request has to be refused. None: it must be let in.
pub fn reasons(request: &Request, volumes: &BTreeMap<VolumeId, Limits>, stack: Stack) -> Vec<BlkStatus> {
    let mut reasons = Vec::new();
    let Some(limits) = volumes.get(&request.volume) else {
        return vec![BlkStatus::NoVolume];
    };
    let reads = matches!(request.op, Op::Read(_) | Op::Flush | Op::ReportZones { .. });
    if limits.read_only && !reads {
        reasons.push(BlkStatus::ReadOnly);
    }
    match &request.op {
        Op::Read(range) | Op::Write(range) => {
            reasons.extend(range_reason(limits, *range));
            if range.len > limits.max_io {
                reasons.push(BlkStatus::Inval);
            }
        }
        Op::Discard(range) | Op::WriteZeroes(range) => reasons.extend(range_reason(limits, *range)),
        Op::Flush => {}
        Op::Copy(command) => copy_reasons(request, command, limits, volumes, stack, &mut reasons),
        Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } if limits.zones.is_none() => {
            reasons.push(BlkStatus::NotSupp);
        }
        Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => {}
    }
    reasons
}

fn range_reason(limits: &Limits, range: SectorRange) -> Option<BlkStatus> {
    let block = limits.logical_block.0;
    let aligned = range.start.0.is_multiple_of(block) && range.len.0.is_multiple_of(block);
    if range.len.0 == 0 || !aligned {
        return Some(BlkStatus::Inval);
    }
    let end = u128::from(range.start.0) + u128::from(range.len.0);
    (end > u128::from(limits.capacity.0)).then_some(BlkStatus::OutOfRange)
}

fn copy_reasons(
    request: &Request,
    command: &CopyCommand,
    limits: &Limits,
    volumes: &BTreeMap<VolumeId, Limits>,
    stack: Stack,
    reasons: &mut Vec<BlkStatus>,
) {
    if limits.copy_mode == CopyMode::Off {
        reasons.push(BlkStatus::NotSupp);
    }
    if command.segments.is_empty() {
        reasons.push(BlkStatus::Inval);
    }
    if command.segments.len() as u64 > u64::from(limits.copy_max_segments) {
        reasons.push(BlkStatus::CopyMaxSegments);
    }
    let mut total = 0u128;
    for segment in &command.segments {
        let bytes = u128::from(segment.source.len.0) * 512;
        total += bytes;
        if bytes > u128::from(limits.copy_max_segment_bytes.0) {
            reasons.push(BlkStatus::CopyMaxSegmentBytes);
        }
        match volumes.get(&segment.source_volume) {
            None => reasons.push(BlkStatus::NoVolume),
            Some(source) if source.logical_block != limits.logical_block => {
                reasons.push(BlkStatus::CopyIncompatible);
            }
            Some(source) => reasons.extend(range_reason(source, segment.source)),
        }
        let destination = SectorRange { start: segment.destination, len: segment.source.len };
        reasons.extend(range_reason(limits, destination));
    }
    if total > u128::from(limits.copy_max_bytes.0) {
        reasons.push(BlkStatus::CopyMaxBytes);
    }
    let overlap = || relations(request.volume, command).any(|(_, relation)| relation.overlaps());
    let appends = request.flags.has(Flags::APPEND);
    // Where an append goes is not known yet.
    if !appends && overlap() && !request.flags.has(Flags::MAY_OVERLAP) {
        reasons.push(BlkStatus::CopyOverlap);
    }
    if request.flags.has(Flags::FAST_ONLY) && !is_fast(command, limits, stack) {
        reasons.push(BlkStatus::CopyNotFast);
    }
}

/// True when no byte of the copy has to be moved.
fn is_fast(command: &CopyCommand, limits: &Limits, stack: Stack) -> bool {
    let block = limits.map_block.0;
    stack != Stack::Identity
        && limits.copy_mode == CopyMode::Remap
        && command.segments.iter().all(|segment| {
            [segment.source.start.0, segment.destination.0, segment.source.len.0]
                .iter()
                .all(|n| n.is_multiple_of(block))
        })
}
