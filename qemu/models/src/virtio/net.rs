//! The network device behind the queues (VIRTIO 1.2, 5.1.6).

use super::filter::Filter;
use super::queue::Queue;
use super::ring::{Chain, RingFault};
use crate::model::Context;
use crate::port::{Frame, LONGEST};

/// Bytes of `struct virtio_net_hdr` with VERSION_1, and where its num_buffers lies.
const HEADER: usize = 12;
const NUM_BUFFERS: usize = 10;
/// Bytes of an Ethernet header, which come on top of an MTU, and those of a VLAN tag, and its ethertype.
const ETHERNET: usize = 14;
const TAG: usize = 4;
const TAGGED: [u8; 2] = [0x81, 0x00];
/// Chains that one frame may take with MRG_RXBUF.
const MOST_CHAINS: usize = 64;

/// Commands (5.1.6.5): class, command.
const RX_PROMISC: [u8; 2] = [0, 0];
const RX_ALLMULTI: [u8; 2] = [0, 1];
const MAC_TABLE_SET: [u8; 2] = [1, 0];
const MAC_ADDR_SET: [u8; 2] = [1, 1];
const OK: u8 = 0;
const ERR: u8 = 1;
/// The longest command: a table of addresses.
const LONGEST_COMMAND: usize = 64 * 1024;

/// What the device keeps of frames between calls.
pub(super) struct Net {
    pub(super) mac: [u8; 6],
    pub(super) filter: Filter,
    /// The longest frame, either way, but for a tag.
    longest: usize,
    /// A frame that waits for buffers, and those that were taken for it so far.
    waiting: Option<Frame>,
    chains: Vec<Chain>,
    spare: Chain,
    bytes: Vec<u8>,
}

impl Net {
    pub(super) fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            filter: Filter::open(),
            longest: LONGEST,
            waiting: None,
            chains: Vec::new(),
            spare: Chain::default(),
            bytes: Vec::new(),
        }
    }

    /// The driver knows of an MTU: frames that exceed it are not passed on, either way (5.1.4.1).
    pub(super) fn limit(&mut self, mtu: u16) {
        self.longest = LONGEST.min(usize::from(mtu) + ETHERNET);
    }

    fn is_passed_on(&self, frame: &[u8]) -> bool {
        let tag = if frame.get(12..ETHERNET) == Some(&TAGGED) { TAG } else { 0 };
        frame.len() <= LONGEST.min(self.longest + tag)
    }

    /// Sends up to `budget` frames; answers how many chains there were.
    pub(super) fn transmit(
        &mut self,
        context: &mut Context<'_>,
        queue: &mut Queue,
        budget: usize,
    ) -> Result<usize, RingFault> {
        let mut done = 0;
        while done < budget && queue.pop(context.bus, &mut self.spare)? {
            done += 1;
            // A frame that cannot be fetched, or is none, is done with all the same.
            let fetched = self.spare.read(context.bus, HEADER + LONGEST, &mut self.bytes);
            let frame = self.bytes.get(HEADER..).unwrap_or_default();
            if fetched == Ok(true) && !frame.is_empty() && self.is_passed_on(frame) {
                context.port.send(frame.to_vec());
            }
            queue.give_back(context, self.spare.id, 0)?;
        }
        Ok(done)
    }

    /// Takes up to `budget` frames; answers how many there were.
    pub(super) fn receive(
        &mut self,
        context: &mut Context<'_>,
        queue: &mut Queue,
        mergeable: bool,
        budget: usize,
    ) -> Result<usize, RingFault> {
        context.port.missed(); // virtio counts nothing
        let mut done = 0;
        while done < budget {
            let Some(frame) = self.waiting.take().or_else(|| context.port.receive()) else { break };
            if !self.is_passed_on(&frame) || !self.filter.accepts(&frame, self.mac) {
                done += 1;
                continue;
            }
            let needed = (HEADER + frame.len()) as u64;
            if !self.gather(context, queue, needed, mergeable)? {
                self.waiting = Some(frame);
                break;
            }
            done += 1;
            let room: u64 = self.chains.iter().map(|chain| chain.bytes(true)).sum();
            if mergeable || room >= needed {
                self.store(context, queue, &frame)?;
            }
            // Else it is lost, and the buffer serves the next one: the driver offers too little.
        }
        Ok(done)
    }

    /// Takes buffers until a frame fits; false when there are too few so far.
    fn gather(
        &mut self,
        context: &mut Context<'_>,
        queue: &mut Queue,
        needed: u64,
        mergeable: bool,
    ) -> Result<bool, RingFault> {
        let most = if mergeable { MOST_CHAINS } else { 1 };
        loop {
            let room: u64 = self.chains.iter().map(|chain| chain.bytes(true)).sum();
            if room >= needed || self.chains.len() >= most {
                return Ok(!self.chains.is_empty());
            }
            let mut chain = Chain::default();
            if !queue.pop(context.bus, &mut chain)? {
                return Ok(false);
            }
            if chain.bytes(true) < HEADER as u64 || chain.bytes(false) > 0 {
                return Err(RingFault::Chain);
            }
            self.chains.push(chain);
        }
    }

    /// Puts a frame into the buffers that were taken. One that is longer than all that one may take with MRG_RXBUF loses
    /// its end.
    fn store(&mut self, context: &mut Context<'_>, queue: &mut Queue, frame: &[u8]) -> Result<(), RingFault> {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
        self.bytes[NUM_BUFFERS] = self.chains.len() as u8;
        self.bytes.extend_from_slice(frame);
        let mut left = &self.bytes[..];
        // All bytes before the first is given back: the header says how many buffers belong together.
        let mut lengths = [0; MOST_CHAINS];
        for (chain, length) in self.chains.iter().zip(&mut lengths) {
            let lies = &mut *context.lies;
            let room = left.len().min(usize::try_from(chain.bytes(true)).unwrap_or(usize::MAX));
            // A buffer that cannot be reached gets nothing, and the driver is told the truth about that.
            *length = chain.write(context.bus, &left[..room], |address| lies.storage(address)).unwrap_or(0);
            left = &left[room..];
        }
        let mut outcome = Ok(());
        for (chain, length) in self.chains.drain(..).zip(lengths) {
            outcome = outcome.and(queue.give_back(context, chain.id, length));
        }
        outcome
    }

    /// Does up to `budget` commands of the control queue.
    pub(super) fn command(
        &mut self,
        context: &mut Context<'_>,
        queue: &mut Queue,
        budget: usize,
    ) -> Result<usize, RingFault> {
        let mut done = 0;
        while done < budget && queue.pop(context.bus, &mut self.spare)? {
            done += 1;
            let fetched = self.spare.read(context.bus, LONGEST_COMMAND, &mut self.bytes);
            let bytes = std::mem::take(&mut self.bytes);
            let answer = if fetched == Ok(true) && self.obey(&bytes) { OK } else { ERR };
            self.bytes = bytes;
            let written = self.spare.write(context.bus, &[answer], |address| address).unwrap_or(0);
            queue.give_back(context, self.spare.id, written)?;
        }
        Ok(done)
    }

    fn obey(&mut self, command: &[u8]) -> bool {
        let Some((head, body)) = command.split_first_chunk::<2>() else { return false };
        match (*head, body) {
            (RX_PROMISC, [on]) => self.filter.promiscuous = *on != 0,
            (RX_ALLMULTI, [on]) => self.filter.all_multicast = *on != 0,
            (MAC_TABLE_SET, body) => return self.filter.set_tables(body),
            (MAC_ADDR_SET, body) => match <[u8; 6]>::try_from(body) {
                Ok(mac) => self.mac = mac,
                Err(_) => return false,
            },
            _ => return false,
        }
        true
    }
}
