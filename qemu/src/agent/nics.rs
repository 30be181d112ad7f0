//! Finds the guest's NICs and moves them between the kernel's drivers and vfio-pci.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{failed, modules};

const VFIO_PCI: &str = "vfio-pci";
const DEVICES: &str = "/sys/bus/pci/devices";

/// A NIC of the guest.
pub struct Nic {
    address: String,
    module: String,
}

impl Nic {
    /// The NIC behind a root port.
    pub fn find(port: &str, module: &str) -> io::Result<Nic> {
        let dir = Path::new(DEVICES).join(port);
        let address = wait(|| {
            let names =
                fs::read_dir(&dir).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            // Entries of the port's own also hold colons (0000:00:10.0:pcie001): a device has one dot, at its end.
            names.filter(|name| is_address(name)).min()
        })
        .ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no NIC behind the root port {port}"))
        })?;
        Ok(Nic { address, module: module.to_owned() })
    }

    /// Its PCI address.
    pub fn address(&self) -> &str {
        &self.address
    }

    fn dir(&self) -> PathBuf {
        Path::new(DEVICES).join(&self.address)
    }

    fn driver(&self) -> Option<String> {
        fs::read_link(self.dir().join("driver")).ok()?.file_name()?.to_str().map(str::to_owned)
    }

    fn write(&self, path: PathBuf, text: &str) -> io::Result<()> {
        fs::write(&path, text).map_err(|error| failed(path.display(), error))
    }

    /// Gives it to vfio-pci.
    pub fn attach(&self) -> io::Result<()> {
        modules::load_set(crate::image::VFIO)?;
        self.write(self.dir().join("driver_override"), VFIO_PCI)?;
        if self.driver().is_some_and(|driver| driver != VFIO_PCI) {
            self.write(self.dir().join("driver/unbind"), &self.address)?;
        }
        self.probe()?;
        let group = fs::read_link(self.dir().join("iommu_group"))
            .map_err(|error| failed(format!("{} is in no IOMMU group", self.address), error))?;
        let node = Path::new("/dev/vfio").join(group.file_name().unwrap_or_default());
        if self.driver().as_deref() != Some(VFIO_PCI) || wait(|| node.exists().then_some(())).is_none() {
            return Err(io::Error::other(format!(
                "{} did not go to vfio-pci; see the console",
                self.address
            )));
        }
        Ok(())
    }

    /// Gives it to the kernel's driver; the name of the network interface that it becomes.
    pub fn detach(&self) -> io::Result<String> {
        modules::load_set(&self.module)?;
        self.write(self.dir().join("driver_override"), "\n")?;
        // A program in the guest may want to attach it later, and the guest has no modprobe that finds them.
        modules::load_set(crate::image::VFIO)?;
        if self.driver().as_deref() == Some(VFIO_PCI) {
            self.write(self.dir().join("driver/unbind"), &self.address)?;
        }
        self.probe()?;
        wait(|| self.interface())
            .ok_or_else(|| io::Error::other(format!("{} did not become a network interface", self.address)))
    }

    fn probe(&self) -> io::Result<()> {
        if self.driver().is_none() {
            self.write("/sys/bus/pci/drivers_probe".into(), &self.address)?;
        }
        Ok(())
    }

    /// The name of its network interface; virtio has it one level down.
    fn interface(&self) -> Option<String> {
        let mut dirs = vec![self.dir()];
        dirs.extend(fs::read_dir(self.dir()).ok()?.flatten().map(|entry| entry.path()).filter(|path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("virtio"))
        }));
        dirs.iter().find_map(|dir| {
            let mut entries = fs::read_dir(dir.join("net")).ok()?.flatten();
            entries.next()?.file_name().into_string().ok()
        })
    }
}

/// Whether this is a PCI address: 0000:01:00.0.
fn is_address(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() == 12 && bytes[4] == b':' && bytes[7] == b':' && bytes[10] == b'.'
}

/// Waits for something that the kernel does in its own time.
fn wait<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_a_ports_own_services() {
        assert!(is_address("0000:01:00.0"));
        assert!(!is_address("0000:00:10.0:pcie001"));
        assert!(!is_address("driver_override"));
        assert!(!is_address("max_link_sp"));
    }
}
