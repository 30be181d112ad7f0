//! Memory that the program has unmapped under its registration.
//!
//! The short ways follow addresses without asking. So whoever might meet such memory takes the long ways, until nothing
//! names it any more; these ask, and end what needs it. So does an answer to a peer's read whose memory the peer may not
//! read any more: its owner may unmap that as it likes.

use super::core::Core;
use super::endpoint::Endpoint;
use super::{Engine, Output, Time};
use crate::wire::control::CloseReason;
use crate::{Completion, ConnectionLoss, ErrorCode, Status, WorkQueue};

impl Engine {
    /// Takes note of regions that the program has unmapped.
    #[cold]
    pub fn lose_regions(&mut self) {
        if self.core.regions.lose() {
            for endpoint in self.vis.iter_mut().filter_map(|slot| slot.endpoint.as_deref_mut()) {
                endpoint.wary = true;
                endpoint.stir();
            }
        }
    }
}

impl Endpoint {
    /// What was to be sent, or answered, is gone: its descriptor has failed, and the connection is to be broken.
    #[cold]
    pub(super) fn mislay<O: Output + ?Sized>(&mut self, work: u32, answer: bool, out: &mut O) {
        self.mislaid = Some(ConnectionLoss::MemoryGone);
        if answer {
            // Of which this end has no descriptor.
            out.error(self.id, ErrorCode::RdmaReadProtection);
        } else if let Some(work) = self.sends.get_mut(work) {
            work.fail(Status::PROTECTION_ERROR);
        }
    }

    /// What was to be answered may not be read by the peer any more: the connection is to be broken.
    #[cold]
    pub(super) fn withdraw<O: Output + ?Sized>(&mut self, out: &mut O) {
        self.mislaid = Some(ConnectionLoss::RdmaProtection);
        out.error(self.id, ErrorCode::RdmaReadProtection);
    }

    /// Breaks the connection over memory that is gone, or withdrawn from the peer.
    #[cold]
    pub(super) fn lose_memory<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        loss: ConnectionLoss,
        out: &mut O,
    ) {
        let reason = match loss {
            ConnectionLoss::RdmaProtection => CloseReason::RdmaProtection,
            _ => CloseReason::MemoryGone,
        };
        self.break_off(core, now, loss, Some(reason), out);
    }

    /// The first receive names memory that is gone, if it is that.
    #[cold]
    pub(super) fn complete_unreachable<O: Output + ?Sized>(&mut self, out: &mut O) {
        let gone = |descriptor: &crate::Descriptor| {
            descriptor.segments.iter().any(|segment| segment.region().is_lost())
        };
        if self.receives.front().is_some_and(|descriptor| gone(descriptor))
            && let Some(mut descriptor) = self.receives.pop()
        {
            descriptor.set_status(Status::DONE | Status::PROTECTION_ERROR);
            descriptor.length = 0;
            descriptor.immediate = None;
            out.complete(Completion { vi: self.id, queue: WorkQueue::Receive, descriptor });
        }
    }

    /// The first read that was asked for was to bring its answer into memory that is gone.
    #[cold]
    pub(super) fn fail_read(&mut self, number: u32) {
        if let Some(work) = self.sends.get_mut(number) {
            work.hold.answered();
            work.fail(Status::PROTECTION_ERROR);
        }
    }
}
