//! Waiting by polling: the shortest way, with a processor for it.
//!
//! `cargo run --example poll -- NIC [example]`, on two hosts, or twice on one with the NIC `shm:try`.

mod common;

use std::process::ExitCode;

use common::{End, LAST, answer};
use uvia::Completions;

fn run() -> uvia::Result<()> {
    let end = End::connect()?;
    if end.begins {
        end.send(0)?;
    }
    // Taken together, completions cost less than one by one.
    let mut batch = Completions::with_capacity(16);
    let mut number = 0;
    while number + 1 < LAST {
        end.cq.poll_into(&mut batch)?;
        // Once it is over, the other end leaves, and what is posted comes back flushed.
        while number + 1 < LAST
            && let Some(completion) = batch.pop()
        {
            if let Some(came) = end.take(completion)? {
                number = came;
                if let Some(next) = answer(number) {
                    end.send(next)?;
                }
            }
        }
    }
    end.finish()?;
    println!("counted to {number}");
    Ok(())
}

fn main() -> ExitCode {
    common::tell(run())
}
