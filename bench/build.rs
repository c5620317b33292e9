//! Notes the commit that the program is built from, for what it reports.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src");
    let git = Path::new("../.git");
    for name in ["HEAD", "index"] {
        if git.join(name).exists() {
            println!("cargo::rerun-if-changed=../.git/{name}");
        }
    }
    let describe = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let output = Command::new("git").args(describe).output().ok().filter(|output| output.status.success());
    let commit = output.and_then(|output| String::from_utf8(output.stdout).ok());
    println!("cargo::rustc-env=BENCH_COMMIT={}", commit.as_deref().map_or("unknown", str::trim));
}
