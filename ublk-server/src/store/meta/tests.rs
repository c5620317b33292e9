use super::*;
use emulation::mapped::{Cache, Mapped, MappedConfig};
use emulation::redo::Image;
use emulation::{Limits, Sectors};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ublk-meta-{name}-{}", std::process::id()));
        Self(path)
    }

    fn place(&self) -> Place {
        Place::File(open(&self.0))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn open(path: &std::path::Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn row(name: &str) -> VolumeRow {
    VolumeRow { name: name.into(), size: Bytes::gib(1), logical_block_size: Bytes(512), zones: None }
}

fn change(volume: VolumeId, start: u64, len: u64, physical: Option<u64>) -> MapChange {
    MapChange { volume, logical: start..start + len, physical }
}

fn all(meta: &Meta) -> Vec<MapChange> {
    let mut all = Vec::new();
    meta.extents(|extent| all.push(extent)).unwrap();
    all
}

#[test]
fn what_was_committed_is_there_when_it_is_opened_again() {
    let dir = Dir::new("reopen");
    let meta = Meta::create(dir.place(), "abc", Bytes::kib(4)).unwrap();
    let (a, b) = (meta.add_volume(&row("a")).unwrap(), meta.add_volume(&row("b")).unwrap());
    let changes = vec![change(a, 0, 10, Some(100)), change(b, 0, 10, Some(300)), change(a, 20, 4, Some(104))];
    meta.commit(&Commit { changes, removed: vec![], sequence: 7, ..Commit::default() }).unwrap();
    meta.set_open(Some("boot")).unwrap();
    meta.remove_volume(b).unwrap();
    drop(meta);
    for meta in [Meta::look(dir.place()).unwrap(), Meta::open(dir.place()).unwrap()] {
        let contents = meta.contents().unwrap();
        assert_eq!(contents.volumes, [(a, row("a"))]);
        assert_eq!((contents.sequence, contents.pool.next_volume), (7, 2));
        assert_eq!(contents.pool.open_since.as_deref(), Some("boot"));
        assert_eq!(all(&meta), [change(a, 0, 10, Some(100)), change(a, 20, 4, Some(104))]);
    }
}

#[test]
fn what_is_damaged_is_refused_and_stays_as_it_is() {
    let dir = Dir::new("damaged");
    let meta = Meta::create(dir.place(), "abc", Bytes::kib(4)).unwrap();
    let a = meta.add_volume(&row("a")).unwrap();
    let changes = (0..5000).map(|n| change(a, 2 * n, 1, Some(n))).collect();
    meta.commit(&Commit { changes, removed: vec![], sequence: 7, ..Commit::default() }).unwrap();
    drop(meta);
    let good = std::fs::read(&dir.0).unwrap();
    let mut refused = 0;
    for at in (0..good.len()).step_by(4096) {
        let mut bad = good.clone();
        for byte in &mut bad[at..at + 64] {
            *byte ^= 0x5a;
        }
        std::fs::write(&dir.0, &bad).unwrap();
        let found = Meta::look(dir.place());
        refused += usize::from(found.is_err());
        // A page that holds nothing may hold anything.
        if let Ok(meta) = found {
            assert_eq!(all(&meta).len(), 5000);
        }
        assert_eq!(std::fs::read(&dir.0).unwrap(), bad);
    }
    assert!(refused > 20, "{refused}");
    for text in [b"foreign".as_slice(), &[0; 100_000]] {
        std::fs::write(&dir.0, text).unwrap();
        assert!(Meta::look(dir.place()).is_err());
    }
}

#[test]
fn changes_leave_what_a_plain_map_has() {
    let dir = Dir::new("plain");
    let meta = Meta::create(dir.place(), "abc", Bytes::kib(4)).unwrap();
    let (a, b) = (meta.add_volume(&row("a")).unwrap(), meta.add_volume(&row("b")).unwrap());
    let mut plain: BTreeMap<(VolumeId, u64), u64> = BTreeMap::new();
    let mut seed = 1u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        let mut changes = Vec::new();
        // Changes of one commit do not overlap.
        for part in 0..3 {
            let volume = if draw(4) == 0 { b } else { a };
            let (start, len) = (part * 20 + draw(12), 1 + draw(8));
            // Often where a neighbour goes on.
            let physical = (draw(4) > 0).then(|| if draw(2) == 0 { 1000 + start } else { draw(100) });
            changes.push(change(volume, start, len, physical));
        }
        for change in &changes {
            for block in change.logical.clone() {
                let offset = block - change.logical.start;
                let _ = match change.physical {
                    Some(first) => plain.insert((change.volume, block), first + offset),
                    None => plain.remove(&(change.volume, block)),
                };
            }
        }
        meta.commit(&Commit { changes, removed: vec![], sequence: 1, ..Commit::default() }).unwrap();
        let mut found = BTreeMap::new();
        let mut last: Option<MapChange> = None;
        for extent in all(&meta) {
            for (offset, block) in (0..).zip(extent.logical.clone()) {
                let old = found.insert((extent.volume, block), extent.physical.unwrap() + offset);
                assert_eq!(old, None, "two extents for block {block}");
            }
            last = Some(extent);
        }
        assert_eq!(found, plain);
        assert!(last.is_none_or(|last| !last.logical.is_empty()));
    }
    meta.commit(&Commit { changes: vec![], removed: vec![a], sequence: 2, ..Commit::default() }).unwrap();
    assert!(all(&meta).iter().all(|extent| extent.volume == b));
}

#[test]
fn a_region_of_a_device_holds_it_and_no_more() {
    let dir = Dir::new("region");
    std::fs::write(&dir.0, vec![0xaa; 8 << 20]).unwrap();
    let place = || Place::Region { file: open(&dir.0), start: 1 << 20, size: 4 << 20 };
    let meta = Meta::create(place(), "abc", Bytes::kib(4)).unwrap();
    let a = meta.add_volume(&row("a")).unwrap();
    meta.commit(&Commit {
        changes: vec![change(a, 0, 9, Some(1))],
        removed: vec![],
        sequence: 1,
        ..Commit::default()
    })
    .unwrap();
    let changes = (0..100_000).map(|n| change(a, 2 * n, 1, Some(n))).collect();
    let error =
        meta.commit(&Commit { changes, removed: vec![], sequence: 2, ..Commit::default() }).unwrap_err();
    assert_eq!(error.errno(), Errno::NOSPC);
    assert_eq!(all(&meta), [change(a, 0, 9, Some(1))]);
    meta.commit(&Commit {
        changes: vec![change(a, 9, 1, Some(10))],
        removed: vec![],
        sequence: 3,
        ..Commit::default()
    })
    .unwrap();
    drop(meta);
    let meta = Meta::open(place()).unwrap();
    assert_eq!(all(&meta), [change(a, 0, 10, Some(1))], "it goes on after a failure");
    drop(meta);
    let bytes = std::fs::read(&dir.0).unwrap();
    assert!(bytes[..1 << 20].iter().chain(&bytes[5 << 20..]).all(|byte| *byte == 0xaa));
}

/// With a million extents: what a small commit writes, and how long it takes to open.
#[test]
fn a_small_commit_writes_little_and_syncs_once() {
    const EXTENTS: u64 = 1_000_000;
    let dir = Dir::new("million");
    let meta = Meta::create(dir.place(), "abc", Bytes::kib(4)).unwrap();
    let a = meta.add_volume(&VolumeRow { size: Bytes::gib(1024), ..row("a") }).unwrap();
    // As that many commits would leave it, in one.
    let fill = |transaction: &WriteTransaction| {
        let mut extents = transaction.open_table(super::EXTENTS)?;
        for n in 0..EXTENTS {
            extents.insert((a.0, 200 * n), (1, 2 * n))?;
        }
        Ok(())
    };
    meta.write(fill).unwrap();
    let (mut most, mut sum) = (0, 0);
    for n in 0..200u64 {
        let (written, syncs) = (meta.traffic().written.load(Relaxed), meta.traffic().syncs.load(Relaxed));
        let at = 200 * (n * 7919 % EXTENTS);
        let changes = vec![change(a, at, 1, Some(2 * EXTENTS + n))];
        meta.commit(&Commit { changes, removed: vec![], sequence: 2 + n, ..Commit::default() }).unwrap();
        assert_eq!(meta.traffic().syncs.load(Relaxed) - syncs, 1);
        let one = meta.traffic().written.load(Relaxed) - written;
        (most, sum) = (most.max(one), sum + one);
    }
    println!("a commit of one change among {EXTENTS} extents writes {} B, {most} B at most", sum / 200);
    assert!(most <= 64 << 10, "{most}");

    // Opened without having been closed, as after a crash.
    let copy = Dir::new("million-copy");
    std::fs::copy(&dir.0, &copy.0).unwrap();
    let begun = std::time::Instant::now();
    let meta = Meta::open(copy.place()).unwrap();
    let opened = begun.elapsed();
    let mut image = Image { volumes: vec![(a, limits())], ..Image::default() };
    meta.extents(|extent| image.entries.push(extent)).unwrap();
    let read = begun.elapsed();
    let device = Mapped::recover(config(), &image).unwrap();
    println!("opened in {opened:?}, read in {read:?}, recovered in {:?}", begun.elapsed());
    assert_eq!(image.entries.len() as u64, EXTENTS);
    drop(device);
}

fn limits() -> Limits {
    Limits::new(Bytes::gib(1024).whole_sectors(), Sectors(1), Sectors(8))
}

fn config() -> MappedConfig {
    let physical = Bytes::gib(1024).whole_sectors();
    let cache = Cache::Volatile { held_max: physical };
    MappedConfig { map_block: Sectors(8), cap: physical, physical, cache, trim: true }
}

#[test]
fn zones_are_kept_until_they_are_empty_or_their_volume_is_gone() {
    let dir = Dir::new("zones");
    let meta = Meta::create(dir.place(), "abc", Bytes::kib(4)).unwrap();
    let (a, b) = (meta.add_volume(&row("a")).unwrap(), meta.add_volume(&row("b")).unwrap());
    let zone = |volume, zone, condition, wp| ZoneChange { volume, zone, condition, wp: Sectors(wp) };
    let first = vec![
        zone(a, 1, ZoneCondition::Closed, 8),
        zone(a, 2, ZoneCondition::ExpOpen, 0),
        zone(b, 1, ZoneCondition::Full, 64),
        zone(b, u32::MAX, ZoneCondition::Offline, 8),
    ];
    meta.commit(&Commit { zones: first.clone(), sequence: 3, ..Commit::default() }).unwrap();
    assert_eq!(meta.zones().unwrap(), first);
    let second = vec![zone(a, 1, ZoneCondition::Empty, 0), zone(a, 2, ZoneCondition::Closed, 16)];
    meta.commit(&Commit { zones: second.clone(), sequence: 4, ..Commit::default() }).unwrap();
    assert_eq!(meta.zones().unwrap(), [&second[1..], &first[2..]].concat());
    meta.commit(&Commit { removed: vec![a], sequence: 5, ..Commit::default() }).unwrap();
    assert_eq!(meta.zones().unwrap(), first[2..]);
    meta.remove_volume(b).unwrap();
    assert_eq!(meta.zones().unwrap(), []);
    meta.set_zones(&first).unwrap();
    drop(meta);
    assert_eq!(Meta::look(dir.place()).unwrap().zones().unwrap(), first);
}
