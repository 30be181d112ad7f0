//! One NIC of a pair: frames put and taken, tokens kept account of.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uvia_driver::Result;
use uvia_driver::dma::{DmaDomain, DmaMemory, DmaSegment, Rights};
use uvia_driver::nic::{MacAddress, Nic, TxFrame};

use super::frame::{self, PROBE, content};
use super::{Opened, PATIENCE};
use crate::Idle;

/// Slots beyond what the ring holds, so that a driver that takes too many is found out and not kept from it.
const SPARE: usize = 8;

/// One end.
pub struct End {
    // Before the memory that it may refer to.
    /// The NIC.
    pub nic: Box<dyn Nic>,
    memory: DmaMemory,
    /// Where memory for it is mapped.
    pub domain: Arc<dyn DmaDomain>,
    slot: usize,
    free: Vec<usize>,
    /// Tokens that are out, with the slot of each.
    out: HashMap<u64, usize>,
    next: u64,
    /// Who frames are sent to.
    pub peer: MacAddress,
    /// Probes received, by their tokens.
    pub(super) probed: Option<u64>,
}

impl End {
    pub(super) fn new(opened: Opened, peer: MacAddress, number: u64) -> Result<Self> {
        let properties = opened.nic.properties();
        let slot = properties.max_frame.next_power_of_two();
        let slots = properties.tx_slots + SPARE;
        let memory = DmaMemory::allocate(opened.domain.clone(), slot * slots, Rights::READ)?;
        let free = (0..slots).rev().collect();
        // Tokens have all of their bits used.
        let next = number << 62 | 0x0123_4567_89ab_0000;
        let (nic, domain) = (opened.nic, opened.domain);
        Ok(Self { nic, memory, domain, slot, free, out: HashMap::new(), next, peer, probed: None })
    }

    /// Its station address.
    pub fn mac(&self) -> MacAddress {
        self.nic.properties().mac
    }

    /// A frame of `len` bytes that can be sent any number of times: no token is kept account of.
    pub(super) fn lasting(&mut self, len: usize) -> DmaSegment {
        let at = self.free.pop().expect("there are more slots than the ring has");
        let bytes = content(self.mac(), self.peer, self.next, len);
        self.memory.write_bytes(at * self.slot, &bytes);
        self.memory.segment(at * self.slot..at * self.slot + len).expect("within a slot")
    }

    /// Tokens that are out.
    pub fn outstanding(&self) -> usize {
        self.out.len()
    }

    /// Puts a frame of `len` bytes in `parts` of about the same size into the ring: its content, or `None` when the
    /// ring is full.
    ///
    /// # Errors
    /// Those of the NIC.
    pub fn try_put(&mut self, len: usize, parts: usize) -> Result<Option<Vec<u8>>> {
        let cuts: Vec<_> = (1..parts).map(|n| len * n / parts).collect();
        self.try_put_cut(len, &cuts)
    }

    /// Puts a frame of `len` bytes, cut at these places.
    ///
    /// # Errors
    /// Those of the NIC.
    pub fn try_put_cut(&mut self, len: usize, cuts: &[usize]) -> Result<Option<Vec<u8>>> {
        let token = self.next;
        let sent = self.send(token, len, cuts)?;
        self.next += u64::from(sent.is_some());
        Ok(sent)
    }

    fn send(&mut self, token: u64, len: usize, cuts: &[usize]) -> Result<Option<Vec<u8>>> {
        // Beside what the ring holds there may be tokens that resets have dropped, and nobody took back yet.
        let Some(at) = self.free.pop() else { return Ok(None) };
        let bytes = content(self.mac(), self.peer, token, len);
        let start = at * self.slot;
        self.memory.write_bytes(start, &bytes);
        let mut segments: Vec<DmaSegment> = Vec::with_capacity(cuts.len() + 1);
        let mut from = 0;
        for to in cuts.iter().copied().chain([len]) {
            segments.push(self.memory.segment(start + from..start + to)?);
            from = to;
        }
        match self.nic.transmit(&TxFrame { segments: &segments, token }) {
            Ok(true) => {
                self.out.insert(token, at);
                Ok(Some(bytes))
            }
            other => {
                self.free.push(at);
                other.map(|_| None)
            }
        }
    }

    /// As [`Self::try_put`], on a NIC that works.
    pub fn put(&mut self, len: usize, parts: usize) -> Option<Vec<u8>> {
        self.try_put(len, parts).expect("a NIC that works takes frames")
    }

    /// Puts a frame and tells the device; waits for room where there is none.
    pub fn send_one(&mut self, len: usize, parts: usize) -> Vec<u8> {
        let (start, mut idle) = (Instant::now(), Idle::default());
        loop {
            if let Some(bytes) = self.put(len, parts) {
                self.nic.flush().expect("a NIC that works can be told of frames");
                return bytes;
            }
            if self.reclaim() == 0 {
                idle.pause();
            }
            assert!(start.elapsed() < PATIENCE, "there is no room in the ring, and there will be none");
        }
    }

    /// Sends a frame that only [`super::Pair::sync`] looks for: its token, or `None` when the ring is full.
    pub(super) fn probe(&mut self, number: u64) -> Result<Option<u64>> {
        let token = PROBE | number;
        let sent = self.send(token, frame::SHORTEST, &[])?;
        self.nic.flush()?;
        Ok(sent.map(|_| token))
    }

    /// Takes tokens back, and sees that each is one that is out: how many.
    ///
    /// # Errors
    /// Those of the NIC.
    pub fn try_reclaim(&mut self) -> Result<usize> {
        let (out, free) = (&mut self.out, &mut self.free);
        let mut came = 0;
        let count = self.nic.reclaim(&mut |token| {
            let slot =
                out.remove(&token).unwrap_or_else(|| panic!("token {token:#x} is not one that is out"));
            free.push(slot);
            came += 1;
        })?;
        assert_eq!(count, came, "as many tokens as it says");
        Ok(count)
    }

    /// As [`Self::try_reclaim`], on a NIC that works.
    pub fn reclaim(&mut self) -> usize {
        self.try_reclaim().expect("a NIC that works gives tokens back")
    }

    /// Takes back all tokens that are out, and sees that no more come.
    pub fn settle(&mut self) {
        let (start, mut idle) = (Instant::now(), Idle::default());
        while !self.out.is_empty() {
            if self.reclaim() == 0 {
                idle.pause();
            }
            assert!(start.elapsed() < PATIENCE, "{} tokens did not come back", self.out.len());
        }
        assert_eq!(self.reclaim(), 0, "tokens of nothing");
    }

    /// Frames of ours that are there now, up to `budget`.
    ///
    /// # Errors
    /// Those of the NIC.
    pub fn try_take(&mut self, budget: usize) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        let (mut shown, longest) = (0, self.nic.properties().max_frame);
        let probed = &mut self.probed;
        let count = self.nic.receive(budget, &mut |frame| {
            shown += 1;
            let mut bytes = vec![0; frame.len()];
            assert!(frame.read(0, &mut bytes) && !frame.read(1, &mut bytes), "a frame is as long as it says");
            match frame::token(&bytes) {
                Some(token) if token & PROBE != 0 && bytes.len() == frame::SHORTEST => *probed = Some(token),
                Some(_) => frames.push(bytes),
                None => {}
            }
        })?;
        assert_eq!(count, shown, "as many frames as it says");
        assert!(count <= budget, "{count} frames where {budget} were asked for");
        // Whatever a device says of a buffer, which may be longer.
        assert!(frames.iter().all(|frame| frame.len() <= longest), "a frame is longer than the longest");
        Ok(frames)
    }

    /// As [`Self::try_take`], on a NIC that works.
    pub fn take(&mut self, budget: usize) -> Vec<Vec<u8>> {
        self.try_take(budget).expect("a NIC that works receives")
    }

    /// The next frames, which must be exactly these.
    pub fn expect(&mut self, expected: &[Vec<u8>]) {
        let (start, mut idle) = (Instant::now(), Idle::default());
        let mut got = 0;
        while got < expected.len() {
            let frames = self.take(64);
            if frames.is_empty() {
                idle.pause();
            }
            for frame in frames {
                let wanted = expected.get(got).expect("no more frames than were sent");
                assert!(
                    frame == *wanted,
                    "frame {got} of {} bytes differs ({} came)",
                    wanted.len(),
                    frame.len()
                );
                got += 1;
            }
            assert!(start.elapsed() < PATIENCE, "only {got} of {} frames came", expected.len());
        }
    }

    /// Whether the interrupt is signalled within this time.
    pub fn readable(&self, wait: Duration) -> bool {
        let fd = self.nic.interrupt().expect("it has interrupts").as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, in a local.
        unsafe { libc::poll(&raw mut poll, 1, wait.as_millis() as i32) == 1 }
    }
}
