//! Frames as they are offered to the adapter: header, extensions, and where the payload lies.

use super::{Flight, Place};
use crate::engine::core::Core;
use crate::engine::endpoint::Endpoint;
use crate::engine::reads::answers_may_go_on;
use crate::engine::{ANSWER, FrameToken, Output, PayloadPart, Sent, Time};
use crate::wire::data::{self, Extensions, Fixed, Remote};
use crate::wire::{ETHERNET, FIXED, crc, put_u32};
use crate::{Operation, Segment};

/// Gather entries that a frame's payload takes at most.
const MAX_PARTS: usize = 16;

impl Endpoint {
    /// Offers a frame to the adapter. `flight.len` is what the frame has room for, and becomes what it got.
    /// Answers where the payload of the next frame begins; none when there is no room.
    #[inline]
    pub(super) fn transmit<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        flight: &mut Flight,
        sequence: u32,
        mut flags: u16,
        out: &mut O,
    ) -> Option<Place> {
        let mut token = self.token | u64::from(flight.work);
        let works = if flight.answer {
            token |= ANSWER;
            &mut self.reads.answers
        } else {
            &mut self.sends
        };
        let token = FrameToken(token);
        let work = works.get_mut(flight.work)?;
        if flight.answer && !answers_may_go_on(work, &self.attributes) {
            self.withdraw(out);
            return None;
        }
        let segments = &work.descriptor.segments[..];
        let mut parts_room;
        let mut single;
        let mut next = flight.place;
        let parts: &[PayloadPart<'_>] = match segments.get(flight.place.segment as usize) {
            Some(segment) if segment.len() - flight.place.within >= flight.len && flight.len != 0 => {
                single = PayloadPart {
                    region: segment.region(),
                    offset: segment.offset() + flight.place.within as usize,
                    len: flight.len as usize,
                };
                next.within += flight.len;
                std::slice::from_mut(&mut single)
            }
            Some(segment) if flight.len != 0 => {
                let empty = PayloadPart { region: segment.region(), offset: 0, len: 0 };
                parts_room = [empty; MAX_PARTS];
                let limit = core.config.max_segments.min(MAX_PARTS);
                let count = gather(segments, &mut next, &mut flight.len, &mut parts_room[..limit]);
                &parts_room[..count]
            }
            _ => &[],
        };

        let mut extensions = Extensions::default();
        if flight.answer {
            flags |= data::ANSWER;
        }
        if flight.offset + flight.len == work.outgoing() {
            flags |= data::LAST;
            if let Some(immediate) = work.descriptor.immediate {
                flags |= data::IMMEDIATE;
                extensions.immediate = immediate;
            }
        } else {
            flags &= !data::DRY;
        }
        let remote = match work.descriptor.operation {
            Operation::Send => None,
            Operation::RdmaWrite(remote) => Some((data::WRITE, remote)),
            Operation::RdmaRead(remote) => Some((data::READ, remote)),
        };
        if let Some((flag, remote)) = remote {
            flags |= flag;
            extensions.remote =
                Remote { address: remote.address, handle: remote.handle.0, total: work.total() };
        }
        if self.integrity {
            flags |= data::CRC;
        }
        if self.receiver.has_gap() {
            let room = self.sender.room as usize + FIXED - ETHERNET + if self.integrity { 4 } else { 0 };
            let taken = FIXED - ETHERNET + data::extension_bytes(flags) + flight.len as usize;
            if taken + 8 <= room {
                flags |= data::SACK;
                extensions.sack = self.receiver.selective();
            }
        }
        let fixed = Fixed {
            flags,
            slot: 0,
            payload: flight.len as u16,
            window: core.share,
            identity: 0,
            sequence,
            ack: self.receiver.next,
            message: flight.message,
            offset: flight.offset,
        };
        let mut header = fixed.header(&self.route, data::DATA);
        let len = extensions.put(&mut header, flags);
        if self.integrity {
            let check = crc::of_parts(&header[..len], parts);
            put_u32(&mut header, len - 4, check);
        }
        match out.transmit(&header[..len], parts, token) {
            Sent::Full => return None,
            Sent::Copied => {}
            Sent::Referenced => work.hold.refer(),
            Sent::Gone => {
                self.mislay(flight.work, flight.answer, out);
                return None;
            }
        }
        self.receiver.acknowledged(flags & data::SACK != 0);
        Some(next)
    }

    /// Sends an acknowledgement alone; when the adapter has no room it is owed still.
    #[cold]
    pub(in crate::engine) fn send_ack<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        mut flags: u16,
        out: &mut O,
    ) {
        if core.full {
            return self.enqueue(core);
        }
        if self.is_starved() {
            flags |= data::NOT_READY;
        }
        let mut extensions = Extensions::default();
        if self.receiver.has_gap() {
            flags |= data::SACK;
            extensions.sack = self.receiver.selective();
        }
        if self.integrity {
            flags |= data::CRC;
        }
        let fixed = Fixed {
            flags,
            slot: 0,
            payload: 0,
            window: core.share,
            identity: 0,
            sequence: self.sender.next,
            ack: self.receiver.next,
            message: 0,
            offset: 0,
        };
        let mut header = fixed.header(&self.route, data::ACK);
        let len = extensions.put(&mut header, flags);
        if self.integrity {
            let check = crc::of_parts(&header[..len], &[]);
            put_u32(&mut header, len - 4, check);
        }
        if out.transmit(&header[..len], &[], FrameToken::NO_MEMORY) == Sent::Full {
            core.found_full(now);
            self.enqueue(core);
        } else {
            self.receiver.acknowledged(true);
        }
    }
}

/// Collects the parts of a frame from `next` on, `len` bytes or as many as fit into `parts`.
fn gather<'a>(
    segments: &'a [Segment],
    next: &mut Place,
    len: &mut u32,
    parts: &mut [PayloadPart<'a>],
) -> usize {
    let mut count = 0;
    let mut got = 0;
    while let Some(segment) = segments.get(next.segment as usize) {
        let here = (segment.len() - next.within).min(*len - got);
        if here != 0 {
            let Some(part) = parts.get_mut(count) else { break };
            *part = PayloadPart {
                region: segment.region(),
                offset: segment.offset() + next.within as usize,
                len: here as usize,
            };
            count += 1;
            got += here;
            next.within += here;
        }
        if got == *len {
            break;
        }
        next.segment += 1;
        next.within = 0;
    }
    *len = got;
    count
}
