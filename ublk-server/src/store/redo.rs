//! The redo log of a pool in shared memory: it outlives the server, not the host.
//!
//! The one file with `unsafe` for that mapping. A record goes to the slot of its number with a checksum over its
//! bytes and the log's identity, so that a record that was written in part, and one of an earlier round, are
//! recognised. The owner of the log writes it under the pool's lock; nobody else maps the file.

use emulation::redo::{Fill, MapChange, RedoLog, ZoneChange};
use emulation::zone::ZoneCondition;
use emulation::{Sectors, VolumeId};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Records that a log has room for: several times what the largest link appends.
const SLOTS: u64 = 1 << 18;
/// The bytes of a record and of the header.
const RECORD: usize = 64;
const HEADER: usize = 4096;
const MAGIC: &[u8; 16] = b"ublk redo log 1\n";
/// The kinds of records: a change of a volume's map, and one of a zone.
const KIND_MAP: u32 = 1;
const KIND_ZONE: u32 = 2;
/// Slots that changes of maps leave free: an action on a zone takes one without having been promised it.
const RESERVE: u64 = SLOTS / 16;
/// The physical block of a range that reads as zeroes.
const NONE: u64 = u64::MAX;

/// What a log belongs to: it is replayed for the same pool after the same boot alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The identifier of the pool.
    pub pool: String,
    /// The boot of the host, see [`boot`].
    pub boot: String,
}

impl Owner {
    /// A pool in this boot of the host.
    ///
    /// # Errors
    /// `/proc` does not say which boot it is.
    pub fn new(pool: &str) -> io::Result<Self> {
        Ok(Self { pool: pool.to_string(), boot: boot()? })
    }

    fn salt(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(self.pool.as_bytes()), self.boot.as_bytes())
    }

    fn header(&self) -> Vec<u8> {
        let mut header = vec![0; HEADER];
        header[..16].copy_from_slice(MAGIC);
        header[16..20].copy_from_slice(&self.salt().to_le_bytes());
        header[24..32].copy_from_slice(&SLOTS.to_le_bytes());
        header
    }
}

/// The identifier of this boot of the host.
///
/// # Errors
/// `/proc` does not say it.
pub fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_string())
}

/// The records of a log, with their numbers, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The changes of maps.
    pub maps: Vec<(u64, MapChange)>,
    /// Those of zones.
    pub zones: Vec<(u64, ZoneChange)>,
}

impl Records {
    /// How many there are.
    pub fn len(&self) -> u64 {
        (self.maps.len() + self.zones.len()) as u64
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Record {
    Map(MapChange),
    Zone(ZoneChange),
}

/// The records of a log behind number `after`; it ends at the first slot that does not hold the next. `None`:
/// there is no log of this owner.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path, owner: &Owner, after: u64) -> io::Result<Option<Records>> {
    let file = match File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut header = vec![0; HEADER];
    match file.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    if header != owner.header() {
        return Ok(None);
    }
    let mut records = Records::default();
    for number in after + 1..=after + SLOTS {
        let mut bytes = [0; RECORD];
        file.read_exact_at(&mut bytes, offset(number) as u64)?;
        match decode(&bytes, owner.salt(), number) {
            Some(Record::Map(change)) => records.maps.push((number, change)),
            Some(Record::Zone(change)) => records.zones.push((number, change)),
            None => break,
        }
    }
    Ok(Some(records))
}

fn offset(number: u64) -> usize {
    HEADER + (number % SLOTS) as usize * RECORD
}

fn encode(record: &Record, salt: u32, number: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let (kind, volume) = match record {
        Record::Map(change) => {
            bytes[16..24].copy_from_slice(&change.logical.start.to_le_bytes());
            bytes[24..32].copy_from_slice(&change.logical.end.to_le_bytes());
            bytes[32..40].copy_from_slice(&change.physical.unwrap_or(NONE).to_le_bytes());
            (KIND_MAP, change.volume)
        }
        Record::Zone(change) => {
            bytes[16..24].copy_from_slice(&change.wp.0.to_le_bytes());
            bytes[24..28].copy_from_slice(&change.zone.to_le_bytes());
            bytes[28] = change.condition as u8;
            (KIND_ZONE, change.volume)
        }
    };
    bytes[4..8].copy_from_slice(&kind.to_le_bytes());
    bytes[40..44].copy_from_slice(&volume.0.to_le_bytes());
    let crc = crc32c::crc32c_append(salt, &bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; RECORD], salt: u32, number: u64) -> Option<Record> {
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let whole = short(0) == crc32c::crc32c_append(salt, &bytes[4..]);
    if !whole || long(8) != number {
        return None;
    }
    let volume = VolumeId(short(40));
    match short(4) {
        KIND_MAP => {
            let physical = Some(long(32)).filter(|physical| *physical != NONE);
            Some(Record::Map(MapChange { volume, logical: long(16)..long(24), physical }))
        }
        KIND_ZONE => {
            let condition = ZoneCondition::ALL.into_iter().find(|known| *known as u8 == bytes[28])?;
            Some(Record::Zone(ZoneChange { volume, zone: short(24), condition, wp: Sectors(long(16)) }))
        }
        _ => None,
    }
}

/// The log as its pool appends to it.
#[derive(Debug)]
pub struct FileLog {
    mapping: MmapRaw,
    salt: u32,
    /// The number of the last record.
    last: u64,
    /// Records up to this number may go.
    dropped: u64,
}

impl FileLog {
    /// Makes the log at `path`, in the place of the one that may be there. Records up to `sequence` are in the durable
    /// image; `records` are those behind it, which it keeps. The directory is private.
    ///
    /// # Errors
    /// The file cannot be made, or there is no memory for it.
    pub fn create(path: &Path, owner: &Owner, sequence: u64, records: &Records) -> io::Result<Self> {
        assert!(records.len() <= SLOTS, "{} records in one log", records.len());
        // Beside the old one first: a server that dies here leaves that as it is.
        let beside = path.with_extension("new");
        let file = File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&beside)?;
        let len = HEADER + SLOTS as usize * RECORD;
        // All of it now: a page that could not be had later would kill the server.
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
        file.write_all_at(&owner.header(), 0)?;
        let maps = records.maps.iter().map(|(number, change)| (*number, Record::Map(change.clone())));
        let zones = records.zones.iter().map(|(number, change)| (*number, Record::Zone(*change)));
        let mut last = sequence;
        for (number, record) in maps.chain(zones) {
            file.write_all_at(&encode(&record, owner.salt(), number), offset(number) as u64)?;
            last = last.max(number);
        }
        let mapping = MmapOptions::new().len(len).map_raw(&file)?;
        std::fs::rename(&beside, path)?;
        Ok(Self { mapping, salt: owner.salt(), last, dropped: sequence })
    }

    fn used(&self) -> u64 {
        self.last - self.dropped
    }
}

impl FileLog {
    fn write(&mut self, record: &Record) -> u64 {
        assert!(self.used() < SLOTS, "the redo log is full");
        self.last += 1;
        let record = encode(record, self.salt, self.last);
        let start = offset(self.last);
        assert!(start + RECORD <= self.mapping.len());
        // SAFETY: in bounds by the assertion, mapped writable as long as `self` lives, and of memory that is there, so
        // that no fault can occur. No reference into the mapping exists, `&mut self` excludes other writers of this
        // process, and no other process maps the file while its server lives.
        unsafe {
            let slot = self.mapping.as_mut_ptr().add(start);
            std::ptr::copy_nonoverlapping(record.as_ptr(), slot, RECORD);
        }
        self.last
    }
}

impl RedoLog for FileLog {
    fn append(&mut self, change: &MapChange) -> u64 {
        self.write(&Record::Map(change.clone()))
    }

    fn append_zone(&mut self, change: &ZoneChange) -> u64 {
        self.write(&Record::Zone(*change))
    }

    fn fill(&self) -> Fill {
        match self.used() {
            used if used >= SLOTS - RESERVE => Fill::Full,
            used if used >= SLOTS / 2 => Fill::Half,
            _ => Fill::Low,
        }
    }

    fn room(&self) -> u64 {
        (SLOTS - RESERVE).saturating_sub(self.used())
    }

    fn last(&self) -> u64 {
        self.last
    }

    fn committed(&mut self, sequence: u64) {
        self.dropped = self.dropped.max(sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(number: u64) -> MapChange {
        MapChange {
            volume: VolumeId(3),
            logical: number..number + 2,
            physical: (!number.is_multiple_of(3)).then_some(7 * number),
        }
    }

    fn zone(number: u64) -> ZoneChange {
        let condition = ZoneCondition::ALL[number as usize % 8];
        ZoneChange { volume: VolumeId(5), zone: number as u32, condition, wp: Sectors(3 * number) }
    }

    /// Every fourth record is one of a zone.
    fn append(log: &mut FileLog, number: u64) -> u64 {
        if number.is_multiple_of(4) { log.append_zone(&zone(number)) } else { log.append(&change(number)) }
    }

    fn records(numbers: std::ops::RangeInclusive<u64>) -> Records {
        let mut records = Records::default();
        for number in numbers {
            if number.is_multiple_of(4) {
                records.zones.push((number, zone(number)));
            } else {
                records.maps.push((number, change(number)));
            }
        }
        records
    }

    struct Place(std::path::PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("ublk-redo-{name}-{}.log", std::process::id())))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn what_was_appended_is_read_up_to_the_first_bad_record() {
        let place = Place::new("bad");
        let owner = Owner::new("a").unwrap();
        let mut log = FileLog::create(&place.0, &owner, 0, &Records::default()).unwrap();
        for number in 1..=10 {
            assert_eq!(append(&mut log, number), number);
        }
        assert_eq!(read(&place.0, &owner, 0).unwrap().unwrap(), records(1..=10));
        assert_eq!(read(&place.0, &owner, 4).unwrap().unwrap(), records(5..=10));
        assert!(read(&place.0, &owner, 10).unwrap().unwrap().is_empty());
        let file = File::options().write(true).open(&place.0).unwrap();
        file.write_all_at(&[1], offset(6) as u64 + 20).unwrap();
        assert_eq!(read(&place.0, &owner, 0).unwrap().unwrap(), records(1..=5));
        for other in [Owner { pool: "b".into(), ..owner.clone() }, Owner { boot: "x".into(), ..owner }] {
            assert_eq!(read(&place.0, &other, 0).unwrap(), None);
        }
        assert_eq!(read(Path::new("/does/not/exist"), &other_owner(), 0).unwrap(), None);
    }

    fn other_owner() -> Owner {
        Owner { pool: "c".into(), boot: "x".into() }
    }

    #[test]
    fn the_log_goes_round_and_what_was_committed_gives_room() {
        let place = Place::new("round");
        let owner = Owner::new("a").unwrap();
        let mut log = FileLog::create(&place.0, &owner, 0, &Records::default()).unwrap();
        for number in 1..=SLOTS / 2 {
            assert_eq!(log.fill(), Fill::Low);
            append(&mut log, number);
        }
        assert_eq!((log.fill(), log.room()), (Fill::Half, SLOTS / 2 - RESERVE));
        for number in SLOTS / 2 + 1..=SLOTS - RESERVE {
            append(&mut log, number);
        }
        assert_eq!((log.fill(), log.room()), (Fill::Full, 0));
        // What was promised before may still come.
        for number in SLOTS - RESERVE + 1..=SLOTS {
            append(&mut log, number);
        }
        assert_eq!((log.fill(), log.room()), (Fill::Full, 0));
        log.committed(SLOTS - 1);
        for number in SLOTS + 1..=SLOTS + 5 {
            append(&mut log, number);
        }
        assert_eq!(read(&place.0, &owner, SLOTS - 1).unwrap().unwrap(), records(SLOTS..=SLOTS + 5));
        drop(log);
        let mut log = FileLog::create(&place.0, &owner, SLOTS + 2, &records(SLOTS + 3..=SLOTS + 5)).unwrap();
        assert_eq!((append(&mut log, SLOTS + 6), log.room()), (SLOTS + 6, SLOTS - RESERVE - 4));
        assert_eq!(read(&place.0, &owner, SLOTS + 2).unwrap().unwrap(), records(SLOTS + 3..=SLOTS + 6));
    }
}
