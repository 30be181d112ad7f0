//! The registers of one descriptor ring, checked each time they are read: a client may change them at any
//! time, in memory that it has mapped.

use super::regs;
use crate::shared::SharedPages;

/// Bytes of a descriptor.
pub const DESCRIPTOR: u64 = 16;

/// Which ring: where its registers begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// RDBAL and on.
    Receive,
    /// TDBAL and on.
    Transmit,
}

/// A ring as its registers had it at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    base: u64,
    /// Descriptors.
    pub size: u32,
    /// The next descriptor that the chip works on.
    pub head: u32,
    /// The first one that it may not.
    pub tail: u32,
}

impl Ring {
    /// Reads the registers. `None`: there is no ring, or head or tail lie outside of it, and then the chip has
    /// nothing to do until software mends that.
    #[inline]
    pub fn load(pages: &SharedPages, direction: Direction) -> Option<Self> {
        let start = match direction {
            Direction::Receive => regs::RDBAL,
            Direction::Transmit => regs::TDBAL,
        } - regs::RINGS;
        let ring = Self {
            // The tail first: what software stored before it is seen.
            tail: pages.load(start + (regs::RDT - regs::RDBAL)) & 0xffff,
            head: pages.load(start + (regs::RDH - regs::RDBAL)) & 0xffff,
            size: (pages.load(start + (regs::RDLEN - regs::RDBAL)) & 0xf_ff80) / DESCRIPTOR as u32,
            base: u64::from(pages.load(start) & !0xf) | u64::from(pages.load(start + 4)) << 32,
        };
        (ring.head < ring.size && ring.tail < ring.size).then_some(ring)
    }

    /// Where descriptor `n` lies. It may wrap: the bus refuses that.
    #[inline]
    pub fn descriptor(&self, n: u32) -> u64 {
        self.base.wrapping_add(u64::from(n) * DESCRIPTOR)
    }

    /// Descriptors that the chip may use.
    #[inline]
    pub fn available(&self) -> u32 {
        if self.tail >= self.head { self.tail - self.head } else { self.tail + self.size - self.head }
    }

    /// Moves the head on by one, and shows it.
    #[inline]
    pub fn advance(&mut self, pages: &SharedPages, direction: Direction) {
        self.head = if self.head + 1 == self.size { 0 } else { self.head + 1 };
        let register = match direction {
            Direction::Receive => regs::RDH,
            Direction::Transmit => regs::TDH,
        };
        pages.store(register - regs::RINGS, self.head);
    }
}
