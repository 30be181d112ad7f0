//! Devices with packed virtqueues in use.

use uvia_driver::Result;
use uvia_driver::nic::NicConfig;

use crate::conformance::{Bench, Effort, Line, Opened};

/// A bench of virtio devices that offer packed virtqueues, opened with these.
pub struct PackedRings<B>(pub B);

impl<B: Bench> Bench for PackedRings<B> {
    fn effort(&self) -> Effort {
        self.0.effort()
    }

    fn open(&self, config: &NicConfig) -> Result<[Opened; 2]> {
        let opened = self.0.open(&NicConfig { packed_rings: true, ..config.clone() })?;
        for Opened { nic, .. } in &opened {
            assert_eq!(nic.properties().driver, "virtio-packed", "what is offered and asked for is used");
        }
        Ok(opened)
    }

    fn cable(&self, end: usize, line: Line) {
        self.0.cable(end, line);
    }

    fn remove(&self, end: usize) {
        self.0.remove(end);
    }

    fn dropped(&self, end: usize) -> Option<u64> {
        self.0.dropped(end)
    }

    fn stray(&self) -> Option<u64> {
        self.0.stray()
    }

    fn mapped(&self) -> Option<usize> {
        self.0.mapped()
    }
}
