//! The log that the kernel's dm-log-writes keeps of what reached a device: reading it and doing it again, up to any flush.
//! What is durable at a flush has to be there in a replay up to it.
//!
//! The layout is that of the kernel's `drivers/md/dm-log-writes.c`: a super sector, then for each entry a sector that
//! describes it (with the text of a mark behind it) and its data.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
/// The bytes of an entry before the text of a mark.
const ENTRY: usize = 32;
/// The most bytes of one entry: what a bio can carry, and more.
const DATA_MAX: u64 = 1 << 30;

/// What an entry does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Bytes to a place; the log has them at another.
    Write {
        /// Where they went.
        to: u64,
        /// Where the log has them.
        at: u64,
        /// So many.
        len: u64,
    },
    /// Bytes that are not needed any more.
    Discard {
        /// The first of them.
        to: u64,
        /// So many.
        len: u64,
    },
    /// What somebody said.
    Mark(String),
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it does.
    pub action: Action,
    /// Everything before it was flushed.
    pub flush: bool,
}

/// Reads a log.
///
/// # Errors
/// It cannot be read, or is none.
pub fn read(log: &impl ReadAt) -> io::Result<Vec<Entry>> {
    let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut head = [0; 32];
    log.read_at(&mut head, 0)?;
    let long = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    if long(&head, 0) != MAGIC || long(&head, 8) != VERSION {
        return Err(bad("no log of dm-log-writes".into()));
    }
    let count = long(&head, 16);
    let sector = u64::from(u32::from_le_bytes(head[24..28].try_into().expect("4 bytes")));
    if !sector.is_power_of_two() || !(512..=4096).contains(&sector) {
        return Err(bad(format!("sectors of {sector} bytes")));
    }
    let mut entries = Vec::new();
    let mut at = sector;
    for number in 0..count {
        let wrong = |what: &str| bad(format!("entry {number}: {what}"));
        let mut bytes = vec![0; sector as usize];
        log.read_at(&mut bytes, at)?;
        let (place, sectors, flags, text) =
            (long(&bytes, 0), long(&bytes, 8), long(&bytes, 16), long(&bytes, 24));
        let to = place.checked_mul(sector).ok_or_else(|| wrong("its place"))?;
        let len = sectors.checked_mul(sector).filter(|len| flags & DISCARD != 0 || *len <= DATA_MAX);
        let len = len.filter(|len| to.checked_add(*len).is_some()).ok_or_else(|| wrong("its length"))?;
        at += sector;
        let action = if flags & MARK != 0 {
            let end = usize::try_from(text).ok().and_then(|len| len.checked_add(ENTRY));
            let text = end.and_then(|end| bytes.get(ENTRY..end)).ok_or_else(|| wrong("its mark"))?;
            Action::Mark(String::from_utf8_lossy(text).trim_end_matches('\0').to_string())
        } else if flags & DISCARD != 0 {
            Action::Discard { to, len }
        } else {
            let write = Action::Write { to, at, len };
            at += len;
            write
        };
        entries.push(Entry { action, flush: flags & FLUSH != 0 });
    }
    Ok(entries)
}

/// Where a log can be read.
pub trait ReadAt {
    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// It ends before, or cannot be read.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The entries of the first `flushes` flushes, the last of them included.
pub fn until_flush(entries: &[Entry], flushes: usize) -> &[Entry] {
    let ends = entries.iter().enumerate().filter(|(_, entry)| entry.flush).map(|(index, _)| index + 1);
    &entries[..[0].into_iter().chain(ends).nth(flushes).unwrap_or(entries.len())]
}

/// What was acknowledged: rounds of changes, each of which was flushed as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// By round: the blocks that it changed, each with the version that it gave them.
    pub rounds: Vec<Vec<(u64, u64)>>,
}

impl Acknowledged {
    /// Reads the log of acknowledgements: `round block version`, a line each, rounds counted from 1 without gaps.
    ///
    /// # Errors
    /// The first line that is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rounds: Vec<Vec<(u64, u64)>> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = || format!("line {number}: \"{line}\"");
            let words: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
            let Some([round, block, version]) = words.as_deref() else { return Err(wrong()) };
            let last = rounds.len() as u64;
            if *round == last + 1 {
                rounds.push(Vec::new());
            } else if *round != last || last == 0 {
                return Err(wrong());
            }
            rounds.last_mut().ok_or_else(wrong)?.push((*block, *version));
        }
        Ok(Self { rounds })
    }

    /// The versions that a block may have when so many rounds were acknowledged: that of the last of these, or any later
    /// one.
    pub fn may_hold(&self, block: u64, rounds: usize) -> Vec<u64> {
        let of = |rounds: &[Vec<(u64, u64)>]| -> Vec<u64> {
            rounds.iter().flatten().filter(|(of, _)| *of == block).map(|(_, version)| *version).collect()
        };
        let rounds = rounds.min(self.rounds.len());
        let old = of(&self.rounds[..rounds]).pop().unwrap_or(0);
        [vec![old], of(&self.rounds[rounds..])].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(place: u64, sectors: u64, flags: u64, text: &[u8], data: u8) -> Vec<u8> {
        let mut bytes = [place, sectors, flags, text.len() as u64].map(u64::to_le_bytes).concat();
        bytes.extend(text);
        bytes.resize(512, 0);
        if flags & (DISCARD | MARK) == 0 {
            bytes.resize(512 + 512 * sectors as usize, data);
        }
        bytes
    }

    fn log() -> Vec<u8> {
        let mut log = [MAGIC, VERSION, 6, 512].map(u64::to_le_bytes).concat();
        log.resize(512, 0);
        for bytes in [
            entry(8, 2, 0, b"", 1),
            entry(0, 0, FLUSH, b"", 0),
            entry(0, 0, MARK, b"ack 1", 0),
            entry(16, 8, DISCARD, b"", 0),
            entry(9, 1, FLUSH | 2, b"", 2),
            entry(10, 1, 0, b"", 3),
        ] {
            log.extend(bytes);
        }
        log
    }

    #[test]
    fn a_log_is_read_and_cut_at_its_flushes() {
        let entries = read(&log()).unwrap();
        let write = |to: u64, at, len| Action::Write { to: to * 512, at, len };
        assert_eq!(entries[0], Entry { action: write(8, 1024, 1024), flush: false });
        assert_eq!(entries[2].action, Action::Mark("ack 1".into()));
        assert_eq!(entries[3].action, Action::Discard { to: 8192, len: 4096 });
        assert!(entries[4].flush);
        let lengths = [0, 1, 2, 3].map(|flushes| until_flush(&entries, flushes).len());
        assert_eq!(lengths, [0, 2, 5, 6], "what follows the last flush counts as behind it");
    }

    #[test]
    fn acknowledgements_say_what_a_block_may_hold() {
        let log = Acknowledged::parse("1 3 1\n1 4 1\n2 3 2\n3 3 3\n").unwrap();
        assert_eq!(
            (log.may_hold(3, 0), log.may_hold(3, 2), log.may_hold(4, 3)),
            (vec![0, 1, 2, 3], vec![2, 3], vec![1])
        );
        assert_eq!(log.may_hold(9, 1), [0]);
        for text in ["0 1 1", "2 1 1", "1 1", "1 1 1 1", "1 1 1\n3 1 1", "1 1 1\n2 1 1\n1 1 1", "x", "1  1"] {
            assert!(Acknowledged::parse(text).is_err(), "{text}");
        }
    }

    /// Both logs, broken by a seed's changes: they are read or refused.
    #[test]
    fn what_is_damaged_is_read_or_refused() {
        let mut seed = 1u64;
        let mut below = |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        let (good, mut whole) = (log(), 0);
        let lines = "1 3 1\n1 4 1\n2 3 2\n3 3 3\n";
        for _ in 0..20_000 {
            let mut bad = good.clone();
            for _ in 0..1 + below(4) {
                let at = below(bad.len());
                match below(3) {
                    0 => bad[at] ^= 1 << below(8),
                    1 => bad[at] = 0xff,
                    _ => bad.truncate(at + 1),
                }
            }
            if let Ok(entries) = read(&bad) {
                whole += 1;
                assert!(until_flush(&entries, below(8)).len() <= entries.len());
            }
            let mut text = lines.as_bytes().to_vec();
            let at = below(text.len());
            text[at] = b"0123456789 \nx-"[below(14)];
            if let Ok(log) = Acknowledged::parse(&String::from_utf8(text).unwrap()) {
                assert!(!log.may_hold(3, below(5)).is_empty());
            }
        }
        assert!(whole > 1000, "{whole}: nothing behind the head is reached");
    }
}
