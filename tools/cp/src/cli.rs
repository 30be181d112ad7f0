//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use uvia_tools::{EXIT_CODES, NicArgs, Size};

/// Copies files between hosts by RDMA write, checked by SHA-256
#[derive(Debug, Parser)]
#[command(version, after_help = format!("\
Examples:
  uvia-cp --listen /srv/in --name b        receive files below /srv/in
  uvia-cp big.iso b:isos/big.iso           send one there (/srv/in/isos must exist)
  uvia-cp --resume big.iso b:isos/big.iso  go on where an earlier --resume copy was cut off

A file appears under its name only when all of it has arrived and its SHA-256 is right.
{EXIT_CODES}"))]
pub struct Cli {
    /// The file to send
    #[arg(value_name = "FILE", requires = "target", conflicts_with = "listen")]
    pub file: Option<PathBuf>,

    /// The host to send it to, and where to put it below the folder that is received into there
    #[arg(value_name = "NAME:PATH")]
    pub target: Option<String>,

    /// Receive files below DIR, until ended
    #[arg(long, value_name = "DIR")]
    pub listen: Option<PathBuf>,

    /// With --listen: end after one copy, with its status
    #[arg(long, requires = "listen")]
    pub once: bool,

    /// With --listen: refuse files larger than this
    #[arg(long, value_name = "SIZE", requires = "listen")]
    pub max_size: Option<Size>,

    /// Replace a file that is there
    #[arg(long, conflicts_with = "listen")]
    pub force: bool,

    /// Keep what has arrived when the copy is cut off, and go on from there the next time
    #[arg(long, conflicts_with = "listen")]
    pub resume: bool,

    /// Seconds to wait for the link, for the name and for the connection
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub timeout: Duration,

    /// Print each copy as one JSON object on a line
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would take it for the help of the whole")]
    pub nic: NicArgs,
}

/// Seconds, which may have a fraction, as long as anybody waits and no less than a timer can tell.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=1e6).contains(seconds));
    let seconds = seconds.ok_or_else(|| "that is no number of seconds from 0.001 to 1000000".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_time_is_refused() {
        let timeout = |text| {
            Cli::try_parse_from(["uvia-cp", "f", "b:f", &format!("--timeout={text}")]).map(|cli| cli.timeout)
        };
        for text in ["nan", "inf", "-inf", "0", "-0", "1e300", "0.0001", "", "ten"] {
            let e = timeout(text).expect_err(text);
            assert_eq!(e.kind(), clap::error::ErrorKind::ValueValidation, "{text}: {e}");
        }
        assert_eq!(timeout("0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(Cli::try_parse_from(["uvia-cp"]).unwrap().timeout, Duration::from_secs(10));
    }

    #[test]
    fn what_help_says_is_so() {
        assert_eq!(
            uvia_tools::help::faults(&<Cli as clap::CommandFactory>::command(), &["uvia-cp"]),
            [""; 0]
        );
    }
}
