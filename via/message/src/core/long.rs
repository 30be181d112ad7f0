//! Long pieces: put straight from the sender's memory into the receiver's, by all rails that are there.
//!
//! The receiver knows from its own unpacking that a long piece comes, so it need not be told: it sends the place, and the
//! sender puts.

use smallvec::SmallVec;

use super::Core;
use super::connection::{Connection, Way};
use super::control::Control;
use super::pull::Pull;
use super::rail::plain_port;
use crate::packet::Grant;
use crate::port::{Exposure, LinkId};
use crate::span::Span;
use crate::{Result, SendMode};

/// Most bytes of one put.
const MOST: usize = 4 << 20;
/// Bytes of the put that ends a piece of so many, where one rail takes all.
pub(super) fn last_put(piece: usize) -> usize {
    piece - piece.saturating_sub(1) / MOST * MOST
}

/// Bytes of one put where several rails share a piece: small enough that the faster takes more, large enough that none
/// waits for the next.
const STRIPE: usize = 128 << 10;
/// Puts of one piece that are under way on each rail, where several share it.
const AHEAD: usize = 2;

/// The places of a piece, one for each rail: mostly there is one rail, and then nothing is allocated for a piece.
pub(super) type Grants = SmallVec<[Grant; 1]>;

/// What has begun the message of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// A packet.
    Packet,
    /// Nothing has: the piece is put if the receiver names a place, and not offered.
    Place,
    /// Nothing has, and the piece is all of it: what puts its last byte is to bring word of that.
    Whole,
    /// That has been posted: no packet was needed.
    Ended,
}

/// A part of a long piece that is under way.
#[derive(Debug, Clone, Copy)]
struct Part {
    put: u64,
    rail: usize,
    start: usize,
    len: usize,
}

/// A long piece to be sent.
pub(crate) struct LongOut {
    pub(super) message: u32,
    pub(super) number: u16,
    pub(super) span: Span,
    pub(super) send: SendMode,
    /// Its bytes may be read.
    pub(super) ready: bool,
    /// The receiver waits for this one alone.
    express: bool,
    pub(super) grants: Grants,
    /// Its place, where the receiver is to read it; and by which rail.
    pub(super) offer: Option<(usize, Exposure)>,
    /// The receiver was told that.
    pub(super) offered: bool,
    /// The receiver has read it, or will not any more.
    pub(super) pulled: bool,
    /// Up to here it was put once.
    next: usize,
    /// What was put in vain.
    again: Vec<(usize, usize)>,
    parts: SmallVec<[Part; 1]>,
    told: bool,
    pub(super) start: Start,
    refused: bool,
    /// The receiver was told to read it no more.
    withdrawn: bool,
    /// Keeps the bytes, where they are a copy.
    _owned: Option<Box<[u8]>>,
}

/// A long piece to be received.
pub(super) struct LongIn {
    pub(super) number: u16,
    /// Pieces before it in the message.
    pub(super) position: usize,
    pub(super) span: Span,
    /// Its bytes at the sender, where these are not as many.
    pub(super) packed: Option<u64>,
    pub(super) exposures: SmallVec<[(usize, Exposure); 1]>,
    /// It is read, not put.
    pub(super) pull: Option<Pull>,
    /// It is not to be read any more, whatever is offered.
    pub(super) unwanted: bool,
    pub(super) done: bool,
}

impl LongIn {
    pub(super) fn new(number: u16, position: usize, span: Span) -> Self {
        let exposures = SmallVec::new();
        Self { number, position, span, packed: None, exposures, pull: None, unwanted: false, done: false }
    }
}

impl LongOut {
    /// A piece of the message that is being packed.
    pub(crate) fn new(
        number: u16,
        span: Span,
        send: SendMode,
        express: bool,
        owned: Option<Box<[u8]>>,
    ) -> Self {
        Self {
            message: 0,
            number,
            span,
            send,
            ready: send != SendMode::Later,
            express,
            grants: Grants::new(),
            offer: None,
            offered: false,
            pulled: false,
            next: 0,
            again: Vec::new(),
            parts: SmallVec::new(),
            told: false,
            start: Start::Packet,
            refused: false,
            withdrawn: false,
            _owned: owned,
        }
    }

    /// The receiver does not want it; answers whether that is news.
    pub(super) fn refuse(&mut self) -> bool {
        !std::mem::replace(&mut self.refused, true)
    }

    /// Whether all of it has been given to a port.
    fn is_posted(&self) -> bool {
        self.refused || self.pulled || (self.next == self.span.len && self.again.is_empty())
    }

    /// Nothing but a packet ends its message, unless that has ended.
    pub(super) fn ends_by_packet(&mut self) {
        if self.start == Start::Whole {
            self.start = Start::Place;
        }
    }

    /// Whether the receiver does not want it.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether nothing of it was given to a port.
    pub(super) fn is_untouched(&self) -> bool {
        self.next == 0 && !self.refused && !self.pulled
    }

    /// Whether all of it was put, and has arrived.
    pub(super) fn is_put(&self) -> bool {
        self.next == self.span.len && self.again.is_empty() && self.parts.is_empty()
    }

    fn is_complete(&self) -> bool {
        self.is_posted() && self.parts.is_empty()
    }

    /// The next bytes to put.
    fn take(&mut self, most: usize) -> Option<(usize, usize)> {
        if let Some(part) = self.again.pop() {
            return Some(part);
        }
        let len = (self.span.len - self.next).min(most);
        let start = self.next;
        self.next += len;
        (len > 0).then_some((start, len))
    }
}

/// How far the long pieces of a message are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Longs {
    /// Whatever is sent now comes behind them.
    pub(crate) behind: bool,
    /// None of their memory is read any more.
    pub(crate) complete: bool,
    /// The receiver did not want one of them.
    pub(crate) refused: bool,
}

impl Core {
    /// Takes a long piece on.
    ///
    /// # Safety
    /// Its memory is valid, and nobody writes it from when it is ready until it is complete or the connection is severed.
    pub(crate) unsafe fn add_long(&mut self, id: LinkId, mut long: LongOut) -> Result<()> {
        let rails = self.rails.len();
        let connection = self.connection(id);
        long.message = connection.message_out;
        let (number, mut is_wrong) = (long.number, false);
        while let Some(at) = connection.find_early(number) {
            let early = connection.early.swap_remove(at);
            is_wrong |= long.grant(early.len, &early.grants, rails);
        }
        connection.longs_out.push(long);
        if is_wrong {
            connection.tell_length(number);
        }
        self.pump_longs(id)
    }

    /// All bytes of long pieces may be read now.
    pub(crate) fn release_longs(&mut self, id: LinkId) -> Result<()> {
        for long in &mut self.connection(id).longs_out {
            (long.ready, long.start) = (true, Start::Packet);
        }
        self.pump_longs(id)
    }

    /// How far the long pieces are, or the one of that number.
    pub(crate) fn longs(&mut self, id: LinkId, number: Option<u16>) -> Longs {
        let ordered = self.is_one_ordered(id);
        let mut all = Longs { behind: true, complete: true, refused: false };
        for long in
            self.connection(id).longs_out.iter().filter(|long| number.is_none_or(|n| n == long.number))
        {
            all.complete &= long.is_complete();
            all.behind &= long.is_complete() || long.offered || (ordered && long.is_posted());
            all.refused |= long.refused;
        }
        all
    }

    /// Whether packets come behind puts since both go by the same rail, and no other was ever used.
    fn is_one_ordered(&mut self, id: LinkId) -> bool {
        let connection = self.connection(id);
        match connection.active {
            Some(rail) if !connection.several => self.rails[rail].ordered,
            _ => false,
        }
    }

    /// The message is over.
    #[inline]
    pub(crate) fn end_outgoing(&mut self, id: LinkId) {
        self.conceal_offers(id);
        let connection = self.connection(id);
        connection.longs_out.clear();
        connection.end_outgoing();
    }

    /// Puts what can be put, and says so where the receiver waits.
    pub(super) fn pump_longs(&mut self, id: LinkId) -> Result<()> {
        if self.connection(id).longs_out.is_empty() {
            return Ok(());
        }
        if let [LongOut { start: Start::Whole, .. }] = &self.connection(id).longs_out[..] {
            self.put_all(id)?;
            return self.flush_controls(id);
        }
        let mut longs = std::mem::take(&mut self.connection(id).longs_out);
        let mut outcome = Ok(());
        for long in &mut longs {
            if outcome.is_err() || !long.ready || long.is_posted() || long.offer.is_some() {
                continue;
            }
            outcome =
                if self.is_to_be_offered(id, long) { self.offer(id, long) } else { self.put_long(id, long) };
        }
        let is_express = longs.iter().any(|long| long.express);
        self.connection(id).longs_out = longs;
        if is_express {
            self.tell_done(id);
        }
        outcome?;
        self.flush_controls(id)
    }

    /// Tells the receiver of pieces that it waits for and that are there.
    fn tell_done(&mut self, id: LinkId) {
        let ordered = self.is_one_ordered(id);
        let connection = self.connection(id);
        for long in &mut connection.longs_out {
            if long.express
                && !long.told
                && !long.pulled
                && (long.is_complete() || (ordered && long.is_posted()))
            {
                long.told = true;
                connection.controls.push_back(Control::Done { message: long.message, long: long.number });
            }
        }
    }

    /// Puts what can be put of one.
    fn put_long(&mut self, id: LinkId, long: &mut LongOut) -> Result<()> {
        let connection = self.connection(id);
        let usable = |grant: &Grant, ways: &[Way]| {
            ways.get(grant.rail.get() as usize).is_some_and(|way| *way == Way::Up)
        };
        let rails = long.grants.iter().filter(|grant| usable(grant, &connection.ways)).count();
        let (most, ahead) = if rails > 1 { (STRIPE, AHEAD) } else { (MOST, usize::MAX) };
        loop {
            let mut any = false;
            for n in 0..long.grants.len() {
                let grant = long.grants[n];
                let rail = grant.rail.get() as usize;
                let connection = self.connection(id);
                if !usable(&grant, &connection.ways)
                    || long.parts.iter().filter(|part| part.rail == rail).count() >= ahead
                {
                    continue;
                }
                let put = connection.next_put;
                let Some((start, len)) = long.take(most) else { return Ok(()) };
                let memory = long.span.skip(start).first(len);
                // SAFETY: as `add_long` was promised; a part is forgotten only when its put is over or its rail is gone.
                let posted =
                    unsafe { self.rails[rail].port.put(id, put, memory, &grant.token, start as u64) };
                match posted {
                    Ok(true) => {
                        self.connection(id).next_put += 1;
                        self.modules.written += u64::from(start == 0);
                        long.parts.push(Part { put, rail, start, len });
                        any = true;
                    }
                    Ok(false) => long.again.push((start, len)),
                    Err(e) => {
                        long.again.push((start, len));
                        return Err(e);
                    }
                }
            }
            if !any {
                return Ok(());
            }
        }
    }

    /// Puts all of the piece that is its message, with word at its end, if its place is known.
    fn put_all(&mut self, id: LinkId) -> Result<()> {
        let Some(connection) = Self::lookup(&mut self.connections, id) else { return Ok(()) };
        let Some(port) = plain_port!(self, connection) else { return Ok(()) };
        let (word, rail) = (connection.short().into(), connection.plain);
        let Some(long) = connection.longs_out.last_mut() else { return Ok(()) };
        let Some(grant) = long.grants.first().filter(|grant| grant.rail.get() == u32::from(rail)).copied()
        else {
            return Ok(());
        };
        while !long.refused
            && let Some((start, len)) = long.take(MOST)
        {
            let is_end = start + len == long.span.len;
            let (put, memory) = (connection.next_put, long.span.skip(start).first(len));
            // SAFETY: as `add_long` was promised; a part is forgotten only when its put is over or its rail is gone.
            let posted = unsafe {
                port.put_with_word(id, put, memory, (&grant.token, start as u64), is_end.then_some(word))
            };
            if !matches!(posted, Ok(true)) {
                long.again.push((start, len));
                return posted.map(|_| ());
            }
            connection.next_put += 1;
            self.modules.written += u64::from(start == 0);
            long.parts.push(Part { put, rail: usize::from(rail), start, len });
            if is_end {
                long.start = Start::Ended;
                connection.count_word();
                break;
            }
        }
        Ok(())
    }

    /// A part has arrived.
    pub(super) fn put_is_over(&mut self, id: LinkId, put: u64) -> Result<()> {
        for long in &mut self.connection(id).longs_out {
            if let Some(at) = long.parts.iter().position(|part| part.put == put) {
                long.parts.swap_remove(at);
                let is_all = long.is_complete() && !long.express;
                // Others may have waited for the port.
                return if is_all && self.connection(id).longs_out.len() == 1 {
                    Ok(())
                } else {
                    self.pump_longs(id)
                };
            }
        }
        self.get_is_over(id, put)?;
        self.pump_longs(id)
    }

    /// What was under way on a rail is to be put again.
    pub(super) fn puts_are_void(&mut self, id: LinkId, rail: usize) {
        self.pulls_are_void(id, rail);
        for long in &mut self.connection(id).longs_out {
            let again = &mut long.again;
            long.parts.retain(|part| {
                if part.rail == rail {
                    again.push((part.start, part.len));
                }
                part.rail != rail
            });
        }
    }

    /// The receiver takes no more of a message.
    pub(super) fn refused(&mut self, id: LinkId, message: u32) {
        for long in &mut self.connection(id).longs_out {
            if long.message == message && !long.is_posted() {
                long.refused = true;
            }
        }
        // Those that are packed from now on are refused by themselves: see `is_refused`.
        let connection = self.connection(id);
        if connection.message_out == message {
            connection.refused = Some(message);
        }
    }

    /// The sender gives its message up: nothing more is put. What the receiver may be reading is waited for.
    pub(crate) fn give_up_longs(&mut self, id: LinkId) -> Result<()> {
        let connection = self.connection(id);
        for long in &mut connection.longs_out {
            if long.is_posted() {
                continue;
            }
            if long.offer.is_none() {
                long.refused = true;
            } else if !std::mem::replace(&mut long.withdrawn, true) {
                connection.controls.push_back(Control::Withdraw { message: long.message, long: long.number });
            }
        }
        self.flush_controls(id)
    }

    /// Whether the receiver takes no more of the message that is being packed.
    pub(crate) fn is_refused(&mut self, id: LinkId) -> bool {
        let connection = self.connection(id);
        connection.refused == Some(connection.message_out)
    }

    /// Gives the peer a place for a long piece, unless it has it ([`Core::await_long`]). `position`: pieces before it.
    ///
    /// # Safety
    /// The memory is valid and nobody else touches it until it is done and concealed, or the connection is severed.
    pub(crate) unsafe fn expect_long(
        &mut self,
        id: LinkId,
        number: u16,
        position: usize,
        span: Span,
    ) -> Result<()> {
        let connection = self.connection(id);
        let message = connection.message_in;
        if let Some(long) = connection.longs_in.iter().find(|long| long.number == number) {
            debug_assert_eq!((long.span.start, long.span.len), (span.start, span.len));
            return Ok(());
        }
        connection.longs_in.push(LongIn::new(number, position, span));
        if let Some(pull) = self.find_offer(id, number) {
            if let Some(long) = self.connection(id).longs_in.last_mut() {
                long.pull_by(pull);
            }
            return self.pump_pulls(id);
        }
        self.expose(id, number)?;
        self.control(id, Control::Grant { message, long: number })
    }

    /// Exposes a piece on those rails that are there and where it is not yet; answers whether there are such.
    pub(super) fn expose(&mut self, id: LinkId, number: u16) -> Result<bool> {
        let Some(Connection { ways, longs_in, .. }) = Self::lookup(&mut self.connections, id) else {
            return Ok(false);
        };
        let Some(long) = longs_in.iter_mut().find(|long| long.number == number) else { return Ok(false) };
        let mut any = false;
        for (n, (rail, way)) in self.rails.iter_mut().zip(ways).enumerate() {
            if *way == Way::Up && !long.exposures.iter().any(|(known, _)| *known == n) {
                // SAFETY: as `expect_long` was promised.
                long.exposures.push((n, unsafe { rail.port.expose(id, long.span)? }));
                any = true;
            }
        }
        Ok(any)
    }

    /// Whether a long piece has come.
    pub(crate) fn has_come(&mut self, id: LinkId, number: u16) -> Result<bool> {
        let connection = self.connection(id);
        if let Some(mismatch) = connection.find_mismatch(Some(number)) {
            return Err(mismatch);
        }
        let done = connection.longs_in.iter().all(|long| long.number != number || long.done);
        match &connection.failed {
            Some(why) if !done => Err(crate::Error::Unreachable { rank: connection.peer, why: why.clone() }),
            _ => Ok(done),
        }
    }

    /// Takes back all places of the message that is being unpacked: it has come, or no port can reach them any more.
    pub(crate) fn conceal_all(&mut self, id: LinkId) {
        let Some(connection) = Self::lookup(&mut self.connections, id) else { return };
        for LongIn { exposures, .. } in connection.longs_in.drain(..) {
            for (rail, exposure) in exposures {
                self.rails[rail].port.conceal(id, exposure.id);
            }
        }
    }

    /// Takes no more of the message that is being unpacked.
    pub(crate) fn refuse(&mut self, id: LinkId) -> Result<()> {
        let message = self.connection(id).message_in;
        self.control(id, Control::Refuse { message })
    }

    /// Rails have gone: pieces that are expected get places on those that are left.
    pub(super) fn expose_anew(&mut self, id: LinkId) -> Result<()> {
        let connection = self.connection(id);
        let message = connection.message_in;
        let numbers: Vec<u16> = connection
            .longs_in
            .iter()
            .filter(|long| !long.done && long.pull.is_none())
            .map(|long| long.number)
            .collect();
        for number in numbers {
            if self.expose(id, number)? {
                self.control(id, Control::Grant { message, long: number })?;
            }
        }
        Ok(())
    }
}
