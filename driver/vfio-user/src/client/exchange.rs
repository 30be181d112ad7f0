//! Requests and their replies.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::connection::Sender;
use crate::framing::Frame;
use crate::wire::{HEADER, Header, command, flags};
use crate::{Error, Result};

/// What is shared between those who ask and the thread that receives.
pub struct Exchange {
    pub peer: String,
    /// Held while a message is sent, so that messages do not mix.
    sender: Mutex<Sender>,
    /// The same, to end the connection without waiting for who is sending.
    closer: Sender,
    state: Mutex<State>,
    /// Whether the state says why no more replies will come; for those who only want to know whether.
    over: AtomicBool,
    changed: Condvar,
    pub patience: Duration,
}

#[derive(Default)]
struct State {
    next_id: u16,
    waiting: HashMap<u16, Waiting>,
    /// Why no more replies will come.
    closed: Option<String>,
}

struct Waiting {
    command: u16,
    reply: Option<Frame>,
}

impl Exchange {
    pub fn new(peer: String, sender: Sender, patience: Duration) -> Self {
        let closer = sender.clone();
        let sender = Mutex::new(sender);
        Self {
            peer,
            sender,
            closer,
            state: Mutex::default(),
            over: AtomicBool::new(false),
            changed: Condvar::new(),
            patience,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one insertion or removal; a panic elsewhere leaves nothing half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the connection is over.
    pub fn closed(&self) -> Option<String> {
        self.state().closed.clone()
    }

    /// Whether the connection is over.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends the connection; whoever waits learns why. The first reason stays.
    pub fn close(&self, why: &str) {
        self.state().closed.get_or_insert_with(|| why.to_owned());
        self.over.store(true, Ordering::Release);
        self.changed.notify_all();
        self.closer.shut_down();
    }

    /// Asks, and waits for the reply, whose payload has at least `at_least` bytes.
    pub fn ask(
        &self,
        command: u16,
        body: &[&[u8]; 2],
        fds: &[BorrowedFd<'_>],
        at_least: usize,
    ) -> Result<Frame> {
        let deadline = Instant::now() + self.patience;
        let id = {
            let mut state = self.state();
            self.still_open(&state)?;
            let id = state.free_id().ok_or_else(|| self.protocol("65536 requests are under way"))?;
            state.waiting.insert(id, Waiting { command, reply: None });
            id
        };
        let header = Header::command(id, command, body[0].len() + body[1].len());
        let reply = self.send(&header, body, fds, deadline).and_then(|()| self.wait(id, command, deadline));
        self.state().waiting.remove(&id);
        let reply = reply?;
        if reply.header.flags & flags::ERROR != 0 {
            let errno = match i32::try_from(reply.header.error) {
                Ok(errno) if errno > 0 => errno,
                _ => rustix::io::Errno::IO.raw_os_error(),
            };
            return Err(Error::Refused {
                peer: self.peer.clone(),
                what: command::name(command),
                source: io::Error::from_raw_os_error(errno),
            });
        }
        if reply.defect.is_some() || reply.body.len() < at_least {
            let why = format!(
                "its reply to {} has {} bytes",
                command::name(command),
                reply.header.size as usize - HEADER
            );
            self.close(&why);
            return Err(self.protocol(&why));
        }
        Ok(reply)
    }

    /// Tells, and waits for nothing.
    pub fn tell(&self, command: u16, body: &[&[u8]; 2]) -> Result<()> {
        let id = {
            let mut state = self.state();
            self.still_open(&state)?;
            state.free_id().unwrap_or_default()
        };
        let mut header = Header::command(id, command, body[0].len() + body[1].len());
        header.flags |= flags::NO_REPLY;
        self.send(&header, body, &[], Instant::now() + self.patience)
    }

    /// Sends a message of any kind.
    pub fn send(
        &self,
        header: &Header,
        body: &[&[u8]; 2],
        fds: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<()> {
        let sent = {
            let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
            sender.send(header, body, fds, deadline)
        };
        sent.map_err(|e| {
            // Part of a message may be on its way.
            match e.kind() {
                io::ErrorKind::TimedOut => {
                    self.close("it takes no more messages");
                    self.timeout(header.command)
                }
                _ => {
                    self.close(&format!("sending to it failed: {e}"));
                    self.is_closed()
                }
            }
        })
    }

    fn wait(&self, id: u16, command: u16, deadline: Instant) -> Result<Frame> {
        let mut state = self.state();
        loop {
            if let Some(reply) = state.waiting.get_mut(&id).and_then(|waiting| waiting.reply.take()) {
                return Ok(reply);
            }
            self.still_open(&state)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                self.close(&format!("it did not answer {} in time", command::name(command)));
                return Err(self.timeout(command));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Hands a reply to who waits for it.
    ///
    /// # Errors
    /// Nobody does; in words.
    pub fn deliver(&self, frame: Frame) -> std::result::Result<(), String> {
        let header = frame.header;
        match self.state().waiting.get_mut(&header.id) {
            Some(waiting)
                if header.is_reply() && waiting.command == header.command && waiting.reply.is_none() =>
            {
                waiting.reply = Some(frame);
            }
            _ => {
                return Err(format!(
                    "it sent a reply (id {}, {}, flags {:#x}) that nobody waits for",
                    header.id,
                    command::name(header.command),
                    header.flags
                ));
            }
        }
        self.changed.notify_all();
        Ok(())
    }

    fn still_open(&self, state: &State) -> Result<()> {
        match &state.closed {
            None => Ok(()),
            Some(why) => Err(Error::Closed { peer: self.peer.clone(), why: why.clone() }),
        }
    }

    fn is_closed(&self) -> Error {
        let why = self.closed().unwrap_or_default();
        Error::Closed { peer: self.peer.clone(), why }
    }

    fn timeout(&self, command: u16) -> Error {
        let millis = self.patience.as_millis() as u64;
        Error::Timeout { peer: self.peer.clone(), what: command::name(command), millis }
    }

    /// An [`Error::Protocol`].
    pub fn protocol(&self, what: &str) -> Error {
        Error::Protocol { peer: self.peer.clone(), what: what.to_owned() }
    }
}

impl State {
    /// An id that no request has which is under way.
    fn free_id(&mut self) -> Option<u16> {
        for _ in 0..=u16::MAX {
            self.next_id = self.next_id.wrapping_add(1);
            if !self.waiting.contains_key(&self.next_id) {
                return Some(self.next_id);
            }
        }
        None
    }
}
