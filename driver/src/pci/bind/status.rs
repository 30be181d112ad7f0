//! Where every network function stands.

use std::fmt;

use super::{Binder, Result, VFIO_PCI, routes};
use crate::pci::{Function, PciAddress};

/// A network function, and what would stop it from being used from user space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The function.
    pub function: Function,
    /// The other members of its IOMMU group, with their drivers.
    pub siblings: Vec<(PciAddress, Option<String>)>,
    /// What stands in the way.
    pub obstacles: Vec<Obstacle>,
}

/// What keeps a function from being attached, or from being opened when it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// It is in no IOMMU group.
    NoIommu,
    /// An interface of it carries the default route.
    DefaultRoute(String),
    /// A member of its group is on a kernel driver that does DMA.
    Sibling(PciAddress, String),
    /// There is no vfio-pci, neither loaded nor to be loaded.
    NoModule,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::NoIommu => f.write_str("in no IOMMU group"),
            Obstacle::DefaultRoute(interface) => {
                write!(f, "carries the default route (interface {interface}; --force attaches it)")
            }
            Obstacle::Sibling(address, driver) => {
                write!(f, "{address} of the same group is on {driver}, so that it could not be opened")
            }
            Obstacle::NoModule => {
                write!(f, "the module {VFIO_PCI} is neither loaded nor installed for this kernel")
            }
        }
    }
}

impl Binder {
    /// All network functions, ascending by address.
    ///
    /// # Errors
    /// When the system's files cannot be read.
    pub fn status(&self) -> Result<Vec<Status>> {
        let functions = self.sysfs.network_functions()?;
        functions.into_iter().map(|function| self.status_of(function)).collect()
    }

    fn status_of(&self, function: Function) -> Result<Status> {
        let members = match function.group {
            Some(group) => self.sysfs.group_members(group)?,
            None => Vec::new(),
        };
        let mut obstacles = Vec::new();
        if function.group.is_none() {
            obstacles.push(Obstacle::NoIommu);
        }
        if let Some(interface) = self.default_route_on(&function) {
            obstacles.push(Obstacle::DefaultRoute(interface));
        }
        let others = || members.iter().filter(|member| member.address != function.address);
        for member in others().filter(|member| !member.lets_group_be_viable()) {
            obstacles.extend(member.driver.clone().map(|driver| Obstacle::Sibling(member.address, driver)));
        }
        if !self.sysfs.driver_path(VFIO_PCI).exists() && !self.host.has_module(VFIO_PCI) {
            obstacles.push(Obstacle::NoModule);
        }
        let siblings = others().map(|member| (member.address, member.driver.clone())).collect();
        Ok(Status { function, siblings, obstacles })
    }

    /// The interface of a function that carries the default route, if one does.
    pub(super) fn default_route_on(&self, function: &Function) -> Option<String> {
        let carrying = routes::default_interfaces(&self.proc, self.sysfs.root());
        function.interfaces.iter().find(|interface| carrying.contains(*interface)).cloned()
    }
}
