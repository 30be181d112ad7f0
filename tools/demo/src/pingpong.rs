//! What libfabric's own `fi_pingpong` measures between two processes on this machine.
//!
//! It prints one figure, `usec/xfer`: the time of all round trips by twice their number, which is the mean of half a
//! round trip, as our mean is. It warms nothing up.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde::Serialize;
use uvia_tools::Failure;

use crate::latency::SIZES;
use crate::process::{Process, Programs};

/// The program, and how to come by it.
const PROGRAM: &str = "fi_pingpong";
const REMEDY: &str = "install it with: apt-get install libfabric-bin";
/// Providers, with the kind of endpoint that each has.
pub const PROVIDERS: [(&str, &str); 2] = [("tcp", "msg"), ("shm", "rdm")];
/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a server gets to listen.
const START: Duration = Duration::from_secs(5);

/// The mean of half a round trip by one provider.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mean {
    /// libfabric's provider.
    pub provider: &'static str,
    /// Payload in bytes.
    pub size: u64,
    /// Round trips.
    pub iterations: u64,
    /// Microseconds.
    pub mean_us: f64,
}

/// Makes sure, before anything else takes its time, that it is there.
///
/// # Errors
/// It is not, with what to do.
pub fn find() -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).any(|folder| folder.join(PROGRAM).is_file()) {
        true => Ok(()),
        false => Err(Failure::failed(format!("--compare needs {PROGRAM}, which is not on PATH; {REMEDY}"))),
    }
}

/// Measures each size by each provider.
///
/// # Errors
/// It fails.
pub fn measure(programs: &Programs, iterations: u64) -> Result<Vec<Mean>, Failure> {
    let mut means = Vec::new();
    for (provider, endpoint) in PROVIDERS {
        for size in SIZES {
            let mean_us = one(programs, provider, endpoint, size, iterations)?;
            means.push(Mean { provider, size, iterations, mean_us });
        }
    }
    Ok(means)
}

fn one(programs: &Programs, provider: &str, endpoint: &str, size: u64, rounds: u64) -> Result<f64, Failure> {
    // A port that nobody has; the two agree over it, whatever carries the messages.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let (size, rounds) = (size.to_string(), rounds.to_string());
    let common = ["-p", provider, "-e", endpoint, "-I", &rounds, "-S", &size];
    let start = |more: &[&str]| -> Result<Process, Failure> {
        programs.start_any(PROGRAM.as_ref(), common.iter().chain(more))
    };
    let mut server = start(&["-B", &port])?;
    let begin = Instant::now();
    let said = loop {
        // It says nothing when it listens; a client that was too early gives up at once, and is started again.
        let said = start(&["-P", &port, "127.0.0.1"])?.finish(PATIENCE);
        match said {
            Err(_) if begin.elapsed() < START => {
                server.wait_for(START, |_, _| true)?;
                std::thread::sleep(Duration::from_millis(20));
            }
            said => break said?,
        }
    };
    server.finish(START)?;
    mean(&said).ok_or_else(|| Failure::failed(format!("{PROGRAM} wrote what is no result:\n{said}")))
}

/// The column `usec/xfer` of the last line.
fn mean(text: &str) -> Option<f64> {
    let mut lines = text.lines().rev();
    let values = lines.next()?.split_whitespace();
    let heading = lines.find(|line| line.contains("usec/xfer"))?.split_whitespace();
    heading.zip(values).find(|(name, _)| *name == "usec/xfer")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_found_by_its_heading() {
        let text = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                    64      2k      =2k      250k        6.45s      0.04    1612.23       0.00\n";
        assert_eq!(mean(text), Some(1612.23));
        assert_eq!(mean(""), None);
        assert_eq!(mean("64 2k\n"), None);
    }
}
