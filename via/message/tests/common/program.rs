//! Random programs: the same list of messages at all ranks, of which each does its part in order, so that whatever a
//! rank waits for, somebody is on the way to.

use uvia_message::{Channel, RawIncoming, ReceiveMode, Result, SendMode, Session, Source, Span};

/// A small generator of numbers (SplitMix64): the same for the same seed.
#[derive(Debug, Clone)]
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Piece {
    pub len: usize,
    pub send: SendMode,
    pub receive: ReceiveMode,
}

#[derive(Debug, Clone)]
pub struct Message {
    pub from: usize,
    pub to: usize,
    pub channel: usize,
    pub pieces: Vec<Piece>,
}

/// What several ranks do at once.
#[derive(Debug, Clone)]
pub enum Phase {
    /// Messages that one rank receives together, from whoever comes first where there are several.
    Together(Vec<Message>),
    /// A ring of messages of one piece: the second of each rank is what it does for its two.
    Ring(Vec<(Message, Part)>),
}

/// How a rank of a ring sends its own message, and receives the one of the rank before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// At once.
    Exchanges,
    SendsFirst,
    ReceivesFirst,
}

/// What a program is made of.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub ranks: usize,
    pub channels: usize,
    pub phases: usize,
    pub most_pieces: usize,
    /// Longest piece.
    pub most: usize,
}

fn length(numbers: &mut Numbers, most: usize) -> usize {
    // Each power of two as likely as the next, the shortest more so.
    let bits = usize::BITS as usize - most.leading_zeros() as usize;
    let bits = numbers.below(bits + 1).min(numbers.below(bits + 1));
    match numbers.below(40) {
        0 => most,
        _ => numbers.below((1 << bits) + 1).min(most),
    }
}

fn message(numbers: &mut Numbers, shape: Shape, from: usize, to: usize, channel: usize) -> Message {
    let pieces = (0..=numbers.below(shape.most_pieces))
        .map(|_| Piece {
            len: length(numbers, shape.most),
            send: [SendMode::Safer, SendMode::Later, SendMode::Cheaper][numbers.below(3)],
            receive: [ReceiveMode::Express, ReceiveMode::Cheaper][numbers.below(2)],
        })
        .collect();
    Message { from, to, channel, pieces }
}

/// A ring of some of the ranks, in some order. At least one exchanges, so that no rank waits for one that waits for it.
fn ring(numbers: &mut Numbers, shape: Shape) -> Phase {
    let mut ranks: Vec<usize> = (0..shape.ranks).collect();
    (1..ranks.len()).for_each(|n| ranks.swap(n, numbers.below(n + 1)));
    ranks.truncate(2 + numbers.below(shape.ranks - 1));
    let channel = numbers.below(shape.channels);
    let messages = ranks.iter().enumerate().map(|(n, from)| {
        let piece = Piece {
            len: length(numbers, shape.most),
            send: SendMode::Cheaper,
            receive: ReceiveMode::Cheaper,
        };
        let part = match numbers.below(6) {
            0 if n > 0 => Part::SendsFirst,
            1 if n > 0 => Part::ReceivesFirst,
            _ => Part::Exchanges,
        };
        (Message { from: *from, to: ranks[(n + 1) % ranks.len()], channel, pieces: vec![piece] }, part)
    });
    Phase::Ring(messages.collect())
}

/// The program of a seed.
pub fn generate(seed: u64, shape: Shape) -> Vec<Phase> {
    let mut numbers = Numbers(seed);
    (0..=numbers.below(shape.phases))
        .map(|_| {
            if numbers.below(4) == 0 {
                return ring(&mut numbers, shape);
            }
            let to = numbers.below(shape.ranks);
            let channel = numbers.below(shape.channels);
            let several = numbers.below(4) == 0;
            let count = if several { 1 + numbers.below(4) } else { 1 };
            let messages = (0..count)
                .map(|_| {
                    let from = (to + 1 + numbers.below(shape.ranks - 1)) % shape.ranks;
                    message(&mut numbers, shape, from, to, channel)
                })
                .collect();
            Phase::Together(messages)
        })
        .collect()
}

/// The byte at a place of a piece.
fn pattern(key: u64, at: usize) -> u8 {
    (key as usize).wrapping_mul(31).wrapping_add(at).wrapping_add(at >> 8) as u8
}

fn key(seed: u64, phase: usize, number: usize, piece: usize) -> u64 {
    Numbers(seed ^ ((phase as u64) << 40) ^ ((number as u64) << 20) ^ piece as u64).next()
}

/// Runs a rank's part, and compares what it receives.
pub fn execute(seed: u64, program: &[Phase], session: &Session, channels: &[Channel]) -> Result<()> {
    let me = session.rank();
    for (p, phase) in program.iter().enumerate() {
        let messages = match phase {
            Phase::Together(messages) => messages,
            Phase::Ring(messages) => {
                go_round(seed, p, messages, me, channels)?;
                continue;
            }
        };
        let mut left: Vec<usize> = (0..messages.len()).filter(|n| messages[*n].to == me).collect();
        for (n, message) in messages.iter().enumerate() {
            let channel = &channels[message.channel];
            if message.from == me {
                send(seed, p, n, message, channel)?;
            }
        }
        while !left.is_empty() {
            let first = &messages[left[0]];
            let channel = &channels[first.channel];
            if messages.len() == 1 && is_safe(seed, p) {
                receive_safely(seed, p, first, channel)?;
                break;
            }
            let source = if messages.len() > 1 { Source::Any } else { Source::Rank(first.from) };
            let incoming = channel.begin_receive(source)?;
            let from = incoming.rank();
            // Of one sender they come in order.
            let at = left.iter().position(|n| messages[*n].from == from).expect("a message that is expected");
            let n = left.remove(at);
            receive(seed, p, n, &messages[n], incoming)?;
        }
        if messages.len() > 1 {
            // Nobody may go on to a message that would be taken here for one of these.
            let channel = &channels[messages[0].channel];
            let to = messages[0].to;
            if to == me {
                (0..session.size())
                    .filter(|rank| *rank != me)
                    .try_for_each(|rank| channel.send(rank, |go| go.put(&1u8)))?;
            } else {
                assert_eq!(channel.receive(to, |go| go.get::<u8>())?, 1);
            }
        }
    }
    Ok(())
}

/// A rank's part in a ring, if it is of it.
fn go_round(seed: u64, p: usize, ring: &[(Message, Part)], me: usize, channels: &[Channel]) -> Result<()> {
    let Some(n) = ring.iter().position(|(message, _)| message.from == me) else { return Ok(()) };
    let before = (n + ring.len() - 1) % ring.len();
    let ((out, part), (incoming, _)) = (&ring[n], &ring[before]);
    let channel = &channels[out.channel];
    let (mut bytes, len) = (vec![0xee; out.pieces[0].len], incoming.pieces[0].len);
    fill(seed, p, n, &mut bytes, 0);
    // Nothing beside it is written either.
    let mut room = vec![0xcc; len + 2 * BESIDE];
    let into = &mut room[BESIDE..BESIDE + len];
    let send = || channel.send(out.to, |message| message.cheaper(&bytes, ReceiveMode::Cheaper));
    let receive = |into| channel.receive(incoming.from, |message| message.cheaper(into, SendMode::Cheaper));
    match part {
        Part::Exchanges => channel.exchange(out.to, &bytes, incoming.from, into)?,
        Part::SendsFirst => send().and_then(|()| receive(into))?,
        Part::ReceivesFirst => receive(into).and_then(|()| send())?,
    }
    check(seed, p, before, incoming, &room[BESIDE..BESIDE + len], 0);
    let beside = room[..BESIDE].iter().chain(&room[BESIDE + len..]);
    assert!(
        beside.into_iter().all(|byte| *byte == 0xcc),
        "seed {seed}, phase {p}: {incoming:?} wrote beside"
    );
    Ok(())
}

/// Bytes before and behind a place that nobody is to write.
const BESIDE: usize = 64;

/// Whether a message goes by the safe forms, where it can: who receives so may say what it waits for before that has begun.
fn is_safe(seed: u64, phase: usize) -> bool {
    Numbers(seed ^ (phase as u64) << 50).below(2) == 0
}

fn fill(seed: u64, p: usize, n: usize, buffer: &mut [u8], piece: usize) {
    let key = key(seed, p, n, piece);
    buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(key, at));
}

fn send(seed: u64, p: usize, n: usize, message: &Message, channel: &Channel) -> Result<()> {
    let mut buffers: Vec<Vec<u8>> = message.pieces.iter().map(|piece| vec![0xee; piece.len]).collect();
    let fill = |buffer: &mut [u8], piece: usize| fill(seed, p, n, buffer, piece);
    if is_safe(seed, p) && message.pieces.iter().all(|piece| piece.send == SendMode::Cheaper) {
        buffers.iter_mut().enumerate().for_each(|(number, buffer)| fill(buffer, number));
        let pieces = buffers.iter().zip(&message.pieces);
        return channel.send(message.to, |out| {
            pieces.into_iter().try_for_each(|(buffer, piece)| out.pack(buffer, piece.send, piece.receive))
        });
    }
    let mut out = channel.begin(message.to)?;
    for (number, piece) in message.pieces.iter().enumerate() {
        let buffer = &mut buffers[number];
        if piece.send != SendMode::Later {
            fill(buffer, number);
        }
        let span = Span::new(buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the buffers live longer than the message, and are written when their modes allow it only.
        unsafe { out.pack(span, piece.send, piece.receive)? };
        if piece.send == SendMode::Safer {
            buffer.fill(0xdd);
        }
    }
    for (number, piece) in message.pieces.iter().enumerate() {
        if piece.send == SendMode::Later {
            fill(&mut buffers[number], number);
        }
    }
    out.end()
}

fn check(seed: u64, p: usize, n: usize, message: &Message, buffer: &[u8], number: usize) {
    let key = key(seed, p, n, number);
    if let Some(at) = buffer.iter().enumerate().position(|(at, byte)| *byte != pattern(key, at)) {
        panic!("seed {seed}, phase {p}, message {n} {message:?}: piece {number} differs at {at}");
    }
}

fn receive_safely(seed: u64, p: usize, message: &Message, channel: &Channel) -> Result<()> {
    let mut buffers: Vec<Vec<u8>> = message.pieces.iter().map(|piece| vec![0xcc; piece.len]).collect();
    let pieces = buffers.iter_mut().zip(&message.pieces).enumerate();
    channel.receive(message.from, |incoming| {
        pieces.into_iter().try_for_each(|(number, (buffer, piece))| match piece.receive {
            ReceiveMode::Express => {
                incoming.express(buffer, piece.send)?;
                check(seed, p, 0, message, buffer, number);
                Result::Ok(())
            }
            ReceiveMode::Cheaper => incoming.cheaper(buffer, piece.send),
        })
    })?;
    buffers.iter().enumerate().for_each(|(number, buffer)| check(seed, p, 0, message, buffer, number));
    Ok(())
}

fn receive(seed: u64, p: usize, n: usize, message: &Message, mut incoming: RawIncoming) -> Result<()> {
    let mut buffers: Vec<Vec<u8>> = message.pieces.iter().map(|piece| vec![0xcc; piece.len]).collect();
    let check = |buffer: &[u8], number: usize| check(seed, p, n, message, buffer, number);
    for (number, piece) in message.pieces.iter().enumerate() {
        let buffer = &mut buffers[number];
        let span = Span::new(buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the buffers live longer than the message, and are looked at when their modes allow it only.
        unsafe { incoming.unpack(span, piece.send, piece.receive)? };
        if piece.receive == ReceiveMode::Express {
            check(buffer, number);
        }
    }
    incoming.end()?;
    buffers.iter().enumerate().for_each(|(number, buffer)| check(buffer, number));
    Ok(())
}
