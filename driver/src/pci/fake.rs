//! A tree like /sys, made for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::Sysfs;

/// Lives in a temporary folder, gone when dropped. Methods panic: they are part of tests.
pub(crate) struct FakeSysfs {
    root: tempfile::TempDir,
}

impl FakeSysfs {
    pub fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.root.path())
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// Adds a function; `ids` as `8086:100e`.
    pub fn add(&self, address: &str, ids: &str, class: u32, driver: Option<&str>, group: Option<u32>) {
        let folder = self.path("devices/pci0000:00").join(address);
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(self.path("bus/pci/devices")).unwrap();
        symlink(format!("../../../devices/pci0000:00/{address}"), self.path("bus/pci/devices").join(address))
            .unwrap();
        let (vendor, device) = ids.split_once(':').unwrap();
        for (file, text) in [
            ("vendor", format!("0x{vendor}\n")),
            ("device", format!("0x{device}\n")),
            ("subsystem_vendor", "0x1af4\n".to_owned()),
            ("subsystem_device", "0x1100\n".to_owned()),
            ("class", format!("{class:#08x}\n")),
            ("driver_override", "(null)\n".to_owned()),
            ("modalias", format!("pci:v0000{vendor}d0000{device}\n")),
        ] {
            fs::write(folder.join(file), text).unwrap();
        }
        if let Some(driver) = driver {
            self.add_driver(driver);
            self.set_driver(address, Some(driver));
        }
        if let Some(group) = group {
            let members = self.path(&format!("kernel/iommu_groups/{group}/devices"));
            fs::create_dir_all(&members).unwrap();
            symlink(format!("../../../kernel/iommu_groups/{group}"), folder.join("iommu_group")).unwrap();
            symlink(&folder, members.join(address)).unwrap();
        }
    }

    /// Loads a driver.
    pub fn add_driver(&self, driver: &str) {
        fs::create_dir_all(self.path("bus/pci/drivers").join(driver)).unwrap();
    }

    /// Binds a function to a driver, or to none.
    pub fn set_driver(&self, address: &str, driver: Option<&str>) {
        let link = self.path("devices/pci0000:00").join(address).join("driver");
        let _ = fs::remove_file(&link);
        if let Some(driver) = driver {
            symlink(format!("../../../bus/pci/drivers/{driver}"), link).unwrap();
        }
    }

    pub fn add_interface(&self, address: &str, interface: &str) {
        self.interface_below(&format!("devices/pci0000:00/{address}"), interface);
    }

    pub fn add_virtio_interface(&self, address: &str, number: u32, interface: &str) {
        self.interface_below(&format!("devices/pci0000:00/{address}/virtio{number}"), interface);
    }

    fn interface_below(&self, parent: &str, interface: &str) {
        let folder = self.path(parent).join("net").join(interface);
        fs::create_dir_all(&folder).unwrap();
        symlink(self.path(parent), folder.join("device")).unwrap();
        fs::create_dir_all(self.path("class/net")).unwrap();
        symlink(&folder, self.path("class/net").join(interface)).unwrap();
    }
}
