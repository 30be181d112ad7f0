//! Memory by address: what programs lend for the time of a message, and what ports own.

/// Bytes at an address. It is a number and a length: whoever uses it says why it is good.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
}

// SAFETY: a span is followed only in unsafe functions, whose callers say why that may be, on whatever thread.
unsafe impl Send for Span {}

impl Span {
    /// No byte.
    pub(crate) const NONE: Self = Self { start: std::ptr::null_mut(), len: 0 };

    /// `len` bytes from `start` on.
    #[inline(always)]
    pub fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    /// The bytes of a slice, to be read.
    #[inline(always)]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { start: bytes.as_ptr().cast_mut(), len: bytes.len() }
    }

    /// The bytes of a slice, to be written.
    #[inline(always)]
    pub(crate) fn of_mut(bytes: &mut [u8]) -> Self {
        Self { start: bytes.as_mut_ptr(), len: bytes.len() }
    }

    /// First byte.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it names no byte.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What is left from `from` on; nothing, where that is beyond the end.
    #[inline(always)]
    pub(crate) fn skip(self, from: usize) -> Self {
        let from = from.min(self.len);
        Self { start: self.start.wrapping_add(from), len: self.len - from }
    }

    /// What is left from `from` on, which is not beyond the end.
    #[inline(always)]
    pub(crate) fn behind(self, from: usize) -> Self {
        debug_assert!(from <= self.len);
        Self { start: self.start.wrapping_add(from), len: self.len.wrapping_sub(from) }
    }

    /// Its first `len` bytes, or all of them if there are fewer.
    #[inline(always)]
    pub(crate) fn first(self, len: usize) -> Self {
        Self { start: self.start, len: len.min(self.len) }
    }

    /// Copies its bytes to `to`.
    ///
    /// # Safety
    /// They are valid, and so are as many from `to` on; nobody else touches either meanwhile, and they do not overlap.
    #[inline(always)]
    pub(crate) unsafe fn copy_to(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(self.start, to, self.len) };
    }

    /// Copies as many bytes as both have from `from`; answers how many.
    ///
    /// # Safety
    /// Both are valid memory that nobody else touches meanwhile, and do not overlap.
    #[inline]
    pub(crate) unsafe fn fill(self, from: Self) -> usize {
        let len = self.len.min(from.len);
        // SAFETY: the caller's promise; `len` is within both.
        unsafe { std::ptr::copy_nonoverlapping(from.start, self.start, len) };
        len
    }

    /// Its bytes.
    ///
    /// # Safety
    /// They are valid, and nobody writes them while the slice lives.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Its bytes, to be written.
    ///
    /// # Safety
    /// They are valid, and nobody else touches them while the slice lives.
    pub(crate) unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}
