//! What comes from outside, broken: bodies of the control API and files for `add`, metadata and redo logs. From good
//! ones, by changes that a seed draws, for FUZZ_SECONDS (2 by default). Nothing may panic, and what is accepted has to
//! make sense.

#![allow(clippy::unwrap_used)]

use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::{Commit, MapChange, RedoLog};
use emulation::{Bytes, Limits, Sectors, VolumeId};
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use ublk_server::config::{DiskConfig, PoolConfig};
use ublk_server::control::api::{CopyRequest, LimitsPatch, StatsRequest, ZoneRequest};
use ublk_server::control::fault_rules::{FaultSpec, PowerCutRequest};
use ublk_server::options::AddOptions;
use ublk_server::store::load;
use ublk_server::store::meta::{Meta, Place, VolumeRow};
use ublk_server::store::redo::{self, FileLog, Owner, Records};

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    /// Changes some bytes: flips, cuts, repeats, and pieces of others.
    fn change(&mut self, bytes: &mut Vec<u8>, others: &[&[u8]]) {
        const WORDS: [&[u8]; 8] =
            [b"0", b"-1", b"18446744073709551615", b"1e99", b"null", b"\"", b"[[", b"\xff\x00"];
        for _ in 0..[1, 1, 1, 2, 3][self.below(5)] {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(16)).min(bytes.len());
            match self.below(5) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                3 => {
                    let word = WORDS[self.below(WORDS.len())];
                    bytes.splice(at..end, word.iter().copied());
                }
                _ => {
                    let other = others[self.below(others.len())];
                    let from = self.below(other.len() + 1);
                    let to = (from + self.below(32)).min(other.len());
                    bytes.splice(at..end, other[from..to].iter().copied());
                }
            }
        }
    }
}

/// Calls `f` with numbers from 1 on until the time is over. Gives how often.
fn for_a_while(mut f: impl FnMut(u64)) -> u64 {
    let seconds = std::env::var("FUZZ_SECONDS").map_or(2, |text| text.parse().unwrap());
    let begun = Instant::now();
    let mut n = 0;
    while begun.elapsed() < Duration::from_secs(seconds) || n < 100 {
        n += 1;
        f(n);
    }
    n
}

const BODIES: [&[u8]; 9] = [
    br#"{"segments":[{"from":"a","source":0,"length":4096,"destination":"1M"},{"source":8192,"length":512,"destination":0}],"fua":true,"verify":false}"#,
    br#"{"copy":"memcpy","copy_max_bytes":"1M","copy_max_segment_bytes":4096,"copy_max_segments":4}"#,
    br#"{"action":"error:MEDIUM","op":"copy","range":"0+1M","nth":3,"count":1,"seed":7,"name":"N"}"#,
    br#"{"action":"stop-at:64K","ratio":"1/100"}"#,
    br#"{"keep":"all","force":true}"#,
    br#"{"action":"finish","offset":0,"count":2,"force":false}"#,
    br#"{"reset":true}"#,
    br#"{"name":"b","size":"64M","no_ublk":true,"logical_block_size":4096,"zones":{"size":"4M","max_open":3},"faults":[{"action":"hang"}]}"#,
    br#"{"id":3,"queues":2,"depth":64,"nvme":{"listen":"127.0.0.1:0","allow_hosts":["nqn.x"]}}"#,
];

#[test]
fn bodies_of_the_api() {
    let pool: PoolConfig = AddOptions::default().new_pool(Bytes::gib(1)).unwrap();
    let mut accepted = 0;
    let tried = for_a_while(|seed| {
        let mut random = Random(seed);
        let mut body = BODIES[random.below(BODIES.len())].to_vec();
        random.change(&mut body, &BODIES);
        let mut parsed = false;
        parsed |= serde_json::from_slice::<CopyRequest>(&body).is_ok();
        parsed |= serde_json::from_slice::<LimitsPatch>(&body).is_ok();
        parsed |= serde_json::from_slice::<StatsRequest>(&body).is_ok();
        parsed |= serde_json::from_slice::<PowerCutRequest>(&body).is_ok();
        parsed |= serde_json::from_slice::<ZoneRequest>(&body).is_ok();
        if let Ok(spec) = serde_json::from_slice::<FaultSpec>(&body) {
            let limits = Limits::new(Sectors(1 << 20), Sectors(8), Sectors(8));
            if let Ok(rule) = spec.checked("fault1", &limits) {
                rule.validate(&limits).unwrap();
                parsed = true;
            }
        }
        if let Ok(config) = serde_json::from_slice::<DiskConfig>(&body)
            && let Ok(limits) = config.limits(&pool, Bytes::gib(1))
        {
            limits.validate().unwrap();
            parsed = true;
        }
        accepted += u64::from(parsed);
    });
    println!("{tried} bodies, {accepted} of them accepted");
    assert!(accepted * 200 > tried, "{accepted} of {tried} accepted: nothing behind the parser is reached");
}

const FILES: [&[u8]; 3] = [
    b"type = \"ram\"\nsize = \"64M\"\nqueues = 2\ncopy = \"remap\"\nuser-recovery = \"queue\"\n[[fault]]\naction = \"hang\"\nop = \"copy\"\n",
    b"no-ublk = true\nname = \"a\"\nzoned = true\nzone-size = \"4M\"\nconventional-zones = 1\ncache = \"volatile\"\n",
    b"number = 3\nlogical-block-size = \"4K\"\nmap-block = 65536\nnvme-tcp = \"127.0.0.1:0\"\nallow-host = [\"nqn.x\"]\n",
];

#[test]
fn files_for_add() {
    let mut accepted = 0;
    let tried = for_a_while(|seed| {
        let mut random = Random(seed);
        let mut text = FILES[random.below(FILES.len())].to_vec();
        random.change(&mut text, &FILES);
        let Ok(text) = String::from_utf8(text) else { return };
        let Ok(options) = toml::from_str::<AddOptions>(&text) else { return };
        let (Ok(disk), Ok(pool)) = (options.disk(), options.new_pool(Bytes::gib(1))) else { return };
        if let Ok(limits) = disk.limits(&pool, Bytes::gib(1)) {
            limits.validate().unwrap();
            accepted += 1;
        }
    });
    println!("{tried} files, {accepted} of them accepted");
    assert!(accepted * 200 > tried, "{accepted} of {tried} accepted: nothing behind the parser is reached");
}

/// A place for files of a test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ublk-fuzz-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn open(&self, name: &str) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(self.0.join(name)).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn change(volume: VolumeId, start: u64, len: u64, physical: u64) -> MapChange {
    MapChange { volume, logical: start..start + len, physical: Some(physical) }
}

fn config() -> MappedConfig {
    MappedConfig {
        map_block: Sectors(8),
        cap: Sectors(1 << 20),
        physical: Sectors(1 << 20),
        cache: Cache::Volatile { held_max: Sectors(1 << 20) },
        trim: true,
    }
}

#[test]
fn metadata_of_a_pool() {
    let dir = Dir::new("meta");
    let owner = Owner::new("abc").unwrap();
    let meta = Meta::create(Place::File(dir.open("meta")), "abc", Bytes::kib(4)).unwrap();
    let row =
        VolumeRow { name: "a".into(), size: Bytes::gib(1), logical_block_size: Bytes(512), zones: None };
    let id = meta.add_volume(&row).unwrap();
    let changes = (0..300).map(|n| change(id, 2 * n, 1, n)).collect();
    meta.commit(&Commit { changes, sequence: 7, ..Commit::default() }).unwrap();
    drop(meta);
    let good = std::fs::read(dir.0.join("meta")).unwrap();
    let mut opened = 0;
    let tried = for_a_while(|seed| {
        let mut random = Random(seed);
        let mut bad = good.clone();
        // A part of a page, a whole one, or the end cut off.
        let page = random.below(bad.len() / 4096) * 4096;
        match random.below(4) {
            0 => bad.truncate(page + random.below(4096)),
            1 => bad[page..page + 4096].fill(random.below(256) as u8),
            2 => {
                let from = random.below(bad.len() / 4096) * 4096;
                bad.copy_within(from..from + 4096, page);
            }
            _ => {
                for _ in 0..1 + random.below(8) {
                    let at = page + random.below(4096);
                    bad[at] ^= 1 << random.below(8);
                }
            }
        }
        std::fs::write(dir.0.join("bad"), &bad).unwrap();
        let Ok(meta) = Meta::look(Place::File(dir.open("bad"))) else { return };
        let Ok(loaded) = load::load(&meta, &dir.0, &owner) else { return };
        // What opens holds what was committed, or contradicts itself.
        if let Ok(device) = Mapped::recover(config(), &loaded.image) {
            opened += 1;
            emulation::BlockDevice::check(&device).unwrap();
            assert_eq!(loaded.image.entries.len(), 300, "seed {seed}");
        }
    });
    println!("{tried} damaged databases, {opened} of them opened, with nothing missing");
}

#[test]
fn redo_logs() {
    let dir = Dir::new("redo");
    let owner = Owner::new("abc").unwrap();
    let path = dir.0.join("redo");
    let mut log = FileLog::create(&path, &owner, 0, &Records::default()).unwrap();
    let all: Vec<(u64, MapChange)> = (1..=40).map(|n| (n, change(VolumeId(1), 3 * n, 2, 5 * n))).collect();
    for (number, change) in &all {
        assert_eq!(log.append(change), *number);
    }
    drop(log);
    assert_eq!(redo::read(&path, &owner, 0).unwrap().unwrap().maps, all);
    use std::os::unix::fs::FileExt;
    let file = dir.open("redo");
    let mut good = vec![0; 8192];
    file.read_exact_at(&mut good, 0).unwrap();
    let mut cut = 0;
    let tried = for_a_while(|seed| {
        let mut random = Random(seed);
        let mut bad = good.clone();
        for _ in 0..1 + random.below(8) {
            let at = 4096 + random.below(4096);
            match random.below(3) {
                0 => bad[at] ^= 1 << random.below(8),
                1 => {
                    let from = 4096 + random.below(63) * 64;
                    bad.copy_within(from..from + 64, at - at % 64);
                }
                _ => {
                    let end = (at + 64).min(bad.len());
                    bad[at..end].fill(0);
                }
            }
        }
        file.write_all_at(&bad, 0).unwrap();
        let found = redo::read(&path, &owner, 0).unwrap().unwrap_or_default().maps;
        // What is read is what was written, up to the first record that is not.
        assert_eq!(found[..], all[..found.len()], "seed {seed}");
        cut += u64::from(found.len() < all.len());
    });
    println!("{tried} damaged logs, {cut} of them end early");
    assert!(cut * 2 > tried, "{cut} of {tried}");
}
