//! At the sender: a message that is one long piece goes where its receiver has named a place, or is about to.

use crate::core::connection::{Connection, NO_RAIL, Way};
use crate::core::long::{LongOut, Start};
use crate::core::{Carrier, Core, Outset};
use crate::packet::{Grant, flag};
use crate::port::LinkId;
use crate::span::Span;
use crate::{Error, Result, SendMode};

/// Looks of a sender for a place that its receiver may be about to name: one for so many bytes of the piece, which take far
/// longer to go, and so many at most, in which a word goes to the other end and back. Who asks in place of them, while the
/// place is under way, gives both ends a packet more to take.
const BYTES: usize = 4096;
pub(super) const LOOKS: usize = 256;
/// A sender that has looked so often in vain asks at once; of so many messages it looks for the place of as many again.
pub(super) const VAIN: u8 = 4;
const AGAIN: u8 = 32;
/// How often the looks are doubled at most, for who has asked while the place was under way: where a word takes longer, as
/// with adapters that are emulated.
const DOUBLINGS: u8 = 2;

/// What [`Core::send_expected`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The message has to begin in another way: nothing was done.
    Otherwise,
    /// All of it is under way, its end too.
    Ended,
    /// It has begun, and so perhaps has its piece.
    Begun,
    /// It has begun; the receiver is to be asked for the place of its piece, with a packet.
    Asked,
}

impl Connection {
    /// Whether a message may begin with a long piece of so many bytes, for which no packet has asked.
    fn may_send_expected(&self, len: usize) -> bool {
        len >= self.thresholds.long
            && self.active.is_some()
            && self.failed.is_none()
            && self.replaying.is_none()
            && !self.packing
            && self.has_credit()
            && self.refused != Some(self.message_out)
    }

    /// Where a place is kept for a piece of the message that is being packed.
    pub(in crate::core) fn find_early(&self, number: u16) -> Option<usize> {
        self.early.iter().position(|early| early.message == self.message_out && early.number == number)
    }

    /// A place was named for a piece that was packed already, by who had not seen that: the next is looked for longer.
    pub(in crate::core) fn has_asked_too_soon(&mut self) {
        self.doublings = (self.doublings + 1).min(DOUBLINGS);
        self.in_vain = 0;
    }

    /// Looks for a place for a piece of so many bytes.
    pub(super) fn looks(&mut self, len: usize) -> usize {
        if self.in_vain >= VAIN {
            self.doublings = 0;
            return 0;
        }
        (len / BYTES).min(LOOKS) << self.doublings
    }
}

impl Core {
    /// Whether the place of a lone piece of the next message to a rank is known.
    pub(crate) fn is_expected(&self, channel: usize, peer: usize) -> bool {
        match self.connections.get(self.id(channel, peer) as usize) {
            Some(Some(connection)) => connection.find_early(0).is_some() && !connection.packing,
            _ => false,
        }
    }

    /// Begins a message that is one long piece, and puts that where the receiver has named its place, or is just about to:
    /// then it is posted by whatever brings the place.
    ///
    /// # Errors
    /// A port is broken; the message has begun.
    ///
    /// # Safety
    /// As for [`Core::add_long`], unless this answers [`Expected::Otherwise`].
    pub(crate) unsafe fn send_expected(
        &mut self,
        channel: usize,
        peer: usize,
        piece: Span,
        out: &mut Outset,
    ) -> Result<Expected> {
        let id = self.id(channel, peer);
        let is_known = self.connections.get(id as usize).is_some_and(Option::is_some);
        if !is_known || self.options.described || !self.connection(id).may_send_expected(piece.len) {
            return Ok(Expected::Otherwise);
        }
        let connection = self.connection(id);
        connection.packing = true;
        out.begin(id, peer);
        let mut long = LongOut::new(0, piece, SendMode::Cheaper, false, None);
        // For word of its end the peer has room, and nobody else takes it before this message is over.
        long.start = if connection.plain == NO_RAIL { Start::Place } else { Start::Whole };
        // SAFETY: the caller's promise.
        let added = unsafe { self.add_long(id, long) };
        let asks = added.and_then(|()| self.looks_for_place(id, piece));
        if let Some(expected) = self.has_looked(id, asks)? {
            return Ok(expected);
        }
        let longs = self.longs(id, None);
        if longs.behind
            && !longs.refused
            && let Some(open) = self.open_packet(id)?
            // SAFETY: there are no parts.
            && unsafe { self.send_data(id, open, 0, &[], flag::FIRST | flag::LAST, 1)? }
        {
            return Ok(Expected::Ended);
        }
        Ok(Expected::Begun)
    }

    /// What becomes of a message whose place was looked for, and is to be asked for or not; `None`: it goes on. Word that has
    /// gone cannot be taken back: what has failed beside is told to who waits next.
    pub(super) fn has_looked(&mut self, id: LinkId, asks: Result<bool>) -> Result<Option<Expected>> {
        let is_ended = self.connection(id).longs_out.last_mut().is_some_and(|long| {
            long.ends_by_packet();
            long.start == Start::Ended
        });
        match asks {
            Err(e) if is_ended => self.trouble = Some(e),
            Err(e) => return Err(e),
            Ok(true) => return Ok(Some(Expected::Asked)),
            Ok(false) => {}
        }
        Ok(is_ended.then_some(Expected::Ended))
    }

    /// Ends a message that went so, once its memory is not read any more; answers whether it is.
    ///
    /// # Errors
    /// It will not come; the message has not ended.
    pub(crate) fn end_expected(&mut self, id: LinkId) -> Result<bool> {
        let connection = self.connection(id);
        if connection.longs_out.iter().all(LongOut::is_put) {
            // None of it was offered.
            connection.longs_out.clear();
            connection.end_outgoing();
            return Ok(true);
        }
        match &connection.failed {
            Some(why) => Err(Error::Unreachable { rank: connection.peer, why: why.clone() }),
            None => Ok(false),
        }
    }

    /// Drives the rails for a moment, in which the receiver may name a place for the piece; answers whether it is to be
    /// asked now.
    fn looks_for_place(&mut self, id: LinkId, piece: Span) -> Result<bool> {
        if self.has_place(id) {
            self.connection(id).in_vain = 0;
            return Ok(false);
        }
        let looks = self.connection(id).looks(piece.len);
        // Now and then it is looked for again.
        let connection = self.connection(id);
        connection.in_vain = (connection.in_vain + 1) % AGAIN;
        self.prepare(id, piece);
        let mut outcome = Ok(true);
        let mut left = looks as u32 + 1;
        while left > 0 {
            match self.progress_for(left, || false) {
                Ok(looks) => left = left.saturating_sub(looks),
                Err(e) => {
                    outcome = Err(e);
                    break;
                }
            }
            if self.has_place(id) {
                self.connection(id).in_vain = 0;
                outcome = Ok(false);
                break;
            }
        }
        outcome
    }

    /// Whether the receiver has named a place for the piece of the message, or wants none.
    fn has_place(&mut self, id: LinkId) -> bool {
        let connection = self.connection(id);
        let ways = &connection.ways;
        let is_up = |grant: &Grant| ways.get(grant.rail.get() as usize) == Some(&Way::Up);
        connection.longs_out.last().is_none_or(|long| long.is_refused() || long.grants.iter().any(is_up))
    }

    /// Has what is put next at hand, while there is nothing else to do.
    fn prepare(&mut self, id: LinkId, piece: Span) {
        let rail = usize::from(self.connection(id).plain);
        if let Some(Carrier::Vi(port)) = self.rails.get_mut(rail).map(|rail| &mut rail.port) {
            // SAFETY: as `add_long` was promised.
            unsafe { port.prepare(piece) };
        }
    }
}
