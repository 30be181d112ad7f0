//! The packed virtqueue (VIRTIO 1.2, 2.8): one ring, in which descriptors are made available and used again.
//!
//! Both sides go round the ring, each with a bit that turns with each lap: a descriptor is the driver's or the device's
//! by two flags, each against that bit. The device uses chains in any order, but writes what it used in the order of the
//! ring; so a chain's descriptors are free when that many were used, whichever they were.

use std::sync::Arc;

use super::{Access, Used, Virtqueue, needs_event, unknown};
use crate::dma::{DmaDomain, DmaMemory, DmaSegment, Rights};
use crate::mmio::Registers;
use crate::nic::order;
use crate::nic::place::Shared;
use crate::{DeviceFault, Result};

/// `struct pvirtq_desc`: address; then length, id and flags, a word that is stored at once.
const DESCRIPTOR: usize = 16;
const LENGTH: usize = 8;
/// The buffer goes on in the next descriptor.
const DESC_F_NEXT: u16 = 1;
/// The device writes the buffer (and only writes it).
const DESC_F_WRITE: u16 = 2;
/// By which a descriptor is available or used.
const DESC_F_AVAIL: u16 = 1 << 7;
const DESC_F_USED: u16 = 1 << 15;

/// `struct pvirtq_event_suppress`: a place and its lap's bit, then one of these.
const EVENT: usize = 4;
const DRIVER_EVENT: usize = 0;
const DEVICE_EVENT: usize = EVENT;
const EVENT_ENABLE: u16 = 0;
const EVENT_DISABLE: u16 = 1;
/// At that place: only with EVENT_IDX.
const EVENT_DESC: u16 = 2;
const LAP: u16 = 0x8000;

/// A place in the ring, and the bit of the lap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    slot: u16,
    lap: bool,
}

impl Place {
    /// Both sides begin here (2.8.1).
    const START: Self = Self { slot: 0, lap: true };

    #[inline]
    fn advance(&mut self, by: u16, size: u16) {
        // Slots are below 2^15, as sizes are.
        self.slot += by;
        if self.slot >= size {
            self.slot -= size;
            self.lap = !self.lap;
        }
    }

    /// Flags of a descriptor that becomes available here.
    #[inline]
    fn available(self) -> u16 {
        if self.lap { DESC_F_AVAIL } else { DESC_F_USED }
    }

    /// Whether a descriptor with these flags is used.
    #[inline]
    fn is_used(self, flags: u16) -> bool {
        let both = if self.lap { DESC_F_AVAIL | DESC_F_USED } else { 0 };
        flags & (DESC_F_AVAIL | DESC_F_USED) == both
    }
}

/// One virtqueue.
pub(in super::super) struct PackedQueue<M = DmaMemory> {
    index: u16,
    size: u16,
    event_idx: bool,
    /// The descriptors, which both write.
    ring: M,
    /// When either wants to hear from the other: first ours.
    events: DmaMemory,
    records: Box<[Record]>,
    /// First id of the free list.
    free: u16,
    /// Descriptors that are neither queued nor taken.
    free_count: u16,
    /// Where the next chain goes.
    avail: Place,
    /// The first chain that was not shown yet: its place, and the word whose flags will make it and all behind it
    /// available.
    held: Option<(u16, u64)>,
    /// Descriptors shown since a notification was last thought about, and queued but not shown.
    unasked: u16,
    unshown: u16,
    /// Where the device puts what it uses next.
    used: Place,
    /// An interrupt is asked for.
    listening: bool,
    notify: Option<Registers>,
}

/// What we know of a chain's id.
#[derive(Clone, Copy, Default)]
struct Record {
    /// Of a chain that the device has: how many descriptors it has. Else 0.
    chain: u16,
    /// The next of the free list.
    next: u16,
    /// The chain's last buffer, which is all of it where it has one only.
    flags: u16,
    len: u32,
    iova: u64,
}

impl<M: Shared> PackedQueue<M> {
    /// Writes a descriptor at the place for the next one. The first one that was not shown keeps its old flags, by which
    /// it is not available in this lap: the device looks no further.
    #[inline]
    fn describe(&mut self, id: u16, iova: u64, len: u32, flags: u16) {
        let at = usize::from(self.avail.slot) * DESCRIPTOR;
        let flags = flags | self.avail.available();
        self.ring.store(at, iova);
        let word = u64::from(len) | u64::from(id) << 32 | u64::from(flags) << 48;
        if self.held.is_none() {
            self.held = Some((self.avail.slot, word));
        } else {
            self.ring.store(at + LENGTH, word);
        }
        self.avail.advance(1, self.size);
        self.unshown += 1;
    }

    /// What the device wishes: a place, and when.
    fn wish(&self) -> (u16, u16) {
        let word = u32::from_le(self.events.read::<u32>(DEVICE_EVENT));
        (word as u16, (word >> 16) as u16 & 3)
    }

    /// Whether the device wishes to be notified of what was shown since this was last asked.
    #[inline]
    fn is_asked_for(&mut self) -> bool {
        if self.unasked == 0 {
            return false;
        }
        // Our flags before its wish: the device stores its wish, then looks at our flags once more before it
        // stops looking (2.8.21.3.1).
        order::store_then_load();
        let added = std::mem::take(&mut self.unasked);
        match self.wish() {
            (_, EVENT_DISABLE) => false,
            (place, EVENT_DESC) if self.event_idx => {
                // Counted along the ring from the lap that we are in. Where nothing was queued since, the place
                // behind the last one shown is the next one to be queued.
                let new = self.avail.slot.wrapping_sub(self.unshown);
                let mut event = place & !LAP;
                if (place & LAP != 0) != self.avail.lap {
                    event = event.wrapping_sub(self.size);
                }
                needs_event(event, new, new.wrapping_sub(added))
            }
            _ => true,
        }
    }

    /// Says when we want to be interrupted.
    fn say(&mut self, place: u16, flags: u16) {
        let word = u32::from(place) | u32::from(flags) << 16;
        self.events.write(DRIVER_EVENT, word.to_le());
    }
}

impl<M: Shared> Virtqueue for PackedQueue<M> {
    const PACKED: bool = true;

    type Memory = M;

    fn new(of: &M::Of, domain: &Arc<dyn DmaDomain>, device: &str, index: u16, size: u16) -> Result<Self> {
        let entries = usize::from(size);
        let both = Rights::READ | Rights::WRITE;
        Ok(Self {
            index,
            size,
            event_idx: false,
            ring: M::allocate(of, domain, device, entries * DESCRIPTOR, both)?,
            events: DmaMemory::allocate(domain.clone(), 2 * EVENT, both)?,
            records: vec![Record::default(); entries].into(),
            free: 0,
            free_count: 0,
            avail: Place::START,
            held: None,
            unasked: 0,
            unshown: 0,
            used: Place::START,
            listening: false,
            notify: None,
        })
    }

    fn restart(&mut self, event_idx: bool) {
        for offset in (0..usize::from(self.size) * DESCRIPTOR).step_by(8) {
            self.ring.store(offset, 0);
        }
        self.events.write(0, 0u64);
        for (n, record) in self.records.iter_mut().enumerate() {
            *record = Record { next: n as u16 + 1, ..Record::default() };
        }
        self.event_idx = event_idx;
        (self.free, self.free_count) = (0, self.size);
        (self.avail, self.used, self.held) = (Place::START, Place::START, None);
        (self.unasked, self.unshown) = (0, 0);
        self.notify = None;
        self.listening = false;
        self.say(0, EVENT_DISABLE);
    }

    fn memory(&self) -> Option<&str> {
        self.ring.memory()
    }

    fn let_go(&mut self) {
        self.ring.set_in_use(false);
    }

    fn attach(&mut self, notify: Registers) {
        self.ring.set_in_use(true);
        self.notify = Some(notify);
    }

    fn index(&self) -> u16 {
        self.index
    }

    fn size(&self) -> u16 {
        self.size
    }

    fn descriptor_area(&self) -> u64 {
        self.ring.iova()
    }

    fn driver_area(&self) -> u64 {
        self.events.iova() + DRIVER_EVENT as u64
    }

    fn device_area(&self) -> u64 {
        self.events.iova() + DEVICE_EVENT as u64
    }

    fn heads(&self) -> impl Iterator<Item = u16> {
        self.records.iter().enumerate().filter(|(_, r)| r.chain > 0).map(|(n, _)| n as u16)
    }

    #[inline]
    fn add(&mut self, parts: u16, mut buffers: impl Iterator<Item = (DmaSegment, Access)>) -> Option<u16> {
        if parts == 0 || parts > self.free_count {
            return None;
        }
        // There is one: each chain has a descriptor at least.
        let id = self.free;
        self.free = self.records[usize::from(id)].next;
        self.free_count -= parts;
        let mut left = parts;
        while let Some((buffer, access)) = buffers.next().filter(|_| left > 0) {
            left -= 1;
            let direction = if access == Access::DeviceWrites { DESC_F_WRITE } else { 0 };
            let next = if left > 0 { DESC_F_NEXT } else { 0 };
            self.describe(id, buffer.iova(), buffer.len(), direction | next);
            let record = &mut self.records[usize::from(id)];
            (record.iova, record.len, record.flags) = (buffer.iova(), buffer.len(), direction);
        }
        debug_assert_eq!(left, 0, "fewer buffers than announced");
        self.records[usize::from(id)].chain = parts;
        Some(id)
    }

    #[inline]
    fn requeue(&mut self, head: u16) {
        let record = &mut self.records[usize::from(head)];
        record.chain = 1;
        let Record { iova, len, flags, .. } = *record;
        self.describe(head, iova, len, flags);
    }

    #[inline]
    fn show(&mut self) {
        let Some((slot, word)) = self.held.take() else { return };
        // Descriptors before the flags that make the first of them available (2.8.21.2).
        M::before_publish();
        self.ring.store(usize::from(slot) * DESCRIPTOR + LENGTH, word);
        M::after_publish();
        self.unasked = self.unasked.saturating_add(self.unshown).min(self.size);
        self.unshown = 0;
    }

    #[inline]
    fn notify(&mut self) -> bool {
        if !self.is_asked_for() {
            return false;
        }
        let Some(register) = &self.notify else { return false };
        register.write16(0, self.index);
        true
    }

    #[inline]
    fn take(&mut self) -> std::result::Result<Option<Used>, DeviceFault> {
        let at = usize::from(self.used.slot) * DESCRIPTOR;
        if !self.used.is_used((self.ring.load(at + LENGTH) >> 48) as u16) {
            return Ok(None);
        }
        // The flags before the rest, and the buffers, that they stand for (2.8.21.4).
        order::after_done();
        let word = self.ring.load(at + LENGTH);
        let (id, written) = ((word >> 32) as u16, word as u32);
        let Some(record) = self.records.get_mut(usize::from(id)).filter(|r| r.chain > 0) else {
            return Err(unknown(id.into()));
        };
        let parts = std::mem::take(&mut record.chain);
        self.used.advance(parts, self.size);
        Ok(Some(Used { head: id, written }))
    }

    #[inline]
    fn release(&mut self, head: u16, parts: u16) {
        self.records[usize::from(head)].next = self.free;
        self.free = head;
        self.free_count += parts;
    }

    #[inline]
    fn silence(&mut self) {
        if self.listening {
            self.listening = false;
            self.say(0, EVENT_DISABLE);
        }
    }

    fn listen(&mut self) {
        self.listening = true;
        if self.event_idx {
            let lap = if self.used.lap { LAP } else { 0 };
            self.say(self.used.slot | lap, EVENT_DESC);
        } else {
            self.say(0, EVENT_ENABLE);
        }
        // Our wish before its flags: the device stores its flags, then looks at our wish (2.8.21.4).
        order::store_then_load();
    }
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod tests;
