//! What a device is, to be served.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::Rights;
use crate::memory::SharedMemory;
use crate::wire::{irq, region};

/// The device behind a server. All calls come from the thread that is in [`super::Server::poll`].
///
/// Whatever a client asks for was checked before: the region exists and allows the access, the range lies within it,
/// and is no longer than [`crate::wire::MAX_DATA`]. Nothing else was: accesses have any length and alignment, and
/// the values are whatever the client likes. An error is reported to the client by its errno (EIO where it has
/// none), and changes nothing else.
///
/// A method may use [`super::DmaSpace`] and [`super::Interrupts`].
pub trait Device {
    /// Reads a region; configuration space is [`region::CONFIG`].
    ///
    /// # Errors
    /// As the client is to see it.
    fn region_read(&mut self, region: u32, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes a region; configuration space is [`region::CONFIG`].
    ///
    /// # Errors
    /// As the client is to see it; nobody sees it when the write was posted.
    fn region_write(&mut self, region: u32, offset: u64, from: &[u8]) -> io::Result<()>;

    /// Everything as after power-on. Pending interrupts are gone already, mappings and interrupt routes stay.
    fn reset(&mut self);

    /// A client has come, and speaks the protocol. Nothing is mapped or routed yet.
    fn attached(&mut self) {}

    /// The client is gone, and with it everything that it had mapped and routed. The next one expects a device that
    /// does nothing on its own: no bus mastering.
    fn detached(&mut self);

    /// The client has changed where interrupts of this kind (see [`irq`]) go, or masked or unmasked some;
    /// [`super::Interrupts`] has acted on it already.
    fn interrupts_changed(&mut self, kind: u32) {
        let _ = kind;
    }

    /// The client has mapped (or, `rights` being empty, unmapped) memory. When this returns from an unmapping,
    /// nothing may refer to that range any more; [`super::Window`]s know by themselves.
    fn memory_changed(&mut self, iova: u64, len: u64, rights: Rights) {
        let _ = (iova, len, rights);
    }
}

/// What a client is told about a device; it does not change while it is served.
#[derive(Debug, Clone, Default)]
pub struct Description {
    /// By index, see [`region`]; what is not listed has size 0.
    pub regions: Vec<Region>,
    /// Vectors a kind, by index, see [`irq`].
    pub vectors: [u32; irq::COUNT as usize],
    /// Whether it can be reset by message.
    pub resettable: bool,
}

impl Description {
    /// A PCI device with a configuration space of `config` bytes (256, or 4096 for PCI Express) that can be reset.
    pub fn pci(config: u64) -> Self {
        let mut regions = vec![Region::default(); region::COUNT as usize];
        regions[region::CONFIG as usize] = Region::registers(config);
        Self { regions, vectors: [0; irq::COUNT as usize], resettable: true }
    }

    /// With BAR `bar` as described.
    ///
    /// # Panics
    /// There are BARs 0 to 5.
    #[must_use]
    pub fn with_bar(mut self, bar: u32, described: Region) -> Self {
        assert!(bar < region::BARS);
        if self.regions.len() <= bar as usize {
            self.regions.resize(region::COUNT as usize, Region::default());
        }
        self.regions[bar as usize] = described;
        self
    }

    /// With `count` vectors of a kind.
    ///
    /// # Panics
    /// When there is no such kind.
    #[must_use]
    pub fn with_vectors(mut self, kind: u32, count: u32) -> Self {
        self.vectors[kind as usize] = count;
        self
    }

    /// A region; of size 0 where there is none.
    pub fn region(&self, index: u32) -> Option<&Region> {
        self.regions.get(index as usize).filter(|region| region.size > 0)
    }
}

/// One region.
#[derive(Debug, Clone, Default)]
pub struct Region {
    /// Bytes; 0 when there is no such region.
    pub size: u64,
    /// May be read by message.
    pub readable: bool,
    /// May be written by message.
    pub writable: bool,
    /// The parts that the client may map, and so access without a message. The device looks into that memory by
    /// itself; what a client reads or writes there by message is served from the same memory.
    pub shared: Option<SharedAreas>,
    /// Eventfds that stand for writes, for clients that can make use of them (QEMU with KVM can).
    pub events: Vec<WriteEvent>,
}

impl Region {
    /// A region that is read and written by message alone.
    pub fn registers(size: u64) -> Self {
        Self { size, readable: true, writable: true, ..Self::default() }
    }

    /// With these parts (whole pages, by offset in the region) shared: byte `n` of the region is byte `n` of
    /// `memory`, which is as long as the region.
    ///
    /// # Panics
    /// When an area lies beyond the region, or the memory is shorter.
    #[must_use]
    pub fn with_shared(mut self, memory: SharedMemory, areas: impl IntoIterator<Item = Range<u64>>) -> Self {
        let areas = Vec::from_iter(areas);
        assert!(memory.len() as u64 >= self.size);
        assert!(areas.iter().all(|area| area.start < area.end && area.end <= self.size));
        self.shared = Some(SharedAreas { memory, areas });
        self
    }
}

/// The parts of a region that a client may map.
#[derive(Debug, Clone)]
pub struct SharedAreas {
    /// As long as the region, though only the areas matter.
    pub memory: SharedMemory,
    /// By offset in the region.
    pub areas: Vec<Range<u64>>,
}

impl SharedAreas {
    /// Whether all of a range is shared.
    pub fn contain(&self, offset: u64, len: usize) -> bool {
        self.areas.iter().any(|area| {
            offset >= area.start && offset.checked_add(len as u64).is_some_and(|end| end <= area.end)
        })
    }
}

/// An eventfd that stands for writes to a place in a region.
#[derive(Debug, Clone)]
pub struct WriteEvent {
    /// Where in the region.
    pub offset: u64,
    /// Bytes of the write; 0 for any.
    pub size: u64,
    /// Only writes of this value, if one is given.
    pub value: Option<u64>,
    /// Signalled for each write, or once for several. The device polls it.
    pub event: Arc<OwnedFd>,
}
