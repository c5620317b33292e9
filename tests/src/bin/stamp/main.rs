//! `stamp` shows that copies under load bring what their source held: see the usage text in `options`.

mod history;
mod load;
mod options;
mod sector;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use load::Load;
use options::{Options, USAGE};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "-h" || argument == "--help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(&arguments) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("stamp: {error:#}; see --help");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("stamp: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every sector was right.
fn run(options: &Options) -> Result<bool> {
    let load = Load::new(options)?;
    let wrong = load.run()?;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counts = &load.counts;
    let [source, destination] = &counts.judged;
    println!(
        "{} writes to the source, {} to the destination, {} copies; judged {} sectors of the source and {} of the \
         destination, {} of which held a copy",
        count(&counts.source_writes),
        count(&counts.destination_writes),
        count(&counts.copies),
        count(source),
        count(destination),
        count(&counts.judged_copies),
    );
    for sector in &wrong {
        println!("wrong: {sector}");
    }
    // A run in which nothing was copied shows nothing.
    ensure!(!wrong.is_empty() || count(&counts.judged_copies) > 0, "no copied sector was judged");
    Ok(wrong.is_empty())
}
