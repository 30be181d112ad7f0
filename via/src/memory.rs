//! Registered memory: what descriptors name, and what a peer may be given the right to touch.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use uvia_driver::dma::watch::Keeper;
use uvia_driver::dma::{DeviceAccess, DmaDomain, DmaMemory, DmaRegion, DmaSegment, DmaSlot, Rights, copy};
use uvia_driver::nic::RxFrame;
use uvia_driver::pio;

use crate::{Error, RemoteMemory, Result, Segment};

/// Groups memory and virtual interfaces of one NIC: an interface uses memory of its own tag only. It names its NIC too,
/// by a number that is unique in this process, in one word, since it is compared for every segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProtectionTag(u64);

impl ProtectionTag {
    pub(crate) const fn new(nic: u32, id: u32) -> Self {
        Self((nic as u64) << 32 | id as u64)
    }

    /// The NIC that made it.
    pub(crate) fn nic(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Its number there.
    pub(crate) fn id(self) -> u32 {
        self.0 as u32
    }

    /// 0 if it is the same.
    #[inline(always)]
    pub(crate) fn differs(self, other: Self) -> u64 {
        self.0 ^ other.0
    }

    /// All of it, as a word that can be kept in an atomic one.
    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    /// Back from [`ProtectionTag::word`].
    #[inline(always)]
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }
}

/// Names a registered region to a peer. Never 0 and never all ones; a handle of memory that is no longer
/// registered stays invalid until its slot has been used 4096 times more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryHandle(pub u32);

/// What a region is registered with, and what may be changed later ([`Nic::set_memory_attributes`]).
///
/// [`Nic::set_memory_attributes`]: crate::Nic::set_memory_attributes
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAttributes {
    /// Interfaces of this tag may use it.
    pub tag: ProtectionTag,
    /// Whether a peer may write it.
    pub rdma_write: bool,
    /// Whether a peer may read it.
    pub rdma_read: bool,
}

impl MemoryAttributes {
    /// Local use only.
    pub fn local(tag: ProtectionTag) -> Self {
        Self { tag, rdma_write: false, rdma_read: false }
    }

    /// A peer may write it.
    pub fn remote_write(tag: ProtectionTag) -> Self {
        Self { tag, rdma_write: true, rdma_read: false }
    }

    /// A peer may write and read it.
    pub fn remote(tag: ProtectionTag) -> Self {
        Self { tag, rdma_write: true, rdma_read: true }
    }
}

enum Backing {
    Owned(DmaMemory),
    Caller(DmaRegion),
    /// Of no use to an adapter: a descriptor's own, for what is injected.
    Buffer {
        words: Box<[u64]>,
    },
}

struct Inner {
    /// Where it lies, here at hand: every message asks.
    start: Start,
    len: usize,
    /// Bytes that may be accessed: all; none once the program has unmapped them. Stored under the NIC's lock, under which
    /// frames are put together and taken apart: these see it, so that relaxed accesses are enough.
    reach: AtomicUsize,
    backing: Backing,
    handle: MemoryHandle,
    /// The tag's word. It and `rights` are stored under the NIC's lock, under which remote accesses are checked: these
    /// see both or neither. A post looks at the tag alone, without the lock; relaxed, since it orders nothing else.
    tag: AtomicU64,
    rights: AtomicU8,
    ledger: Arc<Ledger>,
}

impl Inner {
    #[inline]
    fn is_gone(&self) -> bool {
        matches!(&self.backing, Backing::Caller(region) if region.is_gone())
    }
}

/// In [`Inner::rights`].
const RDMA_WRITE: u8 = 1;
const RDMA_READ: u8 = 2;

impl MemoryAttributes {
    fn rights(self) -> u8 {
        (if self.rdma_write { RDMA_WRITE } else { 0 }) | (if self.rdma_read { RDMA_READ } else { 0 })
    }
}

/// Where regions that go, from whatever thread, are accounted for.
#[derive(Default)]
struct Ledger {
    /// Handles whose last user is gone: their slots are free.
    retired: crossbeam::queue::SegQueue<u32>,
    /// Bytes registered.
    bytes: AtomicU64,
}

/// The first byte of a region.
struct Start(*mut u8);

// SAFETY: the pointer is only handed out, never followed here; the memory belongs to the process.
unsafe impl Send for Start {}
// SAFETY: as above.
unsafe impl Sync for Start {}

impl Drop for Inner {
    fn drop(&mut self) {
        self.ledger.bytes.fetch_sub(self.len as u64, Ordering::Relaxed);
        self.ledger.retired.push(self.handle.0);
    }
}

/// Registered memory: pinned, mapped for the adapter to fetch from, and named by a handle. Clones share it; it
/// is unregistered when the last clone and the last posted descriptor that uses it are gone.
///
/// A peer may write it while we read it, where its attributes allow. So the bytes are read and written by
/// copying ([`MemoryRegion::read`], [`MemoryRegion::write`]) and not by reference.
#[derive(Clone)]
pub struct MemoryRegion(Arc<Inner>);

impl MemoryRegion {
    /// First byte in this process. Whoever follows it keeps to volatile or atomic access, within [`Self::len`].
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.start.0
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Always false: nothing empty can be registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its name for peers.
    pub fn handle(&self) -> MemoryHandle {
        self.0.handle
    }

    /// Its attributes as they are now.
    #[inline]
    pub fn attributes(&self) -> MemoryAttributes {
        let rights = self.0.rights.load(Ordering::Relaxed);
        MemoryAttributes {
            tag: self.tag(),
            rdma_write: rights & RDMA_WRITE != 0,
            rdma_read: rights & RDMA_READ != 0,
        }
    }

    /// Interfaces of this tag may use it.
    #[inline(always)]
    pub fn tag(&self) -> ProtectionTag {
        ProtectionTag::from_word(self.0.tag.load(Ordering::Relaxed))
    }

    /// Changes the attributes; under the NIC's lock.
    pub(crate) fn set_attributes(&self, attributes: MemoryAttributes) {
        self.0.tag.store(attributes.tag.word(), Ordering::Relaxed);
        self.0.rights.store(attributes.rights(), Ordering::Relaxed);
    }

    /// Ends the registration, if nothing else refers to it: no clone, and no segment of a descriptor. Under the NIC's
    /// lock, under which handles are looked up: nobody takes hold of it meanwhile. What is returned is unmapped where it
    /// is dropped.
    pub(crate) fn end(self) -> std::result::Result<impl Drop, Self> {
        Arc::try_unwrap(self.0).map_err(Self)
    }

    /// Whether it is watched for being unmapped: always, where it is the NIC's own memory, which a program cannot unmap;
    /// with a program's memory ([`Nic::register`](crate::Nic::register)) where the system permits.
    pub fn is_watched(&self) -> bool {
        match &self.0.backing {
            Backing::Owned(_) | Backing::Buffer { .. } => true,
            Backing::Caller(region) => region.is_watched(),
        }
    }

    /// Whether the program has unmapped its memory, or a part of it. It is of no use any more then, and can only be let
    /// go of.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.0.is_gone()
    }

    /// Has it watched.
    pub(crate) fn watch(&self, keeper: Arc<dyn Keeper>) -> uvia_driver::Result<()> {
        match &self.0.backing {
            Backing::Owned(_) | Backing::Buffer { .. } => Ok(()),
            Backing::Caller(region) => region.watch(keeper),
        }
    }

    /// Whether what could be accessed cannot any more, by what the NIC knows; under its lock.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.reach.load(Ordering::Relaxed) == 0
    }

    /// Clones of it, and segments of descriptors that are posted or kept, all together.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// How the adapter gets at it. An adapter that another process serves (vfio-user) asks for memory that has no file,
    /// and the data path then has system calls; memory that a NIC allocates has one.
    pub fn device_access(&self) -> DeviceAccess {
        match &self.0.backing {
            Backing::Owned(memory) => memory.device_access(),
            Backing::Caller(region) => region.device_access(),
            Backing::Buffer { .. } => DeviceAccess::Messages,
        }
    }

    /// A part of it, for a descriptor.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the range lies beyond the region, [`Error::Protection`] when its memory is gone.
    pub fn segment(&self, range: Range<usize>) -> Result<Segment> {
        let len = self.check(&range)?;
        Ok(Segment::new(self.clone(), range.start, len))
    }

    /// All of it, for a descriptor; the first 4 GiB less one byte if it is larger.
    pub fn whole(&self) -> Segment {
        Segment::new(self.clone(), 0, u32::try_from(self.len()).unwrap_or(u32::MAX))
    }

    /// How a peer names the byte at `offset` in an RDMA transfer.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the offset lies beyond the region.
    pub fn remote(&self, offset: usize) -> Result<RemoteMemory> {
        self.check(&(offset..offset))?;
        Ok(RemoteMemory { address: self.as_ptr() as u64 + offset as u64, handle: self.handle() })
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the range lies beyond the region, [`Error::Protection`] when its memory is gone.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.check(&(offset..offset.saturating_add(into.len())))?;
        // SAFETY: the range was checked, registered memory stays mapped while `self` lives (it is ours, or its
        // owner vouched for that), and `into` cannot overlap memory that is never referenced.
        unsafe { copy::copy(self.as_ptr().add(offset), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the range lies beyond the region, [`Error::Protection`] when its memory is gone.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.check(&(offset..offset.saturating_add(from.len())))?;
        // SAFETY: as for `read`.
        unsafe { copy::copy(from.as_ptr(), self.as_ptr().add(offset), from.len()) };
        Ok(())
    }

    /// Whether an RDMA transfer of `len` bytes at a peer's `address` may touch this, and at which offset.
    pub(crate) fn remote_offset(&self, address: u64, len: usize) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.as_ptr() as u64)?).ok()?;
        (offset <= self.reach() && self.reach() - offset >= len).then_some(offset)
    }

    /// Puts `len` bytes of a frame at `offset`; false, and nothing written, when either range is out of bounds.
    #[inline(always)]
    #[must_use]
    pub(crate) fn place(&self, offset: usize, frame: &RxFrame<'_>, from: usize, len: usize) -> bool {
        if offset > self.reach() || self.reach() - offset < len {
            return false;
        }
        // SAFETY: the target was checked to lie within the region, which lives as long as `self`; frames lie
        // in receive buffers, which are never registered.
        unsafe { frame.copy_to(from, self.as_ptr().add(offset), len) }
    }

    /// Copies `len` bytes from `offset` on into a slot of ours; false, and nothing written, when the range lies beyond
    /// the region.
    ///
    /// # Panics
    /// When they do not fit into the slot.
    #[must_use]
    pub(crate) fn copy_to<const SIZE: usize>(
        &self,
        offset: usize,
        to: &DmaSlot<'_, SIZE>,
        at: usize,
        len: usize,
    ) -> bool {
        if offset > self.reach() || self.reach() - offset < len {
            return false;
        }
        // SAFETY: the range was checked, and the region lives as long as `self`; registered memory and memory of
        // ours do not overlap.
        unsafe { to.copy_from(at, self.as_ptr().add(offset), len) };
        true
    }

    /// The part for the adapter to fetch; none when the range lies beyond what can be reached.
    #[inline]
    pub(crate) fn dma(&self, range: Range<usize>) -> Option<DmaSegment> {
        if range.end > self.reach() || range.start > range.end {
            return None;
        }
        let iova = match &self.0.backing {
            Backing::Owned(memory) => memory.iova(),
            Backing::Caller(region) => region.iova(),
            Backing::Buffer { .. } => return None,
        };
        // SAFETY: the bytes were just seen to lie within the region, which is mapped for devices to read.
        Some(unsafe { DmaSegment::unchecked(iova + range.start as u64, range.len() as u32) })
    }

    #[inline(always)]
    fn reach(&self) -> usize {
        self.0.reach.load(Ordering::Relaxed)
    }

    /// What is said of memory that the program has unmapped.
    pub(crate) fn gone(&self) -> Error {
        Error::Protection { handle: self.handle(), why: "the program has unmapped it" }
    }

    /// Whether it is a descriptor's own buffer, which no interface may use as registered memory: its tag is of no NIC.
    pub(crate) fn is_buffer(&self) -> bool {
        matches!(self.0.backing, Backing::Buffer { .. })
    }

    /// Copies bytes to the beginning of a buffer, as many as fit.
    pub(crate) fn fill_from(&self, bytes: &[u8]) {
        let len = bytes.len().min(self.len());
        // SAFETY: within the region, which lives as long as `self`; a slice is no part of memory that is never
        // referenced.
        unsafe { copy::copy(bytes.as_ptr(), self.as_ptr(), len) };
    }

    /// Stores `len` bytes from `offset` on into a slot of adapter memory; false, and nothing stored, when the range lies
    /// beyond what can be reached.
    ///
    /// # Panics
    /// When they do not fit into the slot.
    #[must_use]
    pub(crate) fn put_into(&self, offset: usize, slot: &mut pio::Slot<'_>, at: usize, len: usize) -> bool {
        if offset > self.reach() || self.reach() - offset < len {
            return false;
        }
        // SAFETY: the range was checked, and the region lives as long as `self`; it is no adapter memory.
        unsafe { slot.put_from(at, self.as_ptr().add(offset), len) };
        true
    }

    fn check(&self, range: &Range<usize>) -> Result<u32> {
        match u32::try_from(range.end.wrapping_sub(range.start)) {
            _ if self.is_gone() => Err(self.gone()),
            Ok(len) if range.start <= range.end && range.end <= self.len() => Ok(len),
            _ => Err(Error::Parameter(format!(
                "bytes {range:?} do not lie within the region's {} bytes",
                self.len()
            ))),
        }
    }
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRegion").field("handle", &self.handle()).field("len", &self.len()).finish()
    }
}

/// The registered regions of one NIC, by handle.
pub(crate) struct RegionTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    ledger: Arc<Ledger>,
    limits: RegionLimits,
    /// Regions that the program has unmapped, and that somebody may still try to use.
    lost: Vec<MemoryHandle>,
}

/// How much may be registered with a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionLimits {
    /// Regions.
    pub(crate) regions: usize,
    /// Bytes of all of them.
    pub(crate) bytes: u64,
    /// Bytes of one.
    pub(crate) block: u64,
}

impl RegionLimits {
    /// Bytes that a process can have mapped at all.
    const ADDRESS_SPACE: u64 = 1 << 47;

    /// What handles can tell apart.
    pub(crate) const MOST: Self =
        Self { regions: MAX_REGIONS, bytes: Self::ADDRESS_SPACE, block: Self::ADDRESS_SPACE };

    /// What can be registered in a domain.
    pub(crate) fn of(domain: &dyn DmaDomain) -> Self {
        let limits = domain.limits();
        let sizes = limits.apertures.iter().map(|range| (range.end() - range.start()).saturating_add(1));
        let mappings = limits.max_mappings.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        Self {
            regions: mappings.min(MAX_REGIONS),
            bytes: sizes.clone().fold(0, u64::saturating_add).min(Self::ADDRESS_SPACE),
            block: sizes.max().unwrap_or(0).min(Self::ADDRESS_SPACE),
        }
    }
}

struct Slot {
    generation: u32,
    region: Weak<Inner>,
}

/// Low bits of a handle: the slot, plus one, so that no handle is 0.
const SLOT_BITS: u32 = 20;
/// Most regions of a NIC. Two short of what the bits hold: slot + 1 is never all ones, so no handle is either.
pub(crate) const MAX_REGIONS: usize = (1 << SLOT_BITS) - 2;

impl RegionTable {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            ledger: Arc::default(),
            limits: RegionLimits::MOST,
            lost: Vec::new(),
        }
    }

    /// Sets how much may be registered.
    pub(crate) fn limit(&mut self, limits: RegionLimits) {
        self.limits = limits;
    }

    /// Refuses what would go beyond the limits.
    fn check_room(&self, len: usize) -> Result<()> {
        let RegionLimits { bytes, block, .. } = self.limits;
        if len == 0 {
            return Err(Error::Parameter("a region of 0 bytes cannot be registered".to_owned()));
        }
        if len as u64 > block {
            return Err(Error::TooLong { length: len as u64, limit: block });
        }
        if self.ledger.bytes.load(Ordering::Relaxed).saturating_add(len as u64) > bytes {
            return Err(Error::Resource { what: "registered bytes", limit: bytes as usize });
        }
        Ok(())
    }

    /// Whether a region is registered under that tag.
    pub(crate) fn uses(&self, tag: ProtectionTag) -> bool {
        self.slots
            .iter()
            .filter_map(|slot| slot.region.upgrade())
            .any(|inner| MemoryRegion(inner).tag() == tag)
    }

    /// Allocates and registers memory of the table's own.
    pub(crate) fn allocate(
        &mut self,
        domain: Arc<dyn DmaDomain>,
        len: usize,
        attributes: MemoryAttributes,
    ) -> Result<MemoryRegion> {
        self.check_room(len)?;
        // Read-only: the adapter fetches from registered memory and stores into its receive ring alone.
        let memory = DmaMemory::allocate(domain, len, Rights::READ)?;
        self.insert(Backing::Owned(memory), attributes)
    }

    /// Registers a caller's memory.
    ///
    /// # Safety
    /// As [`DmaRegion::register`]; peers may write it too where the attributes allow.
    pub(crate) unsafe fn register(
        &mut self,
        domain: Arc<dyn DmaDomain>,
        address: *mut u8,
        len: usize,
        attributes: MemoryAttributes,
    ) -> Result<MemoryRegion> {
        self.check_room(len)?;
        // SAFETY: the caller's promise is the same.
        let region = unsafe { DmaRegion::register(domain, address, len, Rights::READ)? };
        self.insert(Backing::Caller(region), attributes)
    }

    /// A buffer of the host's, of at least so many bytes, which the adapter does not get: it counts as a region all the
    /// same.
    pub(crate) fn buffer(&mut self, len: usize) -> Result<MemoryRegion> {
        self.check_room(len)?;
        let words = vec![0; len.div_ceil(size_of::<u64>())].into_boxed_slice();
        self.insert(Backing::Buffer { words }, MemoryAttributes::local(ProtectionTag::new(0, 0)))
    }

    fn insert(&mut self, backing: Backing, attributes: MemoryAttributes) -> Result<MemoryRegion> {
        while let Some(handle) = self.ledger.retired.pop() {
            let slot = (handle & ((1 << SLOT_BITS) - 1)) - 1;
            if let Some(entry) = self.slots.get_mut(slot as usize) {
                entry.generation = (entry.generation + 1) & (u32::MAX >> SLOT_BITS);
                self.free.push(slot);
            }
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < self.limits.regions => {
                self.slots.push(Slot { generation: 0, region: Weak::new() });
                self.slots.len() as u32 - 1
            }
            None => return Err(Error::Resource { what: "registered regions", limit: self.limits.regions }),
        };
        let entry = &mut self.slots[slot as usize];
        let handle = MemoryHandle(entry.generation << SLOT_BITS | (slot + 1));
        let (start, len) = match &backing {
            Backing::Owned(memory) => (memory.as_ptr(), memory.len()),
            Backing::Caller(region) => (region.as_ptr(), region.len()),
            Backing::Buffer { words } => (words.as_ptr().cast_mut().cast(), size_of_val(&**words)),
        };
        self.ledger.bytes.fetch_add(len as u64, Ordering::Relaxed);
        let inner = Arc::new(Inner {
            start: Start(start),
            len,
            reach: AtomicUsize::new(len),
            backing,
            handle,
            tag: AtomicU64::new(attributes.tag.word()),
            rights: AtomicU8::new(attributes.rights()),
            ledger: self.ledger.clone(),
        });
        entry.region = Arc::downgrade(&inner);
        Ok(MemoryRegion(inner))
    }

    /// Takes note of regions that the program has unmapped: nothing reaches them from now on. Answers whether there is
    /// any, which a descriptor may name.
    pub(crate) fn lose(&mut self) -> bool {
        let mut found = false;
        for inner in self.slots.iter().filter_map(|slot| slot.region.upgrade()) {
            if inner.is_gone() && inner.reach.swap(0, Ordering::Relaxed) != 0 {
                let tag = ProtectionTag::from_word(inner.tag.load(Ordering::Relaxed));
                // No interface has this one: what is posted from now on is refused.
                inner.tag.store(ProtectionTag::new(tag.nic(), 0).word(), Ordering::Relaxed);
                self.lost.push(inner.handle);
                found = true;
            }
        }
        found
    }

    /// Whether a region that was lost may still be named by a descriptor.
    pub(crate) fn has_lost(&mut self) -> bool {
        let mut lost = std::mem::take(&mut self.lost);
        lost.retain(|handle| self.get(*handle).is_some());
        self.lost = lost;
        !self.lost.is_empty()
    }

    /// The region of that handle, if it is registered.
    pub(crate) fn get(&self, handle: MemoryHandle) -> Option<MemoryRegion> {
        let slot = (handle.0 & ((1 << SLOT_BITS) - 1)).checked_sub(1)?;
        let entry = self.slots.get(slot as usize)?;
        if entry.generation != handle.0 >> SLOT_BITS {
            return None;
        }
        entry.region.upgrade().map(MemoryRegion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvia_driver::dma::IdentityDomain;

    const TAG: ProtectionTag = ProtectionTag::new(1, 1);

    #[test]
    fn handles_go_stale_when_the_last_user_is_gone() {
        let domain = Arc::new(IdentityDomain::default());
        let mut table = RegionTable::new();
        let region = table.allocate(domain.clone(), 100, MemoryAttributes::local(TAG)).unwrap();
        let handle = region.handle();
        assert!(handle.0 != 0 && handle.0 != u32::MAX);
        let segment = region.segment(0..10).unwrap();
        drop(region);
        assert!(table.get(handle).is_some(), "a descriptor's segment keeps it registered");
        drop(segment);
        assert!(table.get(handle).is_none());
        assert_eq!(domain.mapped(), 0);
        let next = table.allocate(domain, 100, MemoryAttributes::local(TAG)).unwrap();
        assert_ne!(next.handle(), handle);
        assert!(table.get(handle).is_none() && table.get(next.handle()).is_some());
        for forged in [0, u32::MAX, handle.0 + 1] {
            assert!(table.get(MemoryHandle(forged)).is_none());
        }
    }

    #[test]
    fn bounds_are_checked_for_every_way_in() {
        let mut table = RegionTable::new();
        let domain = Arc::new(IdentityDomain::default());
        let region = table.allocate(domain, 4096, MemoryAttributes::local(TAG)).unwrap();
        assert!(region.segment(0..4096).is_ok() && region.segment(4096..4096).is_ok());
        let (from, to) = (3, 2);
        for range in [0..4097, from..to, usize::MAX - 1..usize::MAX, 0..usize::MAX] {
            assert!(region.segment(range).is_err());
        }
        assert!(region.write(4090, &[0; 7]).is_err() && region.read(usize::MAX, &mut [0; 2]).is_err());
        let base = region.as_ptr() as u64;
        assert_eq!(region.remote_offset(base + 4096, 0), Some(4096));
        for (address, len) in [(base, 4097), (base - 1, 1), (base + 4097, 0), (u64::MAX, 2), (0, 0)] {
            assert_eq!(region.remote_offset(address, len), None);
        }
    }
}
