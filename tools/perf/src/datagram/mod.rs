//! Tests over anything that carries packets and may lose them: raw frames, and the kernel's UDP.
//!
//! Both are measured by the same code, so that their figures can be compared.

mod bw;
mod client;
mod lat;
mod link;
mod server;
mod wire;

pub use client::run_client;
pub use link::{BURST, Link, Packet};
pub use server::{Stop, serve};
pub use wire::{Body, HEAD, Head, Kind, LEAST_CONTROL};

use crate::load::{Load, Test};
use crate::report::{Bandwidth, Latency, Subject};
use uvia_tools::Failure;

/// One latency test with both ends in this thread.
pub fn latency_of_pair<L: Link>(a: &mut L, b: &mut L, size: usize, load: &Load) -> Result<Latency, Failure> {
    lat::pair(a, b, wire::new_session(), size, load)
}

/// One bandwidth test with both ends in this thread.
pub fn bandwidth_of_pair<L: Link>(
    a: &mut L,
    b: &mut L,
    size: usize,
    load: &Load,
) -> Result<Bandwidth, Failure> {
    bw::pair(a, b, wire::new_session(), size, load)
}

/// Runs a test with both ends in this thread, and prints a row for each size.
pub fn run_pair<L: Link>(
    a: &mut L,
    b: &mut L,
    test: Test,
    load: &Load,
    mut subject: Subject,
) -> Result<(), Failure> {
    let session = wire::new_session();
    let usual = a.usual_payload().min(b.usual_payload());
    let sizes = load.sizes_up_to(L::LEAST, usual, a.max_payload().min(b.max_payload()), L::LIMIT)?;
    for (number, size) in sizes.into_iter().enumerate() {
        let session = session.wrapping_add(number as u16);
        subject.size = size;
        match test {
            Test::Latency => {
                let result: Latency = lat::pair(a, b, session, size, load)?;
                subject.print_latency(&result)?;
            }
            Test::Bandwidth => {
                let result: Bandwidth = bw::pair(a, b, session, size, load)?;
                subject.print_bandwidth(&result)?;
            }
        }
    }
    Ok(())
}
