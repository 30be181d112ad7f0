//! To vfio-pci.

use super::record::Record;
use super::{BindError, Binder, Result, VFIO_PCI};
use crate::pci::kernel::blockers;
use crate::pci::{Function, PciAddress};

/// The part of VFIO that knows the IOMMUs of PCs. Nothing loads it by itself where modprobe does not follow
/// soft dependencies (BusyBox).
const TYPE1: &str = "vfio_iommu_type1";

/// What an attach came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attached {
    /// It was attached before.
    Already,
    /// It is attached now.
    Done {
        /// The driver that it had.
        former: Option<String>,
        /// What the user should know all the same.
        warnings: Vec<String>,
    },
}

impl Binder {
    /// Gives a network function to vfio-pci. A function that has no part in this stays as it was, also when
    /// something goes wrong in the middle.
    ///
    /// # Errors
    /// See [`BindError`]; `force` attaches a function that carries the default route.
    pub fn attach(&self, address: PciAddress, force: bool) -> Result<Attached> {
        let function = self.network_function(address)?;
        if function.is_on_vfio() {
            return Ok(Attached::Already);
        }
        if function.group.is_none() {
            return Err(BindError::NoIommu { device: address });
        }
        if let Some(interface) = self.default_route_on(&function).filter(|_| !force) {
            return Err(BindError::DefaultRoute { device: address, interface });
        }
        if !self.host.is_privileged() {
            return Err(BindError::NotRoot { device: address });
        }
        let mut warnings = self.load_modules()?;
        let before = Record::of(&function);
        // A function that is steered already was on its way here when something was cut off, and one that is on
        // record and has no driver was on its way back: what is on record, if anything, is from before that.
        let cut_off = function.driver_override.as_deref() == Some(VFIO_PCI)
            || function.driver.is_none() && Record::load(&self.records, &function).is_some();
        if !cut_off && let Err(e) = before.save(&self.records, address) {
            warnings.push(format!(
                "{address}: its former driver cannot be remembered in {} ({e}); detach will leave the choice to \
                 the kernel",
                self.records.display()
            ));
        }
        if let Err(error) = self.move_to_vfio(&function) {
            if matches!(error, BindError::Pending { .. }) {
                return Err(error);
            }
            let restored = self.restore(address, before.driver.as_deref(), before.only.as_deref());
            if !cut_off {
                Record::remove(&self.records, address);
            }
            return Err(match restored {
                Ok(()) => error,
                Err(restoring) => {
                    BindError::Stranded { error: Box::new(error), restoring: Box::new(restoring) }
                }
            });
        }
        if let Some(group) = function.group {
            for (sibling, driver) in blockers(&self.sysfs, group)? {
                warnings.push(format!(
                    "{address}: cannot be opened while {sibling} of the same IOMMU group {group} is on {driver}"
                ));
            }
        }
        Ok(Attached::Done { former: function.driver, warnings })
    }

    fn load_modules(&self) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        let load = |module: &str| {
            let failed =
                |e: std::io::Error| BindError::Module { module: module.to_owned(), why: e.to_string() };
            self.host.load_module(module).map_err(failed)
        };
        if !self.sysfs.driver_path(VFIO_PCI).exists() {
            load(VFIO_PCI)?;
        }
        // Other platforms have other modules in its place, so that without it there may still be a way.
        if !self.sysfs.root().join("module").join(TYPE1).exists()
            && let Err(e) = load(TYPE1)
        {
            warnings.push(e.to_string());
        }
        Ok(warnings)
    }

    fn move_to_vfio(&self, function: &Function) -> Result<()> {
        let address = function.address;
        self.set_override(address, Some(VFIO_PCI))?;
        if let Some(driver) = &function.driver {
            self.unbind(address, driver)?;
        }
        self.probe(address)?;
        let now = self.sysfs.function(address)?.driver;
        match now.as_deref() {
            Some(VFIO_PCI) => Ok(()),
            _ => Err(BindError::Refused { device: address, wanted: VFIO_PCI.to_owned(), now }),
        }
    }
}
