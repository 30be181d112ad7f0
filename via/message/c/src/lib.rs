//! `madeleine.h`: the message layer for programs in C.
//!
//! Nothing that a program hands in is believed: handles are looked up ([`handles`]), modes and lengths are checked, and a
//! call that makes no sense fails and says why ([`mad_error`]). What cannot be checked is whether a buffer is memory, and
//! whether it keeps to its modes.

mod failure;
pub mod handles;
mod objects;

use std::ffi::{CStr, c_char, c_int, c_void};

use failure::{fail, status, wrong};
use handles::Handle;
use objects::{CHANNELS, MESSAGES, Message, Of, SESSIONS, gone, handle, with};
use uvia_message::{ReceiveMode, Result, SendMode, Session, Source, Span};

/// For a rank: whichever.
const ANY: c_int = -1;

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

/// A buffer, as far as it can be checked.
fn span(data: *mut c_void, length: usize) -> Result<Span> {
    if data.is_null() && length > 0 {
        return Err(wrong("a buffer is NULL"));
    }
    if length > isize::MAX as usize || data.addr().checked_add(length).is_none() {
        return Err(wrong("a buffer is longer than memory"));
    }
    // Nothing is read at an address of no bytes; but a slice has none that is zero.
    let start = if data.is_null() { std::ptr::dangling_mut() } else { data.cast() };
    Ok(Span::new(start, length))
}

/// Becomes the rank that `uvia-launch` has started.
#[unsafe(no_mangle)]
pub extern "C" fn mad_init() -> Handle {
    let session = Session::from_environment();
    handle(session.and_then(|session| SESSIONS.insert(session).ok_or_else(|| wrong("too many sessions"))))
}

/// Leaves the session, and with it its channels, and its messages, which are given up.
#[unsafe(no_mangle)]
pub extern "C" fn mad_exit(session: Handle) {
    let Some(ended) = SESSIONS.remove(session) else {
        fail(&gone("session"));
        return;
    };
    // What another thread is at work with ends when that does.
    drop(MESSAGES.remove_all(|message| message.session == session.addr()));
    drop(CHANNELS.remove_all(|channel| channel.session == session.addr()));
    drop(ended);
}

/// Our rank.
#[unsafe(no_mangle)]
pub extern "C" fn mad_rank(session: Handle) -> c_int {
    failure::number(with(&SESSIONS, session, "session", |session| Ok(session.rank())))
}

/// Ranks.
#[unsafe(no_mangle)]
pub extern "C" fn mad_size(session: Handle) -> c_int {
    failure::number(with(&SESSIONS, session, "session", |session| Ok(session.size())))
}

/// Drives the session once.
#[unsafe(no_mangle)]
pub extern "C" fn mad_progress(session: Handle) -> c_int {
    // Not under the handle's lock: other threads ask for the rank meanwhile.
    let found = with(&SESSIONS, session, "session", |session| Ok(session.clone()));
    status(found.and_then(|session| session.progress()))
}

fn open_channel(session: Handle, number: c_int, rails: &[&str]) -> Result<Handle> {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let object = with(&SESSIONS, session, "session", |session| session.channel(number, rails))?;
    CHANNELS.insert(Of { session: session.addr(), object }).ok_or_else(|| wrong("too many channels"))
}

/// Opens a channel on all rails.
#[unsafe(no_mangle)]
pub extern "C" fn mad_open_channel(session: Handle, number: c_int) -> Handle {
    handle(open_channel(session, number, &[]))
}

/// Opens a channel on the rails that are named.
///
/// # Safety
/// `rails` is null, or an array of `count` strings, each null or ended by a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_open_channel_on(
    session: Handle,
    number: c_int,
    rails: *const *const c_char,
    count: usize,
) -> Handle {
    if count > 0 && rails.is_null() {
        return handle(Err(wrong("the list of rails is NULL")));
    }
    let names = (0..count).map(|at| {
        // SAFETY: the caller's promise.
        let name = unsafe { rails.add(at).read() };
        if name.is_null() {
            return Err(wrong("the name of a rail is NULL"));
        }
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_str().map_err(|_| wrong("the name of a rail is no text"))
    });
    handle(names.collect::<Result<Vec<_>>>().and_then(|names| open_channel(session, number, &names)))
}

/// Closes a channel.
#[unsafe(no_mangle)]
pub extern "C" fn mad_close_channel(channel: Handle) {
    if CHANNELS.remove(channel).is_none() {
        fail(&gone("channel"));
    }
}

/// Connects to a rank ahead of the first message.
#[unsafe(no_mangle)]
pub extern "C" fn mad_connect(channel: Handle, to: c_int) -> c_int {
    status(objects::channel(channel).and_then(|channel| channel.object.connect(rank(to)?)))
}

/// Begins a message to a rank.
#[unsafe(no_mangle)]
pub extern "C" fn mad_begin_packing(channel: Handle, to: c_int) -> Handle {
    handle(objects::channel(channel).and_then(|channel| {
        let message = channel.object.begin(rank(to)?)?;
        objects::message(channel.session, Message::Out(message))
    }))
}

/// Appends a piece.
///
/// # Safety
/// The buffer is memory, and keeps to its modes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_pack(
    message: Handle,
    data: *const c_void,
    length: usize,
    send: c_int,
    receive: c_int,
) -> c_int {
    status(with(&MESSAGES, message, "message", |message| {
        let (send, receive) = modes(send, receive)?;
        let span = span(data.cast_mut(), length)?;
        let Message::Out(message) = &mut message.object else {
            return Err(wrong("this message is being unpacked"));
        };
        // SAFETY: the caller's promise.
        unsafe { message.pack(span, send, receive) }
    }))
}

/// Ends a message that was packed.
#[unsafe(no_mangle)]
pub extern "C" fn mad_end_packing(message: Handle) -> c_int {
    status(objects::take(message, true).and_then(|message| match message {
        Message::Out(message) => message.end(),
        Message::In(_) => Err(wrong("this message is being unpacked")),
    }))
}

fn begin_unpacking(channel: Handle, from: impl Into<Source>) -> Result<Handle> {
    let channel = objects::channel(channel)?;
    let message = channel.object.begin_receive(from)?;
    objects::message(channel.session, Message::In(message))
}

/// Takes the next message, of whatever rank.
#[unsafe(no_mangle)]
pub extern "C" fn mad_begin_unpacking(channel: Handle) -> Handle {
    handle(begin_unpacking(channel, Source::Any))
}

/// Takes the next message of a rank.
#[unsafe(no_mangle)]
pub extern "C" fn mad_begin_unpacking_from(channel: Handle, from: c_int) -> Handle {
    handle(rank(from).and_then(|from| begin_unpacking(channel, from)))
}

/// Takes the next message if there is one: 1, else 0.
///
/// # Safety
/// `message` is null, or the place of a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_try_begin_unpacking(
    channel: Handle,
    from: c_int,
    message: *mut Handle,
) -> c_int {
    let found = || -> Result<Option<Handle>> {
        if message.is_null() {
            return Err(wrong("there is no place for the message's handle"));
        }
        let source = if from == ANY { Source::Any } else { Source::Rank(rank(from)?) };
        let channel = objects::channel(channel)?;
        let found = channel.object.try_begin_receive(source)?;
        found.map(|found| objects::message(channel.session, Message::In(found))).transpose()
    };
    match found() {
        Ok(found) => {
            // SAFETY: it is not null, so the caller's promise holds.
            unsafe { message.write(found.unwrap_or(std::ptr::null_mut())) };
            c_int::from(found.is_some())
        }
        Err(e) => status(Err(e)),
    }
}

/// Takes the next piece.
///
/// # Safety
/// The buffer is memory, and keeps to its modes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mad_unpack(
    message: Handle,
    data: *mut c_void,
    length: usize,
    send: c_int,
    receive: c_int,
) -> c_int {
    status(with(&MESSAGES, message, "message", |message| {
        let (send, receive) = modes(send, receive)?;
        let span = span(data, length)?;
        let Message::In(message) = &mut message.object else {
            return Err(wrong("this message is being packed"));
        };
        // SAFETY: the caller's promise.
        unsafe { message.unpack(span, send, receive) }
    }))
}

/// Ends a message that was unpacked.
#[unsafe(no_mangle)]
pub extern "C" fn mad_end_unpacking(message: Handle) -> c_int {
    status(objects::take(message, false).and_then(|message| match message {
        Message::In(message) => message.end(),
        Message::Out(_) => Err(wrong("this message is being packed")),
    }))
}

/// The other end of a message.
#[unsafe(no_mangle)]
pub extern "C" fn mad_from(message: Handle) -> c_int {
    failure::number(with(&MESSAGES, message, "message", |message| {
        Ok(match &message.object {
            Message::Out(message) => message.rank(),
            Message::In(message) => message.rank(),
        })
    }))
}

/// Why the last call of this thread that failed did; good until the next that fails.
#[unsafe(no_mangle)]
pub extern "C" fn mad_error() -> *const c_char {
    failure::why()
}
