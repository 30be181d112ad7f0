//! Copying to and from memory that somebody else may be touching at the same time.
//!
//! A device, a peer's RDMA write or another thread may write while we read. So these are volatile accesses
//! through raw pointers: never a reference, and each byte is read or written exactly once. They are also the
//! fastest copy under QEMU's emulation, where libc's vector code and `rep movsb` are slow: whole 64-bit words,
//! unrolled.

use std::ptr;

/// Copies `len` bytes from `from` to `to`.
///
/// # Safety
/// Both ranges are mapped for the whole call and do not overlap. Others may read or write them meanwhile; a
/// torn value is then possible, which the caller checks or does not mind.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    let mut done = 0;
    while len - done >= size_of::<[Word; 8]>() {
        // SAFETY: these 64 bytes lie within both ranges, as the rest below does.
        unsafe { step::<[Word; 8]>(from, to, &mut done) };
    }
    // What is left is below 64 bytes, and its binary digits say how it is made up: no loop, few branches.
    // SAFETY: the digits that are set add up to what is left.
    unsafe {
        if len & 32 != 0 {
            step::<[Word; 4]>(from, to, &mut done);
        }
        if len & 16 != 0 {
            step::<[Word; 2]>(from, to, &mut done);
        }
        if len & 8 != 0 {
            step::<[Word; 1]>(from, to, &mut done);
        }
        if len & 4 != 0 {
            step::<Half>(from, to, &mut done);
        }
        if len & 2 != 0 {
            step::<Quarter>(from, to, &mut done);
        }
        if len & 1 != 0 {
            step::<u8>(from, to, &mut done);
        }
    }
}

/// Something that is copied by volatile accesses, each byte once.
trait Unit: Copy {
    /// # Safety
    /// Both are mapped for the size of `Self`; no alignment is needed.
    unsafe fn copy(from: *const u8, to: *mut u8);
}

/// Copies one unit at `done`, and moves on.
///
/// # Safety
/// `[done, done + size)` lies within both ranges.
#[inline(always)]
unsafe fn step<T: Unit>(from: *const u8, to: *mut u8, done: &mut usize) {
    // SAFETY: the caller's promise.
    unsafe { T::copy(from.add(*done), to.add(*done)) };
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

macro_rules! units {
    ($($unit:ty),*) => {
        $(impl Unit for $unit {
            #[inline(always)]
            unsafe fn copy(from: *const u8, to: *mut u8) {
                // SAFETY: the caller's promise; the types have no alignment.
                unsafe { to.cast::<Self>().write_volatile(from.cast::<Self>().read_volatile()) }
            }
        })*
    };
}

units!(u8, Quarter, Half, Word);

impl<const N: usize> Unit for [Word; N] {
    #[inline(always)]
    unsafe fn copy(from: *const u8, to: *mut u8) {
        let (from, to) = (from.cast::<Word>(), to.cast::<Word>());
        let mut words = [Word(0); N];
        // First all loads, then all stores, so that they need not wait for each other in turn.
        for (n, word) in words.iter_mut().enumerate() {
            // SAFETY: the caller's promise, for word n of N.
            *word = unsafe { from.add(n).read_volatile() };
        }
        for (n, word) in words.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { to.add(n).write_volatile(word) };
        }
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
                let mut target = vec![0xee; 400];
                // SAFETY: two buffers of 400 bytes; start + len + 1 is at most 309.
                unsafe { copy(source.as_ptr().add(start), target.as_mut_ptr().add(1), len) };
                assert_eq!(target[1..1 + len], source[start..start + len]);
                assert!(target[0] == 0xee && target[1 + len..].iter().all(|b| *b == 0xee));
            }
        }
    }
}
