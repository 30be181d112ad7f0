//! Channels, and messages on them in the forms that the compiler checks.

use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::core::Whole;
use crate::raw::{Packing, RawIncoming, RawOutgoing, Unpacking};
use crate::shared::Shared;
use crate::span::Span;
use crate::{Error, ReceiveMode, Result, SendMode};

/// Whom a message is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Whoever has begun to send first.
    Any,
    /// That rank.
    Rank(usize),
}

impl From<usize> for Source {
    fn from(rank: usize) -> Self {
        Self::Rank(rank)
    }
}

/// A stream of messages of its own between each two ranks of a session.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
    number: usize,
}

impl Channel {
    pub(crate) fn new(shared: Arc<Shared>, number: usize) -> Self {
        Self { shared, number }
    }

    /// Its number.
    pub fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[inline]
    pub(crate) fn check(&self, rank: usize) -> Result<()> {
        if rank >= self.shared.size || rank == self.shared.rank { self.wrong(rank) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn wrong(&self, rank: usize) -> Result<()> {
        Err(Error::Rank { rank, last: self.shared.size - 1, own: self.shared.rank })
    }

    /// Connects to a rank ahead of the first message, and waits for it.
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::Unreachable`], [`Error::Timeout`].
    pub fn connect(&self, rank: usize) -> Result<()> {
        self.check(rank)?;
        self.shared.wait("a connection", |core| {
            let id = core.id(self.number, rank);
            Ok(core.connect(id)?.then_some(()))
        })
    }

    /// Sends a message of what `pack` packs. What is packed to be read later, or when it is cheapest, is borrowed until
    /// this returns.
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::Busy`], [`Error::Unreachable`], [`Error::Refused`], or what `pack` fails with: the message
    /// is given up then, and its receiver hears of it.
    #[inline]
    pub fn send<'env, T, E: From<Error>>(
        &'env self,
        rank: usize,
        pack: impl FnOnce(&mut Outgoing<'env>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        // Not a guard that the program holds: one that is forgotten would leave its memory to the NIC for ever.
        self.check(rank)?;
        let mut message = Outgoing { raw: Packing::new(&*self.shared), _env: PhantomData };
        message.raw.begin_lazily(self.number, rank);
        let answer = pack(&mut message)?;
        match message.raw.end_at_once() {
            // There is nothing to drop, and nobody need look.
            Whole::Done => std::mem::forget(message),
            otherwise => message.raw.end_after(otherwise)?,
        }
        Ok(answer)
    }

    /// Receives the next message from a rank, or from any ([`Source::Any`]), into what `unpack` unpacks, in the order and
    /// with the lengths and modes in which it was packed. A message from a given rank is waited for when a piece of it has
    /// to be there, or at its end; one from any has begun to come when `unpack` is called.
    ///
    /// # Errors
    /// [`Error::Rank`], [`Error::Busy`], [`Error::Unreachable`], [`Error::Abandoned`], [`Error::Mismatch`], or what
    /// `unpack` fails with: the rest of the message is thrown away then.
    #[inline]
    pub fn receive<'env, T, E: From<Error>>(
        &'env self,
        from: impl Into<Source>,
        unpack: impl FnOnce(&mut Incoming<'env>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let from = self.source(from.into())?;
        let mut message = Incoming { raw: Unpacking::new(&*self.shared), _env: PhantomData };
        match from {
            Some(rank) => message.raw.begin_lazily(self.number, rank),
            None => message.raw.begin(self.number, None)?,
        }
        let answer = unpack(&mut message)?;
        match message.raw.end_at_once() {
            // There is nothing to drop, and nobody need look.
            Whole::Done => std::mem::forget(message),
            otherwise => message.raw.end_after(otherwise)?,
        }
        Ok(answer)
    }

    /// Sends a message of one piece to a rank, and receives one of one piece from a rank, the same or another: as
    /// [`Channel::send`] and [`Channel::receive`] with [`Outgoing::cheaper`] and [`Incoming::cheaper`] do, which the other
    /// ends may use as well. Neither waits for the other, so that any number of ranks may exchange with each other, and in
    /// rings, however long the pieces are. And whoever sends to this rank learns where its piece goes before this one is
    /// sent: who receives after that can tell it only once its own message has gone.
    ///
    /// # Errors
    /// As those of both. Where the message to be sent has failed, and the place of the other was named already, the
    /// connection to the rank that it was to come from ends; where it was not, that message is waited for and received.
    pub fn exchange(&self, to: usize, bytes: &[u8], from: usize, room: &mut [u8]) -> Result<()> {
        self.check(to)?;
        self.check(from)?;
        let mut incoming = Unpacking::new(&*self.shared);
        incoming.begin_lazily(self.number, from);
        // SAFETY: it is borrowed until the message was ended, or dropped, or forgotten before it has begun.
        unsafe { incoming.unpack(Span::of_mut(room), SendMode::Cheaper, ReceiveMode::Cheaper)? };
        let mut outgoing = Packing::new(&*self.shared);
        outgoing.begin_lazily(self.number, to);
        // SAFETY: they are borrowed until the message was ended, or dropped, or forgotten before it has begun.
        unsafe { outgoing.pack(Span::of(bytes), SendMode::Cheaper, ReceiveMode::Cheaper)? };
        if outgoing.is_expected() {
            // It goes whatever we do, and first: there is time to name a place while it does.
            let begun = outgoing.begin_expected();
            let named = incoming.name_ahead();
            if !outgoing.end_expected(begun)? {
                outgoing.end()?;
            }
            return named.and_then(|_| incoming.end());
        }
        if !incoming.name_ahead()? {
            // Neither has begun.
            std::mem::forget((incoming, outgoing));
            return self.exchange_by_two(to, bytes, from, room);
        }
        outgoing.end()?;
        incoming.end()
    }

    /// As [`Channel::exchange`], with a thread for what is sent: its receiver may wait for what we are to receive.
    #[cold]
    fn exchange_by_two(&self, to: usize, bytes: &[u8], from: usize, room: &mut [u8]) -> Result<()> {
        std::thread::scope(|scope| {
            let send = || self.send(to, |message| message.cheaper(bytes, ReceiveMode::Cheaper));
            let sending = std::thread::Builder::new()
                .spawn_scoped(scope, send)
                .map_err(|e| Error::io("a thread that sends while another receives", e))?;
            let received = self.receive(from, |message| message.cheaper(room, SendMode::Cheaper));
            sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(received)
        })
    }

    /// Begins a message, by address.
    ///
    /// # Errors
    /// As [`Channel::send`].
    #[inline]
    pub fn begin(&self, rank: usize) -> Result<RawOutgoing> {
        self.check(rank)?;
        RawOutgoing::begin(&self.shared, self.number, rank)
    }

    /// Takes the next message, by address.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    #[inline]
    pub fn begin_receive(&self, from: impl Into<Source>) -> Result<RawIncoming> {
        RawIncoming::begin(&self.shared, self.number, self.source(from.into())?)
    }

    /// As [`Channel::begin_receive`], if there is a message.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub fn try_begin_receive(&self, from: impl Into<Source>) -> Result<Option<RawIncoming>> {
        RawIncoming::try_begin(&self.shared, self.number, self.source(from.into())?)
    }

    #[inline]
    pub(crate) fn source(&self, source: Source) -> Result<Option<usize>> {
        match source {
            Source::Any => Ok(None),
            Source::Rank(rank) => self.check(rank).map(|()| Some(rank)),
        }
    }

    /// The rails by which a rank is reached now, by their names: those that have not connected yet are not among them, nor
    /// those that have died.
    ///
    /// # Errors
    /// [`Error::Rank`].
    pub fn rails(&self, rank: usize) -> Result<Vec<String>> {
        self.check(rank)?;
        let mut core = self.shared.core();
        let id = core.id(self.number, rank);
        Ok(core.rails_up(id))
    }

    /// Leaves a rail to a rank, as if it had broken: what is under way goes by the others.
    ///
    /// # Errors
    /// [`Error::Rank`]; a rail that is not there.
    pub fn cut(&self, rank: usize, rail: &str) -> Result<()> {
        self.check(rank)?;
        let mut core = self.shared.core();
        let id = core.id(self.number, rank);
        core.cut(id, rail)
    }
}

/// A message that is being packed ([`Channel::send`]).
pub struct Outgoing<'env> {
    raw: Packing<&'env Shared>,
    _env: PhantomData<&'env mut &'env ()>,
}

impl<'env> Outgoing<'env> {
    /// The rank that it goes to.
    pub fn rank(&self) -> usize {
        self.raw.rank()
    }

    /// Appends bytes that may change once this returns ([`SendMode::Safer`]).
    ///
    /// # Errors
    /// As [`Channel::send`].
    #[inline]
    pub fn safer(&mut self, bytes: &[u8], receive: ReceiveMode) -> Result<()> {
        // SAFETY: the slice outlives the call.
        unsafe { self.raw.pack(Span::of(bytes), SendMode::Safer, receive) }
    }

    /// Appends bytes that are read at the message's end ([`SendMode::Later`]).
    ///
    /// # Errors
    /// As [`Channel::send`].
    #[inline]
    pub fn later(&mut self, bytes: &'env [u8], receive: ReceiveMode) -> Result<()> {
        // SAFETY: the slice outlives `Channel::send`, which does not return before the message was ended or dropped.
        unsafe { self.raw.pack(Span::of(bytes), SendMode::Later, receive) }
    }

    /// Appends bytes that are read when it is cheapest ([`SendMode::Cheaper`]).
    ///
    /// # Errors
    /// As [`Channel::send`].
    #[inline]
    pub fn cheaper(&mut self, bytes: &'env [u8], receive: ReceiveMode) -> Result<()> {
        // SAFETY: as for `later`.
        unsafe { self.raw.pack(Span::of(bytes), SendMode::Cheaper, receive) }
    }

    /// Appends bytes, with whatever modes.
    ///
    /// # Errors
    /// As [`Channel::send`].
    #[inline]
    pub fn pack(&mut self, bytes: &'env [u8], send: SendMode, receive: ReceiveMode) -> Result<()> {
        // SAFETY: as for `later`.
        unsafe { self.raw.pack(Span::of(bytes), send, receive) }
    }

    /// Appends a value that the receiver gets at once ([`Incoming::get`]).
    ///
    /// # Errors
    /// As [`Channel::send`].
    #[inline]
    pub fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.safer(value.as_bytes(), ReceiveMode::Express)
    }

    /// Appends the elements of a slice, read when it is cheapest.
    ///
    /// # Errors
    /// As [`Channel::send`].
    #[inline]
    pub fn slice<T: IntoBytes + Immutable>(&mut self, values: &'env [T], receive: ReceiveMode) -> Result<()> {
        self.cheaper(values.as_bytes(), receive)
    }

    /// Appends several pieces with the same modes.
    ///
    /// # Errors
    /// As [`Channel::send`].
    pub fn pack_all(&mut self, pieces: &[IoSlice<'env>], send: SendMode, receive: ReceiveMode) -> Result<()> {
        for piece in pieces {
            // SAFETY: as for `later`: what an `IoSlice` names is borrowed for all of its lifetime.
            unsafe { self.raw.pack(Span::of(piece), send, receive)? };
        }
        Ok(())
    }
}

/// A message that is being unpacked ([`Channel::receive`]).
pub struct Incoming<'env> {
    raw: Unpacking<&'env Shared>,
    _env: PhantomData<&'env mut &'env ()>,
}

impl<'env> Incoming<'env> {
    /// The rank that it comes from.
    pub fn rank(&self) -> usize {
        self.raw.rank()
    }

    /// Takes bytes that are there when this returns ([`ReceiveMode::Express`]).
    ///
    /// # Errors
    /// As [`Channel::receive`].
    #[inline]
    pub fn express(&mut self, bytes: &mut [u8], send: SendMode) -> Result<()> {
        // SAFETY: the slice outlives the call, which forgets it in whatever way it ends.
        unsafe { self.raw.unpack(Span::of_mut(bytes), send, ReceiveMode::Express) }
    }

    /// Takes bytes that are there at the message's end ([`ReceiveMode::Cheaper`]).
    ///
    /// # Errors
    /// As [`Channel::receive`].
    #[inline]
    pub fn cheaper(&mut self, bytes: &'env mut [u8], send: SendMode) -> Result<()> {
        // SAFETY: the slice outlives `Channel::receive`, which does not return before the message was ended or dropped.
        unsafe { self.raw.unpack(Span::of_mut(bytes), send, ReceiveMode::Cheaper) }
    }

    /// Takes bytes, with whatever modes.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    #[inline]
    pub fn unpack(&mut self, bytes: &'env mut [u8], send: SendMode, receive: ReceiveMode) -> Result<()> {
        // SAFETY: as for `cheaper`.
        unsafe { self.raw.unpack(Span::of_mut(bytes), send, receive) }
    }

    /// Takes a value that was packed by [`Outgoing::put`].
    ///
    /// # Errors
    /// As [`Channel::receive`].
    #[inline]
    pub fn get<T: FromBytes + IntoBytes>(&mut self) -> Result<T> {
        let mut value = T::new_zeroed();
        self.express(value.as_mut_bytes(), SendMode::Safer)?;
        Ok(value)
    }

    /// Takes the elements of a slice, packed by [`Outgoing::slice`].
    ///
    /// # Errors
    /// As [`Channel::receive`].
    #[inline]
    pub fn slice<T: FromBytes + IntoBytes>(
        &mut self,
        values: &'env mut [T],
        receive: ReceiveMode,
    ) -> Result<()> {
        self.unpack(values.as_mut_bytes(), SendMode::Cheaper, receive)
    }

    /// Takes several pieces with the same modes.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub fn unpack_all(
        &mut self,
        pieces: &'env mut [IoSliceMut<'env>],
        send: SendMode,
        receive: ReceiveMode,
    ) -> Result<()> {
        for piece in pieces {
            // SAFETY: as for `cheaper`.
            unsafe { self.raw.unpack(Span::of_mut(piece), send, receive)? };
        }
        Ok(())
    }
}
