//! Adapter memory, and a view of it that no program has: what lies there can be looked at, and changed.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use memmap2::{MmapOptions, MmapRaw};
use uvia_driver::dma::copy;
use uvia_driver::pio::AdapterMemory;
use uvia_vfio_user::memory::sealed_memfd;

use super::PATIENCE;

/// Bytes of memory that is made for a test.
const SIZE: usize = 1 << 20;

/// Adapter memory, seen from two sides.
pub struct Memory {
    /// As programs have it.
    pub memory: Arc<AdapterMemory>,
    view: MmapRaw,
}

impl Memory {
    /// A memfd.
    ///
    /// # Panics
    /// When the system has none.
    pub fn of_host() -> Self {
        let fd = sealed_memfd("adapter-memory", SIZE).expect("there is memory");
        let view = MmapOptions::new().len(SIZE).map_raw(fd.as_raw_fd()).expect("it can be mapped");
        Self { memory: AdapterMemory::of_file("memfd", fd).expect("it is adapter memory"), view }
    }

    /// That of a PCI function of this machine.
    ///
    /// # Panics
    /// When it cannot be used.
    pub fn of_function(name: &str) -> Self {
        let memory = AdapterMemory::open(name).unwrap_or_else(|e| panic!("{e}"));
        let folder = Path::new("/sys/bus/pci/devices").join(name);
        // The same kind of mapping as programs have: the kernel gives no other beside it.
        let combining = folder.join("resource2_wc");
        let path = if combining.exists() { combining } else { folder.join("resource2") };
        let file = File::options().read(true).write(true).open(&path).expect("as root");
        let len = file.metadata().expect("it is a file").len() as usize;
        let view =
            MmapOptions::new().len(len).map_raw(&file).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self { memory, view }
    }

    /// Waits until so many windows are left. A child that another test of this process forks has its leases, too, until
    /// it runs something else or ends.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn wait_for_windows(&self, left: usize) {
        let start = Instant::now();
        while self.memory.windows().left != left {
            assert!(start.elapsed() < PATIENCE, "{} of {left} windows are left", self.memory.windows().left);
            std::thread::yield_now();
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Always false: there is none without bytes.
    pub fn is_empty(&self) -> bool {
        self.view.len() == 0
    }

    /// What lies there.
    ///
    /// # Panics
    /// When there are not so many bytes.
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at <= self.view.len() && self.view.len() - at >= len);
        let mut bytes = vec![0; len];
        // SAFETY: within the mapping, as was checked, which lives as long as `self`; the copy is by volatile accesses.
        unsafe { copy::copy(self.view.as_ptr().add(at), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Changes what lies there.
    ///
    /// # Panics
    /// When there are not so many bytes.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.view.len() && self.view.len() - at >= bytes.len());
        // SAFETY: as for `read`. Whoever else has the memory mapped expects it to change.
        unsafe { copy::copy(bytes.as_ptr(), self.view.as_mut_ptr().add(at), bytes.len()) };
        // Stores that are combined are written out before anything that follows.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}
