//! What is to be measured: sizes, counts, windows.

use std::str::FromStr;
use std::time::Duration;

use uvia_tools::{Failure, Size};

/// Which of the two figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// Half round trips.
    Latency,
    /// Messages and bytes a second.
    Bandwidth,
}

/// The options that say how a test is run.
#[derive(Debug, Clone, clap::Args)]
pub struct LoadArgs {
    /// Payload of a message, bytes (64, 4K, 1M) [default: 64]
    #[arg(long, value_name = "N", conflicts_with = "sizes")]
    size: Option<Size>,

    /// Several sizes: a list such as 64,1K,16K, or "all" for the powers of two from 8 to 1M that the test can carry
    #[arg(long, value_name = "LIST")]
    sizes: Option<Sizes>,

    /// Messages measured a size [default: 10000, fewer for large messages]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    iterations: Option<u64>,

    /// Messages before these, not measured [default: a tenth of the iterations, 1000 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    warmup: Option<u64>,

    /// Bandwidth: messages under way at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    window: u16,

    /// Seconds to wait for the other end before giving up
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=3600))]
    timeout: u16,

    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

/// The value of `--sizes`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sizes {
    All,
    These(Vec<usize>),
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let one = |part: &str| -> Result<usize, String> {
            let size: Size = part.parse().map_err(|e: uvia_tools::BadSize| e.to_string())?;
            usize::try_from(size.0).map_err(|e| e.to_string())
        };
        text.split(',').map(one).collect::<Result<_, _>>().map(Self::These)
    }
}

/// How a test is run.
#[derive(Debug, Clone)]
pub struct Load {
    sizes: Sizes,
    iterations: Option<u64>,
    warmup: Option<u64>,
    /// Messages under way at a time.
    pub window: usize,
    /// How long to wait for the other end.
    pub timeout: Duration,
    /// Whether rows are JSON.
    pub json: bool,
}

impl From<&LoadArgs> for Load {
    fn from(args: &LoadArgs) -> Self {
        let single = |size: Size| Sizes::These(vec![usize::try_from(size.0).unwrap_or(usize::MAX)]);
        Self {
            sizes: args.sizes.clone().unwrap_or_else(|| single(args.size.unwrap_or(Size(64)))),
            iterations: args.iterations,
            warmup: args.warmup,
            window: usize::from(args.window),
            timeout: Duration::from_secs(u64::from(args.timeout)),
            json: args.json,
        }
    }
}

impl Load {
    /// The sizes to measure, of which the test can carry those from `least` to `most`, and those up to `usual` are carried
    /// wherever it runs. "all" means all of these; of what was asked for by number, nothing is left out silently.
    ///
    /// # Errors
    /// A size that cannot be carried; `limit` says what the largest one hangs on.
    pub fn sizes_up_to(
        &self,
        least: usize,
        usual: usize,
        most: usize,
        limit: &str,
    ) -> Result<Vec<usize>, Failure> {
        match &self.sizes {
            Sizes::All => {
                Ok((3..=20).map(|n| 1 << n).filter(|size| (least..=usual).contains(size)).collect())
            }
            Sizes::These(sizes) => match sizes.iter().find(|size| !(least..=most).contains(size)) {
                Some(size) => Err(Failure::usage(format!(
                    "{size} bytes cannot be measured here: sizes are from {least} to {most} ({limit})"
                ))),
                None => Ok(sizes.clone()),
            },
        }
    }

    /// Round trips to measure.
    pub fn latency_iterations(&self, size: usize) -> u64 {
        // So that a run over all sizes ends in reasonable time under emulation too.
        self.iterations.unwrap_or_else(|| ((128 << 20) / (size as u64).max(1)).clamp(100, 10_000))
    }

    /// Messages to measure.
    pub fn bandwidth_iterations(&self, size: usize) -> u64 {
        self.iterations.unwrap_or_else(|| ((256 << 20) / (size as u64).max(1)).clamp(100, 10_000))
    }

    /// The same, with so many messages.
    pub fn with_iterations(&self, iterations: u64) -> Self {
        Self { iterations: Some(iterations), warmup: None, ..self.clone() }
    }

    /// Messages before that.
    pub fn warmup(&self, iterations: u64) -> u64 {
        self.warmup.unwrap_or((iterations / 10).min(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(sizes: Sizes) -> Load {
        Load {
            sizes,
            iterations: None,
            warmup: None,
            window: 32,
            timeout: Duration::from_secs(1),
            json: false,
        }
    }

    #[test]
    fn all_means_all_that_can_be_carried() {
        let all = load("all".parse().unwrap());
        let sizes = all.sizes_up_to(1, 16 << 20, 16 << 20, "").unwrap();
        assert_eq!((sizes.len(), sizes[0], sizes[17]), (18, 8, 1 << 20));
        assert_eq!(all.sizes_up_to(8, 1500, 8174, "").unwrap().last(), Some(&1024));
    }

    #[test]
    fn a_size_that_was_named_is_never_left_out() {
        let list = load("64,1K,16K".parse().unwrap());
        assert_eq!(list.sizes_up_to(1, 1500, 16384, "").unwrap(), [64, 1024, 16384]);
        assert!(list.sizes_up_to(1, 16383, 16383, "").is_err());
        assert!(list.sizes_up_to(65, 16384, 16384, "").is_err());
        assert!("64,,1K".parse::<Sizes>().is_err() && "some".parse::<Sizes>().is_err());
    }

    #[test]
    fn counts_follow_the_size_unless_given() {
        let mut load = load(Sizes::All);
        assert_eq!((load.latency_iterations(64), load.latency_iterations(1 << 20)), (10_000, 128));
        load.iterations = Some(7);
        assert_eq!((load.latency_iterations(64), load.bandwidth_iterations(64)), (7, 7));
        load.iterations = Some(1_000_000);
        assert_eq!((load.latency_iterations(64), load.warmup(1_000_000)), (1_000_000, 1000));
    }
}
