//! An adapter: it has so many slots, fetches frames from memory some time after they were offered, and says later,
//! in any order, that it is done with them.

use std::collections::VecDeque;

use super::rng::Rng;
use crate::engine::{Event, FrameToken, Output, PayloadPart, Sent};
use crate::{Completion, MemoryRegion};

/// How an adapter behaves. Times are nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Behaviour {
    pub(super) slots: usize,
    /// Longest time from the offer to the fetch.
    pub(super) fetch: u64,
    /// Longest time from the fetch to the notice.
    pub(super) notice: u64,
    /// Of a million frames, those that are copied when they are offered.
    pub(super) copies: u64,
}

struct Entry {
    bytes: Vec<u8>,
    parts: Vec<(MemoryRegion, usize, usize)>,
    token: Option<FrameToken>,
    fetch_at: u64,
}

/// What an engine talks to.
pub(super) struct Port {
    pub(super) now: u64,
    pub(super) completions: VecDeque<Completion>,
    pub(super) events: VecDeque<Event>,
    /// Frames that were offered, full or not.
    pub(super) offered: u64,
    pub(super) behaviour: Behaviour,
    pub(super) max_segments: usize,
    pub(super) mtu: usize,
    rng: Rng,
    queue: VecDeque<Entry>,
    done: Vec<(u64, FrameToken)>,
    spare: Vec<Vec<u8>>,
}

impl Port {
    pub(super) fn new(behaviour: Behaviour, max_segments: usize, mtu: usize, seed: u64) -> Self {
        Self {
            now: 0,
            completions: VecDeque::new(),
            events: VecDeque::new(),
            offered: 0,
            behaviour,
            max_segments,
            mtu,
            rng: Rng(seed),
            queue: VecDeque::new(),
            done: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// When it does something next.
    pub(super) fn next(&self) -> Option<u64> {
        let fetch = self.queue.front().map(|entry| entry.fetch_at);
        let done = self.done.iter().map(|(at, _)| *at).min();
        fetch.into_iter().chain(done).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.done.is_empty()
    }

    /// The next frame that goes onto the wire now.
    pub(super) fn fetch(&mut self) -> Option<Vec<u8>> {
        if self.queue.front()?.fetch_at > self.now {
            return None;
        }
        let mut entry = self.queue.pop_front()?;
        for (region, offset, len) in &entry.parts {
            let start = entry.bytes.len();
            entry.bytes.resize(start + len, 0);
            region.read(*offset, &mut entry.bytes[start..]).unwrap();
        }
        if let Some(token) = entry.token {
            let after = self.rng.below(self.behaviour.notice + 1);
            self.done.push((self.now + after, token));
        }
        Some(entry.bytes)
    }

    /// The next frame that it is done with.
    pub(super) fn reclaim(&mut self) -> Option<FrameToken> {
        let n = self.done.iter().position(|(at, _)| *at <= self.now)?;
        Some(self.done.swap_remove(n).1)
    }

    /// A buffer that is no longer used.
    pub(super) fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < 256 {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

impl Output for Port {
    fn transmit(&mut self, header: &[u8], payload: &[PayloadPart<'_>], token: FrameToken) -> Sent {
        self.offered += 1;
        assert!(payload.len() <= self.max_segments, "{} payload segments", payload.len());
        let len: usize = header.len() + payload.iter().map(|part| part.len).sum::<usize>();
        assert!(len <= self.mtu + 14, "a frame of {len} bytes");
        assert!(payload.iter().all(|part| part.len != 0));
        if self.queue.len() + self.done.len() >= self.behaviour.slots {
            return Sent::Full;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(header);
        let last = self.queue.back().map_or(0, |entry| entry.fetch_at);
        let fetch_at = last.max(self.now + self.rng.below(self.behaviour.fetch + 1));
        let mut entry = Entry { bytes, parts: Vec::new(), token: None, fetch_at };
        let copied = payload.is_empty() || self.rng.chance(self.behaviour.copies);
        for part in payload {
            if copied {
                let start = entry.bytes.len();
                entry.bytes.resize(start + part.len, 0);
                part.region.read(part.offset, &mut entry.bytes[start..]).unwrap();
            } else {
                entry.parts.push((part.region.clone(), part.offset, part.len));
            }
        }
        if !copied {
            entry.token = Some(token);
        }
        self.queue.push_back(entry);
        if copied { Sent::Copied } else { Sent::Referenced }
    }

    fn complete(&mut self, completion: Completion) {
        self.completions.push_back(completion);
    }

    fn event(&mut self, event: Event) {
        self.events.push_back(event);
    }
}
