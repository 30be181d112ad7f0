//! Pages of our own, before a device reads them.

/// Makes `len` bytes at `address` writable pages that are present and shared with nobody.
///
/// A mapping that devices may only read is pinned by a read, and before Linux 6.2 that is the page as it lies:
/// the kernel's page of zeros where nothing was ever written, or one shared with a forked child. Our next write
/// goes to a copy then, and the device reads the old page for ever.
///
/// Best effort: memory that we cannot write (its pages do not change under us), BARs, and kernels before 5.14
/// refuse it, and pinning says what is really wrong.
pub fn make_private(address: *mut u8, len: usize) {
    // SAFETY: changes no byte; a range that is not mapped is refused.
    let result = unsafe { libc::madvise(address.cast(), len, libc::MADV_POPULATE_WRITE) };
    if result != 0 {
        tracing::debug!("{len} bytes at {address:p} not populated: {}", std::io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapOptions;

    use super::*;

    #[test]
    fn whatever_the_range_is_nothing_breaks() {
        let map = MmapOptions::new().len(8192).map_anon().unwrap();
        make_private(map.as_ptr().cast_mut(), 8192);
        assert!(map.iter().all(|byte| *byte == 0));
        let map = map.make_read_only().unwrap();
        make_private(map.as_ptr().cast_mut(), 8192);
        make_private(std::ptr::without_provenance_mut(4096), 4096);
        make_private(std::ptr::null_mut(), usize::MAX & !4095);
    }
}
