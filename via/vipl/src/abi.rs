//! The functions of `vipl.h`. Each has a manual page; here is only where arguments are looked at.
//!
//! # Safety
//! As C has it: a pointer that is not null points to what the manual page says, and registered memory stays mapped.
//! Handles may be anything.
#![allow(non_snake_case, clippy::missing_safety_doc)] // Names and contract are C's.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uvia::{EndpointClass, WorkQueue};

use crate::connect::{self, Address};
use crate::cq::{self, Cq};
use crate::nic::{self, NICS, Nic};
use crate::notify::{self, Target};
use crate::types::{
    CqHandler, Descriptor, DescriptorHandler, ErrorHandler, Handle, MemAttributes, NetAddress, NicAttributes,
    PioAttributes, Return, ViAttributes,
};
use crate::vi::{self, Done, Vi};
use crate::waits::timeout;
use crate::{memory, names, pio, post, templates};

type Outcome<T = ()> = Result<T, Return>;

/// The architecture's code of an outcome.
#[inline]
fn code(outcome: Outcome) -> Return {
    outcome.err().unwrap_or(Return::Success)
}

fn nic(handle: Handle) -> Outcome<Arc<Nic>> {
    NICS.get(handle).ok_or(Return::InvalidParameter)
}

fn vi(handle: Handle) -> Outcome<Arc<Vi>> {
    vi::find(handle).ok_or(Return::InvalidParameter)
}

fn cq(handle: Handle) -> Outcome<Arc<Cq>> {
    cq::find(handle).ok_or(Return::InvalidParameter)
}

/// Refuses to answer into nothing.
#[inline]
fn there<T>(out: *const T) -> Outcome {
    if out.is_null() { Err(Return::InvalidParameter) } else { Ok(()) }
}

/// Answers, where an answer is wanted.
///
/// # Safety
/// `out` is null or may be written.
#[inline]
unsafe fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { out.write_unaligned(value) };
    }
}

/// What an argument points to.
///
/// # Safety
/// `from` is null or may be read.
#[inline]
unsafe fn get<T: Copy>(from: *const T) -> Outcome<T> {
    there(from)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { from.read_unaligned() })
}

/// VipOpenNic(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipOpenNic(DeviceName: *const c_char, NicHandle: *mut Handle) -> Return {
    code((|| {
        there(DeviceName)?;
        there(NicHandle)?;
        // SAFETY: a string, as C has them.
        let name = unsafe { CStr::from_ptr(DeviceName) }.to_string_lossy();
        let handle = nic::open(&name)?;
        // SAFETY: the program's variable.
        unsafe { put(NicHandle, handle) };
        Ok(())
    })())
}

/// VipCloseNic(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipCloseNic(NicHandle: Handle) -> Return {
    code(nic::close(NicHandle))
}

/// VipQueryNic(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipQueryNic(NicHandle: Handle, NicAttribs: *mut NicAttributes) -> Return {
    code((|| {
        let nic = nic(NicHandle)?;
        there(NicAttribs)?;
        // SAFETY: the program's variable.
        unsafe { put(NicAttribs, nic::query(&nic)) };
        Ok(())
    })())
}

/// VipQuerySystemManagementInfo(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipQuerySystemManagementInfo(
    NicHandle: Handle,
    InfoType: c_ulong,
    SysManInfo: *mut c_void,
) -> Return {
    const AUTODISCOVERY: c_ulong = 1;
    code((|| {
        nic(NicHandle)?;
        there(SysManInfo)?;
        Err(if InfoType == AUTODISCOVERY { Return::NotSupported } else { Return::InvalidParameter })
    })())
}

/// VipErrorCallback(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipErrorCallback(
    NicHandle: Handle,
    Context: *mut c_void,
    Handler: Option<ErrorHandler>,
) -> Return {
    code((|| {
        let context = Context.expose_provenance();
        nic(NicHandle)?.errors.set(Handler.map(|handler| (context, handler)));
        Ok(())
    })())
}

/// VipCreatePtag(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCreatePtag(NicHandle: Handle, Ptag: *mut Handle) -> Return {
    code((|| {
        let nic = nic(NicHandle)?;
        there(Ptag)?;
        let handle = nic::create_ptag(&nic)?;
        // SAFETY: the program's variable.
        unsafe { put(Ptag, handle) };
        Ok(())
    })())
}

/// VipDestroyPtag(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyPtag(NicHandle: Handle, Ptag: Handle) -> Return {
    code(nic(NicHandle).and_then(|nic| nic::destroy_ptag(&nic, Ptag)))
}

/// VipRegisterMem(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipRegisterMem(
    NicHandle: Handle,
    VirtualAddress: *mut c_void,
    Length: c_ulong,
    MemAttribs: *const MemAttributes,
    MemoryHandle: *mut u32,
) -> Return {
    code((|| {
        let nic = nic(NicHandle)?;
        there(MemoryHandle)?;
        // SAFETY: the program's structure; without one, the defaults.
        let attributes = unsafe { get(MemAttribs) }.ok();
        let length = usize::try_from(Length).map_err(|_| Return::InvalidParameter)?;
        let handle = memory::register(&nic, VirtualAddress.cast(), length, attributes)?;
        // SAFETY: the program's variable.
        unsafe { put(MemoryHandle, handle) };
        Ok(())
    })())
}

/// VipDeregisterMem(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipDeregisterMem(
    NicHandle: Handle,
    VirtualAddress: *mut c_void,
    MemoryHandle: u32,
) -> Return {
    code(nic(NicHandle).and_then(|nic| memory::deregister(&nic, VirtualAddress.cast(), MemoryHandle)))
}

/// VipQueryMem(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipQueryMem(
    NicHandle: Handle,
    VirtualAddress: *mut c_void,
    MemoryHandle: u32,
    MemAttribs: *mut MemAttributes,
) -> Return {
    code((|| {
        let nic = nic(NicHandle)?;
        there(MemAttribs)?;
        let attributes = memory::query(&nic, VirtualAddress.cast(), MemoryHandle)?;
        // SAFETY: the program's variable.
        unsafe { put(MemAttribs, attributes) };
        Ok(())
    })())
}

/// VipSetMemAttributes(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSetMemAttributes(
    NicHandle: Handle,
    VirtualAddress: *mut c_void,
    MemoryHandle: u32,
    MemAttribs: *const MemAttributes,
) -> Return {
    code((|| {
        let nic = nic(NicHandle)?;
        // SAFETY: the program's structure.
        let attributes = unsafe { get(MemAttribs) }?;
        memory::set(&nic, VirtualAddress.cast(), MemoryHandle, attributes)
    })())
}

/// VipCreateVi(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCreateVi(
    NicHandle: Handle,
    ViAttribs: *const ViAttributes,
    SendCQHandle: Handle,
    RecvCQHandle: Handle,
    ViHandle: *mut Handle,
) -> Return {
    // SAFETY: the caller's promise is the same.
    unsafe { create_vi(NicHandle, ViAttribs, [SendCQHandle, RecvCQHandle], ViHandle, EndpointClass::Dma) }
}

/// Creates an interface of a class.
///
/// # Safety
/// As for [`VipCreateVi`].
unsafe fn create_vi(
    nic_handle: Handle,
    attributes: *const ViAttributes,
    [send, receive]: [Handle; 2],
    out: *mut Handle,
    class: EndpointClass,
) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        there(out)?;
        // SAFETY: the program's structure.
        let attributes = unsafe { get(attributes) }?;
        let queue = |handle: Handle| match handle.is_null() {
            true => Ok(None),
            false => cq(handle).and_then(|cq| {
                if cq.nic.handle == nic.handle { Ok(Some(cq)) } else { Err(Return::InvalidParameter) }
            }),
        };
        let handle = vi::create(&nic, &attributes, [queue(send)?, queue(receive)?], class)?;
        // SAFETY: the program's variable.
        unsafe { put(out, handle) };
        Ok(())
    })())
}

/// VipxQueryPio(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipxQueryPio(NicHandle: Handle, PioAttribs: *mut PioAttributes) -> Return {
    code((|| {
        let nic = nic(NicHandle)?;
        there(PioAttribs)?;
        let attributes = pio::query(&nic)?;
        // SAFETY: the program's structure.
        unsafe { put(PioAttribs, attributes) };
        Ok(())
    })())
}

/// VipxCreatePioVi(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipxCreatePioVi(
    NicHandle: Handle,
    ViAttribs: *const ViAttributes,
    SendCQHandle: Handle,
    RecvCQHandle: Handle,
    ViHandle: *mut Handle,
) -> Return {
    // SAFETY: the caller's promise is the same.
    unsafe { create_vi(NicHandle, ViAttribs, [SendCQHandle, RecvCQHandle], ViHandle, EndpointClass::Pio) }
}

/// The bytes that an argument points to; none need to be anywhere.
///
/// # Safety
/// `from` may be read for so many bytes, which do not change meanwhile.
unsafe fn slice<'a>(from: *const c_void, len: c_ulong) -> Outcome<&'a [u8]> {
    let len = usize::try_from(len).map_err(|_| Return::InvalidParameter)?;
    if len == 0 {
        return Ok(&[]);
    }
    there(from)?;
    if len > isize::MAX as usize {
        return Err(Return::InvalidParameter);
    }
    // SAFETY: the caller's promise; bytes have no alignment.
    Ok(unsafe { std::slice::from_raw_parts(from.cast(), len) })
}

/// VipxPostInject(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipxPostInject(
    ViHandle: Handle,
    DescriptorPtr: *mut Descriptor,
    MemoryHandle: u32,
    Bytes: *const c_void,
    Length: c_ulong,
) -> Return {
    code((|| {
        // SAFETY: the program's bytes.
        let bytes = unsafe { slice(Bytes, Length)? };
        templates::inject(ViHandle, DescriptorPtr, MemoryHandle, bytes)
    })())
}

/// VipxCreateTemplate(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipxCreateTemplate(
    ViHandle: Handle,
    Bytes: *const c_void,
    Length: c_ulong,
    TemplateHandle: *mut Handle,
) -> Return {
    code((|| {
        there(TemplateHandle)?;
        // SAFETY: the program's bytes.
        let template = templates::create(ViHandle, unsafe { slice(Bytes, Length)? })?;
        // SAFETY: the program's variable.
        unsafe { put(TemplateHandle, template) };
        Ok(())
    })())
}

/// VipxPatchTemplate(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipxPatchTemplate(
    TemplateHandle: Handle,
    Offset: c_ulong,
    Bytes: *const c_void,
    Length: c_ulong,
) -> Return {
    code((|| {
        let offset = usize::try_from(Offset).map_err(|_| Return::InvalidParameter)?;
        // SAFETY: the program's bytes.
        templates::patch(TemplateHandle, offset, unsafe { slice(Bytes, Length)? })
    })())
}

/// VipxPostTemplate(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipxPostTemplate(
    TemplateHandle: Handle,
    DescriptorPtr: *mut Descriptor,
    MemoryHandle: u32,
) -> Return {
    code(templates::send(TemplateHandle, DescriptorPtr, MemoryHandle))
}

/// VipxDestroyTemplate(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipxDestroyTemplate(TemplateHandle: Handle) -> Return {
    code(templates::destroy(TemplateHandle))
}

/// VipDestroyVi(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyVi(ViHandle: Handle) -> Return {
    code(vi::destroy(ViHandle))
}

/// VipSetViAttributes(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSetViAttributes(ViHandle: Handle, ViAttribs: *const ViAttributes) -> Return {
    code((|| {
        let vi = vi(ViHandle)?;
        // SAFETY: the program's structure.
        let attributes = unsafe { get(ViAttribs) }?;
        vi::set_attributes(&vi, &attributes)
    })())
}

/// VipQueryVi(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipQueryVi(
    ViHandle: Handle,
    State: *mut c_int,
    ViAttribs: *mut ViAttributes,
    ViSendQEmpty: *mut c_int,
    ViRecvQEmpty: *mut c_int,
) -> Return {
    code((|| {
        let (state, attributes, [send, receive]) = vi::query(&*vi(ViHandle)?);
        // SAFETY: the program's variables, those that it wants.
        unsafe {
            put(State, state as c_int);
            put(ViAttribs, attributes);
            put(ViSendQEmpty, send.into());
            put(ViRecvQEmpty, receive.into());
        }
        Ok(())
    })())
}

/// VipConnectWait(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectWait(
    NicHandle: Handle,
    LocalAddr: *const NetAddress,
    Timeout: c_ulong,
    RemoteAddr: *mut NetAddress,
    RemoteViAttribs: *mut ViAttributes,
    ConnHandle: *mut Handle,
) -> Return {
    code((|| {
        let nic = nic(NicHandle)?;
        there(ConnHandle)?;
        // SAFETY: the program's address, as long as it says.
        let local = unsafe { Address::read(LocalAddr) }?;
        let (handle, peer) = connect::wait_for_request(&nic, &local, timeout(Timeout))?;
        // SAFETY: the program's variables. Its room for the remote address is that of a host's and of a discriminator
        // as long as its own.
        unsafe {
            put_address(RemoteAddr, &peer.address, local.discriminator.len());
            put(RemoteViAttribs, connect::attributes(&peer));
            put(ConnHandle, handle);
        }
        Ok(())
    })())
}

/// Writes an address, of its discriminator at most `room` bytes.
///
/// # Safety
/// `out` is null, or has room for 10 bytes and as many more.
unsafe fn put_address(out: *mut NetAddress, address: &uvia::NetAddress, room: usize) {
    if out.is_null() {
        return;
    }
    let host = address.host.0;
    let discriminator = &address.discriminator()[..address.discriminator().len().min(room)];
    let lengths = [host.len() as u16, discriminator.len() as u16];
    // SAFETY: the caller's promise: the lengths, the host and the discriminator, one after the other.
    unsafe {
        let bytes = out.cast::<u8>();
        bytes.cast::<[u16; 2]>().write_unaligned(lengths);
        bytes.add(4).copy_from_nonoverlapping(host.as_ptr(), host.len());
        bytes.add(4 + host.len()).copy_from_nonoverlapping(discriminator.as_ptr(), discriminator.len());
    }
}

/// VipConnectAccept(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectAccept(ConnHandle: Handle, ViHandle: Handle) -> Return {
    code(vi(ViHandle).and_then(|vi| connect::accept(ConnHandle, &vi)))
}

/// VipConnectReject(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectReject(ConnHandle: Handle) -> Return {
    code(connect::reject(ConnHandle))
}

/// VipConnectRequest(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectRequest(
    ViHandle: Handle,
    LocalAddr: *const NetAddress,
    RemoteAddr: *const NetAddress,
    Timeout: c_ulong,
    RemoteViAttribs: *mut ViAttributes,
) -> Return {
    code((|| {
        let vi = vi(ViHandle)?;
        // SAFETY: the program's addresses, as long as they say.
        let (local, remote) = unsafe { (Address::read(LocalAddr)?, Address::read(RemoteAddr)?) };
        let peer = connect::request(&vi, &local, remote, timeout(Timeout))?;
        // SAFETY: the program's variable.
        unsafe { put(RemoteViAttribs, connect::attributes(&peer)) };
        Ok(())
    })())
}

/// VipDisconnect(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipDisconnect(ViHandle: Handle) -> Return {
    code(vi(ViHandle).and_then(|vi| vi.disconnect()))
}

/// VipConnectPeerRequest(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectPeerRequest(
    ViHandle: Handle,
    LocalAddr: *const NetAddress,
    RemoteAddr: *const NetAddress,
    Timeout: c_ulong,
) -> Return {
    code((|| {
        let vi = vi(ViHandle)?;
        // SAFETY: the program's addresses, as long as they say.
        let (local, remote) = unsafe { (Address::read(LocalAddr)?, Address::read(RemoteAddr)?) };
        connect::ask_peer(&vi, &local, remote, timeout(Timeout))
    })())
}

/// VipConnectPeerDone(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectPeerDone(ViHandle: Handle, RemoteViAttribs: *mut ViAttributes) -> Return {
    code((|| {
        let peer = connect::peer_done(&*vi(ViHandle)?)?;
        // SAFETY: the program's variable.
        unsafe { put(RemoteViAttribs, connect::attributes(&peer)) };
        Ok(())
    })())
}

/// VipConnectPeerWait(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectPeerWait(ViHandle: Handle, RemoteViAttribs: *mut ViAttributes) -> Return {
    code((|| {
        let peer = connect::peer_wait(&*vi(ViHandle)?)?;
        // SAFETY: the program's variable.
        unsafe { put(RemoteViAttribs, connect::attributes(&peer)) };
        Ok(())
    })())
}

/// VipPostSend(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipPostSend(ViHandle: Handle, DescriptorPtr: *mut Descriptor, MemoryHandle: u32) -> Return {
    code(post::post(ViHandle, WorkQueue::Send, DescriptorPtr, MemoryHandle))
}

/// VipPostRecv(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipPostRecv(ViHandle: Handle, DescriptorPtr: *mut Descriptor, MemoryHandle: u32) -> Return {
    code(post::post(ViHandle, WorkQueue::Receive, DescriptorPtr, MemoryHandle))
}

/// Answers with the head of a queue.
///
/// # Safety
/// `out` may be written.
#[inline]
unsafe fn put_done(out: *mut *mut Descriptor, done: &Done) -> Outcome {
    let (descriptor, outcome) = match done {
        Done::Taken(descriptor, true) => (*descriptor, Ok(())),
        Done::Taken(descriptor, false) => (*descriptor, Err(Return::DescriptorError)),
        Done::Empty => (std::ptr::null_mut(), Err(Return::DescriptorError)),
        Done::InProgress => (std::ptr::null_mut(), Err(Return::NotDone)),
    };
    // SAFETY: the caller's promise.
    unsafe { put(out, descriptor) };
    outcome
}

#[cold]
fn fault(e: uvia::Error) -> Return {
    tracing::warn!("driving a NIC: {e}");
    Return::ErrorResource
}

/// # Safety
/// `out` is null or may be written.
#[inline]
unsafe fn done(handle: Handle, which: WorkQueue, out: *mut *mut Descriptor) -> Outcome {
    let held = vi::hold(handle, which)?;
    there(out)?;
    let done = vi::done(held, false).map_err(fault)?;
    // SAFETY: the caller's promise.
    unsafe { put_done(out, &done) }
}

/// # Safety
/// As [`done`].
unsafe fn wait(handle: Handle, which: WorkQueue, time: c_ulong, out: *mut *mut Descriptor) -> Outcome {
    let vi = vi(handle)?;
    there(out)?;
    if vi.has_cq(which) {
        return Err(Return::InvalidParameter);
    }
    let done = vi.wait(which, timeout(time))?;
    // SAFETY: the caller's promise.
    unsafe { put_done(out, done.as_ref().unwrap_or(&Done::InProgress)) }
        .map_err(|code| if code == Return::NotDone { Return::Timeout } else { code })
}

/// VipSendDone(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSendDone(ViHandle: Handle, DescriptorPtr: *mut *mut Descriptor) -> Return {
    // SAFETY: the program's variable.
    code(unsafe { done(ViHandle, WorkQueue::Send, DescriptorPtr) })
}

/// VipRecvDone(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipRecvDone(ViHandle: Handle, DescriptorPtr: *mut *mut Descriptor) -> Return {
    // SAFETY: the program's variable.
    code(unsafe { done(ViHandle, WorkQueue::Receive, DescriptorPtr) })
}

/// VipSendWait(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSendWait(
    ViHandle: Handle,
    Timeout: c_ulong,
    DescriptorPtr: *mut *mut Descriptor,
) -> Return {
    // SAFETY: the program's variable.
    code(unsafe { wait(ViHandle, WorkQueue::Send, Timeout, DescriptorPtr) })
}

/// VipRecvWait(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipRecvWait(
    ViHandle: Handle,
    Timeout: c_ulong,
    DescriptorPtr: *mut *mut Descriptor,
) -> Return {
    // SAFETY: the program's variable.
    code(unsafe { wait(ViHandle, WorkQueue::Receive, Timeout, DescriptorPtr) })
}

fn notify_queue(
    handle: Handle,
    which: WorkQueue,
    context: *mut c_void,
    handler: Option<DescriptorHandler>,
) -> Outcome {
    let vi = vi(handle)?;
    let handler = handler.ok_or(Return::InvalidParameter)?;
    if vi.has_cq(which) {
        return Err(Return::InvalidParameter);
    }
    notify::register(&vi.nic, handle, context, Target::Queue(which, handler))
}

/// VipSendNotify(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipSendNotify(
    ViHandle: Handle,
    Context: *mut c_void,
    Handler: Option<DescriptorHandler>,
) -> Return {
    code(notify_queue(ViHandle, WorkQueue::Send, Context, Handler))
}

/// VipRecvNotify(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipRecvNotify(
    ViHandle: Handle,
    Context: *mut c_void,
    Handler: Option<DescriptorHandler>,
) -> Return {
    code(notify_queue(ViHandle, WorkQueue::Receive, Context, Handler))
}

/// VipCreateCQ(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCreateCQ(
    NicHandle: Handle,
    EntryCount: c_ulong,
    CQHandle: *mut Handle,
) -> Return {
    code((|| {
        let nic = nic(NicHandle)?;
        there(CQHandle)?;
        let handle = cq::create(&nic, EntryCount as usize)?;
        // SAFETY: the program's variable.
        unsafe { put(CQHandle, handle) };
        Ok(())
    })())
}

/// VipDestroyCQ(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyCQ(CQHandle: Handle) -> Return {
    code(cq::destroy(CQHandle))
}

/// VipResizeCQ(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipResizeCQ(CQHandle: Handle, EntryCount: c_ulong) -> Return {
    code(cq(CQHandle).and_then(|cq| cq::resize(&cq, EntryCount as usize)))
}

/// VipCQDone(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCQDone(CQHandle: Handle, ViHandle: *mut Handle, RecvQueue: *mut c_int) -> Return {
    code((|| {
        // Before anything is taken.
        if there(ViHandle).and(there(RecvQueue)).is_err() {
            return Err(Return::InvalidParameter);
        }
        let (vi, receive) = cq::done(CQHandle)?.map_err(fault)?.ok_or(Return::NotDone)?;
        // SAFETY: the program's variables.
        unsafe {
            put(ViHandle, vi);
            put(RecvQueue, receive.into());
        }
        Ok(())
    })())
}

/// VipCQWait(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCQWait(
    CQHandle: Handle,
    Timeout: c_ulong,
    ViHandle: *mut Handle,
    RecvQueue: *mut c_int,
) -> Return {
    code((|| {
        let cq = cq(CQHandle)?;
        there(ViHandle)?;
        there(RecvQueue)?;
        let (vi, receive) = cq.wait(timeout(Timeout))?.ok_or(Return::Timeout)?;
        // SAFETY: the program's variables.
        unsafe {
            put(ViHandle, vi);
            put(RecvQueue, receive.into());
        }
        Ok(())
    })())
}

/// VipCQNotify(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipCQNotify(CQHandle: Handle, Context: *mut c_void, Handler: Option<CqHandler>) -> Return {
    code((|| {
        let cq = cq(CQHandle)?;
        let handler = Handler.ok_or(Return::InvalidParameter)?;
        notify::register(&cq.nic, CQHandle, Context, Target::Cq(handler))
    })())
}

/// VipNSInit(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipNSInit(NicHandle: Handle, _NSInitInfo: *mut c_void) -> Return {
    code(nic(NicHandle).map(|nic| nic.names.store(true, Ordering::Relaxed)))
}

/// VipNSGetHostByName(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipNSGetHostByName(
    NicHandle: Handle,
    Name: *const c_char,
    Address: *mut NetAddress,
    NameIndex: c_ulong,
) -> Return {
    code((|| {
        let nic = nic(NicHandle)?;
        there(Name)?;
        there(Address)?;
        // SAFETY: a string, as C has them.
        let name = unsafe { CStr::from_ptr(Name) }.to_string_lossy();
        let host = names::by_name(&nic, &name, usize::try_from(NameIndex).unwrap_or(usize::MAX))?.0;
        // SAFETY: the program's address, with room for a host's; its discriminator is left alone.
        unsafe {
            let bytes = Address.cast::<u8>();
            bytes.cast::<u16>().write_unaligned(host.len() as u16);
            bytes.add(4).copy_from_nonoverlapping(host.as_ptr(), host.len());
        }
        Ok(())
    })())
}

/// VipNSGetHostByAddr(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipNSGetHostByAddr(
    NicHandle: Handle,
    Address: *const NetAddress,
    Name: *mut c_char,
    NameLen: *mut c_ulong,
) -> Return {
    code((|| {
        let nic = nic(NicHandle)?;
        there(Address)?;
        there(Name)?;
        // SAFETY: the program's variable.
        let room = unsafe { get(NameLen) }?;
        // SAFETY: the program's address; its discriminator may be anything, so that the host alone is read.
        let host = unsafe {
            let bytes = Address.cast::<u8>();
            if bytes.cast::<u16>().read_unaligned() != 6 {
                return Err(Return::InvalidParameter);
            }
            bytes.add(4).cast::<[u8; 6]>().read_unaligned()
        };
        let name = names::by_address(&nic, uvia::MacAddress(host))?;
        let needed = name.len() as c_ulong + 1;
        // SAFETY: the program's variable.
        unsafe { put(NameLen, needed) };
        if room < needed {
            return Err(Return::ErrorResource);
        }
        // SAFETY: the program's buffer, as long as it said.
        unsafe {
            Name.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), name.len());
            Name.add(name.len()).write(0);
        }
        Ok(())
    })())
}

/// VipNSShutdown(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipNSShutdown(NicHandle: Handle) -> Return {
    code(nic(NicHandle).map(|nic| nic.names.store(false, Ordering::Relaxed)))
}

/// VipSetUserData(3).
#[unsafe(no_mangle)]
pub extern "C" fn VipSetUserData(ViHandle: Handle, UserData: *mut c_void) -> Return {
    code(vi(ViHandle).map(|vi| vi.set_user_data(UserData)))
}

/// VipGetUserData(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipGetUserData(ViHandle: Handle, UserData: *mut *mut c_void) -> Return {
    code((|| {
        let vi = vi(ViHandle)?;
        there(UserData)?;
        // SAFETY: the program's variable.
        unsafe { put(UserData, vi.user_data()) };
        Ok(())
    })())
}
