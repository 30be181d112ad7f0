//! Shows what a NIC can do.

mod about;
mod cli;
mod list;
mod text;

use std::process::ExitCode;

use about::About;
use clap::Parser;
use cli::Cli;
use uvia_driver::pci::Sysfs;
use uvia_tools::{Failure, print_json, print_line};

fn main() -> ExitCode {
    let cli = Cli::parse();
    uvia_tools::run("uvia-info", || {
        // An empty UVIA_NIC counts as none.
        let Some(nic) = cli.nic.filter(|nic| !nic.is_empty()) else {
            return list::run(&Sysfs::default(), cli.json);
        };
        uvia_driver::nic::check_name(&nic).map_err(|e| Failure::usage(e.to_string()))?;
        let memory = cli.adapter_memory.filter(|name| !name.is_empty());
        let about = About::of(&nic, memory.as_deref(), cli.ring_in_adapter_memory)?;
        if cli.json { print_json(&about) } else { print_line(&about) }
    })
}
