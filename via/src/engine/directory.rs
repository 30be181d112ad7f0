//! Which interface a connection's numbers mean, without looking at all interfaces. Its entries may be out of date:
//! whoever looks one up sees whether the interface still is what it was.

use std::collections::HashMap;

use uvia_driver::nic::MacAddress;

/// A connection as its peer calls it.
type ByPeer = (MacAddress, u64);

/// The interfaces of an engine by what they are called on the wire.
#[derive(Default)]
pub(super) struct Directory {
    by_identity: HashMap<u64, u16>,
    by_peer: HashMap<ByPeer, u16>,
    /// Those that ask for a peer that asks too.
    pub(super) meeting: Vec<u16>,
}

/// What an interface is listed by.
#[derive(Default)]
pub(super) struct Listed {
    identity: Option<u64>,
    peer: Option<ByPeer>,
    /// It is among those that ask for a peer.
    pub(super) meeting: bool,
}

impl Directory {
    /// Lists an interface by an identity of ours, and not by its last one any more.
    pub(super) fn list(&mut self, listed: &mut Listed, slot: u16, identity: u64) {
        if let Some(before) = listed.identity.replace(identity) {
            self.by_identity.remove(&before);
        }
        self.by_identity.insert(identity, slot);
    }

    /// Lists it by its peer, and not by its last one any more.
    pub(super) fn list_peer(&mut self, listed: &mut Listed, slot: u16, peer: MacAddress, identity: u64) {
        self.strike_peer(listed, slot);
        listed.peer = Some((peer, identity));
        self.by_peer.insert((peer, identity), slot);
    }

    fn strike_peer(&mut self, listed: &mut Listed, slot: u16) {
        // A host may have called two of its connections the same: then the entry is another interface's.
        if let Some(before) = listed.peer.take()
            && self.by_peer.get(&before) == Some(&slot)
        {
            self.by_peer.remove(&before);
        }
    }

    /// The interface is gone.
    pub(super) fn strike(&mut self, listed: &mut Listed, slot: u16) {
        if let Some(before) = listed.identity.take() {
            self.by_identity.remove(&before);
        }
        self.strike_peer(listed, slot);
        if std::mem::take(&mut listed.meeting) {
            self.meeting.retain(|other| *other != slot);
        }
    }

    /// Whose identity that may be.
    pub(super) fn find(&self, identity: u64) -> Option<usize> {
        self.by_identity.get(&identity).map(|slot| usize::from(*slot))
    }

    /// Who may be connected to that.
    pub(super) fn find_peer(&self, peer: MacAddress, identity: u64) -> Option<usize> {
        self.by_peer.get(&(peer, identity)).map(|slot| usize::from(*slot))
    }

    /// Entries, for a test that looks for growth.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_identity.len() + self.by_peer.len() + self.meeting.len()
    }
}
