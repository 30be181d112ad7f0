//! An adapter: it has so many slots, fetches frames from memory some time after they were offered, and says later,
//! in any order, that it is done with them.

use std::collections::VecDeque;

use super::rng::Rng;
use crate::engine::{Event, FrameToken, Output, PayloadPart, Sent};
use crate::{Completion, ErrorCode, MemoryHandle, MemoryRegion, ViId};

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

/// Registered memory that a frame refers to.
struct Reference {
    token: FrameToken,
    parts: Vec<(MemoryRegion, usize, usize)>,
    /// Over its bytes when it was offered: whoever posted it must not have it back before `transmitted`, and the
    /// workload overwrites what it has back. None for memory that its owner may change while it is read from afar.
    check: Option<u32>,
}

impl Reference {
    fn verify(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        for (region, offset, len) in &self.parts {
            let at = bytes.len();
            bytes.resize(at + len, 0);
            region.read(*offset, &mut bytes[at..]).unwrap();
        }
        if let Some(check) = self.check {
            let now = crc32c::crc32c(&bytes[start..]);
            assert_eq!(now, check, "memory was given back while a frame refers to it");
        }
    }
}

struct Entry {
    bytes: Vec<u8>,
    reference: Option<Reference>,
    fetch_at: u64,
}

/// What an engine talks to.
pub(super) struct Port {
    pub(super) now: u64,
    pub(super) completions: VecDeque<Completion>,
    pub(super) events: VecDeque<Event>,
    pub(super) errors: Vec<(ViId, ErrorCode)>,
    /// Frames that were offered, full or not.
    pub(super) offered: u64,
    pub(super) behaviour: Behaviour,
    pub(super) max_segments: usize,
    /// Bytes of a frame after its first 14, at most.
    pub(super) largest: usize,
    /// Regions that peers read while their owner changes them.
    pub(super) shared: Vec<MemoryHandle>,
    /// What a byte takes onto the wire, nanoseconds; and when the last one is there.
    pub(super) per_byte: u64,
    free_at: u64,
    rng: Rng,
    queue: VecDeque<Entry>,
    /// Fetched, and not yet given notice of.
    done: Vec<(u64, Reference)>,
    scratch: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl Port {
    pub(super) fn new(behaviour: Behaviour, max_segments: usize, largest: usize, seed: u64) -> Self {
        Self {
            now: 0,
            completions: VecDeque::new(),
            events: VecDeque::new(),
            errors: Vec::new(),
            offered: 0,
            behaviour,
            max_segments,
            largest,
            shared: Vec::new(),
            per_byte: 0,
            free_at: 0,
            rng: Rng(seed),
            queue: VecDeque::new(),
            done: Vec::new(),
            scratch: Vec::new(),
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
        if let Some(reference) = entry.reference {
            reference.verify(&mut entry.bytes);
            let after = self.rng.below(self.behaviour.notice + 1);
            self.done.push((self.now + after, reference));
        }
        Some(entry.bytes)
    }

    /// The next frame that it is done with.
    pub(super) fn reclaim(&mut self) -> Option<FrameToken> {
        let n = self.done.iter().position(|(at, _)| *at <= self.now)?;
        let (_, reference) = self.done.swap_remove(n);
        self.scratch.clear();
        reference.verify(&mut self.scratch);
        Some(reference.token)
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
        assert!(len <= self.largest + 14, "a frame of {len} bytes");
        assert!(payload.iter().all(|part| part.len != 0));
        if self.queue.len() + self.done.len() >= self.behaviour.slots {
            return Sent::Full;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(header);
        let ready_at = self.now + self.rng.below(self.behaviour.fetch + 1);
        let fetch_at = self.free_at.max(ready_at) + len as u64 * self.per_byte;
        self.free_at = fetch_at;
        let copied = payload.is_empty() || self.rng.chance(self.behaviour.copies);
        let start = bytes.len();
        for part in payload {
            let at = bytes.len();
            bytes.resize(at + part.len, 0);
            part.region.read(part.offset, &mut bytes[at..]).unwrap();
        }
        let reference = (!copied).then(|| {
            let shared = payload.iter().any(|part| self.shared.contains(&part.region.handle()));
            let check = (!shared).then(|| crc32c::crc32c(&bytes[start..]));
            bytes.truncate(start);
            let parts = payload.iter().map(|part| (part.region.clone(), part.offset, part.len)).collect();
            Reference { token, parts, check }
        });
        let entry = Entry { bytes, reference, fetch_at };
        self.queue.push_back(entry);
        if copied { Sent::Copied } else { Sent::Referenced }
    }

    fn probe(&mut self, frame: &[u8], len: usize) -> Sent {
        self.offered += 1;
        assert!(len <= self.largest + 14 && frame.len() <= len, "a probe of {len} bytes");
        if self.queue.len() + self.done.len() >= self.behaviour.slots {
            return Sent::Full;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(frame);
        bytes.resize(len, 0);
        let fetch_at = self.free_at.max(self.now) + len as u64 * self.per_byte;
        self.free_at = fetch_at;
        self.queue.push_back(Entry { bytes, reference: None, fetch_at });
        Sent::Copied
    }

    fn complete(&mut self, completion: Completion) {
        self.completions.push_back(completion);
    }

    fn event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    fn error(&mut self, vi: ViId, code: ErrorCode) {
        self.errors.push((vi, code));
    }
}
