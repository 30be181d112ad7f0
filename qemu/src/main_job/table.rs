//! The table of latencies.

use std::fmt;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::nic::NicKind;

/// The sizes of message.
pub const SIZES: [u64; 3] = [64, 1024, 16384];

/// Medians of half a round trip in microseconds, one for each size.
pub type Row = [f64; 3];

/// What the main job found.
#[derive(Debug)]
pub struct Table {
    /// The NICs' kinds.
    pub kinds: [NicKind; 2],
    /// Sends over a virtual interface.
    pub send: Row,
    /// RDMA writes over a virtual interface.
    pub write: Row,
    /// UDP through the kernels.
    pub kernel: Row,
}

/// One line of `uvia-perf --json`, as far as we need it.
#[derive(Deserialize)]
struct Line {
    test: String,
    op: String,
    size: u64,
    p50_us: f64,
}

/// The sizes for `uvia-perf --sizes`.
pub fn sizes_argument() -> String {
    SIZES.map(|size| size.to_string()).join(",")
}

/// Reads the medians of one test out of what `uvia-perf --json` wrote.
pub fn row(test: &str, op: &str, text: &str) -> Result<Row> {
    let mut row = [f64::NAN; 3];
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(line)
            .map_err(|error| Error::Job(format!("uvia-perf wrote what is no result ({error}): {line}")))?;
        if line.test == test && line.op == op {
            for (cell, size) in row.iter_mut().zip(SIZES) {
                if size == line.size {
                    *cell = line.p50_us;
                }
            }
        }
    }
    if row.iter().any(|cell| cell.is_nan()) {
        return Err(Error::Job(format!("uvia-perf gave no result of {test} {op} for every size:\n{text}")));
    }
    Ok(row)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = self.kinds;
        writeln!(
            f,
            "Median of half a round trip in microseconds, {a} to {b}, guest to guest over a socket;"
        )?;
        writeln!(f, "in brackets, how many times below kernel UDP on the same NICs:")?;
        writeln!(f, "{:>9}  {:>18}  {:>18}  {:>12}", "size", "VI send", "VI RDMA write", "kernel UDP")?;
        for (at, size) in SIZES.iter().enumerate() {
            let name = if *size < 1024 { format!("{size} B") } else { format!("{} KiB", size / 1024) };
            let kernel = self.kernel[at];
            let cell = |us: f64| format!("{us:.1} ({:.1}x)", kernel / us);
            let end = if at + 1 < SIZES.len() { "\n" } else { "" };
            write!(
                f,
                "{name:>9}  {:>18}  {:>18}  {kernel:>12.1}{end}",
                cell(self.send[at]),
                cell(self.write[at])
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(test: &str, op: &str, size: u64, p50: f64) -> String {
        format!(
            r#"{{"test":"{test}","op":"{op}","class":"dma","nic":"x","size":{size},"iterations":9,"min_us":1.0,"p50_us":{p50}}}"#
        )
    }

    #[test]
    fn medians_are_read_whatever_their_order() {
        let text = [(1024, 2.0), (64, 1.0), (16384, 3.0)]
            .map(|(size, p50)| line("lat", "send", size, p50))
            .join("\n");
        assert_eq!(row("lat", "send", &text).unwrap(), [1.0, 2.0, 3.0]);
        assert!(row("lat", "write", &text).is_err());
        assert!(row("lat", "send", "nonsense").unwrap_err().to_string().contains("nonsense"));
    }

    #[test]
    fn the_table_has_a_line_for_each_size() {
        let table = Table {
            kinds: [NicKind::E1000, NicKind::Virtio],
            send: [10.0, 20.0, 40.0],
            write: [5.0, 10.0, 20.0],
            kernel: [200.0, 200.0, 400.0],
        };
        let text = table.to_string();
        assert!(text.contains("e1000 to virtio"));
        assert!(
            text.lines()
                .any(|line| line.contains("64 B") && line.contains("(20.0x)") && line.contains("(40.0x)"))
        );
        assert!(text.lines().any(|line| line.contains("16 KiB") && line.ends_with("400.0")), "{text}");
    }
}
