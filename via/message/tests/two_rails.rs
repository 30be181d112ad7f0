//! A rank in a guest of its own, with two adapters of different kinds as rails of one channel. `tests/run` starts both
//! ranks, waits until this says that messages flow, and pulls a cable.

use std::time::{Duration, Instant};

use uvia::{Nic, NicOptions};
use uvia_message::{Channel, ReceiveMode, Result, SendMode, Session};

/// Pieces of all kinds of ways: in a packet, in several, put over one rail, striped over both.
const LENGTHS: [usize; 4] = [64, 9000, 40_000, 300_000];
/// How long a cable may take to be pulled.
const PATIENCE: Duration = Duration::from_secs(110);
/// A message with this number is the last.
const LAST: u64 = u64::MAX;

fn byte(number: u64, at: usize) -> u8 {
    (number as usize).wrapping_mul(31).wrapping_add(at).wrapping_add(at >> 8) as u8
}

fn length(number: u64) -> usize {
    LENGTHS[number as usize % LENGTHS.len()]
}

fn send(channel: &Channel, to: usize, number: u64, bytes: &mut [u8]) -> Result<()> {
    let len = if number == LAST { 0 } else { length(number) };
    bytes[..len].iter_mut().enumerate().for_each(|(at, to)| *to = byte(number, at));
    let bytes = &bytes[..len];
    channel.send(to, |message| {
        message.put(&number)?;
        message.cheaper(bytes, ReceiveMode::Cheaper)
    })
}

/// Takes a message of that number, or the last one; answers which.
fn receive(channel: &Channel, from: usize, number: u64, bytes: &mut [u8]) -> Result<u64> {
    bytes.fill(0);
    let room = &mut *bytes;
    let got = channel.receive(from, |message| -> Result<u64> {
        let got = message.get()?;
        let len = if got == LAST { 0 } else { length(got) };
        message.cheaper(&mut room[..len], SendMode::Cheaper)?;
        Ok(got)
    })?;
    assert!(got == number || got == LAST, "message {got} came in place of {number}");
    if got != LAST {
        let wrong = bytes[..length(got)].iter().enumerate().position(|(at, found)| *found != byte(got, at));
        assert_eq!(wrong, None, "message {number} differs");
    }
    Ok(got)
}

/// How many bytes either adapter has sent.
fn sent(nics: &[Nic; 2]) -> [u64; 2] {
    [0, 1].map(|n| nics[n].statistics().adapter.tx_bytes)
}

/// Messages to and fro, until they have gone on for a while after a rail has died.
fn stream(channel: &Channel, session: &Session) -> Result<u64> {
    let (me, other) = (session.rank(), 1 - session.rank());
    let mut bytes = vec![0; LENGTHS[3]];
    let (start, mut said, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
    let (mut both, mut alone) = (false, 0);
    let mut number = 0;
    loop {
        let turn = Instant::now();
        if me == 0 {
            // Rank 1 says when it has seen enough: after the cable was pulled.
            send(channel, 1, number, &mut bytes)?;
            if receive(channel, other, number, &mut bytes)? == LAST {
                break;
            }
        } else {
            receive(channel, other, number, &mut bytes)?;
            longest = longest.max(turn.elapsed());
            // It has gone on for a while without the rail that has died.
            let up = channel.rails(0)?.len();
            both |= up == 2;
            alone += u32::from(both && up == 1);
            let enough = alone > 20;
            assert!(start.elapsed() < PATIENCE, "no rail has died");
            send(channel, 0, if enough { LAST } else { number }, &mut bytes)?;
            if enough {
                break;
            }
        }
        number += 1;
        if number == 8 || said.elapsed() > Duration::from_secs(1) {
            println!("{number} messages each way");
            said = Instant::now();
        }
    }
    println!("{number} messages each way, each once and in order; the longest pause was {longest:?}");
    Ok(number)
}

#[test]
#[ignore = "needs a guest of two, with two NICs each: tests/run runs it there"]
fn a_rank_of_two() {
    let session = Session::from_environment().unwrap_or_else(|e| panic!("{e}"));
    let nics = ["UVIA_NIC_A", "UVIA_NIC_B"].map(|variable| {
        let device = std::env::var(variable).unwrap_or_else(|_| panic!("{variable} names no device"));
        Nic::open(&device, NicOptions::default()).unwrap_or_else(|e| panic!("{e}"))
    });
    let channel = session.channel(0, &[]).unwrap();
    let (me, other) = (session.rank(), 1 - session.rank());

    // Long pieces are striped: both adapters have a fair share of them.
    let mut bytes = vec![7u8; 1 << 20];
    let before = sent(&nics);
    for _ in 0..4 {
        let room = &mut bytes[..];
        let outcome: Result<()> = if me == 0 {
            channel.send(other, |message| message.cheaper(room, ReceiveMode::Cheaper))
        } else {
            channel.receive(other, |message| message.cheaper(room, SendMode::Cheaper))
        };
        outcome.unwrap_or_else(|e| panic!("{e}"));
    }
    if me == 0 {
        let sent: Vec<u64> = sent(&nics).iter().zip(before).map(|(after, before)| after - before).collect();
        println!("of 4 MiB {} bytes went by one kind of adapter, and {} by the other", sent[0], sent[1]);
        assert!(sent.iter().all(|bytes| *bytes >= 700_000), "{sent:?}");
    }

    // And then a cable is pulled.
    let streamed = stream(&channel, &session).unwrap_or_else(|e| panic!("{e}"));
    assert!(streamed > 20, "{streamed}");
    println!("left: {:?}", channel.rails(other).unwrap());
}
