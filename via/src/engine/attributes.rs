//! What interfaces are made with, and may be changed to.

use super::Engine;
use crate::{Error, ProtectionTag, Result, ViAttributes, ViId, ViState};

impl Engine {
    /// Whether a region or an interface is of that tag.
    pub fn uses_tag(&self, tag: ProtectionTag) -> bool {
        let mut endpoints = self.vis.iter().filter_map(|slot| slot.endpoint.as_deref());
        endpoints.any(|endpoint| endpoint.attributes.tag == tag) || self.core.regions.uses(tag)
    }

    /// Changes an idle interface. The attributes were checked as for a new one; its queues are not made anew.
    ///
    /// # Errors
    /// [`Error::State`] when it is not idle, [`Error::Parameter`] for one that is no more.
    pub fn set_vi_attributes(&mut self, vi: ViId, attributes: &ViAttributes) -> Result<()> {
        let (_, endpoint) = self.vi(vi)?;
        match endpoint.state {
            ViState::Idle => endpoint.attributes = *attributes,
            state => return Err(Error::State(state)),
        }
        Ok(())
    }
}
