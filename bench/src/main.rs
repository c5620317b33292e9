//! The command `ublk-bench`.

use bench::copy::{self, CopyOptions};
use bench::failure::{Exit, Failure};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Loads for the copy-offload disk
#[derive(Parser)]
#[command(name = "ublk-bench", version, max_term_width = 100)]
#[command(after_help = "Exit status: 0 done, 1 failed, 2 usage, 3 cannot run here.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send a load of copies to a disk and measure it
    ///
    /// The options and the JSON are those of fio, which has no copy operation. Every byte from --offset on for
    /// --size is copied to --dest_offset once, in commands of --ranges segments of --bs; with --time_based again
    /// and again, each time from and to other places. What was at --dest_offset is lost.
    Copy(Box<CopyOptions>),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let Command::Copy(options) = cli.command;
    match copy::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Help and version are no failures. An unknown option is answered with those that there are.
fn refused(error: &clap::Error) -> ExitCode {
    if error.kind() != ErrorKind::UnknownArgument {
        // Nothing is left to do when the terminal is gone.
        drop(error.print());
        return ExitCode::from(error.exit_code() as u8);
    }
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) => name.clone(),
        _ => "an argument".to_string(),
    };
    let failure = Failure::usage(format!("there is no option {unknown}"));
    let known = format!("options of copy: {}", copy_options().join(" "));
    eprintln!("{}", failure.hint(known));
    ExitCode::from(Exit::Usage as u8)
}

fn copy_options() -> Vec<String> {
    let cli = Cli::command();
    let copy = cli.find_subcommand("copy").into_iter().flat_map(clap::Command::get_arguments);
    copy.filter_map(clap::Arg::get_long).map(|name| format!("--{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_options_of_fio_are_there() {
        let options = copy_options();
        for fio in [
            "filename",
            "rw",
            "bs",
            "iodepth",
            "numjobs",
            "size",
            "offset",
            "runtime",
            "time_based",
            "number_ios",
            "randseed",
            "verify",
            "output",
            "output-format",
            "name",
            "rate_iops",
            "group_reporting",
        ] {
            assert!(options.contains(&format!("--{fio}")), "{fio}");
        }
    }
}
