//! RDMA reads: those that we asked for, and those that we answer.
//!
//! A read is asked for by one frame, and answered by frames in the stream of the other direction, so that sequence
//! numbers, acknowledgements and retransmission serve it as they serve messages. Answers have a queue of their own and
//! go before what the program posts: were they to wait behind it, two ends whose sends wait for reads (fenced, or
//! because too many are under way) would wait for each other.

use std::collections::VecDeque;

use uvia_driver::nic::RxFrame;

use super::Output;
use super::core::Core;
use super::endpoint::{Endpoint, SendWork};
use super::hold::Stage;
use super::receiver::{Piece, Refusal, Source, scatter};
use crate::ring::Ring;
use crate::wire::data;
use crate::{Descriptor, MemoryHandle, MemoryRegion, Operation, ViAttributes};

/// Most reads of an interface that wait for their answer; more wait to be asked for.
const READS: usize = 16;
/// Answers in their queue from which on a request has to come again; those that came early are let in still, of which
/// there are fewer than a window. A peer that keeps to [`READS`] gets here only where the adapter is slow to let go of
/// old answers.
const ANSWERS: usize = 64;

/// The reads of a connection.
pub(super) struct Reads {
    /// Numbers in the send queue of those that we asked for, in order.
    asked: VecDeque<u32>,
    /// The number, among the connection's reads, of the first of those.
    first: u32,
    /// Bytes of its answer that have come.
    offset: u32,
    /// The number of the peer's next read.
    next: u32,
    /// What is to be sent, or to be acknowledged, in answer to the peer's.
    pub(super) answers: Ring<SendWork>,
    // Posted by the box: what is kept is the box.
    #[expect(clippy::vec_box)]
    spare: Vec<Box<Descriptor>>,
}

impl Reads {
    pub(super) fn new() -> Self {
        Self {
            asked: VecDeque::new(),
            first: 0,
            offset: 0,
            next: 0,
            answers: Ring::new(1),
            spare: Vec::new(),
        }
    }

    /// A connection begins, or is over: answers that the adapter still refers to are all that is left.
    pub(super) fn reset(&mut self) {
        self.asked.clear();
        self.first = 0;
        self.offset = 0;
        self.next = 0;
        let mut number = self.answers.head();
        while let Some(answer) = self.answers.get_mut(number) {
            answer.hold.set_stage(Stage::Ended);
            number = number.wrapping_add(1);
        }
        self.release(0);
    }

    /// Whether a work may begin now: a read when there are not too many, what is fenced when there are none.
    pub(super) fn may_begin(&self, work: &SendWork) -> bool {
        let read = matches!(work.descriptor.operation, Operation::RdmaRead(_));
        !(read && self.asked.len() >= READS || work.descriptor.fence && !self.asked.is_empty())
    }

    /// The number of the answer that is next, among the connection's reads, and how much of it has come.
    pub(super) fn expected(&self) -> (u32, u32) {
        (self.first, self.offset)
    }

    /// A read was asked for; its number in the send queue.
    pub(super) fn asked(&mut self, work: u32) {
        self.asked.push_back(work);
    }

    /// Whether one more of the peer's can be taken, when all frames before `una` are acknowledged.
    pub(super) fn has_room(&mut self, una: u32) -> bool {
        self.release(una);
        self.answers.len() < ANSWERS
    }

    /// Lets go of answers that have arrived.
    pub(super) fn release(&mut self, una: u32) {
        while let Some(front) = self.answers.front_slot() {
            let answer = front.get();
            if !answer.has_arrived(una) || !answer.hold.is_free() {
                break;
            }
            let mut descriptor = front.take().descriptor;
            descriptor.segments.clear();
            if self.spare.len() < READS {
                self.spare.push(descriptor);
            }
        }
    }
}

/// Whether peers of an interface with these attributes may read the region.
fn may_read(region: &MemoryRegion, attributes: &ViAttributes) -> bool {
    let theirs = region.attributes();
    theirs.rdma_read && theirs.tag == attributes.tag
}

/// Whether more of an answer may be sent, for the first time or again: the peer may still read what it is from. Who has
/// taken that right back has the memory to itself, and may unmap it. What the program has unmapped already is found where
/// it is fetched.
#[inline]
pub(super) fn answers_may_go_on(answer: &SendWork, attributes: &ViAttributes) -> bool {
    answer.descriptor.segments.iter().all(|segment| {
        let region = segment.region();
        may_read(region, attributes) || region.is_lost()
    })
}

impl Endpoint {
    /// Takes the peer's request for a read, which is next in order: its answer is put into the send queue.
    pub(super) fn take_read(&mut self, core: &Core, piece: &Piece) -> Result<(), Refusal> {
        let total = piece.remote.total;
        if !self.receiver.is_at(piece.message) || total > self.attributes.max_transfer_size {
            return Err(Refusal::Protocol);
        }
        if !self.attributes.rdma_read {
            return Err(Refusal::RdmaRead);
        }
        let mut descriptor = self.reads.spare.pop().unwrap_or_default();
        // Where no byte is asked for, no memory needs to be named.
        if total != 0 {
            let region = core.regions.get(MemoryHandle(piece.remote.handle)).ok_or(Refusal::RdmaRead)?;
            let offset = self.readable(&region, piece.remote.address, total).ok_or(Refusal::RdmaRead)?;
            let segment = region.segment(offset..offset + total as usize).map_err(|_| Refusal::RdmaRead)?;
            descriptor.segments.push(segment);
        }
        // Which read of the connection it answers.
        descriptor.context = u64::from(self.reads.next);
        self.reads.next = self.reads.next.wrapping_add(1);
        self.reads.answers.push(SendWork::new(descriptor, total));
        Ok(())
    }

    /// Where in the region a read begins, if all of it is allowed.
    fn readable(&self, region: &MemoryRegion, address: u64, total: u32) -> Option<usize> {
        let allowed = may_read(region, &self.attributes);
        if allowed { region.remote_offset(address, total as usize) } else { None }
    }

    /// Takes a part of an answer that is next in order.
    pub(super) fn take_answer<O: Output + ?Sized>(
        &mut self,
        piece: &Piece,
        source: &Source<'_>,
        out: &mut O,
    ) -> Result<(), Refusal> {
        let reads = &mut self.reads;
        let number = *reads.asked.front().ok_or(Refusal::Protocol)?;
        let work = self.sends.get_mut(number).ok_or(Refusal::Protocol)?;
        // Sound frames have no offset that overflows.
        let end = piece.offset + piece.len;
        let last = piece.flags & data::LAST != 0;
        let ordered = piece.message == reads.first
            && piece.offset == reads.offset
            && (if last { end == work.total() } else { end < work.total() });
        if !ordered {
            return Err(Refusal::Protocol);
        }
        if let Source::Frame(frame, from) = source
            && !scatter(&work.descriptor, piece.offset, frame, *from, piece.len as usize)
        {
            if end > work.total() {
                return Err(Refusal::Protocol);
            }
            self.fail_read(number);
            return Err(Refusal::Memory);
        }
        if !last {
            reads.offset = end;
            return Ok(());
        }
        reads.offset = 0;
        reads.first = reads.first.wrapping_add(1);
        reads.asked.pop_front();
        work.hold.answered();
        if work.hold.is_free() {
            self.complete_sends(out);
        }
        Ok(())
    }

    /// Puts a part of an answer that came before its turn where it belongs: nobody looks there before all has come.
    pub(super) fn place_answer(&mut self, piece: &Piece, frame: &RxFrame<'_>, from: usize) -> bool {
        let index = piece.message.wrapping_sub(self.reads.first) as usize;
        let Some(number) = self.reads.asked.get(index) else { return false };
        let Some(work) = self.sends.get(*number) else { return false };
        piece.offset + piece.len <= work.total()
            && scatter(&work.descriptor, piece.offset, frame, from, piece.len as usize)
    }
}
