//! Faults and power cuts, as their owner asks for them: by command, by file and by API.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Env, until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use ublk_server::control::client::ClientError;

const BLOCK: usize = 4096;

fn put(env: &Env, offset: usize, byte: u8, more: &str) -> Result<(), ClientError> {
    let path = format!("/v1/disks/a/data?offset={offset}{more}");
    env.client("a").exchange("PUT", &path, &[byte; BLOCK]).map(drop)
}

fn get(env: &Env, offset: usize, length: usize) -> Vec<u8> {
    let path = format!("/v1/disks/a/data?offset={offset}&length={length}");
    env.client("a").exchange("GET", &path, b"").unwrap()
}

/// The code of a failure of the API.
fn code<T: std::fmt::Debug>(result: Result<T, ClientError>) -> String {
    match result {
        Err(ClientError::Api(error)) => error.code,
        other => panic!("{other:?}"),
    }
}

fn copy(env: &Env, segments: &[(usize, usize, usize)]) -> Value {
    let segment = |&(source, length, to): &(usize, usize, usize)| json!({"source": source, "length": length, "destination": to});
    let body = json!({"segments": segments.iter().map(segment).collect::<Vec<_>>(), "one_command": true});
    env.client("a").send("POST", "/v1/disks/a/copies?wait=true", &body).unwrap()
}

fn rule(env: &Env, words: &str) -> String {
    let args: Vec<&str> = ["fault", "add", "-n", "a"].into_iter().chain(words.split(' ')).collect();
    env.ok(&args).trim().to_string()
}

fn listed(env: &Env) -> Value {
    let text = env.ok(&["fault", "list", "-n", "a", "--json"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["schema"], 1);
    value["faults"].clone()
}

#[test]
fn rules_are_added_listed_and_removed() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    assert_eq!(rule(&env, "op=write range=8K+4K nth=2 count=1 action=error:MEDIUM"), "fault1");
    assert_eq!(rule(&env, "op=read ratio=1/2 seed=7 action=error:nospc name=half"), "half");
    put(&env, 8192, 1, "").unwrap();
    assert_eq!(code(put(&env, 8192, 2, "")), "medium");
    put(&env, 8192, 3, "").unwrap();
    let faults = listed(&env);
    assert_eq!((&faults[0]["struck"], &faults[0]["matched"]), (&json!(1), &json!(2)), "{faults}");
    let strike = &faults[0]["strikes"][0];
    assert_eq!(
        (&strike["op"], &strike["offset"], &strike["length"]),
        (&json!("write"), &json!(8192), &json!(4096))
    );
    let text = env.ok(&["fault", "list", "-n", "a"]);
    assert!(text.contains("fault1 op=write range=8192+4096 nth=2 count=1 action=error:MEDIUM"), "{text}");
    assert!(text.contains("half op=read ratio=1/2 seed=7 action=error:NOSPC"), "{text}");
    env.ok(&["fault", "del", "-n", "a", "half"]);
    let gone = env.ublk(&["fault", "del", "-n", "a", "half"]);
    assert_eq!(gone.code, 1, "{gone:?}");
    assert!(gone.stderr.contains("has no fault \"half\""), "{gone:?}");
    env.ok(&["fault", "del", "-n", "a"]);
    assert_eq!(listed(&env), json!([]));
    assert_eq!(env.ok(&["fault", "list", "-n", "a"]), "");
}

#[test]
fn what_is_no_rule_is_refused_and_nothing_changes() {
    let env = Env::new();
    env.disk("a", &["--size", "64M", "--logical-block-size", "4K"]);
    for (words, exit) in [
        ("action=explode", 2),
        ("op=copy", 2),
        ("op=write action=fail-at:1", 2),
        ("action=stop-at:512", 2),
        ("action=zone:offline", 2),
        ("range=1G+4K action=hang", 2),
        ("nth=0 action=hang", 2),
        ("ratio=2/1 action=hang", 2),
        ("action=error:OK", 2),
        ("action=misdirect:1", 2),
    ] {
        let args: Vec<&str> = ["fault", "add", "-n", "a"].into_iter().chain(words.split(' ')).collect();
        let output = env.ublk(&args);
        assert_eq!(output.code, exit, "{words}: {output:?}");
        assert!(!output.stderr.is_empty() && output.stderr.lines().count() <= 2, "{output:?}");
    }
    rule(&env, "action=hang op=flush name=one");
    let twice = env.ublk(&["fault", "add", "-n", "a", "action=hang", "name=one"]);
    assert_eq!(twice.code, 1, "{twice:?}");
    let client = env.client("a");
    for body in [
        "{}",
        "[]",
        "{\"action\":1}",
        "{\"action\":\"hang\",\"colour\":1}",
        "{\"action\":\"hang\",\"nth\":-1}",
    ] {
        let answer = client.exchange("POST", "/v1/disks/a/faults", body.as_bytes());
        assert_eq!(code(answer), "bad-request", "{body}");
    }
    assert_eq!(code(client.exchange("GET", "/v1/disks/b/faults", b"")), "no-disk");
    assert_eq!(listed(&env).as_array().unwrap().len(), 1);
}

#[test]
fn copies_fail_at_a_segment_stop_short_and_are_corrupt() {
    for mode in ["remap", "memcpy", "emulate"] {
        let env = Env::new();
        env.disk("a", &["--size", "64M", "--copy", mode]);
        for block in 0..8 {
            put(&env, block * BLOCK, 1 + block as u8, "").unwrap();
        }
        let good = get(&env, 0, 8 * BLOCK);
        let to = 32 << 20;
        let two = |to: usize| [(0, 2 * BLOCK, to), (4 * BLOCK, 4 * BLOCK, to + 2 * BLOCK)];
        rule(&env, "op=copy action=fail-at:1 count=1");
        let job = copy(&env, &two(to));
        assert_eq!(
            (&job["state"], &job["first_failed_segment"]),
            (&json!("failed"), &json!(1)),
            "{mode}: {job}"
        );
        assert_eq!((&job["bytes"], &job["error"]["code"]), (&json!(8192), &json!("medium")), "{mode}: {job}");
        assert_eq!(get(&env, to, 6 * BLOCK), [&good[..2 * BLOCK], &[0; 4 * BLOCK]].concat(), "{mode}");
        rule(&env, "op=copy action=stop-at:12K count=1");
        let job = copy(&env, &two(to + (1 << 20)));
        assert_eq!(
            (&job["bytes"], &job["first_failed_segment"]),
            (&json!(12288), &json!(1)),
            "{mode}: {job}"
        );
        rule(&env, "op=copy action=corrupt count=1 name=flip");
        let job = copy(&env, &[(0, 8 * BLOCK, to + (2 << 20))]);
        assert_eq!(job["state"], "done", "{mode}: {job}");
        let bad = get(&env, to + (2 << 20), 8 * BLOCK);
        let bits: u32 = bad.iter().zip(&good).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(bits, 1, "{mode}: one bit of one sector");
        assert_eq!(get(&env, to + (2 << 20), 8 * BLOCK), bad, "{mode}: a retry sees the same");
        env.ok(&["fault", "del", "-n", "a", "flip"]);
        assert_eq!(get(&env, to + (2 << 20), 8 * BLOCK), good, "{mode}: below it is as it was");
    }
}

#[test]
fn what_hangs_ends_with_its_rule_and_with_its_disk() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    let hung = || listed(&env)[0]["hung"].as_array().map_or(0, Vec::len);
    rule(&env, "op=write action=hang");
    std::thread::scope(|scope| {
        let write = scope.spawn(|| put(&env, 0, 1, ""));
        until("the write hangs", || hung() == 1);
        assert_eq!(get(&env, 0, BLOCK), [0; BLOCK]);
        env.ok(&["fault", "del", "-n", "a"]);
        assert_eq!(code(write.join().unwrap()), "timeout");
    });
    rule(&env, "action=hang op=copy");
    let begun = std::thread::scope(|scope| {
        let body = json!({"segments": [{"source": 0, "length": 4096, "destination": 8192}]});
        let _: Value = env.client("a").send("POST", "/v1/disks/a/copies", &body).unwrap();
        until("the copy hangs", || hung() == 1);
        let write = scope.spawn(|| put(&env, 0, 1, ""));
        let begun = Instant::now();
        env.ok(&["del", "-n", "a"]);
        drop(write.join().unwrap());
        begun
    });
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_server_that_is_silent_is_killed_when_its_disk_is_deleted() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    let process = env.state().pool("a").unwrap().unwrap().process;
    common::kill(process.pid, rustix::process::Signal::STOP);
    let output = env.ublk(&["del", "-n", "a"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("has said nothing for 5 s"), "{output:?}");
    assert!(!process.alive());
    assert!(env.state().disks().unwrap().is_empty());
}

#[test]
fn a_file_has_the_rules_that_a_disk_begins_with() {
    let env = Env::new();
    let file = env.dir.join("a.toml");
    let rules = "[[fault]]\naction = \"error:MEDIUM\"\nop = \"read\"\ncount = 1\n\n[[fault]]\naction = \"hang\"\nname = \"h\"\nop = \"discard\"\n";
    std::fs::write(&file, format!("size = \"64M\"\n{rules}")).unwrap();
    env.disk("a", &["--config", file.to_str().unwrap()]);
    let faults = listed(&env);
    assert_eq!((&faults[0]["rule"]["name"], &faults[1]["rule"]["name"]), (&json!("fault1"), &json!("h")));
    let path = "/v1/disks/a/data?offset=0&length=4096";
    assert_eq!(code(env.client("a").exchange("GET", path, b"")), "medium");
    let toml = env.ok(&["info", "-n", "a", "--toml"]);
    assert!(toml.contains("[[fault]]\nname = \"h\"\nop = \"discard\"\naction = \"hang\""), "{toml}");
    env.ok(&["del", "-n", "a"]);
    std::fs::write(&file, "[[fault]]\naction = \"zone:offline\"\n").unwrap();
    let refused = env.ublk(&["add", "--no-ublk", "--config", file.to_str().unwrap()]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("the disk has no zones"), "{refused:?}");
}

#[test]
fn a_power_cut_loses_what_was_not_made_durable() {
    let env = Env::new();
    let path = env.dir.join("disk");
    for more in [&["--cache", "volatile"][..], &["-t", "file", "-f", path.to_str().unwrap()]] {
        let mut args = vec!["add", "--no-ublk", "--name", "a", "--pool", "a", "--size", "64M"];
        args.extend(more);
        env.ok(&args);
        put(&env, 0, 1, "&fua=true").unwrap();
        put(&env, 0, 2, "").unwrap();
        put(&env, 8192, 3, "").unwrap();
        env.ok(&["power-cut", "-n", "a", "--keep", "all"]);
        assert_eq!(get(&env, 0, BLOCK), [2; BLOCK], "{more:?}");
        let cut = env.ok(&["power-cut", "-n", "a", "--json"]);
        let cut: Value = serde_json::from_str(&cut).unwrap();
        assert_eq!((&cut["undone_bytes"], &cut["stale_pages"]), (&json!(8192), &json!(0)), "{more:?}");
        assert_eq!(get(&env, 0, BLOCK), [1; BLOCK], "{more:?}");
        assert_eq!(get(&env, 8192, BLOCK), [0; BLOCK], "{more:?}");
        let stats: Value = serde_json::from_str(&env.ok(&["stats", "-n", "a", "--json"])).unwrap();
        assert_eq!(stats["counters"]["undone_bytes"], 8192, "{stats}");
        put(&env, 0, 4, "&fua=true").unwrap();
        assert_eq!(get(&env, 0, BLOCK), [4; BLOCK]);
        env.ok(&["del", "-n", "a"]);
    }
    env.ok(&["add", "--no-ublk", "--name", "a", "--pool", "a", "-t", "null"]);
    let refused = env.ublk(&["power-cut", "-n", "a"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    env.ok(&["del", "-n", "a"]);
    env.disk("a", &["--zoned", "--zone-size", "4M", "--size", "64M"]);
    env.ok(&["power-cut", "-n", "a"]);
    for keep in ["some", "-1", ""] {
        assert_eq!(env.ublk(&["power-cut", "-n", "a", "--keep", keep]).code, 2, "{keep}");
    }
}

#[test]
fn zones_go_back_to_what_was_flushed() {
    let env = Env::new();
    let path = env.dir.join("disk");
    let add = ["add", "--no-ublk", "--pool", "a", "-t", "file", "-f", path.to_str().unwrap(), "--name", "a"];
    env.ok(&[&add[..], &["--zoned", "--zone-size", "4M", "--size", "64M"]].concat());
    let pointer = || {
        let report: Value = serde_json::from_str(&env.ok(&["zone", "report", "-n", "a", "--json"])).unwrap();
        report["zones"][0]["wp"].as_u64().unwrap()
    };
    put(&env, 0, 1, "&fua=true").unwrap();
    let flushed = pointer();
    for dead in [false, true] {
        for block in 1..4 {
            put(&env, block * BLOCK, 2, "").unwrap();
        }
        assert!(pointer() > flushed);
        if dead {
            env.kill_server("a");
        }
        env.ok(&["power-cut", "-n", "a"]);
        if dead {
            env.ok(&["del", "-n", "a"]);
            env.ok(&add);
        }
        assert_eq!(pointer(), flushed, "dead: {dead}");
        assert_eq!(get(&env, 0, 4 * BLOCK), [[1; BLOCK], [0; BLOCK], [0; BLOCK], [0; BLOCK]].concat());
    }
    put(&env, BLOCK, 3, "").unwrap();
    assert_eq!(get(&env, BLOCK, BLOCK), [3; BLOCK], "it goes on at the pointer");
}

#[test]
fn a_power_cut_of_a_dead_server_is_seen_by_the_next() {
    for keep in ["none", "all", "7"] {
        let env = Env::new();
        let path = env.dir.join("disk");
        let add =
            ["add", "--no-ublk", "--pool", "a", "-t", "file", "-f", path.to_str().unwrap(), "--name", "a"];
        env.ok(&[&add[..], &["--size", "64M"]].concat());
        put(&env, 0, 1, "&fua=true").unwrap();
        for block in 0..16 {
            put(&env, block * BLOCK, 2, "").unwrap();
        }
        env.kill_server("a");
        env.ok(&["power-cut", "-n", "a", "--keep", keep]);
        env.ok(&["del", "-n", "a"]);
        env.ok(&add);
        let bytes = get(&env, 0, 16 * BLOCK);
        let kept = bytes.chunks(BLOCK).filter(|block| block[0] == 2).count();
        for (at, block) in bytes.chunks(BLOCK).enumerate() {
            let old = u8::from(at == 0);
            assert!(block == [2; BLOCK] || block == [old; BLOCK], "keep {keep}: block {at}");
        }
        match keep {
            "none" => assert_eq!(kept, 0),
            "all" => assert_eq!(kept, 16),
            _ => assert!((1..16).contains(&kept), "{kept}"),
        }
    }
    let env = Env::new();
    env.disk("a", &[]);
    env.kill_server("a");
    let gone = env.ublk(&["power-cut", "-n", "a"]);
    assert!(gone.code == 1 && gone.stderr.contains("went with its server"), "{gone:?}");
}

#[test]
fn a_rule_cuts_the_power_in_the_middle_of_a_copy() {
    let env = Env::new();
    env.disk("a", &["--size", "64M", "--cache", "volatile", "--copy", "memcpy"]);
    for block in 0..8 {
        put(&env, block << 20, 7, "&fua=true").unwrap();
    }
    rule(&env, "op=copy action=power-cut:none name=cut");
    let job = copy(&env, &[(0, 8 << 20, 32 << 20)]);
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("failed"), &json!("ioerr")), "{job}");
    assert_eq!((&job["bytes"], &job["first_failed_segment"]), (&json!(4 << 20), &json!(0)), "{job}");
    for block in 0..8 {
        assert_eq!(get(&env, block << 20, BLOCK), [7; BLOCK]);
        assert_eq!(get(&env, (32 + block) << 20, BLOCK), [0; BLOCK], "what was copied was not durable");
    }
    assert_eq!(listed(&env)[0]["struck"], 1);
    let job = copy(&env, &[(0, 8 << 20, 32 << 20)]);
    assert_eq!(job["state"], "done", "the power fails once: {job}");
}
