//! `ublk top` and `ublk trace` as their users see them.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Env, finish, until};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A terminal of its own, without the configuration of whoever runs the tests.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-S", &self.socket, "-f", "/dev/null"])
            .args(args)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "tmux {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-S", &self.socket, "kill-server"]).output();
    }
}

#[test]
fn top_shows_what_disks_do_in_a_terminal() {
    if !["/usr/bin/tmux", "/usr/local/bin/tmux"].iter().any(|path| Path::new(path).exists()) {
        // The runner captures what is printed by macros, and shows it of failures alone.
        return std::io::stdout()
            .write_all(b"\nskipped host/top-in-a-terminal: tmux is not installed\n")
            .unwrap();
    }
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    env.disk("z", &["--size", "64M", "--zoned", "--zone-size", "4M"]);
    env.client("a").exchange("PUT", "/v1/disks/a/data?offset=0", &[7; 65536]).unwrap();
    env.ok(&["copy", "-n", "a", "0+64K", "1M"]);
    let terminal = Terminal { socket: env.dir.join("tmux").to_str().unwrap().to_string() };
    let program =
        format!("UBLK_STATE_DIR={} {} top; sleep 60", env.state.display(), env!("CARGO_BIN_EXE_ublk"));
    terminal.tmux(&["new-session", "-d", "-x", "140", "-y", "30", &program]);
    until("the table of disks", || {
        let screen = terminal.screen();
        ["ublk top", "copy/s", "avoided", "a, pool a", "not zoned"].iter().all(|text| screen.contains(text))
    });
    // Latencies of what was done before.
    let screen = terminal.screen();
    let copy = screen.lines().find(|line| line.contains("copy ")).unwrap_or_else(|| panic!("{screen}"));
    assert!(copy.contains(" 1 ") && copy.contains("us"), "{screen}");
    until("copies in a second", || {
        env.ok(&["copy", "-n", "a", "0+64K", "1M"]);
        let row =
            |line: &str| line.replace('│', " ").split_whitespace().map(str::to_string).collect::<Vec<_>>();
        let screen = terminal.screen();
        // Name, size in two words, reads, writes, copies.
        screen.lines().map(row).any(|row| row.len() > 5 && row[0] == "a" && row[5] != "0")
    });
    terminal.tmux(&["send-keys", "Down"]);
    until("the zones of the other disk", || {
        let screen = terminal.screen();
        screen.contains("z, pool z")
            && screen.lines().any(|line| line.contains("empty") && line.contains("16"))
    });
    terminal.tmux(&["send-keys", "q"]);
    until("the end", || !terminal.screen().contains("ublk top"));
}

#[test]
fn top_without_a_terminal_says_what_else_there_is() {
    let env = Env::new();
    let output = env.ublk(&["top"]);
    assert_eq!(output.code, 2);
    assert!(
        output.stderr.contains("top needs a terminal") && output.stderr.contains("stats --watch"),
        "{output:?}"
    );
}

#[test]
fn a_trace_shows_requests_with_their_segments_and_can_be_replayed() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    let args = ["trace", "-n", "a", "--format", "json", "--count", "3"];
    let child = env.start(&args);
    let client = env.client("a");
    // The trace begins at some time after the start of the command.
    let begun = || !client.exchange("GET", "/v1/disks/a/trace?after=0", b"").unwrap().is_empty();
    assert!(begun());
    client.exchange("PUT", "/v1/disks/a/data?offset=8192", &[7; 4096]).unwrap();
    client.exchange("GET", "/v1/disks/a/data?offset=0&length=512", b"").unwrap();
    env.ok(&["copy", "-n", "a", "8K+4K", "16K+4K", "1M", "--one-command"]);
    let output = finish(child, &args);
    assert_eq!(output.code, 0, "{output:?}");
    let records: Vec<serde_json::Value> =
        output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let what: Vec<_> = records
        .iter()
        .map(|record| (record["operation"].as_str().unwrap(), record["offset"].as_u64().unwrap()))
        .collect();
    assert_eq!(what, [("write", 8192), ("read", 0), ("copy", 1 << 20)]);
    let segments = records[2]["segments"].as_array().unwrap();
    let source = |index: usize| segments[index]["source"].as_u64().unwrap();
    assert_eq!((segments.len(), source(0), source(1)), (2, 8192, 16384));
    assert!(records.iter().all(|r| r["status"] == "Ok" && r["begun_ns"].as_u64() <= r["ended_ns"].as_u64()));

    let args = ["trace", "-n", "a", "--count", "2"];
    let child = env.start(&args);
    assert!(begun());
    client.exchange("PUT", "/v1/disks/a/data?offset=8192", &[7; 4096]).unwrap();
    client.exchange("GET", "/v1/disks/a/data?offset=0&length=512", b"").unwrap();
    let output = finish(child, &args);
    let file = env.dir.join("blkparse");
    std::fs::write(&file, &output.stdout).unwrap();
    let text = env.ok(&["replay", file.to_str().unwrap(), "--format", "blkparse", "--sim"]);
    assert!(text.starts_with("2 entries in "), "{text}\n{}", output.stdout);
}

#[test]
fn latencies_are_counted_by_operation_and_go_with_the_ledger() {
    let env = Env::new();
    env.disk("a", &["--size", "64M", "--latency", "read=20ms"]);
    let client = env.client("a");
    for _ in 0..3 {
        client.exchange("GET", "/v1/disks/a/data?offset=0&length=512", b"").unwrap();
    }
    let latency = |key: &str| -> serde_json::Value {
        serde_json::from_slice::<serde_json::Value>(
            &client.exchange("GET", "/v1/disks/a/latency", b"").unwrap(),
        )
        .unwrap()["operations"]["read"][key]
            .clone()
    };
    assert_eq!(latency("count"), 3);
    assert!(latency("p50_ns").as_u64().unwrap() >= 20_000_000);
    env.ok(&["stats", "-n", "a", "--reset"]);
    assert!(latency("count").is_null());
}
