//! The result, for people and for programs.

use std::fmt;

use serde::Serialize;

use crate::copy::Copied;
use crate::latency::{Row, SIZES};
use crate::machine::Machine;
use crate::pingpong::{Mean, PROVIDERS};

/// All that was found out.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// The adapters' kinds: of the process that asks, and of the one that answers.
    pub nics: [&'static str; 2],
    /// Whether each is served by a process of its own.
    pub apart: bool,
    /// The file that was moved.
    pub copy: Copied,
    /// Latencies of sends, then of RDMA writes.
    pub latency: Vec<Row>,
    /// What fi_pingpong found, if it was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fi_pingpong: Vec<Mean>,
}

fn size_name(size: u64) -> String {
    if size < 1024 { format!("{size} B") } else { format!("{} KiB", size / 1024) }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Copied { file, bytes, seconds, mb_per_s, sha256 } = &self.copy;
        writeln!(
            f,
            "{file}: {bytes} bytes moved from one process to the other in {seconds:.2} s ({mb_per_s:.1} MB/s)"
        )?;
        writeln!(f, "SHA-256 {sha256}: the same on arrival\n")?;
        let [a, b] = self.nics;
        let served = if self.apart { "each served by a process of its own" } else { "served by one process" };
        let rounds = self.latency.first().map_or(0, |row| row.iterations);
        writeln!(f, "Half a round trip in microseconds between two processes, {a} to {b}, {served};")?;
        writeln!(f, "{rounds} round trips a line, on {}:", self.machine)?;
        write!(f, "{:>9}  {:<16}  {:>8}  {:>8}  {:>8}  {:>8}", "size", "", "min", "p50", "p99", "mean")?;
        for size in SIZES {
            for row in self.latency.iter().filter(|row| row.size == size) {
                let Row { min_us, p50_us, p99_us, mean_us, .. } = row;
                let what = if row.op == "send" { "VI send" } else { "VI RDMA write" };
                write!(f, "\n{:>9}  {what:<16}  ", size_name(size))?;
                write!(f, "{min_us:>8.2}  {p50_us:>8.2}  {p99_us:>8.2}  {mean_us:>8.2}")?;
            }
            for (provider, _) in PROVIDERS {
                let found =
                    self.fi_pingpong.iter().find(|mean| (mean.provider, mean.size) == (provider, size));
                if let Some(Mean { mean_us, .. }) = found {
                    let what = format!("fi_pingpong {provider}");
                    write!(f, "\n{:>9}  {what:<16}  ", size_name(size))?;
                    write!(f, "{:>8}  {:>8}  {:>8}  {mean_us:>8.2}", "", "", "")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_place() {
        let row = |op: &str, size, p50_us| Row {
            op: op.to_owned(),
            size,
            iterations: 100,
            min_us: 1.0,
            p50_us,
            p99_us: 9.0,
            mean_us: 2.5,
        };
        let latency =
            ["send", "write"].iter().flat_map(|op| SIZES.map(|size| row(op, size, size as f64))).collect();
        let mean = |(provider, _)| Mean { provider, size: 1024, iterations: 100, mean_us: 77.7 };
        let copy = Copied { file: "x".into(), bytes: 5, seconds: 1.0, mb_per_s: 2.0, sha256: "ab".into() };
        let machine = Machine { cpu: "C".into(), processors: 2, kernel: "6".into() };
        let mut report =
            Report { machine, nics: ["e1000", "virtio"], apart: false, copy, latency, fi_pingpong: vec![] };
        let text = report.to_string();
        assert!(text.contains("e1000 to virtio") && text.contains("C, 2 processors, Linux 6"), "{text}");
        let line = text.lines().find(|line| line.contains("16 KiB") && line.contains("RDMA")).unwrap();
        assert!(line.contains("16384.00") && line.ends_with("2.50"), "{line}");
        assert!(!text.contains("fi_pingpong"));
        report.fi_pingpong = PROVIDERS.map(mean).to_vec();
        let text = report.to_string();
        assert!(
            text.lines().any(|line| line.contains("1 KiB  fi_pingpong shm") && line.ends_with("77.70")),
            "{text}"
        );
    }
}
