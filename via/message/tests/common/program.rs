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

/// Messages that one rank receives together, from whoever comes first where there are several.
#[derive(Debug, Clone)]
pub struct Phase(pub Vec<Message>);

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

/// The program of a seed.
pub fn generate(seed: u64, shape: Shape) -> Vec<Phase> {
    let mut numbers = Numbers(seed);
    (0..=numbers.below(shape.phases))
        .map(|_| {
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
            Phase(messages)
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
    for (p, Phase(messages)) in program.iter().enumerate() {
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
