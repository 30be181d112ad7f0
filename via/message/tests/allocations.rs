//! Messages from buffers that are used again allocate nothing, or next to nothing.

mod common;
// The crate that it lives in is built of all others.
#[path = "../../../tests/src/counting.rs"]
mod counting;

use common::{Kind, rail};
use counting::Counting;
use uvia_message::{Board, Channel, Directory, Policy, ReceiveMode, SendMode, Session, SessionOptions};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A round of a ping-pong of messages of one piece.
fn round(channel: &Channel, other: usize, first: bool, bytes: &mut [u8]) -> uvia_message::Result<()> {
    for sends in [first, !first] {
        if sends {
            channel.send(other, |message| message.cheaper(bytes, ReceiveMode::Cheaper))?;
        } else {
            channel.receive(other, |message| message.cheaper(bytes, SendMode::Cheaper))?;
        }
    }
    Ok(())
}

/// What an end allocates and frees in so many rounds, once it has warmed up.
fn allocations(len: usize, rounds: u64) -> u64 {
    let (name, board) = (common::fresh_name(), Board::default());
    let end = |rank: usize| {
        let mut options = SessionOptions::new(&name, rank, 2);
        options.policy = Policy::Latency;
        let rails = vec![("rail0".to_owned(), rail(Kind::Vi, &name, 0, rank))];
        let session = Session::open(options, rails, &Directory::Local(board.clone())).expect("it opens");
        let channel = session.channel(0, &[]).expect("a channel");
        let mut bytes = vec![7; len];
        let mut all =
            |rounds| (0..rounds).for_each(|_| round(&channel, 1 - rank, rank == 0, &mut bytes).unwrap());
        all(200);
        let before = Counting::count();
        all(rounds);
        Counting::count() - before
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| end(1));
        let mine = end(0);
        mine.max(other.join().expect("the other end is well"))
    })
}

/// In turn: each takes both processors for itself.
#[test]
fn a_message_in_a_packet_allocates_nothing_and_a_long_one_no_more_than_a_note() {
    for len in [0, 64, 1000] {
        assert_eq!(allocations(len, 500), 0, "{len} bytes");
    }
    // One whose place was asked for, since its receiver was late, has a note of its own.
    const ROUNDS: u64 = 200;
    let count = allocations(1 << 20, ROUNDS);
    println!("{count} in {ROUNDS} rounds");
    // Two messages a round; a note is allocated and freed.
    assert!(count <= 4 * ROUNDS, "{count} in {ROUNDS} rounds");
}
