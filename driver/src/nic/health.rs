//! Whether a device can still be believed.

use crate::{DeviceFault, Error, Result};

/// Remembers a device's first fault: from then on every operation answers with it, until a reset.
#[derive(Debug)]
pub(super) struct Health {
    device: String,
    fault: Option<DeviceFault>,
}

impl Health {
    pub(super) fn new(device: &str) -> Self {
        Self { device: device.to_owned(), fault: None }
    }

    /// Nothing is done with a device that has faulted.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        match &self.fault {
            None => Ok(()),
            Some(fault) => Err(self.error(fault.clone())),
        }
    }

    /// Keeps the fault, if it is one.
    #[inline]
    pub(super) fn note<T>(&mut self, outcome: std::result::Result<T, DeviceFault>) -> Result<T> {
        outcome.map_err(|fault| self.fail(fault))
    }

    #[cold]
    pub(super) fn fail(&mut self, fault: DeviceFault) -> Error {
        self.fault.get_or_insert_with(|| fault.clone());
        self.error(fault)
    }

    /// After a reset.
    pub(super) fn recovered(&mut self) {
        self.fault = None;
    }

    pub(super) fn device(&self) -> &str {
        &self.device
    }

    /// An error for a device that is not used further anyway.
    #[cold]
    pub(super) fn error(&self, fault: DeviceFault) -> Error {
        Error::Device { device: self.device.clone(), fault }
    }
}
