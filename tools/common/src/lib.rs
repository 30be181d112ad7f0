//! What the command-line tools share: choosing a NIC, names, sizes, output, steps, exit codes.
//!
//! The conventions: status 0 is success, 1 a failure, 2 wrong usage; results go to standard output and all else
//! to standard error; with `--json` each result is one JSON object on a line of its own.

mod exit;
pub mod help;
mod nic;
mod output;
mod size;
mod steps;
mod tied;

pub use exit::{EXIT_CODES, Failure, run};
pub use nic::{Encap, NicArgs, given_device};
pub use output::{print_json, print_line};
pub use size::{BadSize, Size};
pub use steps::Steps;
pub use tied::Tied;
