//! Why a function could not be given to a driver.

use std::io;
use std::path::PathBuf;

use super::VFIO_PCI;
use crate::pci::PciAddress;

/// What stopped a change of drivers, and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Neither a PCI address nor an interface of this machine.
    #[error("{name}: no PCI function and no network interface of one; `uvia-bind status` lists them")]
    Unknown {
        /// What was given.
        name: String,
    },
    /// A function of another kind.
    #[error("{device}: is no network controller (class {class:06x}), and is left alone")]
    NotNetwork {
        /// The function.
        device: PciAddress,
        /// Its class, subclass and interface.
        class: u32,
    },
    /// Only root may.
    #[error("{device}: changing drivers needs root; run it with sudo")]
    NotRoot {
        /// The function.
        device: PciAddress,
    },
    /// Without an IOMMU a program could make the function write anywhere.
    #[error(
        "{device}: is in no IOMMU group, so {VFIO_PCI} would not take it; turn the IOMMU on (firmware: VT-d or \
         AMD-Vi; kernel: intel_iommu=on; QEMU: -device intel-iommu,intremap=on)"
    )]
    NoIommu {
        /// The function.
        device: PciAddress,
    },
    /// This machine's way to the network goes through it.
    #[error(
        "{device}: carries the default route (interface {interface}): attaching it would cut this machine off; \
         --force does it all the same"
    )]
    DefaultRoute {
        /// The function.
        device: PciAddress,
        /// Its interface.
        interface: String,
    },
    /// The module cannot be loaded.
    #[error("the module {module} could not be loaded: {why}")]
    Module {
        /// Which.
        module: String,
        /// What modprobe said.
        why: String,
    },
    /// A process has it open.
    #[error("{device}: its IOMMU group {group} is in use by {}; end it first", Processes(holders))]
    InUse {
        /// The function.
        device: PciAddress,
        /// Its group.
        group: u32,
        /// Process ids and names.
        holders: Vec<(u32, String)>,
    },
    /// The kernel waits, and cannot be told to stop. Nothing more is tried: every change of the function would
    /// wait too.
    #[error(
        "{device}: {driver} has not let go of it in time, most likely since a program uses it; the kernel goes on \
         when that ends: run the same again then"
    )]
    Pending {
        /// The function.
        device: PciAddress,
        /// Who has it.
        driver: String,
    },
    /// The kernel did as it was told, and yet the function has another driver.
    #[error(
        "{device}: {wanted} did not take it (it is on {}); the kernel's log (dmesg) says why",
        now.as_deref().unwrap_or("no driver")
    )]
    Refused {
        /// The function.
        device: PciAddress,
        /// Who should have taken it.
        wanted: String,
        /// Who has it.
        now: Option<String>,
    },
    /// The kernel refused a change.
    #[error("{device}: writing {text:?} to {path}: {source}", path = path.display())]
    Write {
        /// The function.
        device: PciAddress,
        /// The file.
        path: PathBuf,
        /// What was written.
        text: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Something went wrong in the middle, and the way back did too.
    #[error("{error}; and bringing it back failed: {restoring}")]
    Stranded {
        /// What went wrong first.
        error: Box<BindError>,
        /// What went wrong on the way back.
        restoring: Box<BindError>,
    },
    /// The system's files could not be read.
    #[error(transparent)]
    System(#[from] crate::Error),
}

struct Processes<'a>(&'a [(u32, String)]);

impl std::fmt::Display for Processes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str(
                "a process that cannot be seen from here (in another container, or of another user)",
            );
        }
        for (i, (pid, name)) in self.0.iter().enumerate() {
            write!(f, "{}process {pid} ({name})", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
