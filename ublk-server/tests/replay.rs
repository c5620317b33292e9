//! Traces against the model of a disk, and what is refused.

#![allow(clippy::unwrap_used)]

mod common;

use common::Env;
use serde_json::Value;

/// A trace in a file.
fn trace(env: &Env, text: &str) -> String {
    std::fs::create_dir_all(&env.dir).unwrap();
    let path = env.dir.join("trace");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn recorded_speed_keeps_the_times_of_the_trace_and_full_speed_the_depth() {
    let env = Env::new();
    // Ten reads of 4 KiB, one each 100 us.
    let lines: String = (0..10).map(|n| format!("0,R,{},4096,{}\n", n * 8192, 5_000_000 + n * 100)).collect();
    let file = trace(&env, &lines);
    let replay = |more: &[&str]| -> Value {
        let args = ["replay", &file, "--format", "alibaba", "--sim", "--latency", "read=80us", "--json"];
        serde_json::from_str(&env.ok(&[&args[..], more].concat())).unwrap()
    };
    let recorded = replay(&[]);
    assert_eq!((&recorded["entries"], &recorded["simulated"]), (&10.into(), &true.into()));
    assert_eq!(recorded["elapsed_ns"], 980_000);
    assert_eq!(recorded["operations"]["read"]["bytes"], 40_960);
    // Of a histogram of three digits.
    let p99 = recorded["operations"]["read"]["p99_ns"].as_u64().unwrap();
    assert!((80_000..80_100).contains(&p99), "{p99}");
    assert_eq!(replay(&["--speed", "full", "--depth", "5"])["elapsed_ns"], 160_000);
    assert_eq!(replay(&["--speed", "full", "--depth", "1"])["elapsed_ns"], 800_000);
}

#[test]
fn malformed_lines_are_reported_with_their_numbers_and_the_others_are_done() {
    let env = Env::new();
    let file = trace(&env, "0,R,0,4096,1\n0,X,0,4096,2\nnonsense\n0,W,1099511627776,512,3\n");
    let output = env.ublk(&["replay", &file, "--format", "alibaba", "--sim"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("line 2: unknown opcode \"X\"\n"), "{}", output.stderr);
    assert!(output.stderr.contains("line 3: 1 fields, not 5\n"), "{}", output.stderr);
    assert!(output.stderr.ends_with("ublk: 2 lines are malformed and were left out\n"), "{}", output.stderr);
    assert!(output.stdout.starts_with("2 entries in 0.000 s (simulated)\n"), "{}", output.stdout);
    assert!(output.stdout.contains("1 began beyond the end of the disk: taken modulo its size\n"));
}

#[test]
fn one_of_a_kind_is_counted_in_the_singular() {
    let env = Env::new();
    let file = trace(&env, "0,R,0,4096,1\nnonsense\n");
    let output = env.ublk(&["replay", &file, "--format", "alibaba", "--sim"]);
    assert!(output.stderr.ends_with("ublk: 1 line is malformed and was left out\n"), "{}", output.stderr);
    assert!(output.stdout.starts_with("1 entry in 0.000 s (simulated)\n"), "{}", output.stdout);
    assert!(output.stdout.contains("1 request, 4"), "{}", output.stdout);
}

#[test]
fn only_the_device_that_was_asked_for_is_replayed() {
    let env = Env::new();
    let file = trace(&env, "1,h,0,Read,0,512,9\n2,h,1,Write,0,512,9\n3,h,1,Write,0,512,9\n");
    let text = env.ok(&["replay", &file, "--format", "msr", "--sim", "--device", "h.1"]);
    assert!(text.starts_with("2 entries in "), "{text}");
    assert!(text.contains("1 entry of another device left out\n"), "{text}");
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let env = Env::new();
    env.disk("a", &["--size", "64M"]);
    let file = trace(&env, "");
    for (args, code, why) in [
        (&["replay", &file, "--format", "alibaba"][..], 2, "--number <ID>|--sim"),
        (&["replay", &file, "--format", "vscsi", "--sim"], 2, "possible values: fio, blkparse, msr"),
        (&["replay", "/nowhere", "--format", "fio", "--sim"], 1, "/nowhere: No such file"),
        (&["replay", &file, "--format", "fio", "-n", "a"], 1, "disk a has no block device"),
        (&["replay", &file, "--format", "fio", "-n", "b"], 1, "there is no disk b"),
        (&["replay", &file, "--format", "fio", "--sim", "--size", "1K"], 2, "size 1 KiB: from 4K to"),
        (&["replay", &file, "--format", "fio", "--sim", "--media", "floppy"], 2, "profiles: tlc-ssd"),
        (&["replay", &file, "--format", "fio", "-n", "a", "--media", "hdd"], 2, "cannot be used with"),
    ] {
        let output = env.ublk(args);
        assert!(output.code == code && output.stderr.contains(why), "{args:?}: {output:?}");
    }
}
