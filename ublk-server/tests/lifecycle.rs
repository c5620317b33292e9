//! From `add` to `del`, with everything that can come in between.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Env, finish, kill, until};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

#[test]
fn a_disk_comes_and_goes() {
    let env = Env::new();
    env.disk("a", &["--size", "1T"]);
    let list = env.ok(&["list"]);
    assert!(list.starts_with("disk a: no block device pool a daemon pid "), "{list}");
    assert!(list.ends_with(" state SERVING\n"), "{list}");
    assert!(env.ok(&["info", "-n", "a"]).contains("1 TiB"));
    assert!(env.ok(&["log", "-n", "a"]).contains("disk a is ready"));
    let process = env.state().pool("a").unwrap().unwrap().process;
    env.ok(&["del", "-n", "a"]);
    assert!(!process.alive(), "the server is gone when del returns");
    assert_eq!(env.ok(&["list"]), "");
    assert!(env.state().pools().unwrap().is_empty());
    env.ok(&["del", "-n", "a"]);
    env.ok(&["del", "-n", "12345"]);
}

#[test]
fn add_returns_in_a_command_substitution_and_keeps_no_lock() {
    let env = Env::new();
    let lock = env.dir.join("lock");
    let script = format!(
        "exec 9>{}; flock 9; name=$({} add --no-ublk --memory 64M); echo \"[$name]\"",
        lock.display(),
        env!("CARGO_BIN_EXE_ublk")
    );
    let child = std::process::Command::new("sh")
        .args(["-c", &script])
        .env("UBLK_STATE_DIR", &env.state)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = finish(child, &["sh"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "[disk0]\n"), "{output:?}");
    let file = std::fs::File::open(&lock).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .expect("the server does not hold its starter's lock");
}

#[test]
fn files_are_private() {
    let env = Env::new();
    env.disk("a", &[]);
    let mut paths = vec![env.state.clone()];
    let mut seen = 0;
    while let Some(path) = paths.pop() {
        let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        seen += 1;
        if path.is_dir() {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen >= 8, "{seen}");
}

#[test]
fn a_killed_server_is_seen_and_cleaned_up() {
    let env = Env::new();
    env.disk("a", &[]);
    env.ok(&["add", "--no-ublk", "--name", "b", "--pool", "a"]);
    env.kill_server("a");
    let list = env.ok(&["list"]);
    assert_eq!(list.lines().filter(|line| line.ends_with("state DEAD")).count(), 2, "{list}");
    assert!(env.ok(&["log", "-n", "a"]).contains("disk b is ready"), "the log stays");
    env.ok(&["del", "-n", "a"]);
    env.ok(&["del", "-n", "b"]);
    assert_eq!(env.ok(&["list"]), "");
    assert!(env.state().pools().unwrap().is_empty());
}

#[test]
fn the_names_of_a_killed_server_can_be_used_again() {
    let env = Env::new();
    env.disk("a", &[]);
    env.kill_server("a");
    env.disk("a", &[]);
    assert!(env.ok(&["list"]).contains("SERVING"));
}

#[test]
fn signals_end_a_server_and_its_disks() {
    for signal in [Signal::TERM, Signal::INT] {
        let env = Env::new();
        env.disk("a", &[]);
        env.ok(&["add", "--no-ublk", "--name", "b", "--pool", "a"]);
        let process = env.state().pool("a").unwrap().unwrap().process;
        kill(process.pid, signal);
        assert!(process.wait_for_end(std::time::Duration::from_secs(20)));
        assert!(env.state().disks().unwrap().is_empty(), "a server that ends takes its records away");
        assert!(env.state().pools().unwrap().is_empty());
    }
}

#[test]
fn the_foreground_serves_until_interrupted() {
    let env = Env::new();
    let args = ["add", "--no-ublk", "--foreground", "--name", "a", "--pool", "a", "--memory", "64M"];
    let mut child = env.start(&args);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "a\n");
    assert!(env.ok(&["info", "-n", "a"]).contains("ram"));
    kill(i32::try_from(child.id()).unwrap(), Signal::INT);
    kill(i32::try_from(child.id()).unwrap(), Signal::INT);
    child.stdout =
        Some(std::process::Command::new("true").stdout(Stdio::piped()).spawn().unwrap().stdout.unwrap());
    let output = finish(child, &args);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("disk a is ready"), "it logs to standard error: {output:?}");
    assert!(env.state().pools().unwrap().is_empty());
}

#[test]
fn adds_that_race_for_a_pool_share_it() {
    let env = Env::new();
    let names = ["a", "b", "c", "d", "e", "f"];
    let children: Vec<_> = names
        .iter()
        .map(|name| env.start(&["add", "--no-ublk", "--pool", "p", "--name", name, "--memory", "64M"]))
        .collect();
    for child in children {
        let output = finish(child, &["add"]);
        assert_eq!(output.code, 0, "{output:?}");
    }
    assert_eq!(env.state().pools().unwrap().len(), 1);
    let view: serde_json::Value = env.client("p").call("GET", "/v1/pool").unwrap();
    assert_eq!(view["disks"], serde_json::json!(names));
    env.ok(&["del", "-a"]);
    assert_eq!(env.ok(&["list"]), "");
}

#[test]
fn adds_without_names_get_names_of_their_own() {
    let env = Env::new();
    let children: Vec<_> = (0..4).map(|_| env.start(&["add", "--no-ublk", "--memory", "64M"])).collect();
    let mut names: Vec<String> = children.into_iter().map(|child| finish(child, &["add"]).stdout).collect();
    names.sort();
    assert_eq!(names, ["disk0\n", "disk1\n", "disk2\n", "disk3\n"]);
    assert_eq!(env.state().pools().unwrap().len(), 4);
}

#[test]
fn a_pool_ends_with_its_last_disk() {
    let env = Env::new();
    env.disk("a", &[]);
    env.ok(&["add", "--no-ublk", "--name", "b", "--pool", "a"]);
    env.ok(&["del", "-n", "a"]);
    assert!(env.ok(&["list"]).contains("disk b: "));
    env.ok(&["del", "-n", "b"]);
    assert!(env.state().pools().unwrap().is_empty());
    env.disk("a", &["-t", "ram"]);
}

#[test]
fn a_panic_ends_the_server_with_its_cause_in_the_log() {
    for thread in ["control", "worker"] {
        let env = Env::new();
        env.disk("a", &["--debug"]);
        let process = env.state().pool("a").unwrap().unwrap().process;
        let body = format!("{{\"thread\":\"{thread}\"}}");
        let request = format!(
            "POST /v1/debug/panic HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        assert!(env.raw("a", request.as_bytes(), false).starts_with("HTTP/1.1 200"), "{thread}");
        // The next request goes through a thread of each of these kinds.
        let _ = env.raw("a", b"GET /v1/disks/a/data?offset=0&length=512 HTTP/1.1\r\nHost: x\r\n\r\n", false);
        assert!(process.wait_for_end(std::time::Duration::from_secs(10)), "{thread}");
        let log = env.ok(&["log", "-n", "a"]);
        let panic = log.lines().last().unwrap();
        assert!(panic.contains("panic in thread") && panic.contains("debug.rs:"), "{thread}: {panic}");
        env.ok(&["del", "-n", "a"]);
    }
}

#[test]
fn a_panic_cannot_be_armed_in_a_usual_server() {
    let env = Env::new();
    env.disk("a", &[]);
    let request = "POST /v1/debug/panic HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 20\r\n\r\n{\"thread\":\"control\"}";
    assert!(env.raw("a", request.as_bytes(), false).starts_with("HTTP/1.1 404"));
    assert!(env.ok(&["info", "-n", "a"]).contains("ram"));
}

#[test]
fn a_configuration_file_makes_the_disk_it_was_printed_from() {
    let env = Env::new();
    env.disk("a", &["--size", "48M", "--map-block", "8K", "--copy", "memcpy", "--copy-max-bytes", "3M"]);
    let toml = env.ok(&["info", "-n", "a", "--toml"]);
    env.ok(&["del", "-n", "a"]);
    let file = env.dir.join("disk.toml");
    std::fs::write(&file, &toml).unwrap();
    assert_eq!(env.ok(&["add", "--config", file.to_str().unwrap()]), "a\n");
    assert_eq!(env.ok(&["info", "-n", "a", "--toml"]), toml);
    env.ok(&["del", "-n", "a"]);
    assert_eq!(env.ok(&["add", "--config", file.to_str().unwrap(), "--name", "b"]), "b\n");
}

#[test]
fn a_loop_disk_is_as_large_as_its_file_and_keeps_its_bytes() {
    let env = Env::new();
    let image = env.dir.join("image");
    std::fs::write(&image, vec![7; 1 << 20]).unwrap();
    let path = image.to_str().unwrap();
    env.ok(&["add", "-t", "loop", "-f", path, "--no-ublk", "--name", "a", "--pool", "a"]);
    assert!(env.ok(&["info", "-n", "a"]).contains("1 MiB"));
    let client = env.client("a");
    client.exchange("PUT", "/v1/disks/a/data?offset=4096&fua=true", &[9; 4096]).unwrap();
    assert_eq!(client.exchange("GET", "/v1/disks/a/data?offset=0&length=4096", b"").unwrap(), [7; 4096]);
    env.ok(&["copy", "-n", "a", "4K+4K", "64K", "--verify"]);
    let second = env.ublk(&["add", "--no-ublk", "--name", "b", "--pool", "a"]);
    assert_eq!(second.code, 1, "{second:?}");
    env.ok(&["del", "-n", "a"]);
    let bytes = std::fs::read(&image).unwrap();
    assert_eq!((bytes[4095], bytes[4096], bytes[8191], bytes[8192], bytes[65536]), (7, 9, 9, 7, 9));
    let refused = env.ublk(&["add", "-t", "loop", "-f", path, "--no-ublk", "--size", "2M"]);
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[test]
fn an_interrupted_copy_ends_with_its_finished_prefix() {
    let env = Env::new();
    env.disk("a", &["--size", "256M", "--copy-max-bytes", "512", "--copy-max-segment-bytes", "512"]);
    env.client("a").exchange("PUT", "/v1/disks/a/data?offset=0", &[1; 1 << 20]).unwrap();
    let child = env.start(&["copy", "-n", "a", "0+100M", "128M", "--json"]);
    until("some progress", || {
        let jobs: serde_json::Value = env.client("a").call("GET", "/v1/disks/a/copies").unwrap();
        jobs[0]["bytes"].as_u64().is_some_and(|bytes| bytes > 0)
    });
    kill(i32::try_from(child.id()).unwrap(), Signal::INT);
    let output = finish(child, &["copy"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("interrupted"), "{output:?}");
    let job: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(job["state"], "cancelled");
    let bytes = job["bytes"].as_u64().unwrap();
    assert!(bytes > 0 && bytes < 100 << 20, "{job}");
    assert!(env.ok(&["copy", "-n", "a", "0+512", "1M"]).contains("1 of 1 commands"), "the disk lives on");
}

#[test]
fn a_disk_is_judged_by_the_clauses() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    let target = format!("unix:{}", env.socket("a").display());
    for mode in ["remap", "memcpy", "emulate"] {
        env.ok(&["set", "-n", "a", &format!("copy={mode}")]);
        let tap = env.ok(&["selftest", "--target", &target, "--scratch", "1M+32M"]);
        assert!(tap.starts_with("TAP version 14\n1..11\n"), "{tap}");
        assert_eq!(
            tap.lines().filter(|line| line.starts_with("ok ") && !line.contains("SKIP")).count(),
            11,
            "{mode}: {tap}"
        );
    }
    env.client("a").exchange("PUT", "/v1/disks/a/data?offset=0", &[5; 4096]).unwrap();
    let before = env.ok(&["stats", "-n", "a", "--json"]);
    let tap = env.ok(&["selftest", "--target", &target]);
    assert_eq!(tap.matches("# SKIP needs --scratch").count(), 10, "{tap}");
    let writes =
        |stats: &str| serde_json::from_str::<serde_json::Value>(stats).unwrap()["commands"]["write"].clone();
    assert_eq!(writes(&before), writes(&env.ok(&["stats", "-n", "a", "--json"])), "it only reads");
    // A disk that does not copy breaks the clauses that copy.
    env.ok(&["set", "-n", "a", "copy=off"]);
    let output = env.ublk(&["selftest", "--target", &target, "--scratch", "0+32M", "--json"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stdout.contains("the copy failed: notsupp"), "{output:?}");
    for bad in ["/dev/sda", "a", "tcp:1"] {
        assert_eq!(env.ublk(&["selftest", "--target", bad]).code, 2, "{bad}");
    }
    for bad in ["0+512K", "1+32M", "60M+32M", "0+32M:0"] {
        assert_ne!(env.ublk(&["selftest", "--target", &target, "--scratch", bad]).code, 0, "{bad}");
    }
}
