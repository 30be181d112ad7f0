//! Where adapter memory comes from, by name.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};
use uvia_vfio_user::memory::SharedMemory;

use super::Caching;
use crate::pci::config::{COMMAND, COMMAND_MEMORY};
use crate::pci::{self, PciAddress, Sysfs, Way};
use crate::{Error, Result};

/// Functions that have memory to give: vendor, device, BAR. The first is ivshmem-plain (QEMU), and the models'.
const KNOWN: &[(u16, u16, u8)] = &[(0x1af4, 0x1110, 2)];
/// How long a function may take to wake up.
const WAKING: Duration = Duration::from_secs(2);

/// Memory of an adapter, mapped.
pub(super) struct Source {
    pub(super) name: String,
    mapping: Mapping,
    pub(super) caching: Caching,
    /// The file that locks are taken on, to be opened anew for each.
    lock: PathBuf,
}

enum Mapping {
    /// A function of this machine, by its file in sysfs.
    Function(MmapRaw, File),
    /// A memfd, of a process that serves it or of our own.
    Shared(SharedMemory),
}

impl Source {
    /// Opens the memory of that name: a PCI address, or `vfio-user:PATH`.
    pub(super) fn open(name: &str) -> Result<Self> {
        match pci::way(name)? {
            Way::Kernel(address) => Self::function(&Sysfs::default(), address),
            Way::VfioUser => Self::served(name),
        }
    }

    /// The memory that a memfd is, sealed against shrinking.
    pub(super) fn file(name: &str, fd: OwnedFd) -> Result<Self> {
        let failed = |e| Error::io(format!("adapter memory {name}"), e);
        let len = File::from(fd.try_clone().map_err(failed)?).metadata().map_err(failed)?.len();
        let len = usize::try_from(len).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
        let memory = SharedMemory::from_peer(fd, 0, len, true).map_err(failed)?;
        let lock = PathBuf::from(format!("/proc/self/fd/{}", memory.fd().as_raw_fd()));
        Ok(Self { name: name.to_owned(), mapping: Mapping::Shared(memory), caching: Caching::Cached, lock })
    }

    /// The BAR of a function that another process serves. What is mapped is memory of its own, so that the connection is
    /// not needed any further.
    fn served(name: &str) -> Result<Self> {
        let (ids, details) = {
            let bar = KNOWN[0].2;
            pci::describe_bar(name, bar)?
        };
        known_bar(name, ids)?;
        let bad = |why: &str| Error::AdapterMemory { memory: name.to_owned(), why: why.to_owned() };
        let file = details.file.ok_or_else(|| bad("its BAR cannot be mapped"))?;
        if details.offset != 0 {
            return Err(bad("its BAR is only a part of a file, which others may use"));
        }
        let source = Self::file(name, file)?;
        match source.len() as u64 >= details.size {
            true => Ok(source),
            false => Err(bad("its file is shorter than its BAR")),
        }
    }

    /// The BAR of a function of this machine, by sysfs: write-combining where the kernel can map it so. VFIO would map it
    /// uncached, and for one process only.
    fn function(sysfs: &Sysfs, address: PciAddress) -> Result<Self> {
        let name = address.to_string();
        let function = sysfs.function(address)?;
        let bar = known_bar(&name, (function.vendor, function.device))?;
        if function.driver.is_some() && !function.is_on_vfio() {
            return Err(Error::NotBound { device: name, driver: function.driver });
        }
        let folder = sysfs.function_path(address);
        wake(&name, &folder)?;
        decode(&name, &folder)?;
        let lock = folder.join(format!("resource{bar}"));
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
        let combining = folder.join(format!("resource{bar}_wc"));
        let (path, caching) = match combining.exists() {
            true => (combining, Caching::WriteCombining),
            false => (lock.clone(), Caching::Uncached),
        };
        let failed = |e| Error::io(format!("adapter memory {name}: mapping {}", path.display()), e);
        let file = open(&path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let len = usize::try_from(len).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
        if len == 0 {
            return Err(Error::AdapterMemory { memory: name, why: format!("its BAR {bar} has no memory") });
        }
        let map = MmapOptions::new().len(len).map_raw(&file).map_err(|e| match e.raw_os_error() {
            // The kernel has one kind of mapping of a BAR at a time.
            Some(libc::EINVAL | libc::EPERM) => Error::AdapterMemory {
                memory: name.clone(),
                why: format!(
                    "{} cannot be mapped ({e}): does a program have it open by VFIO?",
                    path.display()
                ),
            },
            _ => failed(e),
        })?;
        Ok(Self { name, mapping: Mapping::Function(map, file), caching, lock })
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        match &self.mapping {
            Mapping::Function(map, _) => map.as_mut_ptr(),
            Mapping::Shared(memory) => memory.as_ptr(),
        }
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        match &self.mapping {
            Mapping::Function(map, _) => map.len(),
            Mapping::Shared(memory) => memory.len(),
        }
    }

    /// The file that is mapped, from its beginning.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.mapping {
            Mapping::Function(_, file) => file.as_fd(),
            Mapping::Shared(memory) => memory.fd(),
        }
    }

    /// A description of its own of the file that locks are taken on.
    pub(super) fn lock_file(&self) -> Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.lock)
            .map_err(|e| Error::io(format!("adapter memory {}: {}", self.name, self.lock.display()), e))
    }

    /// Makes a function decode its memory again, where somebody has switched that off.
    pub(super) fn decode_again(&self) -> Result<()> {
        match (&self.mapping, self.lock.parent()) {
            (Mapping::Function(..), Some(folder)) => {
                wake(&self.name, folder)?;
                decode(&self.name, folder)
            }
            _ => Ok(()),
        }
    }
}

/// Which BAR the memory is.
fn known_bar(name: &str, (vendor, device): (u16, u16)) -> Result<u8> {
    let found = KNOWN.iter().find(|known| (known.0, known.1) == (vendor, device));
    found.map(|known| known.2).ok_or_else(|| Error::AdapterMemory {
        memory: name.to_owned(),
        why: format!(
            "a device with ids {vendor:04x}:{device:04x} has none that is known here; one that has is QEMU's \
             ivshmem-plain, 1af4:1110"
        ),
    })
}

/// Keeps a function awake from now on. One that is bound to vfio-pci and not open sleeps in D3, and does not decode.
fn wake(name: &str, folder: &Path) -> Result<()> {
    match fs::write(folder.join("power/control"), "on") {
        Ok(()) => {}
        // A kernel without runtime power management.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(format!("adapter memory {name}: keeping it awake"), e)),
    }
    let start = Instant::now();
    loop {
        let state = fs::read_to_string(folder.join("power/runtime_status")).unwrap_or_default();
        if !matches!(state.trim(), "suspended" | "resuming" | "suspending") {
            return Ok(());
        }
        if start.elapsed() > WAKING {
            return Err(Error::Timeout {
                device: name.to_owned(),
                what: "waking it up".to_owned(),
                millis: WAKING.as_millis() as u64,
            });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Switches memory decoding on.
fn decode(name: &str, folder: &Path) -> Result<()> {
    let path = folder.join("config");
    let failed = |e| Error::io(format!("adapter memory {name}: {}", path.display()), e);
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
    let read = || -> io::Result<u16> {
        let mut command = [0; 2];
        file.read_exact_at(&mut command, COMMAND.into())?;
        Ok(u16::from_le_bytes(command))
    };
    let command = read().map_err(failed)?;
    if command & COMMAND_MEMORY == 0 {
        file.write_all_at(&(command | COMMAND_MEMORY).to_le_bytes(), COMMAND.into()).map_err(failed)?;
    }
    match read().map_err(failed)? {
        // All-ones: nothing is there.
        command if command & COMMAND_MEMORY != 0 && command != u16::MAX => Ok(()),
        command => Err(Error::AdapterMemory {
            memory: name.to_owned(),
            why: format!("its memory decoding cannot be switched on (command register {command:#06x})"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fake::FakeSysfs;

    const ADDRESS: &str = "0000:03:00.0";

    fn function(ids: &str, driver: Option<&str>, command: u16) -> (FakeSysfs, PathBuf) {
        let sysfs = FakeSysfs::new();
        sysfs.add(ADDRESS, ids, 0x050000, driver, Some(3));
        let folder = sysfs.path("bus/pci/devices").join(ADDRESS);
        let mut config = [0; 64];
        config[4..6].copy_from_slice(&command.to_le_bytes());
        fs::write(folder.join("config"), config).unwrap();
        fs::write(folder.join("resource2"), vec![0; 1 << 16]).unwrap();
        (sysfs, folder)
    }

    fn open(sysfs: &FakeSysfs) -> Result<Source> {
        Source::function(&sysfs.sysfs(), ADDRESS.parse().unwrap())
    }

    fn said<T>(outcome: Result<T>) -> String {
        outcome.err().expect("it is refused").to_string()
    }

    #[test]
    fn a_function_is_woken_decodes_and_is_mapped() {
        let (sysfs, folder) = function("1af4:1110", Some("vfio-pci"), 0x0400);
        fs::create_dir(folder.join("power")).unwrap();
        fs::write(folder.join("power/control"), "auto").unwrap();
        let source = open(&sysfs).unwrap();
        assert_eq!((source.len(), source.caching), (1 << 16, Caching::Uncached));
        assert_eq!(fs::read_to_string(folder.join("power/control")).unwrap(), "on");
        assert_eq!(fs::read(folder.join("config")).unwrap()[4..6], 0x0402u16.to_le_bytes());
        drop(source);
        fs::write(folder.join("resource2_wc"), vec![0; 1 << 16]).unwrap();
        assert_eq!(open(&sysfs).unwrap().caching, Caching::WriteCombining);
    }

    #[test]
    fn what_cannot_be_used_is_named_with_the_reason() {
        let absent = FakeSysfs::new();
        assert!(said(open(&absent)).contains("no such PCI function"));
        let (other, _) = function("8086:100e", None, 2);
        assert!(said(open(&other)).contains("ivshmem-plain"));
        let (taken, _) = function("1af4:1110", Some("uio_ivshmem"), 2);
        assert!(said(open(&taken)).contains("uio_ivshmem"));
        let (empty, folder) = function("1af4:1110", None, 2);
        fs::write(folder.join("resource2"), []).unwrap();
        assert!(said(open(&empty)).contains("has no memory"));
        let (gone, _) = function("1af4:1110", None, 0xffff);
        assert!(said(open(&gone)).contains("decoding cannot be switched on"));
        assert!(said(Source::open("vfio-user:/nobody/is/here")).contains("no device is served there"));
        assert!(matches!(Source::open("ivshmem"), Err(Error::BadName { .. })));
    }
}
