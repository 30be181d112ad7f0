//! The protection tags of a NIC.

use std::collections::HashSet;

use crate::{Error, ProtectionTag, Result};

/// Most tags of a NIC at a time.
pub(crate) const MAX_TAGS: usize = 1 << 16;

/// The tags that are in being. A number is never used twice: whoever still has a tag that is no more cannot mean another.
pub(crate) struct Tags {
    nic: u32,
    made: u32,
    live: HashSet<u32>,
}

impl Tags {
    /// None yet, for the NIC of that number.
    pub(crate) fn new(nic: u32) -> Self {
        Self { nic, made: 0, live: HashSet::new() }
    }

    /// A new one.
    pub(crate) fn create(&mut self) -> Result<ProtectionTag> {
        if self.live.len() >= MAX_TAGS {
            return Err(Error::Resource { what: "protection tags", limit: MAX_TAGS });
        }
        let made = self.made.checked_add(1);
        self.made = made.ok_or(Error::Resource { what: "protection tags ever", limit: u32::MAX as usize })?;
        self.live.insert(self.made);
        Ok(ProtectionTag::new(self.nic, self.made))
    }

    /// Whether a tag was made here.
    pub(crate) fn is_of(&self, tag: ProtectionTag) -> bool {
        tag.nic() == self.nic
    }

    /// Refuses a tag of another NIC, and one that is no more.
    pub(crate) fn check(&self, tag: ProtectionTag) -> Result<()> {
        if !self.is_of(tag) {
            return Err(Error::Parameter("the protection tag was made by another NIC".to_owned()));
        }
        if !self.live.contains(&tag.id()) {
            return Err(Error::Parameter("the protection tag is no more".to_owned()));
        }
        Ok(())
    }

    /// One is no more.
    pub(crate) fn destroy(&mut self, tag: ProtectionTag) {
        self.live.remove(&tag.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_of_those_in_being_and_no_tag_comes_again() {
        let mut tags = Tags::new(7);
        let first = tags.create().unwrap();
        let all: Vec<_> = (1..MAX_TAGS).map(|_| tags.create().unwrap()).collect();
        assert!(matches!(tags.create(), Err(Error::Resource { limit: MAX_TAGS, .. })));
        tags.destroy(first);
        assert!(tags.check(first).is_err());
        let next = tags.create().unwrap();
        assert!(next != first && !all.contains(&next) && tags.check(next).is_ok());
        assert!(Tags::new(8).check(next).is_err());
    }
}
