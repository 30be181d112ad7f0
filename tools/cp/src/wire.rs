//! What the two ends say to each other, beside the chunks. Little-endian; a message begins with its kind.
//!
//! | kind | from | what |
//! |---|---|---|
//! | 1 offer | sender | version (1), flags (1), mode (4), size (8), path |
//! | 2 ready | receiver | offset (8), SHA-256 of what is there before it (32), address (8), handle (4), chunk (4), chunks (4) |
//! | 3 start | sender | offset (8): the one of the ready message, or 0 when that is not the beginning of the file |
//! | 4 finish | sender | SHA-256 of the file (32) |
//! | 5 done | receiver | |
//! | 6 failed | either | why, as text |
//!
//! A chunk is an RDMA write with its length as immediate data, into the next buffer of the ring. A message without
//! bytes from the receiver grants as many buffers as its immediate data says.

/// Of this protocol.
pub const VERSION: u8 = 1;
/// Longest message, bytes.
pub const MAX: usize = 4096 + 64;
/// Longest path (PATH_MAX).
const MAX_PATH: usize = 4096;

const FORCE: u8 = 1;
const RESUME: u8 = 2;

/// A SHA-256.
pub type Digest = [u8; 32];

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A file, to be put at `path`.
    Offer {
        /// Replace a file that is there.
        force: bool,
        /// Keep and use what an earlier copy left.
        resume: bool,
        /// Permission bits.
        mode: u32,
        /// Bytes.
        size: u64,
        /// Below the receiver's folder.
        path: Vec<u8>,
    },
    /// Where to write it.
    Ready {
        /// Bytes that are there already.
        offset: u64,
        /// Of these.
        digest: Digest,
        /// The ring's first byte.
        address: u64,
        /// The ring's memory.
        handle: u32,
        /// Bytes of a buffer.
        chunk: u32,
        /// Buffers.
        chunks: u32,
    },
    /// From where on the file follows.
    Start {
        /// Bytes that the receiver has.
        offset: u64,
    },
    /// All has been written.
    Finish {
        /// Of the whole file.
        digest: Digest,
    },
    /// The file is there.
    Done,
    /// There will be no file.
    Failed(String),
}

impl Message {
    /// The bytes to send.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        match self {
            Self::Offer { force, resume, mode, size, path } => {
                let flags = if *force { FORCE } else { 0 } | if *resume { RESUME } else { 0 };
                bytes.extend([1, VERSION, flags]);
                bytes.extend(mode.to_le_bytes());
                bytes.extend(size.to_le_bytes());
                bytes.extend(path);
            }
            Self::Ready { offset, digest, address, handle, chunk, chunks } => {
                bytes.push(2);
                bytes.extend(offset.to_le_bytes());
                bytes.extend(digest);
                bytes.extend(address.to_le_bytes());
                for word in [handle, chunk, chunks] {
                    bytes.extend(word.to_le_bytes());
                }
            }
            Self::Start { offset } => {
                bytes.push(3);
                bytes.extend(offset.to_le_bytes());
            }
            Self::Finish { digest } => {
                bytes.push(4);
                bytes.extend(digest);
            }
            Self::Done => bytes.push(5),
            Self::Failed(why) => {
                bytes.push(6);
                let mut end = why.len().min(1024);
                while !why.is_char_boundary(end) {
                    end -= 1;
                }
                bytes.extend(&why.as_bytes()[..end]);
            }
        }
        bytes
    }

    /// Reads a message; none when it is not one of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let mut fields = Fields(rest);
        let message = match kind {
            1 => {
                let [version, flags] = fields.take()?;
                let (mode, size) = (fields.u32()?, fields.u64()?);
                let path = std::mem::take(&mut fields.0).to_vec();
                let known = version == VERSION && flags & !(FORCE | RESUME) == 0;
                if !known || path.is_empty() || path.len() > MAX_PATH {
                    return None;
                }
                Self::Offer { force: flags & FORCE != 0, resume: flags & RESUME != 0, mode, size, path }
            }
            2 => Self::Ready {
                offset: fields.u64()?,
                digest: fields.take()?,
                address: fields.u64()?,
                handle: fields.u32()?,
                chunk: fields.u32()?,
                chunks: fields.u32()?,
            },
            3 => Self::Start { offset: fields.u64()? },
            4 => Self::Finish { digest: fields.take()? },
            5 => Self::Done,
            6 => {
                // Shown to a person: no control characters, which could make a terminal do things.
                let text = String::from_utf8_lossy(std::mem::take(&mut fields.0));
                Self::Failed(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
            }
            _ => return None,
        };
        fields.0.is_empty().then_some(message)
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        vec![
            Message::Offer { force: true, resume: false, mode: 0o755, size: u64::MAX, path: b"a/b".to_vec() },
            Message::Ready { offset: 1, digest: [7; 32], address: 3, handle: 4, chunk: 5, chunks: 6 },
            Message::Start { offset: 9 },
            Message::Finish { digest: [1; 32] },
            Message::Done,
            Message::Failed("no space".to_owned()),
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        for message in all() {
            assert_eq!(Message::parse(&message.to_bytes()), Some(message));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert_eq!(Message::parse(&[]), None);
        for message in all() {
            let bytes = message.to_bytes();
            if !matches!(message, Message::Failed(_) | Message::Offer { .. }) {
                let mut longer = bytes.clone();
                longer.push(0);
                assert_eq!(Message::parse(&longer), None, "{message:?}");
                assert!(Message::parse(&bytes[..bytes.len() - 1]).is_none());
            }
        }
        let offer = all()[0].to_bytes();
        assert_eq!(Message::parse(&offer[..offer.len() - 3]), None, "a path is needed");
        let mut other = offer.clone();
        other[1] = VERSION + 1;
        assert_eq!(Message::parse(&other), None);
        // Nothing of any length is a panic.
        for kind in 0..=255 {
            for len in 0..80 {
                let _ = Message::parse(&vec![kind; len]);
            }
        }
    }

    #[test]
    fn a_reason_cannot_steer_the_terminal() {
        let Some(Message::Failed(text)) = Message::parse(b"\x06gone\x1b[2J\n") else { panic!() };
        assert_eq!(text, "gone [2J ");
        assert!(Message::Failed("\u{e9}".repeat(2000)).to_bytes().len() <= MAX);
    }
}
