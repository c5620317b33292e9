//! Copies through the control API, their bytes read back, against a model that is an array of bytes.

#![allow(clippy::unwrap_used)]

mod common;

use common::Env;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use ublk_server::control::client::{Client, ClientError};

const MIB: usize = 1 << 20;

fn write(client: &Client, disk: &str, offset: usize, data: &[u8]) {
    for (index, piece) in data.chunks(MIB).enumerate() {
        let path = format!("/v1/disks/{disk}/data?offset={}", offset + index * MIB);
        client.exchange("PUT", &path, piece).unwrap();
    }
}

fn read(client: &Client, disk: &str, offset: usize, length: usize) -> Vec<u8> {
    let mut data = Vec::new();
    while data.len() < length {
        let piece = MIB.min(length - data.len());
        let path = format!("/v1/disks/{disk}/data?offset={}&length={piece}", offset + data.len());
        data.extend(client.exchange("GET", &path, b"").unwrap());
    }
    data
}

/// Copies and waits for the end.
fn copy(client: &Client, disk: &str, request: &Value) -> Result<Value, ClientError> {
    let mut job: Value = client.send("POST", &format!("/v1/disks/{disk}/copies"), request)?;
    let end = Instant::now() + Duration::from_secs(60);
    while !matches!(job["state"].as_str(), Some("done" | "failed" | "cancelled")) {
        assert!(Instant::now() < end, "{job}");
        job = client.call("GET", &format!("/v1/disks/{disk}/copies/{}", job["id"]))?;
    }
    Ok(job)
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..length / 8).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// xorshift64*: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[test]
fn every_mode_copies_the_bytes_and_says_how() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    let client = env.client("a");
    let data = pattern(4 * MIB, 1);
    write(&client, "a", 0, &data);
    for (mode, counter, to) in [
        ("remap", "remapped_bytes", 8 * MIB),
        ("memcpy", "moved_mode_bytes", 16 * MIB),
        ("emulate", "bounced_bytes", 24 * MIB),
    ] {
        env.ok(&["set", "-n", "a", &format!("copy={mode}")]);
        let out = env.ok(&["copy", "-n", "a", "0+4M", &to.to_string(), "--verify"]);
        assert!(out.starts_with("copied 4194304 of 4194304 bytes in 1 of 1 commands, compared\n"), "{out}");
        let jobs: Value = client.call("GET", "/v1/disks/a/copies").unwrap();
        let job = jobs.as_array().unwrap().last().unwrap();
        assert_eq!(job["ledger"]["counters"][counter], 4 * MIB, "{mode}: {job}");
        assert_eq!(job["ledger"]["counters"]["door_read_bytes"], 0, "{mode}: the link carries no data");
        assert_eq!(read(&client, "a", to, 4 * MIB), data, "{mode}");
    }
    let usage: Value = client.call("GET", "/v1/pool").unwrap();
    assert_eq!(usage["usage"]["mapped_bytes"], 12 * MIB, "the remapped copy takes no space: {usage}");
}

#[test]
fn the_file_system_copies_where_it_is_left_to_it() {
    let env = Env::new();
    let path = env.dir.join("image");
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let data = pattern(4 * MIB, 4);
    for (kind, file) in [("file", "volume"), ("loop", "image")] {
        let path = env.dir.join(file);
        let file = path.to_str().unwrap();
        env.ok(&["add", "--no-ublk", "--name", "a", "--pool", "a", "-t", kind, "-f", file, "--size", "64M"]);
        env.ok(&["set", "-n", "a", "copy=memcpy"]);
        let client = env.client("a");
        write(&client, "a", 0, &data);
        for (backend, to) in [("cfr", 8 * MIB), ("rw", 16 * MIB)] {
            env.ok(&["set", "-n", "a", &format!("copy-backend={backend}")]);
            env.ok(&["stats", "-n", "a", "--reset"]);
            env.ok(&["copy", "-n", "a", "0+4M", &to.to_string()]);
            let stats: Value = serde_json::from_str(&env.ok(&["stats", "-n", "a", "--json"])).unwrap();
            let count = |name: &str| stats["counters"][name].as_u64().unwrap();
            let by_file = if backend == "cfr" { 4 * MIB as u64 } else { 0 };
            assert_eq!(
                (count("moved_cfr_bytes"), count("moved_mode_bytes"), count("inside_read_bytes")),
                (by_file, 4 * MIB as u64 - by_file, 4 * MIB as u64 - by_file),
                "{kind}, {backend}: {stats}"
            );
            assert_eq!(count("copied_bytes"), 4 * MIB as u64);
            assert_eq!(read(&client, "a", to, 4 * MIB), data, "{kind}, {backend}");
        }
        env.ok(&["del", "-n", "a"]);
    }
    let refused = env.ublk(&["add", "--no-ublk", "--copy-backend", "cfr"]);
    assert!(refused.code == 2 && refused.stderr.contains("copy-backend cfr"), "{refused:?}");
}

#[test]
fn limits_that_are_lowered_while_a_copy_runs_cut_it_again() {
    let env = Env::new();
    env.disk("a", &["--size", "256M", "--copy", "memcpy"]);
    let client = env.client("a");
    let data = pattern(32 * MIB, 3);
    write(&client, "a", 0, &data);
    let limit = |max: &str| env.ok(&["set", "-n", "a", &format!("copy-max-bytes={max}")]);
    let request =
        |destination| json!({"segments": [{"source": 0, "length": "32M", "destination": destination}]});
    // Whether commands were begun under the old limits or not is a race, so it is run until some were not.
    for _ in 0..50 {
        limit("1M");
        let mut job: Value = client.send("POST", "/v1/disks/a/copies", &request("64M")).unwrap();
        limit("64K");
        let end = Instant::now() + Duration::from_secs(60);
        while !matches!(job["state"].as_str(), Some("done" | "failed")) {
            assert!(Instant::now() < end, "{job}");
            job = client.call("GET", &format!("/v1/disks/a/copies/{}", job["id"])).unwrap();
        }
        assert_eq!((&job["state"], &job["bytes"]), (&"done".into(), &(32 * MIB).into()), "{job}");
        assert_eq!(job["commands"], job["commands_done"]);
        assert_eq!(read(&client, "a", 64 * MIB, 32 * MIB), data);
        if (33..512).contains(&job["commands"].as_u64().unwrap()) {
            return;
        }
    }
    panic!("no copy was overtaken by its limits");
}

#[test]
fn a_copy_between_two_disks_of_a_pool() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    env.ok(&["add", "--no-ublk", "--name", "b", "--pool", "a", "--size", "32M"]);
    let client = env.client("a");
    let data = pattern(2 * MIB, 2);
    write(&client, "a", MIB, &data);
    let out = env.ok(&["copy", "-n", "b", "--from", "a", "1M+2M", "4M", "--verify"]);
    assert!(out.contains("remapped 2 MiB"), "{out}");
    assert_eq!(read(&client, "b", 4 * MIB, 2 * MIB), data);
    // What is written to the source afterwards is not seen in the copy.
    write(&client, "a", MIB, &[0; 4096]);
    assert_eq!(read(&client, "b", 4 * MIB, 2 * MIB), data);
    env.ok(&["del", "-n", "a"]);
    assert_eq!(read(&client, "b", 4 * MIB, 2 * MIB), data, "nor does the copy end with its source");
}

#[test]
fn a_copy_between_pools_is_refused() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    env.disk("b", &["--size", "64M"]);
    let output = env.ublk(&["copy", "-n", "b", "--from", "a", "0+4K", "0"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("in pool a, not in b"), "{output:?}");
}

#[test]
fn a_copy_is_split_to_the_limits_and_counts_its_commands() {
    let env = Env::new();
    env.disk("a", &["--size", "64M", "--copy-max-bytes", "1M", "--copy-max-segment-bytes", "64K"]);
    let client = env.client("a");
    let data = pattern(3 * MIB, 3);
    write(&client, "a", 0, &data);
    let out = env.ok(&["copy", "-n", "a", "0+3M", "32M"]);
    assert!(out.starts_with("copied 3145728 of 3145728 bytes in 3 of 3 commands\n"), "{out}");
    assert_eq!(read(&client, "a", 32 * MIB, 3 * MIB), data);
    let output = env.ublk(&["copy", "-n", "a", "0+3M", "32M", "--one-command"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert_eq!(output.stdout, "", "a refused copy has done nothing to tell of: {output:?}");
}

#[test]
fn several_segments_in_both_spellings() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    let client = env.client("a");
    let data = pattern(MIB, 4);
    write(&client, "a", 0, &data);
    env.ok(&["copy", "-n", "a", "64K+4K", "0+8K", "512K+512", "16M"]);
    let joined = [&data[65536..69632], &data[..8192], &data[524288..524800]].concat();
    assert_eq!(read(&client, "a", 16 * MIB, joined.len()), joined);
    env.ok(&["copy", "-n", "a", "--segment", "0+4K:20M", "--segment", "4K+4K:21M", "--fua"]);
    assert_eq!(read(&client, "a", 20 * MIB, 4096), data[..4096]);
    assert_eq!(read(&client, "a", 21 * MIB, 4096), data[4096..8192]);
}

#[test]
fn fast_only_moves_no_byte() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    let client = env.client("a");
    write(&client, "a", 0, &pattern(MIB, 5));
    env.ok(&["copy", "-n", "a", "0+1M", "8M", "--fast-only"]);
    let before = read(&client, "a", 16 * MIB, MIB);
    let output = env.ublk(&["copy", "-n", "a", "512+64K", "16M", "--fast-only"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert_eq!(read(&client, "a", 16 * MIB, MIB), before, "a refused copy changes nothing");
}

#[test]
fn a_verification_finds_a_write_to_the_source() {
    let env = Env::new();
    env.disk("a", &["--size", "64M", "--copy-max-bytes", "4K", "--copy-max-segment-bytes", "4K"]);
    let client = env.client("a");
    write(&client, "a", 0, &pattern(8 * MIB, 6));
    let request =
        json!({"segments": [{"source": 0, "length": 8 * MIB, "destination": 32 * MIB}], "verify": true});
    // A write into the destination has to meet a block that was copied and is not compared yet: one of many will.
    for _ in 0..50 {
        let mut job: Value = client.send("POST", "/v1/disks/a/copies", &request).unwrap();
        common::until("an end", || {
            write(&client, "a", 32 * MIB, &[0; 512]);
            job = client.call("GET", &format!("/v1/disks/a/copies/{}", job["id"])).unwrap();
            matches!(job["state"].as_str(), Some("done" | "failed"))
        });
        if job["error"]["code"] == "differs" {
            return;
        }
        assert_eq!(job["state"], "done", "{job}");
    }
    panic!("no write was found");
}

/// Random writes, discards, copies and changes of mode against a model.
#[test]
fn many_operations_leave_what_the_model_says() {
    let env = Env::new();
    const SIZE: usize = 4 * MIB;
    let disks = ["a", "b"];
    env.disk("a", &["--size", "4M"]);
    env.ok(&["add", "--no-ublk", "--name", "b", "--pool", "a", "--size", "4M"]);
    let client = env.client("a");
    let mut model = [vec![0; SIZE], vec![0; SIZE]];
    let mut random = Random(20_260_101);
    let mut copied = 0;
    for step in 0..400u64 {
        let disk = usize::try_from(random.below(2)).unwrap();
        let length = 512 * (1 + usize::try_from(random.below(128)).unwrap());
        let place = |random: &mut Random| {
            512 * usize::try_from(random.below(((SIZE - length) / 512) as u64 + 1)).unwrap()
        };
        let to = place(&mut random);
        match random.below(10) {
            0..4 => {
                let data = pattern(length, step + 1);
                write(&client, disks[disk], to, &data);
                model[disk][to..to + length].copy_from_slice(&data);
            }
            4 => {
                let path = format!("/v1/disks/{}/data?offset={to}&length={length}", disks[disk]);
                client.exchange("DELETE", &path, b"").unwrap();
                model[disk][to..to + length].fill(0);
            }
            5 => {
                let mode = ["remap", "memcpy", "emulate"][usize::try_from(random.below(3)).unwrap()];
                let _: Value = client
                    .send("PATCH", &format!("/v1/disks/{}/limits", disks[disk]), &json!({"copy": mode}))
                    .unwrap();
            }
            _ => {
                let from = usize::try_from(random.below(2)).unwrap();
                let source = place(&mut random);
                let segment =
                    json!({"from": disks[from], "source": source, "length": length, "destination": to});
                let result = copy(&client, disks[disk], &json!({"segments": [segment]}));
                let overlap = from == disk && source < to + length && to < source + length;
                match result {
                    Ok(job) => {
                        assert!(!overlap && job["state"] == "done", "step {step}: {job}");
                        let data = model[from][source..source + length].to_vec();
                        model[disk][to..to + length].copy_from_slice(&data);
                        copied += 1;
                    }
                    Err(error) => assert!(overlap, "step {step}: {error}"),
                }
            }
        }
        if step % 50 == 49 {
            for (disk, expected) in disks.iter().zip(&model) {
                assert!(read(&client, disk, 0, SIZE) == *expected, "disk {disk} differs after step {step}");
            }
        }
    }
    assert!(copied > 100, "{copied}");
}
