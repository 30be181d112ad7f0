//! From a descriptor in the program's memory to one of uvia's: read once, then checked.

use uvia::{MemoryHandle, MemoryRegion, Operation, ProtectionTag, RemoteMemory, Status, WorkQueue};

use crate::errors;
use crate::memory::{Look, Refused};
use crate::queue::{Queue, Spare};
use crate::types::{self, Control, ControlSegment, DataSegment, Descriptor, Handle, Return};
use crate::vi::{self, Occupant, Vi};

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
    vi: Handle,
    which: WorkQueue,
    descriptor: *mut Descriptor,
    handle: u32,
) -> Result<(), Return> {
    let mut held = vi::hold(vi, which)?;
    match quick(&mut held, which, descriptor, handle) {
        Quick::Posted => Ok(()),
        Quick::Refused => {
            let vi = held.vi.clone();
            drop(held);
            vi.settle(which);
            Ok(())
        }
        Quick::Unknown => post_slowly(held, which, descriptor, handle),
    }
}

/// What came of posting a descriptor that is like the one before.
enum Quick {
    Posted,
    /// uvia did not take it: it is in the queue with its error.
    Refused,
    /// It is not like the one before; nothing was done.
    Unknown,
}

/// Whether so many bytes of memory lie there.
#[inline(always)]
fn offset_in(memory: &MemoryRegion, address: usize, len: usize) -> Option<usize> {
    let offset = address.wrapping_sub(memory.as_ptr().addr());
    let size = memory.len();
    (offset <= size && len <= size - offset).then_some(offset)
}

/// Posts a descriptor with one segment that lies where the one that was here before lay, in memory that is known from it
/// and so needs no looking up.
#[inline(always)]
fn quick(held: &mut vi::Held, which: WorkQueue, descriptor: *mut Descriptor, handle: u32) -> Quick {
    let Occupant { vi, queue } = &mut **held;
    let (tag, length) = (queue.tag, queue.len());
    if queue.is_poisoned() || vi.has_failed() || length >= queue.depth {
        return Quick::Unknown;
    }
    let next = queue.next();
    let Some(Spare { work, memory: Some(memory) }) = queue.next_spare() else { return Quick::Unknown };
    let address = descriptor.addr();
    let known = address.is_multiple_of(align_of::<Descriptor>())
        && memory.handle().0 == handle
        && offset_in(memory, address, size_of::<Descriptor>()).is_some();
    if !known {
        return Quick::Unknown;
    }
    // SAFETY: these bytes lie in registered memory, which the program keeps mapped, and are aligned. Volatile: what the
    // program does to them meanwhile changes what is read, and nothing else.
    let control = unsafe { descriptor.cast::<ControlSegment>().read_volatile() };
    let bits = Control::from_bits_retain(control.control);
    let [segment] = &mut work.segments[..] else { return Quick::Unknown };
    if !bits.is_empty() || control.seg_count != 1 {
        return Quick::Unknown;
    }
    // SAFETY: as above; the descriptor is whole.
    let data = unsafe { (&raw const (*descriptor).data[0]).read_volatile() };
    let region = segment.region();
    if region.handle().0 != data.handle || region.tag() != tag {
        return Quick::Unknown;
    }
    let Some(offset) = offset_in(region, data.data as usize, data.length as usize) else {
        return Quick::Unknown;
    };
    if segment.aim(offset, data.length).is_err() {
        return Quick::Unknown;
    }
    work.operation = Operation::Send;
    work.immediate = None;
    work.fence = false;
    work.context = vi.context(which) | u64::from(next);
    let Spare { work, memory } = queue.take_spare();
    queue.posted(descriptor, memory, operation_bits(which, bits));
    give(vi, queue, which, work)
}

/// Gives uvia the descriptor of the queue's last entry.
#[inline(always)]
fn give(vi: &Vi, queue: &mut Queue, which: WorkQueue, work: Box<uvia::Descriptor>) -> Quick {
    let outcome = match which {
        WorkQueue::Send => vi.vi.post_send(work),
        WorkQueue::Receive => vi.vi.post_receive(work),
    };
    match outcome {
        Ok(()) => Quick::Posted,
        Err(refused) => give_back(vi, queue, *refused),
    }
}

/// uvia has not taken it.
#[cold]
#[inline(never)]
fn give_back(vi: &Vi, queue: &mut Queue, refused: uvia::PostError) -> Quick {
    let status = status_of(&refused.error);
    queue.recycle(refused.descriptor, None);
    refuse(vi, queue, status)
}

/// The queue's last entry completes with an error.
#[cold]
fn refuse(vi: &Vi, queue: &mut Queue, status: Status) -> Quick {
    queue.refuse_last(status);
    if vi.breaks_by_errors() {
        queue.poison();
    }
    Quick::Refused
}

/// As [`post`], for a descriptor that may be anything.
#[inline(never)]
fn post_slowly(
    held: vi::Held,
    which: WorkQueue,
    descriptor: *mut Descriptor,
    handle: u32,
) -> Result<(), Return> {
    let vi = held.vi.clone();
    // Memory is looked up before the queue is held.
    drop(held);
    post_by(&vi, which, descriptor, handle, &mut |vi, queue, work| give(vi, queue, which, work))
}

/// Gives uvia the descriptor of a queue's last entry, in some way.
type Give<'a> = &'a mut dyn FnMut(&Vi, &mut Queue, Box<uvia::Descriptor>) -> Quick;

/// Posts a descriptor that may be anything, in some way.
fn post_by(
    vi: &Vi,
    which: WorkQueue,
    descriptor: *mut Descriptor,
    handle: u32,
    give: Give<'_>,
) -> Result<(), Return> {
    loop {
        match try_post(vi, which, descriptor, handle, give)? {
            Posted::Yes { settle: false } => return Ok(()),
            Posted::Yes { settle: true } => {
                vi.settle(which);
                return Ok(());
            }
            Posted::Share(region) => share(vi, region)?,
        }
    }
}

/// Posts a descriptor without segments for a send of what `send` gives uvia beside it.
pub(crate) fn post_beside(
    vi: &Vi,
    descriptor: *mut Descriptor,
    handle: u32,
    mut send: impl FnMut(&uvia::Vi, Box<uvia::Descriptor>) -> Result<(), Box<uvia::PostError>>,
) -> Result<(), Return> {
    post_by(vi, WorkQueue::Send, descriptor, handle, &mut |vi, queue, work| {
        if !work.segments.is_empty() || work.operation != Operation::Send {
            queue.recycle(work, None);
            return refuse(vi, queue, Status::FORMAT_ERROR);
        }
        match send(&vi.vi, work) {
            Ok(()) => Quick::Posted,
            Err(refused) => give_back(vi, queue, *refused),
        }
    })
}

enum Posted {
    /// It is in the queue; whether something there may be done already.
    Yes { settle: bool },
    /// Nothing was done yet.
    Share(u32),
}

fn try_post(
    vi: &Vi,
    which: WorkQueue,
    descriptor: *mut Descriptor,
    handle: u32,
    give: Give<'_>,
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

    let mut held = vi.hold(which).ok_or(Return::InvalidParameter)?;
    let queue = &mut held.queue;
    if queue.len() >= queue.depth {
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
            queue.recycle(work, None);
            return Ok(Posted::Share(region));
        }
        Err(Unfit::Error(status)) => {
            queue.recycle(work, None);
            if vi.breaks_by_errors() {
                queue.poison();
            }
            queue.refused(descriptor, memory, operation, status);
            return Ok(Posted::Yes { settle: true });
        }
    }
    work.context = vi.context(which) | u64::from(queue.next());
    queue.posted(descriptor, Some(memory), operation);
    // The look is held until here: nobody deregisters what was just found before the queue holds it.
    let given = give(vi, queue, work);
    drop(look);
    Ok(Posted::Yes { settle: !matches!(given, Quick::Posted) })
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
    let tag = vi.hold(WorkQueue::Send).ok_or(Return::InvalidParameter)?.queue.tag;
    vi.nic.memory.share(&vi.nic, region, tag).map_err(|refused| match refused {
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
