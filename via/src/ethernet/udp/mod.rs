//! Frames in datagrams of UDP over IPv4: an adapter to the engine, on an adapter.
//!
//! It stands where an Ethernet adapter would, so that nothing above knows of it, and nothing is added to the way of a
//! frame on Ethernet. The engine's frames go through whole: the headers are written into the room that the transmitter
//! leaves before them, and what is received is handed on as a part of the frame that the device wrote. Stations are then
//! made of IPv4 addresses, see [`UdpOptions::host`].

mod arp;
mod echo;
mod header;
mod neighbours;
#[cfg(test)]
mod shown;

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use uvia_driver::Result;
use uvia_driver::dma::{DmaDomain, DmaSegment, DmaSlots};
use uvia_driver::nic::{Link, Nic, NicProperties, NicStatistics, RxFilter, RxFrame, TxFrame};

use super::transmit::{ROOM, SEGMENTS, SLOT};
use crate::wire::ETHERNET;
use crate::{Clock, MacAddress, UdpOptions};
use header::{Look, OUTER, Outer, look};
use neighbours::Neighbours;

const _: () = assert!(OUTER <= ROOM);

/// Hosts whose headers are at hand.
const ROUTES: usize = 64;
/// Frames that wait for a neighbour's station, of all neighbours.
const PARKED: usize = 16;
/// How long they wait.
const PATIENCE: u64 = 3_000_000_000;
/// Questions and answers of our own in the adapter.
const OWN_FRAMES: usize = 16;
/// Bytes of a slot for one.
const OWN_SLOT: usize = 1536;
/// In an adapter's token: the frame is one of those.
const OWN: u64 = 1 << 63;
/// Questions, answers and echo requests that are looked at in one burst; more are dropped, as a flood is.
const NEWS: usize = 16;

/// Headers to a host.
#[derive(Clone, Copy)]
struct Route {
    host: MacAddress,
    until: u64,
    outer: Outer,
}

/// A frame whose bytes all lie in its slot, and that waits for a station.
struct Parked {
    neighbour: Ipv4Addr,
    segment: DmaSegment,
    token: u64,
    since: u64,
}

/// What came that is not the engine's.
enum News {
    Arp([u8; arp::BYTES]),
    Echo(Vec<u8>),
}

/// An adapter whose frames are datagrams.
pub(super) struct UdpAdapter {
    // Declared first, so dropped first: the device is quiet before the memory of frames goes.
    inner: Box<dyn Nic>,
    properties: NicProperties,
    options: UdpOptions,
    /// The station address.
    own: MacAddress,
    clock: Clock,
    /// The time when frames were last looked for.
    now: u64,
    /// The transmitter's slots: where headers go, by a frame's token.
    slots: Option<DmaSlots<SLOT>>,
    routes: Box<[Option<Route>; ROUTES]>,
    neighbours: Neighbours,
    parked: Vec<Parked>,
    /// Tokens of frames that went nowhere, to be given back.
    dropped: Vec<u64>,
    frames: DmaSlots<OWN_SLOT>,
    free: Vec<u16>,
    news: Vec<News>,
    /// Datagrams to us that were dropped.
    wrong: u64,
}

impl UdpAdapter {
    /// Puts an adapter into an IPv4 network.
    pub(super) fn new(
        inner: Box<dyn Nic>,
        domain: &Arc<dyn DmaDomain>,
        options: UdpOptions,
        clock: Clock,
    ) -> crate::Result<Self> {
        options.check()?;
        let mut properties = inner.properties().clone();
        let own = properties.mac;
        properties.mac = UdpOptions::host(options.address);
        // A datagram's length has 16 bits.
        let most = properties.mtu.min(usize::from(u16::MAX)).saturating_sub(OUTER);
        properties.mtu = most;
        let longest = properties.max_frame.min(usize::from(u16::MAX) + ETHERNET);
        properties.max_frame = longest.saturating_sub(OUTER);
        // Routers lose frames.
        properties.lossless = false;
        let frames = DmaSlots::allocate(domain.clone(), OWN_FRAMES)?;
        Ok(Self {
            inner,
            own,
            options,
            now: clock.now(),
            clock,
            slots: None,
            routes: Box::new([None; ROUTES]),
            neighbours: Neighbours::default(),
            parked: Vec::with_capacity(PARKED),
            dropped: Vec::with_capacity(properties.tx_slots),
            frames,
            free: (0..OWN_FRAMES as u16).collect(),
            news: Vec::with_capacity(NEWS),
            wrong: 0,
            properties,
        })
    }

    /// The slots that frames will begin in: that of a frame is the lower 16 bits of its token.
    pub(super) fn share(&mut self, slots: DmaSlots<SLOT>) {
        self.slots = Some(slots);
    }

    /// The headers to the host that the frame in a slot is for; none where there is no way yet, or none at all.
    #[inline]
    fn route(&mut self, to: MacAddress) -> Result<std::result::Result<Outer, Option<Ipv4Addr>>> {
        match &self.routes[usize::from(to.0[5]) % ROUTES] {
            Some(route) if route.host == to && self.now < route.until => Ok(Ok(route.outer)),
            _ => self.find_route(to),
        }
    }

    /// As [`UdpAdapter::route`], when the headers are not at hand. Where there is no way yet, the answer says whose
    /// station is missing.
    #[cold]
    fn find_route(&mut self, to: MacAddress) -> Result<std::result::Result<Outer, Option<Ipv4Addr>>> {
        self.now = self.clock.now();
        let (host, station, until) = if to == MacAddress::BROADCAST {
            (self.options.broadcast(), to, u64::MAX)
        } else {
            let host = UdpOptions::address_of(to).filter(|host| self.options.is_one_host(*host));
            let Some(host) = host else { return Ok(Err(None)) };
            let Some(neighbour) = self.options.next_hop(host) else { return Ok(Err(None)) };
            let way = self.neighbours.way(self.now, neighbour);
            if let Some(whom) = way.ask {
                self.ask(neighbour, whom)?;
            }
            let Some((station, until)) = way.station else { return Ok(Err(Some(neighbour))) };
            (host, station, until)
        };
        let outer = Outer::new(station, self.own, &self.options, host);
        self.routes[usize::from(to.0[5]) % ROUTES] = Some(Route { host: to, until, outer });
        Ok(Ok(outer))
    }

    fn ask(&mut self, address: Ipv4Addr, whom: MacAddress) -> Result<()> {
        let question = arp::Packet {
            is_answer: false,
            sender: self.own,
            sender_address: self.options.address,
            target: MacAddress::default(),
            target_address: address,
        };
        self.send_own(&question.frame(whom))
    }

    /// Sends a frame of our own, if there is room. What is lost is asked for again.
    fn send_own(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(number) = self.free.pop() else { return Ok(()) };
        let Some(slot) = self.frames.get(usize::from(number)) else { return Ok(()) };
        slot.write_bytes(0, bytes);
        let frame = TxFrame { segments: &[slot.segment(bytes.len())], token: OWN | u64::from(number) };
        match self.inner.transmit(&frame) {
            Ok(true) => Ok(()),
            otherwise => {
                self.free.push(number);
                otherwise.map(|_| ())
            }
        }
    }

    /// A frame that cannot go now: one that lies whole in its slot waits for the neighbour, if there is one and room;
    /// others are lost, and come again.
    #[cold]
    fn set_aside(&mut self, frame: &TxFrame<'_>, neighbour: Option<Ipv4Addr>) {
        match (neighbour, frame.segments) {
            (Some(neighbour), [segment]) if self.parked.len() < PARKED => {
                let (segment, token, since) = (*segment, frame.token, self.now);
                self.parked.push(Parked { neighbour, segment, token, since });
            }
            _ => self.dropped.push(frame.token),
        }
    }

    /// Deals with what came that is not the engine's, and with frames that wait.
    #[cold]
    fn tend(&mut self) -> Result<()> {
        for news in std::mem::take(&mut self.news) {
            match news {
                News::Echo(frame) => self.send_own(&frame)?,
                News::Arp(bytes) => {
                    if let Some(packet) = arp::Packet::parse(&bytes) {
                        self.take_arp(&packet)?;
                    }
                }
            }
        }
        for parked in std::mem::take(&mut self.parked) {
            let way = self.neighbours.way(self.now, parked.neighbour);
            if let Some(whom) = way.ask {
                self.ask(parked.neighbour, whom)?;
            }
            let frame = TxFrame { segments: &[parked.segment], token: parked.token };
            if way.station.is_some() && self.transmit(&frame)? {
                continue;
            }
            if self.now.saturating_sub(parked.since) < PATIENCE {
                self.parked.push(parked);
            } else {
                self.dropped.push(parked.token);
            }
        }
        self.inner.flush()
    }

    fn take_arp(&mut self, packet: &arp::Packet) -> Result<()> {
        let address = packet.sender_address;
        if address == self.options.address {
            if packet.sender != self.own {
                let device = &self.properties.device;
                tracing::warn!("{device}: {} says that it has our address {address}", packet.sender);
            }
            return Ok(());
        }
        if !self.options.is_near(address) || !self.options.is_one_host(address) {
            return Ok(());
        }
        if self.neighbours.heard(self.now, address, packet.sender) {
            // Some of these may go by way of it.
            self.routes.fill(None);
        }
        if !packet.is_answer && packet.target_address == self.options.address {
            let answer = arp::Packet {
                is_answer: true,
                sender: self.own,
                sender_address: self.options.address,
                target: packet.sender,
                target_address: address,
            };
            self.send_own(&answer.frame(packet.sender))?;
        }
        Ok(())
    }
}

impl Nic for UdpAdapter {
    fn properties(&self) -> &NicProperties {
        &self.properties
    }

    fn link(&mut self) -> Result<Link> {
        self.inner.link()
    }

    fn ready(&mut self) -> Result<bool> {
        self.inner.ready()
    }

    fn transmit(&mut self, frame: &TxFrame<'_>) -> Result<bool> {
        let number = usize::from(frame.token as u16);
        let (Some(first), Some(slots)) = (frame.segments.first(), &self.slots) else { return Ok(false) };
        let Some(slot) = slots.get(number) else { return Ok(false) };
        let mut to = [0; 6];
        slot.read_bytes(&mut to);
        let outer = match self.route(MacAddress(to))? {
            Ok(outer) => outer,
            Err(neighbour) => {
                self.set_aside(frame, neighbour);
                return Ok(true);
            }
        };
        let len: usize = frame.segments.iter().map(|segment| segment.len() as usize).sum();
        if len > self.properties.max_frame {
            let what =
                format!("a frame of {len} bytes, where a datagram takes {}", self.properties.max_frame);
            return Err(uvia_driver::Error::Argument { what });
        }
        let put = self
            .slots
            .as_ref()
            .and_then(|slots| slots.put_before(number, &outer.before(len), first.len() as usize));
        let Some(first) = put else { return Ok(false) };
        if let [_] = frame.segments {
            return self.inner.transmit(&TxFrame { segments: &[first], token: frame.token });
        }
        let mut segments = [DmaSegment::default(); SEGMENTS];
        let count = frame.segments.len().min(SEGMENTS);
        segments[..count].copy_from_slice(&frame.segments[..count]);
        segments[0] = first;
        self.inner.transmit(&TxFrame { segments: &segments[..count], token: frame.token })
    }

    fn look_after(&mut self) -> Result<()> {
        self.inner.look_after()
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }

    fn reclaim(&mut self, done: &mut dyn FnMut(u64)) -> Result<usize> {
        let mut given = self.dropped.len();
        self.dropped.drain(..).for_each(&mut *done);
        let free = &mut self.free;
        self.inner.reclaim(&mut |token| {
            if token & OWN != 0 {
                free.push(token as u16);
            } else {
                given += 1;
                done(token);
            }
        })?;
        Ok(given)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> Result<usize> {
        self.now = self.clock.now();
        let Self { inner, options, own, news, wrong, .. } = self;
        let received = inner.receive(budget, &mut |frame| match look(&frame, options) {
            Look::Frame(len) => {
                if let Some(part) = frame.part(OUTER, len) {
                    sink(part);
                }
            }
            Look::Arp => {
                let mut bytes = [0; arp::BYTES];
                if news.len() < NEWS && frame.read(header::IP, &mut bytes) {
                    news.push(News::Arp(bytes));
                }
            }
            Look::Icmp(total) => {
                if news.len() < NEWS
                    && let Some(answer) = echo::answer(&frame, total, *own)
                {
                    news.push(News::Echo(answer));
                }
            }
            Look::Wrong => *wrong += 1,
            Look::Foreign => {}
        })?;
        if !self.news.is_empty() || !self.parked.is_empty() {
            self.tend()?;
        }
        if self.free.is_empty() {
            // Nobody asks for frames of our own.
            let (free, dropped) = (&mut self.free, &mut self.dropped);
            self.inner.reclaim(&mut |token| {
                if token & OWN != 0 { free.push(token as u16) } else { dropped.push(token) }
            })?;
        }
        Ok(received)
    }

    fn statistics(&mut self) -> NicStatistics {
        let mut statistics = self.inner.statistics();
        statistics.rx_errors += self.wrong;
        statistics
    }

    fn set_filter(&mut self, filter: RxFilter) -> Result<()> {
        self.inner.set_filter(filter)
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.inner.interrupt()
    }

    fn arm(&mut self, on: bool) -> Result<()> {
        self.inner.arm(on)
    }

    fn reset(&mut self) -> Result<()> {
        self.dropped.extend(self.parked.drain(..).map(|parked| parked.token));
        self.inner.reset()
    }
}
