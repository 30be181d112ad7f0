//! Gives functions to vfio-pci and back to their kernel drivers.
//!
//! A function is steered by its `driver_override`, which names the only driver that may take it and is undone
//! by clearing it: no other function with the same ids is caught, as writing ids to `new_id` would. What the
//! function had before is kept under /run; where that is lost, clearing the override and probing anew gives
//! the driver back that the kernel chooses by itself.

mod attach;
mod detach;
mod error;
mod host;
mod patience;
mod record;
mod routes;
mod status;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use attach::Attached;
pub use detach::Detached;
pub use error::BindError;
pub use host::{Host, Linux};
pub use status::{Obstacle, Status};

use super::kernel::{holders, suspects};
use super::{Function, PciAddress, Sysfs};

/// The driver that makes functions usable from user space.
pub const VFIO_PCI: &str = "vfio-pci";

/// How long a driver may take to let go of a function. Kernel drivers take well below a second; vfio-pci waits
/// for the function's users.
const UNBIND_LIMIT: Duration = Duration::from_secs(10);

/// Result of this module.
pub type Result<T> = std::result::Result<T, BindError>;

/// Binds functions of one machine.
pub struct Binder {
    sysfs: Sysfs,
    proc: PathBuf,
    records: PathBuf,
    host: Box<dyn Host>,
}

impl Binder {
    /// This machine.
    pub fn system() -> Self {
        Self::new(Sysfs::default(), "/proc", "/run/uvia/bind", Box::new(Linux))
    }

    /// Another tree: where procfs is, where what was changed is remembered, and who carries changes out.
    pub fn new(
        sysfs: Sysfs,
        proc: impl Into<PathBuf>,
        records: impl Into<PathBuf>,
        host: Box<dyn Host>,
    ) -> Self {
        Self { sysfs, proc: proc.into(), records: records.into(), host }
    }

    /// The function called `name`: a PCI address, or a kernel network interface.
    ///
    /// # Errors
    /// [`BindError::Unknown`].
    pub fn resolve(&self, name: &str) -> Result<PciAddress> {
        let address = match name.parse() {
            Ok(address) => Some(address),
            Err(_) => self.sysfs.function_of_interface(name),
        };
        address
            .filter(|address| self.sysfs.function_path(*address).exists())
            .ok_or_else(|| BindError::Unknown { name: name.to_owned() })
    }

    /// A function, if it is a network controller.
    fn network_function(&self, address: PciAddress) -> Result<Function> {
        let function = self.sysfs.function(address)?;
        match function.is_network() {
            true => Ok(function),
            false => Err(BindError::NotNetwork { device: address, class: function.class }),
        }
    }

    fn write(&self, device: PciAddress, path: PathBuf, text: &str) -> Result<()> {
        self.host.write(&path, text).map_err(|source| BindError::Write {
            device,
            path,
            text: text.trim().to_owned(),
            source,
        })
    }

    fn set_override(&self, device: PciAddress, driver: Option<&str>) -> Result<()> {
        // An empty line clears it; a write of no bytes would do nothing.
        let text = driver.unwrap_or("\n");
        self.write(device, self.sysfs.function_path(device).join("driver_override"), text)
    }

    fn unbind(&self, device: PciAddress, driver: &str) -> Result<()> {
        let (path, text) = (self.sysfs.driver_path(driver).join("unbind"), device.to_string());
        self.host.unbind(&path, &text, UNBIND_LIMIT).map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut => BindError::Pending { device, driver: driver.to_owned() },
            _ => BindError::Write { device, path, text, source },
        })
    }

    fn bind(&self, device: PciAddress, driver: &str) -> Result<()> {
        self.write(device, self.sysfs.driver_path(driver).join("bind"), &device.to_string())
    }

    fn probe(&self, device: PciAddress) -> Result<()> {
        self.write(device, self.sysfs.root().join("bus/pci/drivers_probe"), &device.to_string())
    }

    /// Refuses while a process uses the function: the kernel would wait for it to end, without a limit.
    fn refuse_if_in_use(&self, function: &Function) -> Result<()> {
        let Some(group) = function.group else { return Ok(()) };
        let mut holders = holders(&self.proc, group);
        if holders.is_empty() {
            // A device keeps its group busy when the group's own file is closed, and so does a mapped BAR.
            if !self.host.group_is_busy(group) {
                return Ok(());
            }
            holders = suspects(&self.proc);
        }
        Err(BindError::InUse { device: function.address, group, holders })
    }

    /// Brings a function back to a driver (or none) and override, after something else went wrong.
    fn restore(&self, device: PciAddress, driver: Option<&str>, only: Option<&str>) -> Result<()> {
        self.set_override(device, only)?;
        let now = self.sysfs.function(device)?.driver;
        if now.as_deref() == driver {
            return Ok(());
        }
        if let Some(now) = now {
            self.unbind(device, &now)?;
        }
        match driver {
            Some(driver) => self.bind(device, driver),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
