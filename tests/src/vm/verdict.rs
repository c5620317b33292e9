//! What the reports of the guest mean: counts, and the lines that a person reads.

use std::collections::VecDeque;
use std::time::Duration;

use super::skips::SkipList;

/// How many lines of a failed test's output are shown; the log has all.
const SHOWN_LINES: usize = 40;

/// Counts of tests. Every test point of a script is one test.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u32,
    /// Tests that failed, skips that are not allowed among them.
    pub failed: u32,
    /// Tests that were skipped, as `tests/skips.allow` allows.
    pub skipped: u32,
}

/// A test point as a script reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point<'a> {
    /// The test passed.
    Ok,
    /// The test failed.
    NotOk,
    /// The test was skipped for this reason.
    Skip(&'a str),
}

/// How a script came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End<'a> {
    /// It ended by itself with this exit status.
    Status(i32),
    /// It reached its limit.
    Hung,
    /// The guest went down while it ran.
    GuestDied,
    /// It was not started, for this reason, which may be an allowed skip.
    Skipped(&'a str),
    /// It was not started since the guest could not be brought back.
    NotRun,
}

/// Judges one kernel's run.
#[derive(Debug)]
pub struct Verdict<'a> {
    kernel: &'a str,
    skips: &'a SkipList,
    tally: Tally,
    scripts: u32,
    current: Current,
}

/// What the running script reported so far.
#[derive(Debug, Default)]
struct Current {
    points: u32,
    failed: u32,
    output: VecDeque<String>,
}

impl<'a> Verdict<'a> {
    /// A verdict on no test yet. `kernel` is a part of the names of skipped tests.
    #[must_use]
    pub fn new(kernel: &'a str, skips: &'a SkipList) -> Self {
        Self { kernel, skips, tally: Tally::default(), scripts: 0, current: Current::default() }
    }

    /// The counts so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Takes a line of the running script's output.
    pub fn output(&mut self, line: &str) {
        if self.current.output.len() == SHOWN_LINES {
            self.current.output.pop_front();
        }
        self.current.output.push_back(line.to_owned());
    }

    /// Takes a test point of the running `script`; returns the line to print.
    pub fn point(&mut self, script: &str, what: &str, point: Point<'_>) -> String {
        self.current.points += 1;
        let line = match point {
            Point::Ok => {
                self.tally.passed += 1;
                format!("    ok - {what}")
            }
            Point::NotOk => self.fail(what),
            Point::Skip(reason) if self.skips.allows(&format!("vm/{}/{script}/{what}", self.kernel)) => {
                self.tally.skipped += 1;
                format!("    ok - {what} # SKIP {reason}")
            }
            Point::Skip(reason) => {
                self.fail(&format!("{what} # skipped, which tests/skips.allow does not list: {reason}"))
            }
        };
        // The point's place in the output is what a reader of a failure looks for.
        self.output(line.trim_start());
        line
    }

    /// Ends `script`, which took `elapsed`; returns the lines to print.
    pub fn end(&mut self, script: &str, end: End<'_>, elapsed: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        let mut skip = None;
        match end {
            End::Status(_) if self.current.points == 0 => lines.push(self.fail("reports at least one test")),
            End::Status(0) => {}
            // A script that reported what is wrong may end with any status.
            End::Status(_) if self.current.failed > 0 => {}
            End::Status(status) => lines.push(self.fail(&format!("ends with status 0, not {status}"))),
            End::Hung => lines.push(self.fail("ends within its limit")),
            End::GuestDied => lines.push(self.fail("leaves the guest alive")),
            End::NotRun => lines.push(self.fail("not run: the guest could not be brought back")),
            End::Skipped(reason) if self.skips.allows(&format!("vm/{}/{script}", self.kernel)) => {
                self.tally.skipped += 1;
                skip = Some(reason);
            }
            End::Skipped(reason) => {
                lines.push(self.fail(&format!("skipped, which tests/skips.allow does not list: {reason}")));
            }
        }
        self.scripts += 1;
        let word = if self.current.failed == 0 { "ok" } else { "not ok" };
        let note = match skip {
            Some(reason) => format!("SKIP {reason}"),
            None => format!("{:.1} s", elapsed.as_secs_f64()),
        };
        lines.push(format!("{word} {} - {script} # {note}", self.scripts));
        if self.current.failed > 0 {
            lines.extend(self.current.output.iter().map(|line| format!("#   {line}")));
        }
        self.current = Current::default();
        lines
    }

    fn fail(&mut self, what: &str) -> String {
        self.tally.failed += 1;
        self.current.failed += 1;
        format!("    not ok - {what}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u32, failed: u32, skipped: u32) -> Tally {
        Tally { passed, failed, skipped }
    }

    fn end(points: &[Point<'_>], end: End<'_>) -> (Tally, String) {
        let skips = SkipList::parse("vm/7.x/20-a  r\nvm/7.x/20-a/listed r\n").unwrap();
        let mut verdict = Verdict::new("7.x", &skips);
        for &point in points {
            verdict.point("20-a", "listed", point);
        }
        let lines = verdict.end("20-a", end, Duration::from_millis(1234));
        (verdict.tally(), lines.join("\n"))
    }

    #[test]
    fn every_point_is_a_test() {
        let (counts, lines) = end(&[Point::Ok, Point::Ok, Point::Skip("r")], End::Status(0));
        assert_eq!(counts, tally(2, 0, 1));
        assert_eq!(lines, "ok 1 - 20-a # 1.2 s");
        let (counts, lines) = end(&[Point::Ok, Point::NotOk], End::Status(1));
        assert_eq!(counts, tally(1, 1, 0));
        assert!(
            lines.starts_with("not ok 1 - 20-a # 1.2 s\n#   ok - listed\n#   not ok - listed"),
            "{lines}"
        );
    }

    #[test]
    fn ends_that_are_failures_of_their_own() {
        for ending in [End::Status(1), End::Hung, End::GuestDied, End::NotRun] {
            assert_eq!(end(&[Point::Ok], ending).0, tally(1, 1, 0), "{ending:?}");
        }
        for ending in [End::Status(0), End::Status(1), End::Hung, End::GuestDied, End::NotRun] {
            assert_eq!(end(&[], ending).0, tally(0, 1, 0), "{ending:?}");
        }
    }

    #[test]
    fn only_listed_skips_are_skips() {
        let (counts, lines) = end(&[], End::Skipped("no tool"));
        assert_eq!(counts, tally(0, 0, 1));
        assert_eq!(lines, "ok 1 - 20-a # SKIP no tool");

        let none = SkipList::default();
        let mut verdict = Verdict::new("7.x", &none);
        verdict.point("20-a", "x", Point::Skip("r"));
        verdict.end("20-a", End::Status(0), Duration::ZERO);
        verdict.end("30-b", End::Skipped("no tool"), Duration::ZERO);
        assert_eq!(verdict.tally(), tally(0, 2, 0));
    }

    #[test]
    fn a_failure_shows_the_last_lines_of_its_own_output() {
        let none = SkipList::default();
        let mut verdict = Verdict::new("7.x", &none);
        verdict.output("of the first");
        verdict.end("10-a", End::Hung, Duration::ZERO);
        for number in 0..=SHOWN_LINES {
            verdict.output(&number.to_string());
        }
        let lines = verdict.end("20-b", End::Hung, Duration::ZERO);
        let shown: Vec<_> = lines.iter().filter(|line| line.starts_with("#   ")).collect();
        assert_eq!(shown.len(), SHOWN_LINES);
        assert_eq!(shown[0], "#   1");
    }
}
