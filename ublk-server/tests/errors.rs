//! What goes wrong, word for word: one or two lines and an exit status.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Env, golden};
use std::fmt::Write;

/// Runs each command and writes down how it ended.
fn transcript(env: &Env, commands: &[&[&str]]) -> String {
    let mut text = String::new();
    for args in commands {
        let output = env.ublk(args);
        assert_ne!(output.code, 0, "{args:?} succeeded");
        assert_eq!(output.stdout, "", "{args:?}");
        writeln!(text, "$ ublk {}\n{}[exit {}]\n", args.join(" "), output.stderr, output.code).unwrap();
    }
    between(&text.replace(env.dir.to_str().unwrap(), "$DIR"), "TiB: only ", " are available", "N")
}

/// Replaces what differs from machine to machine between two texts.
fn between(text: &str, before: &str, after: &str, by: &str) -> String {
    let Some((head, tail)) = text.split_once(before) else {
        return text.to_string();
    };
    let (_, rest) = tail.split_once(after).expect("both texts");
    format!("{head}{before}{by}{after}{rest}")
}

#[test]
fn usage_errors() {
    let env = Env::new();
    let file = env.dir.join("bad.toml");
    std::fs::write(&file, "size = \"1G\"\nquees = 2\n").unwrap();
    let bad = file.to_str().unwrap();
    let commands: Vec<Vec<&str>> = [
        "add --size 1000",
        "add --size 12X",
        "add --size 0",
        "add -q 0",
        "add -d 5000",
        "add -n -2",
        "add -t file",
        "add -t loop",
        "add -t loop -f /nonexistent",
        "add -f /dev/null",
        "add --memory 1048576T",
        "add -t null --memory 1G",
        "add -t null --copy remap",
        "add --logical-block-size 768",
        "add --map-block 128K",
        "add --copy-max-segments 257",
        "add --copy-max-segment-bytes 64M",
        "add --name a/b",
        "add --name ublkb1",
        "add --no-ublk -n 3",
        "add -i 1 -e 1",
        "add -z",
        "add --nonsense",
        "add --cache sometimes",
        "add --zone-size 4M",
        "add --max-open 3",
        "add --zoned -t null",
        "add --zoned --conventional-zones 1 --no-ublk --nvme-tcp 127.0.0.1:0",
        "add --zoned --max-append 4K --no-ublk --nvme-tcp 127.0.0.1:0",
        "add --zoned --unprivileged",
        "add --zoned --zone-size 3M",
        "add --zoned --zone-size 2K",
        "add --zoned --zone-size 1000",
        "add --zoned --zone-size 2T --size 4T",
        "add --zoned --size 100M",
        "add --zoned --zone-capacity 65M",
        "add --zoned --zone-capacity 0",
        "add --zoned --conventional-zones 16",
        "add --zoned --max-open 17",
        "add --zoned --max-active 17",
        "add --zoned --max-open 5 --max-active 4",
        "add --zoned --max-append 0",
        "add --zoned --max-append 65M",
        "add --zoned --max-append 1000",
        "add --zoned --size 1T --zone-size 8M",
        "add --config /nonexistent.toml",
        "del",
        "del -n 1 -a",
        "del -n /dev/sda",
        "copy -n a",
        "copy -n a 4K",
        "copy -n a 0+4K:8K 1M",
        "copy -n a 0+x 1M",
        "copy -n a --segment 0+4K",
        "copy -n a 0+4K 8K --engine kcopyd",
        "copy -n a 0+4K 8K --door native",
        "zone",
        "zone reset",
        "zone reset -n a --offset 1x",
        "zone set-condition -n a",
        "zone set-condition -n a empty",
        "set -n a",
        "set -n a size=1G",
        "set -n a copy=fast",
        "set -n a copy-max-segments=many",
    ]
    .iter()
    .map(|line| line.split(' ').collect())
    .collect();
    let mut commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
    let config = ["add", "--config", bad];
    commands.push(&config);
    golden("usage_errors.txt", &transcript(&env, &commands));
}

#[test]
fn errors_about_disks() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    env.disk("b", &["--size", "64M", "--logical-block-size", "4K"]);
    let zones = ["--zoned", "--zone-size", "4M", "--zone-capacity", "3M", "--conventional-zones", "1"];
    env.disk("z", &[&["--size", "64M"], &zones[..]].concat());
    let text = transcript(
        &env,
        &[
            &["info", "-n", "nobody"],
            &["log", "-n", "nobody"],
            &["list", "-n", "nobody"],
            &["stats", "-n", "7"],
            &["add", "--no-ublk", "--name", "a"],
            &["add", "--no-ublk", "--name", "c", "--pool", "a", "--memory", "1G"],
            &["add", "--no-ublk", "--name", "c", "--pool", "a", "-t", "null"],
            &["add", "--no-ublk", "--name", "c", "--pool", "a", "--size", "1000"],
            &["add", "--no-ublk", "--name", "c", "--pool", "a", "--foreground"],
            &["copy", "-n", "a", "0+512", "511"],
            &["copy", "-n", "a", "0+64M", "1M"],
            &["copy", "-n", "b", "0+4K", "8K", "--from", "a"],
            &["copy", "-n", "a", "0+4K", "8K", "--from", "nobody"],
            &["copy", "-n", "a", "0+4K", "8K", "--engine", "host"],
            &["copy", "-n", "a", "0+4K", "8K", "--engine", "host", "--fast-only"],
            &["set", "-n", "a", "copy-max-bytes=1000"],
            &["set", "-n", "a", "copy-max-segments=0"],
            &["zone", "report", "-n", "a"],
            &["zone", "reset", "-n", "a"],
            &["copy", "-n", "a", "0+4K", "1M", "--append"],
            &["copy", "-n", "a", "0+4K", "1M", "--append", "--engine", "host"],
            &["zone", "report", "-n", "z", "--offset", "64M"],
            &["zone", "open", "-n", "z"],
            &["zone", "open", "-n", "z", "--offset", "1M"],
            &["zone", "close", "-n", "z", "--offset", "4M", "--count", "16"],
            &["zone", "finish", "-n", "z", "--offset", "4M", "--count", "0"],
            &["copy", "-n", "z", "0+4K", "8196K"],
            &["copy", "-n", "z", "0+4K", "8196K", "--append"],
            &["copy", "-n", "z", "0+4K", "0", "--append"],
            &["copy", "-n", "z", "0+4M", "8M", "--one-command"],
            &["copy", "-n", "z", "--segment", "0+4K:8M", "--segment", "0+4K:12M", "--append"],
        ],
    );
    golden("disk_errors.txt", &text);
    env.kill_server("a");
    let text = transcript(
        &env,
        &[&["info", "-n", "a"], &["copy", "-n", "a", "0+4K", "8K"], &["set", "-n", "a", "copy=off"]],
    );
    golden("dead_server_errors.txt", &text);
}

#[test]
fn copies_that_the_disk_refuses() {
    let env = Env::new();
    env.disk(
        "a",
        &[
            "--size",
            "64M",
            "--copy-max-bytes",
            "1M",
            "--copy-max-segment-bytes",
            "64K",
            "--copy-max-segments",
            "8",
        ],
    );
    let mut text = String::new();
    for line in ["60M+8M 0", "0+8M 60M", "0+128K 1M --one-command", "512+64K 1M --fast-only", "0+512 1024M"] {
        let args: Vec<&str> = ["copy", "-n", "a"].into_iter().chain(line.split(' ')).collect();
        let output = env.ublk(&args);
        assert_ne!(output.code, 0, "{line}: {output:?}");
        writeln!(
            text,
            "$ ublk {}\n{}{}[exit {}]\n",
            args.join(" "),
            output.stdout,
            output.stderr,
            output.code
        )
        .unwrap();
    }
    env.ok(&["set", "-n", "a", "copy=off"]);
    let output = env.ublk(&["copy", "-n", "a", "0+4K", "1M"]);
    writeln!(
        text,
        "$ ublk copy -n a 0+4K 1M (copy=off)\n{}{}[exit {}]",
        output.stdout, output.stderr, output.code
    )
    .unwrap();
    golden("refused_copies.txt", &text);
}

#[test]
fn a_machine_without_the_driver_is_told_so() {
    if std::path::Path::new("/dev/ublk-control").exists() {
        eprintln!("not tested: this machine has /dev/ublk-control");
        return;
    }
    let env = Env::new();
    golden("no_driver.txt", &transcript(&env, &[&["add"], &["add", "-t", "null", "-n", "0"], &["features"]]));
    assert!(env.state().disks().unwrap().is_empty());
    assert!(env.state().pools().unwrap().is_empty(), "nothing is left behind");
    env.ok(&["del", "-n", "0"]);
    env.ok(&["del", "-a"]);
    let output = env.ublk(&["selftest", "--json"]);
    assert_eq!(output.code, 3, "{output:?}");
    let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    assert!(report["scratch"].as_array().unwrap().iter().all(|check| check["ok"] == true), "{report}");
}
