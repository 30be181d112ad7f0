//! The directives that a program gives with each piece of a message.

/// When the sender's buffer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SendMode {
    /// Before the call returns: the buffer may be changed at once.
    Safer = 1,
    /// At the message's end, and not before.
    Later = 2,
    /// Whenever it is cheapest; the buffer stays as it is until the message's end.
    Cheaper = 3,
}

/// When the receiver's buffer is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReceiveMode {
    /// Before the call returns: what it says may steer what is unpacked next.
    Express = 1,
    /// Whenever it is cheapest; it is there at the message's end.
    Cheaper = 2,
}

impl SendMode {
    /// The mode of that number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Safer, Self::Later, Self::Cheaper].into_iter().find(|mode| *mode as u8 == number)
    }
}

impl ReceiveMode {
    /// The mode of that number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::Express, Self::Cheaper].into_iter().find(|mode| *mode as u8 == number)
    }
}
