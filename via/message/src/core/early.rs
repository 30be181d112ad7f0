//! Places that are named ahead of the message.
//!
//! Who waits for the next message of a rank, with a long piece as the first that it unpacks, names the place of the piece
//! at once. Its sender mostly knows it then when it comes to the piece, and writes without having asked; and where it has
//! just asked, the answer is under way. Where one rail of virtual interfaces is all there is, such a message has no packet:
//! what puts its last byte brings word that it has come, and the counters that a packet would.
//!
//! **The place is the program's again when nobody can write there any more.** A receive that has named one has the
//! connection's next message to itself, as if that had begun, so that no other receive takes it. It ends with that message,
//! of whatever its sender makes it: from its first packet on all is as it is with a place that was named then. Or, where the
//! wait fails, the connection ends first (`Core::forsake`). So sessions whose waits end by themselves, since they have lost
//! their patience, name no places ahead: a sender that is late would find itself cut off.

mod awaited;
mod expected;
#[cfg(test)]
mod tests;

use super::long::Grants;
use crate::packet::Length;
pub(crate) use expected::Expected;

/// A place for a piece that is not packed yet: of the message that is being packed, or of the one behind it.
pub(super) struct EarlyGrant {
    pub(super) message: u32,
    pub(super) number: u16,
    /// As the receiver has it.
    pub(super) len: Length,
    pub(super) grants: Grants,
}
