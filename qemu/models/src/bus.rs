//! A model's door to the world: memory by I/O address, and interrupts.

/// Why an access to memory did not happen. A model goes on as the chip would: it never panics over one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DmaFault {
    /// Not all of the range is mapped, or it wraps.
    #[error("not mapped")]
    NotMapped,
    /// It is mapped, but not for this direction.
    #[error("not mapped with the right for this")]
    Forbidden,
    /// The function may not master the bus (its command register says so).
    #[error("bus mastering is off")]
    NotMaster,
    /// The function was removed.
    #[error("the function is gone")]
    Gone,
    /// The client that owns the memory did not answer.
    #[error("the owner of the memory does not answer")]
    Unreachable,
}

/// Memory and interrupts, as a PCI function reaches them.
///
/// # Ordering
/// Whoever shares the memory runs on another processor. A read is done before all accesses after it (acquire),
/// a write after all accesses before it (release); between a write and a later read, [`Bus::fence`] makes the
/// order. Aligned accesses of 1, 2, 4 and 8 bytes are single.
pub trait Bus {
    /// Fetches `into.len()` bytes from `address` on: all or nothing.
    ///
    /// # Errors
    /// What keeps the access from happening; `into` is then in no defined state.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), DmaFault>;

    /// Stores bytes from `address` on: all or nothing.
    ///
    /// # Errors
    /// What keeps the access from happening.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), DmaFault>;

    /// Drives the interrupt pin: a level, so that repeating it is harmless.
    fn intx(&mut self, asserted: bool);

    /// Sends message `vector` (MSI-X). One that is routed nowhere is lost, as on the bus.
    fn message(&mut self, vector: u16);

    /// Whether the client routed message vectors. Some clients do that without the enable bit in
    /// configuration space.
    fn messages_routed(&self) -> bool;

    /// All writes before are seen by others before reads after it are done.
    fn fence(&mut self) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}
