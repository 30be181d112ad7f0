//! A VFIO container: the I/O address space that kernel-owned devices are opened into.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfio_ioctls::{VfioContainer, VfioDevice, VfioOps};

use super::info::IommuInfo;
use super::{KernelDevice, diagnosis, ioctl, populate};
use crate::dma::{DmaDomain, DomainLimits, IovaSpace, Rights};
use crate::pci::{DeviceDomain, PciAddress, PciDevice, Sysfs};
use crate::{Error, Result};

/// An I/O address space in the kernel. Memory can be mapped once the first device has been opened into it:
/// before that there is no IOMMU to map it in.
pub struct KernelDomain {
    // Before the container, so dropped before it.
    state: Mutex<State>,
    container: Arc<VfioContainer>,
    sysfs: Sysfs,
}

#[derive(Default)]
struct State {
    /// Known from the first device on; what later ones narrow is taken out.
    space: Option<IovaSpace>,
    page_size: u64,
    max_mappings: Option<u64>,
    /// What is mapped, or being mapped: length by I/O virtual address.
    mappings: BTreeMap<u64, usize>,
    /// The devices open in this domain.
    open: BTreeSet<PciAddress>,
    /// The last device closed, kept since the container's mappings would go with it.
    anchor: Option<(PciAddress, VfioDevice)>,
}

/// Whether this process ever had a container, in which memory is pinned page by page.
static USED: AtomicBool = AtomicBool::new(false);

/// Whether memory of this process may be pinned by the kernel: what its pages are made of must not change then.
pub fn was_used() -> bool {
    USED.load(Ordering::SeqCst)
}

impl KernelDomain {
    /// An empty domain.
    ///
    /// # Errors
    /// [`Error::NoVfio`], [`Error::Permission`].
    pub fn new() -> Result<Arc<Self>> {
        USED.store(true, Ordering::SeqCst);
        let container = VfioContainer::new(None).map_err(diagnosis::no_container)?;
        Ok(Arc::new(Self {
            state: Mutex::new(State { page_size: 4096, ..State::default() }),
            container: Arc::new(container),
            sysfs: Sysfs::default(),
        }))
    }

    /// An empty domain for a device that is looked at first, so that what is wrong with it is told before
    /// what may be wrong with VFIO.
    ///
    /// # Errors
    /// As [`DeviceDomain::open`].
    pub fn for_device(address: PciAddress) -> Result<Arc<Self>> {
        diagnosis::before_open(&Sysfs::default(), address)?;
        Self::new()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave the books half-written: every change is one insertion or removal
        // after the kernel has answered.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the container keeps its file open as long as it lives, which is at least as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.container.as_raw_fd()) }
    }

    /// Takes a closed device back: it has been told to master the bus no more. `reset` resets it, which the
    /// kernel does only when the last file of it is closed.
    pub(super) fn release(&self, address: PciAddress, device: VfioDevice, reset: impl FnOnce(&VfioDevice)) {
        let mut state = self.state();
        state.open.remove(&address);
        if state.open.is_empty() && !state.mappings.is_empty() {
            reset(&device);
            state.anchor = Some((address, device));
        } else {
            close(device);
        }
    }
}

impl State {
    /// Takes the IOMMU's description over; it changes with the devices that are in the container.
    fn adopt(&mut self, info: IommuInfo) {
        let mut space = IovaSpace::new(&info.apertures, info.page_size);
        for (iova, len) in &self.mappings {
            // The kernel refuses a device whose IOMMU cannot hold what is mapped, so that this is free.
            space.reserve(*iova, *len as u64);
        }
        self.page_size = info.page_size;
        self.max_mappings = info.mappings_left.map(|left| left + self.mappings.len() as u64);
        self.space = Some(space);
    }

    fn forget(&mut self, iova: u64, len: usize) {
        self.mappings.remove(&iova);
        if let Some(space) = &mut self.space {
            space.free(iova, len as u64);
        }
    }

    fn drop_unused_anchor(&mut self) {
        if (self.mappings.is_empty() || !self.open.is_empty())
            && let Some((_, device)) = self.anchor.take()
        {
            close(device);
        }
    }

    fn apertures(&self) -> String {
        let ranges = self.space.as_ref().map_or(&[][..], IovaSpace::usable);
        let words: Vec<_> = ranges.iter().map(|r| format!("{:#x}-{:#x}", r.start(), r.end())).collect();
        words.join(", ")
    }
}

/// Closes a device. vfio-ioctls looks its group up in sysfs once more, and panics when the function was
/// unplugged meanwhile; by then its file is closed, which is all that matters.
fn close(device: VfioDevice) {
    if catch_unwind(AssertUnwindSafe(|| drop(device))).is_err() {
        tracing::warn!("a device was unplugged while it was being closed");
    }
}

impl DeviceDomain for KernelDomain {
    fn open(self: Arc<Self>, name: &str) -> Result<Arc<dyn PciDevice>> {
        let address: PciAddress = name.parse()?;
        let (_, group) = diagnosis::before_open(&self.sysfs, address)?;
        let device = {
            let mut state = self.state();
            if state.open.contains(&address) {
                let holders = vec![(std::process::id(), "this process, in this domain".to_owned())];
                return Err(Error::GroupBusy { device: address.to_string(), group, holders });
            }
            let device = match state.anchor.take() {
                Some((kept, device)) if kept == address => device,
                other => {
                    state.anchor = other;
                    let path = self.sysfs.function_path(address);
                    let container: Arc<dyn VfioOps> = self.container.clone();
                    VfioDevice::new(&path, container, false)
                        .map_err(|e| diagnosis::no_device(&self.sysfs, address, group, e))?
                }
            };
            match ioctl::iommu_info(self.fd()) {
                Ok(info) => state.adopt(IommuInfo::parse(&info)),
                Err(e) => {
                    close(device);
                    return Err(Error::io(format!("{address}: asking what its IOMMU can hold"), e));
                }
            }
            state.open.insert(address);
            state.drop_unused_anchor();
            device
        };
        Ok(Arc::new(KernelDevice::new(self.clone(), address, device)?))
    }
}

impl DmaDomain for KernelDomain {
    unsafe fn map(&self, address: *mut u8, len: usize, rights: Rights) -> Result<u64> {
        let iova = {
            let mut state = self.state();
            let page = state.page_size;
            let aligned = (address as u64).is_multiple_of(page) && (len as u64).is_multiple_of(page);
            if len == 0 || !aligned {
                return Err(Error::Argument {
                    what: format!("{len} bytes at {address:p} are not whole pages of {page} bytes"),
                });
            }
            if rights.is_empty() {
                return Err(Error::Argument { what: "a DMA mapping without any rights".to_owned() });
            }
            let Some(space) = &mut state.space else {
                return Err(Error::Argument {
                    what: "no device has been opened into this domain yet, so that it has no IOMMU to map \
                           memory in"
                        .to_owned(),
                });
            };
            let Some(iova) = space.allocate(len as u64, address as u64) else {
                return Err(Error::ApertureExceeded { len: len as u64, apertures: state.apertures() });
            };
            // On the books before the kernel is asked, so that neither a device that is opened nor one that
            // is closed meanwhile takes the range for unused.
            state.mappings.insert(iova, len);
            iova
        };
        if !rights.contains(Rights::WRITE) {
            populate::make_private(address, len);
        }
        // SAFETY: the caller's contract is that of the call.
        match unsafe { ioctl::map_dma(self.fd(), iova, address, len as u64, rights) } {
            Ok(()) => Ok(iova),
            Err(e) => {
                let mut state = self.state();
                state.forget(iova, len);
                state.drop_unused_anchor();
                Err(diagnosis::no_mapping(address, len, state.max_mappings, e))
            }
        }
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<()> {
        let mut state = self.state();
        if state.mappings.get(&iova) != Some(&len) {
            return Err(Error::Argument {
                what: format!("{len} bytes at I/O address {iova:#x} are no mapping of this domain"),
            });
        }
        let what = || format!("unmapping {len} bytes at I/O address {iova:#x}");
        let unmapped = ioctl::unmap_dma(self.fd(), iova, len as u64).map_err(|e| Error::io(what(), e))?;
        state.forget(iova, len);
        state.drop_unused_anchor();
        if unmapped != len as u64 {
            return Err(Error::Io {
                what: what(),
                source: std::io::Error::other(format!("the kernel had {unmapped} bytes mapped")),
            });
        }
        Ok(())
    }

    fn limits(&self) -> DomainLimits {
        let state = self.state();
        DomainLimits {
            apertures: state.space.as_ref().map_or_else(Vec::new, |space| space.usable().to_vec()),
            max_mappings: state.max_mappings,
            page_size: state.page_size,
        }
    }
}

impl fmt::Debug for KernelDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("KernelDomain")
            .field("open", &state.open)
            .field("mappings", &state.mappings.len())
            .finish_non_exhaustive()
    }
}
