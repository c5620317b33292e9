//! Tests of the engine over real threads.

use super::*;
use emulation::emulated::Emulated;
use emulation::identity::Identity;
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::NoLog;
use emulation::{
    BlkStatus, BlockDevice, Bytes, CopyCommand, CopyMode, CopySegment, Limits, Sector, SectorRange, Sectors,
};
use std::time::Duration;

const VOLUME: VolumeId = VolumeId(0);
const CAPACITY: Sectors = Sectors(64 << 11);

fn limits(mode: CopyMode) -> Limits {
    let mut limits = Limits::new(CAPACITY, Sectors(1), Sectors(8));
    limits.copy_mode = mode;
    limits
}

fn engine(device: Box<dyn BlockDevice>, store: Store, mode: CopyMode) -> Arc<Engine> {
    let top = Box::new(Emulated::new(device));
    let engine = Engine::new(Pool::new(top, Box::new(NoLog::default())), store, None).unwrap();
    engine.control(Control::AddVolume(VOLUME, limits(mode)));
    engine
}

fn ram(mode: CopyMode) -> Arc<Engine> {
    let physical = Sectors(CAPACITY.0 * 2);
    let config =
        MappedConfig { map_block: Sectors(8), cap: CAPACITY, physical, cache: Cache::None, trim: true };
    engine(Box::new(Mapped::new(config)), Store::ram(physical).unwrap(), mode)
}

fn file(buffered: bool) -> Arc<Engine> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("ublk-engine-{}-{number}", std::process::id()));
    std::fs::File::create(&path).unwrap().set_len(CAPACITY.bytes().0).unwrap();
    let store = Store::file(&path, Bytes(512), buffered, false).unwrap();
    std::fs::remove_file(&path).unwrap();
    engine(Box::new(Identity::new(true)), store, CopyMode::Memcpy)
}

fn range(start: u64, len: u64) -> SectorRange {
    SectorRange::new(Sector(start), Sectors(len)).unwrap()
}

/// Small numbers that look random; the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next(256) as u8).collect()
    }
}

async fn call(engine: &Engine, op: Op, flags: Flags, data: Option<Vec<u8>>) -> CallResult {
    tokio::time::timeout(Duration::from_secs(60), engine.call(VOLUME, op, flags, data))
        .await
        .expect("an answer")
}

async fn done(engine: &Engine, op: Op, flags: Flags, data: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let result = call(engine, op.clone(), flags, data).await;
    assert_eq!(result.completion.status, BlkStatus::Ok, "{op:?}");
    result.data
}

fn copy(source: u64, len: u64, destination: u64) -> Op {
    let segment =
        CopySegment { source_volume: VOLUME, source: range(source, len), destination: Sector(destination) };
    Op::Copy(CopyCommand { segments: [segment].into_iter().collect() })
}

/// One client with a region of its own: random operations against a plain copy of what must be there.
async fn client(engine: Arc<Engine>, seed: u64, base: u64, sectors: u64, operations: u32) {
    let mut random = Random(seed * 2 + 1);
    let mut model = vec![0u8; sectors as usize * 512];
    for _ in 0..operations {
        let longest = if random.next(8) == 0 { 2048 } else { 40 };
        let len = 1 + random.next(longest);
        let start = random.next(sectors - len + 1);
        let bytes = start as usize * 512..(start + len) as usize * 512;
        let at = range(base + start, len);
        match random.next(10) {
            0..=3 => {
                let data = random.bytes(len as usize * 512);
                model[bytes].copy_from_slice(&data);
                let flags = if random.next(4) == 0 { Flags::FUA } else { Flags::NONE };
                done(&engine, Op::Write(at), flags, Some(data)).await;
            }
            4..=5 => {
                let data = done(&engine, Op::Read(at), Flags::NONE, None).await.unwrap();
                assert!(data == model[bytes], "seed {seed}: {at}");
            }
            6..=7 => {
                let to = random.next(sectors - len + 1);
                if to.abs_diff(start) >= len {
                    done(&engine, copy(base + start, len, base + to), Flags::NONE, None).await;
                    model.copy_within(bytes, to as usize * 512);
                }
            }
            8 => {
                let op = if random.next(2) == 0 { Op::Discard(at) } else { Op::WriteZeroes(at) };
                model[bytes].fill(0);
                let flags = if random.next(2) == 0 { Flags::NOUNMAP } else { Flags::NONE };
                done(&engine, op, flags, None).await;
            }
            _ => {
                done(&engine, Op::Flush, Flags::NONE, None).await;
            }
        }
    }
    for start in (0..sectors).step_by(2048) {
        let len = 2048.min(sectors - start);
        let data = done(&engine, Op::Read(range(base + start, len)), Flags::NONE, None).await.unwrap();
        assert!(data == model[start as usize * 512..(start + len) as usize * 512], "seed {seed}: {start}");
    }
}

/// Several clients at once, each on a region that shares map blocks with its neighbours'.
fn clients(engine: Arc<Engine>, operations: u32) {
    const CLIENTS: u64 = 6;
    let sectors = CAPACITY.0 / CLIENTS;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| tokio::spawn(client(Arc::clone(&engine), n + 1, n * sectors, sectors, operations)))
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
    engine.with_pool(|pool| pool.check()).unwrap();
    engine.shutdown();
}

#[test]
fn ram_keeps_what_clients_do() {
    for mode in [CopyMode::Remap, CopyMode::Memcpy, CopyMode::Emulate] {
        clients(ram(mode), 400);
    }
}

#[test]
fn a_file_keeps_what_clients_do() {
    for buffered in [true, false] {
        clients(file(buffered), 150);
    }
}

fn block_on<R>(future: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let engine = ram(CopyMode::Remap);
    block_on(async {
        for (op, data) in [
            (Op::Write(range(0, 8)), None),
            (Op::Write(range(0, 8)), Some(vec![0; 4095])),
            (Op::Write(range(0, 8)), Some(vec![0; 8192])),
            (Op::Read(range(0, 8)), Some(vec![0; 4096])),
            (Op::Flush, Some(Vec::new())),
            (Op::Read(range(0, 1 << 40)), None),
            (Op::Read(range(0, 0)), None),
        ] {
            let result = call(&engine, op.clone(), Flags::NONE, data).await;
            assert!(!result.completion.status.is_ok(), "{op:?}");
            assert_eq!(result.completion.bytes, Bytes(0));
        }
    });
    assert_eq!(engine.with_pool(|pool| pool.usage().mapped), Sectors(0));
    engine.shutdown();
}

#[test]
fn a_copy_can_be_ended_from_outside() {
    let engine = ram(CopyMode::Memcpy);
    block_on(async {
        for start in (0..32 << 10).step_by(2048) {
            done(&engine, Op::Write(range(start, 2048)), Flags::NONE, Some(vec![1; 1 << 20])).await;
        }
        // Sixteen links, each of which takes longer than a message.
        let mut ended = 0;
        for _ in 0..50 {
            let handle = engine.begin_call(VOLUME, copy(0, 32 << 10, 64 << 10), Flags::NONE, None);
            engine.abort(handle.id());
            let result =
                tokio::time::timeout(Duration::from_secs(60), handle.result()).await.expect("an answer");
            match result.completion.status {
                BlkStatus::Ok => assert_eq!(result.completion.bytes, Bytes::mib(16)),
                BlkStatus::Aborted => {
                    ended += 1;
                    assert!(result.completion.bytes < Bytes::mib(16));
                    assert_eq!(result.completion.first_failed_segment, Some(0));
                }
                status => panic!("{status:?}"),
            }
        }
        assert!(ended > 0, "no copy was ended before its last link");
        // One that has ended is nobody's business.
        let handle = engine.begin_call(VOLUME, Op::Flush, Flags::NONE, None);
        let id = handle.id();
        handle.result().await;
        engine.abort(id);
        done(&engine, Op::Flush, Flags::NONE, None).await;
    });
    engine.shutdown();
}

#[test]
fn a_removed_volume_answers_and_refuses() {
    let engine = ram(CopyMode::Memcpy);
    block_on(async {
        let handles: Vec<_> = (0..20)
            .map(|n| engine.begin_call(VOLUME, copy(n * 8, 32 << 10, 64 << 10), Flags::NONE, None))
            .collect();
        engine.control(Control::RemoveVolume(VOLUME));
        for handle in handles {
            tokio::time::timeout(Duration::from_secs(60), handle.result()).await.expect("an answer");
        }
        let result = call(&engine, Op::Read(range(0, 8)), Flags::NONE, None).await;
        assert_eq!(result.completion.status, BlkStatus::NoVolume);
    });
    engine.shutdown();
}

#[test]
fn null_gives_zeroes_to_memory() {
    let engine = engine(Box::new(Identity::new(false)), Store::Null, CopyMode::Memcpy);
    block_on(async {
        done(&engine, Op::Write(range(0, 8)), Flags::NONE, Some(vec![1; 4096])).await;
        let data = done(&engine, Op::Read(range(0, 8)), Flags::NONE, None).await;
        assert_eq!(data, Some(vec![0; 4096]));
    });
    engine.shutdown();
}
