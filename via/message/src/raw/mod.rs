//! Messages by address: what the safe forms and the C interface stand on.

mod describe;
mod incoming;
mod outgoing;

pub use incoming::RawIncoming;
pub use outgoing::RawOutgoing;
