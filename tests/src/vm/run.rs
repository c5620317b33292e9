//! One kernel's run: which tests go into which boot, and how long each step may take.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::guest::{Config, Guest, Received, console_log};
use super::report::Event;
use super::script::Script;
use super::skips::SkipList;
use super::verdict::{End, Point, Tally, Verdict};

/// From the start of QEMU until the agent runs. Four times what a busy machine needs.
const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// A boot that does not come up is tried again; a test never is.
const BOOT_TRIES: u32 = 2;
/// From the end of one test to the start of the next.
const GAP_LIMIT: Duration = Duration::from_secs(60);
/// What the agent may need beyond a test's limit, to see what is blocked or to look after what was left behind.
const GRACE: Duration = Duration::from_secs(60);
/// How long a guest that reported a hang may go on writing about it.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Boots that replace a guest which hung or died.
const REPLACEMENTS: u32 = 1;
/// Lines of the console that are shown when the guest is lost.
const CONSOLE_LINES: usize = 30;

/// Whether the guest can run the next test.
enum State {
    Usable,
    Lost,
    Finished,
}

/// Runs one kernel's tests and reports on `out`.
struct Run<'a> {
    config: &'a Config,
    verdict: Verdict<'a>,
    waiting: VecDeque<&'a Script>,
    boots: u32,
    out: &'a mut dyn Write,
}

/// Runs `scripts` under the kernel with this `release` and reports on `out`, in TAP's format.
///
/// # Errors
/// The log folder or `out` cannot be written. Whatever happens to the guest is a failed test instead.
pub fn run(
    config: &Config,
    release: &str,
    scripts: &[Script],
    skips: &SkipList,
    out: &mut dyn Write,
) -> Result<Tally> {
    fs::create_dir_all(&config.log).with_context(|| format!("cannot create {}", config.log.display()))?;
    let verdict = Verdict::new(&config.kernel, skips);
    let mut run = Run { config, verdict, waiting: VecDeque::new(), boots: 0, out };
    writeln!(run.out, "# kernel {} ({release}), log in {}", config.kernel, config.log.display())?;
    writeln!(run.out, "1..{}", scripts.len())?;
    for script in scripts {
        if script.applies_to(release) {
            run.waiting.push_back(script);
        } else {
            run.end(script, End::Skipped("the kernel is too old"), Duration::ZERO)?;
        }
    }
    let mut replacements = 0;
    while !run.waiting.is_empty() {
        match run.one_guest()? {
            State::Lost if replacements < REPLACEMENTS => replacements += 1,
            State::Usable | State::Lost | State::Finished => run.give_up()?,
        }
    }
    Ok(run.verdict.tally())
}

impl Run<'_> {
    /// Runs waiting tests in a new guest until none is left or the guest is lost.
    fn one_guest(&mut self) -> Result<State> {
        let Some(guest) = self.boot()? else {
            return Ok(State::Finished);
        };
        loop {
            match self.next(&guest)? {
                State::Usable => {}
                end @ (State::Lost | State::Finished) => return Ok(end),
            }
        }
    }

    /// Fails all that wait.
    fn give_up(&mut self) -> Result<()> {
        while let Some(script) = self.waiting.pop_front() {
            self.end(script, End::NotRun, Duration::ZERO)?;
        }
        Ok(())
    }

    fn boot(&mut self) -> Result<Option<Guest>> {
        let mut plan = String::new();
        let mut life = BOOT_LIMIT;
        for script in &self.waiting {
            let (seconds, path) = (script.limit.as_secs(), script.path.display());
            writeln!(plan, "{seconds}\t{}\t{path}\t{}", script.name, script.needs.join(" "))?;
            life += script.limit + GRACE + GAP_LIMIT;
        }
        fs::write(self.config.log.join("plan"), plan).context("cannot write the plan")?;
        for _ in 0..BOOT_TRIES {
            self.boots += 1;
            let started = Instant::now();
            let guest = Guest::start(self.config, self.boots, life)?;
            if is_ready(&guest, started + BOOT_LIMIT) {
                writeln!(self.out, "# boot {} took {:.0} s", self.boots, started.elapsed().as_secs_f64())?;
                return Ok(Some(guest));
            }
            writeln!(self.out, "# boot {} failed; the end of its console:", self.boots)?;
            drop(guest);
            for line in last_lines(&console_log(&self.config.log, self.boots)) {
                writeln!(self.out, "#   {line}")?;
            }
        }
        Ok(None)
    }

    /// Waits for the next test to start and follows it to its end.
    fn next(&mut self, guest: &Guest) -> Result<State> {
        let Some(&script) = self.waiting.front() else {
            return Ok(State::Finished);
        };
        let deadline = Instant::now() + GAP_LIMIT;
        loop {
            match guest.receive(deadline) {
                Received::Line(line) => match Event::parse(&line) {
                    Event::Begin { script: name } if name == script.name => {
                        self.waiting.pop_front();
                        return self.follow(guest, script);
                    }
                    Event::Missing { script: name, tools } if name == script.name => {
                        self.waiting.pop_front();
                        let reason = format!("needs {tools}");
                        self.end(script, End::Skipped(&reason), Duration::ZERO)?;
                        return Ok(State::Usable);
                    }
                    // The agent ran all it knows of: there is no use in waiting for this test.
                    Event::Done => return Ok(State::Finished),
                    _ => {}
                },
                Received::Silence | Received::Gone => {
                    self.waiting.pop_front();
                    self.show_console();
                    self.end(script, End::GuestDied, Duration::ZERO)?;
                    return Ok(State::Lost);
                }
            }
        }
    }

    /// Follows the running `script` to its end.
    fn follow(&mut self, guest: &Guest, script: &Script) -> Result<State> {
        let started = Instant::now();
        let deadline = started + script.limit + GRACE;
        let (end, state) = loop {
            match guest.receive(deadline) {
                Received::Line(line) => match Event::parse(&line) {
                    Event::Ok { what } => self.point(script, &what, Point::Ok)?,
                    Event::NotOk { what } => self.point(script, &what, Point::NotOk)?,
                    Event::Skip { what, reason } => self.point(script, &what, Point::Skip(&reason))?,
                    Event::End { script: name, status } if name == script.name => {
                        break (End::Status(status), State::Usable);
                    }
                    Event::Hang { script: name } if name == script.name => {
                        // The console may still be writing down what is blocked.
                        while let Received::Line(_) = guest.receive(Instant::now() + LAST_WORDS) {}
                        break (End::Hung, State::Lost);
                    }
                    _ => self.verdict.output(&line),
                },
                Received::Silence => {
                    self.verdict.output("the guest does not answer; what its kernel says of that:");
                    guest.dump_blocked_tasks();
                    self.show_console();
                    break (End::Hung, State::Lost);
                }
                Received::Gone => {
                    self.show_console();
                    break (End::GuestDied, State::Lost);
                }
            }
        };
        self.end(script, end, started.elapsed())?;
        Ok(state)
    }

    fn point(&mut self, script: &Script, what: &str, point: Point<'_>) -> Result<()> {
        let line = self.verdict.point(&script.name, what, point);
        writeln!(self.out, "{line}")?;
        Ok(())
    }

    fn end(&mut self, script: &Script, end: End<'_>, elapsed: Duration) -> Result<()> {
        let failed = self.verdict.tally().failed;
        for line in self.verdict.end(&script.name, end, elapsed) {
            writeln!(self.out, "{line}")?;
        }
        if self.verdict.tally().failed > failed && !matches!(end, End::NotRun) {
            writeln!(self.out, "# log: {}", self.config.log.display())?;
        }
        self.out.flush()?;
        Ok(())
    }

    /// Makes the end of the console part of the running test's output.
    fn show_console(&mut self) {
        for line in last_lines(&console_log(&self.config.log, self.boots)) {
            self.verdict.output(&line);
        }
    }
}

fn is_ready(guest: &Guest, deadline: Instant) -> bool {
    loop {
        match guest.receive(deadline) {
            Received::Line(line) if matches!(Event::parse(&line), Event::Ready { .. }) => return true,
            Received::Line(_) => {}
            Received::Silence | Received::Gone => return false,
        }
    }
}

fn last_lines(path: &Path) -> Vec<String> {
    // Without a console there is nothing to show, which is not a failure of its own.
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(CONSOLE_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}
