//! The frames in the middle of an RDMA write, as they come in order: what each of them names is looked up once for all that
//! come in one burst, and a frame is then a few comparisons and a copy.
//!
//! Whatever is not just so (a gap, a frame that came before, the last frame, another memory) goes the general way, which
//! also begins the next run.

use uvia_driver::nic::RxFrame;

use crate::ViState;
use crate::engine::core::Core;
use crate::engine::endpoint::Endpoint;
use crate::engine::{Engine, Output, Slot, Time};
use crate::memory::MemoryRegion;
use crate::wire::data::{self, Fixed, Remote};
use crate::wire::{self, FIXED};

/// Words of the header of a frame of an RDMA write that has nothing else.
const WORDS: usize = (FIXED + 16) / 8;

/// An RDMA write that is coming in, with what its frames name. It holds the region, so that it is let go of at the end of
/// the burst: the next poll. What was checked holds as long, since rights, tags and interfaces change under the NIC's lock
/// only, between bursts.
pub(in crate::engine) struct Run {
    /// Whose it is, in the table of interfaces.
    slot: u16,
    /// The memory, as frames name it.
    remote: Remote,
    region: MemoryRegion,
    /// Where in the region the write begins.
    start: usize,
}

impl Run {
    /// A write into memory that was found and checked.
    pub(super) fn new(slot: u16, remote: Remote, region: MemoryRegion, start: usize) -> Self {
        Self { slot, remote, region, start }
    }
}

impl Engine {
    /// Takes a frame in the middle of the RDMA write that is coming in. False when it is another one: nothing was done then.
    #[inline]
    pub(in crate::engine) fn take_of_run<O: Output + ?Sized>(
        &mut self,
        now: Time,
        frame: &RxFrame<'_>,
        out: &mut O,
    ) -> bool {
        let Some(words) = frame.words::<WORDS>() else { return false };
        let [a, b, c, d, e, f, address, rest] = words;
        let head = [a, b, c, d, e, f];
        let fixed = Fixed::read(&head);
        let Some(run) = &self.core.run else { return false };
        if wire::kind(&head) != Some(data::DATA)
            || fixed.flags & !data::NOW != data::WRITE
            || fixed.slot != run.slot
            || address != run.remote.address
            || rest != u64::from(run.remote.handle) | u64::from(run.remote.total) << 32
        {
            return false;
        }
        match self.vis.get_mut(usize::from(fixed.slot)) {
            Some(Slot { endpoint: Some(endpoint), .. }) if endpoint.identity == fixed.identity => {
                endpoint.take_of_run(&mut self.core, now, &fixed, frame, out)
            }
            _ => false,
        }
    }
}

impl Endpoint {
    /// Whether frames of a write may be taken without a look at more than the frame: nothing is computed of them, and
    /// none is let through that is out of order.
    pub(super) fn has_runs(&self) -> bool {
        !self.integrity && !self.is_unreliable() && !self.wary && self.handshake.is_none()
    }

    #[inline]
    fn take_of_run<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        fixed: &Fixed,
        frame: &RxFrame<'_>,
        out: &mut O,
    ) -> bool {
        let Some(run) = &core.run else { return false };
        let receiver = &mut self.receiver;
        let len = u32::from(fixed.payload);
        // No offset of a write that is under way is beyond its total, which is far from overflowing.
        let end = receiver.offset + len;
        let next = self.state == ViState::Connected
            && receiver.seen == 0
            && receiver.write
            && receiver.offset != 0
            && fixed.sequence == receiver.next
            && fixed.message == receiver.message
            && fixed.offset == receiver.offset
            && len != 0
            && end < run.remote.total;
        if !next || !run.region.place(run.start + receiver.offset as usize, frame, WORDS * 8, len as usize) {
            return false;
        }
        #[cfg(test)]
        {
            core.in_runs += 1;
        }
        receiver.next = receiver.next.wrapping_add(1);
        receiver.offset = end;
        if fixed.flags & data::NOW != 0 || receiver.unacknowledged() >= core.ack_every {
            receiver.owes = true;
        } else if receiver.ack_at == Time::NEVER {
            receiver.ack_at = now.after(core.config.tuning.ack_delay);
            let at = receiver.ack_at;
            self.wake(core, at);
        }
        self.last_heard = now;
        self.probes = 0;
        let window = u32::from(fixed.window);
        let news = fixed.ack != self.sender.acknowledged() || window != self.sender.peer_window;
        if news {
            self.sender.peer_window = window;
            if self.sender.acknowledge(fixed.ack, 0, now, &core.config.tuning) {
                self.complete_sends(out);
            }
        }
        if (news || self.receiver.owes) && !self.queued && self.has_work() {
            // In the poll at the burst's end, with all that comes until then.
            self.enqueue(core);
        }
        true
    }
}
