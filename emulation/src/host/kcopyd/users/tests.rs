use super::*;
use crate::host::kcopyd::Config;
use crate::host::tests::contents::Disks;
use crate::limits::Limits;
use crate::status::BlkStatus;
use crate::timing::chance::Chance;

const A: VolumeId = VolumeId(0);
const B: VolumeId = VolumeId(1);
const C: VolumeId = VolumeId(2);
const CAPACITY: u64 = 1 << 16;
/// More turns than any test needs.
const TURNS_MAX: usize = 1_000_000;

fn range(start: u64, len: u64) -> SectorRange {
    SectorRange { start: Sector(start), len: Sectors(len) }
}

/// A user over three disks.
struct Rig<U> {
    driven: Driven<U>,
    disks: Disks,
    waiting: Vec<(RequestId, Completion)>,
    chance: Option<Chance>,
    most: usize,
}

impl<U: User> Rig<U> {
    fn new(user: U) -> Self {
        Self::with(user, Config::default())
    }

    fn with(user: U, config: Config) -> Self {
        let limits = |_| Limits::new(Sectors(CAPACITY), Sectors(1), Sectors(8));
        Self {
            driven: Driven::new(user, Kcopyd::new(config), 1 << 32),
            disks: Disks::new((0..3).map(|volume| (VolumeId(volume), limits(volume)))),
            waiting: Vec::new(),
            chance: None,
            most: 0,
        }
    }

    fn run(&mut self) {
        for _ in 0..TURNS_MAX {
            for emit in self.driven.run(Instant::ORIGIN) {
                let completion = self.disks.execute(&emit);
                self.waiting.push((emit.request.id, completion));
            }
            self.most = self.most.max(self.waiting.len());
            if self.waiting.is_empty() {
                assert!(self.driven.user.is_over(), "it waits for nothing: {:?}", self.driven.user);
                return;
            }
            let count = u32::try_from(self.waiting.len()).unwrap();
            let place = self.chance.as_mut().map_or(0, |chance| chance.below(count)) as usize;
            let (id, completion) = self.waiting.remove(place);
            self.driven.complete(Instant::ORIGIN, id, &completion);
        }
        panic!("it does not end");
    }

    /// What was sent: kind, volume, first sector, length.
    fn log(&self) -> Vec<(char, u32, u64, u64)> {
        self.disks.log.iter().map(|emit| short(&emit.request)).collect()
    }

    /// Requests by kind.
    fn count(&self, kind: char) -> usize {
        self.log().iter().filter(|request| request.0 == kind).count()
    }
}

fn short(request: &Request) -> (char, u32, u64, u64) {
    let volume = request.volume.0;
    match &request.op {
        Op::Read(range) => ('r', volume, range.start.0, range.len.0),
        Op::Write(range) => ('w', volume, range.start.0, range.len.0),
        Op::WriteZeroes(range) => ('z', volume, range.start.0, range.len.0),
        Op::Flush => ('f', volume, 0, 0),
        Op::Copy(command) => {
            let first = &command.segments[0];
            ('c', volume, first.destination.0, command.total().unwrap().0)
        }
        Op::Discard(_) | Op::ZoneMgmt { .. } | Op::ZoneResetAll | Op::ReportZones { .. } => {
            panic!("{request:?}")
        }
    }
}

#[test]
fn a_mirror_copies_region_by_region_to_all_legs() {
    let mut rig = Rig::new(Mirror::new(vec![A, B, C], Sectors(2560), Sectors(1024), true));
    rig.run();
    let region = |start, len| [('r', 0, start, len), ('w', 1, start, len), ('w', 2, start, len)];
    assert_eq!(rig.log(), [region(0, 1024), region(1024, 1024), region(2048, 512)].concat());
    assert_eq!(rig.disks.read(C, range(0, 2560)), rig.disks.read(A, range(0, 2560)));
    let mut failing = Rig::new(Mirror::new(vec![A, B, C], Sectors(2560), Sectors(1024), true));
    failing.disks.failures = [(2, BlkStatus::Medium)].into();
    failing.run();
    assert_eq!((failing.driven.user.failed_legs(), failing.log().len()), (1 << 2, 9));
}

#[test]
fn without_error_handling_a_mirror_writes_zeroes_for_what_it_cannot_read() {
    let resync = |handle_errors| {
        let mut rig = Rig::new(Mirror::new(vec![A, B], Sectors(8), Sectors(8), handle_errors));
        rig.disks.failures = [(0, BlkStatus::Medium)].into();
        rig.run();
        rig.log().len()
    };
    assert_eq!((resync(true), resync(false)), (1, 2));
}

#[test]
fn a_clone_hydrates_in_batches_within_its_threshold() {
    let hydrate = |threshold, batch| {
        let mut clone = Hydration::new(A, B, Sectors(8 * 8 + 4), Sectors(8));
        (clone.threshold, clone.batch) = (threshold, batch);
        // Written whole: needs no copy, and parts the batch.
        clone.written_whole(3);
        let mut rig = Rig::with(clone, Config { max_io: Sectors(64), ..Config::default() });
        rig.run();
        let writes: Vec<_> = rig.log().iter().filter(|r| r.0 == 'w').map(|r| (r.2, r.3)).collect();
        (rig.most, writes)
    };
    let single = [(0, 8), (8, 8), (16, 8), (32, 8), (40, 8), (48, 8), (56, 8), (64, 4)];
    assert_eq!(hydrate(1, 1), (1, single.to_vec()));
    // The batch is bounded by the threshold too.
    assert_eq!(hydrate(1, 4), (1, single.to_vec()));
    // A batch ends at the hole, and where the threshold is reached.
    let batches = [(0, 24), (32, 8), (40, 24), (64, 4)];
    assert_eq!(hydrate(4, 4).1, batches);
}

#[test]
fn offload_changes_the_requests_of_a_clone_and_nothing_else() {
    let run = |offload| {
        let mut clone = Hydration::new(A, B, Sectors(4096), Sectors(64));
        (clone.threshold, clone.batch) = (16, 4);
        let mut rig = Rig::with(clone, Config { offload, ..Config::default() });
        rig.run();
        assert_eq!(rig.disks.read(B, range(0, 4096)), rig.disks.read(A, range(0, 4096)));
        (rig.count('r'), rig.count('w'), rig.count('c'))
    };
    assert_eq!((run(None).2, run(Some(Sectors(32_768)))), (0, (0, 0, 16)));
}

fn to_origin(start: u64, len: u64) -> SnapshotWrite {
    SnapshotWrite { to_snapshot: false, range: range(start, len) }
}

#[test]
fn the_first_write_of_a_chunk_copies_it_and_commits_before_it_goes() {
    let mut rig = Rig::new(Snapshot::new(A, B, Sectors(8), vec![to_origin(3, 2)]));
    rig.run();
    // To the first free chunk, 2; flush and records of area 0, chunk 1; then the write.
    let expected = [('r', 0, 0, 8), ('w', 1, 16, 8), ('f', 1, 0, 0), ('w', 1, 8, 8), ('w', 0, 3, 2)];
    assert_eq!(rig.log(), expected);
    assert_eq!(rig.disks.log[3].request.flags, Flags::FUA);
    // A second write of the chunk copies nothing.
    let mut again = Rig::new(Snapshot::new(A, B, Sectors(8), vec![to_origin(3, 2), to_origin(0, 8)]));
    again.run();
    assert_eq!((again.count('r'), again.count('w')), (1, 4));
}

#[test]
fn one_write_at_a_time_is_committed_and_let_go_before_the_next_is_copied() {
    let mut snapshot = Snapshot::new(A, B, Sectors(8), vec![to_origin(0, 2), to_origin(8, 2)]);
    snapshot.depth = 1;
    let mut rig = Rig::new(snapshot);
    rig.run();
    let one =
        |from, to| [('r', 0, from, 8), ('w', 1, to, 8), ('f', 1, 0, 0), ('w', 1, 8, 8), ('w', 0, from, 2)];
    assert_eq!(rig.log(), [one(0, 16), one(8, 24)].concat());
    let write = |block| ThinWrite { range: range(block * 8, 2), shared: Some(block) };
    let mut thin = Thin::new(A, Sectors(8), 4, vec![write(0), write(1)]);
    thin.depth = 1;
    let mut rig = Rig::new(thin);
    rig.run();
    let one = |from, to| [('r', 0, from, 8), ('w', 0, to, 8), ('w', 0, to, 2)];
    assert_eq!(rig.log(), [one(0, 32), one(8, 40)].concat());
}

#[test]
fn a_whole_chunk_of_the_snapshot_is_written_without_a_copy() {
    let write = |start, len| SnapshotWrite { to_snapshot: true, range: range(start, len) };
    let mut rig = Rig::new(Snapshot::new(A, B, Sectors(8), vec![write(8, 8)]));
    rig.run();
    assert_eq!(rig.log(), [('w', 1, 16, 8), ('f', 1, 0, 0), ('w', 1, 8, 8)]);
    let mut part = Rig::new(Snapshot::new(A, B, Sectors(8), vec![write(9, 2)]));
    part.run();
    assert_eq!(part.log().last(), Some(&('w', 1, 17, 2)));
    assert_eq!(part.count('r'), 1);
    // A chunk that has its exception is written in its place.
    let mut twice = Rig::new(Snapshot::new(A, B, Sectors(8), vec![write(8, 8), write(8, 8)]));
    twice.run();
    assert_eq!(twice.log().iter().filter(|request| **request == ('w', 1, 16, 8)).count(), 2);
}

#[test]
fn a_full_area_is_followed_by_zeroes_for_the_next_and_data_lie_around_it() {
    // 4 KiB chunks: 256 records an area, so 257 chunks from one area to the next.
    let writes: Vec<_> = (0..300).map(|chunk| to_origin(chunk * 8, 8)).collect();
    let mut rig = Rig::new(Snapshot::new(A, B, Sectors(8), writes));
    rig.chance = Some(Chance::new(5));
    rig.run();
    let user = &rig.driven.user;
    assert!(user.is_valid());
    // Chunk 258 is the second area.
    assert_eq!((user.place(0), user.place(255), user.place(256)), (Some(2), Some(257), Some(259)));
    let areas: Vec<_> =
        rig.log().iter().filter(|r| r.1 == 1 && (r.2 == 8 || r.2 == 258 * 8)).copied().collect();
    // Zeroes for the second, records of the first, records of the second.
    assert_eq!(areas, [('w', 1, 258 * 8, 8), ('w', 1, 8, 8), ('w', 1, 258 * 8, 8)]);
    for chunk in 0..300 {
        let place = user.place(chunk).unwrap();
        let old: Vec<_> = (0..8).map(|at| crate::host::tests::contents::fresh(A, chunk * 8 + at)).collect();
        assert_eq!(rig.disks.read(B, range(place * 8, 8)), old, "chunk {chunk}");
    }
}

#[test]
fn a_failed_copy_invalidates_the_snapshot_and_the_origin_goes_on() {
    let mut rig = Rig::new(Snapshot::new(A, B, Sectors(8), vec![to_origin(0, 8), to_origin(8, 8)]));
    rig.disks.failures = [(0, BlkStatus::Medium)].into();
    rig.run();
    assert!(!rig.driven.user.is_valid());
    assert_eq!(rig.log().iter().filter(|r| r.0 == 'w' && r.1 == 0).count(), 2);
}

#[test]
fn a_merge_goes_backwards_in_runs() {
    let exceptions = [(10, 2), (11, 3), (12, 4), (40, 5), (41, 6)];
    let exceptions = exceptions.map(|(old, new)| Exception { old, new }).to_vec();
    let mut rig = Rig::new(Merge::new(A, B, Sectors(8), exceptions.clone()));
    rig.run();
    let clear = [('f', 0, 0, 0), ('w', 1, 8, 8)];
    let expected =
        [&[('r', 1, 40, 16), ('w', 0, 320, 16)][..], &clear, &[('r', 1, 16, 24), ('w', 0, 80, 24)], &clear];
    assert_eq!(rig.log(), expected.concat());
    let mut failing = Rig::new(Merge::new(A, B, Sectors(8), exceptions));
    failing.disks.failures = [(1, BlkStatus::Medium)].into();
    failing.run();
    assert!(failing.driven.user.is_stopped());
    assert_eq!(failing.log().len(), 2);
}

#[test]
fn a_cache_migrates_within_its_threshold_and_copies_only_what_differs() {
    let promote = |origin, cache| Migration::Promote { origin, cache, discarded: false };
    let mut migrations: Vec<_> = (0..8).map(|number| promote(number * 3, number)).collect();
    migrations.push(Migration::Promote { origin: 50, cache: 20, discarded: true });
    migrations.push(Migration::Demote { cache: 30, origin: 60, dirty: false });
    migrations.push(Migration::Demote { cache: 31, origin: 61, dirty: true });
    migrations.push(Migration::Writeback { cache: 32, origin: 62 });
    // 256 KiB: four fit in 1 MiB.
    let mut rig = Rig::new(Cache::new(A, B, Sectors(512), migrations));
    rig.run();
    assert_eq!((rig.count('r'), rig.count('w'), rig.count('f')), (10, 10, 2));
    assert!(rig.most <= 6, "{}", rig.most);
    assert_eq!(rig.disks.read(B, range(512, 512)), rig.disks.read(A, range(3 * 512, 512)));
    assert_eq!(rig.disks.read(A, range(61 * 512, 512)), rig.disks.read(B, range(31 * 512, 512)));
}

#[test]
fn a_thin_block_is_copied_zeroed_or_just_written() {
    let write = |start, len, shared| ThinWrite { range: range(start, len), shared };
    let thin = |write| Thin::new(A, Sectors(128), 100, vec![write]);
    let log = |user| {
        let mut rig = Rig::new(user);
        rig.run();
        rig.log()
    };
    let at = 100 * 128;
    assert_eq!(log(thin(write(4, 8, Some(7)))), [('r', 0, 896, 128), ('w', 0, at, 128), ('w', 0, at + 4, 8)]);
    assert_eq!(log(thin(write(0, 128, Some(7)))), [('w', 0, at, 128)]);
    assert_eq!(log(thin(write(4, 8, None))), [('z', 0, at, 128), ('w', 0, at + 4, 8)]);
    let mut skipping = thin(write(4, 8, None));
    skipping.skip_block_zeroing = true;
    assert_eq!(log(skipping), [('w', 0, at + 4, 8)]);
    // The external origin ends in the middle of the second block.
    let mut external = thin(write(130, 8, None));
    external.external = Some((B, Sectors(160)));
    let mut filled = log(external);
    filled.sort_unstable();
    let expected = [('r', 1, 128, 32), ('w', 0, at, 32), ('w', 0, at + 2, 8), ('z', 0, at + 32, 96)];
    assert_eq!(filled, expected);
}

#[test]
fn a_writecache_writes_runs_back_and_flushes_the_origin() {
    let block = |origin, cache| DirtyBlock { origin, cache };
    let mut dirty = vec![block(100, 7), block(50, 20), block(51, 21), block(52, 30)];
    dirty.extend((0..300).map(|number| block(1000 + number, 400 + number)));
    let mut user = Writecache::new(A, B, Sectors(8), dirty);
    user.writeback_jobs = Some(2);
    let mut rig = Rig::with(user, Config { max_io: Sectors(4096), ..Config::default() });
    rig.run();
    let writes: Vec<_> = rig.log().iter().filter(|r| r.0 == 'w').map(|r| (r.2, r.3)).collect();
    // 256 blocks of 4 KiB, then the rest of the run.
    assert_eq!(writes[..3], [(400, 16), (416, 8), (800, 8)]);
    assert_eq!(writes[3..].iter().map(|write| write.1).sum::<u64>(), 300 * 8);
    assert_eq!(rig.log().last(), Some(&('f', 1, 0, 0)));
    assert_eq!(rig.disks.read(B, range(8000, 2400)), rig.disks.read(A, range(3200, 2400)));
    assert!(!rig.driven.user.has_error());
}

#[test]
fn reclaim_fills_holes_of_a_sequential_zone_and_waits_for_each_extent() {
    let extents = vec![range(8, 16), range(64, 8)];
    let zones = (Sector(4096), Sector(8192));
    let mut rig = Rig::new(Reclaim::new(A, zones, true, Sectors(0), extents.clone()));
    rig.run();
    let expected = [
        ('z', 0, 8192, 8),
        ('r', 0, 4104, 16),
        ('w', 0, 8200, 16),
        ('z', 0, 8216, 40),
        ('r', 0, 4160, 8),
        ('w', 0, 8256, 8),
        ('f', 0, 0, 0),
    ];
    assert_eq!((rig.log(), rig.most), (expected.to_vec(), 1));
    let mut random = Rig::new(Reclaim::new(A, zones, false, Sectors(0), extents.clone()));
    random.run();
    assert_eq!((random.count('z'), random.count('w')), (0, 2));
    // Where the disk has no Write Zeroes, zeroes are written, at most 256 pages of them at a time.
    let far = vec![range(2056, 8)];
    let mut without = Reclaim::new(A, zones, true, Sectors(0), far);
    without.write_zeroes = false;
    let mut without = Rig::new(without);
    without.run();
    let expected =
        [('w', 0, 8192, 2048), ('w', 0, 10240, 8), ('r', 0, 6152, 8), ('w', 0, 10248, 8), ('f', 0, 0, 0)];
    assert_eq!((without.log(), without.most), (expected.to_vec(), 1));
    // A valid block behind the write pointer.
    let mut behind = Rig::new(Reclaim::new(A, zones, true, Sectors(9), extents));
    behind.run();
    assert!(behind.driven.user.has_failed() && behind.log().is_empty());
}

#[test]
fn reclaim_hurries_when_idle_or_nearly_full() {
    assert_eq!(
        [(true, 80), (false, 14), (false, 15), (false, 30)].map(|(i, f)| reclaim_throttle(i, f)),
        [100, 100, 75, 75]
    );
}
