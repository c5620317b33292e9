//! Why a command failed, and how it ends.

use std::fmt;

/// The exit status of a command that failed.
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
    /// It failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, message: message.into(), hint: None }
    }

    /// It was asked for what makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into(), hint: None }
    }

    /// It cannot run here.
    pub fn cannot_run(message: impl Into<String>) -> Self {
        Self { exit: Exit::CannotRun, message: message.into(), hint: None }
    }

    /// The same with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ublk-bench: {}", self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n            {hint}"))
    }
}
