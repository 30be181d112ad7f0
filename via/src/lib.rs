//! The Virtual Interface Architecture on network adapters driven from user space.
//!
//! A program gets *virtual interfaces*: protected, connected endpoints that send messages and reach into each other's
//! memory, with no system call and no copy by the kernel on the way. The architecture is of 1997, and InfiniBand, iWARP
//! and RoCE descend from it; whoever knows verbs will know most of this. This page is its chapter in short: the objects,
//! their life, and what may be relied on.
//!
//! # In one piece
//!
//! Two interfaces of one NIC, which is made of memory, so that this runs anywhere. Between two hosts the device is a PCI
//! address, each has one of the ends, and [`Vi::connect`] and [`Listener::wait`] do the waiting.
//!
//! ```
//! use std::time::Duration;
//! use uvia::{Descriptor, MemoryAttributes, NetAddress, Nic, NicOptions, ViAttributes, WorkQueue};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = format!("shm:chapter-{}", std::process::id());
//! let nic = Nic::open(&device, NicOptions::default())?; // "0000:01:00.0", "vfio-user:PATH", "shm:NAME"
//! nic.wait_ready(Duration::from_secs(5))?;
//!
//! // Memory, under a tag, and interfaces whose completions go to one queue.
//! let tag = nic.create_tag()?;
//! let memory = nic.allocate(4096, MemoryAttributes::local(tag))?;
//! let cq = nic.create_cq(512)?;
//! let attributes = ViAttributes::new(tag);
//! let client = nic.create_vi(&attributes, Some(&cq), Some(&cq))?;
//! let server = nic.create_vi(&attributes, Some(&cq), Some(&cq))?;
//!
//! // A receive is posted before the connection is: whoever is connected may send.
//! server.post_receive(Descriptor::new(vec![memory.segment(2048..4096)?]))?;
//!
//! // The client asks for the server's place; the server accepts.
//! let listener = nic.listen(b"greetings", 1)?;
//! let there = NetAddress::new(nic.properties().mac, b"greetings")?;
//! client.connect_start(&there, Duration::from_secs(5), b"who asks")?;
//! let request = listener.wait(Duration::from_secs(5))?.ok_or("nobody asks")?;
//! assert_eq!(request.peer().private_data, b"who asks");
//! request.accept(&server, b"").map_err(|(_, error)| error)?;
//! nic.wait_for(Duration::from_secs(5), |_| client.connect_done())?.ok_or("no answer")?;
//!
//! // A message.
//! memory.write(0, b"hello")?;
//! client.post_send(Descriptor::new(vec![memory.segment(0..5)?]))?;
//! let mut got = None;
//! while got.is_none() {
//!     let done = cq.wait(Duration::from_secs(5))?.ok_or("nothing came")?;
//!     assert!(done.descriptor.status().is_success());
//!     got = (done.queue == WorkQueue::Receive).then(|| done.descriptor.length());
//! }
//! let mut bytes = [0; 5];
//! memory.read(2048, &mut bytes)?;
//! assert_eq!((got, &bytes), (Some(5), b"hello"));
//! # Ok(())
//! # }
//! ```
//!
//! # The objects
//!
//! | object | is | made by |
//! |---|---|---|
//! | [`Nic`] | a handle to an adapter; opening a device again gives one more | [`Nic::open`] |
//! | [`ProtectionTag`] | what interfaces and memory have in common that may meet | [`Nic::create_tag`] |
//! | [`MemoryRegion`] | registered memory: pinned, and mapped for the adapter | [`Nic::allocate`], [`Nic::register`] |
//! | [`Vi`] | a virtual interface: a send queue and a receive queue | [`Nic::create_vi`] |
//! | [`CompletionQueue`] | where work queues tell what is done, any mix of them | [`Nic::create_cq`] |
//! | [`Descriptor`] | a piece of work: what to send or where to receive, in segments of regions | [`Descriptor::new`] |
//! | [`Listener`] | a place, named by a *discriminator*, at which a server waits | [`Nic::listen`] |
//!
//! All can be used from any thread, and dropped in any order: what needs another holds it. A posted descriptor belongs to
//! the NIC until its completion gives it back, in the same box, and a region stays registered while a descriptor names it.
//! All limits are real, told by [`Nic::properties`], and end in [`Error::Resource`].
//!
//! # The life of an interface
//!
//! ```text
//!            connect, connect_peer                answer
//!     Idle ------------------------> Pending ----------------> Connected
//!      ^  \                            |                       ^   |  |
//!      |   \      accept               | rejected, no match,   |   |  | the peer leaves or dies,
//!      |    `--------------------------+-----------------------'   |  | or an error on a reliable level
//!      |                               | no answer in time         |  v
//!      +<------------------------------'                           | Error
//!      +<------------------ disconnect ----------------------------+---'
//! ```
//!
//! Receives may be posted before an interface is connected, and should be, since the first message may come at once. Sends
//! are for [`ViState::Connected`]: in other states they come back flushed. When a connection ends, all that is posted comes
//! back, each once and in order, with [`Status::FLUSHED`], or [`Status::TRANSPORT_ERROR`] if it was under way, and
//! [`Vi::loss`] has the reason at either end. An interface in [`ViState::Error`] is idle again after [`Vi::disconnect`]. Who
//! disconnects takes along what it has not finished sending: wait for the last completion first.
//!
//! A **server** listens at a discriminator, and accepts or rejects a [`Request`]; a **client** names host and discriminator
//! ([`NetAddress`]; [`Nic::resolve`] finds hosts by name). **Peers** ask each other ([`Vi::connect_peer`]). Reliability
//! level and transfer size have to be the same at both ends; a server that finds others gets its request back, and may
//! accept with another interface. Up to 64 bytes of private data go each way. [`Error::NoMatch`] says that nobody waits
//! there *yet*: asking again costs next to nothing.
//!
//! # Work
//!
//! * A **send** takes the peer's next posted receive. With [`Descriptor::immediate`] 32 bits go along.
//! * An **RDMA write** ([`Descriptor::rdma_write`]) goes into the peer's memory and takes no receive, unless it has
//!   immediate data. The peer's program may watch for it: writes become visible in order.
//! * An **RDMA read** ([`Descriptor::rdma_read`]) fetches from there, on reliable levels. A descriptor with
//!   [`Descriptor::fence`] waits for the reads before it.
//!
//! A peer's memory is named by a [`RemoteMemory`], which [`MemoryRegion::remote`] gives and a program tells the other in
//! whatever way it likes. What it names is touched only if the handle is a live one, the bytes are within it, its tag is
//! the interface's, and both the region and the interface allow it ([`MemoryAttributes`], [`ViAttributes::rdma_write`]).
//!
//! Work completes in the order of its queue, each descriptor once, with a [`Status`] and its length.
//!
//! # What a connection promises
//!
//! | [`ReliabilityLevel`] | messages arrive | a send that has completed | an error |
//! |---|---|---|---|
//! | `Unreliable` | at most once, whole, in order | has left | is dropped; the connection goes on |
//! | `ReliableDelivery` | exactly once, in order | will arrive, unless the connection breaks | breaks the connection |
//! | `ReliableReception` | exactly once, in order | is in the peer's memory | breaks the connection, with nothing after it |
//!
//! A message that finds no receive is such an error, unless [`ViAttributes::not_ready`] lets it wait. A peer that is not
//! heard for 5 s, although it was asked, is taken for dead ([`ConnectionLoss::PeerSilent`]): one that neither polls nor has
//! a thread of its NIC's ([`Progress`]) is not heard.
//!
//! # Ways to wait
//!
//! Completions come from the work queue itself ([`Vi::send_done`], [`Vi::receive_wait`]) or, if it is tied to one, from a
//! completion queue:
//!
//! | way | by | drives the NIC | costs |
//! |---|---|---|---|
//! | polling | [`CompletionQueue::poll_into`] | the caller | a processor, and the least time |
//! | waiting | [`CompletionQueue::wait`] | the caller | polls for a moment, then sleeps on the interrupt |
//! | a handler | [`CompletionQueue::notify`] | the NIC's thread | a change of threads |
//! | a file descriptor | [`CompletionQueue::event`] | the NIC's thread | the same, and system calls |
//! | a task | [`CompletionQueue::next`] | the NIC's thread | a change of threads |
//!
//! ```no_run
//! # use std::time::Duration;
//! # use uvia::{Completion, CompletionQueue, Completions};
//! # fn handle(_: Completion) {}
//! fn polling(cq: &CompletionQueue) -> uvia::Result<()> {
//!     let mut batch = Completions::with_capacity(32);
//!     loop {
//!         cq.poll_into(&mut batch)?;
//!         while let Some(completion) = batch.pop() {
//!             handle(completion);
//!         }
//!     }
//! }
//!
//! fn waiting(cq: &CompletionQueue) -> uvia::Result<()> {
//!     while let Some(completion) = cq.wait(Duration::from_secs(1))? {
//!         handle(completion);
//!     }
//!     Ok(())
//! }
//!
//! fn by_a_handler(cq: &CompletionQueue) -> uvia::Result<()> {
//!     cq.notify(handle) // For one completion; a handler may register again.
//! }
//!
//! async fn in_a_task(cq: &CompletionQueue) -> uvia::Result<()> {
//!     loop {
//!         handle(cq.next().await?);
//!     }
//! }
//! ```
//!
//! [`CompletionEvent`] shows a file descriptor's, with tokio; `via/examples` has a program for each. Polling never blocks:
//! while another thread drives the NIC it finds nothing.
//!
//! # Errors
//!
//! They are told where they belong. A call that cannot be carried out returns an [`Error`] and changes nothing; a post
//! gives its descriptor back ([`PostError`]). Work that went wrong has a [`Status`]. A connection that ended has a
//! [`ConnectionLoss`]. What none of these can tell goes to a handler as an [`AsyncError`] ([`Nic::set_error_handler`]), or
//! is logged. When the adapter itself fails, every call says so ([`Error::Driver`]), and closing it and opening it again is
//! the way on.
//!
//! # What lies below
//!
//! [`Nic::open`] takes devices by way of `uvia-driver`: PCI functions through VFIO, models that another process serves, and
//! segments of shared memory. Frames are described in `via/WIRE.md`. Whoever reads the wire can forge them: it has to be
//! trusted as the fabric of a machine room is.

mod async_error;
mod attributes;
mod background;
mod batch;
mod cache;
mod callbacks;
mod clock;
mod connection;
mod cq;
mod credits;
mod descriptor;
mod devices;
mod encapsulation;
mod engine;
mod error;
mod ethernet;
mod event;
mod flag;
mod handle;
mod hosts;
mod memory;
mod nic;
mod pio;
mod posts;
mod promises;
mod provider;
mod registration;
mod ring;
mod rings;
mod seldom;
mod sinks;
mod sleep;
mod sleeper;
mod standstill;
mod sync;
mod tags;
mod turn;
mod vi;
mod wire;

pub use async_error::{AsyncError, ErrorCode, ErrorResource};
pub use attributes::{EndpointClass, NetAddress, ReliabilityLevel, ViAttributes, ViState};
pub use cache::{CacheLimits, CacheState, CacheStatistics, Lease, RegistrationCache, Resting};
pub use clock::Clock;
pub use connection::{Listener, Peer, Request};
pub use cq::{CompletionQueue, Completions};
pub use descriptor::{Completion, Descriptor, Operation, RemoteMemory, Segment, Status, ViId, WorkQueue};
pub use encapsulation::{Encapsulation, UdpOptions};
pub use error::{ConnectionLoss, Error, Result};
pub use event::{CompletionEvent, NextCompletion};
pub use memory::{MemoryAttributes, MemoryHandle, MemoryRegion, ProtectionTag};
pub use nic::{Nic, NicOptions, NicProperties, Progress, Statistics};
pub use pio::{PioMissing, PioProperties};
pub use sleeper::{Awaited, Sleeper};
pub use uvia_driver::nic::MacAddress;
pub use uvia_driver::pio::AdapterMemory;
pub use vi::{PostError, Template, Vi};
