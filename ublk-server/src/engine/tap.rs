//! What requests took, and on demand what they were: each thread notes when a request reached it and when it was answered.

use emulation::ledger::Ledger;
use emulation::{Completion, Flags, Instant, Op, Request, RequestId, VolumeId};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Four classes for each power of two of nanoseconds, up to 2^40, which is 18 minutes.
const CLASSES: usize = 4 * 40;
/// Requests that a trace keeps for whoever reads it.
const RECORDS_MAX: usize = 1 << 16;
/// Requests whose numbers are below this are found by their number.
const SLOTS: usize = 4096;

/// How long the requests of a volume took, by operation in the order of [`Ledger::OPS`].
#[derive(Debug)]
pub(crate) struct Latencies {
    counts: [[AtomicU64; CLASSES]; Ledger::OPS.len()],
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))) }
    }
}

impl Latencies {
    fn record(&self, op: usize, nanos: u64) {
        self.counts[op][class(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// How many of an operation there were, and the latencies in ns that so many per thousand did not pass, rounded up
    /// to the end of their class.
    pub(crate) fn of(&self, op: usize, per_mille: &[u64]) -> (u64, Vec<u64>) {
        let counts: Vec<u64> = self.counts[op].iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        let quantile = |per_mille: u64| {
            let wanted = (all * per_mille).div_ceil(1000).max(1);
            let mut seen = 0;
            let found = counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            found.map_or(0, class_end)
        };
        (all, per_mille.iter().map(|part| quantile(*part)).collect())
    }

    pub(crate) fn reset(&self) {
        self.counts.iter().flatten().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

fn class(nanos: u64) -> usize {
    if nanos < 4 {
        return nanos as usize;
    }
    let power = nanos.ilog2();
    let class = 4 * (power as usize - 1) + (nanos >> (power - 2) & 3) as usize;
    class.min(CLASSES - 1)
}

fn class_end(class: usize) -> u64 {
    if class < 4 {
        return class as u64;
    }
    let (power, within) = (class / 4 + 1, class as u64 % 4);
    let quarter = 1 << (power - 2);
    (4 + within) * quarter + (quarter - 1)
}

/// A request that was answered, as a trace shows it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    pub(crate) volume: VolumeId,
    pub(crate) op: Op,
    pub(crate) flags: Flags,
    pub(crate) completion: Completion,
    /// The thread that it belongs to.
    pub(crate) thread: u16,
}

/// The records of a volume that somebody reads.
#[derive(Debug)]
pub(crate) struct Trace {
    records: VecDeque<Record>,
    /// The number of the first of them, from 0.
    first: u64,
    /// When they were asked for last.
    read: Instant,
}

/// What the threads of an engine note.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    latencies: RwLock<Vec<Arc<Latencies>>>,
    /// Some volume is traced.
    tracing: AtomicBool,
    traces: Mutex<HashMap<u32, Trace>>,
}

impl Taps {
    /// How long a volume's requests took.
    pub(crate) fn latencies(&self, volume: VolumeId) -> Arc<Latencies> {
        let index = volume.index();
        if let Some(found) = self.latencies.read().unwrap_or_else(PoisonError::into_inner).get(index) {
            return Arc::clone(found);
        }
        let mut all = self.latencies.write().unwrap_or_else(PoisonError::into_inner);
        while all.len() <= index {
            all.push(Arc::default());
        }
        Arc::clone(&all[index])
    }

    /// The records of a volume from number `after` on, at most `most`, the number to ask for next, and how many of those
    /// asked for are lost. The first call begins the trace.
    pub(crate) fn read(
        &self,
        now: Instant,
        volume: VolumeId,
        after: u64,
        most: usize,
    ) -> (Vec<Record>, u64, u64) {
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        let trace =
            traces.entry(volume.0).or_insert_with(|| Trace { records: VecDeque::new(), first: 0, read: now });
        trace.read = now;
        self.tracing.store(true, Ordering::Relaxed);
        let lost = trace.first.saturating_sub(after);
        let known = after.saturating_sub(trace.first).min(trace.records.len() as u64);
        trace.records.drain(..known as usize);
        trace.first += known;
        let records: Vec<_> = trace.records.iter().take(most).cloned().collect();
        let next = trace.first + records.len() as u64;
        (records, next, lost)
    }

    /// Ends the trace of a volume.
    pub(crate) fn end_trace(&self, volume: VolumeId) {
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        traces.remove(&volume.0);
        self.tracing.store(!traces.is_empty(), Ordering::Relaxed);
    }

    fn record(&self, record: Record) {
        /// A trace that nobody has asked for this long ends.
        const FORGOTTEN: u64 = 10_000_000_000;
        let mut traces = self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        let now = record.ended;
        let Some(trace) = traces.get_mut(&record.volume.0) else { return };
        if now.0.saturating_sub(trace.read.0) > FORGOTTEN {
            traces.remove(&record.volume.0);
            self.tracing.store(!traces.is_empty(), Ordering::Relaxed);
            return;
        }
        if trace.records.len() >= RECORDS_MAX {
            trace.records.pop_front();
            trace.first += 1;
        }
        trace.records.push_back(record);
    }
}

/// A request under way.
#[derive(Debug)]
struct Begun {
    at: Instant,
    volume: VolumeId,
    op: usize,
    /// While the volume is traced.
    traced: Option<Box<(Op, Flags)>>,
}

/// What one thread notes of its own requests.
#[derive(Debug)]
pub(crate) struct Tap {
    taps: Arc<Taps>,
    thread: u16,
    slots: Vec<Option<Begun>>,
    others: HashMap<u64, Begun>,
    latencies: Vec<Option<Arc<Latencies>>>,
}

impl Tap {
    pub(crate) fn new(taps: Arc<Taps>, thread: u16) -> Self {
        Self { taps, thread, slots: Vec::new(), others: HashMap::new(), latencies: Vec::new() }
    }

    /// A request, by its number within the thread, is about to begin.
    pub(crate) fn begin(&mut self, now: Instant, number: u64, request: &Request) {
        let op = Ledger::index(&request.op);
        let tracing = self.taps.tracing.load(Ordering::Relaxed);
        let traced = tracing.then(|| Box::new((request.op.clone(), request.flags)));
        let begun = Begun { at: now, volume: request.volume, op, traced };
        match usize::try_from(number) {
            Ok(slot) if slot < SLOTS => {
                if self.slots.len() <= slot {
                    self.slots.resize_with(slot + 1, || None);
                }
                self.slots[slot] = Some(begun);
            }
            _ => drop(self.others.insert(number, begun)),
        }
    }

    /// It is answered.
    pub(crate) fn end(&mut self, now: Instant, number: u64, id: RequestId, completion: &Completion) {
        debug_assert!(!id.is_internal());
        let begun = match usize::try_from(number) {
            Ok(slot) if slot < SLOTS => self.slots.get_mut(slot).and_then(Option::take),
            _ => self.others.remove(&number),
        };
        let Some(Begun { at, volume, op, traced }) = begun else { return };
        let index = volume.index();
        if self.latencies.len() <= index {
            self.latencies.resize(index + 1, None);
        }
        let latencies = self.latencies[index].get_or_insert_with(|| self.taps.latencies(volume));
        latencies.record(op, now.0.saturating_sub(at.0));
        if let Some(traced) = traced {
            let (op, flags) = *traced;
            let (thread, completion) = (self.thread, completion.clone());
            self.taps.record(Record { begun: at, ended: now, volume, op, flags, completion, thread });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulation::{Bytes, Sector, SectorRange, Sectors};

    fn request(number: u64) -> Request {
        let range = SectorRange { start: Sector(8 * number), len: Sectors(8) };
        Request { id: RequestId(number), volume: VolumeId(3), op: Op::Write(range), flags: Flags::NONE }
    }

    fn run(tap: &mut Tap, number: u64, (begun, ended): (u64, u64)) {
        tap.begin(Instant(begun), number, &request(number));
        tap.end(Instant(ended), number, RequestId(number), &Completion::ok(Bytes(4096)));
    }

    #[test]
    fn every_latency_is_in_the_class_that_ends_at_or_after_it() {
        for nanos in (0..5000).chain([1 << 20, (1 << 20) + 1, (1 << 40) - 1]) {
            let class = class(nanos);
            assert!(
                class_end(class) >= nanos && (class == 0 || class_end(class - 1) < nanos),
                "{nanos}: {class}"
            );
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn latencies_are_counted_whatever_the_number_of_a_request_is() {
        let taps = Arc::new(Taps::default());
        let mut tap = Tap::new(Arc::clone(&taps), 0);
        for number in (0..99).chain([1 << 40]) {
            run(&mut tap, number, (1000, if number == 98 { 1000 + 9_000 } else { 1000 + 100 }));
        }
        let latencies = taps.latencies(VolumeId(3));
        assert_eq!(latencies.of(1, &[500, 990, 1000]), (100, vec![111, 111, 10_239]));
        assert_eq!(latencies.of(0, &[500]), (0, vec![0]));
        latencies.reset();
        assert_eq!(latencies.of(1, &[500]).0, 0);
    }

    #[test]
    fn a_trace_begins_when_it_is_read_and_is_lost_when_it_is_not() {
        let taps = Arc::new(Taps::default());
        let mut tap = Tap::new(Arc::clone(&taps), 0);
        run(&mut tap, 0, (1, 2));
        assert!(taps.read(Instant(5), VolumeId(3), 0, 10).0.is_empty());
        for number in 1..4 {
            run(&mut tap, number, (10 * number, 10 * number + 5));
        }
        let (records, next, lost) = taps.read(Instant(50), VolumeId(3), 0, 2);
        let times: Vec<_> = records.iter().map(|record| (record.begun.0, record.ended.0)).collect();
        assert_eq!((times, next, lost), (vec![(10, 15), (20, 25)], 2, 0));
        assert_eq!(taps.read(Instant(51), VolumeId(3), 2, 10).0.len(), 1);
        for number in 0..RECORDS_MAX as u64 + 5 {
            run(&mut tap, number % 100, (60, 61));
        }
        let (records, next, lost) = taps.read(Instant(70), VolumeId(3), 3, 10);
        assert_eq!((records.len(), next, lost), (10, 3 + 5 + 10, 5));
        // Nobody reads it any more.
        run(&mut tap, 1, (70, 70 + 11_000_000_000));
        assert!(!taps.tracing.load(Ordering::Relaxed));
    }
}
