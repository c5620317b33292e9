//! The commands. Each returns what it prints on standard output, or why it failed.

mod add;
mod check;
mod copy;
mod copy_host;
mod copy_kcopyd;
mod copy_native;
mod del;
mod fault;
mod features;
mod image;
mod info;
mod list;
mod locate;
mod log;
mod manual;
mod power_cut;
mod recover;
mod replay;
mod selftest;
mod serve;
mod set;
mod stats;
mod top;
mod trace;
mod zone;

use crate::cli::{Cli, Command};
use crate::coherence;
use crate::control::api::ApiError;
use crate::control::client::ClientError;
use crate::options::OptionsError;
use crate::server::{SpawnError, ublk_error};
use crate::state::StateError;
use crate::ublk::UblkError;
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};

/// How a command that failed ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It failed.
    Failed = 1,
    /// It was asked for what makes no sense.
    Usage = 2,
    /// It cannot run here.
    CannotRun = 3,
}

/// Why a command failed: what and why on the first line, what to do on the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How it ends.
    pub exit: Exit,
    /// What failed and why.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A text of one line, or of two of which the second says what to do.
    fn from_lines(exit: Exit, text: &str) -> Self {
        let (message, hint) = text.split_once('\n').map_or((text, None), |(m, h)| (m, Some(h.to_string())));
        Self { exit, message: message.to_string(), hint }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ublk: {}", self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n      {hint}"))
    }
}

/// The codes of failures that no other try on this machine can mend.
const CANNOT_RUN: [&str; 6] =
    ["no-module", "no-permission", "io-uring-disabled", "io-uring", "old-kernel", "bad-kernel"];

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let exit = match error.status {
            _ if CANNOT_RUN.contains(&error.code.as_str()) => Exit::CannotRun,
            _ if error.code == "bad-request" => Exit::Usage,
            _ => Exit::Failed,
        };
        Self { exit, message: error.message, hint: error.hint }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Api(error) => error.into(),
            ClientError::Connect(..) | ClientError::Transport(_) | ClientError::Answer(_) => {
                Self::failed(error.to_string()).hint("`ublk list` shows whether the server is alive")
            }
        }
    }
}

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Self {
        match error {
            SpawnError::Api(error) => error.into(),
            SpawnError::Start(_) | SpawnError::Died(..) => Self::from_lines(Exit::Failed, &error.to_string()),
        }
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Self::from_lines(Exit::Failed, &error.to_string())
    }
}

impl From<UblkError> for Failure {
    fn from(error: UblkError) -> Self {
        ublk_error(&error).into()
    }
}

impl From<OptionsError> for Failure {
    fn from(error: OptionsError) -> Self {
        Self::from_lines(Exit::Usage, &error.to_string())
    }
}

/// Runs a command.
///
/// # Errors
/// Why it failed.
pub fn run(cli: Cli) -> Result<(), Failure> {
    let text = match cli.command {
        Command::Add(args) => add::run(*args)?,
        Command::Recover(args) => recover::run(&args)?,
        Command::Del(args) => del::run(&args)?,
        Command::List(args) => list::run(&args)?,
        Command::Info(args) => info::run(&args)?,
        Command::Features(args) => features::run(&args)?,
        Command::Log(args) => log::run(&args)?,
        Command::Copy(args) => copy::run(&args)?,
        Command::Set(args) => set::run(&args)?,
        Command::Stats(args) => stats::run(&args)?,
        Command::Fault { action } => fault::run(&action)?,
        Command::PowerCut(args) => power_cut::run(&args)?,
        Command::Zone { action } => zone::run(&action)?,
        Command::Trace(args) => trace::run(&args)?,
        Command::Top(args) => top::run(&args)?,
        Command::Replay(args) => replay::run(&args)?,
        Command::Selftest(args) => selftest::run(&args)?,
        Command::Check(args) => check::run(&args)?,
        Command::Import(args) => image::import(&args)?,
        Command::Export(args) => image::export(&args)?,
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { dir } => manual::run(dir.as_deref())?,
        Command::Serve => return serve::run(),
        Command::CoherenceHelper => {
            return coherence::helper_main().map_err(|error| Failure::failed(error.to_string()));
        }
    };
    print(&text)
}

/// Prints. A reader that has gone away has had enough.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// JSON of a command, with the number of its schema.
#[derive(Debug, Serialize)]
struct Schema<T> {
    schema: u32,
    #[serde(flatten)]
    data: T,
}

fn json(data: impl Serialize) -> String {
    let text = serde_json::to_string_pretty(&Schema { schema: 1, data });
    text.expect("what is printed has a JSON form") + "\n"
}
