//! The short way of a frame: the one that is expected of a calm interface, by a few looks.

use uvia_driver::nic::RxFrame;

use super::Receiver;
use crate::engine::Output;
use crate::engine::core::Core;
use crate::engine::endpoint::{Endpoint, Finished};
use crate::wire::data::Fixed;
use crate::wire::{FIXED, Words};
use crate::{Descriptor, Status};

impl Endpoint {
    /// Whether a frame is the one that counts: of this connection, as expected, next in order, the whole of a message. All
    /// of it in one branch.
    #[inline(always)]
    pub(in crate::engine) fn expects(&self, head: &Words) -> bool {
        let receiver = &self.receiver;
        self.expected.differs(head, self.identity, receiver.next, receiver.message) == 0
    }

    /// Takes such a frame, for a receive of one segment. False when there is another case: nothing was done then.
    #[inline(always)]
    pub(in crate::engine) fn take_short<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        fixed: &Fixed,
        frame: &RxFrame<'_>,
        out: &mut O,
    ) -> bool {
        debug_assert!(self.calm && self.is_undisturbed());
        debug_assert_eq!(u32::from(fixed.window), self.sender.peer_window);
        let receiver = &mut self.receiver;
        let len = usize::from(fixed.payload);
        let Some(front) = self.receives.front_slot() else { return false };
        let placed = match &front.get().segments[..] {
            [segment] => segment.place(frame, FIXED, len, receiver.most),
            _ => false,
        };
        if !placed {
            return false;
        }
        // Read only now, so that it need not be kept meanwhile.
        let now = core.now;
        let mut descriptor = front.take();
        descriptor.immediate = None;
        descriptor.set_status(Status::DONE);
        descriptor.length = len as u32;
        receiver.next = receiver.next.wrapping_add(1);
        receiver.message = receiver.message.wrapping_add(1);
        if receiver.unacknowledged() >= core.ack_every {
            self.finish_and_acknowledge(core, fixed.ack, descriptor, out);
            return true;
        }
        let at = now.soon_after(Receiver::ack_delay(fixed.flags, &core.config.tuning));
        receiver.ack_at = receiver.ack_at.min(at);
        // Where it was not the first, the deadline is no later either.
        if at < self.deadline {
            self.deadline = at;
            core.wake_vi(self.id.slot() as u16, at);
        }
        // Calm as it is, there is nothing that could be sent; who owes an acknowledgement already waits for a turn.
        self.finish_short(core, fixed.ack, descriptor, out);
        true
    }

    /// What it acknowledges, and its receive, are done with.
    #[inline(always)]
    fn finish_short<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        ack: u32,
        receive: Box<Descriptor>,
        out: &mut O,
    ) {
        self.last_heard = core.now;
        self.sender.acknowledge_in_order(ack, core.now, &core.config.tuning);
        let una = self.sender.acknowledged();
        out.complete_message(self.id, Finished { sends: &mut self.sends, una }, receive);
    }

    /// As [`Endpoint::finish_short`], where so many have come that they are acknowledged at once.
    #[inline(never)]
    fn finish_and_acknowledge<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        ack: u32,
        receive: Box<Descriptor>,
        out: &mut O,
    ) {
        self.receiver.owes = true;
        self.finish_short(core, ack, receive, out);
        self.proceed(core, core.now, out);
        self.settle();
    }
}
