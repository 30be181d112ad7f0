//! Errors of this crate: each names the object, keeps the errno, and says what to do.

use std::fmt;
use std::io;

use crate::pci::PciAddress;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, on which object, and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name is not one of a device.
    #[error(
        "{name:?} is not a device name: give a PCI address such as 0000:01:00.0, vfio-user:PATH of a socket, or shm:NAME"
    )]
    BadName {
        /// What was given.
        name: String,
    },
    /// There is no such device.
    #[error("{device}: no such PCI function; `uvia-bind status` lists those that exist")]
    NotFound {
        /// The address asked for.
        device: String,
    },
    /// The device is not bound to vfio-pci.
    #[error("{device}: is on {}, not on vfio-pci; run `uvia-bind attach {device}`", driver.as_deref().unwrap_or("no driver"))]
    NotBound {
        /// The device.
        device: String,
        /// The driver that has it, if one has.
        driver: Option<String>,
    },
    /// The system does not tell when memory is unmapped.
    #[error(
        "memory cannot be watched for being unmapped (userfaultfd: {source}): it takes Linux 5.7 or later with CONFIG_USERFAULTFD, no sandbox that forbids the call, and memory that no other userfaultfd watches"
    )]
    Unwatchable {
        /// The system's answer.
        source: io::Error,
    },
    /// /dev/vfio/vfio is missing.
    #[error(
        "no VFIO here ({path}: {source}): load the modules (`modprobe -a vfio_iommu_type1 vfio-pci`) and see that {path} exists"
    )]
    NoVfio {
        /// The file that could not be opened.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The device is in no IOMMU group, or the IOMMU cannot be used.
    #[error(
        "{device}: no usable IOMMU: {why}; turn it on (firmware: VT-d or AMD-Vi; kernel: intel_iommu=on; QEMU: -device intel-iommu,intremap=on)"
    )]
    NoIommu {
        /// The device.
        device: String,
        /// What was seen.
        why: String,
    },
    /// A member of the device's group is still on a kernel driver.
    #[error(
        "IOMMU group {group} of {device} is not viable: {}; attach these to vfio-pci too, or unbind them",
        Siblings(blockers)
    )]
    GroupNotViable {
        /// The device.
        device: String,
        /// The group.
        group: u32,
        /// The members that stand in the way, with their drivers.
        blockers: Vec<(PciAddress, String)>,
    },
    /// Another process holds the group.
    #[error("IOMMU group {group} of {device} is in use by {}; end it first", Holders(holders))]
    GroupBusy {
        /// The device.
        device: String,
        /// The group.
        group: u32,
        /// Process ids and names, as far as they can be seen.
        holders: Vec<(u32, String)>,
    },
    /// RLIMIT_MEMLOCK is too low to pin what is asked for.
    #[error(
        "pinning {need} bytes for DMA is over the locked-memory limit of {limit} bytes; raise it (`ulimit -l unlimited`, or LimitMEMLOCK=infinity in a unit)"
    )]
    MemlockExceeded {
        /// Bytes that were to be pinned.
        need: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// No free range of I/O addresses is left for the mapping.
    #[error("no free I/O virtual addresses for {len} bytes within the aperture(s) {apertures}")]
    ApertureExceeded {
        /// Bytes asked for.
        len: u64,
        /// The usable ranges, in words.
        apertures: String,
    },
    /// The IOMMU driver's limit on the number of mappings is reached.
    #[error(
        "the limit of {limit} DMA mappings of this domain is reached; register fewer, larger regions, or raise vfio_iommu_type1.dma_entry_limit"
    )]
    MappingsExceeded {
        /// The limit.
        limit: u64,
    },
    /// The caller may not do this.
    #[error(
        "{what}: permission denied ({source}); run as root, or give your user the file (for /dev/vfio/GROUP: chown)"
    )]
    Permission {
        /// Object and operation.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Adapter memory that cannot be used.
    #[error("adapter memory {memory}: {why}")]
    AdapterMemory {
        /// Its name.
        memory: String,
        /// Why not.
        why: String,
    },
    /// All windows of an adapter memory are leased.
    #[error(
        "adapter memory {memory}: {} of its {windows} windows is left{}; close an endpoint that has one, or give the adapter more memory",
        Wanted(*wanted),
        Unsettled(*unsettled)
    )]
    NoWindow {
        /// The memory's name.
        memory: String,
        /// How many it has.
        windows: usize,
        /// How many neighbours were asked for: 1 for an endpoint, what it takes for a ring.
        wanted: usize,
        /// How many of them are of processes that died, and whose NICs may still fetch from them.
        unsettled: usize,
    },
    /// A device that another process serves, over vfio-user.
    #[error("vfio-user:{0}")]
    VfioUser(#[from] uvia_vfio_user::Error),
    /// The system refused an operation.
    #[error("{what}: {source}")]
    Io {
        /// Object and operation.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The caller's argument cannot be used.
    #[error("{what}")]
    Argument {
        /// Which argument, what it was and what it may be.
        what: String,
    },
    /// The device, or the way to it, lacks this.
    #[error("{device}: {what} is not supported")]
    Unsupported {
        /// The device.
        device: String,
        /// What is lacking.
        what: String,
    },
    /// The device did not do in time what it was told.
    #[error("{device}: {what} took longer than {millis} ms")]
    Timeout {
        /// The device.
        device: String,
        /// What was waited for.
        what: String,
        /// How long.
        millis: u64,
    },
    /// The device gave a value that cannot be right, or is gone.
    #[error("{device}: {fault}")]
    Device {
        /// The device.
        device: String,
        /// What it said.
        fault: DeviceFault,
    },
}

impl Error {
    /// An [`Error::Io`] with the errno of the last system call of this thread.
    pub fn last_os(what: impl Into<String>) -> Self {
        Self::io(what, io::Error::last_os_error())
    }

    /// An [`Error::Io`], or [`Error::Permission`] where that is the reason.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Error::Permission { what, source },
            _ => Error::Io { what, source },
        }
    }
}

/// A value from the device that was checked and found wrong. The device is not used further until a reset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFault {
    /// Registers read all-ones: the device is gone or its memory decoding is off.
    #[error("registers read all-ones: the device was removed or its memory decoding is off")]
    Gone,
    /// A ring index, descriptor id or length from the device is impossible.
    #[error("the device reported {what} {value}, which {bound}")]
    BadValue {
        /// Which value.
        what: &'static str,
        /// What it was.
        value: u64,
        /// What would have been right, in words.
        bound: &'static str,
    },
    /// A capability or register layout that this driver cannot use.
    #[error("{0}")]
    Layout(String),
    /// It does not run as this driver started it: somebody else has reset it since.
    #[error("the device was reset by somebody else; close it and open it again")]
    WasReset,
    /// The device says that it needs a reset.
    #[error("the device asks for a reset (status {status:#x})")]
    NeedsReset {
        /// The status register as read.
        status: u32,
    },
}

struct Siblings<'a>(&'a [(PciAddress, String)]);

impl fmt::Display for Siblings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (address, driver)) in self.0.iter().enumerate() {
            write!(f, "{}{address} is on {driver}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

struct Wanted(usize);

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("none"),
            n => write!(f, "no row of {n}"),
        }
    }
}

struct Unsettled(usize);

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            n => write!(f, " ({n} are of processes that died, and their NICs have not stopped)"),
        }
    }
}

struct Holders<'a>(&'a [(u32, String)]);

impl fmt::Display for Holders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("another process (which one only root can see)");
        }
        for (i, (pid, name)) in self.0.iter().enumerate() {
            write!(f, "{}process {pid} ({name})", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
