//! Messages between ranked processes, packed and unpacked piece by piece, on virtual interfaces.
//!
//! # A first program
//!
//! A [`Session`] is a set of processes, each with a rank from 0 on. `uvia-launch -n 2 ./program` starts two of them on this
//! host, and nothing else is needed: without a NIC they talk over memory that they share.
//!
//! ```no_run
//! use uvia_message::{ReceiveMode, SendMode, Session, Source};
//!
//! fn main() -> uvia_message::Result<()> {
//!     let session = Session::from_environment()?;
//!     let channel = session.channel(0, &[])?;
//!     if session.rank() == 0 {
//!         let image = vec![7u8; 3_000_000];
//!         channel.send(1, |message| {
//!             message.put(&(image.len() as u64))?;
//!             message.cheaper(&image, ReceiveMode::Cheaper)
//!         })
//!     } else {
//!         let mut image = Vec::new();
//!         let room = &mut image;
//!         channel.receive(Source::Any, |message| {
//!             room.resize(message.get::<u64>()? as usize, 0);
//!             message.cheaper(room, SendMode::Cheaper)
//!         })
//!     }
//! }
//! ```
//!
//! Its examples are a ping-pong, a token ring, a stencil and a broadcast of a file (`via/message/examples`), in C as well
//! (`via/message/c`).
//!
//! # Messages
//!
//! A [`Channel`] is a stream of messages between each two ranks, in order and independent of all other channels. A message
//! is packed by what a program has, piece by piece ([`Channel::send`]), and unpacked with the same lengths and the same
//! modes in the same order ([`Channel::receive`]): **messages do not describe themselves**. So a receiver knows where each
//! byte goes before it comes, and nothing is copied on the way to find that out. What it has to know first, a length say,
//! the sender packs as a piece of its own that comes at once.
//!
//! Two directives with each piece are all that the layer asks for:
//!
//! | sender's | the buffer is read | so |
//! |---|---|---|
//! | [`SendMode::Safer`] | before the call returns | it may change afterwards |
//! | [`SendMode::Later`] | at the message's end | it may be filled until then |
//! | [`SendMode::Cheaper`] | when it costs least | it stays as it is until the end |
//!
//! | receiver's | the buffer is filled | so |
//! |---|---|---|
//! | [`ReceiveMode::Express`] | before the call returns | it may steer what is unpacked next |
//! | [`ReceiveMode::Cheaper`] | at the message's end | it can come in any order |
//!
//! The borrow checker knows them: what is `Later` or `Cheaper` is borrowed until `send` or `receive` returns.
//! [`Outgoing::put`] and [`Incoming::get`] take numbers and structures, `slice` their slices, `pack_all` and `unpack_all`
//! lists of buffers. [`Channel::exchange`] sends one and receives one at once, in rings and pairs of whatever lengths, which
//! nobody has to put in order. A message that fails half-way is given up, and its other end hears of it ([`Error::Abandoned`],
//! [`Error::Refused`]); the next one is not touched. With [`SessionOptions::describe`] messages carry a description, and
//! [`Error::Mismatch`] names the first piece that is unpacked otherwise than it was packed.
//!
//! # What the layer decides
//!
//! * **How a piece goes**: by one of five [`Module`]s, by its length, its modes and what the ports can ([`Thresholds`]).
//!   Short pieces go together in packets of registered memory, one copy at each end; those of middle size can be taken from
//!   their place; long ones go straight from their place into their place, written by who sends or read by who receives,
//!   and are copied by nobody. Long buffers stay registered while they live ([`uvia::RegistrationCache`]), and go without a
//!   system call the next time. [`Session::module_counts`] tells what was taken.
//! * **How much is under way.** Who sends never has more under way than who receives has room for
//!   ([`SessionOptions::window`]): a send waits where a receiver does not come, and that is in the way of no other
//!   rank and no other channel.
//! * **How to wait**: [`Policy`].
//! * **By which way.** A session has rails: virtual interfaces of a NIC, TCP, memory that processes of a host share
//!   ([`RailPort`]). A channel uses all that two ranks have in common, or those that it names. Long pieces are striped over
//!   them; when one dies, what it had goes by the others, once and in order. Ranks with and without NICs may be in one session.
//!
//! # How ranks find each other
//!
//! By `uvia-launch`, which tells each where all are ([`Session::from_environment`]); by a description in a file
//! ([`Description`]), where hosts are found by asking the network for their names; or by a [`Board`], where they are threads of
//! one process.

mod calibration;
mod channel;
mod channel_tasks;
mod core;
pub mod description;
pub mod directory;
mod error;
mod lock;
mod modes;
mod modules;
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
pub use modules::{Module, ModuleCounts, Thresholds};
pub use policy::{Policy, WaitCounts};
pub use raw::{RawIncoming, RawOutgoing};
pub use session::{RailPort, Session, SessionOptions};
pub use span::Span;

/// Channels of a session.
pub const MAX_CHANNELS: usize = 64;

/// How long a rank may take to answer that it is there.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(30);
