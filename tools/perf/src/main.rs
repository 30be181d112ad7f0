//! Latency and bandwidth of virtual interfaces, raw frames and the kernel's UDP.

mod cli;
mod datagram;
mod load;
mod raw;
mod report;
mod spin;
mod udp;
mod vi;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command, RawTest, UdpTest};
use load::Test;

fn main() -> ExitCode {
    let cli = Cli::parse();
    uvia_tools::run("uvia-perf", || match cli.command {
        Command::Lat(args) => vi::run(Test::Latency, &args),
        Command::Bw(args) => vi::run(Test::Bandwidth, &args),
        Command::Raw(RawTest::Lat(args)) => raw::run(Test::Latency, &args, false),
        Command::Raw(RawTest::Bw(args)) => raw::run(Test::Bandwidth, &args.raw, args.copy),
        Command::Udp(UdpTest::Lat(args)) => udp::run(Test::Latency, &args),
        Command::Udp(UdpTest::Bw(args)) => udp::run(Test::Bandwidth, &args),
    })
}
