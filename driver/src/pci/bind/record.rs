//! What a function had before it was attached.

use std::fs;
use std::io;
use std::path::Path;

use crate::pci::{Function, PciAddress};

/// Kept as a small text file named after the function, in a folder that is emptied by a reboot (after which
/// the kernel has chosen drivers anew).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The driver, if it had one.
    pub driver: Option<String>,
    /// What `driver_override` named, if anything.
    pub only: Option<String>,
    /// Vendor and device id: another card may sit at the address by now.
    ids: (u16, u16),
}

impl Record {
    /// What `function` has now.
    pub fn of(function: &Function) -> Self {
        Self {
            driver: function.driver.clone(),
            only: function.driver_override.clone(),
            ids: (function.vendor, function.device),
        }
    }

    /// Keeps it; whole or not at all.
    pub fn save(&self, folder: &Path, address: PciAddress) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let text = format!(
            "ids={:04x}:{:04x}\ndriver={}\noverride={}\n",
            self.ids.0,
            self.ids.1,
            self.driver.as_deref().unwrap_or(""),
            self.only.as_deref().unwrap_or("")
        );
        let new = folder.join(format!("{address}.new"));
        fs::write(&new, text)?;
        fs::rename(new, folder.join(address.to_string()))
    }

    /// What was kept for `function`, if it can be read and was about the same card.
    pub fn load(folder: &Path, function: &Function) -> Option<Self> {
        let text = fs::read_to_string(folder.join(function.address.to_string())).ok()?;
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let name = |key: &str| {
            let name = value(key)?;
            // It becomes part of a path.
            let harmless = !name.contains('/') && !name.starts_with('.');
            harmless.then(|| Some(name.to_owned()).filter(|name| !name.is_empty()))
        };
        let ids = format!("{:04x}:{:04x}", function.vendor, function.device);
        if value("ids") != Some(&ids) {
            return None;
        }
        Some(Self {
            driver: name("driver")?,
            only: name("override")?,
            ids: (function.vendor, function.device),
        })
    }

    /// Forgets it.
    pub fn remove(folder: &Path, address: PciAddress) {
        // One that stays is overwritten by the next attach.
        let _ = fs::remove_file(folder.join(address.to_string()));
    }
}
