use super::*;
use crate::host::tests::contents::{Disks, fresh, index};
use crate::limits::Limits;
use crate::status::BlkStatus;
use crate::time::Nanos;
use crate::timing::chance::Chance;
use crate::units::Sector;

const SOURCE: VolumeId = VolumeId(0);
const KIB: u64 = 2;
const MIB: u64 = 2048;
/// More turns than any test needs.
const TURNS_MAX: usize = 100_000;

fn region(volume: VolumeId, start: u64, len: u64) -> Region {
    Region { volume, range: SectorRange { start: Sector(start), len: Sectors(len) } }
}

fn job(len: u64, destinations: u32) -> Job {
    Job {
        source: Some(region(SOURCE, 0, len)),
        destinations: (1..=destinations).map(|volume| region(VolumeId(volume), 64, len)).collect(),
        ignore_error: false,
        write_seq: false,
    }
}

/// A client over nine disks of 12 MiB in virtual time.
struct Rig {
    kcopyd: Kcopyd,
    disks: Disks,
    now: Instant,
    /// How long a request takes.
    takes: Nanos,
    /// At the disks, with the time of their answer.
    waiting: Vec<(Instant, RequestId, Completion)>,
    /// Answers come in any order.
    chance: Option<Chance>,
    notices: Vec<Notice>,
    /// Time with requests at the disks.
    busy: u64,
    most_waiting: usize,
}

impl Rig {
    fn new(config: Config) -> Self {
        let limits = |_| Limits::new(Sectors(12 * MIB), Sectors(1), Sectors(8));
        Self {
            kcopyd: Kcopyd::new(config),
            disks: Disks::new((0..=8).map(|volume| (VolumeId(volume), limits(volume)))),
            now: Instant::ORIGIN,
            takes: Nanos(0),
            waiting: Vec::new(),
            chance: None,
            notices: Vec::new(),
            busy: 0,
            most_waiting: 0,
        }
    }

    /// The worker's turn; what it sends is carried out.
    fn turn(&mut self) {
        for emit in self.kcopyd.run(self.now) {
            let completion = self.disks.execute(&emit);
            self.waiting.push((self.now + self.takes, emit.request.id, completion));
        }
        self.most_waiting = self.most_waiting.max(self.waiting.len());
        self.notices.extend(self.kcopyd.take_notices());
    }

    fn answer(&mut self, place: usize) {
        let (at, id, completion) = self.waiting.remove(place);
        let end = self.now.max(at);
        self.busy += end.0 - self.now.0;
        self.now = end;
        self.kcopyd.complete(self.now, id, &completion);
    }

    /// Runs until nothing moves any more.
    fn run(&mut self) {
        for _ in 0..TURNS_MAX {
            self.turn();
            if !self.waiting.is_empty() {
                let count = u32::try_from(self.waiting.len()).unwrap();
                let place = self.chance.as_mut().map_or(0, |chance| chance.below(count));
                self.answer(place as usize);
            } else if let Some(at) = self.kcopyd.wake_at() {
                self.now = at;
            } else {
                return;
            }
        }
        panic!("it does not end");
    }

    /// One job, alone.
    fn job(&mut self, job: Job) -> Option<Notice> {
        let id = self.kcopyd.copy(job).unwrap();
        self.run();
        self.notices.iter().find(|notice| notice.job == id).copied()
    }

    fn holds_source(&self, destination: u32, len: u64) -> bool {
        let whole =
            |volume, start| self.disks.read(volume, SectorRange { start: Sector(start), len: Sectors(len) });
        whole(VolumeId(destination), 64) == whole(SOURCE, 0)
    }

    fn ops(&self) -> Vec<(char, u64, u64)> {
        self.disks.log.iter().map(|emit| kind(&emit.request.op)).collect()
    }
}

fn kind(op: &Op) -> (char, u64, u64) {
    match op {
        Op::Read(range) => ('r', range.start.0, range.len.0),
        Op::Write(range) => ('w', range.start.0, range.len.0),
        Op::WriteZeroes(range) => ('z', range.start.0, range.len.0),
        Op::Copy(command) => {
            let segment = &command.segments[0];
            ('c', segment.destination.0, command.total().unwrap().0)
        }
        Op::Flush => ('f', 0, 0),
        Op::Discard(_) | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => panic!("{op:?}"),
    }
}

fn slices_of_half_a_mib() -> Config {
    Config { max_io: SUB_JOB.whole_sectors(), ..Config::default() }
}

#[test]
fn a_small_job_is_one_read_and_one_write() {
    let mut rig = Rig::new(Config::default());
    assert_eq!(rig.job(job(100, 1)).map(|notice| notice.is_ok()), Some(true));
    assert_eq!(rig.ops(), [('r', 0, 100), ('w', 64, 100)]);
    assert!(rig.holds_source(1, 100) && rig.kcopyd.is_idle());
}

#[test]
fn a_long_job_has_eight_slices_in_flight() {
    let mut rig = Rig::new(slices_of_half_a_mib());
    assert_eq!(rig.job(job(10 * MIB, 1)).map(|notice| notice.is_ok()), Some(true));
    assert_eq!((rig.most_waiting, rig.ops().len()), (8, 40));
    assert!(rig.holds_source(1, 10 * MIB));
    // The first eight are read before anything is written.
    let expected: Vec<_> = (0..8).map(|slice| ('r', slice * 512 * KIB, 512 * KIB)).collect();
    assert_eq!(rig.ops()[..8], expected);
}

#[test]
fn neighbouring_slices_are_merged_in_the_workers_plug() {
    let mut rig = Rig::new(Config::default());
    rig.job(job(4 * MIB, 1));
    assert_eq!(rig.ops()[..4], [('r', 0, MIB), ('r', MIB, MIB), ('r', 2 * MIB, MIB), ('r', 3 * MIB, MIB)]);
    assert!(rig.holds_source(1, 4 * MIB));
}

#[test]
fn eight_destinations_are_written_and_each_has_its_error_bit() {
    let mut rig = Rig::new(slices_of_half_a_mib());
    // The read, then the writes of destinations 0 to 7.
    rig.disks.failures = [(3, BlkStatus::Medium), (6, BlkStatus::Medium)].into();
    let notice = rig.job(job(64, 8)).unwrap();
    assert_eq!((notice.read_err, notice.write_err), (false, 1 << 2 | 1 << 5));
    let held: Vec<_> = (1..=8).filter(|volume| rig.holds_source(*volume, 64)).collect();
    assert_eq!(held, [1, 2, 4, 5, 7, 8]);
    assert_eq!(
        rig.kcopyd.copy(Job { destinations: Vec::new(), ..job(8, 1) }),
        Err(JobError::Destinations(0))
    );
    let nine = vec![region(VolumeId(1), 0, 8); 9];
    assert_eq!(rig.kcopyd.copy(Job { destinations: nine, ..job(8, 1) }), Err(JobError::Destinations(9)));
    let uneven = Job { source: Some(region(SOURCE, 0, 9)), ..job(8, 1) };
    assert_eq!(rig.kcopyd.copy(uneven), Err(JobError::Lengths));
}

#[test]
fn the_reserve_alone_carries_one_slice_at_a_time() {
    let mut rig = Rig::new(Config { free_pages: 0, ..slices_of_half_a_mib() });
    assert_eq!(rig.job(job(4 * MIB, 2)).map(|notice| notice.is_ok()), Some(true));
    // Two writes of one slice.
    assert_eq!(rig.most_waiting, 2);
    assert!(rig.holds_source(1, 4 * MIB) && rig.holds_source(2, 4 * MIB));
    // Two small jobs share it.
    let mut two = Rig::new(Config { free_pages: 0, ..slices_of_half_a_mib() });
    two.kcopyd.copy(job(256 * KIB, 1)).unwrap();
    two.kcopyd.copy(job(256 * KIB, 1)).unwrap();
    two.run();
    assert_eq!((two.most_waiting, two.notices.len()), (2, 2));
}

#[test]
fn sequential_writes_are_issued_in_order_however_the_reads_end() {
    for seed in 0..20 {
        let mut rig = Rig::new(slices_of_half_a_mib());
        rig.chance = Some(Chance::new(seed));
        let notice = rig.job(Job { write_seq: true, ..job(6 * MIB, 1) });
        assert_eq!(notice.map(|notice| notice.is_ok()), Some(true));
        let writes: Vec<_> = rig.ops().into_iter().filter(|op| op.0 == 'w').map(|op| op.1).collect();
        assert_eq!(writes, (0..12).map(|slice| 64 + slice * 512 * KIB).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn a_failed_read_ends_the_job_or_writes_zeroes_when_errors_are_ignored() {
    let failing = |ignore_error| {
        let mut rig = Rig::new(slices_of_half_a_mib());
        rig.disks.failures = [(0, BlkStatus::Medium)].into();
        let notice = rig.job(Job { ignore_error, ..job(8, 1) }).unwrap();
        let held = rig.disks.read(VolumeId(1), SectorRange { start: Sector(64), len: Sectors(8) })[0];
        (notice.read_err, notice.write_err, rig.ops().len(), held)
    };
    assert_eq!(failing(false), (true, 0, 1, fresh(VolumeId(1), 64)));
    assert_eq!(failing(true), (true, 0, 2, 0));
}

#[test]
fn no_slice_begins_after_an_error() {
    let mut rig = Rig::new(slices_of_half_a_mib());
    rig.disks.failures = [(0, BlkStatus::Medium)].into();
    let notice = rig.job(job(10 * MIB, 1)).unwrap();
    assert!(notice.read_err);
    // Eight were under way: eight reads and seven writes.
    assert_eq!(rig.ops().len(), 15);
}

#[test]
fn zeroes_are_one_command_a_slice_or_the_zero_page() {
    let zero = |write_zeroes| {
        let mut rig = Rig::new(Config { write_zeroes, ..slices_of_half_a_mib() });
        assert!(rig.job(Job { source: None, ..job(MIB, 2) }).unwrap().is_ok());
        let held = rig.disks.read(VolumeId(2), SectorRange { start: Sector(64), len: Sectors(MIB) });
        assert!(held.iter().all(|value| *value == 0));
        rig.ops().into_iter().map(|op| op.0).collect::<String>()
    };
    assert_eq!((zero(true), zero(false)), ("zzzz".into(), "wwww".into()));
}

#[test]
fn callbacks_come_in_line_with_the_jobs_that_are_done() {
    let mut rig = Rig::new(Config::default());
    let slow = rig.kcopyd.copy(job(8, 1)).unwrap();
    let quick = rig.kcopyd.callback();
    rig.turn();
    assert_eq!(rig.notices.iter().map(|notice| notice.job).collect::<Vec<_>>(), [quick]);
    rig.run();
    assert_eq!(rig.notices[1].job, slow);
}

/// The share of time with requests at the disks, in percent, over a long run of small jobs.
fn share(config: Config) -> u64 {
    let mut rig = Rig::new(config);
    rig.takes = Nanos(20_000_000);
    for _ in 0..200 {
        rig.job(job(8, 1));
    }
    rig.busy * 100 / rig.now.0
}

#[test]
fn the_throttle_bounds_the_share_of_time_with_io() {
    let at = |percent| share(Config { throttle: Throttle::new(percent, 1000), ..Config::default() });
    assert_eq!(at(100), 100);
    for percent in [50, 25] {
        let is = at(percent);
        assert!(is.abs_diff(percent) <= 5, "{is} % at a throttle of {percent} %");
    }
}

fn offloading(defect: Option<KcopydDefect>) -> Config {
    Config { offload: Some(Sectors(128)), defect, ..slices_of_half_a_mib() }
}

#[test]
fn an_offloaded_job_is_one_command_a_slice_and_destination() {
    let mut rig = Rig::new(Config { free_pages: 0, ..offloading(None) });
    assert!(rig.job(job(2 * MIB, 2)).unwrap().is_ok());
    let ops = rig.ops();
    assert!(ops.iter().all(|op| op.0 == 'c' && op.2 == 512 * KIB), "{ops:?}");
    assert_eq!((ops.len(), rig.most_waiting), (8, 8));
    assert!(rig.holds_source(1, 2 * MIB) && rig.holds_source(2, 2 * MIB));
}

#[test]
fn the_host_carries_what_the_disk_does_not() {
    let mut rig = Rig::new(offloading(None));
    rig.disks.failures = [(1, BlkStatus::NotSupp)].into();
    let notice = rig.job(job(64, 3)).unwrap();
    assert!(notice.is_ok());
    assert_eq!(rig.ops().iter().map(|op| op.0).collect::<String>(), "cccrw");
    assert!((1..=3).all(|volume| rig.holds_source(volume, 64)));
}

/// What is wrong with a client of which a defect is on.
fn clause(defect: KcopydDefect, on: bool) -> Result<(), String> {
    let on = on.then_some(defect);
    let whole = |rig: &mut Rig, job: Job| match rig.job(job) {
        Some(notice) if notice.is_ok() => Ok(()),
        other => Err(format!("{other:?}")),
    };
    match defect {
        KcopydDefect::ZeroJobWithoutSource => {
            whole(&mut Rig::new(offloading(on)), Job { source: None, ..job(64, 1) })
        }
        KcopydDefect::PagesOfFirstDestination => {
            let mut rig = Rig::new(offloading(on));
            rig.disks.failures = [(1, BlkStatus::NotSupp)].into();
            whole(&mut rig, job(64, 2))
        }
        KcopydDefect::SynchronousCopy => {
            let mut rig = Rig::new(offloading(on));
            rig.kcopyd.copy(job(64, 1)).unwrap();
            rig.turn();
            rig.kcopyd.callback();
            rig.turn();
            if rig.notices.len() == 1 { Ok(()) } else { Err("a callback waits for a copy".into()) }
        }
        KcopydDefect::ThrottleBypassed => {
            let is = share(Config { throttle: Throttle::new(25, 1000), ..offloading(on) });
            if is <= 30 { Ok(()) } else { Err(format!("{is} % at a throttle of 25 %")) }
        }
        KcopydDefect::OrderIgnored => {
            // The first slice's copy fails: the host writes it before the second slice is sent.
            let mut rig = Rig::new(offloading(on));
            rig.disks.failures = [(0, BlkStatus::NotSupp)].into();
            rig.kcopyd.copy(Job { write_seq: true, ..job(MIB, 1) }).unwrap();
            rig.run();
            let order: Vec<_> = rig.ops().iter().filter(|op| op.0 != 'r').map(|op| op.1).collect();
            let last = order.last().copied();
            if last == Some(64 + 512 * KIB) { Ok(()) } else { Err(format!("{order:?}")) }
        }
        KcopydDefect::ParkedAfterReadError => {
            let mut rig = Rig::new(Config { defect: on, ..slices_of_half_a_mib() });
            rig.disks.failures = [(0, BlkStatus::Medium)].into();
            match rig.job(Job { write_seq: true, ..job(4 * MIB, 1) }) {
                Some(notice) if notice.read_err => Ok(()),
                other => Err(format!("{other:?}")),
            }
        }
    }
}

#[test]
fn each_defect_is_seen_and_without_it_its_clause_holds() {
    for defect in KcopydDefect::ALL {
        assert_eq!(clause(defect, false), Ok(()), "{defect:?} is off");
        assert!(clause(defect, true).is_err(), "{defect:?} was not seen");
    }
}

#[test]
fn jobs_of_any_shape_leave_what_they_say() {
    for seed in 0..150 {
        let mut chance = Chance::new(seed);
        let pick = |chance: &mut Chance, n: u32| u64::from(chance.below(n));
        let config = Config {
            sub_job: Sectors(8 + pick(&mut chance, 64)),
            free_pages: [0, 5, u64::MAX][chance.below(3) as usize],
            max_io: Sectors(8 + pick(&mut chance, 64)),
            write_zeroes: pick(&mut chance, 2) == 0,
            offload: (pick(&mut chance, 2) == 0).then(|| Sectors(8 + pick(&mut chance, 32))),
            throttle: Throttle::new(50 + pick(&mut chance, 51), 250),
            ..Config::default()
        };
        let mut rig = Rig::new(config);
        rig.takes = Nanos(pick(&mut chance, 10_000_000));
        let mut jobs = Vec::new();
        for number in 0..6 {
            let len = 1 + pick(&mut chance, 1000);
            let at = number * 1024;
            let destinations =
                (1..=1 + chance.below(8)).map(|volume| region(VolumeId(volume), at, len)).collect();
            let zero = pick(&mut chance, 5) == 0;
            let job = Job {
                source: (!zero).then(|| region(SOURCE, at, len)),
                destinations,
                ignore_error: pick(&mut chance, 2) == 0,
                write_seq: pick(&mut chance, 2) == 0,
            };
            jobs.push((rig.kcopyd.copy(job.clone()).unwrap(), job));
        }
        for _ in 0..chance.below(4) {
            rig.disks.failures.insert(index(pick(&mut chance, 60)), BlkStatus::Medium);
        }
        rig.chance = Some(chance);
        rig.run();
        assert!(rig.kcopyd.is_idle(), "seed {seed}");
        assert!(rig.disks.refused.is_empty(), "seed {seed}: {:?}", rig.disks.refused);
        for (id, job) in jobs {
            let notice = rig.notices.iter().find(|notice| notice.job == id).unwrap();
            for (bit, to) in job.destinations.iter().enumerate() {
                let held = rig.disks.read(to.volume, to.range);
                let right = match &job.source {
                    Some(from) => held == rig.disks.read(from.volume, from.range),
                    None => held.iter().all(|value| *value == 0),
                };
                // After an error that is not ignored nothing new begins, for any destination.
                let stopped = notice.write_err != 0 && (job.write_seq || !job.ignore_error);
                let failed = notice.read_err || stopped || notice.write_err & (1 << bit) != 0;
                assert!(right || failed, "seed {seed}: {job:?}, {notice:?}, destination {bit}");
            }
        }
    }
}
