//! The lock-free sources of uvia and its drivers, over the atomics of the model checker loom; and what holds of them in
//! every interleaving, with every reordering that their memory orderings allow.
//!
//! What data a thread may touch is told by cells of loom's: two accesses that nothing orders are an error.

#[path = "../../../driver/src/nic/memory/armed.rs"]
#[allow(
    dead_code,
    missing_docs,
    reason = "a part of another crate, of which only what has no lock is checked"
)]
mod armed;
#[path = "../../../via/src/credits.rs"]
#[allow(
    dead_code,
    missing_docs,
    reason = "a part of another crate, of which only what has no lock is checked"
)]
mod credits;
#[path = "../../../driver/src/nic/memory/ring.rs"]
#[allow(
    dead_code,
    missing_docs,
    reason = "a part of another crate, of which only what has no lock is checked"
)]
mod ring;
mod sync;
#[path = "../../../via/src/turn.rs"]
#[allow(
    dead_code,
    missing_docs,
    reason = "a part of another crate, of which only what has no lock is checked"
)]
mod turn;

pub mod checks;

/// As `uvia` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkQueue {
    /// Sends.
    Send,
    /// Receives.
    Receive,
}
