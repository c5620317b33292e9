use super::*;
use crate::copy::LINK_BYTES_MAX;
use crate::emulated::Emulated;
use crate::identity::Identity;
use crate::limits::CopyMode;
use crate::pool::Pool;
use crate::redo::NoLog;
use crate::request::{CopyCommand, CopySegment, Op};
use crate::status::BlkStatus;
use crate::time::Nanos;
use crate::timing::{Deadlines, Flash, HostLink, Latencies, Latency, Media, Rate};
use crate::units::{Bytes, Sector, SectorRange, Sectors};

const V: VolumeId = VolumeId(0);
const MIB: u64 = 2048;
const US: u64 = 1_000;

/// A pool in virtual time. Every plan is executed at once and finished at its instant.
struct Clock {
    pool: Pool,
    now: Instant,
    plans: Deadlines<Plan>,
    /// Each link: whose, from when, until when.
    links: Vec<(RequestId, Instant, Instant)>,
    ends: BTreeMap<RequestId, (Instant, Completion)>,
    late: Nanos,
}

impl Clock {
    fn new(timing: Timing, mode: CopyMode) -> Self {
        timing.validate().unwrap();
        let device = Emulated::new(Box::new(Delayed::new(Box::new(Identity::new(false)))));
        let mut pool = Pool::new(Box::new(device), Box::new(NoLog::default()));
        let mut limits = Limits::new(Sectors(1024 * MIB), Sectors(1), Sectors(8));
        limits.copy_mode = mode;
        limits.copy_max_segment_bytes = Bytes(65_535 * 512);
        pool.control(Instant::ORIGIN, Control::AddVolume(V, limits));
        pool.control(Instant::ORIGIN, Control::SetTiming(V, Some(Box::new(timing))));
        Self {
            pool,
            now: Instant::ORIGIN,
            plans: Deadlines::default(),
            links: Vec::new(),
            ends: BTreeMap::new(),
            late: Nanos(0),
        }
    }

    /// Lets everything happen that happens before `at`, then begins a request then.
    fn begin(&mut self, at: u64, id: u64, op: Op) {
        self.run_until(Instant(at));
        self.now = Instant(at);
        let request = Request { id: RequestId(id), volume: V, op, flags: Flags::NONE };
        let out = self.pool.begin(self.now, request);
        self.take(out);
    }

    fn run_until(&mut self, end: Instant) {
        while let Some((at, plan)) = self.plans.pop_due(end) {
            self.now = self.now.max(at + self.late);
            let io = IoResult::done(&plan);
            let out = self.pool.finish(self.now, plan, io);
            self.take(out);
        }
    }

    /// When each request ends, in the order of their numbers.
    fn ends(&mut self) -> Vec<u64> {
        self.run_until(Instant(u64::MAX));
        self.ends.values().map(|(at, _)| at.0).collect()
    }

    fn take(&mut self, out: Out) {
        for (id, next) in out {
            match next {
                Next::Wait => {}
                Next::Run(plan) => {
                    let at = plan.not_before.max(self.now);
                    self.links.push((id, self.now, at));
                    self.plans.push(at, plan);
                }
                Next::Done(completion) => {
                    assert!(self.ends.insert(id, (self.now, completion)).is_none());
                }
            }
        }
    }
}

fn range(start: u64, len: u64) -> SectorRange {
    SectorRange { start: Sector(start), len: Sectors(len) }
}

fn copy(from: u64, len: u64, to: u64) -> Op {
    const SEGMENT: u64 = 16 * MIB;
    let segments = (0..len.div_ceil(SEGMENT))
        .map(|index| CopySegment {
            source_volume: V,
            source: range(from + index * SEGMENT, SEGMENT.min(len - index * SEGMENT)),
            destination: Sector(to + index * SEGMENT),
        })
        .collect();
    Op::Copy(CopyCommand { segments })
}

fn latencies(read: u64, write: u64, copy: u64) -> Latencies {
    Latencies {
        read: Latency::Fixed(Nanos(read)),
        write: Latency::Fixed(Nanos(write)),
        copy: Latency::Fixed(Nanos(copy)),
        ..Latencies::default()
    }
}

#[test]
fn latency_is_charged_once_for_each_request_and_requests_overlap() {
    let timing = Timing { latency: latencies(80 * US, 20 * US, 100 * US), ..Timing::default() };
    let mut clock = Clock::new(timing, CopyMode::Memcpy);
    clock.begin(0, 1, Op::Read(range(0, 8)));
    clock.begin(5 * US, 2, Op::Write(range(8, 8)));
    // Three links; the volume has no cache, so the flush needs no plan and has no latency set.
    clock.begin(6 * US, 3, copy(10 * MIB, 3 * MIB, 100 * MIB));
    clock.begin(7 * US, 4, Op::Flush);
    assert_eq!(clock.ends(), [80 * US, 25 * US, 106 * US, 7 * US]);
}

#[test]
fn what_needs_no_plan_waits_with_one_of_its_own_and_what_is_refused_does_not() {
    let latency = Latencies { flush: Latency::Fixed(Nanos(30 * US)), ..Latencies::default() };
    let mut clock = Clock::new(Timing { latency, ..Timing::default() }, CopyMode::Memcpy);
    clock.begin(US, 1, Op::Flush);
    clock.begin(2 * US, 2, Op::ReportZones { from: Sector(0), max: 1 });
    assert_eq!(clock.ends(), [31 * US, 2 * US]);
    assert_eq!(clock.ends[&RequestId(2)].1.status, BlkStatus::NotSupp);
}

#[test]
fn bandwidth_is_shared_and_a_move_takes_it_twice() {
    // 1 MiB in 1 ms.
    let timing = Timing { bandwidth: Some(Rate(1_048_576_000)), ..Timing::default() };
    let mut clock = Clock::new(timing, CopyMode::Memcpy);
    clock.begin(0, 1, Op::Read(range(0, MIB)));
    clock.begin(0, 2, Op::Write(range(MIB, MIB)));
    clock.begin(0, 3, copy(0, MIB, 100 * MIB));
    clock.begin(3_500 * US, 4, Op::Read(range(0, MIB / 2)));
    // The copy takes 2 ms behind the two; the last read waits for its end at 4 ms.
    assert_eq!(clock.ends(), [1_000 * US, 2_000 * US, 4_000 * US, 4_500 * US]);
}

#[test]
fn a_queue_of_two_takes_the_third_when_the_first_leaves() {
    let timing =
        Timing { latency: latencies(100 * US, 30 * US, 0), queue_depth: Some(2), ..Timing::default() };
    let mut clock = Clock::new(timing, CopyMode::Memcpy);
    clock.begin(0, 1, Op::Read(range(0, 8)));
    clock.begin(0, 2, Op::Write(range(8, 8)));
    clock.begin(0, 3, Op::Read(range(16, 8)));
    clock.begin(0, 4, Op::Read(range(24, 8)));
    // Places are free at 100 and 30; the third leaves its place at 130.
    assert_eq!(clock.ends(), [100 * US, 30 * US, 130 * US, 200 * US]);
    clock.begin(300 * US, 5, Op::Write(range(8, 8)));
    assert_eq!(clock.ends()[4], 330 * US);
}

#[test]
fn a_copy_inside_does_not_take_the_link_and_an_emulated_one_neither() {
    let link = HostLink { round_trip: Nanos(500 * US), bandwidth: Rate(1_048_576_000) };
    let timing = Timing { link: Some(link), ..Timing::default() };
    let end = |mode| {
        let mut clock = Clock::new(timing.clone(), mode);
        clock.begin(0, 1, copy(0, 4 * MIB, 100 * MIB));
        clock.ends()[0]
    };
    // One round trip for the command; what the device emulates is a matter of its own.
    assert_eq!((end(CopyMode::Memcpy), end(CopyMode::Emulate)), (500 * US, 0));
    let mut clock = Clock::new(timing, CopyMode::Memcpy);
    clock.begin(0, 1, Op::Read(range(0, MIB)));
    clock.begin(0, 2, Op::Read(range(0, MIB)));
    // What is written goes the other way: it waits for no read.
    clock.begin(0, 3, Op::Write(range(MIB, MIB)));
    assert_eq!(clock.ends(), [1_500 * US, 2_500 * US, 1_500 * US]);
}

/// One channel of one die: 100 us a read, 500 us a program, 64 KiB pages, 64 KiB in 65,536 ns.
fn one_die() -> Timing {
    let flash = Flash {
        channels: 1,
        dies_per_channel: 1,
        page: Bytes::kib(64),
        read: Nanos(100 * US),
        program: Nanos(500 * US),
        erase: Nanos(1_000 * US),
        channel: Rate(1_000_000_000),
        reset_blocks: 1,
        finish: Nanos(0),
        buffer: Bytes(0),
        power_loss_protection: false,
    };
    Timing { media: Media::Flash(flash), ..Timing::default() }
}

/// The links of others that end between the begin and the end of a request.
fn links_waited_for(clock: &Clock, id: RequestId) -> usize {
    let (_, from, _) = clock.links.iter().find(|link| link.0 == id).unwrap();
    let (to, _) = clock.ends[&id];
    clock.links.iter().filter(|link| link.0 != id && link.2 > *from && link.2 <= to).count()
}

#[test]
fn a_read_behind_a_copy_of_64_mib_waits_for_one_link() {
    let mut clock = Clock::new(one_die(), CopyMode::Memcpy);
    clock.begin(0, 1, copy(0, 64 * MIB, 512 * MIB));
    // Each link is sixteen pages that stay on their die: 9.6 ms. The third is under way.
    let link = 16 * 600 * US;
    clock.begin(2 * link + 1, 2, Op::Read(range(900 * MIB, 128)));
    let ends = clock.ends();
    assert_eq!(ends[1], 3 * link + 100 * US + 65_536);
    assert_eq!(links_waited_for(&clock, RequestId(2)), 1);
    // The copy goes on behind the read: 61 links follow it.
    assert_eq!(ends[0], 64 * link + 100 * US + 65_536);
    assert_eq!(LINK_BYTES_MAX, Bytes::mib(1));
    assert_eq!(clock.links.len(), 65);
}

#[test]
fn a_checker_of_waits_sees_a_read_that_waits_for_two_links() {
    let mut clock = Clock::new(one_die(), CopyMode::Memcpy);
    let (a, b) = (RequestId(1), RequestId(2));
    clock.links = vec![
        (a, Instant(0), Instant(10)),
        (a, Instant(10), Instant(20)),
        (b, Instant(5), Instant(30)),
        (a, Instant(20), Instant(40)),
    ];
    clock.ends.insert(b, (Instant(30), Completion::ok(Bytes(0))));
    assert_eq!(links_waited_for(&clock, b), 2);
}

#[test]
fn copyback_beats_the_way_through_the_controller() {
    let mut timing = one_die();
    let end = |timing: &Timing| {
        let mut clock = Clock::new(timing.clone(), CopyMode::Memcpy);
        clock.begin(0, 1, copy(0, 128, 512 * MIB));
        clock.ends()[0]
    };
    assert_eq!(end(&timing), 600 * US);
    if let Media::Flash(flash) = &mut timing.media {
        // 64 KiB from page 0 lie on die 0 then, and the destination's page 8192 on die 2 of 3.
        flash.dies_per_channel = 3;
    }
    assert_eq!(end(&timing), 600 * US + 2 * 65_536);
}

#[test]
fn a_change_holds_for_what_begins_after_it() {
    let read = |read| Timing { latency: latencies(read, 0, 0), ..Timing::default() };
    let mut clock = Clock::new(read(100 * US), CopyMode::Memcpy);
    clock.begin(0, 1, Op::Read(range(0, 8)));
    clock.pool.control(clock.now, Control::SetTiming(V, Some(Box::new(read(10 * US)))));
    clock.begin(0, 2, Op::Read(range(0, 8)));
    clock.pool.control(clock.now, Control::SetTiming(V, None));
    clock.begin(0, 3, Op::Read(range(0, 8)));
    assert_eq!(clock.ends(), [100 * US, 10 * US, 0]);
}

#[test]
fn lateness_and_the_floor_are_recorded_for_plans_with_an_instant() {
    let timing = Timing { latency: latencies(100 * US, 0, 0), ..Timing::default() };
    let mut clock = Clock::new(timing, CopyMode::Memcpy);
    clock.begin(0, 1, Op::Read(range(0, 8)));
    clock.late = Nanos(7);
    clock.begin(US, 2, Op::Read(range(0, 8)));
    assert_eq!(clock.ends(), [100 * US + 7, 101 * US + 7]);
    let lateness = clock.pool.lateness();
    assert_eq!((lateness.count(), lateness.floor(), lateness.max()), (2, Some(Nanos(7)), Nanos(7)));
}

#[test]
fn a_removed_volume_answers_what_waits_and_a_new_one_has_no_timing() {
    let latency = Latencies { flush: Latency::Fixed(Nanos(30 * US)), ..latencies(100 * US, 0, 0) };
    let mut clock = Clock::new(Timing { latency, ..Timing::default() }, CopyMode::Memcpy);
    clock.begin(0, 1, Op::Read(range(0, 8)));
    clock.begin(0, 2, Op::Flush);
    let out = clock.pool.control(clock.now, Control::RemoveVolume(V));
    clock.take(out);
    let limits = Limits::new(Sectors(MIB), Sectors(1), Sectors(8));
    clock.pool.control(clock.now, Control::AddVolume(V, limits));
    clock.begin(US, 3, Op::Read(range(0, 8)));
    assert_eq!(clock.ends(), [100 * US, 30 * US, US]);
}
