//! Bytes in, whole messages out; no I/O.
//!
//! A stream of bytes has no borders, so that a message is as long as its header says. That is kept whatever else is
//! wrong with it: a message that is too long, or carries too many file descriptors, is passed over and named, and
//! the next one is found. Only a header that claims to be shorter than itself ends it all.

use std::os::fd::OwnedFd;

use zerocopy::FromBytes;

use crate::wire::{HEADER, Header};

/// A whole message.
#[derive(Debug)]
pub struct Frame<F = OwnedFd> {
    /// The header.
    pub header: Header,
    /// What follows it; empty when there is a defect.
    pub body: Vec<u8>,
    /// The file descriptors that came along; none when there is a defect.
    pub fds: Vec<F>,
    /// Why the message cannot be used, although its end is known.
    pub defect: Option<Defect>,
}

/// Why a message cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// Its body is longer than is taken here.
    TooLong,
    /// More file descriptors came along than are taken here.
    TooManyFds,
}

/// A header that says that the message is shorter than the header. Where the next one begins nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message that claims to have {0} bytes, which is less than its header")]
pub struct BadSize(pub u32);

/// Puts messages together.
#[derive(Debug)]
pub struct Framer<F = OwnedFd> {
    max_body: usize,
    max_fds: usize,
    head: Vec<u8>,
    /// Set when `head` is whole.
    header: Option<Header>,
    /// Bytes of the body that are still to come.
    left: usize,
    body: Vec<u8>,
    fds: Vec<F>,
    defect: Option<Defect>,
}

impl<F> Framer<F> {
    /// For messages of up to `max_body` bytes behind the header, and `max_fds` file descriptors.
    pub fn new(max_body: usize, max_fds: usize) -> Self {
        Self {
            max_body,
            max_fds,
            head: Vec::with_capacity(HEADER),
            header: None,
            left: 0,
            body: Vec::new(),
            fds: Vec::new(),
            defect: None,
        }
    }

    /// How many bytes may be read next so that none belongs to another message; never 0.
    ///
    /// File descriptors arrive with the bytes that they were sent with. Who reads no more than this knows which
    /// message they belong to.
    pub fn wanted(&self) -> usize {
        match self.header {
            None => HEADER - self.head.len(),
            Some(_) => self.left,
        }
    }

    /// Whether a message has begun and is not whole.
    pub fn is_within(&self) -> bool {
        !self.head.is_empty()
    }

    /// Takes file descriptors that came with the next bytes. `complete` says that none of them was lost.
    pub fn attach(&mut self, fds: impl IntoIterator<Item = F>, complete: bool) {
        self.fds.extend(fds);
        if self.fds.len() > self.max_fds || !complete {
            self.fds.clear();
            self.defect.get_or_insert(Defect::TooManyFds);
        }
    }

    /// Takes bytes, and leaves those in `bytes` that are behind the end of this message. Answers the message when it
    /// is whole.
    ///
    /// # Errors
    /// [`BadSize`]: there is no way on.
    pub fn push(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame<F>>, BadSize> {
        if self.header.is_none() {
            let (now, rest) = bytes.split_at(bytes.len().min(HEADER - self.head.len()));
            self.head.extend_from_slice(now);
            *bytes = rest;
            let Ok(header) = Header::read_from_bytes(&self.head) else { return Ok(None) };
            let Some(left) = (header.size as usize).checked_sub(HEADER) else {
                return Err(BadSize(header.size));
            };
            if left > self.max_body {
                self.defect.get_or_insert(Defect::TooLong);
            }
            self.header = Some(header);
            self.left = left;
        }
        let (now, rest) = bytes.split_at(bytes.len().min(self.left));
        // As it comes, and not as much as was announced: an announcement is cheap.
        if self.defect.is_none() {
            self.body.extend_from_slice(now);
        }
        self.left -= now.len();
        *bytes = rest;
        if self.left > 0 {
            return Ok(None);
        }
        self.head.clear();
        let Some(header) = self.header.take() else { return Ok(None) };
        let (mut body, mut fds) = (std::mem::take(&mut self.body), std::mem::take(&mut self.fds));
        let defect = self.defect.take();
        if defect.is_some() {
            body = Vec::new();
            fds.clear();
        }
        Ok(Some(Frame { header, body, fds, defect }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    const MAX: usize = 100;

    fn message(id: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Header::command(id, 9, body.len()).as_bytes().to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    /// All messages in `bytes`, cut into pieces at `cuts`; a message's descriptor comes with its first byte.
    fn frames(bytes: &[u8], cuts: &[usize]) -> Vec<Frame<u32>> {
        let mut framer = Framer::new(MAX, 2);
        let mut found = Vec::new();
        let mut from = 0;
        for to in cuts.iter().copied().chain([bytes.len()]) {
            let to = to.clamp(from, bytes.len());
            let mut piece = &bytes[from..to];
            while !piece.is_empty() {
                assert!(framer.wanted() > 0);
                if let Some(frame) = framer.push(&mut piece).unwrap() {
                    found.push(frame);
                }
            }
            from = to;
        }
        assert!(!framer.is_within());
        found
    }

    proptest! {
        #[test]
        fn however_it_is_cut(
            bodies in vec(vec(any::<u8>(), 0..MAX * 2), 0..8),
            mut cuts in vec(0..2000usize, 0..30),
        ) {
            cuts.sort_unstable();
            let bytes: Vec<u8> =
                bodies.iter().enumerate().flat_map(|(n, body)| message(n as u16, body)).collect();
            let found = frames(&bytes, &cuts);
            prop_assert_eq!(found.len(), bodies.len());
            for (n, (frame, body)) in found.iter().zip(&bodies).enumerate() {
                prop_assert_eq!(frame.header.id, n as u16);
                if body.len() <= MAX {
                    prop_assert!(frame.defect.is_none() && frame.body == *body);
                } else {
                    prop_assert!(frame.defect == Some(Defect::TooLong) && frame.body.is_empty());
                }
            }
        }

        #[test]
        fn garbage_ends_or_goes_on(bytes in vec(any::<u8>(), 0..500)) {
            let mut framer = Framer::<u32>::new(MAX, 2);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let before = rest.len();
                match framer.push(&mut rest) {
                    Ok(_) => prop_assert!(rest.len() < before),
                    Err(BadSize(size)) => {
                        prop_assert!((size as usize) < HEADER);
                        break;
                    }
                }
                prop_assert!(framer.body.len() <= MAX);
            }
        }
    }

    #[test]
    fn bytewise() {
        let bytes: Vec<u8> = [message(1, b"abc"), message(2, b""), message(3, &[7; MAX + 1])].concat();
        let cuts: Vec<usize> = (0..bytes.len()).collect();
        let found = frames(&bytes, &cuts);
        assert_eq!(found[0].body, b"abc");
        assert_eq!((found[1].header.id, found[2].defect), (2, Some(Defect::TooLong)));
    }

    #[test]
    fn descriptors_belong_to_the_message_that_they_came_in() {
        let mut framer = Framer::new(MAX, 2);
        let (first, second) = (message(1, b"abc"), message(2, b"d"));
        framer.attach([10], true);
        assert!(framer.push(&mut &first[..16]).unwrap().is_none());
        framer.attach([11], true);
        let frame = framer.push(&mut &first[16..]).unwrap().unwrap();
        assert_eq!(frame.fds, [10, 11]);
        assert_eq!(framer.push(&mut &second[..]).unwrap().unwrap().fds, [0; 0]);
    }

    #[test]
    fn too_many_descriptors_spoil_one_message_only() {
        for (fds, complete) in [(vec![1, 2, 3], true), (vec![1], false)] {
            let mut framer = Framer::new(MAX, 2);
            framer.attach(fds, complete);
            let frame = framer.push(&mut &message(1, b"abc")[..]).unwrap().unwrap();
            assert_eq!((frame.defect, frame.fds.len(), frame.body.len()), (Some(Defect::TooManyFds), 0, 0));
            assert!(framer.push(&mut &message(2, b"d")[..]).unwrap().unwrap().defect.is_none());
        }
    }

    #[test]
    fn a_message_shorter_than_its_header_is_the_end() {
        let mut bytes = message(1, b"");
        bytes[4] = 15;
        assert_eq!(Framer::<u32>::new(MAX, 2).push(&mut &bytes[..]).unwrap_err(), BadSize(15));
    }
}
