//! The test programs of the workspace, built once for all parts of the run.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::host::cargo;
use crate::report::Failure;

/// A test program.
pub struct Program {
    /// Its name, with that of its package where it could be another's.
    pub name: String,
    /// The target's name alone: that of its file.
    pub target: String,
    /// Where it lies.
    pub path: PathBuf,
    /// The folder of its package, in which it is run.
    pub folder: PathBuf,
}

/// Builds all test programs.
///
/// # Errors
/// The build fails, and says why on standard error.
pub fn programs() -> Result<Vec<Program>, Failure> {
    let mut child =
        cargo(&["test", "--workspace", "--no-run", "--quiet", "--message-format=json-render-diagnostics"])
            .stdout(Stdio::piped())
            .spawn()?;
    let output = child.stdout.take().ok_or("no output to read")?;
    let mut programs = Vec::new();
    for line in BufReader::new(output).lines() {
        // What cargo prints that is no message is for people.
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        programs.extend(program(&message));
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("cargo test --no-run: {status}").into());
    }
    if programs.is_empty() {
        return Err("cargo built no test program".into());
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// The test program that one of cargo's messages is about.
fn program(message: &Value) -> Option<Program> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = message["executable"].as_str()?.into();
    let target = message["target"]["name"].as_str()?.to_owned();
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let of = folder.file_name()?.to_string_lossy().into_owned();
    Some(Program { name: format!("{of}/{target}"), target, path, folder })
}
