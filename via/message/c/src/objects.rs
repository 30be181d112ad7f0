//! What handles name.

use uvia_message::{Channel, Error, RawIncoming, RawOutgoing, Result, Session};

use crate::failure::{fail, wrong};
use crate::handles::{Handle, Kind, Table};

/// A message, in one direction or the other.
pub enum Message {
    /// Being packed.
    Out(RawOutgoing),
    /// Being unpacked.
    In(RawIncoming),
}

/// Something that ends with its session.
pub struct Of<T> {
    /// The session's handle.
    pub session: usize,
    /// The thing itself.
    pub object: T,
}

pub static SESSIONS: Table<Session> = Table::new(Kind::Session);
pub static CHANNELS: Table<Of<Channel>> = Table::new(Kind::Channel);
pub static MESSAGES: Table<Of<Message>> = Table::new(Kind::Message);

/// A handle that leads nowhere.
pub fn gone(what: &str) -> Error {
    wrong(&format!("this is no {what}'s handle, or one of a {what} that is gone"))
}

/// Works on what a handle names.
pub fn with<T, A>(
    table: &Table<T>,
    handle: Handle,
    what: &str,
    work: impl FnOnce(&mut T) -> Result<A>,
) -> Result<A> {
    let mut found = table.find(handle).ok_or_else(|| gone(what))?;
    work(found.object().ok_or_else(|| gone(what))?)
}

/// A channel, by itself: calls on it wait for other ranks, and must not keep other threads from it.
pub fn channel(handle: Handle) -> Result<Of<Channel>> {
    with(&CHANNELS, handle, "channel", |found| {
        Ok(Of { session: found.session, object: found.object.clone() })
    })
}

/// A handle for a message that has begun.
pub fn message(session: usize, message: Message) -> Result<Handle> {
    MESSAGES
        .insert(Of { session, object: message })
        .ok_or_else(|| wrong("too many messages are begun and not ended: there may be 65,536 at a time"))
}

/// Takes a message that is to be ended; one of the other direction stays.
pub fn take(handle: Handle, packed: bool) -> Result<Message> {
    with(&MESSAGES, handle, "message", |message| match (&message.object, packed) {
        (Message::In(_), true) => Err(wrong("this message is being unpacked")),
        (Message::Out(_), false) => Err(wrong("this message is being packed")),
        _ => Ok(()),
    })?;
    MESSAGES.remove(handle).map(|message| message.object).ok_or_else(|| gone("message"))
}

/// A handle for C: NULL where there is none.
pub fn handle(outcome: Result<Handle>) -> Handle {
    outcome.unwrap_or_else(|e| {
        fail(&e);
        std::ptr::null_mut()
    })
}
