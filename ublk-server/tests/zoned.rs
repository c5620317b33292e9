//! Zoned disks through the control API and the commands, without a block device.

#![allow(clippy::unwrap_used)]

mod common;

use common::Env;
use serde_json::{Value, json};
use std::time::Instant;
use ublk_server::control::client::{Client, ClientError};

const MIB: u64 = 1 << 20;

/// A disk of 16 zones of 4 MiB, the first two conventional.
fn zoned(env: &Env, name: &str, more: &[&str]) -> Client {
    let zones = ["--size", "64M", "--zoned", "--zone-size", "4M", "--conventional-zones", "2"];
    env.disk(name, &[&zones[..], more].concat());
    env.client(name)
}

fn zones(client: &Client, disk: &str) -> Vec<Value> {
    let report: Value = client.call("GET", &format!("/v1/disks/{disk}/zones")).unwrap();
    report["zones"].as_array().unwrap().clone()
}

/// The condition of a zone and how much of it is written.
fn state(client: &Client, disk: &str, zone: usize) -> (String, u64) {
    let zone = &zones(client, disk)[zone];
    let written = zone["wp"].as_u64().unwrap() - zone["start"].as_u64().unwrap();
    (zone["condition"].as_str().unwrap().to_string(), written)
}

fn state_is(client: &Client, disk: &str, zone: usize, condition: &str, written: u64) {
    assert_eq!(state(client, disk, zone), (condition.to_string(), written), "zone {zone}");
}

fn write(client: &Client, disk: &str, offset: u64, data: &[u8]) -> Result<(), ClientError> {
    client.exchange("PUT", &format!("/v1/disks/{disk}/data?offset={offset}"), data).map(drop)
}

fn read(client: &Client, disk: &str, offset: u64, length: usize) -> Vec<u8> {
    client.exchange("GET", &format!("/v1/disks/{disk}/data?offset={offset}&length={length}"), b"").unwrap()
}

fn code(result: Result<impl Sized, ClientError>) -> String {
    match result {
        Err(ClientError::Api(error)) => error.code,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was taken"),
    }
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| ((at / 512) as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn every_action_of_the_command_reaches_the_zones() {
    let env = Env::new();
    let client = zoned(&env, "a", &["--max-open", "3", "--max-active", "4"]);
    let zone = |action: &str, more: &[&str]| env.ublk(&[&["zone", action, "-n", "a"], more].concat());
    let at = |zone: u64| (zone * 4 * MIB).to_string();
    state_is(&client, "a", 0, "not-wp", 4 * MIB);
    state_is(&client, "a", 2, "empty", 0);
    write(&client, "a", 8 * MIB, &pattern(4096, 1)).unwrap();
    state_is(&client, "a", 2, "imp-open", 4096);
    for (action, count, first, second) in [
        ("open", "2", "exp-open", "exp-open"),
        ("close", "2", "closed", "empty"),
        ("open", "1", "exp-open", "empty"),
        ("finish", "2", "full", "full"),
        ("reset", "1", "empty", "full"),
    ] {
        let output = zone(action, &["--offset", &at(2), "--count", count]);
        assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{action}: {output:?}");
        assert_eq!((state(&client, "a", 2).0, state(&client, "a", 3).0), (first.into(), second.into()));
    }
    let output = zone("open", &["--offset", &at(4), "--count", "4"]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("open zones exceeded"), "{output:?}");
    let output = zone("report", &["--offset", &at(3), "--count", "2"]);
    let lines: Vec<Vec<&str>> = output.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["3", "12582912", "4194304", "16777216", "full"], "{output:?}");
    assert_eq!((lines.len(), lines[2][4]), (3, "exp-open"));
    for (condition, offset) in [("read-only", at(8)), ("offline", at(9))] {
        assert_eq!(zone("set-condition", &[condition, "--offset", &offset, "--count", "1"]).code, 0);
    }
    assert_eq!(zone("reset", &[]).code, 0, "all of them");
    let conditions: Vec<String> =
        zones(&client, "a").iter().map(|zone| zone["condition"].as_str().unwrap().to_string()).collect();
    let mut expected = vec!["empty"; 16];
    expected[..2].fill("not-wp");
    (expected[8], expected[9]) = ("read-only", "offline");
    assert_eq!(conditions, expected);
    let info = env.ok(&["info", "-n", "a"]);
    assert!(
        info.contains("16, 2 of them conventional") && info.contains("max-active              4"),
        "{info}"
    );
}

#[test]
fn writes_go_to_the_pointer_and_refusals_have_their_codes() {
    let env = Env::new();
    let client = zoned(&env, "a", &["--zone-capacity", "3M", "--max-open", "1"]);
    let data = pattern(4096, 3);
    write(&client, "a", 12 * MIB, &data).unwrap();
    assert_eq!(code(write(&client, "a", 12 * MIB, &data)), "zone-invalid-write");
    assert_eq!(code(write(&client, "a", 12 * MIB + 8192, &data)), "zone-invalid-write");
    write(&client, "a", 12 * MIB + 4096, &data).unwrap();
    assert_eq!(read(&client, "a", 12 * MIB + 4096, 8192), [&data[..], &[0; 4096]].concat());
    let discard =
        client.exchange("DELETE", &format!("/v1/disks/a/data?offset={}&length=4096", 12 * MIB), b"");
    assert_eq!(code(discard), "notsupp");
    write(&client, "a", MIB, &data).unwrap();
    let post = |body: Value| client.send::<Value>("POST", "/v1/disks/a/zones", &body);
    for body in [
        json!({"action": "reset", "offset": 512}),
        json!({"action": "reset", "offset": "64M"}),
        json!({"action": "reset", "offset": "4M", "count": 16}),
        json!({"action": "reset", "cuont": 1}),
        json!({"action": "empty"}),
        json!({}),
    ] {
        assert_eq!(code(post(body.clone())), "bad-request", "{body}");
    }
    assert_eq!(code(client.call::<Value>("GET", "/v1/disks/a/zones?offset=67108864")), "out-of-range");
    assert_eq!(code(client.call::<Value>("GET", "/v1/disks/a/zones?cuont=1")), "bad-request");
    post(json!({"action": "open", "offset": "16M", "count": 1})).unwrap();
    assert_eq!(code(post(json!({"action": "open", "offset": "20M", "count": 1}))), "zone-open-resource");
    state_is(&client, "a", 3, "closed", 8192);
}

#[test]
fn a_copy_fills_zones_in_order_within_the_limits_of_commands() {
    let env = Env::new();
    let limits = ["--copy-max-bytes", "1M", "--copy-max-segment-bytes", "256K"];
    let client = zoned(&env, "a", &limits);
    let data = pattern(MIB as usize, 5);
    for at in 0..8 {
        write(&client, "a", at * MIB, &data).unwrap();
    }
    // Eight commands, which only fit one behind the other, from the middle of a zone on.
    let out = env.ok(&["copy", "-n", "a", "0+8M", "16M", "--verify"]);
    assert!(out.starts_with("copied 8388608 of 8388608 bytes in 8 of 8 commands, compared\n"), "{out}");
    state_is(&client, "a", 4, "full", 4 * MIB);
    state_is(&client, "a", 5, "full", 4 * MIB);
    state_is(&client, "a", 6, "empty", 0);
    assert_eq!(read(&client, "a", 23 * MIB, data.len()), data);
    let output = env.ublk(&["copy", "-n", "a", "0+1M", "16M"]);
    assert_eq!(output.code, 1, "a full zone takes no more: {output:?}");
    let output = env.ublk(&["copy", "-n", "a", "0+4K", "25M"]);
    assert_eq!(output.code, 1, "nor any off its pointer: {output:?}");
    state_is(&client, "a", 6, "empty", 0);
}

#[test]
fn an_appended_copy_is_told_where_it_went() {
    let env = Env::new();
    let client = zoned(&env, "a", &["--copy-max-bytes", "256K", "--copy-max-segment-bytes", "64K"]);
    let data = pattern(MIB as usize, 7);
    write(&client, "a", 0, &data).unwrap();
    write(&client, "a", 24 * MIB, &data[..8192]).unwrap();
    let out = env.ok(&["copy", "-n", "a", "512K+512K", "0+64K", "24M", "--append", "--verify"]);
    let told = "copied 589824 of 589824 bytes in 3 of 3 commands, appended at 25174016, compared\n";
    assert!(out.starts_with(told), "{out}");
    assert_eq!(read(&client, "a", 24 * MIB + 8192, 512 << 10), data[512 << 10..]);
    assert_eq!(read(&client, "a", 24 * MIB + 8192 + (512 << 10), 64 << 10), data[..64 << 10]);
    state_is(&client, "a", 6, "imp-open", 8192 + (576 << 10));
    let out = env.ok(&["copy", "-n", "a", "0+4K", "24M", "--append", "--json"]);
    let job: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(job["appended_at"], 24 * MIB + 8192 + (576 << 10), "{out}");
    for (args, why) in [("0+4K 25M", "not an append to the start"), ("0+4K 4M", "not an append to the start")]
    {
        let args: Vec<&str> = ["copy", "-n", "a", "--append"].into_iter().chain(args.split(' ')).collect();
        let output = env.ublk(&args);
        assert!(output.code == 1 && output.stderr.contains(why), "{output:?}");
    }
}

#[test]
fn a_zoned_and_a_plain_disk_share_a_pool() {
    let env = Env::new();
    let client = zoned(&env, "a", &[]);
    env.ok(&["add", "--no-ublk", "--name", "b", "--pool", "a", "--size", "16M"]);
    let data = pattern(MIB as usize, 9);
    write(&client, "b", 0, &data).unwrap();
    env.ok(&["copy", "-n", "a", "--from", "b", "0+1M", "8M"]);
    assert_eq!(read(&client, "a", 8 * MIB, data.len()), data);
    env.ok(&["copy", "-n", "b", "--from", "a", "8M+1M", "4M"]);
    assert_eq!(read(&client, "b", 4 * MIB, data.len()), data);
    env.ok(&["zone", "reset", "-n", "a", "--offset", "8M", "--count", "1"]);
    assert_eq!(read(&client, "a", 8 * MIB, data.len()), vec![0; data.len()]);
    assert_eq!(read(&client, "b", 4 * MIB, data.len()), data, "the copy does not end with its source");
}

#[test]
fn the_configuration_of_a_zoned_disk_makes_it_again() {
    let env = Env::new();
    zoned(
        &env,
        "a",
        &["--zone-capacity", "3M", "--max-open", "3", "--max-active", "5", "--max-append", "64K"],
    );
    let file = env.dir.join("a.toml");
    std::fs::write(&file, env.ok(&["info", "-n", "a", "--toml"])).unwrap();
    let geometry = |name: &str| {
        let disk: Value = serde_json::from_str(&env.ok(&["info", "-n", name, "--json"])).unwrap();
        disk["zones"].clone()
    };
    let first = geometry("a");
    let expected = json!({"count": 16, "size": 4 * MIB, "capacity": 3 * MIB, "conventional": 2, "max_open": 3,
        "max_active": 5, "max_append": 65536});
    assert_eq!(first, expected);
    env.ok(&["del", "-n", "a"]);
    env.ok(&["add", "--config", file.to_str().unwrap()]);
    assert_eq!(geometry("a"), first);
}

#[test]
fn a_report_of_many_zones_is_whole_and_quick() {
    let env = Env::new();
    let zones = ["--size", "64G", "--zoned", "--zone-size", "1M"];
    env.disk("a", &zones);
    let client = env.client("a");
    let begun = Instant::now();
    let all = self::zones(&client, "a");
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    assert_eq!(all.len(), 65_536);
    assert!(
        (0u64..).zip(&all).all(|(index, zone)| zone["start"] == index * MIB && zone["wp"] == index * MIB)
    );
}

/// The conditions of the zones from 2 on, and what is written of each.
fn states(client: &Client, count: usize) -> Vec<(String, u64)> {
    (2..2 + count).map(|zone| state(client, "a", zone)).collect()
}

/// Leaves zone 2 written, 3 open by command, 4 full by a finish, 5 read-only, and 6 with a copy in it.
fn leave(env: &Env, client: &Client) {
    write(client, "a", 8 * MIB, &pattern(8192, 1)).unwrap();
    for (action, zone) in [("open", "12M"), ("finish", "16M")] {
        env.ok(&["zone", action, "-n", "a", "--offset", zone, "--count", "1"]);
    }
    env.ok(&["zone", "set-condition", "read-only", "-n", "a", "--offset", "20M", "--count", "1"]);
    env.ok(&["copy", "-n", "a", "8M+8K", "24M", "--append"]);
}

fn are(states: &[(String, u64)], expected: &[(&str, u64)]) {
    let states: Vec<_> = states.iter().map(|(condition, written)| (condition.as_str(), *written)).collect();
    assert_eq!(states, expected);
}

#[test]
fn zones_in_a_file_outlive_their_server() {
    let env = Env::new();
    let path = env.dir.join("disk");
    let add = |more: &[&str]| {
        let file =
            ["add", "-t", "file", "-f", path.to_str().unwrap(), "--no-ublk", "--pool", "a", "--name", "a"];
        env.ublk(&[&file[..], more].concat())
    };
    let zones = ["--size", "64M", "--zoned", "--zone-size", "4M", "--conventional-zones", "2"];
    let small = add(&["--size", "63M", "--zoned", "--zone-size", "4M"]);
    assert!(small.code == 2 && small.stderr.contains("multiple of the zone size"), "{small:?}");
    let added = add(&zones);
    assert_eq!(added.code, 0, "{added:?}");
    leave(&env, &env.client("a"));
    // Not one of them was flushed: the redo log has them.
    env.kill_server("a");
    assert!(env.ok(&["check", path.to_str().unwrap()]).contains("its server died"));
    let again = add(&[]);
    assert_eq!(again.code, 0, "{again:?}");
    env.ok(&["set", "-n", "a", "copy-max-segments=100"]);
    let written = 8192;
    let expected =
        [("closed", written), ("exp-open", 0), ("full", 4 * MIB), ("read-only", 0), ("closed", written)];
    are(&states(&env.client("a"), 5), &expected);
    // What was replayed is not in the image yet: a second death before any flush of it must not lose it.
    write(&env.client("a"), "a", 8 * MIB + written, &pattern(4096, 2)).unwrap();
    env.kill_server("a");
    assert_eq!(add(&zones).code, 0, "the same geometry may be repeated");
    let client = env.client("a");
    assert_eq!(read(&client, "a", 8 * MIB, 8192), pattern(8192, 1));
    assert_eq!(read(&client, "a", 24 * MIB, 8192), pattern(8192, 1));
    let mut expected = expected;
    expected[0].1 += 4096;
    are(&states(&client, 5), &expected);
    write(&client, "a", 12 * MIB, &pattern(4096, 3)).unwrap();
    // A server that ends well has flushed; no zone is open when it comes back.
    env.ok(&["del", "-n", "a"]);
    let other = add(&["--zoned", "--zone-size", "8M"]);
    assert!(other.code == 1 && other.stderr.contains("has other zones"), "{other:?}");
    assert_eq!(add(&[]).code, 0);
    expected[1] = ("closed", 4096);
    are(&states(&env.client("a"), 5), &expected);
    env.ok(&["zone", "reset", "-n", "a"]);
    env.ok(&["zone", "open", "-n", "a", "--offset", "8M", "--count", "1"]);
    env.ok(&["del", "-n", "a"]);
    assert_eq!(add(&[]).code, 0);
    are(&states(&env.client("a"), 2), &[("empty", 0), ("empty", 0)]);
    env.ok(&["del", "-n", "a"]);
    assert!(env.ok(&["check", path.to_str().unwrap()]).contains("no contradiction found"));
}

#[test]
fn without_the_redo_log_zones_are_as_of_the_last_flush_and_closed() {
    let env = Env::new();
    let path = env.dir.join("disk");
    let file = ["add", "-t", "file", "-f", path.to_str().unwrap(), "--no-ublk", "--pool", "a", "--name", "a"];
    let zones = ["--size", "64M", "--zoned", "--zone-size", "4M", "--conventional-zones", "2"];
    env.ok(&[&file[..], &zones].concat());
    let client = env.client("a");
    leave(&env, &client);
    client.exchange("PUT", &format!("/v1/disks/a/data?offset={}&fua=true", 28 * MIB), &[5; 4096]).unwrap();
    write(&client, "a", 28 * MIB + 4096, &[6; 4096]).unwrap();
    write(&client, "a", 32 * MIB, &[7; 4096]).unwrap();
    env.kill_server("a");
    let bytes = std::fs::read(&path).unwrap();
    let identifier = std::str::from_utf8(&bytes[24..56]).unwrap();
    std::fs::remove_dir_all(ublk_server::store::shared::path(identifier)).unwrap();
    for _ in 0..2 {
        env.ok(&file);
        let expected = [
            ("closed", 8192),
            ("empty", 0),
            ("full", 4 * MIB),
            ("read-only", 0),
            ("closed", 8192),
            ("closed", 4096),
            ("empty", 0),
        ];
        are(&states(&env.client("a"), 7), &expected);
        assert_eq!(read(&env.client("a"), "a", 28 * MIB, 8192), [[5; 4096], [0; 4096]].concat());
        // What was found closed was written down as closed, before anything was flushed.
        env.kill_server("a");
    }
}

#[test]
fn zones_in_memory_come_back_after_recovery() {
    let env = Env::new();
    let client = zoned(&env, "a", &["--user-recovery=reissue", "--max-open", "3", "--max-active", "4"]);
    leave(&env, &client);
    env.kill_server("a");
    env.ok(&["recover", "-n", "a"]);
    let expected = [("closed", 8192), ("exp-open", 0), ("full", 4 * MIB), ("read-only", 0), ("closed", 8192)];
    are(&states(&env.client("a"), 5), &expected);
    let client = env.client("a");
    assert_eq!(read(&client, "a", 24 * MIB, 8192), pattern(8192, 1));
    write(&client, "a", 28 * MIB, &[1; 4096]).unwrap();
    assert_eq!(
        code(write(&client, "a", 32 * MIB, &[1; 4096])),
        "zone-active-resource",
        "the limits count on"
    );
}

#[test]
fn the_selftest_judges_the_zones_of_a_zoned_disk() {
    let env = Env::new();
    let client = zoned(&env, "a", &["--zone-capacity", "3M"]);
    write(&client, "a", 20 * MIB, &pattern(4096, 1)).unwrap();
    let target = format!("unix:{}", env.socket("a").display());
    let selftest = |scratch: &[&str]| env.ublk(&[&["selftest", "--target", &target], scratch].concat());
    let reading = selftest(&[]);
    assert_eq!(reading.code, 0, "{reading:?}");
    assert!(reading.stdout.contains("ok 5 - 7.12 ") && reading.stdout.contains("# SKIP"), "{reading:?}");
    let all = selftest(&["--scratch", "8M+8M"]);
    assert!(all.code == 0 && !all.stdout.contains("SKIP"), "{all:?}");
    assert_eq!(all.stdout.matches("\nok ").count(), 7, "{all:?}");
    are(&states(&client, 4), &[("empty", 0), ("empty", 0), ("empty", 0), ("imp-open", 4096)]);
    let small = selftest(&["--scratch", "9M+8M"]);
    assert!(small.code == 2 && small.stderr.contains("two sequential zones"), "{small:?}");
}
