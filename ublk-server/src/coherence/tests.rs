use super::*;
use crate::store::file::is_in_memory;
use std::io::Write;

#[test]
fn borders_grow_outward_and_stay_on_the_node() {
    let range = NodeRange { offset: 4096 + 512, length: 512 };
    assert_eq!(outward(range, 4096, 1 << 30), NodeRange { offset: 4096, length: 4096 });
    assert_eq!(outward(range, 2 << 20, 1 << 20), NodeRange { offset: 0, length: 1 << 20 });
    assert_eq!(outward(range, u64::MAX, 1 << 30), NodeRange { offset: 0, length: 1 << 30 });
}

#[test]
fn a_mount_of_the_disk_or_of_its_partition_is_found() {
    let line =
        |source: &str| format!("36 35 98:0 / /mnt/a rw,noatime master:1 - ext4 {source} rw,errors=continue");
    for (source, held) in [
        ("/dev/ublkb1", true),
        ("/dev/ublkb1p2", true),
        ("/dev/ublkb10", false),
        ("/dev/ublkb1px", false),
        ("tmpfs", false),
    ] {
        assert_eq!(mounted_on(&line(source), "ublkb1"), held.then_some("/mnt/a"), "{source}");
    }
}

#[test]
fn a_disk_that_is_not_there_is_held_by_nobody() {
    assert_eq!(execute(&Order::Claims(vec![1 << 30]), &mut || Ok(())).unwrap(), Report::default());
}

#[test]
fn pages_are_written_and_dropped_and_those_that_stay_are_counted() {
    let path = std::env::temp_dir().join(format!("ublk-cache-{}", std::process::id()));
    let mut file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    let kept_in_memory = is_in_memory(&file).unwrap();
    file.write_all(&vec![1; 64 * 4096]).unwrap();
    let range = NodeRange { offset: 8 * 4096 + 512, length: 512 };
    let Some(before) = sys::cached_pages(&file, range.offset, range.length).unwrap() else {
        fs::remove_file(&path).unwrap();
        eprintln!("not tested: this kernel has no cachestat(2)");
        return;
    };
    let dropped = drop_pages(&file, 64 * 4096, range, &mut || Ok(())).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(before, 1);
    if kept_in_memory {
        assert_eq!(dropped, Some(1), "the pages of tmpfs have no other place");
    } else {
        assert_eq!(dropped, Some(0));
    }
}
