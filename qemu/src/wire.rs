//! What the launcher and the guest's agent say to each other over the virtio-serial control port.
//!
//! A stream of frames, each a little-endian length, a kind, the number of the command or request that it
//! belongs to, and a payload. Bytes stay bytes throughout: arguments, environment and output need not be
//! text. One port carries everything, so the order between a command's output and its end is kept.

use std::io::{self, Read, Write};

/// Longest payload; longer ones are a sign of a broken stream.
pub const MAX_PAYLOAD: usize = 16 << 20;

/// What a frame means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// To the guest: who it is and what to set up. A list of `key=value`.
    Configure = 1,
    /// To the guest: run a command. See [`Run`].
    Run,
    /// To the guest: send the signal (one byte) to the command's process group.
    Signal,
    /// To the guest: nobody reads this output (one byte, 1 or 2) any more.
    CloseOutput,
    /// To the guest: give the NICs to vfio-pci.
    Attach,
    /// To the guest: give the NICs to the kernel's drivers; answered by the interfaces' names.
    Detach,
    /// To the guest: write a file. A list of path, octal mode, `new` or `more`, and the bytes.
    Put,
    /// To the guest: load the modules named in the list.
    Load,
    /// From the guest: user space is up.
    Hello = 64,
    /// From the guest: bytes of a command's standard output.
    Stdout,
    /// From the guest: bytes of a command's standard error.
    Stderr,
    /// From the guest: a command's end, as wait(2) reports it, in four bytes.
    Exit,
    /// From the guest: a request is done; a list of results.
    Done,
    /// From the guest: a request failed; text.
    Failed,
}

impl Kind {
    const ALL: [Kind; 14] = [
        Kind::Configure,
        Kind::Run,
        Kind::Signal,
        Kind::CloseOutput,
        Kind::Attach,
        Kind::Detach,
        Kind::Put,
        Kind::Load,
        Kind::Hello,
        Kind::Stdout,
        Kind::Stderr,
        Kind::Exit,
        Kind::Done,
        Kind::Failed,
    ];

    fn from_byte(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it means.
    pub kind: Kind,
    /// The command or request that it belongs to.
    pub id: u32,
    /// The rest.
    pub payload: Vec<u8>,
}

impl Frame {
    /// A frame.
    pub fn new(kind: Kind, id: u32, payload: impl Into<Vec<u8>>) -> Self {
        Frame { kind, id, payload: payload.into() }
    }

    /// Writes the frame in one call, so that frames of several writers do not mix.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(9 + self.payload.len());
        bytes.extend_from_slice(&(self.payload.len() as u32).to_le_bytes());
        bytes.push(self.kind as u8);
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&self.payload);
        to.write_all(&bytes)
    }

    /// Reads the next frame; none at the stream's end.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut head = [0; 9];
        let mut got = 0;
        while got < head.len() {
            match from.read(&mut head[got..]) {
                Ok(0) if got == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => got += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let id = u32::from_le_bytes([head[5], head[6], head[7], head[8]]);
        let kind = Kind::from_byte(head[4]).ok_or_else(|| bad("unknown kind of frame"))?;
        if len > MAX_PAYLOAD {
            return Err(bad("frame too long"));
        }
        let mut payload = vec![0; len];
        from.read_exact(&mut payload)?;
        Ok(Some(Frame { kind, id, payload }))
    }
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("control port: {why}"))
}

/// Appends a list of byte strings: a count, then each with its length.
pub fn put_list<T: AsRef<[u8]>>(to: &mut Vec<u8>, items: &[T]) {
    to.extend_from_slice(&(items.len() as u32).to_le_bytes());
    for item in items {
        let item = item.as_ref();
        to.extend_from_slice(&(item.len() as u32).to_le_bytes());
        to.extend_from_slice(item);
    }
}

/// Takes a list off the front of `from`.
pub fn take_list(from: &mut &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let count = take_u32(from)? as usize;
    // Each item takes four bytes at least: a count beyond that is a lie, and must not reserve memory.
    if count > from.len() / 4 {
        return Err(bad("list too long"));
    }
    (0..count)
        .map(|_| {
            let len = take_u32(from)? as usize;
            let item = from.get(..len).ok_or_else(|| bad("list cut short"))?.to_vec();
            *from = &from[len..];
            Ok(item)
        })
        .collect()
}

fn take_u32(from: &mut &[u8]) -> io::Result<u32> {
    let (head, rest) = from.split_first_chunk::<4>().ok_or_else(|| bad("frame cut short"))?;
    *from = rest;
    Ok(u32::from_le_bytes(*head))
}

/// A command to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    /// The program and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// The whole environment, as `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// The folder to run it in.
    pub cwd: Vec<u8>,
}

impl Run {
    /// The payload that says this.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_list(&mut bytes, &self.argv);
        put_list(&mut bytes, &self.env);
        put_list(&mut bytes, &[&self.cwd]);
        bytes
    }

    /// Reads such a payload.
    pub fn decode(mut payload: &[u8]) -> io::Result<Run> {
        let argv = take_list(&mut payload)?;
        let env = take_list(&mut payload)?;
        let cwd = take_list(&mut payload)?.pop().ok_or_else(|| bad("no folder"))?;
        Ok(Run { argv, env, cwd })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_survive_whatever_they_hold() {
        let run = Run {
            argv: vec![
                b"sh".to_vec(),
                vec![],
                b"a\nb".to_vec(),
                b"\"'$x\\".to_vec(),
                vec![0xff, 0xfe],
                b" ".to_vec(),
            ],
            env: vec![b"A=b=c".to_vec()],
            cwd: b"/".to_vec(),
        };
        assert_eq!(Run::decode(&run.encode()).unwrap(), run);
    }

    #[test]
    fn frames_survive_a_stream_that_gives_one_byte_at_a_time() {
        struct Drip<'a>(&'a [u8]);
        impl Read for Drip<'_> {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                let n = buf.len().min(1);
                self.0.read(&mut buf[..n])
            }
        }
        let frames: Vec<_> = Kind::ALL
            .into_iter()
            .zip(0..)
            .map(|(kind, id)| Frame::new(kind, id, vec![7; id as usize]))
            .collect();
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).unwrap();
        }
        let mut drip = Drip(&bytes);
        for frame in &frames {
            assert_eq!(Frame::read(&mut drip).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(Frame::read(&mut drip).unwrap(), None);
    }

    #[test]
    fn broken_streams_are_errors_and_reserve_nothing() {
        for bytes in [
            &[0, 0, 0, 0, 99, 0, 0, 0, 0][..],
            &[255, 255, 255, 255, 65, 0, 0, 0, 0],
            &[4, 0, 0, 0, 65, 0, 0, 0, 0, 1],
            &[4, 0],
        ] {
            assert!(Frame::read(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
        assert!(take_list(&mut &[255, 255, 255, 255, 0][..]).is_err());
        assert!(take_list(&mut &[1, 0, 0, 0, 9, 0, 0, 0, 1][..]).is_err());
    }
}
