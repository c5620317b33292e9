//! How soon a volume of 1 TiB with a million extents is there again after its server was killed: `ublk add` on its file, with
//! what the last commit made durable and the redo log of what came after it.
//!
//! Uses the program `ublk` of the same build. Prints a table; with `BENCH_JSON` in the environment it also appends one JSON
//! object a line to that file.

use bench::aim::{Aim, report};
use bench::rounds::Spread;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use ublk_server::control::client::Client;

const ROUNDS: u64 = 7;
const EXTENTS: u64 = 1_000_000;
const BLOCK: u64 = 4096;
/// Blocks that are written; all others are copies of them. As many are copied by a command.
const WRITTEN: u64 = 256;
/// Extents that are new in the redo log in each round.
const FRESH: u64 = 10 * WRITTEN;

struct Bench {
    ublk: PathBuf,
    dir: PathBuf,
}

impl Bench {
    fn ublk(&self, args: &[&str]) -> String {
        let mut command = Command::new(&self.ublk);
        command.args(args).env("UBLK_STATE_DIR", self.dir.join("state")).stdin(Stdio::null());
        let output = command.output().expect("ublk runs");
        assert!(output.status.success(), "ublk {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("its output is text")
    }

    fn add(&self, more: &[&str]) {
        let file = self.dir.join("disk");
        let file = file.to_str().expect("a plain path");
        let args = ["add", "--no-ublk", "--pool", "v", "--name", "v", "-t", "file", "-f", file];
        self.ublk(&[&args[..], &["--copy-max-segments", "256"], more].concat());
    }

    fn info(&self) -> (Client, i32) {
        let info: Value = serde_json::from_str(&self.ublk(&["info", "-n", "v", "--json"])).expect("JSON");
        let pid = info["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a process");
        (Client::new(&self.dir.join("state/pools/v/control.sock")), pid)
    }

    fn kill(&self) {
        let (_, pid) = self.info();
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
        self.ublk(&["del", "-n", "v"]);
    }
}

/// Maps extents with these numbers: no two of them lie side by side.
fn map(client: &Client, numbers: std::ops::Range<u64>) {
    for first in numbers.step_by(WRITTEN as usize) {
        let segment = |n: u64| json!({"source": n % WRITTEN * BLOCK, "length": BLOCK, "destination": (WRITTEN + 2 * n) * BLOCK});
        let segments: Vec<Value> = (first..first + WRITTEN).map(segment).collect();
        let body = json!({"segments": segments, "one_command": true});
        let job: Value = client.send("POST", "/v1/disks/v/copies?wait=true", &body).expect("a copy");
        assert_eq!(job["state"], "done", "{job}");
    }
}

fn main() {
    let program = std::env::current_exe().expect("a program has a path");
    let ublk = program.parent().and_then(Path::parent).expect("it lies in a target folder").join("ublk");
    assert!(ublk.exists(), "{} is not there: cargo build --release -p ublk-server", ublk.display());
    let dir = std::env::temp_dir().join(format!("ublk-reopen-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let bench = Bench { ublk, dir };
    bench.add(&["--size", "1T"]);
    let (client, _) = bench.info();
    let data: Vec<u8> = (0..WRITTEN * BLOCK).map(|n| (n / BLOCK) as u8).collect();
    client.exchange("PUT", "/v1/disks/v/data?offset=0", &data).expect("a write");
    map(&client, 0..EXTENTS);
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let next = EXTENTS + WRITTEN + round * FRESH;
        map(&bench.info().0, next..next + FRESH);
        bench.kill();
        let begun = Instant::now();
        bench.add(&[]);
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let (client, _) = bench.info();
    let pool: Value = client.call("GET", "/v1/pool").expect("a pool");
    let extents = pool["usage"]["extents"].as_u64().expect("a number");
    assert!(extents >= EXTENTS + ROUNDS * FRESH, "{pool}");
    let last = EXTENTS + WRITTEN + ROUNDS * FRESH - 1;
    let offset = (WRITTEN + 2 * last) * BLOCK;
    let bytes = client
        .exchange("GET", &format!("/v1/disks/v/data?offset={offset}&length=4096"), b"")
        .expect("a read");
    let holds = |byte: &u8| u64::from(*byte) == last % WRITTEN;
    assert!(bytes.len() == BLOCK as usize && bytes.iter().all(holds), "the last extent is there");
    bench.ublk(&["del", "-n", "v"]);
    report(
        "`ublk add` of 1 TiB with 1 M extents after kill -9",
        "ms",
        Spread::of(times),
        Aim::AtMost(1000.0),
    );
    std::fs::remove_dir_all(&bench.dir).expect("the folder is ours");
}
