//! Ethernet frames through a NIC driver, as a [`Link`].

use std::time::{Duration, Instant};

use uvia_driver::dma::{DmaDomain, DmaMemory, DmaSegment, Rights};
use uvia_driver::nic::{MacAddress, Nic, RxFrame, TxFrame};
use uvia_tools::Failure;

use crate::datagram::{BURST, Body, HEAD, Head, Kind, LEAST_CONTROL, Link, Packet};
use crate::report;
use crate::spin::Spin;

/// The EtherType of these tests: local experimental, the second one.
const ETHER_TYPE: u16 = 0x88b6;
/// Destination, source, EtherType.
const HEADER: usize = 14;
/// Shortest frame without check sequence.
const SHORTEST: usize = 60;
/// Transmit buffers. More than any burst needs to keep a ring busy.
const SLOTS: usize = 64;
/// Memory for what is kept, used round and round.
const KEPT: usize = 1 << 20;
/// How long a NIC may take to send one frame.
const SENDING: Duration = Duration::from_secs(2);

/// One NIC with transmit buffers, and the station at the other end.
pub struct RawLink {
    // Declared first, so closed first: the device is quiet before the memory that it fetches from goes.
    nic: Box<dyn Nic>,
    memory: DmaMemory,
    /// Bytes from one buffer to the next.
    stride: usize,
    free: Vec<u16>,
    own: MacAddress,
    peer: Option<MacAddress>,
    last_source: MacAddress,
    kept: Option<Kept>,
    spin: Spin,
}

/// Where payloads are copied to, as those of RDMA writes are: by the driver, once, one behind the other.
struct Kept {
    bytes: Box<[u8]>,
    next: usize,
}

impl Kept {
    /// Copies what is behind the Ethernet header.
    #[inline]
    fn keep(&mut self, frame: &RxFrame<'_>) {
        let len = frame.len().saturating_sub(HEADER);
        if self.next + len > self.bytes.len() {
            self.next = 0;
        }
        if frame.read(HEADER, &mut self.bytes[self.next..self.next + len]) {
            self.next += len;
        }
    }
}

impl RawLink {
    /// Uses `nic`, whose device lives in `domain`, to talk to `peer`, or to whoever comes first.
    ///
    /// # Errors
    /// No memory, or none that can be mapped for the device.
    pub fn new(
        nic: Box<dyn Nic>,
        domain: std::sync::Arc<dyn DmaDomain>,
        peer: Option<MacAddress>,
    ) -> Result<Self, Failure> {
        let stride = nic.properties().max_frame.max(SHORTEST).next_multiple_of(64);
        let memory = DmaMemory::allocate(domain, SLOTS * stride, Rights::READ)?;
        let own = nic.properties().mac;
        let free = (0..SLOTS as u16).collect();
        let mut link = Self {
            nic,
            memory,
            stride,
            free,
            own,
            peer: None,
            last_source: MacAddress::default(),
            kept: None,
            spin: Spin::default(),
        };
        if let Some(peer) = peer {
            link.join(peer);
        }
        Ok(link)
    }

    /// From now on talks to `peer` alone.
    pub fn join(&mut self, peer: MacAddress) {
        self.peer = Some(peer);
        self.address_buffers(peer);
    }

    /// Waits for the link.
    ///
    /// # Errors
    /// It does not come up in time.
    pub fn wait_ready(&mut self, timeout: Duration) -> Result<(), Failure> {
        Ok(self.nic.wait_ready(timeout)?)
    }

    /// The station address.
    pub fn mac(&self) -> MacAddress {
        self.own
    }

    /// Says on standard error what the adapter has counted.
    pub fn tell_counters(&mut self) {
        let counted = self.nic.statistics();
        report::tell_counters(&self.nic.properties().device, self.own, &counted);
    }

    /// The driver's name.
    pub fn driver(&self) -> &'static str {
        self.nic.properties().driver
    }

    /// Writes the header into every buffer: a frame then needs nothing but its payload's head.
    fn address_buffers(&mut self, peer: MacAddress) {
        let mut header = [0; HEADER];
        header[..6].copy_from_slice(&peer.0);
        header[6..12].copy_from_slice(&self.own.0);
        header[12..].copy_from_slice(&ETHER_TYPE.to_be_bytes());
        for slot in 0..SLOTS {
            self.memory.write_bytes(slot * self.stride, &header);
        }
    }

    fn take_slot(&mut self) -> Result<u16, Failure> {
        match self.free.pop() {
            Some(slot) => Ok(slot),
            None => self.reclaim_until(|link| !link.free.is_empty()).and_then(|()| {
                self.free.pop().ok_or_else(|| Failure::failed("the NIC gives no transmit buffer back"))
            }),
        }
    }

    fn reclaim_until(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let mut start = None;
        loop {
            // The device may know of nothing yet that it could finish.
            self.nic.flush()?;
            let free = &mut self.free;
            self.nic.reclaim(&mut |token| free.push(token as u16))?;
            if done(self) {
                return Ok(());
            }
            if start.get_or_insert_with(Instant::now).elapsed() > SENDING {
                return Err(Failure::failed(format!(
                    "{}: frames were not sent within {} s",
                    self.nic.properties().device,
                    SENDING.as_secs()
                )));
            }
        }
    }

    fn put(&mut self, head: Head, body: Option<Body>, size: usize) -> Result<(), Failure> {
        let slot = self.take_slot()?;
        let offset = usize::from(slot) * self.stride;
        self.memory.write_bytes(offset + HEADER, &head.to_bytes());
        if let Some(body) = body {
            self.memory.write_bytes(offset + HEADER + HEAD, &body.to_bytes());
        }
        let len = (HEADER + size).max(SHORTEST);
        let segments: [DmaSegment; 1] = [self.memory.segment(offset..offset + len)?];
        let frame = TxFrame { segments: &segments, token: u64::from(slot) };
        let mut start = None;
        while !self.nic.transmit(&frame)? {
            self.nic.flush()?;
            let free = &mut self.free;
            self.nic.reclaim(&mut |token| free.push(token as u16))?;
            if start.get_or_insert_with(Instant::now).elapsed() > SENDING {
                return Err(Failure::failed(format!(
                    "{}: the transmit ring stays full",
                    self.nic.properties().device
                )));
            }
        }
        Ok(())
    }
}

/// Reads what is of a test: its source and the packet.
#[inline]
fn parse(frame: &RxFrame<'_>) -> Option<(MacAddress, Packet)> {
    let mut front = [0; HEADER + HEAD];
    if !frame.read(0, &mut front) || front[12..HEADER] != ETHER_TYPE.to_be_bytes() {
        return None;
    }
    let (header, head) = front.split_at(HEADER);
    let head = Head::parse(head.try_into().ok()?)?;
    let source = MacAddress(header[6..12].try_into().ok()?);
    let mut body = [0; LEAST_CONTROL - HEAD];
    if head.kind.is_control() && !frame.read(HEADER + HEAD, &mut body) {
        return None;
    }
    Some((source, Packet { head, body: Body::parse(body) }))
}

impl Link for RawLink {
    const LEAST: usize = 0;
    const LIMIT: &'static str = "the NIC's longest frame";

    /// Whether the network carries it is another matter: beyond the MTU it may lose all of them.
    fn max_payload(&self) -> usize {
        self.nic.properties().max_frame.saturating_sub(HEADER)
    }

    fn usual_payload(&self) -> usize {
        self.nic.properties().mtu.min(self.max_payload())
    }

    fn send(&mut self, head: Head, size: usize) -> Result<(), Failure> {
        self.put(head, None, size)
    }

    fn send_control(&mut self, head: Head, body: Body) -> Result<(), Failure> {
        self.put(head, Some(body), LEAST_CONTROL)?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.nic.flush()?)
    }

    fn receive(&mut self, patience: Duration, sink: &mut dyn FnMut(Packet)) -> Result<(), Failure> {
        /// Polls between looks at the clock, which costs more than a poll.
        const POLLS: u32 = 64;
        let mut start = None;
        let mut polls = 0u32;
        loop {
            for _ in 0..POLLS {
                let (peer, last, kept) = (self.peer, &mut self.last_source, &mut self.kept);
                let mut any = false;
                self.nic.receive(BURST, &mut |frame| {
                    if let Some((source, packet)) = parse(&frame)
                        && peer.is_none_or(|peer| peer == source)
                    {
                        any = true;
                        *last = source;
                        if let Some(kept) = kept
                            && packet.head.kind == Kind::Data
                        {
                            kept.keep(&frame);
                        }
                        sink(packet);
                    }
                })?;
                if any || patience.is_zero() {
                    return Ok(());
                }
                polls = polls.wrapping_add(1);
                self.spin.after(polls);
            }
            if start.get_or_insert_with(Instant::now).elapsed() >= patience {
                return Ok(());
            }
        }
    }

    fn keep(&mut self, on: bool) -> Result<(), Failure> {
        // Written to, so that no page of it is met for the first time while the clock runs.
        self.kept = on.then(|| Kept { bytes: vec![1; KEPT].into(), next: 0 });
        Ok(())
    }

    fn settle(&mut self, on: bool) {
        self.peer = on.then_some(self.last_source);
        if let Some(peer) = self.peer {
            // No frame to an earlier peer is under way any more, or it is one that nobody waits for.
            self.address_buffers(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::{Stop, run_client, run_pair, serve};
    use crate::load::{Load, LoadArgs, Test};
    use crate::report::Subject;
    use uvia_tests::{Faults, memory_pair, memory_pair_with};

    fn load(line: &str) -> Load {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            load: LoadArgs,
        }
        Load::from(&<Only as clap::Parser>::parse_from(line.split(' ')).load)
    }

    fn subject(test: Test) -> Subject {
        let test = if test == Test::Latency { "raw-lat" } else { "raw-bw" };
        Subject {
            test,
            op: "send",
            class: "dma",
            nic: "memory".to_owned(),
            manner: None,
            size: 0,
            lossy: true,
            json: false,
            headed: false,
        }
    }

    fn links(faults: Option<Faults>) -> (RawLink, RawLink) {
        let (a, b, domain) = match faults {
            Some(faults) => memory_pair_with(faults),
            None => memory_pair(),
        };
        let mut a = RawLink::new(a, domain.clone(), None).unwrap();
        let mut b = RawLink::new(b, domain, None).unwrap();
        let (mac_a, mac_b) = (a.mac(), b.mac());
        a.join(mac_b);
        b.join(mac_a);
        (a, b)
    }

    #[test]
    fn a_pair_measures_both_figures() {
        for test in [Test::Latency, Test::Bandwidth] {
            let (mut a, mut b) = links(None);
            run_pair(&mut a, &mut b, test, &load("t --sizes all --iterations 500"), subject(test)).unwrap();
        }
    }

    #[test]
    fn a_client_and_a_server_measure_both_figures() {
        for test in [Test::Latency, Test::Bandwidth] {
            let (mut a, mut b) = links(None);
            std::thread::scope(|scope| {
                let server = scope.spawn(move || serve(&mut b, Duration::from_secs(5), &Stop::new(false)));
                let load = load("t --sizes 8,1K --iterations 300");
                run_client(&mut a, test, &load, false, subject(test)).unwrap();
                server.join().unwrap().unwrap();
            });
        }
    }

    #[test]
    fn what_is_kept_is_what_came_round_and_round() {
        let mut kept = Kept { bytes: vec![0; 100].into(), next: 0 };
        let frame = |fill: u8, len: usize| [vec![0xee; HEADER], vec![fill; len]].concat();
        for (fill, len) in [(1, 40), (2, 40), (3, 40), (4, 0)] {
            kept.keep(&RxFrame::from_slice(&frame(fill, len)));
        }
        assert_eq!((kept.bytes[..40].to_vec(), kept.bytes[40..80].to_vec()), (vec![3; 40], vec![2; 40]));
        assert_eq!(kept.next, 40);
    }

    #[test]
    fn a_client_and_a_server_measure_frames_that_are_copied() {
        let (mut a, mut b) = links(None);
        std::thread::scope(|scope| {
            let server = scope.spawn(move || {
                serve(&mut b, Duration::from_secs(5), &Stop::new(false)).unwrap();
                b
            });
            let load = load("t --sizes 1K --iterations 3000");
            run_client(&mut a, Test::Bandwidth, &load, true, subject(Test::Bandwidth)).unwrap();
            let b = server.join().unwrap();
            assert!(b.kept.is_some_and(|kept| kept.next > 0), "what came was not kept");
        });
    }

    #[test]
    fn a_wire_that_loses_frames_is_measured_nevertheless() {
        let (mut a, mut b) = links(Some(Faults { loss: 100, duplicates: 0, seed: 1, ..Faults::default() }));
        let load = load("t --size 64 --iterations 300 --warmup 0");
        run_pair(&mut a, &mut b, Test::Bandwidth, &load, subject(Test::Bandwidth)).unwrap();
    }

    #[test]
    fn what_is_longer_than_a_frame_is_refused() {
        let (mut a, mut b) = links(None);
        let outcome = run_pair(&mut a, &mut b, Test::Latency, &load("t --size 1M"), subject(Test::Latency));
        assert!(matches!(outcome, Err(Failure::Usage(_))), "{outcome:?}");
    }

    #[test]
    fn an_end_that_is_not_there_is_an_error() {
        let (mut a, _b) = links(None);
        let load = load("t --timeout 1");
        let outcome = run_client(&mut a, Test::Latency, &load, false, subject(Test::Latency));
        assert!(matches!(outcome, Err(Failure::Failed(_))), "{outcome:?}");
    }

    #[test]
    fn frames_of_others_are_not_packets() {
        let mut bytes = [0; SHORTEST];
        bytes[12..HEADER].copy_from_slice(&ETHER_TYPE.to_be_bytes());
        assert!(parse(&RxFrame::from_slice(&bytes)).is_none());
        let head = Head { kind: Kind::Ping, session: 1, sequence: 2 };
        bytes[HEADER..HEADER + HEAD].copy_from_slice(&head.to_bytes());
        assert_eq!(parse(&RxFrame::from_slice(&bytes)).unwrap().1.head, head);
        bytes[12] = 8;
        assert!(parse(&RxFrame::from_slice(&bytes)).is_none());
        assert!(parse(&RxFrame::from_slice(&bytes[..20])).is_none());
        let hello = Head { kind: Kind::Hello, ..head };
        bytes[12] = 0x88;
        bytes[HEADER..HEADER + HEAD].copy_from_slice(&hello.to_bytes());
        assert!(parse(&RxFrame::from_slice(&bytes[..40])).is_none(), "a body that was cut short");
    }
}
