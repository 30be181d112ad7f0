//! A function that is nothing but memory: QEMU's ivshmem-plain, as far as its second BAR.
//!
//! It stands for the memory that adapters let programs map. NICs do not ask it for anything: a client that has mapped the
//! BAR maps it for its NIC in turn, as any memory of its own.

use std::io;

use crate::config::{BarKind, Config, Identity};
use crate::model::{Context, Model, Vectors, Window, Work};
use crate::shared::SharedPages;

/// The BAR that is memory.
const BAR: u8 = 2;
/// Registers, of which the plain device uses none.
const REGISTERS: u32 = 256;

/// The function.
pub struct AdapterMemory {
    pages: SharedPages,
}

impl AdapterMemory {
    /// Sizes that it can have, bytes: powers of two.
    pub const SIZES: std::ops::RangeInclusive<usize> = 4096..=64 << 20;

    /// One of `size` bytes.
    ///
    /// # Errors
    /// No such size; no memory.
    pub fn new(size: usize) -> io::Result<Self> {
        if !size.is_power_of_two() || !Self::SIZES.contains(&size) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("adapter memory is a power of two of 4K to 64M, not {size} bytes"),
            ));
        }
        Ok(Self { pages: SharedPages::new(size, 0..size)? })
    }
}

impl Model for AdapterMemory {
    fn kind(&self) -> &'static str {
        "adapter-memory"
    }

    fn config(&self) -> Config {
        let ids = (0x1af4, 0x1110);
        let identity = Identity { ids, subsystem: (0x1af4, 0x1100), revision: 1, class: [0x05, 0, 0] };
        Config::new(identity)
            .with_bar(0, BarKind::Memory, REGISTERS)
            .with_bar(BAR, BarKind::Memory, self.pages.memory().len() as u32)
            .with_express()
    }

    fn vectors(&self) -> Vectors {
        Vectors::default()
    }

    fn windows(&self) -> Vec<Window> {
        vec![Window { bar: BAR, pages: self.pages.clone() }]
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn read(&mut self, _context: &mut Context<'_>, bar: u8, offset: u64, into: &mut [u8]) {
        match usize::try_from(offset) {
            // The caller keeps the range within the BAR.
            Ok(offset) if bar == BAR => self.pages.memory().read(offset, into),
            _ => into.fill(0),
        }
    }

    fn write(&mut self, _context: &mut Context<'_>, bar: u8, offset: u64, from: &[u8]) {
        if let Ok(offset) = usize::try_from(offset)
            && bar == BAR
        {
            self.pages.memory().write(offset, from);
        }
    }

    /// Memory keeps what is in it.
    fn reset(&mut self, _context: &mut Context<'_>) {}

    fn work(&mut self, context: &mut Context<'_>, _budget: usize) -> Work {
        // It is on no wire.
        while context.port.receive().is_some() {}
        Work::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_bars() {
        for size in [0, 4095, 4097, 12288, 128 << 20, usize::MAX] {
            assert!(AdapterMemory::new(size).is_err(), "{size}");
        }
        for size in [4096, 1 << 20, 64 << 20] {
            assert_eq!(AdapterMemory::new(size).unwrap().config().bar(BAR), size as u64);
        }
    }
}
