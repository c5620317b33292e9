//! What a request changes: each sector, and the value that it gets. Written from the meaning of the operations.

use emulation::{Flags, Op, Request, RequestId, SectorRange, VolumeId};

/// The value of a sector that reads as zeroes.
pub const ZEROES: u64 = 0;

/// The value that a write puts into its sector number `offset`: used once in a run, never [`ZEROES`].
pub fn stamp(id: RequestId, offset: u64) -> u64 {
    assert!(offset < 1 << 20, "a write is at most 512 MiB");
    ((id.0 + 1) << 20) | offset
}

/// A sector of a volume.
pub type Place = (VolumeId, u64);

/// What a sector becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// This.
    Stamp(u64),
    /// What this place holds at some time of the copy.
    Copied(Place),
}

/// Every sector that a request changes, its place in the request, and what it becomes.
pub fn changes(request: &Request) -> impl Iterator<Item = (Place, u64, Value)> + '_ {
    let volume = request.volume;
    let (plain, copy) = match &request.op {
        Op::Write(range) | Op::Discard(range) | Op::WriteZeroes(range) => (Some(*range), None),
        Op::Copy(command) => (None, Some(command)),
        Op::Read(_) | Op::Flush | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => {
            (None, None)
        }
    };
    let written = matches!(request.op, Op::Write(_));
    let plain = plain.into_iter().flat_map(move |range| {
        (0..range.len.0).map(move |offset| {
            let value = if written { stamp(request.id, offset) } else { ZEROES };
            ((volume, range.start.0 + offset), offset, Value::Stamp(value))
        })
    });
    let mut before = 0;
    let copied = copy.into_iter().flat_map(|command| &command.segments).flat_map(move |segment| {
        let base = before;
        before += segment.source.len.0;
        (0..segment.source.len.0).map(move |offset| {
            let source = (segment.source_volume, segment.source.start.0 + offset);
            ((volume, segment.destination.0 + offset), base + offset, Value::Copied(source))
        })
    });
    plain.chain(copied)
}

/// The destination ranges of a permitted overlap that lie in another range of the command.
pub fn overlapped(request: &Request) -> Vec<SectorRange> {
    let mut found = Vec::new();
    let Op::Copy(command) = &request.op else {
        return found;
    };
    if !request.flags.has(Flags::MAY_OVERLAP) {
        return found;
    }
    for (i, a) in command.segments.iter().enumerate() {
        for (j, b) in command.segments.iter().enumerate() {
            let source = (b.source_volume == request.volume).then_some(b.source);
            let other = (i != j).then(|| b.destination_range());
            let ranges = source.into_iter().chain(other);
            found.extend(ranges.filter_map(|range| a.destination_range().intersection(range)));
        }
    }
    // Joined, in order, so that a sector is found by one search.
    found.sort_unstable();
    found.dedup_by(|next, last| {
        let joined = next.start <= last.end();
        if joined {
            *last = SectorRange::between(last.start, last.end().max(next.end()));
        }
        joined
    });
    found
}

/// A value for people: zeroes, what the store holds by accident, or who wrote it where.
pub fn name(value: u64) -> String {
    match value {
        ZEROES => "zeroes".into(),
        super::store::NEVER_WRITTEN => "never written".into(),
        super::store::TRIMMED => "trimmed".into(),
        super::store::UNREAD => "nothing put into the buffer".into(),
        _ => format!("sector {} of request {}", value & ((1 << 20) - 1), (value >> 20) - 1),
    }
}
