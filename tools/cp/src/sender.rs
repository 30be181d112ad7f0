//! The end that has the file.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use sha2::{Digest as _, Sha256};
use uvia::{MacAddress, MemoryHandle, NetAddress, Nic, RemoteMemory};
use uvia_tools::{Failure, print_json, print_line};

use crate::DISCRIMINATOR;
use crate::line::{CHUNK, CHUNKS, Line, News};
use crate::progress::Progress;
use crate::wire::{Digest, Message};

/// How long the receiver may take for one step, such as putting the file on its disk.
const PATIENCE: Duration = Duration::from_secs(600);

/// How a copy is sent.
#[derive(Debug, Clone)]
pub struct SenderOptions {
    /// Replace a file that is there.
    pub force: bool,
    /// Go on where an earlier copy was cut off, and leave what is needed for that.
    pub resume: bool,
    /// For the connection.
    pub timeout: Duration,
}

/// A file to send.
pub struct Source {
    file: File,
    path: PathBuf,
    about: Metadata,
}

/// A copy that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Copied {
    /// What it was called.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Bytes that were there from an earlier copy.
    pub resumed: u64,
    /// Of the file.
    pub digest: Digest,
    /// How long it took.
    pub time: Duration,
}

impl Source {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, or is no regular file.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let fail = |what: &dyn std::fmt::Display| Failure::failed(format!("{}: {what}", path.display()));
        let file = File::open(path).map_err(|e| fail(&e))?;
        let about = file.metadata().map_err(|e| fail(&e))?;
        if !about.is_file() {
            return Err(fail(&"not a regular file"));
        }
        Ok(Self { file, path: path.to_owned(), about })
    }

    /// Whether it is as it was opened.
    fn check(&self) -> Result<(), Failure> {
        let now =
            self.file.metadata().map_err(|e| Failure::failed(format!("{}: {e}", self.path.display())))?;
        let same = |a: &Metadata, b: &Metadata| {
            (a.len(), a.mtime(), a.mtime_nsec()) == (b.len(), b.mtime(), b.mtime_nsec())
        };
        if same(&now, &self.about) { Ok(()) } else { Err(self.changed()) }
    }

    fn changed(&self) -> Failure {
        Failure::failed(format!("{} was changed while it was copied; copy it again", self.path.display()))
    }

    fn read(&self, into: &mut [u8], at: u64) -> Result<(), Failure> {
        self.file.read_exact_at(into, at).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => self.changed(),
            _ => Failure::failed(format!("{}: {e}", self.path.display())),
        })
    }
}

/// Sends a file to `path` at `host`.
///
/// # Errors
/// What went wrong, here or there.
pub fn send(
    nic: &Nic,
    host: MacAddress,
    path: &str,
    source: Source,
    options: &SenderOptions,
) -> Result<Copied, Failure> {
    let start = Instant::now();
    let mut line = Line::new(nic)?;
    line.vi.connect(&NetAddress::new(host, DISCRIMINATOR)?, options.timeout, &[])?;
    let outcome = Sending { line: &mut line, source, path }.run(options, start);
    if let Err(Failure::Failed(why)) = &outcome {
        // The receiver may as well be told, if there is still a way to.
        if line.say(&Message::Failed(why.clone())).is_ok() {
            line.drain(Duration::from_secs(1));
        }
    }
    outcome
}

struct Sending<'a> {
    line: &'a mut Line,
    source: Source,
    path: &'a str,
}

/// The receiver's ring.
struct Target {
    address: u64,
    handle: MemoryHandle,
    chunk: usize,
    chunks: usize,
}

impl Sending<'_> {
    fn run(mut self, options: &SenderOptions, start: Instant) -> Result<Copied, Failure> {
        let size = self.source.about.len();
        self.line.say(&Message::Offer {
            force: options.force,
            resume: options.resume,
            mode: self.source.about.permissions().mode() & 0o777,
            size,
            path: self.path.as_bytes().to_vec(),
        })?;
        let (target, there, digest) = match self.answer()? {
            Message::Ready { offset, digest, address, handle, chunk, chunks } => {
                let (chunk, chunks) = (chunk as usize, chunks as usize);
                if chunk == 0 || chunk > CHUNK || chunks == 0 || chunks > CHUNKS || offset > size {
                    return Err(protocol());
                }
                (Target { address, handle: MemoryHandle(handle), chunk, chunks }, offset, digest)
            }
            _ => return Err(protocol()),
        };
        // What the receiver has may be of another file, or of an older one.
        let mut hash = Sha256::new();
        let resumed = if there > 0 && self.hash_prefix(there, digest, &mut hash)? { there } else { 0 };
        if resumed == 0 {
            hash = Sha256::new();
        }
        self.line.say(&Message::Start { offset: resumed })?;
        self.stream(&target, resumed, &mut hash)?;
        self.source.check()?;
        let digest: Digest = hash.finalize().into();
        self.line.say(&Message::Finish { digest })?;
        match self.answer()? {
            Message::Done => {}
            _ => return Err(protocol()),
        }
        let name = self.path.to_owned();
        Ok(Copied { name, bytes: size, resumed, digest, time: start.elapsed() })
    }

    /// Whether the file begins with bytes of that digest.
    fn hash_prefix(&mut self, len: u64, digest: Digest, hash: &mut Sha256) -> Result<bool, Failure> {
        let mut bytes = vec![0; CHUNK];
        let mut at = 0;
        while at < len {
            let part = &mut bytes[..(len - at).min(CHUNK as u64) as usize];
            self.source.read(part, at)?;
            hash.update(&*part);
            at += part.len() as u64;
            self.line.tend()?;
        }
        Ok(<[u8; 32]>::from(hash.clone().finalize()) == digest)
    }

    /// Writes all from `at` on into the receiver's ring, as it grants buffers.
    fn stream(&mut self, target: &Target, mut at: u64, hash: &mut Sha256) -> Result<(), Failure> {
        let size = self.source.about.len();
        let ring = self.line.ring(false)?;
        let mut progress = Progress::new(self.path, size);
        let mut bytes = vec![0; target.chunk];
        // Buffers of ours that are free; the receiver's that are; and the next one there.
        let (mut ours, mut theirs, mut next) = ((0..CHUNKS).collect::<Vec<_>>(), target.chunks, 0);
        let mut under_way = 0;
        while at < size || under_way > 0 {
            let free = if at < size && theirs > 0 { ours.pop() } else { None };
            if let Some(buffer) = free {
                let part = &mut bytes[..(size - at).min(target.chunk as u64) as usize];
                self.source.read(part, at)?;
                hash.update(&*part);
                ring.write(buffer * CHUNK, part)?;
                let to = target
                    .address
                    .checked_add((next * target.chunk) as u64)
                    .map(|address| RemoteMemory { address, handle: target.handle })
                    .ok_or_else(protocol)?;
                self.line.write(buffer, ring.segment(buffer * CHUNK..buffer * CHUNK + part.len())?, to)?;
                at += part.len() as u64;
                theirs -= 1;
                next = (next + 1) % target.chunks;
                under_way += 1;
                progress.at(at);
            }
            // While there is more to write, only what has come already is looked at.
            let wait = if free.is_some() { Duration::ZERO } else { PATIENCE };
            match self.line.next(wait)? {
                Some(News::Written(buffer)) => {
                    ours.push(buffer);
                    under_way -= 1;
                }
                Some(News::Granted(buffers)) => {
                    theirs += buffers as usize;
                    if theirs > target.chunks {
                        return Err(protocol());
                    }
                }
                Some(News::Message(Message::Failed(why))) => return Err(there(&why)),
                Some(_) => return Err(protocol()),
                None if free.is_some() => {}
                None => return Err(Failure::failed("the receiver does not go on")),
            }
        }
        Ok(())
    }

    /// The next message; grants that come late are no news.
    fn answer(&mut self) -> Result<Message, Failure> {
        loop {
            match self.line.next(PATIENCE)? {
                Some(News::Message(Message::Failed(why))) => return Err(there(&why)),
                Some(News::Message(message)) => return Ok(message),
                Some(News::Granted(_)) => {}
                Some(_) => return Err(protocol()),
                None => return Err(Failure::failed("the receiver does not answer")),
            }
        }
    }
}

fn protocol() -> Failure {
    Failure::failed("the receiver does not keep to the protocol")
}

fn there(why: &str) -> Failure {
    Failure::failed(format!("the receiver says: {why}"))
}

/// A digest as people write it.
pub fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Copied {
    /// Prints it on standard output.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print(&self, as_json: bool) -> Result<(), Failure> {
        let seconds = self.time.as_secs_f64().max(1e-9);
        let rate = (self.bytes - self.resumed) as f64 / seconds / 1e6;
        let digest = hex(&self.digest);
        if as_json {
            return print_json(&json!({
                "file": self.name, "bytes": self.bytes, "resumed": self.resumed, "seconds": seconds,
                "mb_per_s": rate, "sha256": digest,
            }));
        }
        let resumed =
            if self.resumed > 0 { format!(" ({} were there)", self.resumed) } else { String::new() };
        let (name, bytes) = (&self.name, self.bytes);
        print_line(format!(
            "{name}: {bytes} bytes{resumed} in {seconds:.2} s, {rate:.1} MB/s, SHA-256 {digest}"
        ))
    }
}
