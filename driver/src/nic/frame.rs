//! Frames on their way in and out.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use super::NicProperties;
use super::length::TAG;
use crate::dma::{DmaSegment, copy};
use crate::{Error, Result};

/// A 48-bit station address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it names one station: neither a group nor all zero.
    pub fn is_unicast(&self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::Argument {
            what: format!("{text:?} is not a station address such as 52:54:00:12:34:56"),
        };
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(part.ok_or_else(bad)?, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(bytes)) }
    }
}

/// A frame to send: where its bytes lie, and a word that comes back when the device is done with them.
#[derive(Debug, Clone, Copy)]
pub struct TxFrame<'a> {
    /// The frame from its destination address on, without check sequence, in order.
    pub segments: &'a [DmaSegment],
    /// The caller's word.
    pub token: u64,
}

/// What a frame comes to, once checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameSize {
    /// Segments that have bytes: the others are passed over, since devices take none of them well.
    pub(super) segments: usize,
    /// Bytes in all of them.
    pub(super) bytes: usize,
}

impl TxFrame<'_> {
    /// Counts bytes and segments.
    ///
    /// # Errors
    /// A frame that the adapter cannot send.
    #[inline]
    pub(super) fn check(&self, properties: &NicProperties) -> Result<FrameSize> {
        let mut size = FrameSize { segments: 0, bytes: 0 };
        for segment in self.segments.iter().filter(|s| !s.is_empty()) {
            size.segments += 1;
            size.bytes = size.bytes.saturating_add(segment.len() as usize);
        }
        if size.bytes == 0 || size.bytes > properties.max_frame || size.segments > properties.max_segments {
            return Err(refused(size, properties));
        }
        Ok(size)
    }
}

#[cold]
fn refused(size: FrameSize, properties: &NicProperties) -> Error {
    Error::Argument {
        what: format!(
            "{}: a frame of {} bytes in {} segments cannot be sent: 1 to {} bytes in at most {} segments",
            properties.device, size.bytes, size.segments, properties.max_frame, properties.max_segments
        ),
    }
}

/// A received frame in the device's buffer, valid until the sink that was given it returns.
///
/// The device could still write it, so that it is only ever copied out of, never referenced: what was checked
/// is the copy.
#[derive(Clone, Copy)]
pub struct RxFrame<'a> {
    bytes: *const u8,
    len: usize,
    _buffer: PhantomData<&'a ()>,
}

impl<'a> RxFrame<'a> {
    /// A frame that lies in ordinary memory.
    pub fn from_slice(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.as_ptr(), len: bytes.len(), _buffer: PhantomData }
    }

    /// A frame in memory that a device may write.
    ///
    /// # Safety
    /// `[bytes, bytes + len)` stays mapped for `'a`.
    pub unsafe fn from_raw(bytes: *const u8, len: usize) -> Self {
        Self { bytes, len, _buffer: PhantomData }
    }

    /// Whether an adapter whose longest frame has so many bytes may hand it on: a VLAN tag comes on top.
    #[inline]
    pub(super) fn fits(&self, max_frame: usize) -> bool {
        self.len <= max_frame || (self.len <= max_frame + TAG && self.is_tagged())
    }

    #[cold]
    fn is_tagged(&self) -> bool {
        let mut ethertype = [0; 2];
        // IEEE 802.1Q, and 802.1ad.
        self.read(12, &mut ethertype) && [[0x81, 0x00], [0x88, 0xa8]].contains(&ethertype)
    }

    /// Bytes, from the destination address on.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `len` bytes of it from `offset` on, as a frame of their own; `None` when it is shorter.
    #[inline]
    pub fn part(&self, offset: usize, len: usize) -> Option<RxFrame<'a>> {
        if offset > self.len || self.len - offset < len {
            return None;
        }
        // Within the frame, which is mapped for 'a.
        Some(Self { bytes: self.bytes.wrapping_add(offset), len, _buffer: PhantomData })
    }

    /// Copies `into.len()` bytes from `offset` on; false, and nothing copied, when the frame is shorter.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        if offset > self.len || self.len - offset < into.len() {
            return false;
        }
        // SAFETY: within the frame (checked above), which is mapped for 'a; `into` is exclusively ours.
        unsafe { copy::copy(self.bytes.add(offset), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Reads its first `N` little-endian words; `None` when it is shorter.
    #[inline(always)]
    pub fn words<const N: usize>(&self) -> Option<[u64; N]> {
        if self.len < N * size_of::<u64>() {
            return None;
        }
        // SAFETY: within the frame (checked above), which is mapped for 'a.
        Some(unsafe { copy::read_words(self.bytes) })
    }

    /// Copies `len` bytes from `offset` on to raw memory; false, and nothing copied, when the frame is shorter.
    ///
    /// # Safety
    /// `[to, to + len)` is mapped and does not overlap the frame.
    #[inline(always)]
    #[must_use]
    pub unsafe fn copy_to(&self, offset: usize, to: *mut u8, len: usize) -> bool {
        if offset > self.len || self.len - offset < len {
            return false;
        }
        // SAFETY: the source is within the frame (checked above); the caller vouches for the target.
        unsafe { self.copy_to_unchecked(offset, to, len) };
        true
    }

    /// As [`RxFrame::copy_to`], for who knows that the frame has them.
    ///
    /// # Safety
    /// As there, and `offset + len` is at most the frame's length.
    #[inline(always)]
    pub unsafe fn copy_to_unchecked(&self, offset: usize, to: *mut u8, len: usize) {
        // SAFETY: the caller vouches for both.
        unsafe { copy::copy_mostly_few(self.bytes.add(offset), to, len) };
    }
}
