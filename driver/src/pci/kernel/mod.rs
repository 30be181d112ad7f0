//! PCI functions through the kernel's VFIO (container and group, type 1 IOMMU).
//!
//! The order that works, and who keeps it:
//!
//! 1. container, group (is it viable?), group into container, IOMMU type, device: [`VfioDevice::new`], after
//!    [`diagnosis`] has looked at what can be seen beforehand;
//! 2. the kernel resets the device as it is opened, where it can; bus mastering is off;
//! 3. memory is mapped ([`KernelDomain`]), and only then does a driver turn bus mastering on;
//! 4. at the end interrupts and bus mastering go off and the device is reset ([`KernelDevice`]'s drop), and
//!    only then may mappings go.
//!
//! The container lives as long as anything refers to it: devices and DMA memory each hold the domain. A type 1
//! container loses all of its mappings with its last device, so that the last one closed stays behind, reset
//! and unable to master the bus, while memory is still mapped.
//!
//! [`VfioDevice::new`]: vfio_ioctls::VfioDevice::new

mod device;
mod diagnosis;
mod domain;
mod info;
mod ioctl;
mod populate;

pub use device::KernelDevice;
pub(super) use diagnosis::{blockers, holders, suspects};
pub use domain::KernelDomain;
pub(super) use domain::was_used;
