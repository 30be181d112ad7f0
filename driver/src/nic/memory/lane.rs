//! The two ends of a lane: frames copied in, and shown where they lie.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::layout::{
    BULK, BULK_ALIGN, INLINE, LANE_BULK_AT, LANE_SLOTS_AT, LINE, MAX_FRAME, SLOT, SLOT_HEADER, lane,
};
use super::mapping::Mapping;
use super::ring::{BUSY, Consumer, Producer, SEE, SLOTS, TELL, Words};
use super::wake::Waker;
use crate::dma::{DmaSegment, copy};
use crate::nic::RxFrame;

impl Words for Mapping {
    #[inline(always)]
    fn header(&self, slot: u32) -> u64 {
        self.word(header_at(slot)).load(SEE)
    }

    #[inline(always)]
    fn publish(&self, slot: u32, header: u64) {
        self.word(header_at(slot)).store(header, TELL);
    }

    #[inline]
    fn taken(&self) -> u64 {
        self.word(lane::TAKEN).load(SEE)
    }

    #[inline(always)]
    fn tell_taken(&self, taken: u64) {
        self.word(lane::TAKEN).store(taken, TELL);
    }
}

#[inline(always)]
fn header_at(slot: u32) -> usize {
    LANE_SLOTS_AT + (slot % SLOTS) as usize * SLOT
}

/// Where a slot's frame lies, or, for one in the bulk, the word that says where.
#[inline(always)]
fn content_at(slot: u32) -> usize {
    header_at(slot) + SLOT_HEADER
}

/// A lane to another port.
pub(super) struct OutLane {
    map: Mapping,
    ring: Producer,
    /// The station at its other end.
    pub(super) peer: u64,
    lens: [u16; SLOTS as usize],
    /// For each slot, where the bulk goes on behind its frame; all positions ever.
    ends: [u64; SLOTS as usize],
    /// Where the bulk goes on.
    bulk: u64,
    /// Whether its bulk has memory.
    pub(super) has_bulk: bool,
    /// Since when it has been full, and how far its receiver had come then.
    pub(super) full: Option<(Instant, u32)>,
    /// Its receiver's pipe, once it was needed; none when it cannot be opened.
    pub(super) waker: Option<Option<Waker>>,
}

impl OutLane {
    /// Begins a lane from `own` to `peer`. It is to be announced, and whatever was announced there was taken back.
    pub(super) fn begin(map: Mapping, own: u64, generation: u32, peer: u64) -> Self {
        let ring = Producer::new(generation, &map);
        // Relaxed: the announcement is a Release.
        map.word(lane::SENDER).store(own, Ordering::Relaxed);
        Self {
            map,
            ring,
            peer,
            lens: [0; SLOTS as usize],
            ends: [0; SLOTS as usize],
            bulk: 0,
            has_bulk: false,
            full: None,
            waker: None,
        }
    }

    /// Whether a frame of `bytes` lies in the bulk.
    #[inline(always)]
    pub(super) fn is_bulk(bytes: usize) -> bool {
        bytes > INLINE
    }

    /// How far its receiver has come.
    pub(super) fn taken(&mut self) -> u32 {
        self.ring.look(&self.map);
        self.ring.taken()
    }

    /// Copies a frame in; false when there is no room.
    ///
    /// # Safety
    /// The segments' addresses are the process's own and mapped, and they have `bytes` bytes together.
    #[inline]
    pub(super) unsafe fn put(&mut self, segments: &[DmaSegment], bytes: usize) -> bool {
        debug_assert!(bytes <= MAX_FRAME);
        let Some(slot) = self.ring.free_slot(&self.map) else { return false };
        let mut to = if Self::is_bulk(bytes) {
            let Some(start) = self.room(bytes) else { return false };
            self.map.word(content_at(slot)).store(start % BULK as u64, Ordering::Relaxed);
            self.bulk = start + bytes.next_multiple_of(BULK_ALIGN) as u64;
            self.map.bytes(LANE_BULK_AT + start as usize % BULK, bytes)
        } else {
            self.map.bytes(content_at(slot), bytes)
        };
        for segment in segments {
            let len = segment.len() as usize;
            // SAFETY: the caller vouches for the source and for the sum of lengths; the target has so many bytes.
            unsafe {
                copy::copy(segment.iova() as *const u8, to, len);
                to = to.add(len);
            }
        }
        self.filled(slot, bytes);
        true
    }

    /// As [`OutLane::put`], for `len` bytes that lie at `from`, and fit a slot.
    ///
    /// # Safety
    /// So many bytes are mapped there.
    #[inline(always)]
    pub(super) unsafe fn put_short(&mut self, from: u64, len: usize) -> bool {
        debug_assert!(!Self::is_bulk(len));
        let Some(slot) = self.ring.free_slot(&self.map) else { return false };
        // SAFETY: the caller vouches for the source; the target has so many bytes, and is a multiple of 8.
        unsafe { copy::copy_aligned(from as *const u8, self.map.bytes(content_at(slot), len), len) };
        self.filled(slot, len);
        true
    }

    #[inline(always)]
    fn filled(&mut self, slot: u32, len: usize) {
        self.lens[slot as usize % SLOTS as usize] = len as u16;
        self.ends[slot as usize % SLOTS as usize] = self.bulk;
        self.ring.filled();
    }

    /// Where a frame can lie in the bulk: in one piece, and not over one that was not taken.
    #[inline(never)]
    fn room(&mut self, bytes: usize) -> Option<u64> {
        let left = BULK as u64 - self.bulk % BULK as u64;
        let start = if bytes as u64 <= left { self.bulk } else { self.bulk + left };
        for look in [false, true] {
            if look {
                self.ring.look(&self.map);
            }
            // All that lies between the last frame that was taken and the next one's end is in use.
            let taken = self.ring.taken();
            let from = match taken == self.ring.next() {
                true => start,
                false => self.ends[taken.wrapping_sub(1) as usize % SLOTS as usize],
            };
            if start + bytes as u64 <= from + BULK as u64 {
                return Some(start);
            }
        }
        None
    }

    /// Publishes what was put.
    #[inline]
    pub(super) fn publish(&mut self) {
        let lens = &self.lens;
        self.ring.publish(&self.map, |slot| lens[slot as usize % SLOTS as usize]);
    }

    /// Takes back what was put and not published. Its bulk is free again with that of the next frame.
    pub(super) fn forget(&mut self) {
        self.ring.forget();
    }
}

/// A frame that a sender says has a length or place that it cannot have.
pub(super) struct Wrong;

/// A lane from another port.
pub(super) struct InLane {
    map: Mapping,
    /// None while nobody is listened to.
    ring: Option<Consumer>,
    /// The station at its other end.
    pub(super) peer: u64,
}

impl InLane {
    /// A lane that nobody is listened to on yet.
    pub(super) fn new(map: Mapping) -> Self {
        Self { map, ring: None, peer: 0 }
    }

    /// Turns away from whom it listened to, before an announcement is taken.
    pub(super) fn say_busy(&mut self) {
        // SeqCst, as is the taking: either a new sender sees this, or we see that it has taken back what was announced.
        self.map.word(lane::TAKEN).store(BUSY, Ordering::SeqCst);
        self.ring = None;
        self.peer = 0;
    }

    /// Who has announced itself, or is about to.
    pub(super) fn sender(&self) -> u64 {
        self.map.word(lane::SENDER).load(Ordering::Acquire)
    }

    /// Listens to who has announced itself.
    pub(super) fn listen(&mut self, generation: u32, peer: u64) {
        self.ring = Some(Consumer::new(generation, &self.map));
        self.peer = peer;
    }

    /// Whether there is a frame.
    #[inline(always)]
    pub(super) fn has_frame(&self) -> bool {
        matches!(&self.ring, Some(ring) if ring.look(&self.map).is_some())
    }

    /// Shows up to `budget` frames, and counts them.
    ///
    /// # Errors
    /// [`Wrong`]: nothing more is to be taken from it.
    #[inline]
    pub(super) fn take(
        &mut self,
        budget: usize,
        count: &mut usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> Result<u64, Wrong> {
        let Some(ring) = &mut self.ring else { return Ok(0) };
        let mut bytes = 0;
        for _ in 0..budget {
            let Some((slot, len)) = ring.look(&self.map) else { break };
            // What does not fit the line with the header comes over from the sender's cache while that is looked at.
            self.map.prefetch(header_at(slot) + LINE);
            let len = usize::from(len);
            let at = if OutLane::is_bulk(len) {
                // Loaded once: what is checked is what is used.
                let at = self.map.word(content_at(slot)).load(Ordering::Relaxed);
                let at = usize::try_from(at).ok().filter(|at| *at < BULK && len <= BULK - at);
                LANE_BULK_AT + at.filter(|_| len <= MAX_FRAME).ok_or(Wrong)?
            } else if len != 0 {
                content_at(slot)
            } else {
                return Err(Wrong);
            };
            // SAFETY: so many bytes of the mapping (checked), which stays while the sink has them.
            sink(unsafe { RxFrame::from_raw(self.map.bytes(at, len), len) });
            ring.took();
            *count += 1;
            bytes += len as u64;
        }
        ring.tell(&self.map);
        Ok(bytes)
    }
}
