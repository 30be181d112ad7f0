//! Several receives at once: the NIC is taken once for all of them.

use super::Vi;
use crate::{Descriptor, Operation, Result, WorkQueue};

impl Vi {
    /// Posts several receives, in order, as [`Vi::post_receive`] does one. Those that could not be posted stay there.
    ///
    /// # Errors
    /// As [`Vi::post_receive`], for the first that could not be posted.
    pub fn post_receives(&self, descriptors: &mut Vec<Box<Descriptor>>) -> Result<()> {
        // Read once for all of them.
        let tag = self.tag();
        let plain = |descriptor: &Descriptor| {
            matches!(&descriptor.segments[..], [segment] if segment.region().tag() == tag)
                && descriptor.operation == Operation::Send
        };
        let depth = self.receive.depth;
        if descriptors.iter().all(|descriptor| plain(descriptor))
            && self.credits.take_many(WorkQueue::Receive, depth, descriptors.len())
        {
            self.nic.post_receives(self.id, descriptors);
            return Ok(());
        }
        self.post_one_by_one(descriptors)
    }

    #[cold]
    #[inline(never)]
    #[expect(clippy::vec_box, reason = "they move by the box")]
    fn post_one_by_one(&self, descriptors: &mut Vec<Box<Descriptor>>) -> Result<()> {
        // The first is taken from the end: the program's room for them stays its own, to be filled again without allocating.
        descriptors.reverse();
        while let Some(descriptor) = descriptors.pop() {
            if let Err(refused) = self.post_receive(descriptor) {
                descriptors.push(refused.descriptor);
                descriptors.reverse();
                return Err(refused.error);
            }
        }
        Ok(())
    }
}
