//! The command `ublk`.

use clap::Parser;
use std::process::ExitCode;
use ublk_server::cli::Cli;
use ublk_server::commands;

fn main() -> ExitCode {
    match commands::run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.exit as u8)
        }
    }
}
