//! Copying to and from memory that somebody else may be touching at the same time.
//!
//! A device, a peer's RDMA write or another thread may write while we read. So these are volatile accesses
//! through raw pointers: never a reference, and each byte is read or written exactly once. They are also the
//! fastest copy under QEMU's emulation, where libc's vector code and `rep movsb` are slow: whole 64-bit words,
//! unrolled.

use std::ptr;

/// Bytes that are copied without a loop are fewer.
const FEW: usize = 128;

/// Copies `len` bytes from `from` to `to`.
///
/// # Safety
/// Both ranges are mapped for the whole call and do not overlap. Others may read or write them meanwhile; a
/// torn value is then possible, which the caller checks or does not mind.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; in the first case the target is aligned.
    unsafe {
        if (to as usize).is_multiple_of(align_of::<u64>()) {
            copy_by::<Aligned>(from, to, len);
        } else {
            copy_by::<Anywhere>(from, to, len);
        }
    }
}

/// As [`copy`], to a multiple of 8.
///
/// # Safety
/// As for [`copy`], and `to` is a multiple of 8.
#[inline(always)]
pub(crate) unsafe fn copy_aligned(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_by::<Aligned>(from, to, len) }
}

/// As [`copy`], where most copies are short and there is much else to keep in registers: longer ones, and those to odd
/// addresses, are made by a function.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
pub(crate) unsafe fn copy_mostly_few(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; in the first case the target is aligned, and less than 128 bytes are left: all of them.
    unsafe {
        // Both in one branch.
        if (len / FEW) | (to as usize % align_of::<u64>()) == 0 {
            rest::<Aligned>(from, to, len, 0);
        } else {
            copy_many(from, to, len);
        }
    }
}

/// As [`copy`], not in place.
///
/// # Safety
/// As for [`copy`].
#[inline(never)]
unsafe fn copy_many(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy(from, to, len) }
}

/// How words are stored.
trait Target {
    /// # Safety
    /// The word is mapped, and aligned as this target wants it.
    unsafe fn put(to: *mut u8, word: u64);
}

/// At multiples of 8: one store.
struct Aligned;

impl Target for Aligned {
    #[inline(always)]
    unsafe fn put(to: *mut u8, word: u64) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<u64>().write_volatile(word) };
    }
}

/// At any address. The compiler takes two instructions more.
struct Anywhere;

impl Target for Anywhere {
    #[inline(always)]
    unsafe fn put(to: *mut u8, word: u64) {
        // SAFETY: the caller's promise; the type has no alignment.
        unsafe { to.cast::<Word>().write_volatile(Word(word)) };
    }
}

/// # Safety
/// As for [`copy`], and `to` is aligned as `T` wants it.
#[inline(always)]
unsafe fn copy_by<T: Target>(from: *const u8, to: *mut u8, len: usize) {
    let mut done = 0;
    while len - done >= FEW {
        // Four words at a time: more would take more registers than there are to spare.
        // SAFETY: these bytes lie within both ranges, as the rest below does.
        unsafe {
            step::<T, 4>(from, to, &mut done);
            step::<T, 4>(from, to, &mut done);
            step::<T, 4>(from, to, &mut done);
            step::<T, 4>(from, to, &mut done);
        }
    }
    // SAFETY: what is left is below 128 bytes, and the rest of the length is a multiple of that.
    unsafe { rest::<T>(from, to, len, done) }
}

/// Copies what is left from `done` on, a multiple of 128. The binary digits of the length say how it is made up: no loop, and
/// few branches.
///
/// # Safety
/// As for [`copy_by`], and less than 128 bytes are left.
#[inline(always)]
unsafe fn rest<T: Target>(from: *const u8, to: *mut u8, len: usize, mut done: usize) {
    // SAFETY: the digits that are set add up to what is left.
    unsafe {
        if len & 64 != 0 {
            step::<T, 4>(from, to, &mut done);
            step::<T, 4>(from, to, &mut done);
        }
        if len & 63 == 0 {
            return;
        }
        if len & 32 != 0 {
            step::<T, 4>(from, to, &mut done);
        }
        if len & 16 != 0 {
            step::<T, 2>(from, to, &mut done);
        }
        if len & 8 != 0 {
            step::<T, 1>(from, to, &mut done);
        }
        if len & 7 != 0 {
            bytes(from.add(done), to.add(done), len & 7);
        }
    }
}

/// Copies `N` words at `done`, and moves on.
///
/// # Safety
/// As for [`copy_by`], for `N` words from `done` on, which is a multiple of 8.
#[inline(always)]
unsafe fn step<T: Target, const N: usize>(from: *const u8, to: *mut u8, done: &mut usize) {
    let mut words = [0; N];
    // First all loads, then all stores, so that they need not wait for each other in turn.
    for (n, word) in words.iter_mut().enumerate() {
        // SAFETY: the caller's promise, for word n of N.
        *word = unsafe { from.add(*done).cast::<Word>().add(n).read_volatile() }.0;
    }
    for (n, word) in words.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { T::put(to.add(*done + 8 * n), word) };
    }
    *done += 8 * N;
}

/// Copies up to 7 bytes.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn bytes(from: *const u8, to: *mut u8, len: usize) {
    let mut done = 0;
    // SAFETY: the digits that are set add up to `len`.
    unsafe {
        if len & 4 != 0 {
            unit::<Half>(from, to, &mut done);
        }
        if len & 2 != 0 {
            unit::<Quarter>(from, to, &mut done);
        }
        if len & 1 != 0 {
            unit::<u8>(from, to, &mut done);
        }
    }
}

/// Copies one `T` at `done`, and moves on.
///
/// # Safety
/// It is mapped at both places; `T` has no alignment.
#[inline(always)]
unsafe fn unit<T: Copy>(from: *const u8, to: *mut u8, done: &mut usize) {
    // SAFETY: the caller's promise.
    unsafe { to.add(*done).cast::<T>().write_volatile(from.add(*done).cast::<T>().read_volatile()) };
    *done += size_of::<T>();
}

/// A 64-bit word at any address. Nothing here is atomic, so that alignment does not matter.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Word(u64);

/// 32 bits at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Half(u32);

/// 16 bits at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Quarter(u16);

/// Reads little-endian 64-bit words.
///
/// # Safety
/// `N` words from `from` on are mapped; no alignment is needed.
#[inline(always)]
pub unsafe fn read_words<const N: usize>(from: *const u8) -> [u64; N] {
    let mut words = [0; N];
    for (n, word) in words.iter_mut().enumerate() {
        // SAFETY: the caller's promise, for word n of N.
        *word = u64::from_le(unsafe { from.cast::<Word>().add(n).read_volatile() }.0);
    }
    words
}

/// Writes 64-bit words, little-endian.
///
/// # Safety
/// `N` words from `to` on are mapped, and `to` is a multiple of 8.
#[inline(always)]
pub unsafe fn write_words<const N: usize>(to: *mut u8, words: &[u64; N]) {
    for (n, word) in words.iter().enumerate() {
        // SAFETY: the caller's promise, for word n of N.
        unsafe { to.cast::<u64>().add(n).write_volatile(word.to_le()) };
    }
}

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
                // At an odd address, and at one that words are aligned at.
                let mut target = vec![0xee; 400];
                let aligned = target.as_ptr().align_offset(8) + 8;
                for at in [aligned, aligned + 1] {
                    target.fill(0xee);
                    // SAFETY: two buffers of 400 bytes; start + len and at + len are at most 316.
                    unsafe { copy(source.as_ptr().add(start), target.as_mut_ptr().add(at), len) };
                    assert_eq!(target[at..at + len], source[start..start + len]);
                    assert!(target[..at].iter().chain(&target[at + len..]).all(|b| *b == 0xee));
                }
            }
        }
    }
}
