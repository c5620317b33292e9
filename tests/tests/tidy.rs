//! The house rules that neither the compiler nor clippy checks.

use std::fs;
use std::path::{Path, PathBuf};

/// The most lines of code of a file, without comments, blank lines and its tests.
const FILE_LINES_MAX: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_path_buf()
}

/// Every file of the source tree below `dir`, by paths relative to the workspace.
fn files(dir: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut todo = vec![root().join(dir)];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).expect("a folder of the workspace") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if name.starts_with('.') && name != ".ci" || name == "target" {
                continue;
            }
            if path.is_dir() {
                todo.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let relative = path.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((relative, text));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no files in {dir}");
    found
}

fn rust_files() -> Vec<(String, String)> {
    files("").into_iter().filter(|(path, _)| path.ends_with(".rs")).collect()
}

/// The lines of code of a file, up to its test module.
fn code_lines(text: &str) -> usize {
    let mut lines = text.lines().map(str::trim).peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'))
        {
            break;
        }
        count += usize::from(!line.is_empty() && !line.starts_with("//"));
    }
    count
}

fn report(complaints: &[String]) {
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn files_are_short() {
    let exempt = |path: &str| path.ends_with("cli.rs") || path.contains("tests");
    let long: Vec<_> = rust_files()
        .iter()
        .filter(|(path, _)| !exempt(path))
        .map(|(path, text)| (path, code_lines(text)))
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines of code, at most {FILE_LINES_MAX}"))
        .collect();
    report(&long);
}

#[test]
fn sector_shifts_live_in_units() {
    let shifts = [["<<", "9"].join(" "), [">>", "9"].join(" "), ["<<", "SECTOR_SHIFT"].join(" ")];
    let wrong: Vec<_> = rust_files()
        .iter()
        .filter(|(path, _)| path != "emulation/src/units.rs")
        .flat_map(|(path, text)| {
            text.lines()
                .enumerate()
                .filter(|(_, line)| shifts.iter().any(|shift| line.contains(shift.as_str())))
                .map(|(number, line)| format!("{path}:{}: {}", number + 1, line.trim()))
                .collect::<Vec<_>>()
        })
        .collect();
    report(&wrong);
}

#[test]
fn unsafe_code_lives_in_the_server_only() {
    let word = ["un", "safe"].concat();
    let is_unsafe = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        code.contains(&format!("{word} {{"))
            || code.contains(&format!("{word} fn"))
            || code.contains(&format!("{word} impl"))
    };
    let wrong: Vec<_> = rust_files()
        .iter()
        .filter(|(path, _)| !path.starts_with("ublk-server/"))
        .filter(|(_, text)| text.lines().any(is_unsafe))
        .map(|(path, _)| path.clone())
        .collect();
    report(&wrong);
}

#[test]
fn nothing_is_left_for_later_and_nothing_names_a_machine() {
    let words: Vec<String> =
        [["TO", "DO"], ["FIX", "ME"], ["X", "XX "], ["/wo", "rk/"], ["deb.deb", "ian.org"]]
            .map(|w| w.concat())
            .into();
    let wrong: Vec<_> = files("")
        .iter()
        // Patches quote lines of the kernel.
        .filter(|(path, _)| path != "Cargo.lock" && !path.starts_with("LICENSE") && !path.ends_with(".patch"))
        .flat_map(|(path, text)| {
            text.lines()
                .enumerate()
                // What surrounds a change of a patch is somebody else's.
                .filter(|(_, line)| !path.ends_with(".patch") || line.starts_with('+'))
                .filter(|(_, line)| words.iter().any(|word| line.contains(word.as_str())))
                .map(|(number, line)| format!("{path}:{}: {}", number + 1, line.trim()))
                .collect::<Vec<_>>()
        })
        .collect();
    report(&wrong);
}

#[test]
fn the_architecture_stays_short() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    assert!(text.lines().count() <= 120, "ARCHITECTURE.md has {} lines, at most 120", text.lines().count());
}

/// The clauses of SEMANTICS.md, each with the tests that it names as `file::test`.
fn clauses() -> Vec<(String, Vec<(String, String)>)> {
    let text = fs::read_to_string(root().join("SEMANTICS.md")).expect("SEMANTICS.md");
    text.split("\n**")
        .skip(1)
        .map(|clause| {
            let (number, body) = clause.split_once("**").expect("a clause begins with its number in bold");
            let held = body.split("Held by:").nth(1).unwrap_or_default();
            let held = held.split("\n\n").next().unwrap_or_default();
            let tests = held
                .split('`')
                .skip(1)
                .step_by(2)
                .filter_map(|name| name.split_once("::"))
                .map(|(file, test)| (file.to_owned(), test.split_whitespace().collect::<Vec<_>>().join(" ")))
                .collect();
            (number.to_owned(), tests)
        })
        .collect()
}

#[test]
fn every_clause_has_a_test_that_exists() {
    let clauses = clauses();
    assert!(clauses.len() > 10, "only {} clauses were found", clauses.len());
    let mut complaints = Vec::new();
    for (number, tests) in clauses {
        if tests.is_empty() {
            complaints.push(format!("clause {number} names no test"));
        }
        for (file, test) in tests {
            let text = fs::read_to_string(root().join(&file)).unwrap_or_default();
            let found = if file.ends_with(".rs") {
                text.contains(&format!("fn {test}(")) || text.contains(&format!("\n    {test}:\n"))
            } else {
                text.contains(&test)
            };
            if !found {
                complaints.push(format!("clause {number} names {file}::{test}, which does not exist"));
            }
        }
    }
    report(&complaints);
}

#[test]
fn the_pure_crates_know_no_server() {
    let manifest = fs::read_to_string(root().join("emulation/Cargo.toml")).expect("a manifest");
    for name in ["ublk-server", "tokio", "libc", "rustix", "io-uring"] {
        assert!(!manifest.contains(name), "emulation/Cargo.toml names {name}");
    }
}
