//! Copies out of and into memory that another process may be writing: volatile, each byte once, in whole words where
//! there are some.

/// Eight bytes at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Word([u8; 8]);

const WORD: usize = size_of::<Word>();

/// Copies `into.len()` bytes from `from`.
///
/// # Safety
/// They are mapped for the whole call, and not part of `into`. Others may write them meanwhile: then some bytes are
/// old and some new.
#[inline]
pub unsafe fn copy_out(from: *const u8, into: &mut [u8]) {
    let mut words = into.chunks_exact_mut(WORD);
    let mut done = 0;
    for word in &mut words {
        // SAFETY: these bytes lie within the caller's range; the type has no alignment.
        let Word(bytes) = unsafe { from.add(done).cast::<Word>().read_volatile() };
        word.copy_from_slice(&bytes);
        done += WORD;
    }
    for byte in words.into_remainder() {
        // SAFETY: as above.
        *byte = unsafe { from.add(done).read_volatile() };
        done += 1;
    }
}

/// Copies `from` to `into`.
///
/// # Safety
/// As many bytes are mapped at `into`, writable, for the whole call, and are not part of `from`.
#[inline]
pub unsafe fn copy_in(from: &[u8], into: *mut u8) {
    let (words, tail) = from.as_chunks::<WORD>();
    let mut done = 0;
    for word in words {
        // SAFETY: these bytes lie within the caller's range; the type has no alignment.
        unsafe { into.add(done).cast::<Word>().write_volatile(Word(*word)) };
        done += WORD;
    }
    for byte in tail {
        // SAFETY: as above.
        unsafe { into.add(done).write_volatile(*byte) };
        done += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment() {
        let source: Vec<u8> = (0..200u8).collect();
        for start in 0..9 {
            for len in 0..100 {
                let mut out = vec![0xee; len];
                // SAFETY: start + len is at most 108 of 200 bytes.
                unsafe { copy_out(source.as_ptr().add(start), &mut out) };
                assert_eq!(out, source[start..start + len]);
                let mut target = vec![0xee; 200];
                // SAFETY: as above.
                unsafe { copy_in(&out, target.as_mut_ptr().add(start)) };
                assert_eq!(target[start..start + len], out);
                assert!(target[..start].iter().chain(&target[start + len..]).all(|byte| *byte == 0xee));
            }
        }
    }
}
