//! Adapter memory: a little memory of an adapter that the processor stores frames into, so that a NIC fetches them from
//! there and not from the host's memory.
//!
//! [`AdapterMemory`] is cut into windows, and a window into slots of [`SLOT`] bytes. A window belongs to one endpoint at a
//! time: [`AdapterMemory::lease`] gives one out, mapped into the address space of the endpoint's NIC for reading only, and
//! dropping the [`Window`] gives it back, as does the death of its process.
//!
//! What such memory asks for is kept by the types:
//!
//! * slots are written and never read ([`Slot`] has no way to), by whole, naturally aligned 64-bit stores: what is not a
//!   multiple of 8 bytes long is filled up with zeros, at its end or before its start;
//! * stores are fenced before the frame can be shown to a NIC ([`Slot::send`], which takes the slot away);
//! * a slot in flight cannot be written: [`Window::slot`] has none until [`Window::landed`] was told that the NIC is done;
//! * a window is zero when it is leased, so that nothing of another endpoint's can be sent.
//!
//! A NIC's transmit ring can lie there too ([`AdapterMemory::lease_ring`]): in windows of its own, whole pages, which are
//! mapped with the rights that such a ring asks for. A NIC that writes into its ring then does so there, and in no slot.
//!
//! Processes that can map the memory can see and spoil each other's windows. Where that must not be, the memory has to be
//! handed out by a broker that they trust, or by a device that keeps its clients apart.

mod directory;
mod lease;
mod memory;
mod ring;
mod source;
mod store;
mod template;
#[cfg(test)]
mod tests;
mod window;

pub use memory::{AdapterMemory, Caching, SLOT, SLOTS, STORE, WINDOW, WindowUse};
pub use ring::RingMemory;
pub use template::Template;
pub use window::{Slot, Window};
