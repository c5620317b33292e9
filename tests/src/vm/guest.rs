//! A virtual machine that `tests/vm/boot` runs, and the lines it sends.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Bytes after which a line is cut in two, so that output without line ends stays bounded in memory.
const LONGEST_LINE: u64 = 64 << 10;

/// What to boot.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder `tests/vm`.
    pub scripts: PathBuf,
    /// Name of the kernel, as `tests/vm/setup` knows it.
    pub kernel: String,
    /// Number of processors.
    pub cpus: u32,
    /// Memory, as QEMU writes it.
    pub memory: String,
    /// Where the plan, the guest's output and the console go.
    pub log: PathBuf,
    /// Folder of the binaries to test.
    pub bin: PathBuf,
}

/// What came from the guest.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A line, without its end.
    Line(String),
    /// Nothing in the time given.
    Silence,
    /// The guest is gone and everything it sent was received.
    Gone,
}

/// A running guest. It ends when this is dropped.
#[derive(Debug)]
pub struct Guest {
    boot: Child,
    // `boot --tied` ends the guest when this is closed, which also happens if this process dies.
    tie: Option<ChildStdin>,
    lines: Receiver<String>,
    monitor: PathBuf,
}

impl Guest {
    /// Starts the guest with its agent on the plan in the log folder. `generation` tells the boots of one
    /// run apart; `limit` is the longest the guest may live.
    ///
    /// # Errors
    /// The log cannot be written or `boot` cannot be started.
    pub fn start(config: &Config, generation: u32, limit: Duration) -> Result<Self> {
        let log = &config.log;
        // The path of a socket is limited to 107 bytes, which a log folder may exceed.
        let monitor = std::env::temp_dir().join(format!("vmrun-{}-{generation}.monitor", std::process::id()));
        let mut boot = Command::new(config.scripts.join("boot"))
            .args(["--tied", "--nvme", "--kernel", &config.kernel, "--memory", &config.memory])
            .args(["--cpus", &config.cpus.to_string(), "--timeout", &limit.as_secs().to_string()])
            .arg("--console")
            .arg(console_log(log, generation))
            .arg("--monitor")
            .arg(&monitor)
            .args(["--", "bash"])
            .arg(config.scripts.join("guest-agent.sh"))
            .arg(log.join("plan"))
            .arg(&config.bin)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start tests/vm/boot")?;
        let output = boot.stdout.take().context("boot has no output")?;
        let tie = boot.stdin.take();
        let copy =
            File::options().append(true).create(true).open(guest_log(log)).context("cannot write the log")?;
        let (sender, lines) = channel();
        // Ends with the output, which ends with the guest.
        thread::spawn(move || forward(output, copy, |line| sender.send(line).is_ok()));
        Ok(Self { boot, tie, lines, monitor })
    }

    /// Waits for a line until `deadline`.
    pub fn receive(&self, deadline: Instant) -> Received {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Received::Line(line),
            Err(RecvTimeoutError::Timeout) => Received::Silence,
            Err(RecvTimeoutError::Disconnected) => Received::Gone,
        }
    }

    /// Has the kernel write its blocked tasks and what each processor does to the console, for a guest
    /// whose agent does not answer, and waits for it to be written. A guest that cannot be reached says nothing.
    pub fn dump_blocked_tasks(&self) {
        let Ok(mut monitor) = UnixStream::connect(&self.monitor) else {
            return;
        };
        for key in ["l", "w"] {
            // Held for longer than the emulated keyboard needs to pass it on.
            if monitor.write_all(format!("sendkey alt-sysrq-{key} 500\n").as_bytes()).is_err() {
                return;
            }
            thread::sleep(Duration::from_secs(3));
        }
    }

    /// Ends the guest, waiting a bounded time for all its processes to go.
    pub fn kill(&mut self) {
        drop(self.tie.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while matches!(self.boot.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                // Nothing else is left to try, and an error means that it is gone.
                let _ = self.boot.kill();
                let _ = self.boot.wait();
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        // Absent when the guest never came up.
        let _ = std::fs::remove_file(&self.monitor);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The log of everything that tests wrote, in the log folder `log`.
#[must_use]
pub fn guest_log(log: &Path) -> PathBuf {
    log.join("guest.log")
}

/// The kernel's console of boot number `generation`, in the log folder `log`.
#[must_use]
pub fn console_log(log: &Path, generation: u32) -> PathBuf {
    log.join(format!("console-{generation}.log"))
}

/// Copies `output` to the log and passes its lines on until either end is closed. What is not UTF-8 is
/// replaced, since a test may print anything.
fn forward(output: impl Read, mut copy: File, send: impl Fn(String) -> bool) {
    let mut output = BufReader::new(output);
    let mut bytes = Vec::new();
    while output.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes).is_ok_and(|length| length > 0) {
        let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned();
        // A full disk must not cost the verdict.
        let _ = copy.write_all(&bytes);
        if !send(line) {
            return;
        }
        bytes.clear();
    }
}
