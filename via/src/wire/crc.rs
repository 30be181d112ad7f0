//! The end-to-end check: CRC32C over a frame whose parts lie in different places.

use uvia_driver::nic::RxFrame;

use super::ETHERNET;
use crate::engine::PayloadPart;

/// Bytes that are looked at in one go: frames and regions are copied out of, never referenced.
const CHUNK: usize = 512;

/// Over a header (from its version on; its own field is 0 still) and the payload.
pub(crate) fn of_parts(header: &[u8], payload: &[PayloadPart<'_>]) -> u32 {
    let mut crc = crc32c::crc32c(&header[ETHERNET..]);
    let mut chunk = [0; CHUNK];
    for part in payload {
        let mut done = 0;
        while done < part.len {
            let now = (part.len - done).min(CHUNK);
            // A part lies within its region. Were it not so, the sum would be wrong and the frame be dropped.
            if part.region.read(part.offset + done, &mut chunk[..now]).is_err() {
                return !crc;
            }
            crc = crc32c::crc32c_append(crc, &chunk[..now]);
            done += now;
        }
    }
    crc
}

/// Over a received frame's header, as it was copied out with its own field set to 0, and the `len` bytes that
/// follow it in the frame.
pub(crate) fn of_frame(header: &[u8], frame: &RxFrame<'_>, len: usize) -> Option<u32> {
    let mut crc = crc32c::crc32c(&header[ETHERNET..]);
    let mut chunk = [0; CHUNK];
    let mut done = 0;
    while done < len {
        let now = (len - done).min(CHUNK);
        if !frame.read(header.len() + done, &mut chunk[..now]) {
            return None;
        }
        crc = crc32c::crc32c_append(crc, &chunk[..now]);
        done += now;
    }
    Some(crc)
}
