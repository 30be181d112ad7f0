//! Messages between ranked processes, packed and unpacked piece by piece, on virtual interfaces.
//!
//! A [`Session`] is a set of ranked processes. On its [`Channel`]s they send each other messages, which a program packs
//! piece by piece, and says of each by two directives when it may be read ([`SendMode`]) and when it has to be there
//! ([`ReceiveMode`]). All else is decided here: what is short is gathered into packets of registered memory, what is long
//! goes straight from its place into its place, and who sends never has more under way than who receives has room for.
//!
//! Messages do not describe themselves: they are unpacked as they were packed.
//!
//! ```no_run
//! use uvia_message::{Channel, ReceiveMode, Result, SendMode, Source};
//!
//! fn send(channel: &Channel, image: &[u8]) -> Result<()> {
//!     channel.send(1, |message| {
//!         message.put(&(image.len() as u64))?;
//!         message.cheaper(image, ReceiveMode::Cheaper)
//!     })
//! }
//!
//! fn receive(channel: &Channel) -> Result<Vec<u8>> {
//!     let mut image = Vec::new();
//!     let room = &mut image;
//!     channel.receive(Source::Any, |message| {
//!         room.resize(message.get::<u64>()? as usize, 0);
//!         message.cheaper(room, SendMode::Cheaper)
//!     })?;
//!     Ok(image)
//! }
//! ```

mod calibration;
mod channel;
mod channel_tasks;
mod core;
pub mod description;
pub mod directory;
mod error;
mod lock;
mod modes;
mod packet;
mod policy;
pub mod port;
mod raw;
mod session;
mod shared;
mod span;
mod tasks;

pub use calibration::Calibration;
pub use channel::{Channel, Incoming, Outgoing, Source};
pub use channel_tasks::{IncomingTask, OutgoingTask};
pub use description::Description;
pub use directory::{Board, Directory};
pub use error::{Error, Result};
pub use modes::{ReceiveMode, SendMode};
pub use policy::{Policy, WaitCounts};
pub use raw::{RawIncoming, RawOutgoing};
pub use session::{RailPort, Session, SessionOptions};
pub use span::Span;

/// Channels of a session.
pub const MAX_CHANNELS: usize = 64;

/// How long a rank may take to answer that it is there.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(30);
