//! Frames on their way into the adapter: header slots, and what the adapter still refers to.

use std::sync::Arc;

use uvia_driver::dma::{DmaDomain, DmaMemory, DmaSegment, Rights};
use uvia_driver::nic::{Nic, NicProperties, TxFrame};

use crate::Result;
use crate::engine::{FrameToken, PayloadPart, Sent};
use crate::wire::{FIXED, Words};

/// Bytes of a slot: the header, and a small payload behind it.
const SLOT: usize = 256;
/// The longest payload that is copied behind its header instead of being fetched from where it lies. Up to here the
/// copy costs less than the second descriptor, and the memory is free at once. This is the one copy on the way out.
const INLINE: usize = 128;
/// In an adapter's token, beside the slot: the frame refers to registered memory.
const REFERS: u64 = 1 << 16;
/// Segments of a frame that are kept on the stack; more than any gather list of one frame has.
const SEGMENTS: usize = 64;

/// The header slots of an adapter's transmit ring.
pub(super) struct Transmitter {
    slots: DmaMemory,
    /// All of them, as the adapter sees them.
    all: DmaSegment,
    free: Vec<u16>,
    /// By slot: the engine's token where the adapter refers to registered memory too.
    tokens: Vec<FrameToken>,
    /// How many of those.
    referenced: usize,
    /// Below this many free slots they are collected from the adapter.
    low: usize,
    pending: bool,
}

impl Transmitter {
    pub(super) fn new(domain: &Arc<dyn DmaDomain>, about: &NicProperties) -> Result<Self> {
        let count = about.tx_slots.clamp(2, usize::from(u16::MAX));
        // Read-only: the adapter fetches headers and never writes them.
        let slots = DmaMemory::allocate(domain.clone(), count * SLOT, Rights::READ)?;
        Ok(Self {
            all: slots.segment(0..count * SLOT)?,
            slots,
            free: (0..count as u16).rev().collect(),
            tokens: vec![FrameToken::NO_MEMORY; count],
            referenced: 0,
            low: count / 2,
            pending: false,
        })
    }

    /// Whether a payload goes behind its header.
    #[inline(always)]
    pub(super) fn is_short(&self, part: &PayloadPart<'_>) -> bool {
        part.len <= INLINE
    }

    /// [`Transmitter::transmit`] for the frame that counts: the fixed header, and one short part behind it.
    #[inline(always)]
    pub(super) fn transmit_short(
        &mut self,
        adapter: &mut dyn Nic,
        header: &Words,
        part: &PayloadPart<'_>,
    ) -> Result<Sent> {
        let Some(&slot) = self.free.last() else { return Ok(Sent::Full) };
        let base = usize::from(slot) * SLOT;
        self.slots.write_words(base, header);
        let copied = part.region.copy_to(part.offset, &self.slots, base + FIXED, part.len);
        let frame = self.all.part(base as u32, (FIXED + part.len) as u32);
        let (true, Some(frame)) = (copied, frame) else { return Err(beyond()) };
        if !adapter.transmit(&TxFrame { segments: std::slice::from_ref(&frame), token: slot.into() })? {
            return Ok(Sent::Full);
        }
        self.free.pop();
        self.pending = true;
        Ok(Sent::Copied)
    }

    /// Puts a frame into the adapter's ring.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        adapter: &mut dyn Nic,
        header: &[u8],
        payload: &[PayloadPart<'_>],
        token: FrameToken,
    ) -> Result<Sent> {
        let Some(&slot) = self.free.last() else { return Ok(Sent::Full) };
        let base = usize::from(slot) * SLOT;
        self.slots.write_bytes(base, header);
        let bytes: usize = payload.iter().map(|part| part.len).sum();
        let copied = bytes <= INLINE && header.len() + bytes <= SLOT;
        let accepted = if copied {
            let mut at = base + header.len();
            for part in payload {
                if !part.region.copy_to(part.offset, &self.slots, at, part.len) {
                    return Err(beyond());
                }
                at += part.len;
            }
            let segments = [self.slots.segment(base..at)?];
            adapter.transmit(&TxFrame { segments: &segments, token: slot.into() })?
        } else {
            let mut segments = [DmaSegment::default(); SEGMENTS];
            segments[0] = self.slots.segment(base..base + header.len())?;
            let Some(rest) = segments.get_mut(1..=payload.len()) else {
                // The engine was told how many segments a frame may have, and that is fewer.
                return Err(crate::Error::Resource { what: "segments of a frame", limit: SEGMENTS - 1 });
            };
            for (segment, part) in rest.iter_mut().zip(payload) {
                *segment = part.region.dma(part.offset..part.offset + part.len)?;
            }
            let token = u64::from(slot) | REFERS;
            adapter.transmit(&TxFrame { segments: &segments[..=payload.len()], token })?
        };
        if !accepted {
            return Ok(Sent::Full);
        }
        self.free.pop();
        self.pending = true;
        if copied {
            return Ok(Sent::Copied);
        }
        self.tokens[usize::from(slot)] = token;
        self.referenced += 1;
        Ok(Sent::Referenced)
    }

    /// Whether it is time to ask the adapter which frames it is done with.
    #[inline]
    pub(super) fn wants_reclaim(&self) -> bool {
        self.referenced > 0 || self.free.len() < self.low
    }

    /// Takes back what the adapter is done with, by its token; answers the engine's where the frame referred to
    /// registered memory.
    #[inline(always)]
    pub(super) fn reclaimed(&mut self, token: u64) -> Option<FrameToken> {
        let slot = token as u16;
        self.free.push(slot);
        if token & REFERS == 0 {
            return None;
        }
        self.referenced -= 1;
        self.tokens.get(usize::from(slot)).copied()
    }

    /// Whether frames were put since the last call.
    #[inline]
    pub(super) fn take_pending(&mut self) -> bool {
        std::mem::take(&mut self.pending)
    }
}

/// Cannot be: the engine cuts frames from segments, which lie within their regions.
#[cold]
fn beyond() -> crate::Error {
    crate::Error::Parameter("a frame's payload lies beyond its region".to_owned())
}
