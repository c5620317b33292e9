//! How long a disk takes, as its users set it and as they see it.

#![allow(clippy::unwrap_used)]

mod common;

use common::Env;
use std::time::{Duration, Instant};

/// The time of a read of so many bytes.
fn read(env: &Env, length: u64) -> Duration {
    let begun = Instant::now();
    let data = env.client("a").exchange("GET", &format!("/v1/disks/a/data?offset=0&length={length}"), b"");
    assert_eq!(data.unwrap().len() as u64, length);
    begun.elapsed()
}

/// The shortest of a few: what else the machine does only adds to it.
fn shortest(env: &Env, length: u64) -> Duration {
    (0..5).map(|_| read(env, length)).min().unwrap()
}

#[test]
fn latency_and_bandwidth_hold_and_change_while_the_disk_runs() {
    let env = Env::new();
    env.disk("a", &["--size", "64M", "--latency", "read=60ms,copy=80ms"]);
    let millis = Duration::from_millis;
    let slow = shortest(&env, 4096);
    assert!((millis(60)..millis(600)).contains(&slow), "{slow:?}");
    let begun = Instant::now();
    env.ok(&["copy", "-n", "a", "0+1M", "8M"]);
    assert!(begun.elapsed() >= millis(80));

    let limits = env.ok(&["set", "-n", "a", "latency=none", "bandwidth=4M", "--json"]);
    assert!(limits.contains("\"bandwidth\": \"4M\"") && !limits.contains("latency"), "{limits}");
    // A quarter of a MiB at 4 MiB/s.
    let slow = shortest(&env, 256 << 10);
    assert!((millis(62)..millis(600)).contains(&slow), "{slow:?}");

    env.ok(&["set", "-n", "a", "bandwidth=none"]);
    let fast = shortest(&env, 256 << 10);
    assert!(fast < millis(60), "{fast:?}");
}

#[test]
fn lateness_and_its_floor_are_shown_and_a_disk_without_timing_has_none() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    read(&env, 4096);
    assert!(!env.ok(&["stats", "-n", "a"]).contains("lateness"));
    env.ok(&["set", "-n", "a", "media=hdd"]);
    for _ in 0..3 {
        read(&env, 4096);
    }
    let stats = env.ok(&["stats", "-n", "a", "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let of = |key: &str| stats["lateness"][key].as_u64().unwrap();
    assert!(of("count") >= 3 && of("floor_ns") <= of("p50_ns") && of("p50_ns") <= of("max_ns"), "{stats}");
    assert!(env.ok(&["stats", "-n", "a"]).contains("lateness of the pool        floor "));
    let metrics = String::from_utf8(env.client("a").exchange("GET", "/metrics", b"").unwrap()).unwrap();
    assert!(metrics.contains("ublk_lateness_floor_nanoseconds{pool=\"a\"} "), "{metrics}");
}

#[test]
fn media_come_from_a_file_and_the_disk_can_be_made_again_from_its_own() {
    let env = Env::new();
    let file = env.dir.join("media.toml");
    std::fs::write(&file, "profile = \"zns\"\n[latency]\nread = \"70ms\"\n[flash]\nchannels = 2\n").unwrap();
    env.disk("a", &["--size", "64M", "--media", file.to_str().unwrap()]);
    // What was never written is known to be zeroes without a read of the media.
    assert!(shortest(&env, 4096) >= Duration::from_millis(70));
    let toml = env.ok(&["info", "-n", "a", "--toml"]);
    assert!(toml.contains("[media.flash]\nchannels = 2\n") && toml.contains("profile = \"zns\""), "{toml}");
    let again = env.dir.join("again.toml");
    std::fs::write(&again, toml.replace("\"a\"", "\"b\"")).unwrap();
    env.ok(&["add", "--config", again.to_str().unwrap()]);
    assert!(env.ok(&["info", "-n", "b", "--toml"]).contains("[media.flash]\nchannels = 2\n"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    for (option, value, why) in [
        ("--latency", "read=80", "a whole number, then ns, us, ms or s"),
        ("--latency", "seek=1us", "no operation"),
        ("--bandwidth", "1", "at least 65536 B/s"),
        ("--media", "floppy", "profiles: tlc-ssd zns hdd remote"),
        ("--media", "/nowhere/media.toml", "No such file"),
    ] {
        let output = env.ublk(&["add", "--no-ublk", "--name", "b", option, value]);
        assert!(output.code == 2 && output.stderr.contains(why), "{option} {value}: {output:?}");
        let key = format!("{}={value}", option.trim_start_matches('-'));
        let output = env.ublk(&["set", "-n", "a", &key]);
        assert!(output.code == 2 && output.stderr.contains(why), "{key}: {output:?}");
    }
    assert!(!env.ok(&["info", "-n", "a", "--json"]).contains("timing"));
}

#[test]
fn a_disk_is_deleted_in_spite_of_requests_that_would_take_long() {
    let env = Env::new();
    env.disk("a", &["--size", "64M", "--latency", "read=29s"]);
    let client = env.client("a");
    let reader = std::thread::spawn(move || {
        // Its answer may come or its connection may end: the disk is gone.
        drop(client.exchange("GET", "/v1/disks/a/data?offset=0&length=4096", b""));
    });
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    env.ok(&["del", "-n", "a"]);
    reader.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
