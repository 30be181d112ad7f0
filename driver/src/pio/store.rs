//! Stores into adapter memory: whole 64-bit words at their natural alignment, in ascending order, each once.
//!
//! Uncached memory takes each store as one transaction, and write-combining memory gathers neighbours into larger ones,
//! as long as nothing else is stored meanwhile. Neither likes parts of words, and reading is slow: nothing here reads.

/// Bytes of a store.
pub(super) const WORD: usize = size_of::<u64>();

/// Stores `N` words, little-endian.
///
/// # Safety
/// `to` is a multiple of 8, and `N` words from there on are mapped and may be written.
#[inline(always)]
pub(super) unsafe fn words<const N: usize>(to: *mut u8, words: &[u64; N]) {
    for (n, word) in words.iter().enumerate() {
        // SAFETY: the caller's promise, for word n of N.
        unsafe { to.cast::<u64>().add(n).write_volatile(word.to_le()) };
    }
}

/// Stores `len` bytes; the last word is filled up with zeros.
///
/// # Safety
/// `to` is a multiple of 8, and as many whole words from there on are mapped and may be written; `[from, from + len)` is
/// mapped. Others may write there meanwhile: each byte is read once.
#[inline(always)]
pub(super) unsafe fn bytes(to: *mut u8, from: *const u8, len: usize) {
    let whole = len / WORD;
    for n in 0..whole {
        // SAFETY: the caller's promise, for word n.
        unsafe {
            let word = from.cast::<Unaligned>().add(n).read_volatile().0;
            to.cast::<u64>().add(n).write_volatile(word);
        }
    }
    let rest = len % WORD;
    if rest != 0 {
        let mut last = [0; WORD];
        for (n, byte) in last.iter_mut().enumerate().take(rest) {
            // SAFETY: within the caller's range.
            *byte = unsafe { from.add(whole * WORD + n).read_volatile() };
        }
        // SAFETY: the last word, which the caller vouches for.
        unsafe { to.cast::<u64>().add(whole).write_volatile(u64::from_ne_bytes(last)) };
    }
}

/// 64 bits at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned(u64);

/// Stores `count` words of zero.
///
/// # Safety
/// As for [`words`].
pub(super) unsafe fn zeros(to: *mut u8, count: usize) {
    for n in 0..count {
        // SAFETY: the caller's promise, for word n.
        unsafe { to.cast::<u64>().add(n).write_volatile(0) };
    }
}

/// After all stores of a frame, before anything by which a NIC may learn of it. Stores that are being combined are
/// written out; the other half is the NIC's, which fetches the frame after it took the doorbell. What fences ordinary
/// memory does nothing for write-combining on x86: this one costs an instruction there.
#[inline(always)]
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE; the instruction touches no memory and no register.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a store barrier over the outer shareable domain; touches no register and no memory.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_whole_words_with_zeros_at_the_end() {
        let source: Vec<u8> = (1..=80).collect();
        for from in 0..8 {
            for len in 0..64 {
                let mut target = [u64::MAX; 10];
                // SAFETY: 10 words of ours, of which at most 8 are written; at most 72 of 80 bytes are read.
                unsafe { bytes(target.as_mut_ptr().cast(), source.as_ptr().add(from), len) };
                let written: Vec<u8> = target.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let end = len.next_multiple_of(8);
                assert_eq!(written[..len], source[from..from + len]);
                assert!(written[len..end].iter().all(|byte| *byte == 0));
                assert!(written[end..].iter().all(|byte| *byte == 0xff), "one word too many at {len}");
            }
        }
    }
}
