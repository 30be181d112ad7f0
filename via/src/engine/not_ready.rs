//! An extension of the architecture: a message that finds no receive posted is not taken, and comes again for some time.
//!
//! Whether, and for how long, is an attribute of who receives. A frame that is next in order and has no receive is left
//! out as if it had been lost; acknowledgements say so, so that its sender goes on trying at short intervals, and does not
//! take it for a fault of the wire.

use super::core::Core;
use super::endpoint::Endpoint;
use super::receiver::{Piece, Refusal};
use super::{Output, Time};
use crate::ConnectionLoss;
use crate::wire::control::CloseReason;
use crate::wire::data;

/// A frame that waits, at its sender, for a receive here.
#[derive(Debug, Clone, Copy)]
pub(super) struct NotReady {
    sequence: u32,
    until: Time,
}

impl Endpoint {
    /// Whether this piece wants a receive, and may wait for one.
    pub(super) fn lets_wait(&self, piece: &Piece) -> bool {
        self.attributes.not_ready.is_some()
            && piece.flags & (data::READ | data::ANSWER) == 0
            && (piece.flags & data::WRITE == 0 || piece.flags & data::IMMEDIATE != 0)
    }

    /// The next frame has no receive: says so, and counts the time from its first coming.
    #[cold]
    pub(super) fn wait_for_receive(&mut self, core: &mut Core, now: Time) {
        let sequence = self.receiver.next;
        if self.not_ready.is_none_or(|known| known.sequence != sequence) {
            let patience = self.attributes.not_ready.unwrap_or_default();
            let until = now.after(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX / 4));
            self.not_ready = Some(NotReady { sequence, until });
            self.wake(core, until);
        }
        self.receiver.owe();
    }

    /// Whether the next frame has come, and waits for a receive still.
    pub(super) fn is_starved(&self) -> bool {
        self.receives.is_empty() && self.not_ready.is_some_and(|known| known.sequence == self.receiver.next)
    }

    /// Looks whether it has waited for too long. False when that has ended the connection.
    pub(super) fn tend_not_ready<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        out: &mut O,
    ) -> bool {
        let Some(NotReady { until, .. }) = self.not_ready else { return true };
        if !self.is_starved() {
            self.not_ready = None;
            return true;
        }
        if now < until {
            self.wake(core, until);
            return true;
        }
        self.report(Refusal::Empty, out);
        let tell = Some(CloseReason::ReceiveQueueEmpty);
        self.break_off(core, now, ConnectionLoss::ReceiveQueueEmpty, tell, out);
        false
    }
}
