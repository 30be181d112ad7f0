//! What all examples have in common: how they end.

use std::fmt::Display;
use std::process::ExitCode;

/// Success, or failure with what was wrong, in the error's own words.
pub fn tell<E: Display>(outcome: Result<(), E>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
