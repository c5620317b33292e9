use super::*;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ublk-state-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn state(&self) -> State {
        State::at(self.0.join("ublk")).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn disk(pool: &str) -> DiskRecord {
    let process = Process::current().unwrap();
    DiskRecord { name: String::new(), id: None, pool: pool.to_string(), process, volume: None, config: None }
}

#[test]
fn a_process_is_known_by_number_and_start_time() {
    let own = Process::current().unwrap();
    assert!(own.alive());
    assert!(!Process { start_time: own.start_time + 1, ..own }.alive());
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let process = Process { pid, start_time: start_time(pid).unwrap() };
    assert!(process.alive());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!process.alive());
}

#[test]
fn a_command_name_may_hold_anything() {
    let fields = (4..=21).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    let stat = |state: &str| format!("7 (a) b) ({state}) {state} {fields} 4242 23");
    assert_eq!(parse_start_time(&stat("S")), Some(4242));
    assert_eq!(parse_start_time(&stat("Z")), None, "a zombie serves nothing");
    assert_eq!(parse_start_time("7 (a"), None);
}

#[test]
fn directories_of_others_are_refused() {
    let dir = Dir::new();
    let base = dir.0.join("ublk");
    fs::create_dir(&base).unwrap();
    fs::set_permissions(&base, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(State::at(base.clone()), Err(StateError::Unsafe(path)) if path == base));
    fs::remove_dir(&base).unwrap();
    std::os::unix::fs::symlink("/tmp", &base).unwrap();
    assert!(matches!(State::at(base), Err(StateError::Unsafe(_))));
}

#[test]
fn names_are_taken_once_and_records_are_private() {
    let dir = Dir::new();
    let state = dir.state();
    let made = state.create_disk(disk("p"), Some("a")).unwrap();
    assert!(matches!(state.create_disk(disk("q"), Some("a")), Err(StateError::InUse("name", _))));
    assert_eq!(state.create_disk(disk("p"), None).unwrap().name, "disk0");
    assert_eq!(state.disks().unwrap().len(), 2);
    assert_eq!(state.disks().unwrap()[0], made);
    let mode = fs::metadata(state.disk_path("a")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    state.remove_disk("a").unwrap();
    state.remove_disk("a").unwrap();
    assert!(state.create_disk(disk("q"), Some("a")).is_ok());
}

#[test]
fn a_record_is_not_read_through_a_link() {
    let dir = Dir::new();
    let state = dir.state();
    let elsewhere = dir.0.join("elsewhere.json");
    write_record(&elsewhere, &disk("p")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, state.disk_path("x")).unwrap();
    assert!(matches!(state.disks(), Err(StateError::Io(..))));
}

fn pool(name: &str) -> PoolRecord {
    let pool = crate::config::PoolConfig {
        name: name.to_string(),
        kind: crate::config::PoolType::Null,
        memory: emulation::Bytes(0),
        map_block: emulation::Bytes(4096),
        cache: crate::config::CacheMode::None,
        cache_size: emulation::Bytes(4096),
        path: None,
        buffered: false,
        recovery: None,
        identifier: String::new(),
    };
    PoolRecord { process: Process::current().unwrap(), version: "0".to_string(), pool }
}

#[test]
fn a_pool_without_a_name_gets_the_first_free_one() {
    let dir = Dir::new();
    let state = dir.state();
    assert_eq!(state.create_pool(pool("")).unwrap().pool.name, "pool0");
    assert_eq!(state.create_pool(pool("")).unwrap().pool.name, "pool1");
    assert!(matches!(state.create_pool(pool("pool1")), Err(StateError::InUse("pool", _))));
    assert_eq!(state.pools().unwrap().len(), 2);
}

#[test]
fn what_a_dead_server_left_is_replaced_unless_it_is_a_device() {
    let dir = Dir::new();
    let state = dir.state();
    let mut dead = pool("p");
    dead.process.start_time += 1;
    state.create_pool(dead.clone()).unwrap();
    assert_eq!(state.create_pool(dead.clone()).unwrap().pool.name, "p", "its server is dead");
    let left = DiskRecord { process: dead.process, ..disk("p") };
    state.create_disk(left.clone(), Some("a")).unwrap();
    state.create_disk(left.clone(), Some("a")).expect("a dead server without a device holds no name");
    assert_eq!(state.create_pool(dead.clone()).unwrap().pool.name, "p");
    state.write_disk(&DiskRecord { id: Some(3), name: "a".to_string(), ..left }).unwrap();
    assert!(matches!(state.create_pool(dead), Err(StateError::InUse("pool", _))), "its device is left");
    assert!(matches!(state.create_disk(disk("q"), Some("a")), Err(StateError::InUse("name", _))));
}
