//! Where a command's output goes.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use crate::output::Prefixer;

/// Which of a command's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Takes a command's output.
pub trait Sink: Send {
    /// Takes some bytes; an error means that nobody wants any more of this stream.
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()>;

    /// The command has ended.
    fn finish(&mut self) {}
}

/// Keeps output in memory.
#[derive(Debug, Clone, Default)]
pub struct Collect(Arc<Mutex<[Vec<u8>; 2]>>);

impl Collect {
    /// What a stream carried so far.
    pub fn so_far(&self, stream: Stream) -> Vec<u8> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[stream as usize].clone()
    }
}

impl Sink for Collect {
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let mut kept = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        kept[stream as usize].extend_from_slice(bytes);
        Ok(())
    }
}

/// Passes output on to our own, byte for byte.
#[derive(Debug, Clone, Copy, Default)]
pub struct PassThrough;

impl Sink for PassThrough {
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        match stream {
            Stream::Out => put(io::stdout().lock(), bytes),
            Stream::Err => put(io::stderr().lock(), bytes),
        }
    }
}

/// Passes output on to our own, each line with a prefix.
#[derive(Debug)]
pub struct Prefixed([Prefixer; 2]);

impl Prefixed {
    /// A sink that puts `prefix` before each line.
    pub fn new(prefix: &str) -> Self {
        Prefixed([Prefixer::new(prefix), Prefixer::new(prefix)])
    }
}

impl Sink for Prefixed {
    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let lines = self.0[stream as usize].push(bytes);
        PassThrough.write(stream, &lines)
    }

    fn finish(&mut self) {
        for stream in [Stream::Out, Stream::Err] {
            let rest = self.0[stream as usize].finish();
            // The command has ended: there is nobody left to tell that nobody reads.
            let _ = PassThrough.write(stream, &rest);
        }
    }
}

fn put(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}
