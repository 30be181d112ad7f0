//! Copying to and from memory that somebody else may be touching at the same time.
//!
//! A device, a peer's RDMA write or another thread may write while we read. So these are volatile accesses
//! through raw pointers: never a reference, and each byte is read or written exactly once. They are also the
//! fastest copy under QEMU's emulation, where libc's vector code and `rep movsb` are slow: whole 64-bit words,
//! unrolled.

use std::ptr;

const WORD: usize = size_of::<u64>();
const UNROLLED: usize = 8 * WORD;

/// Copies `len` bytes from `from` to `to`.
///
/// # Safety
/// Both ranges are mapped for the whole call and do not overlap. Others may read or write them meanwhile; a
/// torn value is then possible, which the caller checks or does not mind.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    let mut done = 0;
    while len - done >= UNROLLED {
        // SAFETY: [done, done + 64) lies within both ranges; unaligned words are as good as aligned ones to
        // the caller, since nothing here is atomic.
        unsafe {
            let source = from.add(done) as *const Unaligned;
            let target = to.add(done) as *mut Unaligned;
            let words = [
                source.read_volatile(),
                source.add(1).read_volatile(),
                source.add(2).read_volatile(),
                source.add(3).read_volatile(),
                source.add(4).read_volatile(),
                source.add(5).read_volatile(),
                source.add(6).read_volatile(),
                source.add(7).read_volatile(),
            ];
            target.write_volatile(words[0]);
            target.add(1).write_volatile(words[1]);
            target.add(2).write_volatile(words[2]);
            target.add(3).write_volatile(words[3]);
            target.add(4).write_volatile(words[4]);
            target.add(5).write_volatile(words[5]);
            target.add(6).write_volatile(words[6]);
            target.add(7).write_volatile(words[7]);
        }
        done += UNROLLED;
    }
    while len - done >= WORD {
        // SAFETY: as above, for one word.
        unsafe {
            (to.add(done) as *mut Unaligned)
                .write_volatile((from.add(done) as *const Unaligned).read_volatile());
        }
        done += WORD;
    }
    while done < len {
        // SAFETY: as above, for one byte.
        unsafe { to.add(done).write_volatile(from.add(done).read_volatile()) };
        done += 1;
    }
}

/// A 64-bit word at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned(u64);

/// Writes `value` over `len` bytes.
///
/// # Safety
/// As for [`copy`], for the one range.
pub unsafe fn fill(to: *mut u8, value: u8, len: usize) {
    for n in 0..len {
        // SAFETY: within the range that the caller vouches for.
        unsafe { ptr::write_volatile(to.add(n), value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment() {
        let source: Vec<u8> = (0..400u32).map(|n| (n * 7 + 3) as u8).collect();
        for start in 0..9 {
            for len in 0..300 {
                let mut target = vec![0xee; 400];
                // SAFETY: two buffers of 400 bytes; start + len + 1 is at most 309.
                unsafe { copy(source.as_ptr().add(start), target.as_mut_ptr().add(1), len) };
                assert_eq!(target[1..1 + len], source[start..start + len]);
                assert!(target[0] == 0xee && target[1 + len..].iter().all(|b| *b == 0xee));
            }
        }
    }
}
