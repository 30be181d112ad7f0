//! The short way of a frame: the one that is expected of a calm interface, by a few looks.

use uvia_driver::nic::RxFrame;

use super::Receiver;
use crate::Status;
use crate::engine::Output;
use crate::engine::core::Core;
use crate::engine::endpoint::{Endpoint, Finished};
use crate::wire::FIXED;
use crate::wire::data::Fixed;

impl Endpoint {
    /// Takes a data frame that is as expected, for the case that counts: next in order, the whole of a message, for a
    /// receive of one segment. False when it is another case: nothing was done then.
    #[inline(always)]
    pub(in crate::engine) fn take_short<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        fixed: &Fixed,
        frame: &RxFrame<'_>,
        out: &mut O,
    ) -> bool {
        let receiver = &mut self.receiver;
        if fixed.sequence != receiver.next || fixed.place() != u64::from(receiver.message) {
            return false;
        }
        debug_assert!(self.calm && self.is_undisturbed());
        debug_assert_eq!(u32::from(fixed.window), self.sender.peer_window);
        let receiver = &mut self.receiver;
        let len = usize::from(fixed.payload);
        let Some(front) = self.receives.front_slot() else { return false };
        let placed = match &front.get().segments[..] {
            // None of 0 bytes, and none of more than may be.
            [segment] => len.wrapping_sub(1) < receiver.most && segment.place(frame, FIXED, len),
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
            receiver.owes = true;
        } else {
            let at = now.soon_after(Receiver::ack_delay(fixed.flags, &core.config.tuning));
            if at < receiver.ack_at {
                receiver.ack_at = at;
                if at < self.deadline {
                    self.deadline = at;
                    core.wake_vi(self.id.slot() as u16, at);
                }
            }
        }
        self.last_heard = now;
        self.sender.acknowledge_in_order(fixed.ack, now, &core.config.tuning);
        let una = self.sender.acknowledged();
        out.complete_message(self.id, Finished { sends: &mut self.sends, una }, descriptor);
        // Calm as it is, there is nothing else that could be sent.
        if self.receiver.owes_now() {
            self.proceed(core, now, out);
            self.settle();
        }
        true
    }
}
