//! RDMA writes of many frames over a connected pair, for counting what each of their frames costs.

use uvia::{Completions, Descriptor, MemoryRegion, Operation};

use crate::ViPair;

/// Writes under way at a time.
const AHEAD: usize = 2;

/// A stream of RDMA writes from a to b, driven from one thread.
pub struct LongWrites {
    pair: ViPair,
    // Posted by the box: what is kept is the box.
    #[expect(clippy::vec_box)]
    idle: Vec<Box<Descriptor>>,
    completions: Completions,
    /// Registered for as long as it is written.
    _target: MemoryRegion,
}

impl LongWrites {
    /// Writes of `size` bytes each, into the same memory.
    ///
    /// # Errors
    /// The memory cannot be registered.
    pub fn new(pair: ViPair, size: usize) -> uvia::Result<Self> {
        let (source, target) = (pair.a.memory(size)?, pair.b.memory(size)?);
        let mut idle = Vec::new();
        for _ in 0..AHEAD {
            let mut descriptor = Descriptor::new(vec![source.segment(0..size)?]);
            descriptor.operation = Operation::RdmaWrite(target.remote(0)?);
            idle.push(descriptor);
        }
        Ok(Self { pair, idle, completions: Completions::with_capacity(AHEAD), _target: target })
    }

    /// Posts what may be under way, and drives both ends until one write has completed. `turn` is called with each turn of
    /// the two.
    ///
    /// # Errors
    /// A fault of an adapter; a post that is refused.
    pub fn round(&mut self, mut turn: impl FnMut()) -> uvia::Result<()> {
        let ViPair { a, b } = &self.pair;
        while let Some(descriptor) = self.idle.pop() {
            a.vi.post_send(descriptor).map_err(|refused| refused.error)?;
        }
        while self.idle.is_empty() {
            turn();
            b.nic.poll()?;
            a.cq.poll_into(&mut self.completions)?;
            while let Some(completion) = self.completions.pop() {
                assert!(completion.descriptor.status().is_success(), "{:?}", completion.descriptor.status());
                self.idle.push(completion.descriptor);
            }
        }
        Ok(())
    }

    /// As [`LongWrites::round`], until nothing is under way and the ends have nothing more to tell each other.
    ///
    /// # Errors
    /// A fault of an adapter.
    pub fn drain(&mut self, mut turn: impl FnMut()) -> uvia::Result<()> {
        /// Turns after the last one that has brought something: with 1 us each, more than an acknowledgement waits.
        const QUIET: usize = 2_000;
        let ViPair { a, b } = &self.pair;
        let mut quiet = 0;
        while self.idle.len() < AHEAD || quiet < QUIET {
            turn();
            let came = b.nic.poll()? + a.nic.poll()? + a.cq.poll_into(&mut self.completions)?;
            while let Some(completion) = self.completions.pop() {
                assert!(completion.descriptor.status().is_success(), "{:?}", completion.descriptor.status());
                self.idle.push(completion.descriptor);
            }
            quiet = if came == 0 { quiet + 1 } else { 0 };
        }
        Ok(())
    }

    /// The pair.
    pub fn pair(&self) -> &ViPair {
        &self.pair
    }
}
