//! Disks that outlive their server: killed at any moment, opened or recovered again, with everything there that
//! was acknowledged. And files that are none, which are refused.

#![allow(clippy::unwrap_used)]

mod common;

use common::Env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use ublk_server::control::client::Client;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 4096;
const WRITERS: u64 = 3;

/// What a block holds that a write with this version filled; version 0: zeroes.
fn filled(block: u64, version: u64) -> Vec<u8> {
    let word = |at: u64| if version == 0 { 0 } else { block << 40 ^ version << 12 ^ at };
    (0..BLOCK / 8).flat_map(|at| word(at).to_le_bytes()).collect()
}

/// What the acknowledgements of one writer say of its blocks.
struct Writer {
    number: u64,
    versions: u64,
    seed: u64,
    /// By block: what was acknowledged last.
    acknowledged: Vec<Vec<u8>>,
    /// What was sent and not answered.
    pending: Option<(u64, Vec<u8>)>,
    acknowledgements: u64,
}

impl Writer {
    fn new(number: u64) -> Self {
        let acknowledged = (0..BLOCKS / WRITERS).map(|_| filled(0, 0)).collect();
        Self { number, versions: 0, seed: number + 1, acknowledged, pending: None, acknowledgements: 0 }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.seed >> 33) % below
    }

    /// The place of a block of this writer on the disk.
    fn offset(&self, block: u64) -> u64 {
        (block * WRITERS + self.number) * BLOCK
    }

    /// Changes blocks until the server is gone.
    fn run(&mut self, client: &Client, gone: &AtomicBool, acknowledged: &AtomicU64) {
        while !gone.load(Ordering::Relaxed) {
            let block = self.draw(BLOCKS / WRITERS);
            let at = self.offset(block);
            let (contents, done) = match self.draw(8) {
                0 => {
                    let path = format!("/v1/disks/a/data?offset={at}&length={BLOCK}");
                    self.pending = Some((block, filled(0, 0)));
                    (filled(0, 0), client.exchange("DELETE", &path, b"").is_ok())
                }
                // Copies of one block, which is never the one beside it.
                1 => {
                    let from = (block + 1 + self.draw(100)) % (BLOCKS / WRITERS);
                    let contents = self.acknowledged[from as usize].clone();
                    self.pending = Some((block, contents.clone()));
                    let done = from != block && copy(client, self.offset(from), at);
                    if from == block {
                        self.pending = None;
                        continue;
                    }
                    (contents, done)
                }
                kind => {
                    self.versions += 1;
                    let contents = filled(at, self.versions);
                    self.pending = Some((block, contents.clone()));
                    let path = format!("/v1/disks/a/data?offset={at}&fua={}", kind == 2);
                    let done = client.exchange("PUT", &path, &contents).is_ok();
                    (contents, done)
                }
            };
            if !done {
                return;
            }
            self.pending = None;
            self.acknowledged[block as usize] = contents;
            self.acknowledgements += 1;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Compares with what the disk holds, and goes on from there.
    fn verify(&mut self, disk: &[u8]) -> Result<(), String> {
        for block in 0..BLOCKS / WRITERS {
            let at = self.offset(block) as usize;
            let holds = &disk[at..at + BLOCK as usize];
            let pending = self.pending.as_ref().filter(|(of, _)| *of == block);
            if pending.is_some_and(|(_, contents)| contents == holds) {
                self.acknowledged[block as usize] = holds.to_vec();
            } else if self.acknowledged[block as usize] != holds {
                let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
                let (has, had) = (word(holds), word(&self.acknowledged[block as usize]));
                return Err(format!(
                    "block {block} of writer {} begins with {has:#x}, not {had:#x}",
                    self.number
                ));
            }
        }
        self.pending = None;
        Ok(())
    }
}

fn copy(client: &Client, from: u64, to: u64) -> bool {
    let body = format!("{{\"segments\":[{{\"source\":{from},\"length\":{BLOCK},\"destination\":{to}}}]}}");
    let Ok(answer) = client.exchange("POST", "/v1/disks/a/copies", body.as_bytes()) else { return false };
    let mut job: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    while job["state"] != "done" {
        assert!(job["state"] != "failed", "{job}");
        let path = format!("/v1/disks/a/copies/{}", job["id"]);
        let Ok(answer) = client.exchange("GET", &path, b"") else { return false };
        job = serde_json::from_slice(&answer).unwrap();
    }
    true
}

fn read_all(client: &Client) -> Vec<u8> {
    let mut disk = Vec::new();
    for at in (0..BLOCKS * BLOCK).step_by(1 << 20) {
        disk.extend(
            client.exchange("GET", &format!("/v1/disks/a/data?offset={at}&length=1048576"), b"").unwrap(),
        );
    }
    disk
}

/// Kills the server again and again while it is written to; `again` makes it serve again.
fn killed_in_a_loop(env: &Env, rounds: u64, again: impl Fn()) {
    let mut writers: Vec<Writer> = (0..WRITERS).map(Writer::new).collect();
    let mut last = 0;
    for round in 0..rounds {
        let (gone, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let (client, gone, acknowledged) =
                    (env.client("a"), Arc::clone(&gone), Arc::clone(&acknowledged));
                scope.spawn(move || writer.run(&client, &gone, &acknowledged));
            }
            common::until("some acknowledgements", || acknowledged.load(Ordering::Relaxed) > 40 + 13 * round);
            env.kill_server("a");
            gone.store(true, Ordering::Relaxed);
        });
        again();
        let disk = read_all(&env.client("a"));
        for writer in &mut writers {
            writer.verify(&disk).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        last = writers.iter().map(|writer| writer.acknowledgements).sum();
    }
    println!("{last} acknowledgements in {rounds} rounds");
}

fn file(env: &Env) -> PathBuf {
    env.dir.join("disk")
}

/// `ublk add` of a disk named `a` in a file.
fn add(env: &Env, path: &Path, more: &[&str]) -> common::Output {
    let mut args = vec!["add", "-t", "file", "-f", path.to_str().unwrap(), "--no-ublk", "--pool", "a"];
    args.extend(more);
    env.ublk(&args)
}

fn added(env: &Env, path: &Path, more: &[&str]) {
    let output = add(env, path, more);
    assert_eq!(output.code, 0, "{output:?}");
}

/// The directory of the pool in shared memory.
fn shared(path: &Path) -> PathBuf {
    let bytes = std::fs::read(path).unwrap();
    ublk_server::store::shared::path(std::str::from_utf8(&bytes[24..56]).unwrap())
}

#[test]
fn every_acknowledged_block_of_a_file_is_there_after_the_server_is_killed() {
    let env = Env::new();
    let path = file(&env);
    added(&env, &path, &["--name", "a", "--size", "16M"]);
    killed_in_a_loop(&env, 6, || added(&env, &path, &["--name", "a"]));
    let check = env.ublk(&["check", path.to_str().unwrap()]);
    assert!(check.stderr.contains("in use by another server"), "{check:?}");
    env.ok(&["del", "-n", "a"]);
    assert!(env.ok(&["check", path.to_str().unwrap()]).contains("closed"), "it was closed well");
    assert!(!shared(&path).exists());
}

#[test]
fn every_acknowledged_block_in_memory_is_there_after_recovery() {
    let env = Env::new();
    env.disk("a", &["--size", "16M", "--user-recovery=reissue"]);
    env.ok(&["add", "--no-ublk", "--name", "b", "--pool", "a", "--size", "1M"]);
    env.client("a").exchange("PUT", "/v1/disks/b/data?offset=4096", &[7; 4096]).unwrap();
    env.ok(&["set", "-n", "b", "copy-max-segments=3"]);
    killed_in_a_loop(&env, 4, || assert_eq!(env.ok(&["recover", "-n", "a"]), "a\n"));
    let other = env.client("a").exchange("GET", "/v1/disks/b/data?offset=0&length=8192", b"").unwrap();
    assert_eq!(other, [[0; 4096], [7; 4096]].concat(), "the whole pool is back");
    assert!(env.ok(&["info", "-n", "b"]).contains("copy-max-segments       3"), "and its limits");
    let alive = env.ublk(&["recover", "-n", "a"]);
    assert!(alive.code == 1 && alive.stderr.contains("is alive"), "{alive:?}");

    env.kill_server("a");
    assert!(env.ok(&["list"]).contains("disk a: no block device pool a"));
    let taken = env.ublk(&["add", "--no-ublk", "--pool", "a", "--name", "a"]);
    assert!(
        taken.code == 1 && taken.stderr.contains("in use"),
        "what can be recovered is not replaced: {taken:?}"
    );
    let identifier = env.state().pool("a").unwrap().unwrap().pool.identifier;
    let memory = ublk_server::store::shared::path(&identifier);
    assert!(memory.join("data").exists());
    env.ok(&["del", "-n", "a"]);
    env.ok(&["del", "-n", "b"]);
    assert!(!memory.exists(), "del takes the memory of a dead server away");
    env.disk("c", &[]);
    env.kill_server("c");
    let refused = env.ublk(&["recover", "-n", "c"]);
    assert!(refused.code == 1 && refused.stderr.contains("not made with --user-recovery"), "{refused:?}");
    assert_eq!(env.ublk(&["recover", "-n", "nobody"]).code, 1);
}

#[test]
fn without_the_redo_log_what_was_not_flushed_is_gone_and_what_was_is_there() {
    let env = Env::new();
    let path = file(&env);
    added(&env, &path, &["--name", "a", "--size", "16M"]);
    let client = env.client("a");
    client.exchange("PUT", "/v1/disks/a/data?offset=0&fua=true", &[1; 8192]).unwrap();
    client.exchange("PUT", "/v1/disks/a/data?offset=4096", &[2; 8192]).unwrap();
    env.kill_server("a");
    let text = env.ok(&["check", path.to_str().unwrap()]);
    assert!(text.contains("its server died; 1 changes are in the redo log"), "{text}");
    std::fs::remove_dir_all(shared(&path)).unwrap();
    assert!(env.ok(&["check", path.to_str().unwrap()]).contains("the redo log is gone"));
    added(&env, &path, &["--name", "a"]);
    let read = env.client("a").exchange("GET", "/v1/disks/a/data?offset=0&length=16384", b"").unwrap();
    assert_eq!(read, [vec![1; 8192], vec![0; 8192]].concat());
    env.ok(&["del", "-n", "a"]);
}

#[test]
fn with_cache_none_every_acknowledgement_is_durable() {
    let env = Env::new();
    let path = file(&env);
    added(&env, &path, &["--name", "a", "--size", "16M", "--cache", "none"]);
    env.client("a").exchange("PUT", "/v1/disks/a/data?offset=0", &[1; 8192]).unwrap();
    env.kill_server("a");
    std::fs::remove_dir_all(shared(&path)).unwrap();
    added(&env, &path, &["--name", "a"]);
    let read = env.client("a").exchange("GET", "/v1/disks/a/data?offset=0&length=8192", b"").unwrap();
    assert_eq!(read, [1; 8192]);
    env.ok(&["del", "-n", "a"]);
}

#[test]
fn a_file_has_its_geometry_and_several_volumes() {
    let env = Env::new();
    let path = file(&env);
    added(
        &env,
        &path,
        &["--size", "64M", "--logical-block-size", "4096", "--map-block", "8K", "--name", "a"],
    );
    added(&env, &path, &["--size", "32M", "--name", "b"]);
    let client = env.client("a");
    client.exchange("PUT", "/v1/disks/a/data?offset=8192", &[5; 8192]).unwrap();
    env.ok(&["copy", "-n", "b", "--from", "a", "8192+8192", "65536", "--fast-only"]);
    env.ok(&["del", "-n", "b"]);
    let again = add(&env, &path, &["--name", "a"]);
    assert!(again.code == 1 && again.stderr.contains("in use"), "{again:?}");
    env.ok(&["del", "-n", "a"]);

    for (more, says) in [
        (&["--name", "a", "--size", "32M"][..], "size 32 MiB: volume \"a\" has 64 MiB"),
        (&["--name", "a", "--logical-block-size", "512"], "has 4 KiB"),
        (&["--name", "a", "--map-block", "4K"], "map-block 4 KiB"),
        (&[], "several volumes: a, b"),
    ] {
        let refused = add(&env, &path, more);
        assert!(refused.code != 0 && refused.stderr.contains(says), "{more:?}: {refused:?}");
        assert_eq!(env.ok(&["list"]), "");
        assert!(!shared(&path).exists(), "{more:?}: what was refused leaves a file that was closed");
    }
    added(&env, &path, &["--name", "b"]);
    let read = env.client("a").exchange("GET", "/v1/disks/b/data?offset=65536&length=8192", b"").unwrap();
    assert_eq!(read, [5; 8192]);
    let info = env.ok(&["info", "-n", "b", "--json"]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!((&info["size"], &info["logical_block_size"]), (&(32 << 20).into(), &4096.into()));
    env.ok(&["del", "-n", "b"]);
    let check = env.ok(&["check", path.to_str().unwrap(), "--json"]);
    let check: serde_json::Value = serde_json::from_str(&check).unwrap();
    assert_eq!((&check["mapped_bytes"], &check["volumes"][1]["name"]), (&8192.into(), &"b".into()));
}

#[test]
fn torn_and_foreign_files_are_refused_and_stay_as_they_are() {
    let env = Env::new();
    let path = file(&env);
    added(&env, &path, &["--name", "a", "--size", "16M"]);
    env.client("a").exchange("PUT", "/v1/disks/a/data?offset=0", &[3; 1 << 20]).unwrap();
    env.ok(&["del", "-n", "a"]);
    let beside = PathBuf::from(format!("{}.meta", path.display()));
    let (data, meta) = (std::fs::read(&path).unwrap(), std::fs::read(&beside).unwrap());
    let mut torn = data.clone();
    torn[57] ^= 1;
    let mut bad_meta = meta.clone();
    for page in bad_meta.chunks_mut(4096) {
        page[100] ^= 0xff;
    }
    let other = env.dir.join("other");
    added(&env, &other, &["--name", "a", "--size", "16M"]);
    env.ok(&["del", "-n", "a"]);
    let other_meta = std::fs::read(format!("{}.meta", other.display())).unwrap();

    for (what, data, meta, says) in [
        ("a torn header", torn, Some(meta.clone()), "damaged"),
        ("something else", b"#!/bin/sh\n".repeat(10_000), Some(meta.clone()), "something else"),
        ("short and something else", b"x".to_vec(), Some(meta.clone()), "something else"),
        ("zeroes of somebody", vec![0; 1 << 20], None, "something else"),
        ("cut off", data[..200_000].to_vec(), Some(meta.clone()), "cut off"),
        ("damaged metadata", data.clone(), Some(bad_meta), "damaged"),
        ("foreign metadata", data.clone(), Some(b"foreign".to_vec()), "damaged"),
        ("metadata of another pool", data.clone(), Some(other_meta), "different pools"),
        ("no metadata", data.clone(), None, "No such file"),
        ("new with old metadata", Vec::new(), Some(meta), "is there already"),
    ] {
        std::fs::write(&path, &data).unwrap();
        match &meta {
            Some(meta) => std::fs::write(&beside, meta).unwrap(),
            None => std::fs::remove_file(&beside).unwrap(),
        }
        let refused = add(&env, &path, &["--name", "a"]);
        assert!(refused.code == 1 && refused.stderr.contains(says), "{what}: {refused:?}");
        assert!(std::fs::read(&path).unwrap() == data, "{what}: the file has changed");
        assert!(std::fs::read(&beside).ok() == meta, "{what}: the metadata has changed");
        let checked = env.ublk(&["check", path.to_str().unwrap()]);
        assert_eq!(checked.code, 1, "{what}: {checked:?}");
        assert_eq!(env.ok(&["list"]), "");
    }
    for (path, says) in [("/dev/null", "neither"), ("/does/not/exist", "No such file")] {
        let refused = add(&env, Path::new(path), &["--name", "a"]);
        assert!(refused.code != 0 && refused.stderr.contains(says), "{path}: {refused:?}");
        assert_ne!(env.ublk(&["check", path]).code, 0, "{path}");
    }
}

#[test]
fn an_image_goes_in_and_comes_out() {
    let env = Env::new();
    let (path, image, back) = (file(&env), env.dir.join("image"), env.dir.join("back"));
    let text = |path: &Path| path.to_str().unwrap().to_string();
    let mut bytes = vec![0; 5 << 20];
    for at in (0..bytes.len()).step_by(777_777) {
        bytes[at] = 1 + (at % 251) as u8;
    }
    std::fs::write(&image, &bytes).unwrap();
    assert!(env.ok(&["import", &text(&image), &text(&path), "--name", "a"]).contains("5 MiB imported"));
    let twice = env.ublk(&["import", &text(&image), &text(&path), "--name", "a"]);
    assert!(twice.code == 1 && twice.stderr.contains("has volume \"a\""), "{twice:?}");
    added(&env, &path, &["--name", "a"]);
    let read = env.client("a").exchange("GET", "/v1/disks/a/data?offset=0&length=1048576", b"").unwrap();
    assert!(read == bytes[..1 << 20]);
    env.client("a").exchange("PUT", "/v1/disks/a/data?offset=4096", &[9; 512]).unwrap();
    bytes[4096..4608].fill(9);
    env.kill_server("a");
    env.ok(&["export", &text(&path), &text(&back)]);
    assert!(std::fs::read(&back).unwrap() == bytes, "what the redo log has is in it");
    assert_ne!(env.ublk(&["export", &text(&path), &text(&back)]).code, 0, "nothing is overwritten");
    assert_ne!(env.ublk(&["export", &text(&env.dir.join("no")), &text(&back)]).code, 0);
    std::fs::write(&image, [1; 1000]).unwrap();
    assert_ne!(env.ublk(&["import", &text(&image), &text(&path), "--name", "b"]).code, 0);
    env.ok(&["del", "-n", "a"]);
}

#[test]
fn a_discard_punches_a_hole() {
    use std::os::unix::fs::MetadataExt;
    let env = Env::new();
    let path = file(&env);
    added(&env, &path, &["--name", "a", "--size", "64M"]);
    let client = env.client("a");
    for at in 0..16 {
        client.exchange("PUT", &format!("/v1/disks/a/data?offset={}", at << 20), &[1; 1 << 20]).unwrap();
    }
    client.exchange("PUT", "/v1/disks/a/data?offset=16777216&fua=true", &[1; 4096]).unwrap();
    let used = || std::fs::metadata(&path).unwrap().blocks() * 512;
    assert!(used() >= 16 << 20, "{}", used());
    client.exchange("DELETE", "/v1/disks/a/data?offset=0&length=16777216", b"").unwrap();
    client.exchange("PUT", "/v1/disks/a/data?offset=16777216&fua=true", &[2; 4096]).unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while used() > 4 << 20 {
        assert!(std::time::Instant::now() < end, "{} bytes are in use", used());
        std::thread::sleep(Duration::from_millis(10));
    }
    env.ok(&["del", "-n", "a"]);
}
