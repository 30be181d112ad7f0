//! Two processes, each with a network adapter of its own served over vfio-user, move a file over a virtual interface
//! and measure how fast messages go: with no virtual machine, no privileges and no hardware.

mod cli;
mod copy;
mod device;
mod job;
mod latency;
mod machine;
mod pingpong;
mod process;
mod report;

use std::process::ExitCode;

use clap::Parser;
use cli::Cli;

fn main() -> ExitCode {
    if let Some(command) = uvia_tools::Tied::from_arguments(std::env::args_os()) {
        let error = command.become_it();
        eprintln!("{error}");
        return ExitCode::from(127);
    }
    let cli = Cli::parse();
    uvia_tools::run("uvia-demo", || job::run(&cli))
}
