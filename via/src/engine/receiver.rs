//! The receiving half of a connection: frames go to where they belong, once, and descriptors complete in order.

mod parts;
mod run;

use uvia_driver::nic::RxFrame;

use super::Time;
use super::core::Core;
use super::endpoint::{Endpoint, Finished};
use super::sender::WINDOW;
use super::{Output, Tuning};
use crate::memory::MemoryRegion;
use crate::wire::FIXED;
use crate::wire::data::{self, Extensions, Fixed, Remote};
use crate::{Completion, Descriptor, MemoryHandle, Status, WorkQueue};
pub(super) use run::Run;

/// A frame's place in the stream of messages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Piece {
    pub(super) flags: u16,
    pub(super) message: u32,
    pub(super) offset: u32,
    pub(super) len: u32,
    pub(super) immediate: u32,
    pub(super) remote: Remote,
}

/// A frame that came before its turn.
#[derive(Debug, Clone, Copy, Default)]
struct Early {
    piece: Piece,
    /// Where the payload waits, if it is not in its place already.
    held: Option<u16>,
}

/// Where a piece's bytes are.
pub(super) enum Source<'a> {
    /// In the frame, from this offset on.
    Frame(&'a RxFrame<'a>, usize),
    /// Held.
    Held(u16),
    /// Where they belong.
    Placed,
}

/// Why a frame that is next in order cannot be taken. Each ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No receive is posted for it.
    Empty,
    /// The message is longer than the receive.
    Length,
    /// It may not write there.
    RdmaWrite,
    /// It may not read there.
    RdmaRead,
    /// The memory that it is for is gone: the program has unmapped it.
    Memory,
    /// It makes no sense.
    Protocol,
}

pub(super) struct Receiver {
    /// All frames before it have arrived.
    pub(super) next: u32,
    /// What the last acknowledgement said: all frames before it had arrived.
    acknowledged: u32,
    /// The message that `next` belongs to, and where in it.
    message: u32,
    offset: u32,
    /// Bits from `next` on: has arrived. Bit 0 is never set.
    seen: u64,
    /// That message is an RDMA write; counts while `offset` is not 0.
    write: bool,
    /// Of the next frame a part was taken, and not the last. There is something of its message then.
    parted: bool,
    /// An acknowledgement is due now.
    owes: bool,
    /// The latest time for the next acknowledgement.
    ack_at: Time,
    /// Bytes of a message, at most.
    most: usize,
    /// Number of a receive less the number of its message.
    shift: u32,
    /// Allocated when the first frame comes early.
    early: Vec<Early>,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            next: 0,
            acknowledged: 0,
            seen: 0,
            message: 0,
            offset: 0,
            write: false,
            parted: false,
            owes: false,
            ack_at: Time::NEVER,
            most: 0,
            shift: 0,
            early: Vec::new(),
        }
    }

    /// A connection begins: its first frame has this number, and goes to this receive.
    pub(super) fn establish(&mut self, first: u32, receive: u32, most: u32) {
        self.most = most as usize;
        self.next = first;
        self.acknowledged = first;
        self.seen = 0;
        self.message = first;
        self.offset = 0;
        self.parted = false;
        self.owes = false;
        self.ack_at = Time::NEVER;
        self.shift = receive.wrapping_sub(first);
    }

    /// The connection is no more.
    pub(super) fn forget(&mut self, core: &mut Core) {
        while self.seen != 0 {
            let sequence = self.next.wrapping_add(self.seen.trailing_zeros());
            if let Some(held) = self.early[sequence as usize % WINDOW].held.take() {
                core.held.release(held);
            }
            self.seen &= self.seen - 1;
        }
        self.owes = false;
        self.ack_at = Time::NEVER;
    }

    #[inline]
    pub(super) fn has_gap(&self) -> bool {
        self.seen != 0
    }

    /// The next frame begins this message, whatever came before it.
    pub(super) fn begin_message(&mut self, message: u32) {
        self.message = message;
        self.offset = 0;
    }

    /// What has come of the message under way counts no more: only a first frame is taken next.
    pub(super) fn give_message_up(&mut self) {
        self.offset = 0;
    }

    /// The next frame is part of this RDMA write.
    pub(super) fn expect_write(&mut self, message: u32, offset: u32) {
        self.message = message;
        self.offset = offset;
        self.write = true;
    }

    /// Whether the next frame begins that message.
    pub(super) fn is_at(&self, message: u32) -> bool {
        self.offset == 0 && self.message == message
    }

    /// Whether the next frame begins a message, and none came early.
    pub(super) fn is_between_messages(&self) -> bool {
        self.seen == 0 && self.offset == 0
    }

    /// All that has arrived is acknowledged, where nothing came early and nothing is owed.
    #[inline(always)]
    pub(super) fn acknowledged_all(&mut self) {
        self.acknowledged = self.next;
        self.ack_at = Time::NEVER;
    }

    /// Whether a part of an RDMA write has come, and the rest has not.
    pub(super) fn is_within_write(&self) -> bool {
        self.write && self.offset != 0
    }

    /// Frames since the last acknowledgement.
    #[inline(always)]
    fn unacknowledged(&self) -> u32 {
        self.next.wrapping_sub(self.acknowledged)
    }

    /// Bit n: frame `next` + 1 + n has arrived.
    pub(super) fn selective(&self) -> u64 {
        self.seen >> 1
    }

    #[inline]
    pub(super) fn owes_now(&self) -> bool {
        self.owes
    }

    /// When an acknowledgement has to be sent at the latest.
    pub(super) fn ack_at(&self) -> Time {
        self.ack_at
    }

    /// The latest time is there, or somebody wants an acknowledgement at once.
    pub(super) fn owe(&mut self) {
        self.owes = true;
        self.ack_at = Time::NEVER;
    }

    /// All that has arrived is acknowledged, `complete` with what came early.
    #[inline]
    pub(super) fn acknowledged(&mut self, complete: bool) {
        self.acknowledged = self.next;
        self.ack_at = Time::NEVER;
        if complete || self.seen == 0 {
            self.owes = false;
        }
    }

    fn ack_delay(flags: u16, tuning: &Tuning) -> u64 {
        if flags & data::DRY != 0 { tuning.ack_delay_dry } else { tuning.ack_delay }
    }
}

impl Endpoint {
    /// Takes a data frame that is as expected, for the case that counts: next in order, the whole of a message, for a
    /// receive of one segment. False when it is another case: nothing was done then.
    #[inline(always)]
    pub(super) fn take_short<O: Output + ?Sized>(
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

    /// Takes a data frame of this connection.
    pub(super) fn take_frame<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        fixed: &Fixed,
        extensions: &Extensions,
        frame: &RxFrame<'_>,
        out: &mut O,
    ) -> Result<(), Refusal> {
        let mut piece = Piece {
            flags: fixed.flags,
            message: fixed.message,
            offset: fixed.offset,
            len: u32::from(fixed.payload),
            immediate: extensions.immediate,
            remote: extensions.remote,
        };
        let mut from = FIXED + data::extension_bytes(fixed.flags);
        if self.is_unreliable() {
            self.take_unreliable(core, fixed.sequence, &piece, frame, from, out);
            return Ok(());
        }
        let distance = fixed.sequence.wrapping_sub(self.receiver.next);
        if distance != 0 {
            self.take_early(core, distance, &piece, frame, from);
            return Ok(());
        }
        if (self.receiver.parted || piece.flags & data::PART != 0) && !self.pass_over(&mut piece, &mut from) {
            return Ok(());
        }
        if piece.flags & data::READ != 0 && !self.reads.has_room(self.sender.acknowledged()) {
            // It has to come again. What came early is taken in any case: the peer was told that it is here.
            return Ok(());
        }
        if self.receives.is_empty() && self.lets_wait(&piece) {
            self.wait_for_receive(core, now);
            return Ok(());
        }
        self.take(core, &piece, Source::Frame(frame, from), out)?;
        let receiver = &mut self.receiver;
        receiver.parted = piece.flags & data::MORE != 0;
        if receiver.parted {
            return Ok(());
        }
        receiver.next = receiver.next.wrapping_add(1);
        if fixed.flags & data::NOW != 0 || receiver.unacknowledged() >= core.ack_every {
            receiver.owes = true;
        }
        if receiver.seen != 0 {
            self.take_those_that_waited(core, out)?;
        }
        if !self.receiver.owes {
            let at = now.after(Receiver::ack_delay(fixed.flags, &core.config.tuning));
            if at < self.receiver.ack_at {
                self.receiver.ack_at = at;
                self.wake(core, at);
            }
        }
        Ok(())
    }

    /// A gap closed: what waited behind it is next in order.
    #[cold]
    fn take_those_that_waited<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        out: &mut O,
    ) -> Result<(), Refusal> {
        // The sender waits for this.
        self.receiver.owes = true;
        self.receiver.seen >>= 1;
        while self.receiver.seen & 1 != 0 {
            let entry = &mut self.receiver.early[self.receiver.next as usize % WINDOW];
            let piece = entry.piece;
            let source = match entry.held.take() {
                Some(slot) => Source::Held(slot),
                None => Source::Placed,
            };
            self.take(core, &piece, source, out)?;
            self.receiver.next = self.receiver.next.wrapping_add(1);
            self.receiver.seen >>= 1;
        }
        Ok(())
    }

    /// A frame behind a gap, or one that was here before. If it cannot be put anywhere it is forgotten, and
    /// comes again: only the frame that is next in order can be wrong.
    #[cold]
    fn take_early(
        &mut self,
        core: &mut Core,
        distance: u32,
        piece: &Piece,
        frame: &RxFrame<'_>,
        from: usize,
    ) {
        self.receiver.owes = true;
        if piece.flags & data::PART != 0 {
            // What is before it may be lost: it comes again.
            return;
        }
        if distance >= WINDOW as u32 || self.receiver.seen & (1 << distance) != 0 {
            return;
        }
        if piece.flags & data::WRITE != 0 && self.lets_wait(piece) {
            // Once it is here it has to be taken, and there may be no receive for it then.
            return;
        }
        let len = piece.len as usize;
        let held = if piece.flags & data::READ != 0 {
            None
        } else if piece.flags & data::ANSWER != 0 {
            if !self.place_answer(piece, frame, from) {
                return;
            }
            None
        } else if piece.flags & data::WRITE != 0 {
            if len == 0 {
                None
            } else {
                match core.held.keep(frame, from, len) {
                    Some(slot) => Some(slot),
                    None => return,
                }
            }
        } else {
            let number = piece.message.wrapping_add(self.receiver.shift);
            let end = u64::from(piece.offset) + u64::from(piece.len);
            match self.receives.get(number) {
                Some(descriptor) if end <= descriptor.segment_bytes() => {
                    if !scatter(descriptor, piece.offset, frame, from, len) {
                        return;
                    }
                }
                _ => return,
            }
            None
        };
        let sequence = self.receiver.next.wrapping_add(distance);
        if self.receiver.early.is_empty() {
            self.receiver.early.resize(WINDOW, Early::default());
        }
        self.receiver.early[sequence as usize % WINDOW] = Early { piece: *piece, held };
        self.receiver.seen |= 1 << distance;
    }

    /// Takes the piece that is next in order.
    pub(super) fn take<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        piece: &Piece,
        source: Source<'_>,
        out: &mut O,
    ) -> Result<(), Refusal> {
        if piece.flags & data::WRITE != 0 {
            return self.take_write(core, piece, source, out);
        }
        if piece.flags & data::READ != 0 {
            return self.take_read(core, piece);
        }
        if piece.flags & data::ANSWER != 0 {
            return self.take_answer(piece, &source, out);
        }
        let receiver = &mut self.receiver;
        if piece.message != receiver.message
            || piece.offset != receiver.offset
            || (receiver.write && piece.offset != 0)
        {
            return Err(Refusal::Protocol);
        }
        // Sound frames have no offset that overflows.
        let end = piece.offset + piece.len;
        let Some(descriptor) = self.receives.front() else { return Err(Refusal::Empty) };
        if u64::from(end) > descriptor.segment_bytes() {
            return Err(Refusal::Length);
        }
        if end > self.attributes.max_transfer_size {
            return Err(Refusal::Protocol);
        }
        if let Source::Frame(frame, from) = source
            && !scatter(descriptor, piece.offset, frame, from, piece.len as usize)
        {
            // Lengths were checked.
            return Err(Refusal::Memory);
        }
        if piece.flags & data::LAST != 0 {
            self.complete_receive(end, piece, Status::DONE, out);
        } else {
            receiver.offset = end;
            receiver.write = false;
        }
        Ok(())
    }

    /// Takes a piece of an RDMA write that is next in order.
    fn take_write<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        piece: &Piece,
        source: Source<'_>,
        out: &mut O,
    ) -> Result<(), Refusal> {
        let receiver = &mut self.receiver;
        let end = piece.offset + piece.len;
        let last = piece.flags & data::LAST != 0;
        let Remote { address, handle, total } = piece.remote;
        let ordered = piece.message == receiver.message
            && piece.offset == receiver.offset
            && (receiver.write || piece.offset == 0)
            && (if last { end == total } else { end < total })
            && total <= self.attributes.max_transfer_size;
        // What was held is let go of in any case.
        let held = match source {
            Source::Held(slot) => Some(slot),
            _ => None,
        };
        let target = match core.regions.get(MemoryHandle(handle)) {
            _ if !ordered => Err(Refusal::Protocol),
            _ if !self.attributes.rdma_write => Err(Refusal::RdmaWrite),
            // No byte is touched: such a write is a signal, and needs no memory to be named.
            _ if total == 0 => Ok(None),
            Some(region) => match self.writable(&region, address, total) {
                Some(offset) => Ok(Some((region, offset + piece.offset as usize))),
                None => Err(Refusal::RdmaWrite),
            },
            None => Err(Refusal::RdmaWrite),
        };
        let placed = match (&target, source) {
            (Ok(Some((region, offset))), Source::Frame(frame, from)) => {
                region.place(*offset, frame, from, piece.len as usize)
            }
            (Ok(Some((region, offset))), Source::Held(slot)) => {
                core.put_held(slot, piece.len as usize, region, *offset)
            }
            (_, _) => {
                if let Some(slot) = held {
                    core.held.release(slot);
                }
                true
            }
        };
        let target = target?;
        if !placed {
            return Err(Refusal::Protocol);
        }
        if !last {
            self.receiver.offset = end;
            self.receiver.write = true;
            if let Some((region, offset)) = target {
                self.begin_run(core, piece.remote, region, offset - piece.offset as usize);
            }
            return Ok(());
        }
        self.receiver.offset = 0;
        if piece.flags & data::IMMEDIATE != 0 {
            if self.receives.is_empty() {
                return Err(Refusal::Empty);
            }
            self.complete_receive(end, piece, Status::DONE | Status::REMOTE_RDMA_WRITE, out);
        }
        Ok(())
    }

    /// Where in the region an RDMA write begins, if all of it is allowed.
    fn writable(&self, region: &MemoryRegion, address: u64, total: u32) -> Option<usize> {
        let attributes = region.attributes();
        if !attributes.rdma_write || attributes.tag != self.attributes.tag {
            return None;
        }
        region.remote_offset(address, total as usize)
    }

    /// The first receive has all that it gets.
    #[inline]
    fn complete_receive<O: Output + ?Sized>(
        &mut self,
        length: u32,
        piece: &Piece,
        mut status: Status,
        out: &mut O,
    ) {
        let Some(mut descriptor) = self.receives.pop() else { return };
        descriptor.immediate = None;
        if piece.flags & data::IMMEDIATE != 0 {
            descriptor.immediate = Some(piece.immediate);
            status |= Status::IMMEDIATE;
        }
        descriptor.set_status(status);
        descriptor.length = length;
        self.receiver.message = self.receiver.message.wrapping_add(1);
        self.receiver.offset = 0;
        out.complete(Completion { vi: self.id, queue: WorkQueue::Receive, descriptor });
    }

    /// The first receive is too short for its message.
    #[cold]
    pub(super) fn complete_too_short<O: Output + ?Sized>(&mut self, out: &mut O) {
        if let Some(mut descriptor) = self.receives.pop() {
            descriptor.set_status(Status::DONE | Status::LENGTH_ERROR);
            descriptor.length = 0;
            descriptor.immediate = None;
            out.complete(Completion { vi: self.id, queue: WorkQueue::Receive, descriptor });
        }
    }
}

/// Copies a frame's payload to where it belongs in a descriptor's segments.
#[inline]
pub(super) fn scatter(
    descriptor: &Descriptor,
    offset: u32,
    frame: &RxFrame<'_>,
    from: usize,
    len: usize,
) -> bool {
    if let [segment] = &descriptor.segments[..] {
        return segment.region().place(segment.offset() + offset as usize, frame, from, len);
    }
    scatter_over(descriptor, offset, frame, from, len)
}

fn scatter_over(descriptor: &Descriptor, offset: u32, frame: &RxFrame<'_>, from: usize, len: usize) -> bool {
    let mut skip = offset as usize;
    let mut done = 0;
    for segment in &descriptor.segments {
        if done == len {
            break;
        }
        let size = segment.len() as usize;
        if skip >= size {
            skip -= size;
            continue;
        }
        let here = (size - skip).min(len - done);
        if !segment.region().place(segment.offset() + skip, frame, from + done, here) {
            return false;
        }
        skip = 0;
        done += here;
    }
    done == len
}
