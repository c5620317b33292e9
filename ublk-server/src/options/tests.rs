use super::*;

const AVAILABLE: Bytes = Bytes::gib(8);

fn options(toml: &str) -> AddOptions {
    toml::from_str(toml).unwrap()
}

#[test]
fn no_option_is_a_thin_ram_disk() {
    let none = AddOptions::default();
    let pool = none.new_pool(AVAILABLE).unwrap();
    assert_eq!(pool.kind, PoolType::Ram);
    assert_eq!(pool.memory, Bytes::gib(6));
    assert_eq!(pool.cache, CacheMode::None);
    let limits = none.disk().unwrap().limits(&pool_named(pool), Bytes::gib(1)).unwrap();
    assert_eq!(limits.capacity.bytes(), Bytes::gib(1));
    assert_eq!(limits.copy_mode, emulation::CopyMode::Remap);
}

fn pool_named(mut pool: PoolConfig) -> PoolConfig {
    pool.name = "p".to_string();
    pool
}

#[test]
fn the_command_line_wins_over_the_file() {
    let file = options("queues = 4\nsize = \"2G\"\ntype = \"ram\"");
    let line = AddOptions { queues: Some(2), ..AddOptions::default() };
    let both = line.or(file);
    assert_eq!(both.queues, Some(2));
    assert_eq!(both.size, Some(Bytes::gib(2)));
}

#[test]
fn a_file_with_an_unknown_key_or_a_bad_size_is_refused() {
    for text in ["quees = 1", "size = \"1X\"", "size = -1", "type = \"tape\"", "copy = 3"] {
        assert!(toml::from_str::<AddOptions>(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_printed_makes_the_same_disk() {
    let given =
        options("type = \"ram\"\nqueues = 3\nsize = \"2G\"\nname = \"a\"\nmemory = \"1G\"\npool = \"p\"");
    let (pool, disk) = (given.new_pool(AVAILABLE).unwrap(), given.disk().unwrap());
    let text = toml::to_string(&AddOptions::of(&pool, &disk)).unwrap();
    let again = options(&text);
    assert_eq!(again.new_pool(AVAILABLE).unwrap(), pool);
    let mut disk_again = again.disk().unwrap();
    assert_eq!(disk_again.copy.take(), Some(CopyModeName::Remap));
    assert_eq!(disk_again.logical_block_size.take(), Some(Bytes(512)));
    assert_eq!(disk_again, disk);
}

#[test]
fn contradictions_are_refused() {
    for text in [
        "memory = \"9G\"",
        "type = \"null\"\nmemory = \"1G\"",
        "type = \"loop\"",
        "file = \"/dev/null\"",
        "map-block = \"3K\"",
        "map-block = \"128K\"",
        "memory = 1000",
        "cache-size = 0",
    ] {
        assert!(options(text).new_pool(AVAILABLE).is_err(), "{text}");
    }
    for text in [
        "queues = 0",
        "depth = 4097",
        "size = 1000",
        "size = 0",
        "size = \"8388608T\"",
        "logical-block-size = 768",
        "logical-block-size = \"8K\"",
        "copy-max-bytes = 0",
        "copy-max-segment-bytes = \"64M\"",
        "copy-max-segments = 257",
        "name = \"0a\"",
        "name = \"a/b\"",
        "name = \"ublkb7\"",
        "no-ublk = true\nnumber = 1",
    ] {
        let given = options(text);
        let pool = pool_named(AddOptions::default().new_pool(AVAILABLE).unwrap());
        assert!(given.disk().unwrap().limits(&pool, Bytes::gib(1)).is_err(), "{text}");
    }
    assert!(options("number = -2").disk().is_err());
    assert_eq!(options("number = -1").disk().unwrap().id, None);
}

#[test]
fn a_pool_that_exists_refuses_other_options_and_takes_its_own() {
    let pool = pool_named(options("type = \"ram\"\nmemory = \"1G\"").new_pool(AVAILABLE).unwrap());
    assert!(AddOptions::default().check_pool(&pool).is_ok());
    assert!(options("memory = \"1G\"\ntype = \"ram\"").check_pool(&pool).is_ok());
    for text in ["memory = \"2G\"", "type = \"null\"", "map-block = \"8K\"", "cache = \"volatile\""] {
        assert!(options(text).check_pool(&pool).is_err(), "{text}");
    }
}

#[test]
fn every_spelling_of_recovery_is_taken() {
    use crate::cli::{Cli, Command};
    use clap::Parser;
    for (line, mode) in [
        ("", None),
        ("-r 0", None),
        ("-r 1", Some(RecoveryMode::Queue)),
        ("-r", Some(RecoveryMode::Queue)),
        ("-r 1 -i 1", Some(RecoveryMode::Reissue)),
        ("--user_recovery_reissue 1", Some(RecoveryMode::Reissue)),
        ("-e 1", Some(RecoveryMode::FailIo)),
        ("--user-recovery", Some(RecoveryMode::Queue)),
        ("--user-recovery=reissue -q 2", Some(RecoveryMode::Reissue)),
        ("--user-recovery=fail-io", Some(RecoveryMode::FailIo)),
    ] {
        let words = ["ublk", "add"].into_iter().chain(line.split_whitespace());
        let Command::Add(add) = Cli::try_parse_from(words).unwrap().command else { panic!("not add") };
        assert_eq!(add.options.new_pool(AVAILABLE).unwrap().recovery, mode, "{line}");
        let unprivileged = DiskConfig { unprivileged: true, ..add.options.disk().unwrap() };
        let pool = pool_named(add.options.new_pool(AVAILABLE).unwrap());
        assert_eq!(unprivileged.limits(&pool, Bytes::gib(1)).is_err(), mode.is_some(), "{line}");
    }
}
