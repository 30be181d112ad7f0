//! The door to a packet carrier.

use std::time::Duration;

use super::wire::{Body, Head, Kind};
use uvia_tools::Failure;

/// Most packets that a link hands over at a time.
pub const BURST: usize = 64;

/// A received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Its head.
    pub head: Head,
    /// Its body, if it is a control packet.
    pub body: Body,
}

/// One end of a packet carrier that has at most one peer at a time.
pub trait Link {
    /// Smallest payload of a test, bytes.
    const LEAST: usize;
    /// What limits the largest, in words.
    const LIMIT: &'static str;

    /// Largest payload, bytes.
    fn max_payload(&self) -> usize;

    /// Largest payload that is measured without being asked for by number: what the network surely carries.
    fn usual_payload(&self) -> usize {
        self.max_payload()
    }

    /// Puts a packet with a payload of `size` bytes on its way to the peer, at the latest with [`Self::flush`].
    fn send(&mut self, head: Head, size: usize) -> Result<(), Failure>;

    /// Sends a control packet, at once.
    fn send_control(&mut self, head: Head, body: Body) -> Result<(), Failure>;

    /// See [`Self::send`].
    fn flush(&mut self) -> Result<(), Failure>;

    /// Hands over what has come from the peer (from anybody, while there is no peer), waiting up to `patience`
    /// for something, and up to [`BURST`] packets. What is not of a test is dropped.
    fn receive(&mut self, patience: Duration, sink: &mut dyn FnMut(Packet)) -> Result<(), Failure>;

    /// Whether what data packets carry is copied from now on, and not only counted.
    ///
    /// # Errors
    /// This carrier has always copied it already.
    fn keep(&mut self, on: bool) -> Result<(), Failure> {
        match on {
            true => {
                Err(Failure::failed("what this carrier brings was copied already: --copy is for raw frames"))
            }
            false => Ok(()),
        }
    }

    /// Makes the sender of what was received last the peer (`true`), or has no peer from now on.
    fn settle(&mut self, on: bool);
}

/// Waits for one certain packet; `None` when it does not come within `patience`.
#[inline]
pub fn expect<L: Link>(link: &mut L, head: Head, patience: Duration) -> Result<Option<Packet>, Failure> {
    // Late packets of what was given up before may come first. A clock would cost more than the packet, so
    // that they are counted: no more than this can be under way.
    const STALE: usize = 10_000;
    let mut found = None;
    for _ in 0..STALE {
        let mut any = false;
        link.receive(patience, &mut |packet: Packet| {
            any = true;
            if packet.head == head {
                found = Some(packet);
            }
        })?;
        if found.is_some() || !any {
            break;
        }
    }
    Ok(found)
}

/// Sends a control packet until the answer comes.
///
/// # Errors
/// It does not come within `patience`.
pub fn ask<L: Link>(
    link: &mut L,
    ask: Head,
    body: Body,
    answer: Kind,
    patience: Duration,
) -> Result<Packet, Failure> {
    const AGAIN: Duration = Duration::from_millis(100);
    let start = std::time::Instant::now();
    loop {
        link.send_control(ask, body)?;
        if let Some(packet) = expect(link, Head { kind: answer, ..ask }, AGAIN)? {
            return Ok(packet);
        }
        if start.elapsed() >= patience {
            return Err(Failure::failed(format!(
                "the other end did not answer within {:.1} s: is `uvia-perf --listen` running there, free, and the link up?",
                patience.as_secs_f64()
            )));
        }
    }
}
