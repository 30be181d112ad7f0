//! Back to the kernel's drivers.

use super::record::Record;
use super::{BindError, Binder, Result, VFIO_PCI};
use crate::pci::{Function, PciAddress};

/// What a detach came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detached {
    /// It was not attached; this driver has it.
    Already(Option<String>),
    /// It is on this driver now; `None` where it had none, or where the kernel has none for it.
    Done(Option<String>),
}

impl Binder {
    /// Gives a network function back to the driver that it had before it was attached; where that is not
    /// known, to the one that the kernel chooses.
    ///
    /// # Errors
    /// See [`BindError`]. The function is then attached as it was before.
    pub fn detach(&self, address: PciAddress) -> Result<Detached> {
        let function = self.network_function(address)?;
        let steered = function.driver_override.as_deref() == Some(VFIO_PCI);
        let record = Record::load(&self.records, &function);
        let cut_off = function.driver.is_none() && record.is_some();
        if !function.is_on_vfio() && !steered && !cut_off {
            return Ok(Detached::Already(function.driver));
        }
        if !self.host.is_privileged() {
            return Err(BindError::NotRoot { device: address });
        }
        self.refuse_if_in_use(&function)?;
        match self.move_back(&function, record) {
            Ok(driver) => {
                Record::remove(&self.records, address);
                Ok(Detached::Done(driver))
            }
            Err(error @ BindError::Pending { .. }) => Err(error),
            Err(error) => {
                let before = function.driver.as_deref();
                match self.restore(address, before, function.driver_override.as_deref()) {
                    Ok(()) => Err(error),
                    Err(restoring) => {
                        Err(BindError::Stranded { error: Box::new(error), restoring: Box::new(restoring) })
                    }
                }
            }
        }
    }

    /// Answers the driver that has it then.
    fn move_back(&self, function: &Function, record: Option<Record>) -> Result<Option<String>> {
        let address = function.address;
        let only = record.as_ref().and_then(|record| record.only.as_deref());
        self.set_override(address, only.filter(|only| *only != VFIO_PCI))?;
        if let Some(driver) = &function.driver {
            self.unbind(address, driver)?;
        }
        let now = || Ok::<_, BindError>(self.sysfs.function(address)?.driver);
        match record {
            // Attached from no driver, so back to none.
            Some(Record { driver: None, .. }) => now(),
            Some(Record { driver: Some(wanted), .. }) => {
                if !self.sysfs.driver_path(&wanted).exists() {
                    // What keeps it from being loaded is told by the bind that fails.
                    let _ = self.host.load_module(&wanted);
                }
                // Loading it may have bound it.
                if now()?.as_ref() != Some(&wanted) {
                    self.bind(address, &wanted)?;
                }
                let now = now()?;
                match now.as_ref() == Some(&wanted) {
                    true => Ok(now),
                    false => Err(BindError::Refused { device: address, wanted, now }),
                }
            }
            None => {
                if let Ok(alias) = std::fs::read_to_string(self.sysfs.function_path(address).join("modalias"))
                {
                    // Usually loaded, or built in; and where it is not to be had there is no driver to give.
                    let _ = self.host.load_module(alias.trim());
                }
                if now()?.is_none() {
                    self.probe(address)?;
                }
                let now = now()?;
                // vfio-pci has been told the ids of such cards (`new_id`), and takes it again.
                match now.as_deref().is_some_and(|driver| driver.ends_with(VFIO_PCI)) {
                    true => {
                        Err(BindError::Refused { device: address, wanted: "a kernel driver".to_owned(), now })
                    }
                    false => Ok(now),
                }
            }
        }
    }
}
