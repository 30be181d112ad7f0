//! The I/O address space of devices that other processes serve.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uvia_vfio_user::client::{Client, ClientOptions};

use super::anonymous::Moved;
use super::device::VfioUserDevice;
use super::memory::{Link, MappedMemory};
use super::name::{Place, inherited};
use crate::dma::watch::Fate;
use crate::dma::{DeviceAccess, DmaDomain, DomainLimits, IovaSpace, Rights};
use crate::pci::{DeviceDomain, PciDevice};
use crate::{Error, Result};

/// The granularity that all servers know.
const PAGE: u64 = 4096;

/// Addresses of 48 bits, as common IOMMUs have.
const LAST: u64 = (1 << 48) - 1;

/// An I/O address space that is kept by the processes that serve its devices: each is told of all that is mapped.
pub struct VfioUserDomain {
    state: Mutex<State>,
    /// What devices may ask for; locked on its own, since they do so while the state is.
    memory: Arc<MappedMemory>,
}

struct State {
    space: IovaSpace,
    mappings: BTreeMap<u64, Mapping>,
    devices: Vec<Arc<Client>>,
}

struct Mapping {
    len: usize,
    rights: Rights,
    backing: Backing,
}

/// What memory is made of, as far as devices can make use of it.
enum Backing {
    /// They have to ask.
    Memory,
    /// It lies in a file, at this offset.
    File(OwnedFd, u64),
    /// These of its bytes were moved into a file; for the others they have to ask.
    Moved(Moved, Range<usize>),
}

/// A part of a mapping that is told to devices at once.
type Part<'a> = (Range<usize>, Option<(BorrowedFd<'a>, u64)>);

impl Mapping {
    fn parts(&self) -> Vec<Part<'_>> {
        match &self.backing {
            Backing::Memory => vec![(0..self.len, None)],
            Backing::File(fd, offset) => vec![(0..self.len, Some((fd.as_fd(), *offset)))],
            Backing::Moved(moved, pages) => [
                (0..pages.start, None),
                (pages.clone(), Some((moved.file(), 0))),
                (pages.end..self.len, None),
            ]
            .into_iter()
            .filter(|(range, _)| !range.is_empty())
            .collect(),
        }
    }

    fn tell(&self, device: &Client, iova: u64) -> uvia_vfio_user::Result<()> {
        let rights = uvia_vfio_user::Rights::from_bits_truncate(self.rights.bits());
        for (range, file) in self.parts() {
            device.dma_map(iova + range.start as u64, range.len() as u64, rights, file)?;
        }
        Ok(())
    }

    /// Takes it back from a device, part by part as it was told. One that refuses, or is gone, has been given memory
    /// that stays valid for it as long as it likes: files are shared by reference, and all else it had to ask for.
    fn forget(&self, device: &Client, iova: u64) {
        for (range, _) in self.parts() {
            if let Err(e) = device.dma_unmap(iova + range.start as u64, range.len() as u64) {
                tracing::debug!("unmapping memory: {e}");
            }
        }
    }
}

impl VfioUserDomain {
    /// An empty domain.
    pub fn new() -> Arc<Self> {
        let space = IovaSpace::new(&[0..=LAST], PAGE);
        Arc::new(Self {
            state: Mutex::new(State { space, mappings: BTreeMap::new(), devices: Vec::new() }),
            memory: Arc::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave the books half-written: every change is one insertion or removal.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A device was closed; it is told of nothing any more.
    pub(super) fn release(&self, device: &Arc<Client>) {
        self.state().devices.retain(|open| !Arc::ptr_eq(open, device));
    }

    /// Maps a range, whatever it is made of.
    ///
    /// # Safety
    /// As [`DmaDomain::map`]; and it is what `backing` says.
    unsafe fn map_any(&self, address: *mut u8, len: usize, rights: Rights, backing: Backing) -> Result<u64> {
        if len == 0 || !(address as u64).is_multiple_of(PAGE) || !(len as u64).is_multiple_of(PAGE) {
            return Err(Error::Argument {
                what: format!("{len} bytes at {address:p} are not whole pages of {PAGE} bytes"),
            });
        }
        if rights.is_empty() {
            return Err(Error::Argument { what: "a DMA mapping without any rights".to_owned() });
        }
        // Locked until all devices know: a device that is opened meanwhile would miss it.
        let mut state = self.state();
        let Some(iova) = state.space.allocate(len as u64, address as u64) else {
            return Err(Error::ApertureExceeded { len: len as u64, apertures: format!("0x1000-{LAST:#x}") });
        };
        let mapping = Mapping { len, rights, backing };
        // SAFETY: the caller's promise, until the range is unmapped, or below when it is not mapped after all.
        unsafe { self.memory.insert(iova, address, len, rights) };
        let mut told: Vec<Arc<Client>> = Vec::new();
        for device in &state.devices {
            match mapping.tell(device, iova) {
                Ok(()) => told.push(device.clone()),
                // A device that is gone is no hindrance to the others; its driver finds out by itself.
                Err(e) if device.is_closed() => tracing::debug!("mapping memory: {e}"),
                Err(e) => {
                    // What this one has of it, too.
                    for device in told.iter().chain([device]) {
                        mapping.forget(device, iova);
                    }
                    self.memory.remove(iova);
                    state.space.free(iova, len as u64);
                    return Err(e.into());
                }
            }
        }
        state.mappings.insert(iova, mapping);
        Ok(iova)
    }
}

impl DeviceDomain for VfioUserDomain {
    fn open(self: Arc<Self>, name: &str) -> Result<Arc<dyn PciDevice>> {
        let link = Arc::new(Link { memory: self.memory.clone(), sleepers: Mutex::default() });
        let options = ClientOptions::default();
        let client = match Place::parse(name)? {
            Place::Path(path) => Client::connect(&path, link.clone(), options)?,
            Place::Inherited(fd) => Client::over(inherited(fd)?, &format!("fd:{fd}"), link.clone(), options)?,
        };
        let client = Arc::new(client);
        // Made first, so that whatever fails from here on closes it in order.
        let device = VfioUserDevice::new(name, self.clone(), client.clone(), link)?;
        let mut state = self.state();
        for (iova, mapping) in &state.mappings {
            if let Err(e) = mapping.tell(&client, *iova) {
                // The device's end asks for the lock.
                drop(state);
                return Err(e.into());
            }
        }
        state.devices.push(client);
        drop(state);
        Ok(Arc::new(device))
    }
}

impl DmaDomain for VfioUserDomain {
    unsafe fn map(&self, address: *mut u8, len: usize, rights: Rights) -> Result<u64> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.map_any(address, len, rights, Backing::Memory) }
    }

    unsafe fn map_around(
        &self,
        address: *mut u8,
        len: usize,
        rights: Rights,
        inner: Range<usize>,
    ) -> Result<u64> {
        let page = PAGE as usize;
        let pages = inner.start.next_multiple_of(page)..inner.end / page * page;
        let moved = if pages.is_empty() {
            None
        } else {
            // SAFETY: within what the caller keeps mapped until it is unmapped here.
            unsafe { Moved::new(address.add(pages.start), pages.len()) }
        };
        let backing = moved.map_or(Backing::Memory, |moved| Backing::Moved(moved, pages));
        // SAFETY: the caller's promise is the same.
        unsafe { self.map_any(address, len, rights, backing) }
    }

    fn bind(&self, iova: u64, fate: &Arc<Fate>) {
        self.memory.bind(iova, fate);
        if let Some(Mapping { backing: Backing::Moved(moved, _), .. }) = self.state().mappings.get_mut(&iova)
        {
            moved.bind(fate);
        }
    }

    fn prefers_files(&self) -> bool {
        true
    }

    unsafe fn map_file(
        &self,
        address: *mut u8,
        len: usize,
        rights: Rights,
        fd: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<u64> {
        let fd =
            fd.try_clone_to_owned().map_err(|e| Error::io("sharing memory with the device's process", e))?;
        // SAFETY: the caller's promise is the same.
        unsafe { self.map_any(address, len, rights, Backing::File(fd, offset)) }
    }

    fn device_access(&self, iova: u64) -> DeviceAccess {
        match self.state().mappings.get(&iova) {
            Some(Mapping { backing: Backing::File(..), .. }) => DeviceAccess::Direct,
            Some(Mapping { backing: Backing::Moved(_, pages), len, .. }) => match *pages == (0..*len) {
                true => DeviceAccess::Direct,
                false => DeviceAccess::DirectButEnds,
            },
            _ => DeviceAccess::Messages,
        }
    }

    fn unmap(&self, iova: u64, len: usize) -> Result<()> {
        let mut state = self.state();
        let Some(mapping) = state.mappings.get(&iova).filter(|mapping| mapping.len == len) else {
            return Err(Error::Argument {
                what: format!("{len} bytes at I/O address {iova:#x} are no mapping of this domain"),
            });
        };
        for device in &state.devices {
            mapping.forget(device, iova);
        }
        self.memory.remove(iova);
        // What was moved for devices is moved back now that none refers to it.
        state.mappings.remove(&iova);
        state.space.free(iova, len as u64);
        Ok(())
    }

    fn limits(&self) -> DomainLimits {
        let state = self.state();
        let least = state.devices.iter().map(|device| device.capabilities().max_dma_maps).min();
        DomainLimits { apertures: state.space.usable().to_vec(), max_mappings: least, page_size: PAGE }
    }
}

impl fmt::Debug for VfioUserDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("VfioUserDomain")
            .field("devices", &state.devices)
            .field("mappings", &state.mappings.len())
            .finish_non_exhaustive()
    }
}
