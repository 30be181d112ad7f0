//! What the kernel says of PCI functions: the tree under /sys.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::PciAddress;
use crate::{Error, Result};

/// Base class of network controllers.
const CLASS_NETWORK: u8 = 0x02;

/// The tree, wherever it is mounted.
#[derive(Debug, Clone)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::at("/sys")
    }
}

/// A PCI function, as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Where it lives.
    pub address: PciAddress,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem id.
    pub subsystem_device: u16,
    /// Base class, subclass and programming interface, from the high byte of 24 bits down.
    pub class: u32,
    /// The kernel driver that has it.
    pub driver: Option<String>,
    /// The only driver that may take it, where one was set.
    pub driver_override: Option<String>,
    /// Its IOMMU group.
    pub group: Option<u32>,
    /// The kernel's network interfaces on it, sorted.
    pub interfaces: Vec<String>,
}

impl Function {
    /// Whether it is a network controller.
    pub fn is_network(&self) -> bool {
        (self.class >> 16) as u8 == CLASS_NETWORK
    }

    /// Whether a driver for user space has it: vfio-pci or a variant of it.
    pub fn is_on_vfio(&self) -> bool {
        self.driver.as_deref().is_some_and(|driver| driver.ends_with("vfio-pci"))
    }

    /// Whether the kernel lets its group be used from user space while this member is as it is.
    ///
    /// Drivers that do no DMA of their own may stay: port drivers of bridges, pci-stub, and none at all.
    pub fn lets_group_be_viable(&self) -> bool {
        match self.driver.as_deref() {
            None | Some("pci-stub" | "pcieport") => true,
            Some(_) => self.is_on_vfio(),
        }
    }
}

impl Sysfs {
    /// A tree at another place (a copy, or one made for a test).
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where the tree is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a function.
    pub fn function_path(&self, address: PciAddress) -> PathBuf {
        self.root.join("bus/pci/devices").join(address.to_string())
    }

    /// The folder of a PCI driver; there while the driver is loaded.
    pub fn driver_path(&self, driver: &str) -> PathBuf {
        self.root.join("bus/pci/drivers").join(driver)
    }

    /// All functions, ascending by address. None where there is no PCI.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn functions(&self) -> Result<Vec<Function>> {
        let mut addresses = self.addresses(&self.root.join("bus/pci/devices"))?;
        addresses.sort();
        let mut found = Vec::with_capacity(addresses.len());
        for address in addresses {
            match self.function(address) {
                Ok(function) => found.push(function),
                Err(Error::NotFound { .. }) => {} // unplugged meanwhile
                Err(e) => return Err(e),
            }
        }
        Ok(found)
    }

    /// All network controllers, ascending by address.
    ///
    /// # Errors
    /// As [`Self::functions`].
    pub fn network_functions(&self) -> Result<Vec<Function>> {
        Ok(self.functions()?.into_iter().filter(Function::is_network).collect())
    }

    /// One function.
    ///
    /// # Errors
    /// [`Error::NotFound`], or what keeps its files from being read.
    pub fn function(&self, address: PciAddress) -> Result<Function> {
        let path = self.function_path(address);
        if !path.exists() {
            return Err(Error::NotFound { device: address.to_string() });
        }
        Ok(Function {
            address,
            vendor: number(&path.join("vendor"))? as u16,
            device: number(&path.join("device"))? as u16,
            subsystem_vendor: number(&path.join("subsystem_vendor"))? as u16,
            subsystem_device: number(&path.join("subsystem_device"))? as u16,
            class: number(&path.join("class"))?,
            driver: link_name(&path.join("driver"))?,
            driver_override: driver_override(&path)?,
            group: group(&path)?,
            interfaces: interfaces(&path)?,
        })
    }

    /// The members of an IOMMU group, ascending by address; none where there is no such group.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn group_members(&self, group: u32) -> Result<Vec<Function>> {
        let folder = self.root.join("kernel/iommu_groups").join(group.to_string()).join("devices");
        let mut addresses = self.addresses(&folder)?;
        addresses.sort();
        addresses.into_iter().map(|address| self.function(address)).collect()
    }

    /// The function behind a kernel network interface, if it is a PCI one.
    pub fn function_of_interface(&self, interface: &str) -> Option<PciAddress> {
        if interface.is_empty() || interface.contains('/') || interface.starts_with('.') {
            return None;
        }
        // The link leads to the interface's parent: the function itself, or (virtio) a device upon it.
        let parent = fs::canonicalize(self.root.join("class/net").join(interface).join("device")).ok()?;
        parent.ancestors().find_map(|folder| folder.file_name()?.to_str()?.parse().ok())
    }

    /// The entries of a folder that are named after functions.
    fn addresses(&self, folder: &Path) -> Result<Vec<PciAddress>> {
        let names = entries(folder)?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }
}

/// Names in a folder; none where it does not exist.
fn entries(folder: &Path) -> Result<Vec<String>> {
    let list = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|e| reading(folder, e))?,
    };
    let mut names = Vec::new();
    for entry in list {
        let entry = entry.map_err(|e| reading(folder, e))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

/// A number as sysfs writes it: `0x8086` and a line feed.
fn number(path: &Path) -> Result<u32> {
    let text = fs::read_to_string(path).map_err(|e| reading(path, e))?;
    let digits = text.trim().trim_start_matches("0x");
    u32::from_str_radix(digits, 16).map_err(|_| {
        reading(path, io::Error::new(io::ErrorKind::InvalidData, format!("{text:?} is no number")))
    })
}

/// The last part of where a link leads; `None` where there is no link.
fn link_name(path: &Path) -> Result<Option<String>> {
    match fs::read_link(path) {
        Ok(target) => Ok(target.file_name().and_then(|name| name.to_str()).map(str::to_owned)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(reading(path, e)),
    }
}

fn driver_override(function: &Path) -> Result<Option<String>> {
    let path = function.join("driver_override");
    match fs::read_to_string(&path) {
        // The kernel writes "(null)" for none.
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|name| !name.is_empty() && name != "(null)")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(reading(&path, e)),
    }
}

fn group(function: &Path) -> Result<Option<u32>> {
    let path = function.join("iommu_group");
    // Groups without an IOMMU ("noiommu mode" of VFIO) protect nothing and are taken for none.
    let unprotected = fs::read_to_string(path.join("name")).is_ok_and(|name| name.trim() == "vfio-noiommu");
    let Some(name) = link_name(&path)?.filter(|_| !unprotected) else { return Ok(None) };
    name.parse().map(Some).map_err(|_| {
        reading(&path, io::Error::new(io::ErrorKind::InvalidData, format!("{name:?} is no group number")))
    })
}

/// Interfaces lie in `net/`, or (virtio) in `virtioN/net/`.
fn interfaces(function: &Path) -> Result<Vec<String>> {
    let mut found = entries(&function.join("net"))?;
    for name in entries(function)?.iter().filter(|name| name.starts_with("virtio")) {
        found.extend(entries(&function.join(name).join("net"))?);
    }
    found.sort();
    Ok(found)
}

fn reading(path: &Path, source: io::Error) -> Error {
    Error::io(format!("reading {}", path.display()), source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fake::FakeSysfs;

    #[test]
    fn describes_functions() {
        let fake = FakeSysfs::new();
        fake.add("0000:01:00.0", "8086:100e", 0x020000, Some("e1000"), Some(7));
        fake.add_interface("0000:01:00.0", "eth0");
        fake.add("0000:02:00.0", "1af4:1041", 0x020000, Some("virtio-pci"), Some(8));
        fake.add_virtio_interface("0000:02:00.0", 3, "eth1");
        fake.add("0000:00:1f.2", "8086:2922", 0x010601, Some("ahci"), Some(7));
        let sysfs = fake.sysfs();
        let all = sysfs.functions().unwrap();
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].address.to_string(), "0000:00:1f.2");
        let nics = sysfs.network_functions().unwrap();
        assert_eq!(nics.len(), 2);
        assert_eq!((nics[0].vendor, nics[0].device), (0x8086, 0x100e));
        assert_eq!(nics[0].driver.as_deref(), Some("e1000"));
        assert_eq!(nics[0].driver_override, None);
        assert_eq!(nics[0].group, Some(7));
        assert_eq!(nics[0].interfaces, ["eth0"]);
        assert_eq!(nics[1].interfaces, ["eth1"]);
        let members: Vec<_> =
            sysfs.group_members(7).unwrap().iter().map(|member| member.address.to_string()).collect();
        assert_eq!(members, ["0000:00:1f.2", "0000:01:00.0"]);
        assert_eq!(sysfs.function_of_interface("eth0"), Some(nics[0].address));
        assert_eq!(sysfs.function_of_interface("eth1"), Some(nics[1].address));
        for none in ["eth2", "", "..", "../eth0"] {
            assert_eq!(sysfs.function_of_interface(none), None, "{none}");
        }
    }

    #[test]
    fn tells_what_is_not_there() {
        let fake = FakeSysfs::new();
        let sysfs = fake.sysfs();
        assert_eq!(sysfs.functions().unwrap(), []);
        assert!(matches!(sysfs.function("01:00.0".parse().unwrap()), Err(Error::NotFound { .. })));
        fake.add("0000:01:00.0", "8086:100e", 0x020000, None, None);
        let function = sysfs.function("01:00.0".parse().unwrap()).unwrap();
        assert_eq!((function.driver, function.group), (None, None));
    }

    #[test]
    fn groups_without_an_iommu_count_as_none() {
        let fake = FakeSysfs::new();
        fake.add("0000:01:00.0", "8086:100e", 0x020000, Some("vfio-pci"), Some(0));
        fs::write(fake.path("kernel/iommu_groups/0/name"), "vfio-noiommu\n").unwrap();
        assert_eq!(fake.sysfs().function("01:00.0".parse().unwrap()).unwrap().group, None);
    }

    #[test]
    fn members_that_do_no_dma_of_their_own_may_stay() {
        let fake = FakeSysfs::new();
        let sysfs = fake.sysfs();
        for (n, (driver, fine)) in [
            (Some("vfio-pci"), true),
            (Some("mlx5-vfio-pci"), true),
            (Some("pcieport"), true),
            (Some("pci-stub"), true),
            (None, true),
            (Some("e1000"), false),
        ]
        .into_iter()
        .enumerate()
        {
            let name = format!("0000:01:{n:02x}.0");
            fake.add(&name, "8086:100e", 0x020000, driver, Some(1));
            let function = sysfs.function(name.parse().unwrap()).unwrap();
            assert_eq!(function.lets_group_be_viable(), fine, "{driver:?}");
        }
    }

    #[test]
    fn an_override_is_read() {
        let fake = FakeSysfs::new();
        fake.add("0000:01:00.0", "8086:100e", 0x020000, None, None);
        let path = fake.path("bus/pci/devices/0000:01:00.0/driver_override");
        let read = || fake.sysfs().function("01:00.0".parse().unwrap()).unwrap().driver_override;
        fs::write(&path, "vfio-pci\n").unwrap();
        assert_eq!(read().as_deref(), Some("vfio-pci"));
        fs::write(&path, "(null)\n").unwrap();
        assert_eq!(read(), None);
    }
}
