//! What the engine tells of connections and names, in the words of the API.

use std::time::Duration;

use super::Port;
use crate::provider::Event;
use crate::sinks::Sinks;
use crate::{NetAddress, Peer, engine};

impl Port {
    /// Passes news on.
    pub(super) fn tell(&mut self, event: engine::Event, sinks: &mut Sinks) {
        let event = match event {
            // Listeners ask for the next request themselves; who sleeps meanwhile is woken.
            engine::Event::Request { .. } => return sinks.tell_news(),
            engine::Event::Connected { vi, attributes, private_data } => {
                let Some((address, _)) = self.asked.remove(&vi) else { return };
                Event::Connected(vi, peer(address, attributes, private_data))
            }
            engine::Event::ConnectFailed { vi, reason } => {
                let Some((address, timeout)) = self.asked.remove(&vi) else { return };
                Event::ConnectFailed(vi, failure(reason, &address, timeout))
            }
            engine::Event::Broken { vi, loss } => Event::Broken(vi, loss),
            engine::Event::Resolved { name, mac } => Event::Resolved(name, mac),
            engine::Event::Unresolved { name } => Event::Unresolved(name),
        };
        sinks.event(event);
    }
}

pub(super) fn peer(address: NetAddress, attributes: engine::RemoteAttributes, private_data: Vec<u8>) -> Peer {
    Peer {
        address,
        reliability: attributes.reliability,
        max_transfer_size: attributes.max_transfer_size,
        qos: attributes.qos,
        rdma_write: attributes.rdma_write,
        rdma_read: attributes.rdma_read,
        integrity: attributes.integrity,
        private_data,
    }
}

fn failure(reason: engine::ConnectFailure, address: &NetAddress, timeout: Duration) -> crate::Error {
    match reason {
        engine::ConnectFailure::Timeout => crate::Error::Timeout {
            what: format!("connecting to {address:?}"),
            millis: timeout.as_millis() as u64,
        },
        engine::ConnectFailure::Rejected { private_data } => crate::Error::Rejected { private_data },
        engine::ConnectFailure::NoMatch => crate::Error::NoMatch(format!("{address:?}")),
        engine::ConnectFailure::Mismatch { theirs } => crate::Error::Mismatch {
            reliability: theirs.reliability,
            max_transfer_size: theirs.max_transfer_size,
            qos: theirs.qos,
        },
    }
}
