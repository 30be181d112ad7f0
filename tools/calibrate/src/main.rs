//! Finds out from how many bytes on the message layer had better put a piece than copy it.

mod cli;
mod measure;

use std::process::ExitCode;

use clap::Parser;
use cli::Cli;
use serde::Serialize;
use uvia_message::Calibration;
use uvia_tools::{print_json, print_line};

/// What came of it.
#[derive(Serialize)]
struct Outcome<'a> {
    device: &'a str,
    threshold: usize,
    samples: &'a [measure::Sample],
    file: Option<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    uvia_tools::run("uvia-calibrate", || {
        let samples = measure::run(&cli.nic, cli.rounds)?;
        let found = Calibration { device: cli.nic.clone(), threshold: measure::threshold(&samples) };
        let file = if cli.dry_run { None } else { Some(found.store()?.display().to_string()) };
        if cli.json {
            let (device, threshold) = (&found.device, found.threshold);
            return print_json(&Outcome { device, threshold, samples: &samples, file });
        }
        for sample in &samples {
            let (size, copied, put) = (sample.size, sample.copied, sample.put);
            print_line(format_args!("{size:>7} bytes: copied {copied:>9} ns, put {put:>9} ns"))?;
        }
        print_line(format_args!("pieces of {} bytes or more are put", found.threshold))?;
        match file {
            Some(file) => print_line(format_args!("kept in {file}")),
            None => Ok(()),
        }
    })
}
