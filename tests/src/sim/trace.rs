//! What happened, as a hash that two runs of a seed must share, and as lines for people where they are wanted.

use super::prng::mix;
use emulation::{Completion, Next, Op, Plan, Request, Step};

/// The trace of a run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// An empty trace; `readable`: with lines.
    pub fn new(readable: bool) -> Self {
        Self { hash: 0, lines: readable.then(Vec::new) }
    }

    /// The hash of everything so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines so far.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }

    /// Adds a line, made only when somebody reads it.
    pub fn line(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }

    /// Adds a number to the hash.
    pub fn number(&mut self, number: u64) {
        self.hash = mix(self.hash.rotate_left(5) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    /// A request begins.
    pub fn request(&mut self, request: &Request) {
        self.number(request.id.0);
        self.number(u64::from(request.volume.0));
        match &request.op {
            Op::Read(range) | Op::Write(range) | Op::Discard(range) | Op::WriteZeroes(range) => {
                self.number(range.start.0 ^ range.len.0.rotate_left(40));
            }
            Op::Copy(command) => {
                for segment in &command.segments {
                    self.number(segment.source.start.0 ^ segment.source.len.0.rotate_left(40));
                    self.number(segment.destination.0 ^ u64::from(segment.source_volume.0).rotate_left(40));
                }
            }
            Op::ZoneMgmt { zone, action } => self.number(zone.0 ^ (*action as u64).rotate_left(40)),
            Op::ReportZones { from, max } => self.number(from.0 ^ u64::from(*max).rotate_left(40)),
            Op::Flush | Op::ZoneResetAll => {}
        }
        self.line(|| format!("begin {}", describe(request)));
    }

    /// The device answers.
    pub fn answer(&mut self, id: u64, next: &Next) {
        self.number(id);
        match next {
            Next::Wait => self.number(1),
            Next::Done(completion) => self.completion(completion),
            Next::Run(plan) => self.plan(plan),
        }
        self.line(|| match next {
            Next::Wait => format!("  {id}: wait"),
            Next::Done(completion) => format!("  {}: {}", short(id), describe_completion(completion)),
            Next::Run(plan) => format!("  {}: {}", short(id), describe_plan(plan)),
        });
    }

    fn completion(&mut self, completion: &Completion) {
        self.number(2 + completion.status.why().len() as u64);
        self.number(completion.bytes.0);
        self.number(completion.first_failed_segment.map_or(u64::MAX, u64::from));
        self.number(completion.appended_at.map_or(u64::MAX, |at| at.0));
        completion
            .zones
            .iter()
            .for_each(|zone| self.number(zone.wp.0 ^ (zone.condition as u64).rotate_left(40)));
    }

    fn plan(&mut self, plan: &Plan) {
        self.number(plan.id.0);
        for step in &plan.steps {
            let (a, b, c) = match step {
                Step::Read { from, port } => (from.start.0, from.len.0, port.0),
                Step::ReadFlipped { port, len, bit, .. } => (u64::from(*bit), port.0, len.0),
                Step::ReadZeroes { port, len } => (1, port.0, len.0),
                Step::Write { port, to } => (to.start.0, to.len.0, port.0 + 2),
                Step::Move { from, to, .. } => (from.start.0, from.len.0, to.0 + 3),
                Step::Zero { at, unmap } => (at.start.0, at.len.0, 4 + u64::from(*unmap)),
                Step::Trim { at } => (at.start.0, at.len.0, 6),
                Step::Sync => (7, 0, 0),
                Step::Commit(commit) => (commit.changes.len() as u64, commit.sequence, 8),
            };
            self.number(a ^ b.rotate_left(24) ^ c.rotate_left(44));
        }
    }
}

/// A request for people: who, what, where.
pub fn describe(request: &Request) -> String {
    let mut flags = String::new();
    for (flag, name) in [
        (emulation::Flags::FUA, " FUA"),
        (emulation::Flags::NOUNMAP, " NOUNMAP"),
        (emulation::Flags::FAST_ONLY, " FAST_ONLY"),
        (emulation::Flags::MAY_OVERLAP, " MAY_OVERLAP"),
        (emulation::Flags::APPEND, " APPEND"),
    ] {
        if request.flags.has(flag) {
            flags.push_str(name);
        }
    }
    let what = match &request.op {
        Op::Read(range) => format!("read {range}"),
        Op::Write(range) => format!("write {range}"),
        Op::Flush => "flush".into(),
        Op::Discard(range) => format!("discard {range}"),
        Op::WriteZeroes(range) => format!("write zeroes {range}"),
        Op::Copy(command) => {
            let segments = command.segments.iter().map(|segment| {
                format!("v{}:{}->{}", segment.source_volume.0, segment.source, segment.destination.0)
            });
            format!("copy {}", segments.collect::<Vec<_>>().join(" "))
        }
        Op::ZoneMgmt { zone, action } => format!("{action:?} the zone at {}", zone.0),
        Op::ZoneResetAll => "reset all zones".into(),
        Op::ReportZones { from, max } => format!("report {max} zones from {}", from.0),
    };
    format!("request {} v{} {what}{flags}", request.id.0, request.volume.0)
}

fn describe_completion(completion: &Completion) -> String {
    let failed =
        completion.first_failed_segment.map_or(String::new(), |index| format!(", segment {index} first"));
    format!("done {} {} sectors{failed}", completion.status.name(), completion.bytes.whole_sectors().0)
}

fn describe_plan(plan: &Plan) -> String {
    let steps = plan.steps.iter().map(|step| match step {
        Step::Read { from, port } => format!("read p{}+{} to {}", from.start.0, from.len.0, port.0),
        Step::ReadFlipped { from, len, port, bit } => {
            format!("read {from:?}+{} to {} with bit {bit} wrong", len.0, port.0)
        }
        Step::ReadZeroes { port, len } => format!("zeroes to {}+{}", port.0, len.0),
        Step::Write { port, to } => format!("write {} to p{}+{}", port.0, to.start.0, to.len.0),
        Step::Move { from, to, reason } => {
            format!("move p{}+{} to p{} {reason:?}", from.start.0, from.len.0, to.0)
        }
        Step::Zero { at, .. } => format!("zero p{}+{}", at.start.0, at.len.0),
        Step::Trim { at } => format!("trim p{}+{}", at.start.0, at.len.0),
        Step::Sync => "sync".into(),
        Step::Commit(commit) => format!("commit {commit:?}"),
    });
    format!("plan {} [{}]", plan.id.0, steps.collect::<Vec<_>>().join("; "))
}

/// A request's number; those of the device's own work count from their own start.
fn short(id: u64) -> String {
    let internal = emulation::RequestId::INTERNAL;
    if id >= internal { format!("own work {}", id - internal) } else { id.to_string() }
}
