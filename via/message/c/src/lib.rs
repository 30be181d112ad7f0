//! `madeleine.h`: the message layer for programs in C.
//!
//! Handles are addresses of boxes, as C programs expect; a wrong one is the program's mistake, as with `FILE *`.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};

use uvia_message::{
    Channel, Error, RawIncoming, RawOutgoing, ReceiveMode, Result, SendMode, Session, Source, Span,
};

thread_local! {
    static WHY: RefCell<CString> = RefCell::default();
}

/// Keeps why a call fails.
fn fail(e: &Error) {
    let text = e.to_string().replace('\0', " ");
    WHY.with(|why| *why.borrow_mut() = CString::new(text).unwrap_or_default());
}

fn status(outcome: Result<()>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(e) => {
            fail(&e);
            -1
        }
    }
}

fn handle<T>(outcome: Result<T>) -> *mut T {
    match outcome {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(e) => {
            fail(&e);
            std::ptr::null_mut()
        }
    }
}

fn wrong(what: &str) -> Error {
    Error::Config(what.to_owned())
}

/// A message, in one direction or the other.
pub enum Message {
    /// Being packed.
    Out(RawOutgoing),
    /// Being unpacked.
    In(RawIncoming),
}

/// What a handle names.
///
/// # Safety
/// It is null, or a handle that these functions gave out, of that kind, and not gone.
unsafe fn of<'a, T>(handle: *mut T) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_mut() }.ok_or_else(|| wrong("a handle is NULL"))
}

/// Takes back what a handle names.
///
/// # Safety
/// As for [`of`]; the handle is gone then.
unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's promise.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

fn modes(send: c_int, receive: c_int) -> Result<(SendMode, ReceiveMode)> {
    let number = |mode: c_int| u8::try_from(mode).unwrap_or(0);
    let send = SendMode::from_number(number(send)).ok_or_else(|| wrong("there is no such send mode"))?;
    let receive =
        ReceiveMode::from_number(number(receive)).ok_or_else(|| wrong("there is no such receive mode"))?;
    Ok((send, receive))
}

fn rank(rank: c_int) -> Result<usize> {
    usize::try_from(rank).map_err(|_| wrong("a rank is negative"))
}

/// Becomes the rank that `uvia-launch` has started.
#[unsafe(no_mangle)]
pub extern "C" fn mad_init() -> *mut Session {
    handle(Session::from_environment())
}

/// Leaves the session.
///
/// # Safety
/// The handle is good, or null; it is gone then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_exit(session: *mut Session) {
    // SAFETY: the caller's promise.
    drop(unsafe { take(session) });
}

/// Our rank.
///
/// # Safety
/// The handle is good, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_rank(session: *mut Session) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { of(session) } {
        Ok(session) => session.rank() as c_int,
        Err(e) => status(Err(e)),
    }
}

/// Ranks.
///
/// # Safety
/// The handle is good, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_size(session: *mut Session) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { of(session) } {
        Ok(session) => session.size() as c_int,
        Err(e) => status(Err(e)),
    }
}

/// Opens a channel.
///
/// # Safety
/// The handle is good, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_open_channel(session: *mut Session, number: c_int) -> *mut Channel {
    // SAFETY: the caller's promise.
    let session = unsafe { of(session) };
    handle(session.and_then(|session| session.channel(usize::try_from(number).unwrap_or(usize::MAX), &[])))
}

/// Closes a channel.
///
/// # Safety
/// The handle is good, or null; it is gone then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_close_channel(channel: *mut Channel) {
    // SAFETY: the caller's promise.
    drop(unsafe { take(channel) });
}

/// Begins a message to a rank.
///
/// # Safety
/// The handle is good, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_begin_packing(channel: *mut Channel, to: c_int) -> *mut Message {
    // SAFETY: the caller's promise.
    let channel = unsafe { of(channel) };
    handle(channel.and_then(|channel| Ok(Message::Out(channel.begin(rank(to)?)?))))
}

/// Appends a piece.
///
/// # Safety
/// The handle is good, or null, and the buffer keeps to its modes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_pack(
    message: *mut Message,
    data: *const c_void,
    length: usize,
    send: c_int,
    receive: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let message = unsafe { of(message) };
    status(message.and_then(|message| {
        let (send, receive) = modes(send, receive)?;
        let Message::Out(message) = message else { return Err(wrong("this message is being unpacked")) };
        // SAFETY: the caller's promise.
        unsafe { message.pack(Span::new(data.cast_mut().cast(), length), send, receive) }
    }))
}

/// Ends a message that was packed.
///
/// # Safety
/// The handle is good, or null; it is gone then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_end_packing(message: *mut Message) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { take(message) }.map(|message| *message) {
        Some(Message::Out(message)) => status(message.end()),
        _ => status(Err(wrong("no message that is being packed"))),
    }
}

/// Takes the next message, of whatever rank.
///
/// # Safety
/// The handle is good, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_begin_unpacking(channel: *mut Channel) -> *mut Message {
    // SAFETY: the caller's promise.
    let channel = unsafe { of(channel) };
    handle(channel.and_then(|channel| Ok(Message::In(channel.begin_receive(Source::Any)?))))
}

/// Takes the next message of a rank.
///
/// # Safety
/// The handle is good, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_begin_unpacking_from(channel: *mut Channel, from: c_int) -> *mut Message {
    // SAFETY: the caller's promise.
    let channel = unsafe { of(channel) };
    handle(channel.and_then(|channel| Ok(Message::In(channel.begin_receive(rank(from)?)?))))
}

/// Takes the next piece.
///
/// # Safety
/// The handle is good, or null, and the buffer keeps to its modes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_unpack(
    message: *mut Message,
    data: *mut c_void,
    length: usize,
    send: c_int,
    receive: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let message = unsafe { of(message) };
    status(message.and_then(|message| {
        let (send, receive) = modes(send, receive)?;
        let Message::In(message) = message else { return Err(wrong("this message is being packed")) };
        // SAFETY: the caller's promise.
        unsafe { message.unpack(Span::new(data.cast(), length), send, receive) }
    }))
}

/// Ends a message that was unpacked.
///
/// # Safety
/// The handle is good, or null; it is gone then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_end_unpacking(message: *mut Message) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { take(message) }.map(|message| *message) {
        Some(Message::In(message)) => status(message.end()),
        _ => status(Err(wrong("no message that is being unpacked"))),
    }
}

/// The other end of a message.
///
/// # Safety
/// The handle is good, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_from(message: *mut Message) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { of(message) } {
        Ok(Message::Out(message)) => message.rank() as c_int,
        Ok(Message::In(message)) => message.rank() as c_int,
        Err(e) => status(Err(e)),
    }
}

/// Why the last call of this thread that failed did; good until the next.
#[unsafe(no_mangle)]
pub extern "C" fn mad_error() -> *const c_char {
    WHY.with(|why| why.borrow().as_ptr())
}
