//! Latencies between the two processes, as `uvia-perf` measures them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uvia_tools::Failure;

use crate::job::Ends;

/// The sizes of message.
pub const SIZES: [u64; 3] = [64, 1024, 16384];

/// How long one measurement may take; one on a machine that is free takes a second.
const PATIENCE: Duration = Duration::from_secs(120);

/// What messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Sends into posted receives.
    Send,
    /// RDMA writes into watched memory.
    Write,
}

impl Op {
    /// As `uvia-perf` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
        }
    }
}

/// Half round trips in microseconds: a row of `uvia-perf lat --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// "send" or "write".
    pub op: String,
    /// Payload in bytes.
    pub size: u64,
    /// Round trips.
    pub iterations: u64,
    /// The shortest.
    pub min_us: f64,
    /// The median.
    pub p50_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
    /// The mean.
    pub mean_us: f64,
}

/// Measures one kind of message at each size.
///
/// # Errors
/// Either process fails.
pub fn measure(ends: &Ends<'_>, op: Op, iterations: u64) -> Result<Vec<Row>, Failure> {
    let (sizes, iterations) = (SIZES.map(|size| size.to_string()).join(","), iterations.to_string());
    let listen = ["lat", "--listen"].map(str::as_ref);
    let ask =
        ["lat", "--to", "b", "--op", op.name(), "--sizes", &sizes, "--iterations", &iterations, "--json"];
    let said = ends.run("uvia-perf", &listen, &ask.map(str::as_ref), PATIENCE)?;
    rows(op, &said)
}

/// The rows in what `uvia-perf --json` wrote: one for each size, in their order.
fn rows(op: Op, text: &str) -> Result<Vec<Row>, Failure> {
    let wrong = |why: &str| Failure::failed(format!("uvia-perf wrote what is no result ({why}):\n{text}"));
    let rows: Vec<Row> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|e: serde_json::Error| wrong(&e.to_string()))?;
    let all = rows.iter().map(|row| row.size).eq(SIZES) && rows.iter().all(|row| row.op == op.name());
    if all { Ok(rows) } else { Err(wrong("not a line for each size")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_a_line() {
        let line = |size: u64| {
            format!(
                r#"{{"test":"lat","op":"send","class":"dma","nic":"x","size":{size},"iterations":9,"min_us":1.0,
                "p50_us":2.0,"p90_us":2.5,"p99_us":3.0,"p999_us":4.0,"mean_us":2.1}}"#
            )
            .replace('\n', "")
        };
        let text = SIZES.map(line).join("\n");
        assert_eq!(rows(Op::Send, &text).unwrap()[2].mean_us, 2.1);
        assert!(rows(Op::Write, &text).is_err());
        assert!(rows(Op::Send, &line(64)).is_err());
        assert!(rows(Op::Send, "nonsense").is_err());
    }
}
