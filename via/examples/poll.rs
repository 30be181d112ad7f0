//! Waiting by polling: the shortest way, with a processor for it.
//!
//! `cargo run --example poll -- NIC [HOST]`, on two hosts.

mod common;

use common::{End, LAST, answer};
use uvia::{Completions, WorkQueue};

fn main() -> uvia::Result<()> {
    let end = End::connect()?;
    if end.begins {
        end.send(0)?;
    }
    // Taken together, completions cost less than one by one.
    let mut batch = Completions::with_capacity(16);
    let mut number = 0;
    while number + 1 < LAST {
        end.cq.poll_into(&mut batch)?;
        while let Some(completion) = batch.pop() {
            if completion.queue == WorkQueue::Receive {
                number = end.take(completion.descriptor)?;
                if let Some(next) = answer(number) {
                    end.send(next)?;
                }
            }
        }
    }
    println!("counted to {number}");
    Ok(())
}
