//! The frames in the middle of an RDMA write, as they come in order: what each of them names is looked up once for all that
//! come in one burst, and a frame is then a comparison and a copy.
//!
//! Whatever is not just so (a gap, a frame that came before, the last frame, another memory) goes the general way, which
//! also begins the next run.

use uvia_driver::nic::RxFrame;

use crate::engine::core::Core;
use crate::engine::endpoint::Endpoint;
use crate::engine::{Engine, Output, Slot, Time};
use crate::memory::MemoryRegion;
use crate::wire::data::{self, Remote};
use crate::wire::{self, FIXED};

/// Words of the header of a frame of an RDMA write that has nothing else.
const WORDS: usize = (FIXED + 16) / 8;
/// Of a header's third word: flags and slot, but for what any frame may ask for.
const FLAGS_AND_SLOT: u64 = (u32::MAX ^ data::NOW as u32) as u64;

/// An RDMA write that is coming in, with what its frames name. It holds the region, so that it is let go of at the end of
/// the burst: the next poll. What was checked holds as long, since rights, tags and interfaces change under the NIC's lock
/// only, between bursts.
pub(in crate::engine) struct Run {
    /// Whose it is, in the table of interfaces, and of which connection.
    slot: u16,
    identity: u64,
    /// The memory, as frames name it.
    remote: Remote,
    region: MemoryRegion,
    /// Where in the region the write begins.
    start: usize,
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
        let Some(words) = frame.words() else { return false };
        let Some(run) = &self.core.run else { return false };
        match self.vis.get_mut(usize::from(run.slot)) {
            Some(Slot { endpoint: Some(endpoint), .. }) => {
                endpoint.take_of_run(&mut self.core, now, &words, frame, out)
            }
            _ => false,
        }
    }
}

impl Endpoint {
    /// Begins a run with a write into memory that was found and checked, where its frames may be taken without a look at
    /// more than their headers: nothing is computed of them, and none is let through that is out of order.
    pub(super) fn begin_run(&self, core: &mut Core, remote: Remote, region: MemoryRegion, start: usize) {
        if !self.integrity && !self.is_unreliable() && !self.wary && self.handshake.is_none() {
            core.begin_run(Run { slot: self.slot(), identity: self.identity, remote, region, start });
        }
    }

    #[inline(always)]
    fn take_of_run<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        words: &[u64; WORDS],
        frame: &RxFrame<'_>,
        out: &mut O,
    ) -> bool {
        let Some(run) = &core.run else { return false };
        let receiver = &mut self.receiver;
        let [_, signature, lengths, identity, numbers, place, address, rest] = *words;
        // What has to be as expected, all in one look. A connection that is over has another identity, or none.
        let other = (signature ^ wire::signature(data::DATA)) & wire::SIGNATURE_AND_KIND
            | (lengths ^ (u64::from(data::WRITE) | u64::from(run.slot) << 16)) & FLAGS_AND_SLOT
            | identity ^ run.identity
            | self.identity ^ run.identity
            | u64::from(numbers as u32 ^ receiver.next)
            | place ^ (u64::from(receiver.message) | u64::from(receiver.offset) << 32)
            | address ^ run.remote.address
            | rest ^ (u64::from(run.remote.handle) | u64::from(run.remote.total) << 32)
            | receiver.seen;
        if other != 0 || !receiver.write || receiver.offset == 0 {
            return false;
        }
        let len = u32::from((lengths >> 32) as u16);
        // No offset of a write that is under way is beyond its total, which is far from overflowing.
        let end = receiver.offset + len;
        if len == 0
            || end >= run.remote.total
            || !run.region.place(run.start + receiver.offset as usize, frame, WORDS * 8, len as usize)
        {
            return false;
        }
        #[cfg(test)]
        {
            core.in_runs += 1;
        }
        receiver.next = receiver.next.wrapping_add(1);
        receiver.offset = end;
        if lengths & u64::from(data::NOW) != 0 || receiver.unacknowledged() >= core.ack_every {
            receiver.owes = true;
        } else if receiver.ack_at == Time::NEVER {
            receiver.ack_at = now.after(core.config.tuning.ack_delay);
            let at = receiver.ack_at;
            self.wake(core, at);
        }
        self.last_heard = now;
        self.probes = 0;
        let (window, ack) = ((lengths >> 48) as u32, (numbers >> 32) as u32);
        let news = ack != self.sender.acknowledged() || window != self.sender.peer_window;
        if news || self.receiver.owes && !self.queued {
            self.answer_run(core, now, window, ack, out);
        }
        true
    }

    /// There may be something to be sent: in the poll at the burst's end, with all that comes until then.
    #[inline(never)]
    fn answer_run<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        window: u32,
        ack: u32,
        out: &mut O,
    ) {
        self.sender.peer_window = window;
        if self.sender.acknowledge(ack, 0, now, &core.config.tuning) {
            self.complete_sends(out);
        }
        if self.has_work() {
            self.enqueue(core);
        }
    }
}
