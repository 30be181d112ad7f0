//! A token goes round all ranks, each of which adds its own number: `uvia-launch -n 4 ring [ROUNDS]`.

mod common;

use std::error::Error;
use std::process::ExitCode;

use uvia_message::{Channel, Result, Session, Source};

fn receive(channel: &Channel) -> Result<u64> {
    channel.receive(Source::Any, |message| message.get())
}

fn run() -> std::result::Result<(), Box<dyn Error>> {
    let rounds: u64 = std::env::args().nth(1).map_or(Ok(3), |word| word.parse())?;
    let session = Session::from_environment()?;
    let channel = session.channel(0, &[])?;
    let (rank, size) = (session.rank(), session.size());
    if size < 2 {
        return Err("a ring takes two ranks at least".into());
    }
    let mut token = 0;
    for round in 0..rounds {
        if rank > 0 || round > 0 {
            token = receive(&channel)?;
        }
        token += rank as u64;
        channel.send((rank + 1) % size, |message| message.put(&token))?;
    }
    if rank == 0 && rounds > 0 {
        let token = receive(&channel)?;
        let expected = rounds * (size * (size - 1) / 2) as u64;
        println!("token {token}, expected {expected}");
        if token != expected {
            return Err("the token is wrong".into());
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    common::tell(run())
}
