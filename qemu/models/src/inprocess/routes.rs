//! Where a function's interrupts go: eventfds.

use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;

use uvia_driver::pci::InterruptKind;
use uvia_driver::{Error, Result};

/// Eventfds by kind, and the pin's state.
#[derive(Default)]
pub(super) struct Routes {
    intx: Option<File>,
    msix: Vec<File>,
    asserted: bool,
    /// The pin was delivered, and not unmasked since.
    masked: bool,
}

fn signal(eventfd: &File) {
    // It cannot fail but for a counter at its end, which is readable anyway.
    let _ = (&mut &*eventfd).write(&1u64.to_ne_bytes());
}

impl Routes {
    pub(super) fn enable(&mut self, kind: InterruptKind, vectors: &[BorrowedFd<'_>]) -> Result<()> {
        let owned = vectors.iter().map(|fd| fd.try_clone_to_owned().map(File::from));
        let mut owned = owned.collect::<std::io::Result<Vec<_>>>().map_err(|e| Error::io("an eventfd", e))?;
        match kind {
            InterruptKind::Intx => {
                self.intx = owned.pop();
                self.masked = false;
                self.deliver();
            }
            InterruptKind::Msix => self.msix = owned,
            InterruptKind::Msi => {
                return Err(Error::Argument { what: "there are no MSI vectors".to_owned() });
            }
        }
        Ok(())
    }

    pub(super) fn disable(&mut self, kind: InterruptKind) {
        match kind {
            InterruptKind::Intx => self.intx = None,
            InterruptKind::Msix => self.msix.clear(),
            InterruptKind::Msi => (),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn drive(&mut self, asserted: bool) {
        if asserted != self.asserted {
            self.asserted = asserted;
            self.deliver();
        }
    }

    pub(super) fn unmask(&mut self) {
        self.masked = false;
        self.deliver();
    }

    fn deliver(&mut self) {
        if let Some(eventfd) = self.intx.as_ref().filter(|_| self.asserted && !self.masked) {
            signal(eventfd);
            self.masked = true;
        }
    }

    pub(super) fn message(&mut self, vector: u16) {
        if let Some(eventfd) = self.msix.get(usize::from(vector)) {
            signal(eventfd);
        }
    }

    pub(super) fn has_messages(&self) -> bool {
        !self.msix.is_empty()
    }
}
