//! Copies files between hosts by RDMA write.

use std::process::ExitCode;

use clap::Parser;
use uvia_cp::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    uvia_tools::run("uvia-cp", || uvia_cp::run(&cli))
}
