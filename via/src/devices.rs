//! The devices that this process has open: one may be opened many times.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use uvia_driver::pci::PciAddress;

use crate::Result;
use crate::handle::Handle;
use crate::nic::Shared;

/// How long somebody who opens or closes the same device just now is given, before the next look.
const LOOK: Duration = Duration::from_millis(1);

enum Entry {
    /// Somebody opens it.
    Opening,
    /// Open, or about to be closed.
    Open(Weak<Shared>),
}

type Devices = HashMap<String, Entry>;

static DEVICES: LazyLock<Mutex<Devices>> = LazyLock::new(Mutex::default);

fn devices() -> MutexGuard<'static, Devices> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device's place among those that are open. It is the last thing of a NIC to go: until then nobody else opens the
/// device.
pub(crate) struct Registered(String);

impl Drop for Registered {
    fn drop(&mut self) {
        devices().remove(&self.0);
    }
}

/// The one name of a device that may be called by several.
fn canonical(name: &str) -> String {
    if let Ok(address) = name.parse::<PciAddress>() {
        return address.to_string();
    }
    match name.split_once(':') {
        Some((kind, path)) => match std::fs::canonicalize(path) {
            Ok(path) => format!("{kind}:{}", path.display()),
            Err(_) => name.to_owned(),
        },
        None => name.to_owned(),
    }
}

/// A handle to the device of that name: to the one that is open, or to what `open` makes of it. Answers whether it was
/// open.
pub(crate) fn open(name: &str, open: impl FnOnce(Registered) -> Result<Handle>) -> Result<(Handle, bool)> {
    let name = canonical(name);
    loop {
        let mut devices = devices();
        match devices.get(&name) {
            None => {
                devices.insert(name.clone(), Entry::Opening);
                break;
            }
            Some(Entry::Opening) => {}
            Some(Entry::Open(shared)) => {
                let shared = shared.upgrade();
                // Not under the lock: should this be the last use of what closes, dropping it takes the lock.
                drop(devices);
                if let Some(Ok(handle)) = shared.map(Handle::of) {
                    return Ok((handle, true));
                }
            }
        }
        std::thread::sleep(LOOK);
    }
    // Should opening fail, this is dropped with what there is of it.
    let handle = open(Registered(name.clone()))?;
    devices().insert(name, Entry::Open(Arc::downgrade(handle.shared())));
    Ok((handle, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_one_name() {
        assert_eq!(canonical("01:00.0"), canonical("0000:01:00.0"));
        assert_eq!(canonical("vfio-user:/"), canonical("vfio-user:/tmp/.."));
        assert_ne!(canonical("vfio-user:/"), canonical("vfio-user:/tmp"));
        assert_eq!(canonical("vfio-user:/not there"), "vfio-user:/not there");
    }
}
