//! Register pages that a client may map into its own process.

use std::io;
use std::ops::Range;

use uvia_vfio_user::memory::SharedMemory;

/// Pages of 32-bit registers within a BAR, in a file of memory that can neither grow nor shrink, so that a client
/// that has it cannot make an access of ours fail. The file is as long as the BAR, and has memory for the pages
/// only.
///
/// The other side may store at any time: each load is a value of its own, to be checked after it was loaded.
#[derive(Debug, Clone)]
pub struct SharedPages {
    memory: SharedMemory,
    area: Range<usize>,
}

impl SharedPages {
    /// Zeros: the pages of `area` in a BAR of `bar` bytes.
    ///
    /// # Errors
    /// No memory, or no file descriptors.
    pub fn new(bar: usize, area: Range<usize>) -> io::Result<Self> {
        debug_assert!(area.start < area.end && area.end <= bar);
        Ok(Self { memory: SharedMemory::create("uvia-registers", bar)?, area })
    }

    /// Where in the BAR they lie.
    pub fn area(&self) -> Range<usize> {
        self.area.clone()
    }

    /// The memory, as long as the BAR.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Where a register is; always one within the pages.
    #[inline]
    fn place(&self, offset: usize) -> usize {
        self.area.start + (offset & !3) % self.area.len()
    }

    /// The register at `offset` of the pages. What the client stored before it is seen after this.
    #[inline]
    pub fn load(&self, offset: usize) -> u32 {
        self.memory.load_u32(self.place(offset))
    }

    /// Stores a register.
    #[inline]
    pub fn store(&self, offset: usize, value: u32) {
        self.memory.store_u32(self.place(offset), value);
    }

    /// Stores a register, and answers what it was.
    #[inline]
    pub fn swap(&self, offset: usize, value: u32) -> u32 {
        self.memory.swap_u32(self.place(offset), value)
    }

    /// All registers.
    pub fn fill(&self, value: u32) {
        for offset in (0..self.area.len()).step_by(4) {
            self.store(offset, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_lie_where_they_do_in_the_bar() {
        let pages = SharedPages::new(0x8000, 0x2000..0x4000).unwrap();
        pages.store(0x818, 7);
        assert_eq!((pages.load(0x818), pages.memory().load_u32(0x2818)), (7, 7));
        assert_eq!(pages.swap(0x818, 9), 7);
        pages.fill(3);
        assert_eq!((pages.load(0), pages.load(0x1ffc)), (3, 3));
        assert_eq!((pages.memory().load_u32(0x1ffc), pages.memory().load_u32(0x4000)), (0, 0));
        pages.store(usize::MAX, 1);
    }
}
