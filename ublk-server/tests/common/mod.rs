//! A state directory of its own for each test, the real program in it, and the end of every server it started.

// Each test program uses its own part of this.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use ublk_server::control::client::Client;
use ublk_server::state::State;

/// The longest run of one command.
const COMMAND_MAX: Duration = Duration::from_secs(60);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// What a command did.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A place for one test.
pub(crate) struct Env {
    pub(crate) dir: PathBuf,
    pub(crate) state: PathBuf,
}

impl Env {
    pub(crate) fn new() -> Self {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("ublk-test-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let state = dir.join("state");
        Self { dir, state }
    }

    /// A command, not started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ublk"));
        command.args(args).env("UBLK_STATE_DIR", &self.state).stdin(Stdio::null());
        command
    }

    /// Starts a command with its output in pipes.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs a command to its end.
    pub(crate) fn ublk(&self, args: &[&str]) -> Output {
        finish(self.start(args), args)
    }

    /// Runs a command that must succeed, and gives what it printed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.ublk(args);
        assert_eq!(output.code, 0, "ublk {args:?}: {output:?}");
        output.stdout
    }

    /// Makes a disk without a block device in a pool of its own name.
    pub(crate) fn disk(&self, name: &str, more: &[&str]) {
        let mut args = vec!["add", "--no-ublk", "--name", name, "--pool", name, "--memory", "256M"];
        args.extend(more);
        assert_eq!(self.ok(&args), format!("{name}\n"));
    }

    pub(crate) fn state(&self) -> State {
        State::at(self.state.clone()).unwrap()
    }

    pub(crate) fn socket(&self, pool: &str) -> PathBuf {
        self.state.join("pools").join(pool).join("control.sock")
    }

    pub(crate) fn client(&self, pool: &str) -> Client {
        Client::new(&self.socket(pool))
    }

    /// Sends bytes to a pool's socket and reads the answer to its end. `cut` closes the sending side first.
    pub(crate) fn raw(&self, pool: &str, request: &[u8], cut: bool) -> String {
        let mut stream = UnixStream::connect(self.socket(pool)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // A server that has had enough closes: what it said before counts.
        let _ = stream.write_all(request);
        if cut {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Ends the server of a pool the hard way and waits until it is gone.
    pub(crate) fn kill_server(&self, pool: &str) {
        let record = self.state().pool(pool).unwrap().unwrap();
        kill(record.process.pid, rustix::process::Signal::KILL);
        assert!(record.process.wait_for_end(Duration::from_secs(10)));
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        if let Ok(state) = State::at(self.state.clone()) {
            for record in state.pools().unwrap_or_default() {
                if record.process.alive() {
                    kill(record.process.pid, rustix::process::Signal::KILL);
                }
            }
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub(crate) fn kill(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Waits for the end of a command, never long.
pub(crate) fn finish(mut child: Child, args: &[&str]) -> Output {
    let mut pipes = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let out = std::thread::spawn(move || read(&mut pipes.0));
    let err = std::thread::spawn(move || read(&mut pipes.1));
    let end = Instant::now() + COMMAND_MAX;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > end => {
                child.kill().unwrap();
                panic!("ublk {args:?} did not end within {} s", COMMAND_MAX.as_secs());
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    // The pipes end with the command: no server keeps them.
    let ended = Instant::now();
    while !(out.is_finished() && err.is_finished()) {
        assert!(ended.elapsed() < Duration::from_secs(5), "ublk {args:?}: something keeps its output open");
        std::thread::sleep(Duration::from_millis(1));
    }
    Output { code: status.code().unwrap_or(-1), stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

fn read(pipe: &mut impl Read) -> String {
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    text
}

/// Waits for something that must come.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < end, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Compares with `tests/golden/NAME`; with UBLK_BLESS set, writes it.
pub(crate) fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UBLK_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; UBLK_BLESS=1 writes it", path.display()));
    let differs = text.lines().zip(expected.lines()).find(|(is, was)| is != was);
    assert!(
        text == expected,
        "{} differs, first at {differs:?}; UBLK_BLESS=1 writes it anew; the text is now:\n{text}",
        path.display()
    );
}
