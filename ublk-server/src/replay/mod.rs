//! Traces of block I/O, line by line: the formats that are about, and the rules by which an entry becomes a request of a
//! disk. Nothing is read ahead: a trace may be larger than memory.

mod formats;
pub mod live;
pub mod sim;

pub use formats::{Format, Options as FormatOptions};

use emulation::Nanos;
use std::io::{self, BufRead};

/// What a trace says was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read.
    Read,
    /// Written.
    Write,
    /// Discarded.
    Discard,
    /// Flushed; has no range.
    Flush,
}

impl Action {
    /// Every action, in the order of tables.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Discard, Self::Flush];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Flush => "flush",
        }
    }
}

/// An entry of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, on the clock of the trace.
    pub at: Nanos,
    /// What.
    pub action: Action,
    /// The first byte.
    pub offset: u64,
    /// So many bytes.
    pub length: u64,
    /// The disk or file that the trace names; empty where it names none.
    pub device: String,
}

/// A line that is none of its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

/// The longest line of a trace.
const LINE_MAX: u64 = 64 << 10;

/// A trace that is being read.
#[derive(Debug)]
pub struct Trace<R> {
    reader: R,
    parser: formats::Parser,
    line: u64,
}

impl<R: BufRead> Trace<R> {
    /// A trace in a format, at its first line.
    pub fn new(format: Format, options: formats::Options, reader: R) -> Self {
        Self { reader, parser: formats::Parser::new(format, options), line: 0 }
    }

    /// The next entry, or a line that is none. `None` at the end.
    ///
    /// # Errors
    /// The trace cannot be read.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator could not tell a broken file from a broken line"
    )]
    pub fn next(&mut self) -> io::Result<Option<Result<Entry, Malformed>>> {
        let mut text = Vec::new();
        loop {
            text.clear();
            let read = io::Read::take(&mut self.reader, LINE_MAX).read_until(b'\n', &mut text)?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            let malformed = |why: String| Ok(Some(Err(Malformed { line: self.line, why })));
            if read as u64 == LINE_MAX && text.last() != Some(&b'\n') {
                skip_line(&mut self.reader)?;
                return malformed(format!("longer than {LINE_MAX} bytes"));
            }
            let Ok(line) = std::str::from_utf8(&text) else {
                return malformed("not UTF-8".to_string());
            };
            let line = line.trim_end_matches(['\n', '\r']);
            match self.parser.line(line) {
                Ok(Some(entry)) => return Ok(Some(Ok(entry))),
                Ok(None) => {}
                Err(why) => return malformed(why),
            }
        }
    }
}

fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        let (used, ended) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        reader.consume(used);
        if ended {
            return Ok(());
        }
    }
}

/// A request of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When, from the first entry on; never before the one before it.
    pub at: Nanos,
    /// What.
    pub action: Action,
    /// The first byte: whole blocks, within the disk.
    pub offset: u64,
    /// So many bytes; 0 for a flush.
    pub length: u64,
}

/// What was done to make entries fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fitted {
    /// Begin beyond the end of the disk: taken modulo its size.
    pub wrapped: u64,
    /// Reach beyond its end: cut there.
    pub cut: u64,
    /// Were no whole blocks: widened to those that they touch.
    pub widened: u64,
    /// Were before the entry that they follow: done with it.
    pub out_of_order: u64,
}

/// Makes entries fit a disk.
#[derive(Debug)]
pub struct Fit {
    size: u64,
    block: u64,
    first: Option<u64>,
    last: u64,
    /// What was done.
    pub fitted: Fitted,
}

impl Fit {
    /// For a disk of `size` bytes in blocks of `block`; both are above 0.
    pub fn new(size: u64, block: u64) -> Self {
        assert!(size >= block && block > 0, "a disk has a block");
        Self { size: size / block * block, block, first: None, last: 0, fitted: Fitted::default() }
    }

    /// The request of an entry.
    pub fn fit(&mut self, entry: &Entry) -> Planned {
        let first = *self.first.get_or_insert(entry.at.0);
        let at = match entry.at.0.checked_sub(first).filter(|at| *at >= self.last) {
            Some(at) => at,
            None => {
                self.fitted.out_of_order += 1;
                self.last
            }
        };
        self.last = at;
        let at = Nanos(at);
        if entry.action == Action::Flush {
            return Planned { at, action: Action::Flush, offset: 0, length: 0 };
        }
        let mut offset = entry.offset;
        if offset >= self.size {
            self.fitted.wrapped += 1;
            offset %= self.size;
        }
        let start = offset / self.block * self.block;
        let exact = offset.saturating_add(entry.length);
        let end = exact.div_ceil(self.block).saturating_mul(self.block);
        self.fitted.widened += u64::from(start != offset || end != exact);
        self.fitted.cut += u64::from(end > self.size);
        Planned { at, action: entry.action, offset: start, length: end.min(self.size) - start }
    }
}

#[cfg(test)]
mod tests {
    use super::formats::Options;
    use super::*;

    /// Everything that a trace says, and the lines that it does not say well.
    pub(super) fn read(format: Format, text: &str) -> (Vec<Entry>, Vec<(u64, String)>) {
        let mut trace = Trace::new(format, Options::default(), text.as_bytes());
        let (mut entries, mut malformed) = (Vec::new(), Vec::new());
        while let Some(next) = trace.next().unwrap() {
            match next {
                Ok(entry) => entries.push(entry),
                Err(Malformed { line, why }) => malformed.push((line, why)),
            }
        }
        (entries, malformed)
    }

    #[test]
    fn lines_that_are_too_long_or_no_text_are_numbered_and_the_next_one_counts() {
        let long = "9".repeat(200_000);
        let text = format!("0,R,0,512,{long}\n1,R,0,512,1\n");
        let (entries, malformed) = read(Format::Alibaba, &text);
        assert_eq!((entries.len(), malformed), (1, vec![(1, "longer than 65536 bytes".to_string())]));
        let mut trace = Trace::new(Format::Msr, Options::default(), &b"\xff\xfe\n"[..]);
        let Some(Err(malformed)) = trace.next().unwrap() else { panic!("taken") };
        assert_eq!(malformed, Malformed { line: 1, why: "not UTF-8".to_string() });
    }

    #[test]
    fn entries_are_made_to_fit_and_what_was_done_is_counted() {
        let mut fit = Fit::new(1 << 20, 4096);
        let entry = |at, offset, length| Entry {
            at: Nanos(at),
            action: Action::Write,
            offset,
            length,
            device: String::new(),
        };
        let planned = |at, offset, length| Planned { at: Nanos(at), action: Action::Write, offset, length };
        assert_eq!(fit.fit(&entry(1000, 4096, 4096)), planned(0, 4096, 4096));
        assert_eq!(fit.fit(&entry(1500, 512, 4096)), planned(500, 0, 8192));
        assert_eq!(fit.fit(&entry(1200, (1 << 20) + 4096, 512)), planned(500, 4096, 4096));
        assert_eq!(fit.fit(&entry(2000, (1 << 20) - 4096, 8192)), planned(1000, (1 << 20) - 4096, 4096));
        assert_eq!(fit.fit(&entry(2000, u64::MAX, u64::MAX)).length % 4096, 0);
        assert_eq!(fit.fitted, Fitted { wrapped: 2, cut: 2, widened: 3, out_of_order: 1 });
    }
}
