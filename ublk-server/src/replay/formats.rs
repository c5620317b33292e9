//! The formats. A line is an entry, says nothing about I/O, or is malformed; unknown actions are malformed.

use super::{Action, Entry};
use emulation::Nanos;

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The log of fio's write_iolog, versions 2 and 3
    Fio,
    /// The text of blkparse in its default form
    Blkparse,
    /// CSV of the traces of Microsoft Research Cambridge
    Msr,
    /// CSV of the Alibaba block traces of 2020
    Alibaba,
    /// CSV of the Tencent CBS traces
    Tencent,
    /// Text of the FIU traces with content hashes
    Fiu,
}

/// What a format leaves open.
#[derive(Clone, Debug)]
pub struct Options {
    /// The unit of the time stamps of fio's version 3: microseconds, or milliseconds in older ones.
    pub fio_unit: Nanos,
    /// The action of blkparse that counts: D(ispatched), Q(ueued) or another.
    pub blkparse_action: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { fio_unit: Nanos(1_000), blkparse_action: "D".to_string() }
    }
}

/// Reads the lines of a format.
#[derive(Debug)]
pub(super) struct Parser {
    format: Format,
    options: Options,
    /// Of fio: the version, once its line was there, and the delay of version 2 so far.
    version: Option<u32>,
    waited: u64,
}

type Line = Result<Option<Entry>, String>;

impl Parser {
    pub(super) fn new(format: Format, options: Options) -> Self {
        Self { format, options, version: None, waited: 0 }
    }

    pub(super) fn line(&mut self, line: &str) -> Line {
        if line.trim().is_empty() {
            return Ok(None);
        }
        match self.format {
            Format::Fio => self.fio(line),
            Format::Blkparse => blkparse(line, &self.options.blkparse_action),
            Format::Msr => msr(line),
            Format::Alibaba => alibaba(line),
            Format::Tencent => tencent(line),
            Format::Fiu => fiu(line),
        }
    }

    fn fio(&mut self, line: &str) -> Line {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let Some(version) = self.version else {
            let version = match fields[..] {
                ["fio", "version", "2", "iolog"] => 2,
                ["fio", "version", "3", "iolog"] => 3,
                _ => {
                    return Err(
                        "the first line must be `fio version 2 iolog` or `fio version 3 iolog`".into()
                    );
                }
            };
            self.version = Some(version);
            return Ok(None);
        };
        let (at, rest) = match (version, &fields[..]) {
            (3, [at, rest @ ..]) => (nanos(number("time stamp", at)?, self.options.fio_unit.0)?, rest),
            (_, rest) => (self.waited, rest),
        };
        let [device, action, range @ ..] = rest else {
            return Err(format!("{} fields: a file and an action are missing", fields.len()));
        };
        match (*action, range) {
            ("add" | "open" | "close", []) => Ok(None),
            ("wait", [delay] | [delay, ..]) if version == 2 => {
                let delay = nanos(number("delay", delay)?, 1_000)?;
                self.waited = self.waited.checked_add(delay).ok_or("the delays are too long")?;
                Ok(None)
            }
            ("sync" | "datasync", _) => flush(at, device),
            ("read", [offset, length]) => entry(at, Action::Read, offset, length, 1, device),
            ("write", [offset, length]) => entry(at, Action::Write, offset, length, 1, device),
            ("trim", [offset, length]) => entry(at, Action::Discard, offset, length, 1, device),
            ("read" | "write" | "trim", _) => Err(format!("{action}: an offset and a length must follow")),
            _ => Err(format!("unknown action \"{action}\"")),
        }
    }
}

/// `maj,min cpu seq secs.nsecs pid action RWBS sector + nblocks [process]`
fn blkparse(line: &str, wanted: &str) -> Line {
    let fields: Vec<_> = line.split_ascii_whitespace().collect();
    let device = fields[0];
    let is_event = device.split_once(',').is_some_and(|(major, minor)| {
        [major, minor].iter().all(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
    });
    // The summary at the end, by processor and in all.
    if !is_event {
        return Ok(None);
    }
    let [_, _cpu, _sequence, at, _pid, action, flags, rest @ ..] = &fields[..] else {
        return Err(format!("{} fields: at least 7 make an event", fields.len()));
    };
    if *action != wanted {
        return Ok(None);
    }
    let at = seconds(at)?;
    match rest {
        [sector, "+", blocks, ..] => {
            let action = if flags.contains('D') {
                Action::Discard
            } else if flags.contains('R') {
                Action::Read
            } else if flags.contains('W') || flags.starts_with("ZA") {
                Action::Write
            } else {
                return Err(format!("{flags}: neither read, write nor discard"));
            };
            entry(at, action, sector, blocks, 512, device)
        }
        // An empty flush; plugs, splits and messages have no range either.
        _ if flags.starts_with('F') => flush(at, device),
        _ => Ok(None),
    }
}

/// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, the time in units of 100 ns.
fn msr(line: &str) -> Line {
    let fields = csv(line, 7)?;
    let action = match fields[3] {
        "Read" | "read" => Action::Read,
        "Write" | "write" => Action::Write,
        other => return Err(format!("unknown type \"{other}\"")),
    };
    let at = nanos(number("time stamp", fields[0])?, 100)?;
    entry(at, action, fields[4], fields[5], 1, &format!("{}.{}", fields[1], fields[2]))
}

/// `device_id,opcode,offset,length,timestamp`, the time in microseconds.
fn alibaba(line: &str) -> Line {
    let fields = csv(line, 5)?;
    let action = match fields[1] {
        "R" => Action::Read,
        "W" => Action::Write,
        other => return Err(format!("unknown opcode \"{other}\"")),
    };
    let at = nanos(number("time stamp", fields[4])?, 1_000)?;
    entry(at, action, fields[2], fields[3], 1, fields[0])
}

/// `Timestamp,Offset,Size,IOType,VolumeID`, the time in seconds, the range in sectors of 512 bytes.
fn tencent(line: &str) -> Line {
    let fields = csv(line, 5)?;
    let action = match fields[3] {
        "0" => Action::Read,
        "1" => Action::Write,
        other => return Err(format!("unknown type \"{other}\"")),
    };
    let at = nanos(number("time stamp", fields[0])?, 1_000_000_000)?;
    entry(at, action, fields[1], fields[2], 512, fields[4])
}

/// `ts_ns pid process lba size W|R major minor md5`, the range in sectors of 512 bytes.
fn fiu(line: &str) -> Line {
    let fields: Vec<_> = line.split_ascii_whitespace().collect();
    // Names of processes may have blanks in them: what follows is counted from the end.
    let [at, _pid, _name, .., lba, size, action, major, minor, _hash] = &fields[..] else {
        return Err(format!("{} fields: 9 make a record", fields.len()));
    };
    let action = match *action {
        "R" => Action::Read,
        "W" => Action::Write,
        other => return Err(format!("unknown operation \"{other}\"")),
    };
    entry(number("time stamp", at)?, action, lba, size, 512, &format!("{major},{minor}"))
}

fn csv(line: &str, count: usize) -> Result<Vec<&str>, String> {
    let fields: Vec<_> = line.split(',').map(str::trim).collect();
    if fields.len() == count { Ok(fields) } else { Err(format!("{} fields, not {count}", fields.len())) }
}

fn number(what: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{what} \"{text}\": not a whole number"))
}

fn nanos(count: u64, unit: u64) -> Result<u64, String> {
    count.checked_mul(unit).ok_or_else(|| format!("time stamp {count}: too large"))
}

/// `secs.nsecs` with nine digits behind the point.
fn seconds(text: &str) -> Result<u64, String> {
    let parts = text.split_once('.').filter(|(_, part)| part.len() == 9);
    let (whole, part) = parts.ok_or_else(|| format!("time stamp \"{text}\": not SECONDS.NANOSECONDS"))?;
    let (whole, part) = (number("time stamp", whole)?, number("time stamp", part)?);
    nanos(whole, 1_000_000_000)?.checked_add(part).ok_or_else(|| format!("time stamp {text}: too large"))
}

fn flush(at: u64, device: &str) -> Line {
    let device = device.to_string();
    Ok(Some(Entry { at: Nanos(at), action: Action::Flush, offset: 0, length: 0, device }))
}

/// An entry with a range in units of so many bytes.
fn entry(at: u64, action: Action, offset: &str, length: &str, unit: u64, device: &str) -> Line {
    let (first, count) = (number("offset", offset)?, number("length", length)?);
    if count == 0 {
        return Err("length 0".to_string());
    }
    let bytes = |units: u64| units.checked_mul(unit).ok_or_else(|| format!("{units}: too large"));
    let (offset, length) = (bytes(first)?, bytes(count)?);
    if offset.checked_add(length).is_none() {
        return Err(format!("offset {first} and length {count}: too large"));
    }
    Ok(Some(Entry { at: Nanos(at), action, offset, length, device: device.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    fn found(format: Format, text: &str) -> Vec<(u64, Action, u64, u64, String)> {
        let (entries, malformed) = read(format, text);
        assert_eq!(malformed, []);
        entries.into_iter().map(|e| (e.at.0, e.action, e.offset, e.length, e.device)).collect()
    }

    fn wrong(format: Format, text: &str) -> Vec<(u64, String)> {
        read(format, text).1
    }

    #[test]
    fn fio_version_2_waits_and_version_3_has_time_stamps() {
        let text = "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a read 4096 512\n/dev/a wait 50 0\n\
                    /dev/a write 0 8192\r\n/dev/a sync 0 0\n\n/dev/a trim 0 4096\n/dev/a close\n";
        let a = || "/dev/a".to_string();
        assert_eq!(
            found(Format::Fio, text),
            [
                (0, Action::Read, 4096, 512, a()),
                (50_000, Action::Write, 0, 8192, a()),
                (50_000, Action::Flush, 0, 0, a()),
                (50_000, Action::Discard, 0, 4096, a()),
            ]
        );
        let text = "fio version 3 iolog\n0 /dev/a add\n12 /dev/a datasync 0 0\n30 /dev/a read 0 512\n";
        assert_eq!(
            found(Format::Fio, text),
            [(12_000, Action::Flush, 0, 0, a()), (30_000, Action::Read, 0, 512, a())]
        );
        let text =
            "fio version 3 iolog\n1 a read 0\nx a read 0 1\n1 a verify 0 1\n1 a read 0 0\n1 a\n1 a wait 9\n";
        let whys: Vec<_> =
            wrong(Format::Fio, text).into_iter().map(|(line, why)| format!("{line}: {why}")).collect();
        assert_eq!(
            whys,
            [
                "2: read: an offset and a length must follow",
                "3: time stamp \"x\": not a whole number",
                "4: unknown action \"verify\"",
                "5: length 0",
                "6: 2 fields: a file and an action are missing",
                "7: unknown action \"wait\"",
            ]
        );
        assert_eq!(wrong(Format::Fio, "fio version 4 iolog\n").len(), 1);
    }

    #[test]
    fn blkparse_takes_what_was_dispatched() {
        let text = "\
  8,0    1        1     0.000000000   697  Q   R 223490 + 8 [kjournald]
  8,0    1        2     0.000001829   697  D   R 223490 + 8 [kjournald]
  8,0    1        3     0.500001829   697  D  WS 8 + 16 [kworker/0:1 x]
  8,0    1        4     1.000000000   697  D  DS 64 + 8 [fstrim]
  8,0    1        5     1.000000001   697  D  FN [kworker]
  8,0    1        6     1.000000002     0  P   N [kworker]
  8,0    1        7     1.000000003     0  C   R 223490 + 8 [0]
CPU0 (8,0):
 Reads Queued:           0,        0KiB
Total (8,0):
";
        let device = || "8,0".to_string();
        assert_eq!(
            found(Format::Blkparse, text),
            [
                (1_829, Action::Read, 223_490 * 512, 4096, device()),
                (500_001_829, Action::Write, 4096, 8192, device()),
                (1_000_000_000, Action::Discard, 32_768, 4096, device()),
                (1_000_000_001, Action::Flush, 0, 0, device()),
            ]
        );
        let text = "8,0 1 2 0.5 697 D R 1 + 8 [x]\n8,0 1 2\n8,0 1 2 0.000000001 697 D R x + 8 [x]\n";
        assert_eq!(wrong(Format::Blkparse, text).iter().map(|w| w.0).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn the_csv_of_msr_alibaba_and_tencent() {
        let msr = "128166372003061629,hm,1,Read,383496192,32768,113736\r\n";
        let at = 12_816_637_200_306_162_900_u64;
        assert_eq!(found(Format::Msr, msr), [(at, Action::Read, 383_496_192, 32_768, "hm.1".to_string())]);
        let alibaba = "419,W,8792731648,16384,1577808000000046\n";
        let at = 1_577_808_000_000_046_000;
        assert_eq!(
            found(Format::Alibaba, alibaba),
            [(at, Action::Write, 8_792_731_648, 16_384, "419".to_string())]
        );
        let tencent = "1538323200,12910952,128,0,1063\n";
        let at = 1_538_323_200_000_000_000;
        assert_eq!(
            found(Format::Tencent, tencent),
            [(at, Action::Read, 12_910_952 * 512, 65_536, "1063".to_string())]
        );
        assert_eq!(wrong(Format::Msr, "1,hm,1,Trim,0,1,1\n"), [(1, "unknown type \"Trim\"".to_string())]);
        assert_eq!(wrong(Format::Alibaba, "1,R,0\n"), [(1, "3 fields, not 5".to_string())]);
        let huge = format!("1,{},1,0,1\n", u64::MAX / 512);
        assert_eq!(wrong(Format::Tencent, &huge).len(), 1);
        assert_eq!(wrong(Format::Tencent, &format!("{},0,1,0,1\n", u64::MAX)).len(), 1);
    }

    #[test]
    fn fiu_counts_from_the_end_of_a_line() {
        let text = "89967404800392 4253 nfsd 508240 8 W 6 0 5d41402abc4b2a76b9719d911017c592\n\
                    89967404800393 4253 two words 8 8 R 6 0 5d41402abc4b2a76b9719d911017c592\n";
        assert_eq!(
            found(Format::Fiu, text),
            [
                (89_967_404_800_392, Action::Write, 508_240 * 512, 4096, "6,0".to_string()),
                (89_967_404_800_393, Action::Read, 4096, 4096, "6,0".to_string()),
            ]
        );
        assert_eq!(wrong(Format::Fiu, "1 2 nfsd 8 8 W 6\n").len(), 1);
    }
}
