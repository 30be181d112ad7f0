//! Host names: a table, and a question to all hosts on the wire.

use std::collections::HashMap;

use uvia_driver::nic::MacAddress;

use super::core::Core;
use super::{Event, MAX_HOSTS, MAX_NAME, MAX_QUERIES, Output, Time};
use crate::wire::control::{Control, Envelope, emit};
use crate::{Error, Result};

/// Wait before the question is repeated; doubled each time.
const FIRST: u64 = 20_000_000;
/// Longest wait.
const LONGEST: u64 = 320_000_000;

struct Query {
    name: String,
    nonce: u64,
    frame: Vec<u8>,
    next: Time,
    interval: u64,
    expires: Time,
}

/// What is known of hosts.
#[derive(Default)]
pub(super) struct Names {
    hosts: HashMap<String, MacAddress>,
    queries: Vec<Query>,
}

impl Names {
    pub(super) fn add(&mut self, name: &str, mac: MacAddress) -> Result<()> {
        check_name(name)?;
        if self.hosts.len() >= MAX_HOSTS && !self.hosts.contains_key(name) {
            return Err(Error::Resource { what: "host names", limit: MAX_HOSTS });
        }
        self.hosts.insert(name.to_owned(), mac);
        Ok(())
    }

    pub(super) fn resolve<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        name: &str,
        timeout: u64,
        out: &mut O,
    ) -> Result<()> {
        check_name(name)?;
        let known =
            if name == core.config.name { Some(core.config.mac) } else { self.hosts.get(name).copied() };
        if let Some(mac) = known {
            out.event(Event::Resolved { name: name.to_owned(), mac });
            return Ok(());
        }
        let expires = now.after(timeout);
        if let Some(query) = self.queries.iter_mut().find(|q| q.name == name) {
            // One answer serves all who ask.
            query.expires = query.expires.max(expires);
            return Ok(());
        }
        if self.queries.len() >= MAX_QUERIES {
            return Err(Error::Resource { what: "names looked for at a time", limit: MAX_QUERIES });
        }
        let nonce = core.identities.next();
        let envelope = Envelope {
            to: MacAddress::BROADCAST.0,
            from: core.config.mac.0,
            slot: 0,
            identity: 0,
            sender: nonce,
        };
        let frame = emit(&envelope, &Control::Query { name });
        self.queries.push(Query { name: name.to_owned(), nonce, frame, next: now, interval: FIRST, expires });
        self.tend(core, now, out);
        Ok(())
    }

    /// Somebody says that it has a name.
    pub(super) fn answered<O: Output + ?Sized>(
        &mut self,
        nonce: u64,
        name: &str,
        mac: MacAddress,
        out: &mut O,
    ) {
        if let Some(n) = self.queries.iter().position(|q| q.nonce == nonce && q.name == name) {
            let query = self.queries.swap_remove(n);
            out.event(Event::Resolved { name: query.name, mac });
        }
    }

    /// Repeats what is due, and gives up what took too long.
    pub(super) fn tend<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) {
        let mut n = 0;
        while n < self.queries.len() {
            let query = &mut self.queries[n];
            if query.expires <= now {
                let query = self.queries.swap_remove(n);
                out.event(Event::Unresolved { name: query.name });
                continue;
            }
            if query.next <= now {
                if core.control(now, &query.frame, out) {
                    query.next = now.after(query.interval);
                    query.interval = (query.interval * 2).min(LONGEST);
                } else {
                    query.next = now.after(FIRST / 20);
                }
            }
            core.wake(query.next.min(query.expires));
            n += 1;
        }
    }
}

/// Refuses a name that does not fit a frame.
pub(super) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Error::Parameter(format!("a host name has 1 to {MAX_NAME} bytes, and {name:?} has not")));
    }
    Ok(())
}
