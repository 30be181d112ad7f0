//! Results on standard output. `println!` would panic when a reader such as `head` has gone.

use std::io::{self, Write};

use serde::Serialize;

use crate::Failure;

/// Prints one line of text.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_line(line: impl std::fmt::Display) -> Result<(), Failure> {
    // Flushed a line at a time, so that whoever reads a pipe sees each result when it is there.
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| Failure::failed(format!("standard output: {e}")))
}

/// Prints one object on a line of its own.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print_line(serde_json::to_string(value)?)
}
