//! The other side of a driver in tests: a PCI function whose registers are a model's code, and an I/O address
//! space that lets it reach what is mapped and nothing else.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::{Nic, TxFrame};
use crate::dma::{DmaDomain, DmaMemory, DmaSegment, DomainLimits, Rights, copy};
use crate::pci::{InterruptCounts, InterruptKind, PciDevice, RegionInfo, RegionMapping, ResetOutcome};
use crate::pio::AdapterMemory;
use crate::{Error, Result};

/// An I/O address space with addresses of its own: a device that used the process's would be found out.
#[derive(Default)]
pub struct Space {
    mappings: Mutex<BTreeMap<u64, (usize, usize, Rights)>>,
}

/// Device addresses are the process's less this.
const SHIFT: u64 = 0x1000_0000;

impl Space {
    /// Where `len` bytes at `iova` lie in the process, if they are mapped with these rights.
    pub fn translate(&self, iova: u64, len: usize, rights: Rights) -> Option<*mut u8> {
        let mappings = self.mappings.lock().unwrap();
        let (start, (address, size, has)) = mappings.range(..=iova).next_back()?;
        let offset = (iova - start) as usize;
        (offset + len <= *size && has.contains(rights)).then(|| (*address as *mut u8).wrapping_add(offset))
    }

    /// What devices may do with memory that lies there in the process; `None` where it is not mapped.
    pub fn rights_of(&self, address: *const u8) -> Option<Rights> {
        let mappings = self.mappings.lock().unwrap();
        let of = |(start, len, _): &&(usize, usize, Rights)| (*start..start + len).contains(&address.addr());
        mappings.values().find(of).map(|(_, _, rights)| *rights)
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.mappings.lock().unwrap().is_empty()
    }

    /// All mappings: device address, process address, bytes.
    pub fn all(&self) -> Vec<(u64, *mut u8, usize)> {
        self.mappings.lock().unwrap().iter().map(|(i, (a, l, _))| (*i, *a as *mut u8, *l)).collect()
    }
}

impl DmaDomain for Space {
    unsafe fn map(&self, address: *mut u8, len: usize, rights: Rights) -> Result<u64> {
        let iova = address as u64 - SHIFT;
        self.mappings.lock().unwrap().insert(iova, (address as usize, len, rights));
        Ok(iova)
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<()> {
        let removed = self.mappings.lock().unwrap().remove(&iova);
        assert_eq!(removed.map(|(_, l, _)| l), Some(len), "unmapped what was not mapped");
        Ok(())
    }

    fn limits(&self) -> DomainLimits {
        DomainLimits { apertures: vec![0..=u64::MAX], max_mappings: None, page_size: 4096 }
    }
}

/// The device's way to memory, and to its interrupt.
#[derive(Clone)]
pub struct Bus {
    pub space: Arc<Space>,
    master: Arc<AtomicBool>,
    vectors: Arc<Mutex<Vec<OwnedFd>>>,
}

impl Bus {
    fn reach(&self, iova: u64, len: usize, rights: Rights) -> *mut u8 {
        assert!(self.master.load(Ordering::SeqCst), "DMA without bus mastering");
        self.space
            .translate(iova, len, rights)
            .unwrap_or_else(|| panic!("DMA to {iova:#x}+{len}, which is not mapped for {rights:?}"))
    }

    pub fn read(&self, iova: u64, into: &mut [u8]) {
        let from = self.reach(iova, into.len(), Rights::READ);
        // SAFETY: mapped, as `reach` found; drivers unmap only what the model no longer uses, which is what
        // the tests are about, and all runs in one thread.
        unsafe { copy::copy(from, into.as_mut_ptr(), into.len()) }
    }

    pub fn write(&self, iova: u64, from: &[u8]) {
        let to = self.reach(iova, from.len(), Rights::WRITE);
        // SAFETY: as for reading.
        unsafe { copy::copy(from.as_ptr(), to, from.len()) }
    }

    /// As a device that no IOMMU keeps from writing what is mapped for reading.
    pub fn overwrite(&self, iova: u64, from: &[u8]) {
        let to = self.reach(iova, from.len(), Rights::READ);
        // SAFETY: as for reading; drivers reach what devices share by volatile accesses only.
        unsafe { copy::copy(from.as_ptr(), to, from.len()) }
    }

    pub fn is_master(&self) -> bool {
        self.master.load(Ordering::SeqCst)
    }

    pub fn interrupt(&self) {
        use std::os::fd::AsRawFd;
        for vector in self.vectors.lock().unwrap().iter() {
            let one = 1u64;
            // SAFETY: writes 8 bytes from a local to a descriptor that is open.
            let written = unsafe { libc::write(vector.as_raw_fd(), (&raw const one).cast(), 8) };
            assert_eq!(written, 8);
        }
    }
}

/// Registers as code.
pub trait Model: Send {
    /// Configuration space at reset.
    fn config(&self) -> Vec<u8>;
    /// Size of a BAR.
    fn bar(&self, bar: u8) -> u64;
    fn read(&mut self, bar: u8, offset: u64, into: &mut [u8]);
    fn write(&mut self, bus: &Bus, bar: u8, offset: u64, from: &[u8]);
    fn reset(&mut self);
    fn interrupts(&self) -> InterruptCounts;
}

/// A [`Model`] as a PCI function. The test keeps it too, and reaches into the model between calls.
pub struct Modelled<M> {
    pub model: Mutex<M>,
    pub bus: Bus,
    config: Mutex<Vec<u8>>,
    domain: Arc<dyn DmaDomain>,
}

impl<M: Model + 'static> Modelled<M> {
    pub fn new(model: M) -> Arc<Self> {
        let space = Arc::new(Space::default());
        Arc::new(Self {
            config: Mutex::new(model.config()),
            model: Mutex::new(model),
            bus: Bus { space: space.clone(), master: Arc::default(), vectors: Arc::default() },
            domain: space,
        })
    }

    /// Looks at, or changes, the model.
    pub fn with<T>(&self, f: impl FnOnce(&mut M, &Bus) -> T) -> T {
        f(&mut self.model.lock().unwrap(), &self.bus)
    }
}

impl<M: Model + 'static> PciDevice for Modelled<M> {
    fn name(&self) -> &str {
        "model"
    }

    fn domain(&self) -> &Arc<dyn DmaDomain> {
        &self.domain
    }

    fn config_read(&self, offset: u16, into: &mut [u8]) -> Result<()> {
        let config = self.config.lock().unwrap();
        let range = usize::from(offset)..usize::from(offset) + into.len();
        let from = config.get(range).ok_or_else(|| Error::Argument { what: "beyond the end".to_owned() })?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn config_write(&self, _offset: u16, _from: &[u8]) -> Result<()> {
        Ok(())
    }

    fn region(&self, bar: u8) -> Result<RegionInfo> {
        let size = self.with(|model, _| model.bar(bar));
        Ok(RegionInfo { size, readable: true, writable: true, mappable: false })
    }

    fn region_read(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()> {
        self.with(|model, _| model.read(bar, offset, into));
        Ok(())
    }

    fn region_write(&self, bar: u8, offset: u64, from: &[u8]) -> Result<()> {
        self.with(|model, bus| model.write(bus, bar, offset, from));
        Ok(())
    }

    fn map_region(&self, _bar: u8) -> Result<Option<Arc<RegionMapping>>> {
        Ok(None)
    }

    fn interrupts(&self) -> InterruptCounts {
        self.with(|model, _| model.interrupts())
    }

    fn enable_interrupts(&self, _kind: InterruptKind, vectors: &[BorrowedFd<'_>]) -> Result<()> {
        let owned = vectors.iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect();
        *self.bus.vectors.lock().unwrap() = owned;
        Ok(())
    }

    fn disable_interrupts(&self, _kind: InterruptKind) -> Result<()> {
        self.bus.vectors.lock().unwrap().clear();
        Ok(())
    }

    fn unmask_intx(&self) -> Result<()> {
        Ok(())
    }

    fn set_bus_master(&self, on: bool) -> Result<()> {
        self.bus.master.store(on, Ordering::SeqCst);
        Ok(())
    }

    fn reset(&self) -> Result<ResetOutcome> {
        self.set_bus_master(false)?;
        self.bus.vectors.lock().unwrap().clear();
        self.with(|model, _| model.reset());
        Ok(ResetOutcome::Done)
    }
}

/// Frames on their way through a model: what it was told to send, and what it is to receive.
#[derive(Default)]
pub struct Wire {
    pub sent: VecDeque<Vec<u8>>,
    pub waiting: VecDeque<Vec<u8>>,
}

/// A caller's memory, and frames cut from it.
pub struct Payload {
    pub memory: DmaMemory,
}

impl Payload {
    pub fn new(domain: Arc<dyn DmaDomain>) -> Self {
        Self { memory: DmaMemory::allocate(domain, 1 << 16, Rights::READ).unwrap() }
    }

    /// `len` bytes that depend on `seed`, cut into `parts`, at `slot` of 32.
    pub fn frame(&self, seed: usize, len: usize, parts: usize) -> (Vec<DmaSegment>, Vec<u8>) {
        let start = seed % 32 * 2048;
        let bytes: Vec<u8> = (0..len).map(|n| (n * 7 + seed * 13 + n / 251) as u8).collect();
        self.memory.write_bytes(start, &bytes);
        let cut = |n: usize| start + len * n / parts;
        let segments = (0..parts).map(|n| self.memory.segment(cut(n)..cut(n + 1)).unwrap()).collect();
        (segments, bytes)
    }
}

/// Sends a frame of `len` bytes in `parts`; answers its bytes, or `None` when the ring is full.
pub fn put(nic: &mut dyn Nic, payload: &Payload, token: u64, len: usize, parts: usize) -> Option<Vec<u8>> {
    let (segments, bytes) = payload.frame(token as usize, len, parts);
    nic.transmit(&TxFrame { segments: &segments, token }).unwrap().then_some(bytes)
}

/// All tokens that are ready.
pub fn reclaimed(nic: &mut dyn Nic) -> Vec<u64> {
    let mut tokens = Vec::new();
    let count = nic.reclaim(&mut |token| tokens.push(token)).unwrap();
    assert_eq!(count, tokens.len());
    tokens
}

/// All frames that are ready, up to `budget`.
pub fn received(nic: &mut dyn Nic, budget: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let count = nic
        .receive(budget, &mut |frame| {
            let mut bytes = vec![0; frame.len()];
            assert!(frame.read(0, &mut bytes));
            frames.push(bytes);
        })
        .unwrap();
    assert_eq!(count, frames.len());
    frames
}

/// Adapter memory of a test's own, and where it lies: in windows that are mapped once they are leased.
pub fn adapter_memory() -> Arc<AdapterMemory> {
    let fd = uvia_vfio_user::memory::sealed_memfd("adapter-memory", 1 << 20).unwrap();
    AdapterMemory::of_file("test", fd).unwrap()
}

/// Sends `rounds` bursts by a NIC whose transmit ring lies in adapter memory, to a model that does as it is told.
pub fn send_bursts(
    nic: &mut dyn Nic,
    payload: &Payload,
    rounds: u64,
    mut sent: impl FnMut() -> Option<Vec<u8>>,
) {
    let mut token = 0;
    for round in 0..rounds {
        let mut expected = Vec::new();
        for n in 0..1 + round % 5 {
            let Some(bytes) = put(nic, payload, token, 60 + n as usize * 31, 1 + (round + n) as usize % 3)
            else {
                break;
            };
            expected.push(bytes);
            token += 1;
        }
        nic.flush().unwrap();
        assert_eq!(reclaimed(nic).len(), expected.len());
        for frame in expected {
            assert!(sent().as_ref() == Some(&frame), "a frame differs");
        }
    }
}

/// `len` bytes with an 802.1Q tag.
pub fn tagged(len: usize) -> Vec<u8> {
    let mut frame = vec![6; len];
    frame[12..14].copy_from_slice(&[0x81, 0x00]);
    frame
}

/// A new NIC carries frames of `longest` bytes both ways, and no longer ones; two that came were counted as too long then.
pub fn carries_its_longest(
    nic: &mut dyn Nic,
    payload: &Payload,
    longest: usize,
    mut sent: impl FnMut() -> Option<Vec<u8>>,
    mut deliver: impl FnMut(&[u8]),
) {
    // Out: in one part and in as many as there may be; one byte more is refused.
    for (token, parts) in [(0, 1), (1, 16)] {
        let bytes = put(nic, payload, token, longest, parts).unwrap();
        nic.flush().unwrap();
        assert!(sent().unwrap() == bytes);
        assert_eq!(reclaimed(nic), [token]);
    }
    let (segments, _) = payload.frame(0, longest + 1, 1);
    let refused = nic.transmit(&TxFrame { segments: &segments, token: 9 });
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains(&format!("{} bytes", longest + 1)) && said.contains(&longest.to_string()),
        "{said}"
    );
    // In: whole, and with a tag that comes on top; one byte more is dropped and counted.
    for len in [longest, longest + 1] {
        deliver(&vec![5; len]);
        deliver(&tagged(len + 4));
    }
    assert!(received(nic, 16) == [vec![5; longest], tagged(longest + 4)], "{longest}");
    assert_eq!(nic.statistics().rx_errors, 2, "{longest}");
}
