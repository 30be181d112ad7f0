//! Two ranks send a message back and forth, and rank 0 prints half of a round trip:
//! `uvia-launch -n 2 pingpong [BYTES [ROUNDS]]`.

mod common;

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use uvia_message::{ReceiveMode, SendMode, Session};

/// Round trips before those that are measured.
const WARM: u32 = 10;

fn run() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let size: usize = words.next().map_or(Ok(64), |word| word.parse())?;
    let rounds: u32 = words.next().map_or(Ok(1000), |word| word.parse())?;
    let session = Session::from_environment()?;
    let channel = session.channel(0, &[])?;
    let rank = session.rank();
    if rank > 1 {
        return Ok(());
    }
    // The same buffer each time: where it is long it is registered once.
    let mut data = vec![if rank == 0 { 0x5a } else { 0u8 }; size];
    let mut start = Instant::now();
    for round in 0..rounds + WARM {
        if round == WARM {
            start = Instant::now();
        }
        for turn in 0..2 {
            if turn == rank {
                channel.send(1 - rank, |message| message.cheaper(&data, ReceiveMode::Cheaper))?;
            } else {
                channel.receive(1 - rank, |message| message.cheaper(&mut data, SendMode::Cheaper))?;
            }
        }
    }
    if let Some(at) = data.iter().position(|byte| *byte != 0x5a) {
        return Err(format!("byte {at} is wrong").into());
    }
    if rank == 0 {
        let half = start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds.max(1)) / 2.0;
        println!("{size} bytes: {half:.2} us");
    }
    Ok(())
}

fn main() -> ExitCode {
    common::tell(run())
}
