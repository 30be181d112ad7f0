//! The same by messages.

use uvia::Nic;
use uvia_message::{
    Board, Channel, Directory, Policy, RailPort, ReceiveMode, Result, SendMode, Session, SessionOptions,
};

/// One end.
pub struct Layer {
    _session: Session,
    channel: Channel,
    other: usize,
    from: Vec<u8>,
    into: Vec<u8>,
}

impl Layer {
    fn open(board: &Board, rank: usize, nic: Nic, long: usize) -> Result<Self> {
        let mut options = SessionOptions::new("overhead", rank, 2);
        options.policy = Policy::Latency;
        let rails = vec![("vi".to_owned(), RailPort::Vi(nic))];
        let session = Session::open(options, rails, &Directory::Local(board.clone()))?;
        let channel = session.channel(0, &[])?;
        let long = long.max(4096);
        Ok(Self { _session: session, channel, other: 1 - rank, from: vec![7; long], into: vec![0; long] })
    }

    /// Both ends, connected.
    pub fn pair(a: Nic, b: Nic, long: usize) -> Result<(Self, Self)> {
        let board = Board::default();
        let here = board.clone();
        // The two have to be driven at a time until they are connected.
        let other = std::thread::spawn(move || -> Result<Self> {
            let mut end = Self::open(&here, 1, b, long)?;
            end.receive(1)?;
            Ok(end)
        });
        let end = Self::open(&board, 0, a, long)?;
        end.send(1)?;
        let other =
            other.join().map_err(|_| uvia_message::Error::Config("the other end failed".into()))??;
        Ok((end, other))
    }

    /// Sends one piece of `len` bytes.
    #[inline]
    pub fn send(&self, len: usize) -> Result<()> {
        self.channel.send(self.other, |message| message.cheaper(&self.from[..len], ReceiveMode::Cheaper))
    }

    /// Receives it.
    #[inline]
    pub fn receive(&mut self, len: usize) -> Result<()> {
        let into = &mut self.into[..len];
        self.channel.receive(self.other, |message| message.cheaper(into, SendMode::Cheaper))
    }
}
