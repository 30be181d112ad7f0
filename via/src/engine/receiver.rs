//! The receiving half of a connection: frames go to where they belong, once, and descriptors complete in order.

mod early;
mod parts;
mod run;
mod scatter;
mod short;
mod write;

use uvia_driver::nic::RxFrame;

use super::Time;
use super::core::Core;
use super::endpoint::Endpoint;
use super::sender::WINDOW;
use super::{Output, Tuning};
use crate::wire::FIXED;
use crate::wire::data::{self, Extensions, Fixed, Remote};
use crate::{Completion, Status, WorkQueue};
use early::Early;
pub(super) use run::Run;
pub(super) use scatter::scatter;

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
