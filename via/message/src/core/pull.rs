//! Long pieces that the receiver reads: it does not expect them yet, so that its own program, and nothing of the sender's,
//! decides when they go.
//!
//! The sender names the piece's place and goes on, to the message's end if it likes. The receiver reads once it comes to
//! the piece, and says when it has. Until then, or until the sender has taken the offer back, the memory stays as it is.
//! An offer comes before the packet that ends its message, since both are numbered packets of one rail.

use super::Core;
use super::connection::{Connection, Way};
use super::control::Control;
use super::long::{LongOut, Start};
use crate::Result;
use crate::modules::Module;
use crate::modules::choice;
use crate::packet::{self, Grant, Length};
use crate::port::LinkId;

/// Most bytes of one read.
const MOST: usize = 4 << 20;
/// Offers that may wait: a message has no more long pieces.
const MAX_OFFERS: usize = 1 << 16;

/// An offer of a piece that is not unpacked yet.
pub(super) struct EarlyOffer {
    message: u32,
    number: u16,
    pull: Pull,
}

/// How far a piece is that is being read.
pub(super) struct Pull {
    grant: Grant,
    /// Bytes, as the sender has it.
    pub(super) len: Length,
    /// Up to here reads were posted.
    next: usize,
    again: Vec<(usize, usize)>,
    /// Reads that are under way, with what they read.
    parts: Vec<(u64, usize, usize)>,
    /// No more of it is wanted.
    stopped: bool,
    /// The sender waits to hear that it is not read any more.
    withdrawn: bool,
}

impl Pull {
    pub(super) fn new(len: Length, grant: Grant) -> Self {
        Self { grant, len, next: 0, again: Vec::new(), parts: Vec::new(), stopped: false, withdrawn: false }
    }

    /// No more is read.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    fn take(&mut self, len: usize) -> Option<(usize, usize)> {
        if self.stopped {
            return None;
        }
        if let Some(part) = self.again.pop() {
            return Some(part);
        }
        let (start, len) = (self.next, (len - self.next).min(MOST));
        self.next += len;
        (len > 0).then_some((start, len))
    }

    fn is_read(&self, len: usize) -> bool {
        self.next == len && self.again.is_empty() && self.parts.is_empty()
    }
}

impl Connection {
    /// The name of a piece's place, which goes out now.
    pub(super) fn take_offer(&mut self, number: u16) -> Option<(Length, Grant)> {
        let long = self.longs_out.iter_mut().find(|long| long.number == number)?;
        let (rail, exposure) = long.offer?;
        long.offered = true;
        let grant = Grant { rail: (rail as u32).into(), token: exposure.token };
        Some((Length::new(long.span.len as u64), grant))
    }
}

impl Core {
    /// Whether a piece is to be offered now, and not to be written.
    pub(super) fn is_to_be_offered(&mut self, id: LinkId, long: &LongOut) -> bool {
        if long.start != Start::Packet || !long.grants.is_empty() {
            return false;
        }
        let connection = self.connection(id);
        let module =
            choice::of_piece(long.span.len, long.send, false, &connection.thresholds, connection.means);
        module == Module::Read && long.ready && long.offer.is_none() && long.is_untouched()
    }

    /// Offers a piece to the receiver.
    pub(super) fn offer(&mut self, id: LinkId, long: &mut LongOut) -> Result<()> {
        let Some(rail) = self.connection(id).active else { return Ok(()) };
        // SAFETY: as `add_long` was promised; `conceal_offers` comes before that ends.
        let exposure = unsafe { self.rails[rail].port.offer(id, long.span)? };
        long.offer = Some((rail, exposure));
        self.modules.read += 1;
        self.connection(id).controls.push_back(Control::Offer { message: long.message, long: long.number });
        Ok(())
    }

    /// The sender offers a piece.
    pub(super) fn offered(
        &mut self,
        id: LinkId,
        message: u32,
        number: u16,
        pull: Pull,
    ) -> std::result::Result<(), &'static str> {
        let connection = self.connection(id);
        let current = connection.message_in;
        if packet::is_before(message, current) {
            return Ok(()); // Of a message that was thrown away, of which its sender hears.
        }
        if message == current
            && let Some(long) = connection.longs_in.iter_mut().find(|long| long.number == number)
        {
            // Who throws the message away has its memory back before this comes to be read.
            if !long.unwanted && long.pull.is_none() {
                long.pull_by(pull);
            }
            return Ok(());
        }
        connection.offers.retain(|offer| !packet::is_before(offer.message, current));
        if connection.offers.len() >= MAX_OFFERS {
            return Err("more pieces are offered than a message has");
        }
        connection.offers.push(EarlyOffer { message, number, pull });
        Ok(())
    }

    /// What is read of a piece that the program has come to, if it was offered.
    pub(super) fn find_offer(&mut self, id: LinkId, number: u16) -> Option<Pull> {
        let connection = self.connection(id);
        let message = connection.message_in;
        let of = |offer: &EarlyOffer| offer.message == message && offer.number == number;
        let at = connection.offers.iter().position(of)?;
        Some(connection.offers.swap_remove(at).pull)
    }

    /// Reads what can be read now.
    pub(super) fn pump_pulls(&mut self, id: LinkId) -> Result<()> {
        for n in 0..self.connection(id).longs_in.len() {
            loop {
                let connection = self.connection(id);
                let read = connection.next_put;
                let Some(long) = connection.longs_in.get_mut(n) else { break };
                let span = long.span;
                let Some(pull) = long.pull.as_mut().filter(|_| !long.done) else { break };
                let (grant, rail) = (pull.grant, pull.grant.rail.get() as usize);
                if connection.ways.get(rail) != Some(&Way::Up) {
                    break;
                }
                let Some((start, len)) = pull.take(span.len) else { break };
                let part = span.skip(start).first(len);
                // SAFETY: as `expect_long` was promised; a part is forgotten only when it is over or its rail is gone.
                let posted = unsafe { self.rails[rail].port.get(id, read, part, &grant.token, start as u64) };
                let connection = self.connection(id);
                let Some(pull) = connection.longs_in.get_mut(n).and_then(|long| long.pull.as_mut()) else {
                    break;
                };
                if let Ok(true) = posted {
                    pull.parts.push((read, start, len));
                    connection.next_put += 1;
                } else {
                    pull.again.push((start, len));
                    posted?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// A read is over.
    pub(super) fn get_is_over(&mut self, id: LinkId, read: u64) -> Result<()> {
        let connection = self.connection(id);
        let message = connection.message_in;
        let mut over = None;
        for long in &mut connection.longs_in {
            let Some(pull) = &mut long.pull else { continue };
            let Some(at) = pull.parts.iter().position(|part| part.0 == read) else { continue };
            pull.parts.swap_remove(at);
            long.done = pull.is_read(long.span.len);
            if long.done || (pull.withdrawn && pull.parts.is_empty()) {
                over = Some(long.number);
            }
            break;
        }
        match over {
            Some(long) => self.control(id, Control::Pulled { message, long }),
            None => self.pump_pulls(id),
        }
    }

    /// Reads by a rail that is gone are over, and have read nothing that counts.
    pub(super) fn pulls_are_void(&mut self, id: LinkId, rail: usize) {
        for long in &mut self.connection(id).longs_in {
            if let Some(pull) = long.pull.as_mut().filter(|pull| pull.grant.rail.get() as usize == rail) {
                pull.parts.clear();
                pull.stopped = true;
            }
        }
    }

    /// The receiver has read a piece, or will not any more since we took it back.
    pub(super) fn pulled(&mut self, id: LinkId, message: u32, number: u16) {
        let connection = self.connection(id);
        let of = |long: &&mut LongOut| long.message == message && long.number == number;
        if let Some(long) = connection.longs_out.iter_mut().find(of)
            && long.offered
        {
            long.pulled = true;
            if let Some((rail, exposure)) = long.offer.take() {
                self.rails[rail].port.conceal(id, exposure.id);
            }
        }
    }

    /// The sender takes an offer back.
    pub(super) fn withdrawn(&mut self, id: LinkId, message: u32, number: u16) {
        let connection = self.connection(id);
        connection.offers.retain(|offer| offer.message != message || offer.number != number);
        if message == connection.message_in
            && let Some(long) = connection.longs_in.iter_mut().find(|long| long.number == number)
            && let Some(pull) = &mut long.pull
        {
            (pull.stopped, pull.withdrawn) = (true, true);
            if !pull.parts.is_empty() {
                return; // It is told when these are over.
            }
        }
        connection.controls.push_back(Control::Pulled { message, long: number });
    }

    /// Stops reading, since the message is thrown away. Answers whether nothing is being read any more; an error where
    /// the sender is gone.
    pub(crate) fn stop_pulls(&mut self, id: LinkId) -> Option<()> {
        let connection = self.connection(id);
        let mut over = true;
        for long in &mut connection.longs_in {
            long.unwanted = true;
            if let Some(pull) = &mut long.pull {
                pull.stopped = true;
                over &= pull.parts.is_empty();
            }
        }
        (over || connection.failed.is_some()).then_some(())
    }

    /// Whether a piece was offered, and so comes by being read.
    pub(crate) fn is_pulled(&mut self, id: LinkId, number: u16) -> bool {
        self.connection(id).longs_in.iter().any(|long| long.number == number && long.pull.is_some())
    }

    /// Whether pieces of the message that is being unpacked were offered, and not all read.
    pub(crate) fn has_offers(&mut self, id: LinkId) -> bool {
        let connection = self.connection(id);
        let message = connection.message_in;
        connection.offers.iter().any(|offer| offer.message == message)
            || connection.longs_in.iter().any(|long| long.pull.is_some() && !long.done)
    }

    /// Takes back all places of pieces of the message that is packed: nobody reads them any more.
    pub(super) fn conceal_offers(&mut self, id: LinkId) {
        for n in 0..self.connection(id).longs_out.len() {
            let offer = self.connection(id).longs_out.get_mut(n).and_then(|long| long.offer.take());
            if let Some((rail, exposure)) = offer {
                self.rails[rail].port.conceal(id, exposure.id);
            }
        }
    }
}
