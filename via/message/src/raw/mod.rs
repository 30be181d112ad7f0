//! Messages by address: what the safe forms and the C interface stand on.

mod describe;
mod gathering;
mod incoming;
mod outgoing;

pub use incoming::RawIncoming;
pub(crate) use incoming::Unpacking;
pub(crate) use outgoing::Packing;
pub use outgoing::RawOutgoing;
