//! Latencies and traces over the control API.

use super::api::{ApiError, LatencyView, OperationLatency, TraceRecord, TraceSegment, TraceView};
use crate::engine::tap::Record;
use crate::server::Server;
use emulation::ledger::Ledger;
use emulation::{Flags, Op, SectorRange};
use serde::Deserialize;

/// The most records of one answer.
const RECORDS_MAX: usize = 4096;

/// The query of `GET /v1/disks/ID/trace`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceQuery {
    #[serde(default)]
    after: u64,
}

pub(crate) fn latency(server: &Server, key: &str) -> Result<LatencyView, ApiError> {
    let (_, found) = server.find(key)?;
    let latencies = server.engine.taps.latencies(found.volume);
    let operations = Ledger::OPS.iter().enumerate().filter_map(|(op, name)| {
        let (count, quantiles) = latencies.of(op, &[500, 990, 999, 1000]);
        let [p50_ns, p99_ns, p999_ns, max_ns] = quantiles[..] else { return None };
        (count > 0)
            .then(|| ((*name).to_string(), OperationLatency { count, p50_ns, p99_ns, p999_ns, max_ns }))
    });
    Ok(LatencyView { operations: operations.collect() })
}

pub(crate) fn trace(server: &Server, key: &str, query: TraceQuery) -> Result<TraceView, ApiError> {
    let (_, found) = server.find(key)?;
    let engine = &server.engine;
    let (records, next, lost) = engine.taps.read(engine.now(), found.volume, query.after, RECORDS_MAX);
    Ok(TraceView { records: records.iter().map(view).collect(), next, lost })
}

pub(crate) fn end_trace(server: &Server, key: &str) -> Result<(), ApiError> {
    let (_, found) = server.find(key)?;
    server.engine.taps.end_trace(found.volume);
    Ok(())
}

fn view(record: &Record) -> TraceRecord {
    let bytes = |range: &SectorRange| (range.start.bytes().0, range.len.bytes().0);
    let mut segments = Vec::new();
    let mut action = None;
    let (offset, length) = match &record.op {
        Op::Read(range) | Op::Write(range) | Op::Discard(range) | Op::WriteZeroes(range) => bytes(range),
        Op::Copy(copy) => {
            segments.extend(copy.segments.iter().map(|segment| TraceSegment {
                volume: segment.source_volume.0,
                source: segment.source.start.bytes().0,
                length: segment.source.len.bytes().0,
                destination: segment.destination.bytes().0,
            }));
            let first = segments.first().map_or(0, |segment| segment.destination);
            (first, segments.iter().map(|segment| segment.length).sum())
        }
        Op::ZoneMgmt { zone, action: what } => {
            action = Some(format!("{what:?}").to_lowercase());
            (zone.bytes().0, 0)
        }
        Op::Flush | Op::ZoneResetAll => (0, 0),
        Op::ReportZones { from, .. } => (from.bytes().0, 0),
    };
    let named = [
        (Flags::FUA, "fua"),
        (Flags::NOUNMAP, "nounmap"),
        (Flags::FAST_ONLY, "fast_only"),
        (Flags::APPEND, "append"),
        (Flags::MAY_OVERLAP, "may_overlap"),
    ];
    let flags = named.iter().filter(|(flag, _)| record.flags.has(*flag)).map(|(_, name)| (*name).to_string());
    TraceRecord {
        begun_ns: record.begun.0,
        ended_ns: record.ended.0,
        operation: Ledger::OPS[Ledger::index(&record.op)].to_string(),
        offset,
        length,
        segments,
        action,
        flags: flags.collect(),
        status: format!("{:?}", record.completion.status),
        bytes: record.completion.bytes.0,
        thread: record.thread,
    }
}
