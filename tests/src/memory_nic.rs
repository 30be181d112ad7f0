//! Two adapters made of memory, back to back: the smallest thing that is a `Nic`.
//!
//! What the VI layer adds to a raw frame is counted over it, and what needs a pair of NICs but no device is tested
//! over it. Its "device" fetches by I/O address from an [`IdentityDomain`], at transmission.

use std::cell::UnsafeCell;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use uvia_driver::dma::{IdentityDomain, copy};
use uvia_driver::nic::{Link, MacAddress, Nic, NicProperties, NicStatistics, RxFilter, RxFrame, TxFrame};
use uvia_driver::{Error, Result};

const SLOT: usize = 8192;
const MTU: usize = 1500;
/// The longest frame of adapters that take longer ones than the wire surely carries.
const LONGEST: usize = 8188;

/// What the wire between the two does to frames, by chance, in parts of 1024.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Frames lost.
    pub loss: u32,
    /// Frames that come twice.
    pub duplicates: u32,
    /// For the chance; a run with the same seed and the same frames has the same faults.
    pub seed: u64,
    /// Bytes of the longest frame that comes through; 0 for any.
    pub carries: usize,
}

/// One direction: a ring of frame buffers with one writer and one reader.
struct Wire {
    slots: Box<[Slot]>,
    /// Frames written and frames read, ever. The writer alone stores `written`, the reader alone `read`.
    written: AtomicUsize,
    read: AtomicUsize,
}

struct Slot {
    bytes: UnsafeCell<[u8; SLOT]>,
    len: UnsafeCell<usize>,
}

// SAFETY: a slot belongs to the writer from `read` (Acquire) to its Release store of `written`, and to the reader
// from there to its Release store of `read`; each end has one owner (`&mut self` of its MemoryNic).
unsafe impl Sync for Wire {}

impl Wire {
    fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            slots: (0..slots)
                .map(|_| Slot { bytes: UnsafeCell::new([0; SLOT]), len: UnsafeCell::new(0) })
                .collect(),
            written: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
        })
    }
}

/// One of two adapters made of memory.
pub struct MemoryNic {
    properties: NicProperties,
    out: Arc<Wire>,
    into: Arc<Wire>,
    /// Tokens of frames sent and not yet given back; they are "fetched" already.
    done: Vec<u64>,
    faults: Faults,
    /// Whether there are any.
    faulty: bool,
    chance: u64,
    statistics: NicStatistics,
    /// Frames put since the last flush: the other end sees them at the flush, as with a device.
    pending: usize,
    /// Set by tests: the other end "died".
    unplugged: Arc<AtomicU64>,
}

/// A pair over a perfect wire, and the domain that their memory is mapped in.
pub fn memory_pair() -> (Box<MemoryNic>, Box<MemoryNic>, Arc<IdentityDomain>) {
    memory_pair_with(Faults::default())
}

/// A pair over a wire with faults in both directions.
pub fn memory_pair_with(faults: Faults) -> (Box<MemoryNic>, Box<MemoryNic>, Arc<IdentityDomain>) {
    pair_of(MTU + 14, faults)
}

/// A pair whose adapters take longer frames than the wire surely carries.
pub fn long_memory_pair(faults: Faults) -> (Box<MemoryNic>, Box<MemoryNic>, Arc<IdentityDomain>) {
    pair_of(LONGEST, faults)
}

fn pair_of(max_frame: usize, faults: Faults) -> (Box<MemoryNic>, Box<MemoryNic>, Arc<IdentityDomain>) {
    let slots = 256;
    let (there, back) = (Wire::new(slots), Wire::new(slots));
    let unplugged = Arc::new(AtomicU64::new(0));
    let make = |end: u8, out: &Arc<Wire>, into: &Arc<Wire>| {
        Box::new(MemoryNic {
            properties: NicProperties {
                device: format!("memory{end}"),
                driver: "memory",
                mac: MacAddress([0x02, 0, 0, 0, 0, end + 1]),
                mtu: MTU,
                max_frame,
                tx_slots: slots,
                rx_slots: slots,
                max_segments: 16,
                tx_ring_memory: None,
                lossless: false,
            },
            out: out.clone(),
            into: into.clone(),
            done: Vec::with_capacity(slots),
            faults,
            faulty: faults.loss > 0 || faults.duplicates > 0 || faults.carries > 0,
            chance: faults.seed.wrapping_mul(2).wrapping_add(u64::from(end)) | 1 << 63,
            statistics: NicStatistics::default(),
            pending: 0,
            unplugged: unplugged.clone(),
        })
    };
    (make(0, &there, &back), make(1, &back, &there), Arc::new(IdentityDomain::default()))
}

impl MemoryNic {
    /// Pulls the cable between the two: frames are lost from now on. The handle outlives the adapter's move into
    /// a NIC; a value other than 0 means unplugged.
    pub fn cable(&self) -> Arc<AtomicU64> {
        self.unplugged.clone()
    }

    /// xorshift64: a number below 1024.
    fn dice(&mut self) -> u32 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 32) as u32 % 1024
    }

    /// Whether a frame of so many bytes gets lost.
    fn loses(&mut self, bytes: usize) -> bool {
        let Faults { carries, loss, .. } = self.faults;
        carries > 0 && bytes > carries || self.dice() < loss
    }

    fn put(&mut self, frame: &TxFrame<'_>, bytes: usize) -> bool {
        let written = self.out.written.load(Ordering::Relaxed) + self.pending;
        // Acquire: pairs with the reader's Release, after which it no longer touches the slot.
        if written - self.out.read.load(Ordering::Acquire) >= self.out.slots.len() {
            return false;
        }
        let slot = &self.out.slots[written % self.out.slots.len()];
        let mut at = 0;
        for segment in frame.segments {
            let len = segment.len() as usize;
            // SAFETY: the domain maps addresses to themselves, and registered memory stays while its frame is
            // in the ring; the slot is the writer's (see `Wire`) and holds `bytes` <= SLOT.
            unsafe { copy::copy(segment.iova() as *const u8, slot.bytes.get().cast::<u8>().add(at), len) };
            at += len;
        }
        // SAFETY: as above.
        unsafe { *slot.len.get() = bytes };
        self.pending += 1;
        true
    }
}

impl Nic for MemoryNic {
    fn properties(&self) -> &NicProperties {
        &self.properties
    }

    fn link(&mut self) -> Result<Link> {
        let up = self.unplugged.load(Ordering::Relaxed) == 0;
        Ok(Link { up, speed: None, full_duplex: Some(true) })
    }

    fn ready(&mut self) -> Result<bool> {
        Ok(self.link()?.up)
    }

    fn transmit(&mut self, frame: &TxFrame<'_>) -> Result<bool> {
        let bytes: usize = frame.segments.iter().map(|s| s.len() as usize).sum();
        if bytes == 0
            || bytes > self.properties.max_frame
            || frame.segments.len() > self.properties.max_segments
        {
            return Err(Error::Argument { what: format!("a frame of {bytes} bytes cannot be sent") });
        }
        if self.done.len() == self.done.capacity() {
            return Ok(false);
        }
        let faulty = self.faulty;
        let lost = self.unplugged.load(Ordering::Relaxed) != 0 || (faulty && self.loses(bytes));
        if !lost {
            if !self.put(frame, bytes) {
                return Ok(false);
            }
            if faulty && self.dice() < self.faults.duplicates {
                self.put(frame, bytes);
            }
        }
        self.done.push(frame.token);
        self.statistics.tx_frames += 1;
        self.statistics.tx_bytes += bytes as u64;
        Ok(true)
    }

    fn flush(&mut self) -> Result<()> {
        if self.pending > 0 {
            let written = self.out.written.load(Ordering::Relaxed) + self.pending;
            // Release: pairs with the reader's Acquire; the frames are whole before they are seen.
            self.out.written.store(written, Ordering::Release);
            self.pending = 0;
            self.statistics.doorbells += 1;
        }
        Ok(())
    }

    fn reclaim(&mut self, done: &mut dyn FnMut(u64)) -> Result<usize> {
        let count = self.done.len();
        self.done.drain(..).for_each(done);
        Ok(count)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> Result<usize> {
        let read = self.into.read.load(Ordering::Relaxed);
        // Acquire: pairs with the writer's Release.
        let ready = (self.into.written.load(Ordering::Acquire) - read).min(budget);
        for n in 0..ready {
            let slot = &self.into.slots[(read + n) % self.into.slots.len()];
            // SAFETY: the slot is the reader's until `read` moves on (see `Wire`).
            let (frame, len) = unsafe {
                let len = *slot.len.get();
                (RxFrame::from_raw(slot.bytes.get().cast(), len), len)
            };
            self.statistics.rx_frames += 1;
            self.statistics.rx_bytes += len as u64;
            sink(frame);
        }
        if ready > 0 {
            // Release: pairs with the writer's Acquire.
            self.into.read.store(read + ready, Ordering::Release);
        }
        Ok(ready)
    }

    fn statistics(&mut self) -> NicStatistics {
        self.statistics
    }

    fn set_filter(&mut self, _filter: RxFilter) -> Result<()> {
        Ok(())
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&mut self, _on: bool) -> Result<()> {
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        self.pending = 0;
        Ok(())
    }
}
