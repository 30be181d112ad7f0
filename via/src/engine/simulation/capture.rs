//! Captures: frames in the format of libpcap, and what tshark makes of them with the dissector of this project.

use std::io::{Error, ErrorKind, Result, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The dissector.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/wireshark/uvia.lua");
/// Between the values of a field that a frame has more than once.
pub(super) const AGAIN: char = ';';

/// Frames as a capture on Ethernet, a microsecond apart.
pub(super) fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Magic, version 2.4, no time zone, no accuracy, longest frame, Ethernet.
    for word in [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1u32] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for (n, frame) in frames.iter().enumerate() {
        let (seconds, micros) = (n as u32 / 1_000_000, n as u32 % 1_000_000);
        for word in [seconds, micros, frame.len() as u32, frame.len() as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(frame);
    }
    bytes
}

/// Has tshark dissect frames; for each, what it shows of these fields, and then what it remarks. What a field shows is without the colons of
/// addresses, and flags are 0 or 1.
pub(crate) fn dissect(frames: &[Vec<u8>], fields: &[&str]) -> Result<Vec<Vec<String>>> {
    dissect_with(Path::new(SCRIPT), frames, fields)
}

pub(super) fn dissect_with(script: &Path, frames: &[Vec<u8>], fields: &[&str]) -> Result<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", "-", "-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"]);
    command.args(["-E", &format!("aggregator={AGAIN}"), "-X", &format!("lua_script:{}", script.display())]);
    // Last in each line, so that a line is whole even where all other fields are missing.
    for field in fields.iter().chain(&["_ws.expert.message", "frame.number"]) {
        command.args(["-e", field]);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().ok_or(ErrorKind::BrokenPipe)?;
    let bytes = capture(frames);
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let output = child.wait_with_output()?;
    let written = writer.join().map_err(|_| ErrorKind::Other)?;
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() || said.contains("Lua") || text.contains("Lua Error") {
        let errors: Vec<_> = text.lines().filter(|line| line.contains("Lua Error")).take(3).collect();
        return Err(Error::other(format!("tshark: {}: {said}{errors:?}", output.status)));
    }
    written?;
    let rows: Vec<Vec<String>> = text
        .lines()
        .map(|line| {
            let mut row: Vec<_> = line.split('\t').map(plain).collect();
            // Without the number.
            row.truncate(fields.len() + 1);
            row
        })
        .collect();
    if rows.len() != frames.len() {
        return Err(Error::other(format!("{} frames in, {} out: {said}", frames.len(), rows.len())));
    }
    Ok(rows)
}

/// Versions of tshark write these in different ways.
fn plain(value: &str) -> String {
    match value {
        "True" => "1".to_owned(),
        "False" => "0".to_owned(),
        _ => value.replace(':', ""),
    }
}
