//! How a tool ends.

use std::error::Error;
use std::process::ExitCode;

/// For the end of `--help`.
pub const EXIT_CODES: &str =
    "Exit codes: 0 success, 1 failure (the reason is on standard error), 2 wrong usage.";

/// Why a tool ends without success.
///
/// It is made of any error by `?`. It is no error itself: it is where errors end, as text for a person.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line cannot be right (status 2).
    Usage(String),
    /// It was right, and could not be done (status 1).
    Failed(String),
    /// As before, and the reason has been reported already (status 1).
    Reported,
}

impl Failure {
    /// A command line that cannot be right.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::Usage(what.into())
    }

    /// Something that could not be done.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        // Only the error's own words: those of this project quote their sources themselves.
        Self::Failed(error.to_string())
    }
}

/// Runs a tool's main function, and makes its outcome a message on standard error and an exit status.
pub fn run(tool: &str, main: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    match main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(what)) => {
            eprintln!("{tool}: {what}\nFor more information, try '{tool} --help'.");
            ExitCode::from(2)
        }
        Err(Failure::Failed(what)) => {
            eprintln!("{tool}: {what}");
            ExitCode::FAILURE
        }
        Err(Failure::Reported) => ExitCode::FAILURE,
    }
}
