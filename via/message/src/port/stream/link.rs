//! One link: a pipe, the frames that go, and the one that comes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::time::Instant;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Pipe;
use crate::port::{Buffer, Depth, Hello, Packet};
use crate::span::Span;

/// What stands before the bytes of a frame.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Frame {
    kind: U32,
    /// Bytes that follow.
    len: U32,
    /// Of a part: the memory that it goes to, and where there.
    exposure: U64,
    offset: U64,
    put: U64,
    /// Of a question for memory: how many bytes.
    wanted: U64,
}

const FRAME: usize = size_of::<Frame>();

mod kind {
    pub(super) const HELLO: u32 = 1;
    pub(super) const PACKET: u32 = 2;
    /// A part of a long piece.
    pub(super) const PUT: u32 = 3;
    /// A part has arrived.
    pub(super) const DONE: u32 = 4;
    /// Bytes of offered memory are asked for.
    pub(super) const GET: u32 = 5;
    /// They are here.
    pub(super) const ANSWER: u32 = 6;
}

/// How far a link is.
pub(super) enum State {
    /// We ask for it.
    Asking {
        address: String,
        hello: Hello,
        /// When to dial next; `None` while an answer is waited for.
        next: Option<Instant>,
        until: Instant,
    },
    /// The other end has dialled.
    Asked,
    /// It is there.
    Up,
    /// It is gone.
    Down,
}

/// A frame that goes.
struct Out {
    frame: Frame,
    body: Span,
    /// What comes behind the body, from where it lies.
    parts: Vec<Span>,
    sent: usize,
    /// The buffer that it lies in.
    buffer: Option<u32>,
}

/// A buffer for packets that go.
struct Slot {
    bytes: Box<[u8]>,
    posted: bool,
    kept: bool,
}

/// Where the bytes of the frame that comes go.
#[derive(Clone, Copy)]
enum Target {
    Packet(u32),
    Got(Span),
    Memory { span: Span, exposure: u64 },
    Nowhere,
}

/// A frame that has come.
pub(super) enum Read {
    Packet(Packet),
    Put,
    Done(u64),
    /// Bytes of offered memory are asked for.
    Get {
        exposure: u64,
        offset: u64,
        len: u64,
        get: u64,
    },
}

/// Bytes that are read at once where a frame has fewer.
const STAGE: usize = 16 << 10;

pub(super) struct Link {
    pub(super) state: State,
    pub(super) epoch: u32,
    pipe: Option<Box<dyn Pipe>>,
    out: VecDeque<Out>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    pub(super) puts: usize,
    /// Memory that is fetched, by the gets' numbers.
    gets: Vec<(u64, Span)>,
    /// Packets that take bytes from the program's memory and have not gone.
    pub(super) gathering: usize,
    packets: Vec<Box<[u8]>>,
    free_packets: Vec<u32>,
    hello: Hello,
    stage: Box<[u8]>,
    staged: std::ops::Range<usize>,
    head: [u8; FRAME],
    got_head: usize,
    target: Target,
    /// The target is the one of the frame that comes.
    placed: bool,
    got: usize,
    greeting: [u8; size_of::<Hello>()],
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Link {
    pub(super) fn new(pipe: Option<Box<dyn Pipe>>, state: State, depth: Depth, epoch: u32) -> Self {
        let bytes = || vec![0; depth.packet_bytes].into_boxed_slice();
        let count = depth.packets as u32;
        Self {
            state,
            epoch,
            pipe,
            out: VecDeque::new(),
            slots: (0..count).map(|_| Slot { bytes: bytes(), posted: false, kept: false }).collect(),
            free: (0..count).rev().collect(),
            puts: 0,
            gets: Vec::new(),
            gathering: 0,
            packets: (0..count).map(|_| bytes()).collect(),
            free_packets: (0..count).rev().collect(),
            hello: Hello::new_zeroed(),
            stage: vec![0; STAGE].into_boxed_slice(),
            staged: 0..0,
            head: [0; FRAME],
            got_head: 0,
            target: Target::Nowhere,
            placed: false,
            got: 0,
            greeting: [0; size_of::<Hello>()],
        }
    }

    /// A pipe was dialled: the first to be said is who we are.
    pub(super) fn connect(&mut self, pipe: Box<dyn Pipe>, hello: Hello) {
        self.pipe = Some(pipe);
        self.out.clear();
        self.staged = 0..0;
        self.got_head = 0;
        self.say(hello);
    }

    fn push(&mut self, kind: u32, body: Span, exposure: u64, offset: u64, put: u64, buffer: Option<u32>) {
        let frame = Frame {
            kind: kind.into(),
            len: (body.len as u32).into(),
            exposure: exposure.into(),
            offset: offset.into(),
            put: put.into(),
            wanted: 0.into(),
        };
        self.out.push_back(Out { frame, body, parts: Vec::new(), sent: 0, buffer });
    }

    /// Says who we are.
    pub(super) fn say(&mut self, hello: Hello) {
        self.hello = hello;
        self.push(kind::HELLO, Span::new(std::ptr::null_mut(), 0), 0, 0, 0, None);
        if let Some(out) = self.out.back_mut() {
            out.frame.len = (size_of::<Hello>() as u32).into();
        }
    }

    pub(super) fn buffer(&mut self) -> Option<Buffer> {
        if !matches!(self.state, State::Up) {
            return None;
        }
        let index = self.free.pop()?;
        Some(Buffer { index, span: Span::of_mut(&mut self.slots[index as usize].bytes) })
    }

    pub(super) fn release(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.kept = false;
            if !slot.posted {
                self.free.push(index);
            }
        }
    }

    pub(super) fn send(&mut self, buffer: Buffer, len: usize, keep: bool) {
        let Some(slot) = self.slots.get_mut(buffer.index as usize) else { return };
        slot.kept = keep;
        if matches!(self.state, State::Up) {
            slot.posted = true;
            self.push(kind::PACKET, buffer.span.first(len), 0, 0, 0, Some(buffer.index));
        }
    }

    /// Sends a packet with bytes behind it that are taken from where they lie.
    pub(super) fn send_gathered(&mut self, buffer: Buffer, len: usize, parts: &[Span]) {
        self.send(buffer, len, false);
        let bytes: usize = parts.iter().map(Span::len).sum();
        if matches!(self.state, State::Up)
            && let Some(out) = self.out.back_mut()
        {
            out.frame.len = ((len + bytes) as u32).into();
            out.parts = parts.to_vec();
            self.gathering += 1;
        }
    }

    /// Asks for bytes of memory that was offered.
    pub(super) fn get(&mut self, get: u64, memory: Span, exposure: u64, offset: u64) {
        self.puts += 1;
        self.gets.push((get, memory));
        self.push(kind::GET, Span::NONE, exposure, offset, get, None);
        if let Some(out) = self.out.back_mut() {
            out.frame.wanted = (memory.len as u64).into();
        }
    }

    /// Answers that, with offered memory.
    pub(super) fn answer(&mut self, get: u64, memory: Span, exposure: u64) {
        self.push(kind::ANSWER, memory, exposure, 0, get, None);
    }

    /// Whether offered memory is still to be sent.
    pub(super) fn is_answering(&self, exposure: u64) -> bool {
        let of =
            |out: &Out| u32::from(out.frame.kind) == kind::ANSWER && out.frame.exposure.get() == exposure;
        self.out.iter().any(of)
    }

    pub(super) fn put(&mut self, put: u64, memory: Span, exposure: u64, offset: u64) {
        self.puts += 1;
        self.push(kind::PUT, memory, exposure, offset, put, None);
    }

    /// Writes as much as there is room for.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        while let Some(out) = self.out.front_mut() {
            let head = &out.frame.as_bytes()[out.sent.min(FRAME)..];
            let body = if u32::from(out.frame.kind) == kind::HELLO {
                self.hello.as_bytes()
            } else {
                // SAFETY: a buffer that is posted, or memory of a put that is under way: nobody writes it before it is
                // over, or this link was left, which empties the queue.
                unsafe { out.body.bytes() }
            };
            let len = out.frame.len.get() as usize;
            let rest = &body[out.sent.saturating_sub(FRAME).min(body.len())..];
            let written = if out.parts.is_empty() {
                pipe.write(&[IoSlice::new(head), IoSlice::new(rest)])?
            } else {
                let mut slices = vec![IoSlice::new(head), IoSlice::new(rest)];
                let mut skip = out.sent.saturating_sub(FRAME + body.len());
                for part in &out.parts {
                    // SAFETY: memory of a packet that is not written yet: nobody writes it before, or this link was left.
                    slices.push(IoSlice::new(unsafe { part.skip(skip).bytes() }));
                    skip = skip.saturating_sub(part.len);
                }
                pipe.write(&slices)?
            };
            out.sent += written;
            if out.sent < FRAME + len {
                return Ok(());
            }
            self.gathering -= usize::from(!out.parts.is_empty());
            if let Some(index) = out.buffer {
                let slot = &mut self.slots[index as usize];
                slot.posted = false;
                if !slot.kept {
                    self.free.push(index);
                }
            }
            self.out.pop_front();
        }
        Ok(())
    }

    /// Reads up to `into.len()` bytes, by way of the stage where they are few.
    fn take(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.staged.is_empty() {
            let Some(pipe) = &mut self.pipe else { return Ok(0) };
            if into.len() >= STAGE {
                return pipe.read(into);
            }
            self.staged = 0..pipe.read(&mut self.stage)?;
        }
        let len = into.len().min(self.staged.len());
        into[..len].copy_from_slice(&self.stage[self.staged.start..][..len]);
        self.staged.start += len;
        Ok(len)
    }

    /// The header of the frame that comes, once all of it has.
    fn read_head(&mut self) -> io::Result<Option<Frame>> {
        while self.got_head < FRAME {
            let mut part = [0; FRAME];
            let got = self.take(&mut part[self.got_head..])?;
            if got == 0 {
                return Ok(None);
            }
            self.head[self.got_head..self.got_head + got]
                .copy_from_slice(&part[self.got_head..self.got_head + got]);
            self.got_head += got;
            if self.got_head == FRAME {
                self.got = 0;
                self.placed = false;
            }
        }
        Ok(Frame::read_from_bytes(&self.head).ok())
    }

    /// The other end's first words, once they are there.
    pub(super) fn read_hello(&mut self, session: &str) -> io::Result<Option<Hello>> {
        self.write()?;
        let Some(frame) = self.read_head()? else { return Ok(None) };
        let mut bytes = self.greeting;
        if u32::from(frame.kind) != kind::HELLO || frame.len.get() as usize != bytes.len() {
            return Err(broken("it does not say who it is"));
        }
        while self.got < bytes.len() {
            let got = self.take(&mut bytes[self.got..])?;
            if got == 0 {
                return Ok(None);
            }
            self.got += got;
            self.greeting = bytes;
        }
        self.got_head = 0;
        Hello::read(&bytes, session).map(Some).ok_or_else(|| broken("it is of another session"))
    }

    /// The next frame that has come whole.
    pub(super) fn read(
        &mut self,
        place: &impl Fn(u64, u64, usize) -> Option<Span>,
    ) -> io::Result<Option<Read>> {
        let Some(frame) = self.read_head()? else { return Ok(None) };
        let (kind, len) = (u32::from(frame.kind), frame.len.get() as usize);
        if !self.placed {
            self.placed = true;
            self.target = match kind {
                kind::PACKET => match self.free_packets.pop() {
                    Some(index) if len <= self.packets[index as usize].len() => Target::Packet(index),
                    _ => return Err(broken("more packets than there is room for, or longer ones")),
                },
                kind::PUT => match place(frame.exposure.get(), frame.offset.get(), len) {
                    Some(span) => Target::Memory { span, exposure: frame.exposure.get() },
                    None => Target::Nowhere,
                },
                kind::DONE | kind::GET if len == 0 => Target::Nowhere,
                kind::ANSWER => match self.gets.iter().find(|(get, _)| *get == frame.put.get()) {
                    Some((_, span)) if span.len == len => Target::Got(*span),
                    _ => return Err(broken("an answer that nobody has asked for")),
                },
                _ => return Err(broken("a frame of no known kind")),
            };
        }
        while self.got < len {
            let got = match self.target {
                Target::Packet(index) => {
                    let mut bytes = std::mem::take(&mut self.packets[index as usize]);
                    let got = self.take(&mut bytes[self.got..len]);
                    self.packets[index as usize] = bytes;
                    got?
                }
                Target::Memory { span, .. } | Target::Got(span) => {
                    // SAFETY: exposed memory, which nobody else touches; `conceal` turns the target away from it.
                    let bytes = unsafe { span.skip(self.got).bytes_mut() };
                    self.take(bytes)?
                }
                Target::Nowhere => {
                    let mut bytes = [0; 4096];
                    let most = (len - self.got).min(bytes.len());
                    self.take(&mut bytes[..most])?
                }
            };
            if got == 0 {
                return Ok(None);
            }
            self.got += got;
        }
        self.got_head = 0;
        Ok(Some(match kind {
            kind::PACKET => {
                let Target::Packet(index) = self.target else {
                    return Err(broken("a packet without a place"));
                };
                let span = Span::of_mut(&mut self.packets[index as usize]).first(len);
                Read::Packet(Packet { index, epoch: self.epoch, span })
            }
            kind::PUT => {
                self.push(kind::DONE, Span::new(std::ptr::null_mut(), 0), 0, 0, frame.put.get(), None);
                Read::Put
            }
            kind::GET => {
                let (exposure, offset) = (frame.exposure.get(), frame.offset.get());
                Read::Get { exposure, offset, len: frame.wanted.get(), get: frame.put.get() }
            }
            _ => {
                self.gets.retain(|(get, _)| *get != frame.put.get());
                self.puts = self.puts.saturating_sub(1);
                Read::Done(frame.put.get())
            }
        }))
    }

    /// Memory is not exposed any more: what still comes for it goes nowhere.
    pub(super) fn forget(&mut self, gone: u64) {
        if matches!(self.target, Target::Memory { exposure, .. } if exposure == gone) {
            self.target = Target::Nowhere;
        }
    }

    pub(super) fn give_back(&mut self, index: u32) {
        self.free_packets.push(index);
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.pipe.is_none() || (self.out.is_empty() && self.puts == 0)
    }

    pub(super) fn is_written(&self) -> bool {
        self.out.is_empty()
    }

    pub(super) fn fd(&self) -> Option<RawFd> {
        self.pipe.as_ref()?.fd()
    }

    /// Leaves the connection. The buffers stay.
    pub(super) fn leave(&mut self) {
        self.state = State::Down;
        self.out.clear();
        self.gets.clear();
        // Packets that were to take bytes from the program's memory, and have not, stay counted: they did not go.
        self.puts = 0;
        for slot in &mut self.slots {
            slot.posted = false;
        }
        self.target = Target::Nowhere;
        self.pipe = None;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            pipe.close();
        }
    }
}
