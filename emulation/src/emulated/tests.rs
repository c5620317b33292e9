use super::*;
use crate::device::Step;
use crate::mapped::{Cache, Mapped, MappedConfig};
use crate::pool::Pool;
use crate::redo::NoLog;
use crate::request::CopySegment;
use crate::units::{Bytes, Sector};

const V: VolumeId = VolumeId(0);
const MIB: u64 = 2048;

fn pool() -> Pool {
    let config = MappedConfig {
        map_block: Sectors(8),
        cap: Sectors(64 * MIB),
        physical: Sectors(128 * MIB),
        cache: Cache::None,
        trim: true,
    };
    let device = Emulated::new(Box::new(Mapped::new(config)));
    let mut pool = Pool::new(Box::new(device), Box::new(NoLog::default()));
    let mut limits = Limits::new(Sectors(64 * MIB), Sectors(1), Sectors(8));
    limits.copy_mode = CopyMode::Emulate;
    pool.control(Instant::ORIGIN, Control::AddVolume(V, limits));
    pool
}

fn copy(segments: &[(u64, u64, u64)]) -> Request {
    let segments = segments
        .iter()
        .map(|&(source, len, to)| CopySegment {
            source_volume: V,
            source: SectorRange { start: Sector(source), len: Sectors(len) },
            destination: Sector(to),
        })
        .collect();
    Request { id: RequestId(1), volume: V, op: Op::Copy(CopyCommand { segments }), flags: Flags::NONE }
}

/// Takes the copy's next answer, which must be the only one.
fn only(out: Out) -> Next {
    let mut out = out.into_iter();
    let (id, next) = out.next().expect("an answer");
    assert_eq!(id, RequestId(1));
    assert!(out.next().is_none());
    next
}

#[test]
fn an_emulated_copy_is_inner_reads_and_writes() {
    let mut pool = pool();
    // 300 KiB: two whole buffers and a rest, then a second segment.
    let mut next = only(pool.begin(Instant::ORIGIN, copy(&[(0, 600, 20_000), (4096, 8, 30_000)])));
    let mut seen = Vec::new();
    let completion = loop {
        match next {
            Next::Done(completion) => break completion,
            Next::Wait => panic!("nobody else is there"),
            Next::Run(plan) => {
                assert_eq!(plan.port, PortKind::Bounce);
                for step in &plan.steps {
                    match step {
                        Step::ReadZeroes { len, .. } => seen.push(('r', len.0)),
                        Step::Write { to, .. } => seen.push(('w', to.len.0)),
                        Step::Read { .. }
                        | Step::ReadFlipped { .. }
                        | Step::Move { .. }
                        | Step::Zero { .. }
                        | Step::Trim { .. }
                        | Step::Sync
                        | Step::Commit(_) => {
                            panic!("{step:?}")
                        }
                    }
                }
                let io = IoResult::done(&plan);
                next = only(pool.finish(Instant::ORIGIN, plan, io));
            }
        }
    };
    assert_eq!(completion, Completion::ok(Bytes(608 * 512)));
    let link = |len| [('r', len), ('w', len)];
    assert_eq!(seen, [link(256), link(256), link(88), link(8)].concat());
    let ledger = pool.ledger(V);
    assert_eq!((ledger.bounced, ledger.inside_read), (Bytes(608 * 512), Bytes(608 * 512)));
    assert_eq!((ledger.door_read, ledger.door_written), (Bytes(0), Bytes(0)));
}

#[test]
fn a_failed_inner_request_ends_the_copy_with_its_prefix() {
    let mut pool = pool();
    let mut next = only(pool.begin(Instant::ORIGIN, copy(&[(0, 8, 20_000), (4096, 600, 30_000)])));
    for _ in 0..5 {
        let Next::Run(plan) = next else { panic!("{next:?}") };
        let io = IoResult::done(&plan);
        next = only(pool.finish(Instant::ORIGIN, plan, io));
    }
    let Next::Run(plan) = next else { panic!("{next:?}") };
    next = only(pool.finish(Instant::ORIGIN, plan, IoResult::failed(BlkStatus::Medium, 0)));
    let Next::Done(completion) = next else { panic!("{next:?}") };
    assert_eq!(completion.status, BlkStatus::Medium);
    assert_eq!((completion.bytes, completion.first_failed_segment), (Bytes((8 + 256) * 512), Some(1)));
}

#[test]
fn an_abort_ends_it_before_its_next_link() {
    let mut pool = pool();
    let next = only(pool.begin(Instant::ORIGIN, copy(&[(0, 600, 20_000)])));
    let Next::Run(plan) = next else { panic!("{next:?}") };
    assert!(pool.abort(Instant::ORIGIN, RequestId(1)).is_empty());
    let io = IoResult::done(&plan);
    let next = only(pool.finish(Instant::ORIGIN, plan, io));
    let Next::Done(completion) = next else { panic!("{next:?}") };
    assert_eq!((completion.status, completion.bytes), (BlkStatus::Aborted, Bytes(0)));
}
