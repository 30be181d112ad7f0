//! What devices may ask for: the memory that is mapped in a domain, by I/O virtual address.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use uvia_vfio_user::client::ClientMemory;
use uvia_vfio_user::memory::{copy_in, copy_out};

use crate::dma::Rights;
use crate::dma::watch::{self, Fate};

/// The memory that is mapped. Devices access it through this only while it is: taking a range out waits until
/// accesses that have begun are done.
#[derive(Default)]
pub struct MappedMemory {
    ranges: RwLock<BTreeMap<u64, Range>>,
}

/// A pointer as a number: it is followed only here, and only while the range is in the table.
struct Range {
    address: usize,
    len: usize,
    rights: Rights,
    /// What has become of it, where it is watched.
    fate: Option<Arc<Fate>>,
}

impl MappedMemory {
    /// Lets devices access a range.
    ///
    /// # Safety
    /// As [`crate::dma::DmaDomain::map`], until [`Self::remove`] returns.
    pub unsafe fn insert(&self, iova: u64, address: *mut u8, len: usize, rights: Rights) {
        let range = Range { address: address.expose_provenance(), len, rights, fate: None };
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).insert(iova, range);
    }

    /// The program may unmap the range that begins at `iova`: nobody accesses it then.
    pub fn bind(&self, iova: u64, fate: &Arc<Fate>) {
        let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(range) = ranges.get_mut(&iova) {
            range.fate = Some(fate.clone());
        }
    }

    /// Ends all access to the range that begins at `iova`.
    pub fn remove(&self, iova: u64) {
        self.ranges.write().unwrap_or_else(PoisonError::into_inner).remove(&iova);
    }

    /// Calls `access` with where `len` bytes at `iova` lie, while they stay mapped.
    fn with<T>(
        &self,
        iova: u64,
        len: usize,
        rights: Rights,
        access: impl FnOnce(*mut u8) -> T,
    ) -> io::Result<T> {
        // What was unmapped before the device asked is known to be.
        watch::settle();
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let found = ranges.range(..=iova).next_back().and_then(|(start, range)| {
            let offset = usize::try_from(iova - start).ok()?;
            let within = offset <= range.len
                && range.len - offset >= len
                && !range.fate.as_ref().is_some_and(|fate| fate.is_gone());
            (within && range.rights.contains(rights))
                .then(|| std::ptr::with_exposed_provenance_mut::<u8>(range.address).wrapping_add(offset))
        });
        match found {
            Some(address) => Ok(access(address)),
            None => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        }
    }
}

impl ClientMemory for MappedMemory {
    fn read(&self, iova: u64, into: &mut [u8]) -> io::Result<()> {
        self.with(iova, into.len(), Rights::READ, |from| {
            // SAFETY: the range lies within one that its owner keeps mapped until it is removed, which the lock keeps
            // from happening now; `into` is a buffer of the connection's.
            unsafe { copy_out(from, into) }
        })
    }

    fn write(&self, iova: u64, from: &[u8]) -> io::Result<()> {
        self.with(iova, from.len(), Rights::WRITE, |into| {
            // SAFETY: as for `read`; the owner has allowed devices to write it.
            unsafe { copy_in(from, into) }
        })
    }
}

/// What one connection of a domain is given: the domain's memory, and who is to be woken when it ends.
#[derive(Default)]
pub struct Link {
    pub memory: Arc<MappedMemory>,
    /// Eventfds that interrupts are routed to: whoever sleeps on them would sleep for ever.
    pub sleepers: Mutex<Vec<OwnedFd>>,
}

impl ClientMemory for Link {
    fn read(&self, iova: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory.read(iova, into)
    }

    fn write(&self, iova: u64, from: &[u8]) -> io::Result<()> {
        self.memory.write(iova, from)
    }

    fn closed(&self) {
        for event in self.sleepers.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // One that cannot be written is signalled already, or nobody's any more.
            let _ = File::from(event).write(&1u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mapped_and_only_for_what_it_is_mapped_for() {
        let memory = MappedMemory::default();
        let mut bytes = [7u8; 64];
        // SAFETY: `bytes` outlives the table's entry, and is accessed by pointer meanwhile.
        unsafe { memory.insert(0x1000, bytes.as_mut_ptr(), 64, Rights::READ) };
        let mut into = [0; 8];
        memory.read(0x1038, &mut into).unwrap();
        assert_eq!(into, [7; 8]);
        for (iova, len) in [(0x1039, 8), (0xfff, 2), (0x1041, 0), (u64::MAX, 1)] {
            let refused = memory.read(iova, &mut vec![0; len]).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EFAULT), "{iova:#x}+{len}");
        }
        assert!(memory.write(0x1000, &[1]).is_err());
        memory.remove(0x1000);
        assert!(memory.read(0x1000, &mut into).is_err());
    }
}
