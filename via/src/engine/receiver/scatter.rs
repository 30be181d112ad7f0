//! Payload that goes to the segments of a descriptor.

use uvia_driver::nic::RxFrame;

use crate::Descriptor;

/// Copies a frame's payload to where it belongs in a descriptor's segments.
#[inline]
pub(in crate::engine) fn scatter(
    descriptor: &Descriptor,
    offset: u32,
    frame: &RxFrame<'_>,
    from: usize,
    len: usize,
) -> bool {
    if let [segment] = &descriptor.segments[..] {
        return segment.region().place(segment.offset() + offset as usize, frame, from, len);
    }
    scatter_over(descriptor, offset, frame, from, len)
}

fn scatter_over(descriptor: &Descriptor, offset: u32, frame: &RxFrame<'_>, from: usize, len: usize) -> bool {
    let mut skip = offset as usize;
    let mut done = 0;
    for segment in &descriptor.segments {
        if done == len {
            break;
        }
        let size = segment.len() as usize;
        if skip >= size {
            skip -= size;
            continue;
        }
        let here = (size - skip).min(len - done);
        if !segment.region().place(segment.offset() + skip, frame, from + done, here) {
            return false;
        }
        skip = 0;
        done += here;
    }
    done == len
}
