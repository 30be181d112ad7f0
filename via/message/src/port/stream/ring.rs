//! A ring of bytes in shared memory, with one writer and one reader.
//!
//! Each end keeps its own place for itself and only publishes it: what the other end stores is believed as far as it can be
//! true, and else ends the pipe. Bytes are copied by volatile accesses, since the other process keeps no rules.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use uvia_driver::dma::copy;

/// Bytes of a ring; a power of two.
pub(super) const CAPACITY: usize = 256 << 10;
/// Bytes of a ring with its two places, each of which has a cache line.
pub(super) const SIZE: usize = 128 + CAPACITY;

/// One end of a ring.
pub(super) struct Ring {
    base: NonNull<u8>,
    /// How far this end is. Places go round at 2^32.
    mine: u32,
}

// SAFETY: the memory is shared anyway; each end of a ring is used by one thread at a time.
unsafe impl Send for Ring {}

impl Ring {
    /// One end of the ring that lies there.
    ///
    /// # Safety
    /// [`SIZE`] bytes of mapped memory, aligned to 64, which stay mapped while this lives.
    pub(super) unsafe fn at(base: NonNull<u8>) -> Self {
        Self { base, mine: 0 }
    }

    fn place(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: within the memory, aligned, and reached by atomic accesses only.
        unsafe { self.base.add(offset).cast::<AtomicU32>().as_ref() }
    }

    /// How far the writer is.
    fn written(&self) -> &AtomicU32 {
        self.place(0)
    }

    /// How far the reader is.
    fn taken(&self) -> &AtomicU32 {
        self.place(64)
    }

    fn lie() -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, "the other end of shared memory says what cannot be")
    }

    /// Writes as many bytes as there is room for.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Acquire: pairs with the reader's store, so that it has done with the bytes that are overwritten.
        let taken = self.taken().load(Ordering::Acquire);
        let used = self.mine.wrapping_sub(taken) as usize;
        let room = CAPACITY.checked_sub(used).ok_or_else(Self::lie)?;
        let len = room.min(bytes.len());
        self.both_parts(len, |at, from, len| {
            // SAFETY: `both_parts` keeps within the ring; `from + len` is within the slice.
            unsafe { copy::copy(bytes.as_ptr().add(from), at, len) };
        });
        self.mine = self.mine.wrapping_add(len as u32);
        // Release: the bytes before the place that tells of them.
        self.written().store(self.mine, Ordering::Release);
        Ok(len)
    }

    /// Reads as many bytes as there are.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Acquire: pairs with the writer's store, so that the bytes are there.
        let written = self.written().load(Ordering::Acquire);
        let there = written.wrapping_sub(self.mine) as usize;
        if there > CAPACITY {
            return Err(Self::lie());
        }
        let len = there.min(into.len());
        let start = into.as_mut_ptr();
        self.both_parts(len, |at, from, len| {
            // SAFETY: as in `write`.
            unsafe { copy::copy(at, start.add(from), len) };
        });
        self.mine = self.mine.wrapping_add(len as u32);
        // Release: the bytes were read before their room is given back.
        self.taken().store(self.mine, Ordering::Release);
        Ok(len)
    }

    /// The next `len` bytes of the ring, in one part or in two where it ends between.
    fn both_parts(&self, len: usize, mut part: impl FnMut(*mut u8, usize, usize)) {
        let start = self.mine as usize % CAPACITY;
        let first = len.min(CAPACITY - start);
        let data = self.base.as_ptr().wrapping_add(128);
        if first > 0 {
            part(data.wrapping_add(start), 0, first);
        }
        if len > first {
            part(data, first, len - first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(64))]
    struct Memory([u8; SIZE]);

    #[test]
    fn bytes_come_out_in_order_and_lies_are_found() {
        let mut memory = vec![0u8; SIZE + 64];
        let skip = memory.as_ptr().align_offset(align_of::<Memory>());
        let base = NonNull::new(memory[skip..].as_mut_ptr()).unwrap();
        // SAFETY: the memory outlives both.
        let (mut writer, mut reader) = unsafe { (Ring::at(base), Ring::at(base)) };
        let (mut sent, mut got) = (0u32, 0u32);
        let mut buffer = vec![0; 70_001];
        for round in 0..200 {
            let bytes: Vec<u8> = (0..50_021 + round).map(|n| (sent + n) as u8).collect();
            sent += writer.write(&bytes).unwrap() as u32;
            let len = reader.read(&mut buffer).unwrap();
            for byte in &buffer[..len] {
                assert_eq!(*byte, got as u8);
                got += 1;
            }
        }
        assert!(got > 5_000_000);
        writer.written().store(writer.mine.wrapping_add(CAPACITY as u32 + 1), Ordering::Relaxed);
        assert!(reader.read(&mut buffer).is_err());
        writer.taken().store(writer.mine.wrapping_add(1), Ordering::Relaxed);
        assert!(writer.write(&[1]).is_err());
    }
}
