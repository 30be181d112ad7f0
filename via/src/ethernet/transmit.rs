//! Frames on their way into the adapter: header slots, and what the adapter still refers to.

use std::sync::Arc;

use uvia_driver::dma::{DmaDomain, DmaMemory, DmaSegment, DmaSlots, Rights};
use uvia_driver::nic::{Nic, NicProperties, TxFrame};

use crate::Result;
use crate::descriptor::SegmentBytes;
use crate::engine::{FrameToken, PayloadPart, PlainSend, Sent};
use crate::wire::control::MAX_CONTROL;
use crate::wire::data::MAX_HEADER;
use crate::wire::{ETHERNET, FIXED};

/// Bytes of a slot: the header, or a whole frame that manages, and a small payload behind it.
pub(super) const SLOT: usize = 512;
/// Bytes before a slot: for the headers of an encapsulation. They are the last ones of the slot before, so that slots
/// begin where they would without.
pub(super) const ROOM: usize = 48;
/// What may be written into a slot.
const USED: usize = SLOT - ROOM;
const _: () = assert!(MAX_CONTROL <= USED && MAX_HEADER <= USED);
/// The longest payload that is copied behind its header instead of being fetched from where it lies. Up to here the
/// copy costs less than the second descriptor, and the memory is free at once. This is the one copy on the way out.
const INLINE: usize = PlainSend::MOST as usize;
/// Segments of a frame that are kept on the stack; more than any gather list of one frame has.
pub(super) const SEGMENTS: usize = 64;
/// In an adapter's token, beside the slot: the frame refers to registered memory.
const REFERS: u64 = 1 << 32;

/// The header slots of an adapter's transmit ring.
pub(super) struct Transmitter {
    slots: DmaSlots<SLOT>,
    free: Free,
    /// By slot: the engine's token where the adapter refers to registered memory too.
    tokens: Vec<FrameToken>,
    /// How many of those.
    referenced: usize,
    /// Below this many free slots they are collected from the adapter: half of them; all, while frames refer to
    /// registered memory, which somebody waits for.
    low: usize,
    /// Zeros, for what goes behind a short frame that is to be a long one; none where the adapter sends no longer frames
    /// than the network surely carries.
    padding: Option<DmaMemory>,
}

/// Numbers of slots that are free. Each is in it once at most, so that they all have room, and taking one back calls
/// nothing.
struct Free(Vec<u32>);

impl Free {
    fn all(count: u32) -> Self {
        Self((0..count).rev().collect())
    }

    #[inline(always)]
    fn push(&mut self, number: u32) {
        if self.0.len() < self.0.capacity() {
            self.0.push(number);
        }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<u32> {
        self.0.pop()
    }
}

impl Transmitter {
    pub(super) fn new(domain: &Arc<dyn DmaDomain>, about: &NicProperties) -> Result<Self> {
        let count = about.tx_slots.clamp(2, usize::from(u16::MAX));
        Ok(Self {
            slots: DmaSlots::allocate_with_room(domain.clone(), count, ROOM)?,
            free: Free::all(count as u32),
            tokens: vec![FrameToken::NO_MEMORY; count],
            referenced: 0,
            low: count / 2,
            padding: (about.max_frame > about.mtu + ETHERNET)
                .then(|| DmaMemory::allocate(domain.clone(), about.max_frame, Rights::READ))
                .transpose()?,
        })
    }

    /// Another handle to the slots: that of a frame is the lower 16 bits of its token, and its header begins there.
    pub(super) fn slots(&self) -> DmaSlots<SLOT> {
        self.slots.clone()
    }

    /// Whether a payload goes behind its header, and is one.
    #[inline(always)]
    pub(super) fn is_short(len: usize) -> bool {
        // None of 0 bytes: those have a frame of their own kind.
        len.wrapping_sub(1) < INLINE
    }

    /// A slot that is free, while there are so many that nobody need ask the adapter for more.
    #[inline(always)]
    pub(super) fn one_of_many(&mut self) -> Option<u32> {
        if self.free.0.len() > self.low { self.free.pop() } else { None }
    }

    /// A slot that is free.
    #[cold]
    pub(super) fn one_of_few(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// [`Transmitter::transmit`] for the frame that counts, by that slot, which is free: the fixed header, and one short
    /// segment behind it, copied. False when there is no room.
    #[inline(always)]
    pub(super) fn transmit_short(
        &mut self,
        adapter: &mut Box<dyn Nic>,
        number: u32,
        send: &PlainSend<'_>,
        payload: SegmentBytes<'_>,
    ) -> Result<bool> {
        let Some(slot) = self.slots.get(number as usize) else { return Ok(false) };
        // The payload first: the header is made in registers, of which the copy needs many.
        let len = payload.len();
        payload.copy_to(&slot, FIXED);
        slot.write_words(&send.header(len as u32));
        let frame = slot.segment(FIXED + len);
        let frame = TxFrame { segments: std::slice::from_ref(&frame), token: number.into() };
        let outcome = adapter.transmit(&frame);
        if matches!(outcome, Ok(true)) { Ok(true) } else { self.refused(number, outcome).map(|_| false) }
    }

    /// Puts a frame into the adapter's ring.
    pub(super) fn transmit(
        &mut self,
        adapter: &mut dyn Nic,
        header: &[u8],
        payload: &[PayloadPart<'_>],
        token: FrameToken,
    ) -> Result<Sent> {
        let Some(number) = self.free.pop() else { return Ok(Sent::Full) };
        let Some(slot) = self.slots.get(number as usize) else { return Ok(Sent::Full) };
        slot.write_bytes(0, header);
        let bytes: usize = payload.iter().map(|part| part.len).sum();
        let copied = bytes <= INLINE && header.len() + bytes <= USED;
        let accepted = if copied {
            let mut at = header.len();
            let mut whole = true;
            for part in payload {
                whole &= part.region.copy_to(part.offset, &slot, at, part.len);
                at += part.len;
            }
            if !whole {
                return self.unreachable(number);
            }
            adapter.transmit(&TxFrame { segments: &[slot.segment(at)], token: number.into() })
        } else if let [part] = payload {
            // The frames of long messages, nearly all: no room for more segments is made.
            let Some(bytes) = part.region.dma(part.offset..part.offset + part.len) else {
                return self.unreachable(number);
            };
            let token = u64::from(number) | REFERS;
            adapter.transmit(&TxFrame { segments: &[slot.segment(header.len()), bytes], token })
        } else {
            let mut segments = [DmaSegment::default(); SEGMENTS];
            segments[0] = slot.segment(header.len());
            match fill(&mut segments[1..], payload) {
                Ok(Some(count)) => {
                    let token = u64::from(number) | REFERS;
                    adapter.transmit(&TxFrame { segments: &segments[..=count], token })
                }
                Ok(None) => return self.unreachable(number),
                Err(e) => Err(e),
            }
        };
        match accepted {
            Ok(true) if copied => Ok(Sent::Copied),
            Ok(true) => {
                self.refers(number, token);
                Ok(Sent::Referenced)
            }
            otherwise => self.refused(number, otherwise),
        }
    }

    /// [`Transmitter::transmit`] for the frames of long messages: a header that was made in words, and one part that the
    /// adapter fetches.
    #[inline]
    pub(super) fn transmit_long(
        &mut self,
        adapter: &mut dyn Nic,
        header: &[u64; 8],
        len: usize,
        part: &PayloadPart<'_>,
        token: FrameToken,
    ) -> Result<Sent> {
        let Some(number) = self.free.pop() else { return Ok(Sent::Full) };
        let Some(slot) = self.slots.get(number as usize) else { return Ok(Sent::Full) };
        let Some(bytes) = part.region.dma(part.offset..part.offset + part.len) else {
            return self.unreachable(number);
        };
        slot.write_words(header);
        let frame = TxFrame { segments: &[slot.segment(len), bytes], token: u64::from(number) | REFERS };
        match adapter.transmit(&frame) {
            Ok(true) => {
                self.refers(number, token);
                Ok(Sent::Referenced)
            }
            otherwise => self.refused(number, otherwise),
        }
    }

    /// Puts a frame that manages into the adapter's ring, with zeros behind it up to `len` bytes.
    pub(super) fn transmit_padded(
        &mut self,
        adapter: &mut dyn Nic,
        frame: &[u8],
        len: usize,
    ) -> Result<Sent> {
        let Some(padding) = &self.padding else { return Ok(Sent::Full) };
        let zeros = padding.segment(0..len.saturating_sub(frame.len()).max(1))?;
        let Some(number) = self.free.pop() else { return Ok(Sent::Full) };
        let Some(slot) = self.slots.get(number as usize) else { return Ok(Sent::Full) };
        slot.write_bytes(0, frame);
        // The zeros stay where they are, whatever the adapter does with the frame and when.
        let segments = [slot.segment(frame.len()), zeros];
        match adapter.transmit(&TxFrame { segments: &segments, token: number.into() }) {
            Ok(true) => Ok(Sent::Copied),
            otherwise => self.refused(number, otherwise),
        }
    }

    /// A frame cannot be made, since its memory is gone: its slot is free again.
    #[cold]
    fn unreachable(&mut self, number: u32) -> Result<Sent> {
        self.free.push(number);
        Ok(Sent::Gone)
    }

    /// Puts a frame that lies elsewhere into the adapter's ring, all of it in one segment.
    pub(super) fn transmit_from(
        &mut self,
        adapter: &mut dyn Nic,
        frame: DmaSegment,
        token: FrameToken,
    ) -> Result<Sent> {
        // A header slot's number is all that is needed of it.
        let Some(number) = self.free.pop() else { return Ok(Sent::Full) };
        match adapter.transmit(&TxFrame { segments: &[frame], token: u64::from(number) | REFERS }) {
            Ok(true) => {
                self.refers(number, token);
                Ok(Sent::Referenced)
            }
            otherwise => self.refused(number, otherwise),
        }
    }

    /// The adapter has a frame that refers to memory which is not its slot's.
    fn refers(&mut self, number: u32, token: FrameToken) {
        if let Some(place) = self.tokens.get_mut(number as usize) {
            *place = token;
        }
        self.referenced += 1;
        self.low = usize::MAX;
    }

    /// The adapter did not take a frame: its slot is free again.
    #[cold]
    fn refused(&mut self, number: u32, outcome: uvia_driver::Result<bool>) -> Result<Sent> {
        self.free.push(number);
        outcome?;
        Ok(Sent::Full)
    }

    /// Whether it is time to ask the adapter which frames it is done with.
    #[inline(always)]
    pub(super) fn wants_reclaim(&self) -> bool {
        self.free.0.len() <= self.low
    }

    /// Takes back what the adapter is done with, by its token. False where the frame referred to registered memory:
    /// [`Transmitter::unreferenced`] is to be asked.
    #[inline(always)]
    pub(super) fn reclaimed(&mut self, token: u64) -> bool {
        self.free.push(token as u32);
        token & REFERS == 0
    }

    /// A frame referred to registered memory, which it does no more: the engine's token.
    pub(super) fn unreferenced(&mut self, token: u64) -> Option<FrameToken> {
        self.referenced -= 1;
        if self.referenced == 0 {
            self.low = self.tokens.len() / 2;
        }
        self.tokens.get(token as u32 as usize).copied()
    }
}

/// The parts as the adapter sees them; answers how many they are, or none when the memory of one is gone.
fn fill(segments: &mut [DmaSegment], payload: &[PayloadPart<'_>]) -> uvia_driver::Result<Option<usize>> {
    if payload.len() > segments.len() {
        // The engine was told how many segments a frame may have, and that is fewer.
        let what = format!("a frame of {} segments, where {} is the most", payload.len(), segments.len());
        return Err(uvia_driver::Error::Argument { what });
    }
    for (segment, part) in segments.iter_mut().zip(payload) {
        match part.region.dma(part.offset..part.offset + part.len) {
            Some(bytes) => *segment = bytes,
            None => return Ok(None),
        }
    }
    Ok(Some(payload.len()))
}
