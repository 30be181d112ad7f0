//! RDMA writes of the peer: whether it may write there, and where that is.

use super::{Piece, Refusal, Source};
use crate::engine::Output;
use crate::engine::core::Core;
use crate::engine::endpoint::Endpoint;
use crate::memory::MemoryRegion;
use crate::wire::data::{self, Remote};
use crate::{MemoryHandle, Status};

impl Endpoint {
    /// Takes a piece of an RDMA write that is next in order.
    pub(super) fn take_write<O: Output + ?Sized>(
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
}
