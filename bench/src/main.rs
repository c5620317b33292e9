//! The command `ublk-bench`.

use bench::copy::{self, CopyOptions};
use bench::experiment::params::Params;
use bench::experiment::{self, ALL};
use bench::failure::{Exit, Failure};
use bench::model::{self, ModelOptions};
use bench::report::{self, Report};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Experiments and loads for the copy-offload disk
#[derive(Parser)]
#[command(name = "ublk-bench", version, max_term_width = 100)]
#[command(after_help = "Exit status: 0 done, 1 failed, 2 usage, 3 cannot run here.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the experiments with their parameters
    List,
    /// Do an experiment
    Run(RunOptions),
    /// Print what the model of a target of device mapper predicts that its disks are sent
    ///
    /// A request a line, in order: operation, disk, first sector, sectors. Disk 0 is the source, origin, first leg or data
    /// device, disk 1 the destination, cow device or second leg.
    Model(ModelOptions),
    /// Send a load of copies to a disk and measure it
    ///
    /// The options and the JSON are those of fio, which has no copy operation. Every byte from --offset on for
    /// --size is copied to --dest_offset once, in commands of --ranges segments of --bs; with --time_based again
    /// and again, each time from and to other places. What was at --dest_offset is lost.
    Copy(Box<CopyOptions>),
}

#[derive(clap::Args)]
struct RunOptions {
    /// One of those that `list` shows
    experiment: String,
    /// Change a parameter of it
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Write a page with plots there
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write every number there
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn list() {
    for experiment in &ALL {
        println!("{}: {}", experiment.name, experiment.about);
        println!("  {}", experiment.needs);
        for param in experiment.params {
            println!("  --set {}={}", param.name, param.default);
            println!("        {}: {}", param.about, param.range());
        }
        println!();
    }
}

fn run(options: &RunOptions) -> Result<(), Failure> {
    let experiment = experiment::named(&options.experiment)?;
    let params = Params::parse(experiment.name, experiment.params, &options.set)?;
    let (begun, cpu) = (Instant::now(), report::cpu());
    let outcome = experiment.run(&params)?;
    let took = (begun.elapsed().as_secs_f64(), report::cpu() - cpu);
    let report = Report::new(experiment, &params, report::Machine::this(), took, outcome)?;
    report.write(options.json.as_deref(), options.report.as_deref())?;
    print!("{}", report.text());
    Ok(())
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let done = match cli.command {
        Command::List => {
            list();
            Ok(())
        }
        Command::Run(options) => run(&options),
        Command::Model(options) => model::run(&options).map(|text| print!("{text}")),
        Command::Copy(options) => copy::run(&options),
    };
    match done {
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
    let name = std::env::args().nth(1).filter(|name| name == "run").unwrap_or_else(|| "copy".to_string());
    eprintln!("{}", failure.hint(format!("options of {name}: {}", options_of(&name).join(" "))));
    ExitCode::from(Exit::Usage as u8)
}

fn options_of(name: &str) -> Vec<String> {
    let cli = Cli::command();
    let arguments = cli.find_subcommand(name).into_iter().flat_map(clap::Command::get_arguments);
    arguments.filter_map(clap::Arg::get_long).map(|name| format!("--{name}")).collect()
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
        let options = options_of("copy");
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
