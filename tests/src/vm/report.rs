//! The lines by which the guest reports.

/// A line from the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The agent runs, under the kernel with this release.
    Ready {
        /// As `uname -r` prints it.
        release: String,
    },
    /// A test starts.
    Begin {
        /// The script's name.
        script: String,
    },
    /// A test point passed.
    Ok {
        /// What was tested.
        what: String,
    },
    /// A test point failed.
    NotOk {
        /// What was tested.
        what: String,
    },
    /// A test point was skipped.
    Skip {
        /// What would have been tested.
        what: String,
        /// Why it was not.
        reason: String,
    },
    /// A test's script ended.
    End {
        /// The script's name.
        script: String,
        /// Its exit status.
        status: i32,
    },
    /// A test did not start because commands are missing.
    Missing {
        /// The script's name.
        script: String,
        /// The commands, separated by blanks.
        tools: String,
    },
    /// A test reached its limit; what is blocked was printed before.
    Hang {
        /// The script's name.
        script: String,
    },
    /// All tests of the plan were run.
    Done,
    /// Any other line: output of the test.
    Output(String),
}

impl Event {
    /// Reads one line. A line that begins like a report and is none counts as output.
    #[must_use]
    pub fn parse(line: &str) -> Self {
        line.strip_prefix("@ ").and_then(report).unwrap_or_else(|| Self::Output(line.to_owned()))
    }
}

fn report(line: &str) -> Option<Event> {
    let what = |prefix| line.strip_prefix(prefix).map(str::to_owned);
    if let Some(what) = what("ok - ") {
        return Some(Event::Ok { what });
    }
    if let Some(what) = what("not ok - ") {
        return Some(Event::NotOk { what });
    }
    if let Some(point) = line.strip_prefix("skip - ") {
        let (what, reason) = point.split_once(": ")?;
        return Some(Event::Skip { what: what.to_owned(), reason: reason.to_owned() });
    }
    if let Some(release) = what("ready ") {
        return Some(Event::Ready { release });
    }
    if let Some(script) = what("begin ") {
        return Some(Event::Begin { script });
    }
    if let Some(script) = what("hang ") {
        return Some(Event::Hang { script });
    }
    if let Some(end) = line.strip_prefix("end ") {
        let (script, status) = end.split_once(' ')?;
        return Some(Event::End { script: script.to_owned(), status: status.parse().ok()? });
    }
    if let Some(missing) = line.strip_prefix("missing ") {
        let (script, tools) = missing.split_once(' ')?;
        return Some(Event::Missing { script: script.to_owned(), tools: tools.to_owned() });
    }
    (line == "done").then_some(Event::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_report_is_read() {
        let text = str::to_owned;
        for (line, expected) in [
            ("@ ready 6.12.1", Event::Ready { release: text("6.12.1") }),
            ("@ begin 10-x", Event::Begin { script: text("10-x") }),
            ("@ ok - a: b", Event::Ok { what: text("a: b") }),
            ("@ not ok - a", Event::NotOk { what: text("a") }),
            ("@ skip - a: b: c", Event::Skip { what: text("a"), reason: text("b: c") }),
            ("@ end 10-x 3", Event::End { script: text("10-x"), status: 3 }),
            ("@ missing 10-x fio nvme", Event::Missing { script: text("10-x"), tools: text("fio nvme") }),
            ("@ hang 10-x", Event::Hang { script: text("10-x") }),
            ("@ done", Event::Done),
        ] {
            assert_eq!(Event::parse(line), expected);
        }
    }

    #[test]
    fn everything_else_is_output() {
        for line in
            ["", "ok - a", "@ok - a", "@ end 10-x", "@ end 10-x x", "@ skip - no reason", "@ done now"]
        {
            assert_eq!(Event::parse(line), Event::Output(line.to_owned()));
        }
    }
}
