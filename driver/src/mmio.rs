//! Device registers through one accessor: memory where the register lies in a part of its BAR that is mapped,
//! messages elsewhere.
//!
//! Registers are little-endian (PCI). A read that fails answers all-ones, as on a bus whose device is gone;
//! the reason is kept and can be asked for with [`Registers::fault`].

use std::sync::{Arc, OnceLock};

use volatile_register::RW;

use crate::pci::{PciDevice, RegionMapping};
use crate::{Error, Result};

/// The registers of one BAR, or of a window of it.
pub struct Registers {
    device: Arc<dyn PciDevice>,
    bar: u8,
    base: usize,
    len: usize,
    mapping: Option<Arc<RegionMapping>>,
    fault: OnceLock<Error>,
}

impl Registers {
    /// The whole of `bar`.
    ///
    /// # Errors
    /// When the device lacks the BAR, or it cannot be mapped although the device says that it can.
    pub fn open(device: &Arc<dyn PciDevice>, bar: u8) -> Result<Self> {
        let info = device.region(bar)?;
        let lacking = || Error::Unsupported { device: device.name().to_owned(), what: format!("BAR {bar}") };
        let len = usize::try_from(info.size).map_err(|_| lacking())?;
        if len == 0 {
            return Err(lacking());
        }
        let mapping = device.map_region(bar)?;
        Ok(Self { device: device.clone(), bar, base: 0, len, mapping, fault: OnceLock::new() })
    }

    /// A window of `len` bytes at `offset` (a virtio structure, a queue's register block).
    ///
    /// # Errors
    /// When the window does not lie within this one.
    pub fn window(&self, offset: usize, len: usize) -> Result<Self> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Error::Argument {
                what: format!(
                    "{}: registers {offset:#x}+{len:#x} lie beyond BAR {} of {:#x} bytes",
                    self.device.name(),
                    self.bar,
                    self.len
                ),
            });
        }
        Ok(Self {
            device: self.device.clone(),
            bar: self.bar,
            base: self.base + offset,
            len,
            mapping: self.mapping.clone(),
            fault: OnceLock::new(),
        })
    }

    /// Bytes in this window.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the window is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first error that a message-based access met, if one did.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.get()
    }

    fn message_read<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0xff; N];
        if let Err(e) = self.device.region_read(self.bar, (self.base + offset) as u64, &mut bytes) {
            let _ = self.fault.set(e);
            return [0xff; N];
        }
        bytes
    }

    fn message_write(&self, offset: usize, bytes: &[u8]) {
        if let Err(e) = self.device.region_write(self.bar, (self.base + offset) as u64, bytes) {
            let _ = self.fault.set(e);
        }
    }

    /// Where a register of type `T` is mapped, if it is. An offset beyond the window or unaligned is a fault of the driver's
    /// own code, since offsets are constants of a data sheet or were checked when the window was made.
    #[inline]
    fn cell<T: Copy>(&self, offset: usize) -> Option<*const RW<T>> {
        let size = size_of::<T>();
        assert!((self.base + offset).is_multiple_of(size) && offset <= self.len && self.len - offset >= size);
        Some(self.mapping.as_ref()?.place(self.base + offset, size)? as *const RW<T>)
    }
}

macro_rules! access {
    ($($int:ty, $read:ident, $write:ident;)*) => {
        impl Registers {
            $(
                /// Reads a register; all-ones when the device cannot be reached.
                #[inline]
                pub fn $read(&self, offset: usize) -> $int {
                    match self.cell::<$int>(offset) {
                        // SAFETY: `cell` found that the register lies in the mapping, which `self` keeps
                        // alive, and is aligned; device registers are only ever reached by volatile access.
                        Some(cell) => <$int>::from_le(unsafe { (*cell).read() }),
                        None => <$int>::from_le_bytes(self.message_read(offset)),
                    }
                }

                /// Writes a register.
                #[inline]
                pub fn $write(&self, offset: usize, value: $int) {
                    match self.cell::<$int>(offset) {
                        // SAFETY: as for reading; what a write makes the device do is bounded by what is
                        // mapped in its DMA domain.
                        Some(cell) => unsafe { (*cell).write(value.to_le()) },
                        None => self.message_write(offset, &value.to_le_bytes()),
                    }
                }
            )*
        }
    };
}

access! {
    u8, read8, write8;
    u16, read16, write16;
    u32, read32, write32;
    u64, read64, write64;
}
