//! `ublk completions` and `ublk man`: both made from the definition of the command line.

use super::Failure;
use crate::cli::Cli;
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::Path;

pub(super) fn completions(shell: Shell) -> String {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ublk", &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

pub(super) fn run(dir: Option<&Path>) -> Result<String, Failure> {
    let Some(dir) = dir else {
        let mut out = Vec::new();
        let page = clap_mangen::Man::new(Cli::command()).render(&mut out);
        page.map_err(|error| Failure::failed(error.to_string()))?;
        return Ok(String::from_utf8_lossy(&out).into_owned());
    };
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", dir.display()));
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), dir).map_err(failed)?;
    Ok(String::new())
}
