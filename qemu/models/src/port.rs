//! A model's door to the wire.

/// An Ethernet frame from its destination address on, without check sequence.
pub type Frame = Vec<u8>;

/// The longest frame that anything here takes: a jumbo frame of the largest that a chip sends, with room.
pub const LONGEST: usize = 16384;

/// One end of a wire, with a bounded queue of frames that arrived.
pub trait Port {
    /// Sends a frame. What becomes of it is the wire's business.
    fn send(&mut self, frame: Frame);

    /// The next frame that arrived.
    fn receive(&mut self) -> Option<Frame>;

    /// How many arrived frames found the queue full since this was last asked.
    fn missed(&mut self) -> u64;

    /// Whether the other end is there.
    fn link(&self) -> bool;
}

/// A port that is connected to nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unplugged;

impl Port for Unplugged {
    fn send(&mut self, _frame: Frame) {}

    fn receive(&mut self) -> Option<Frame> {
        None
    }

    fn missed(&mut self) -> u64 {
        0
    }

    fn link(&self) -> bool {
        false
    }
}
