//! Copies out of and into memory that another process may be writing: volatile, each byte once.
//!
//! What lies at its natural alignment, an index of a ring or a word of a descriptor, is read and written in one access,
//! as a device on a bus does it: an index that is read byte by byte while its owner counts past 255 is neither the old
//! one nor the new.

/// Eight bytes at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Word([u8; 8]);

const WORD: usize = size_of::<Word>();

/// Bytes of the access at an address with so many left: the largest that is aligned there; eight at any address where
/// there are as many, since those are bulk data.
#[inline(always)]
fn unit(address: usize, left: usize) -> usize {
    match left {
        WORD.. => WORD,
        4.. if address.is_multiple_of(4) => 4,
        2.. if address.is_multiple_of(2) => 2,
        _ => 1,
    }
}

/// Copies `into.len()` bytes from `from`.
///
/// # Safety
/// They are mapped for the whole call, and not part of `into`. Others may write them meanwhile: then some bytes are
/// old and some new, but for those of one aligned access.
#[inline]
pub unsafe fn copy_out(from: *const u8, into: &mut [u8]) {
    let mut left = into;
    let mut at = from;
    while !left.is_empty() {
        let unit = unit(at as usize, left.len());
        let (now, rest) = left.split_at_mut(unit);
        // SAFETY: these bytes lie within the caller's range; the integers are aligned, which `unit` saw to, or the
        // pointer was.
        unsafe {
            match unit {
                WORD if (at as usize).is_multiple_of(WORD) => {
                    now.copy_from_slice(&at.cast::<u64>().read_volatile().to_ne_bytes());
                }
                WORD => {
                    let Word(bytes) = at.cast::<Word>().read_volatile();
                    now.copy_from_slice(&bytes);
                }
                4 => now.copy_from_slice(&at.cast::<u32>().read_volatile().to_ne_bytes()),
                2 => now.copy_from_slice(&at.cast::<u16>().read_volatile().to_ne_bytes()),
                _ => now.fill(at.read_volatile()),
            }
            at = at.add(unit);
        }
        left = rest;
    }
}

/// Copies `from` to `into`.
///
/// # Safety
/// As many bytes are mapped at `into`, writable, for the whole call, and are not part of `from`.
#[inline]
pub unsafe fn copy_in(from: &[u8], into: *mut u8) {
    let mut left = from;
    let mut at = into;
    while let Some(first) = left.first() {
        let unit = unit(at as usize, left.len());
        let (now, rest) = left.split_at(unit);
        // SAFETY: as in `copy_out`.
        unsafe {
            match *now {
                [a, b] => at.cast::<u16>().write_volatile(u16::from_ne_bytes([a, b])),
                [a, b, c, d] => at.cast::<u32>().write_volatile(u32::from_ne_bytes([a, b, c, d])),
                [a, b, c, d, e, f, g, h] if (at as usize).is_multiple_of(WORD) => {
                    at.cast::<u64>().write_volatile(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
                }
                [a, b, c, d, e, f, g, h] => at.cast::<Word>().write_volatile(Word([a, b, c, d, e, f, g, h])),
                _ => at.write_volatile(*first),
            }
            at = at.add(unit);
        }
        left = rest;
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

    /// A counter of 16 bits is read whole while another thread counts: byte by byte it goes back now and then.
    #[test]
    fn an_aligned_number_is_never_torn() {
        use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
        let (counter, stop) = (AtomicU16::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // Up and down over the edge of a byte.
                    counter.store(0x00ff, Ordering::Relaxed);
                    counter.store(0x0100, Ordering::Relaxed);
                }
            });
            for _ in 0..200_000 {
                let mut bytes = [0; 2];
                // SAFETY: the counter's two bytes, which live as long as the scope.
                unsafe { copy_out(counter.as_ptr().cast(), &mut bytes) };
                let seen = u16::from_ne_bytes(bytes);
                assert!([0, 0x00ff, 0x0100].contains(&seen), "{seen:#x}");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
