//! Finds out from how many bytes on which transmission module of the message layer is the cheapest.

mod cli;
mod measure;

use std::process::ExitCode;

use clap::Parser;
use cli::Cli;
use serde::Serialize;
use uvia_message::{Calibration, Thresholds};
use uvia_tools::{print_json, print_line};

/// What came of it.
#[derive(Serialize)]
struct Outcome<'a> {
    device: &'a str,
    thresholds: Thresholds,
    samples: &'a [measure::Sample],
    file: Option<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    uvia_tools::run("uvia-calibrate", || {
        let samples = measure::run(&cli.nic, cli.rounds)?;
        let thresholds = measure::thresholds(&samples, Thresholds::default());
        let found = Calibration { device: cli.nic.clone(), thresholds };
        let file = if cli.dry_run { None } else { Some(found.store()?.display().to_string()) };
        if cli.json {
            let (device, thresholds) = (&found.device, found.thresholds);
            return print_json(&Outcome { device, thresholds, samples: &samples, file });
        }
        for sample in &samples {
            let measure::Sample { size, copied, gathered, written, read } = sample;
            print_line(format_args!(
                "{size:>7} bytes: copied {copied:>9} ns, gathered {gathered:>9} ns, written {written:>9} ns, read {read:>9} ns"
            ))?;
        }
        print_line(format_args!("pieces are long from {} bytes on", thresholds.long))?;
        for (what, from) in
            [("short ones are gathered", thresholds.gather), ("long ones are read", thresholds.read)]
        {
            match from {
                Thresholds::NEVER => print_line(format_args!("{what} never"))?,
                from => print_line(format_args!("{what} from {from} bytes on"))?,
            }
        }
        match file {
            Some(file) => print_line(format_args!("kept in {file}")),
            None => Ok(()),
        }
    })
}
