//! Messages in the asynchronous form, for tasks of whatever runtime.
//!
//! A future can be forgotten, and then nobody takes its memory back from the NIC: so messages of this form own their
//! buffers until they are over, and give them back then.

use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::raw::{Packing, Unpacking};
use crate::shared::Shared;
use crate::span::Span;
use crate::{Channel, ReceiveMode, Result, SendMode, Source};

/// A message that a task packs ([`Channel::begin_in_task`]). Dropped before its end it is given up, for which the thread
/// that drops it waits.
pub struct OutgoingTask {
    raw: Packing<Arc<Shared>>,
    kept: Vec<Box<[u8]>>,
}

/// A message that a task unpacks ([`Channel::receive_in_task`]). Dropped before its end what is left of it is thrown
/// away, for which the thread that drops it waits.
pub struct IncomingTask {
    raw: Unpacking<Arc<Shared>>,
    kept: Vec<Box<[u8]>>,
}

impl Channel {
    /// As [`Channel::begin`], in a task: nothing blocks its thread. A thread of the session's is started, which wakes
    /// tasks. [`SessionOptions::patience`](crate::SessionOptions::patience) does not hold for tasks: runtimes have
    /// time-outs.
    ///
    /// # Errors
    /// As [`Channel::send`]; the system gives no thread.
    pub async fn begin_in_task(&self, rank: usize) -> Result<OutgoingTask> {
        self.check(rank)?;
        let mut raw = Packing::new(self.shared().clone());
        raw.begin_in_task(self.number(), rank).await?;
        Ok(OutgoingTask { raw, kept: Vec::new() })
    }

    /// As [`Channel::begin_receive`], in a task. Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`Channel::receive`]; the system gives no thread.
    pub async fn receive_in_task(&self, from: impl Into<Source>) -> Result<IncomingTask> {
        let from = self.source(from.into())?;
        let mut raw = Unpacking::new(self.shared().clone());
        raw.begin_in_task(self.number(), from).await?;
        Ok(IncomingTask { raw, kept: Vec::new() })
    }
}

impl OutgoingTask {
    /// The rank that it goes to.
    pub fn rank(&self) -> usize {
        self.raw.rank()
    }

    /// Appends a value that the receiver gets at once ([`IncomingTask::get`]), as [`SendMode::Safer`].
    ///
    /// # Errors
    /// As [`Channel::send`].
    pub async fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.append(value.as_bytes().into(), SendMode::Safer, ReceiveMode::Express).await
    }

    /// Appends bytes, with whatever modes.
    ///
    /// # Errors
    /// As [`Channel::send`].
    pub async fn append(&mut self, bytes: Box<[u8]>, send: SendMode, receive: ReceiveMode) -> Result<()> {
        let span = Span::of(&bytes);
        self.kept.push(bytes);
        // SAFETY: the bytes stay where they are, in `kept`, until the message was ended or dropped: it is dropped before
        // them, and waits. A message that is forgotten keeps them for ever.
        unsafe { self.raw.pack_in_task(span, send, receive).await }
    }

    /// Ends the message: it will arrive. Answers what was appended, in order.
    ///
    /// # Errors
    /// As [`Channel::send`].
    pub async fn end(mut self) -> Result<Vec<Box<[u8]>>> {
        self.raw.end_in_task().await?;
        Ok(std::mem::take(&mut self.kept))
    }
}

impl IncomingTask {
    /// The rank that it comes from.
    pub fn rank(&self) -> usize {
        self.raw.rank()
    }

    /// Takes a value that was packed by [`OutgoingTask::put`], or [`Outgoing::put`](crate::Outgoing::put).
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub async fn get<T: FromBytes + IntoBytes>(&mut self) -> Result<T> {
        let bytes = self.express(size_of::<T>(), SendMode::Safer).await?;
        // As many as were asked for.
        Ok(T::read_from_bytes(&bytes).unwrap_or_else(|_| T::new_zeroed()))
    }

    /// Takes `len` bytes, once they are there ([`ReceiveMode::Express`]).
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub async fn express(&mut self, len: usize, send: SendMode) -> Result<Box<[u8]>> {
        let span = self.keep(vec![0; len].into());
        // SAFETY: as for `OutgoingTask::append`.
        unsafe { self.raw.unpack_in_task(span, send, ReceiveMode::Express).await? };
        Ok(self.kept.pop().unwrap_or_default())
    }

    /// Takes bytes that fill `room` by the message's end ([`ReceiveMode::Cheaper`]).
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub async fn cheaper(&mut self, room: Box<[u8]>, send: SendMode) -> Result<()> {
        let span = self.keep(room);
        // SAFETY: as for `OutgoingTask::append`.
        unsafe { self.raw.unpack_in_task(span, send, ReceiveMode::Cheaper).await }
    }

    fn keep(&mut self, room: Box<[u8]>) -> Span {
        self.kept.push(room);
        self.kept.last_mut().map_or(Span::NONE, |room| Span::of_mut(room))
    }

    /// Ends the message. Answers the rooms of [`IncomingTask::cheaper`], filled, in order.
    ///
    /// # Errors
    /// As [`Channel::receive`]; not all of it was unpacked.
    pub async fn end(mut self) -> Result<Vec<Box<[u8]>>> {
        self.raw.end_in_task().await?;
        Ok(std::mem::take(&mut self.kept))
    }
}
