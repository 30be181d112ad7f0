//! From a descriptor in the program's memory to one of uvia's: read once, then checked.

use std::sync::Arc;

use uvia::{MemoryHandle, Operation, ProtectionTag, RemoteMemory, Status, WorkQueue};

use crate::errors;
use crate::memory::{Look, Refused};
use crate::nic::MAX_DEPTH;
use crate::types::{self, Control, ControlSegment, DataSegment, Descriptor, Return};
use crate::vi::Vi;

const CONTROL_BYTES: usize = size_of::<ControlSegment>();
const SEGMENT_BYTES: usize = size_of::<DataSegment>();

/// A descriptor cannot be given to uvia.
enum Unfit {
    /// It completes with this status.
    Error(Status),
    /// Memory without a tag is first to be registered under the interface's.
    Share(u32),
}

/// VipPostSend and VipPostRecv.
#[inline]
pub(crate) fn post(
    vi: &Arc<Vi>,
    which: WorkQueue,
    descriptor: *mut Descriptor,
    handle: u32,
) -> Result<(), Return> {
    loop {
        match try_post(vi, which, descriptor, handle)? {
            Posted::Yes { settle: false } => return Ok(()),
            Posted::Yes { settle: true } => {
                vi.settle(which);
                return Ok(());
            }
            Posted::Share(region) => share(vi, region)?,
        }
    }
}

enum Posted {
    /// It is in the queue; whether something there may be done already.
    Yes { settle: bool },
    /// Nothing was done yet.
    Share(u32),
}

#[inline]
fn try_post(
    vi: &Arc<Vi>,
    which: WorkQueue,
    descriptor: *mut Descriptor,
    handle: u32,
) -> Result<Posted, Return> {
    let address = descriptor.addr();
    let look = vi.nic.memory.look();
    if address == 0 || !address.is_multiple_of(align_of::<Descriptor>()) {
        return Err(bad_descriptor(vi, descriptor));
    }
    let Some(memory) = look.holds(handle, address as u64, CONTROL_BYTES) else {
        return Err(bad_descriptor(vi, descriptor));
    };
    let memory = memory.clone();
    // SAFETY: these bytes lie in registered memory, which the program keeps mapped, and are aligned. Volatile: what the
    // program does to them meanwhile changes what is read, and nothing else.
    let control = unsafe { descriptor.cast::<ControlSegment>().read_volatile() };
    let bits = Control::from_bits_retain(control.control);
    let operation = operation_bits(which, bits);

    let mut queue = vi.queue(which);
    if queue.len() >= MAX_DEPTH {
        return Err(Return::ErrorResource);
    }
    if vi.has_failed() || queue.is_poisoned() {
        queue.refused(descriptor, memory, operation, Status::FLUSHED);
        return Ok(Posted::Yes { settle: true });
    }
    let mut work = queue.blank();
    let segments = address + CONTROL_BYTES;
    let fixed = (queue.tag, vi.most_segments());
    match fill(&mut work, fixed, which, &control, &look, handle, segments) {
        Ok(()) => {}
        Err(Unfit::Share(region)) => {
            queue.recycle(work);
            return Ok(Posted::Share(region));
        }
        Err(Unfit::Error(status)) => {
            queue.recycle(work);
            if vi.breaks_by_errors() {
                queue.poison();
            }
            queue.refused(descriptor, memory, operation, status);
            return Ok(Posted::Yes { settle: true });
        }
    }
    drop(look);
    work.context = vi.context(which) | u64::from(queue.next());
    queue.posted(descriptor, memory, operation);
    let outcome = match which {
        WorkQueue::Send => vi.vi.post_send(work),
        WorkQueue::Receive => vi.vi.post_receive(work),
    };
    match outcome {
        Ok(()) => Ok(Posted::Yes { settle: false }),
        Err(refused) => {
            let status = status_of(&refused.error);
            queue.recycle(refused.descriptor);
            queue.refuse_last(status);
            if vi.breaks_by_errors() {
                queue.poison();
            }
            Ok(Posted::Yes { settle: true })
        }
    }
}

/// What keeps uvia from taking a descriptor, as its status.
#[cold]
fn status_of(error: &uvia::Error) -> Status {
    match error {
        uvia::Error::TooLong { .. } => Status::LENGTH_ERROR,
        uvia::Error::Protection { .. } => Status::PROTECTION_ERROR,
        _ => Status::FORMAT_ERROR,
    }
}

/// A descriptor that cannot even complete: it is told by the return value, and as an asynchronous error.
#[cold]
fn bad_descriptor(vi: &Vi, descriptor: *mut Descriptor) -> Return {
    errors::bad_descriptor(vi.nic.handle, vi.handle(), descriptor);
    Return::InvalidParameter
}

#[cold]
fn share(vi: &Vi, region: u32) -> Result<(), Return> {
    vi.nic.memory.share(&vi.nic, region, vi.queue(WorkQueue::Send).tag).map_err(|refused| match refused {
        Refused::Protection => Return::InvalidParameter,
        Refused::Resource => Return::ErrorResource,
    })
}

#[inline]
fn operation_bits(which: WorkQueue, bits: Control) -> u32 {
    match which {
        WorkQueue::Receive => types::OP_RECEIVE,
        WorkQueue::Send if bits.contains(Control::RDMA_WRITE) => types::OP_RDMA_WRITE,
        WorkQueue::Send if bits.contains(Control::RDMA_READ) => types::OP_RDMA_READ,
        WorkQueue::Send => 0,
    }
}

/// Makes uvia's descriptor of the program's.
#[inline]
fn fill(
    work: &mut uvia::Descriptor,
    (tag, most_segments): (ProtectionTag, usize),
    which: WorkQueue,
    control: &ControlSegment,
    look: &Look<'_>,
    handle: u32,
    segments: usize,
) -> Result<(), Unfit> {
    let bits = Control::from_bits_retain(control.control);
    let count = usize::from(control.seg_count);
    let operation = bits & Control::OPERATION;
    let malformed = bits.intersects(Control::RESERVED)
        || operation == Control::OPERATION
        || (which == WorkQueue::Receive && !operation.is_empty())
        || (operation == Control::RDMA_READ && bits.contains(Control::IMMEDIATE));
    if malformed || count > most_segments {
        return Err(Unfit::Error(Status::FORMAT_ERROR));
    }
    // All of the descriptor is in the region that its first part is in.
    let bytes = count * SEGMENT_BYTES;
    if bytes != 0 && look.holds(handle, segments as u64, bytes).is_none() {
        return Err(Unfit::Error(Status::PROTECTION_ERROR));
    }
    let segment = |n: usize| {
        let at: *const DataSegment = std::ptr::with_exposed_provenance(segments + n * SEGMENT_BYTES);
        // SAFETY: as for the control segment; the range was just looked up.
        unsafe { at.read_volatile() }
    };
    let mut first = 0;
    work.operation = Operation::Send;
    if !operation.is_empty() {
        if count == 0 {
            return Err(Unfit::Error(Status::FORMAT_ERROR));
        }
        let remote = segment(0);
        let remote = RemoteMemory { address: remote.data, handle: MemoryHandle(remote.handle) };
        work.operation = match operation {
            Control::RDMA_READ => Operation::RdmaRead(remote),
            _ => Operation::RdmaWrite(remote),
        };
        first = 1;
    }
    work.immediate = match which {
        WorkQueue::Send if bits.contains(Control::IMMEDIATE) => Some(control.immediate_data),
        _ => None,
    };
    work.fence = bits.contains(Control::FENCE);
    for n in first..count {
        push(work, look, &segment(n), tag)?;
    }
    Ok(())
}

#[inline]
fn push(
    work: &mut uvia::Descriptor,
    look: &Look<'_>,
    segment: &DataSegment,
    tag: ProtectionTag,
) -> Result<(), Unfit> {
    match look.segment(segment.handle, segment.data, segment.length, tag) {
        Ok(Some(segment)) => work.segments.push(segment),
        Ok(None) => return Err(Unfit::Share(segment.handle)),
        // No byte of it is used, so that it need not be anywhere.
        Err(_) if segment.length == 0 => {}
        Err(_) => return Err(Unfit::Error(Status::PROTECTION_ERROR)),
    }
    Ok(())
}
