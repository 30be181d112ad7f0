//! What a chip is to the rest: registers, a reset, and work on its rings.

use std::time::Duration;

use crate::bus::Bus;
use crate::config::Config;
use crate::faults::Lies;
use crate::port::Port;
use crate::shared::SharedPages;

/// What a model may use while it is called. Nothing here blocks, and time is data: so a model does the same
/// for the same calls.
pub struct Context<'a> {
    /// Memory and interrupts.
    pub bus: &'a mut dyn Bus,
    /// The wire.
    pub port: &'a mut dyn Port,
    /// What the model is to lie about.
    pub lies: &'a mut Lies,
    /// The function's configuration space, for what the chip looks up in it.
    pub config: &'a Config,
    /// Time since the model was made.
    pub now: Duration,
}

/// What a call of [`Model::work`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Descriptors and frames dealt with. 0: there is nothing to do until somebody rings or a frame arrives.
    pub done: usize,
    /// When the model wants to be called in any case.
    pub deadline: Option<Duration>,
}

impl Work {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let deadline = match (self.deadline, other.deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self { done: self.done + other.done, deadline }
    }
}

/// How many vectors of each kind a function has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vectors {
    /// 0 or 1.
    pub intx: u32,
    /// MSI-X vectors.
    pub msix: u32,
}

/// A part of a BAR that clients may map: memory that the model polls instead of a message for each store.
#[derive(Clone)]
pub struct Window {
    /// Which BAR.
    pub bar: u8,
    /// The memory, and where in the BAR it lies.
    pub pages: SharedPages,
}

/// One kind of network adapter, register by register.
///
/// A client is not trusted: whatever it writes, into registers, rings or descriptors, a model neither panics
/// nor loops nor allocates beyond a bound, and reaches memory through its bus only.
pub trait Model: Send {
    /// In words: `e1000`, `virtio-net`.
    fn kind(&self) -> &'static str;

    /// Configuration space at power-on.
    fn config(&self) -> Config;

    /// Interrupt vectors.
    fn vectors(&self) -> Vectors;

    /// What may be mapped.
    fn windows(&self) -> Vec<Window> {
        Vec::new()
    }

    /// Whether what may be mapped is memory, and no doorbells: then it may be mapped however these are rung.
    fn is_memory(&self) -> bool {
        false
    }

    /// Reads registers: any range of any length within the BAR.
    fn read(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, into: &mut [u8]);

    /// Writes registers: any range of any length within the BAR.
    fn write(&mut self, context: &mut Context<'_>, bar: u8, offset: u64, from: &[u8]);

    /// To the state at power-on; the pin goes down.
    fn reset(&mut self, context: &mut Context<'_>);

    /// Does what there is to do, for about `budget` descriptors or frames: looks at doorbells, works on rings,
    /// takes frames that arrived, follows the link.
    fn work(&mut self, context: &mut Context<'_>, budget: usize) -> Work;
}
