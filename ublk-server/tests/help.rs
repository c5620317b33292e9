//! The help of every command, word for word.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Env, golden};

const COMMANDS: [&str; 30] = [
    "add",
    "recover",
    "del",
    "list",
    "info",
    "features",
    "log",
    "copy",
    "set",
    "stats",
    "fault",
    "fault add",
    "fault list",
    "fault del",
    "power-cut",
    "zone",
    "zone report",
    "zone open",
    "zone close",
    "zone finish",
    "zone reset",
    "zone set-condition",
    "selftest",
    "check",
    "import",
    "export",
    "completions",
    "trace",
    "top",
    "replay",
];

#[test]
fn help_is_what_it_was() {
    let env = Env::new();
    let mut text = env.ok(&["--help"]);
    for command in COMMANDS {
        text.push_str(&format!("\n==== ublk {command} --help\n\n"));
        let args: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        text.push_str(&env.ok(&args));
    }
    golden("help.txt", &text);
}

#[test]
fn what_is_not_there_is_not_offered() {
    let env = Env::new();
    let help = env.ok(&["add", "--help"]);
    for later in ["--zero-copy", "--append"] {
        assert!(!help.contains(later), "{later}");
    }
    for later in ["--zero-copy", "--nonsense"] {
        let output = env.ublk(&["add", later]);
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.stderr.contains("unexpected argument"), "{output:?}");
    }
}

#[test]
fn every_shell_and_every_page_is_made() {
    let env = Env::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(env.ok(&["completions", shell]).contains("selftest"), "{shell}");
    }
    assert!(env.ok(&["man"]).starts_with(".ie"));
    let dir = env.dir.join("man");
    env.ok(&["man", dir.to_str().unwrap()]);
    let pages: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(pages.iter().any(|page| page == "ublk-copy.1"), "{pages:?}");
    assert!(!pages.iter().any(|page| page == "ublk-serve.1"), "hidden commands have no page: {pages:?}");
}
