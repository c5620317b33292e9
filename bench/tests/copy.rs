//! `ublk-bench copy` as its users run it, on a file.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

const SIZE: usize = 4 << 20;

/// A file of blocks that differ, removed in the end.
struct Disk(PathBuf);

impl Disk {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let bytes: Vec<u8> = (0..SIZE).map(|at| ((at / 512) ^ (at / (128 << 10))) as u8).collect();
        fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn copy(&self, options: &str) -> Output {
        let filename = format!("--filename={}", self.0.display());
        Command::new(env!("CARGO_BIN_EXE_ublk-bench"))
            .args(["copy", "--engine=host", &filename])
            .args(options.split_whitespace())
            .output()
            .unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_load_of_host_copies_moves_every_byte_and_says_so() {
    let disk = Disk::new("load");
    let output = disk.copy("--bs=64k --ranges=4 --iodepth=2 --numjobs=2 --verify --output-format=json");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["jobs"].as_array().unwrap().len(), 2);
    for job in json["jobs"].as_array().unwrap() {
        assert_eq!((&job["copy"]["io_bytes"], &job["copy"]["total_ios"]), (&(1 << 20).into(), &4.into()));
        assert_eq!((&job["read"]["io_bytes"], &job["write"]["total_ios"]), (&(1 << 20).into(), &16.into()));
    }
    assert_eq!(json["verify"]["blocks"], 32);
    let bytes = fs::read(&disk.0).unwrap();
    assert!(bytes[..SIZE / 2] == bytes[SIZE / 2..], "the second half is not a copy of the first");
}

#[test]
fn a_time_ends_a_load_that_would_go_on() {
    let output =
        Disk::new("time").copy("--bs=4k --rw=randcopy --time_based --runtime=300ms --output-format=json");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runtime = json["jobs"][0]["job_runtime"].as_u64().unwrap();
    assert!((300..30_000).contains(&runtime), "{runtime} ms");
    assert!(json["jobs"][0]["copy"]["total_ios"].as_u64().unwrap() > 0);
}

#[test]
fn bad_options_are_usage_errors_and_change_nothing() {
    let disk = Disk::new("usage");
    let before = fs::read(&disk.0).unwrap();
    for (options, words) in [
        ("--blocks=1", "options of copy: --filename --disk --engine --door --rw"),
        ("--rw=randread", "copy, randcopy"),
        ("--bs=1000", "multiple of 512"),
        ("--bs=4k --size=3m", "pass the end of the disk"),
        ("--bs=4k --size=64k --dest_offset=32k", "overlap"),
    ] {
        let output = disk.copy(options);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options}: {text}");
        assert!(text.contains(words), "{options}: {text}");
        assert!(output.stdout.is_empty());
    }
    assert!(fs::read(&disk.0).unwrap() == before, "a refused load has written");
}

#[test]
fn a_file_that_is_not_there_is_a_failure() {
    let missing = Disk(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("missing"));
    let output = missing.copy("--bs=4k");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No such file"));
}
