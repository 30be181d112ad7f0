//! Results: one row a size, for people (a table) or for programs (JSON lines).

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use uvia_driver::nic::{MacAddress, NicStatistics};
use uvia_tools::{Failure, print_json, print_line};

/// Half round trips, or whole reads, in nanoseconds. Recording neither allocates nor fails: what is over a minute counts as one.
pub struct Latency {
    times: Histogram<u64>,
    /// Messages that did not come back.
    pub lost: u64,
}

/// One minute.
const LONGEST: u64 = 60_000_000_000;

impl Latency {
    /// No result yet.
    ///
    /// # Errors
    /// No memory for the histogram.
    pub fn new() -> Result<Self, Failure> {
        Ok(Self { times: Histogram::new_with_bounds(1, LONGEST, 3)?, lost: 0 })
    }

    /// Takes in the times of another test of the same.
    ///
    /// # Errors
    /// None that is known of: both have the same bounds.
    pub fn add(&mut self, other: &Self) -> Result<(), Failure> {
        self.lost += other.lost;
        Ok(self.times.add(&other.times)?)
    }

    /// The median, in nanoseconds.
    pub fn median(&self) -> u64 {
        self.times.value_at_quantile(0.5)
    }

    /// Counts one round trip.
    #[inline]
    pub fn record_round_trip(&mut self, round_trip: Duration) {
        self.record(round_trip / 2);
    }

    /// Counts a time as it is.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        self.times.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(LONGEST));
    }
}

/// What was received, and in which time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bandwidth {
    /// Messages received.
    pub messages: u64,
    /// In this time.
    pub elapsed: Duration,
    /// Messages sent.
    pub sent: u64,
    /// Messages asked for.
    pub iterations: u64,
    /// Bytes of a message that its longest frames carried in the end; 0 where that is not known.
    pub frame: usize,
}

impl Bandwidth {
    /// Takes in another test of the same.
    pub fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.elapsed += other.elapsed;
        self.sent += other.sent;
        self.iterations += other.iterations;
        self.frame = other.frame;
    }

    /// Bytes a second, of messages of this size.
    pub fn rate(&self, size: usize) -> f64 {
        self.messages as f64 * size as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// What was measured; the fields that name a row.
#[derive(Debug, Clone, Serialize)]
pub struct Subject {
    /// "lat", "bw", "raw-lat", "raw-bw", "udp-lat" or "udp-bw".
    pub test: &'static str,
    /// "send", "write" or "read"; "copy" for frames that are copied once.
    pub op: &'static str,
    /// "dma" or "pio"; "kernel" for UDP.
    pub class: &'static str,
    /// The NIC's driver.
    pub nic: String,
    /// How virtual interfaces are used.
    #[serde(flatten)]
    pub manner: Option<Manner>,
    /// Payload, bytes.
    pub size: usize,
    /// Whether losses belong to the row: those of carriers that may lose.
    #[serde(skip)]
    pub lossy: bool,
    /// Whether rows are JSON.
    #[serde(skip)]
    pub json: bool,
    /// Whether the table's heading was printed.
    #[serde(skip)]
    pub headed: bool,
}

/// How virtual interfaces are used in a test, by the names of the options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Manner {
    /// What the connections promise.
    pub level: &'static str,
    /// Where completions are reaped.
    pub cq: &'static str,
    /// How they are waited for.
    pub wait: &'static str,
    /// Connections.
    pub vis: u16,
}

impl Manner {
    /// What is not usual, for the table's heading.
    fn remarks(&self) -> String {
        let mut remarks = String::new();
        for (usual, option, value) in
            [("delivery", "level", self.level), ("on", "cq", self.cq), ("poll", "wait", self.wait)]
        {
            if value != usual {
                remarks += &format!("; {option} {value}");
            }
        }
        if self.vis != 1 {
            remarks += &format!("; {} connections", self.vis);
        }
        remarks
    }
}

#[derive(Serialize)]
struct LatencyRow<'a> {
    #[serde(flatten)]
    subject: &'a Subject,
    iterations: u64,
    min_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    mean_us: f64,
    max_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}

fn mean_us(result: &Latency) -> f64 {
    result.times.mean().round() / 1000.0
}

#[derive(Serialize)]
struct BandwidthRow<'a> {
    #[serde(flatten)]
    subject: &'a Subject,
    iterations: u64,
    mb_per_s: f64,
    messages_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}

impl Subject {
    /// Prints a latency row.
    pub fn print_latency(&mut self, result: &Latency) -> Result<(), Failure> {
        let us = |nanos: u64| nanos as f64 / 1000.0;
        let at = |quantile: f64| us(result.times.value_at_quantile(quantile));
        let row = LatencyRow {
            subject: self,
            iterations: result.times.len(),
            min_us: us(result.times.min()),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            mean_us: mean_us(result),
            max_us: us(result.times.max()),
            lost: self.lossy.then_some(result.lost),
        };
        if self.json {
            return print_json(&row);
        }
        let text = format!(
            "{} {:>10} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2}{}",
            self.columns(),
            row.iterations,
            row.min_us,
            row.p50_us,
            row.p90_us,
            row.p99_us,
            row.p999_us,
            row.mean_us,
            lost_column(row.lost),
        );
        let what = if self.op == "read" { "reads" } else { "half round trips" };
        self.print_row(
            &format!("{what}, microseconds"),
            &format!(
                "{:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
                "iterations", "min", "p50", "p90", "p99", "p99.9", "mean"
            ),
            &text,
        )
    }

    /// Prints a bandwidth row.
    pub fn print_bandwidth(&mut self, result: &Bandwidth) -> Result<(), Failure> {
        let seconds = result.elapsed.as_secs_f64().max(1e-9);
        let round = |value: f64, by: f64| (value * by).round() / by;
        let row = BandwidthRow {
            subject: self,
            iterations: result.iterations,
            mb_per_s: round(result.messages as f64 * self.size as f64 / 1e6 / seconds, 1e3),
            messages_per_s: round(result.messages as f64 / seconds, 10.0),
            lost: self.lossy.then_some(result.sent.saturating_sub(result.messages)),
        };
        if self.json {
            return print_json(&row);
        }
        let text = format!(
            "{} {:>10} {:>12.3} {:>12.0}{}",
            self.columns(),
            row.iterations,
            row.mb_per_s,
            row.messages_per_s,
            lost_column(row.lost),
        );
        self.print_row(
            "payload received; MB = 10^6 bytes",
            &format!("{:>10} {:>12} {:>12}", "iterations", "MB/s", "messages/s"),
            &text,
        )
    }

    fn columns(&self) -> String {
        format!("{:<7} {:<5} {:<6} {:<10} {:>8}", self.test, self.op, self.class, self.nic, self.size)
    }

    fn print_row(&mut self, what: &str, columns: &str, row: &str) -> Result<(), Failure> {
        if !self.headed {
            self.headed = true;
            let lost = if self.lossy { format!(" {:>7}", "lost") } else { String::new() };
            let remarks = self.manner.as_ref().map(Manner::remarks).unwrap_or_default();
            print_line(format_args!("# {what}{remarks}"))?;
            print_line(format_args!(
                "{:<7} {:<5} {:<6} {:<10} {:>8} {columns}{lost}",
                "test", "op", "class", "nic", "size"
            ))?;
        }
        print_line(row)
    }
}

fn lost_column(lost: Option<u64>) -> String {
    lost.map(|lost| format!(" {lost:>7}")).unwrap_or_default()
}

/// Says on standard error what the adapter of `device` has counted.
pub fn tell_counters(device: &str, mac: MacAddress, n: &NicStatistics) {
    eprintln!(
        "uvia-perf: {device} ({mac}): sent {}, received {}, dropped {} for want of buffers and {} in error, {} doorbells",
        n.tx_frames, n.rx_frames, n.rx_missed, n.rx_errors, n.doorbells
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_half_of_the_round_trip_and_has_the_promised_fields() {
        let mut latency = Latency::new().unwrap();
        for _ in 0..10 {
            latency.record_round_trip(Duration::from_micros(20));
        }
        latency.record_round_trip(Duration::from_secs(3600));
        let us = latency.times.value_at_quantile(0.5) as f64 / 1e3;
        assert!((us - 10.0).abs() < 0.05, "{us}");
        // Ten of 10 us, and one that counts as a minute.
        assert!((mean_us(&latency) / (60e6 / 11.0) - 1.0).abs() < 0.01, "{}", mean_us(&latency));
        let subject = Subject {
            test: "lat",
            op: "send",
            class: "dma",
            nic: "e1000".to_owned(),
            manner: None,
            size: 64,
            lossy: false,
            json: true,
            headed: false,
        };
        let manner = Manner { level: "delivery", cq: "off", wait: "poll", vis: 3 };
        assert_eq!(manner.remarks(), "; cq off; 3 connections");
        let over_vi = Subject { manner: Some(manner), ..subject.clone() };
        let value = serde_json::to_value(&over_vi).unwrap();
        assert_eq!((value["level"].as_str(), value["vis"].as_u64()), (Some("delivery"), Some(3)));
        let row = LatencyRow {
            subject: &subject,
            iterations: 11,
            min_us: 1.0,
            p50_us: 1.0,
            p90_us: 1.0,
            p99_us: 1.0,
            p999_us: 1.0,
            mean_us: 1.0,
            max_us: 1.0,
            lost: None,
        };
        let value: serde_json::Value = serde_json::to_value(&row).unwrap();
        let keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        let mut wanted = vec![
            "test",
            "op",
            "class",
            "nic",
            "size",
            "iterations",
            "min_us",
            "p50_us",
            "p90_us",
            "p99_us",
            "p999_us",
            "mean_us",
            "max_us",
        ];
        wanted.sort_unstable();
        let mut keys: Vec<_> = keys.iter().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, wanted);
    }
}
