//! What was posted while another thread held the engine.

use crossbeam::queue::ArrayQueue;

use crate::{Descriptor, ViId, WorkQueue};

/// A descriptor that was checked and counted, and where it belongs.
pub(crate) type Post = (ViId, WorkQueue, Box<Descriptor>);

/// Descriptors that can wait while another thread holds the engine; beyond it a poster waits for its turn.
const MOST: usize = 4096;

/// A queue of them, in the order in which they were posted.
pub(crate) type Posts = ArrayQueue<Post>;

/// An empty one.
pub(crate) fn queue() -> Posts {
    ArrayQueue::new(MOST)
}
