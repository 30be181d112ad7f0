//! The end that the file goes to.

use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use uvia::{Listener, MemoryRegion, Nic, Request};
use uvia_tools::Failure;

use crate::DISCRIMINATOR;
use crate::line::{CHUNK, CHUNKS, Line, News};
use crate::progress::Progress;
use crate::room::{Part, Room};
use crate::sender::Copied;
use crate::wire::{Digest, Message};

/// How long a sender may take for one step.
const PATIENCE: Duration = Duration::from_secs(600);
/// A wait without end, in parts.
const SLICE: Duration = Duration::from_secs(3600);

/// How files are received.
#[derive(Debug, Clone)]
pub struct ReceiverOptions {
    /// Largest file, bytes.
    pub max_size: u64,
    /// End after one copy.
    pub once: bool,
    /// Print copies as JSON.
    pub json: bool,
}

/// Receives files into a folder.
pub struct Receiver {
    nic: Nic,
    listener: Listener,
    room: Room,
    options: ReceiverOptions,
}

impl Receiver {
    /// Waits for senders.
    ///
    /// # Errors
    /// Another receiver waits on this NIC.
    pub fn new(nic: &Nic, room: Room, options: ReceiverOptions) -> Result<Self, Failure> {
        Ok(Self { nic: nic.clone(), listener: nic.listen(DISCRIMINATOR, 16)?, room, options })
    }

    /// Receives until ended, or one file.
    ///
    /// # Errors
    /// The adapter failed; with `once`, whatever the copy failed of.
    pub fn run(&self) -> Result<(), Failure> {
        eprintln!("uvia-cp: {} receives into {}", self.nic.name(), self.room.path().display());
        loop {
            let Some(request) = self.listener.wait(SLICE)? else { continue };
            let outcome = self.receive(request).and_then(|copied| copied.print(self.options.json));
            match outcome {
                outcome if self.options.once => return outcome,
                Err(Failure::Failed(why)) => eprintln!("uvia-cp: {why}"),
                Err(other) => return Err(other),
                Ok(()) => {}
            }
        }
    }

    /// Receives one file.
    ///
    /// # Errors
    /// What went wrong, here or there. Nothing is left of the file, but what a sender wants to resume from.
    pub fn receive(&self, request: Request) -> Result<Copied, Failure> {
        let from = request.peer().address.clone();
        let mut line = Line::new(&self.nic)?;
        request.accept(&line.vi, &[]).map_err(|(_, refused)| refused)?;
        let ring = line.ring(true)?;
        let outcome = Receiving { line: &mut line, ring, receiver: self, start: Instant::now() }.run();
        // A last message is sent before the connection ends with this function.
        match &outcome {
            Ok(_) => line.drain(Duration::from_secs(5)),
            Err(Failure::Failed(why)) => {
                if line.say(&Message::Failed(why.clone())).is_ok() {
                    line.drain(Duration::from_secs(5));
                }
            }
            Err(_) => {}
        }
        outcome.map_err(|failure| match failure {
            Failure::Failed(why) => Failure::Failed(format!("from {}: {why}", from.host)),
            other => other,
        })
    }
}

struct Receiving<'a> {
    line: &'a mut Line,
    ring: MemoryRegion,
    receiver: &'a Receiver,
    start: Instant,
}

impl Receiving<'_> {
    fn run(mut self) -> Result<Copied, Failure> {
        let Message::Offer { force, resume, mode, size, path } = self.message()? else {
            return Err(protocol());
        };
        let name = String::from_utf8_lossy(&path).into_owned();
        if size > self.receiver.options.max_size {
            let limit = self.receiver.options.max_size;
            return Err(Failure::failed(format!("{name} has {size} bytes, over the limit of {limit}")));
        }
        let part = self.receiver.room.begin(&path, force, resume)?;
        let there = part.file.metadata()?.len().min(size);
        let mut hash = Sha256::new();
        self.hash_prefix(&part, there, &mut hash)?;
        let remote = self.ring.remote(0)?;
        self.line.say(&Message::Ready {
            offset: there,
            digest: hash.clone().finalize().into(),
            address: remote.address,
            handle: remote.handle.0,
            chunk: CHUNK as u32,
            chunks: CHUNKS as u32,
        })?;
        let resumed = match self.message()? {
            Message::Start { offset } if offset == there => offset,
            Message::Start { offset: 0 } => {
                hash = Sha256::new();
                0
            }
            _ => return Err(protocol()),
        };
        part.file.set_len(resumed).map_err(|e| disk(&name, &e))?;
        self.stream(&part, &name, resumed, size, &mut hash)?;
        let Message::Finish { digest } = self.message()? else { return Err(protocol()) };
        if digest != Digest::from(hash.finalize()) {
            // What arrived is wrong, and no good to resume from.
            part.discard();
            return Err(Failure::failed(format!(
                "{name} did not arrive as it was sent (its SHA-256 differs)"
            )));
        }
        part.file.set_permissions(PermissionsExt::from_mode(mode & 0o777)).map_err(|e| disk(&name, &e))?;
        self.synchronise(&part).and_then(|()| part.publish()).map_err(|e| disk(&name, &e))?;
        self.line.say(&Message::Done)?;
        Ok(Copied { name, bytes: size, resumed, digest, time: self.start.elapsed() })
    }

    fn hash_prefix(&mut self, part: &Part, len: u64, hash: &mut Sha256) -> Result<(), Failure> {
        let mut bytes = vec![0; CHUNK];
        let mut at = 0;
        while at < len {
            let piece = &mut bytes[..(len - at).min(CHUNK as u64) as usize];
            part.file.read_exact_at(piece, at)?;
            hash.update(&*piece);
            at += piece.len() as u64;
            self.line.tend()?;
        }
        Ok(())
    }

    /// Puts chunks away as they come, and grants their buffers again.
    fn stream(
        &mut self,
        part: &Part,
        name: &str,
        mut at: u64,
        size: u64,
        hash: &mut Sha256,
    ) -> Result<(), Failure> {
        let mut progress = Progress::new(name, size);
        let mut bytes = vec![0; CHUNK];
        let mut next = 0;
        while at < size {
            let len = match self.line.next(PATIENCE)? {
                Some(News::Chunk(len)) => len as usize,
                Some(News::Message(Message::Failed(why))) => return Err(there(&why)),
                Some(_) => return Err(protocol()),
                None => return Err(Failure::failed("the sender does not go on")),
            };
            if len == 0 || len > CHUNK || len as u64 > size - at {
                return Err(protocol());
            }
            let piece = &mut bytes[..len];
            self.ring.read(next * CHUNK, piece)?;
            part.file.write_all_at(piece, at).map_err(|e| disk(name, &e))?;
            hash.update(&*piece);
            at += len as u64;
            next = (next + 1) % CHUNKS;
            // The last chunks need no grant: nobody would wait for it.
            if at < size {
                self.line.grant(1)?;
            }
            progress.at(at);
        }
        Ok(())
    }

    /// Puts the file on disk, while the connection is kept alive: a disk may take longer than a peer is waited for.
    fn synchronise(&self, part: &Part) -> io::Result<()> {
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| part.file.sync_all());
            while !syncing.is_finished() {
                // A failure of the adapter shows at the next message.
                let _ = self.line.tend();
                std::thread::sleep(Duration::from_millis(1));
            }
            syncing.join().unwrap_or_else(|_| Err(io::Error::other("synchronising it failed")))
        })
    }

    fn message(&mut self) -> Result<Message, Failure> {
        match self.line.next(PATIENCE)? {
            Some(News::Message(Message::Failed(why))) => Err(there(&why)),
            Some(News::Message(message)) => Ok(message),
            Some(_) => Err(protocol()),
            None => Err(Failure::failed("the sender does not go on")),
        }
    }
}

fn protocol() -> Failure {
    Failure::failed("the sender does not keep to the protocol")
}

fn there(why: &str) -> Failure {
    Failure::failed(format!("the sender says: {why}"))
}

fn disk(name: &str, error: &io::Error) -> Failure {
    Failure::failed(format!("writing {name}: {error}"))
}
