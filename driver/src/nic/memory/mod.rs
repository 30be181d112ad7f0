//! A network adapter made of memory that the processes of one host share: no device, no privileges.
//!
//! All adapters of a user that were opened by the same name (`shm:NAME`) are on one wire. Each has a port of the segment,
//! and between each two ports there are two lanes, rings with one writer and one reader, of which an adapter needs those
//! only to and from whom it has talked to. A frame is copied once, out of the sender's memory, and shown to the receiver
//! where it lies; frames neither get lost nor overtake each other. Where a receiver does not keep up the sender has no
//! room; only where it has stopped altogether for [`STALL`] are frames to it dropped, so that they are in nobody's way.
//!
//! **Nobody has to be trusted** for more than their own frames: whatever another process may write is copied before it
//! is checked and held against what can be, and nothing waits for another process. One that is killed in whatever it
//! does leaves a frame that is published, or none.
//!
//! **Sleeping.** A receiver that sleeps says so in a word that its senders look at when they have published; only then do
//! they make a system call.

mod armed;
mod lane;
mod layout;
mod mapping;
mod name;
mod ring;
mod segment;
#[cfg(test)]
mod tests;
mod wake;

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use self::lane::{InLane, OutLane, Wrong};
use self::layout::{INLINE, LANE_BULK_AT, MAX_FRAME, PORTS, port, word};
use self::segment::{Segment, generation, mac_word, port_of};
use self::wake::{Alarm, Waker};
use super::{
    Link, MacAddress, Nic, NicConfig, NicProperties, NicStatistics, RingPlace, RxFilter, RxFrame, TxFrame,
};
use crate::dma::DmaSegment;
use crate::{Error, Result};

pub(super) use self::name::segment_of;

/// Bytes of an Ethernet header.
const HEADER: usize = 14;
/// Most frames whose tokens are out.
const TX_SLOTS: usize = 4096;
/// Segments of a frame.
const MAX_SEGMENTS: usize = 16;
/// Frames that are taken from one lane before others have their turn.
const TURN: usize = 32;
/// After so long without any progress of a receiver whose lane is full, frames to it are dropped.
const STALL: Duration = Duration::from_millis(500);
/// Frames to all, or to a group, have it in their first byte.
const GROUP: u64 = 1;
const MAC_BITS: u64 = (1 << 48) - 1;
/// In a port's filter.
const PROMISCUOUS: u64 = 1;
const ALL_MULTICAST: u64 = 2;

/// An adapter on a segment.
struct MemoryNic {
    properties: NicProperties,
    /// Our station address, as a word.
    own: u64,
    segment: Segment,
    alarm: Option<Alarm>,
    out: Vec<Option<Box<OutLane>>>,
    into: Vec<Option<InLane>>,
    /// A mask of `into`: lanes that are looked at.
    open: u64,
    /// A mask of `out`: lanes with frames that were not published.
    touched: u64,
    /// Where the next look begins.
    first: u32,
    /// Tokens of frames that were copied, and not given back yet.
    done: Vec<u64>,
    statistics: NicStatistics,
}

/// Opens the segment of that name, and takes a port of it. Memory for it is registered in an
/// [`IdentityDomain`](crate::dma::IdentityDomain): it is reached by the addresses that it has in this process.
///
/// # Errors
/// [`Error::Unsupported`] for a ring in adapter memory; all ports are in use; the system gives no memory or no descriptor; a file of the segment's name is another user's.
pub(super) fn open(name: &str, config: &NicConfig) -> Result<Box<dyn Nic>> {
    if config.tx_ring_place != RingPlace::Host {
        return Err(Error::Unsupported {
            device: format!("shm:{name}"),
            what: "a transmit ring in adapter memory (it has none, but for the segment that it is made of)"
                .to_owned(),
        });
    }
    let alarm = if config.interrupts { Some(Alarm::new()?) } else { None };
    let segment = Segment::open(name, alarm.as_ref())?;
    let tx_slots = config.tx_ring.clamp(1, TX_SLOTS);
    let properties = NicProperties {
        device: format!("shm:{name}"),
        driver: "memory",
        mac: segment.mac(),
        mtu: MAX_FRAME - HEADER,
        max_frame: MAX_FRAME,
        tx_slots,
        rx_slots: ring::SLOTS as usize,
        max_segments: MAX_SEGMENTS,
        tx_ring_memory: None,
        lossless: true,
    };
    Ok(Box::new(MemoryNic {
        own: mac_word(segment.mac()),
        properties,
        segment,
        alarm,
        out: (0..PORTS).map(|_| None).collect(),
        into: (0..PORTS).map(|_| None).collect(),
        open: 0,
        touched: 0,
        first: 0,
        done: Vec::with_capacity(tx_slots),
        statistics: NicStatistics::default(),
    }))
}

impl MemoryNic {
    /// The first six bytes of a frame, as a word.
    ///
    /// # Safety
    /// As [`OutLane::put`].
    #[inline]
    unsafe fn destination(frame: &TxFrame<'_>) -> u64 {
        if let Some(first) = frame.segments.first()
            && first.len() >= 8
        {
            // SAFETY: the segment has so many bytes.
            let [word] = unsafe { crate::dma::copy::read_words(first.iova() as *const u8) };
            return word & MAC_BITS;
        }
        let bytes = frame.segments.iter().flat_map(|segment| {
            // SAFETY: byte n of the segment.
            (0..segment.len())
                .map(|n| unsafe { (segment.iova() as *const u8).add(n as usize).read_volatile() })
        });
        bytes.take(6).enumerate().fold(0, |mac, (n, byte)| mac | u64::from(byte) << (8 * n))
    }

    /// The port with that station address, if it is one of another.
    #[inline]
    fn port_with(&self, mac: u64) -> Option<usize> {
        // Relaxed: only whether it is still there; what else there is to see of it is looked at when a lane is opened.
        port_of(mac).filter(|port| {
            *port != self.segment.port()
                && self.segment.port_word(*port, port::MAC).load(Ordering::Relaxed) == mac
        })
    }

    /// Sends a frame that may be any.
    #[inline(never)]
    fn transmit_any(&mut self, frame: &TxFrame<'_>) -> Result<bool> {
        let size = frame.check(&self.properties)?;
        // SAFETY: segments are made by regions that are registered in the domain that was opened with this adapter, in
        // which addresses are the process's own; they stay registered until their token is given back. They have so
        // many bytes together, as was counted.
        let taken = unsafe {
            let to = Self::destination(frame);
            let watched = self.segment.control().word(word::WATCHERS).load(Ordering::Relaxed) != 0;
            if to & GROUP != 0 || watched {
                self.put_for_many(to, frame, size.bytes)?
            } else if let Some(port) = self.port_with(to) {
                self.put(port, to, frame, size.bytes)?
            } else {
                // Nobody has that address: as on any wire, it is sent, and nobody takes it.
                true
            }
        };
        if !taken {
            return Ok(false);
        }
        self.sent(frame.token, size.bytes);
        Ok(true)
    }

    /// A frame was sent.
    #[inline(always)]
    fn sent(&mut self, token: u64, bytes: usize) {
        self.done.push(token);
        self.statistics.tx_frames += 1;
        self.statistics.tx_bytes += bytes as u64;
    }

    /// Puts a frame of one segment, which fits a slot, into a lane that is there already; false, and nothing done, where
    /// that is not all that it takes.
    ///
    /// # Safety
    /// As [`OutLane::put`].
    #[inline(always)]
    unsafe fn put_short(&mut self, segment: &DmaSegment) -> bool {
        let len = segment.len() as usize;
        if !(HEADER..=INLINE).contains(&len) {
            return false;
        }
        // SAFETY: the segment has more bytes than a word.
        let [word] = unsafe { crate::dma::copy::read_words(segment.iova() as *const u8) };
        let to = word & MAC_BITS;
        let watched = self.segment.control().word(word::WATCHERS).load(Ordering::Relaxed) != 0;
        if to & GROUP != 0 || watched {
            return false;
        }
        let Some(port) = self.port_with(to) else { return false };
        let Some(Some(lane)) = self.out.get_mut(port) else { return false };
        // SAFETY: the caller's promise is the same.
        let put = lane.peer == to && unsafe { lane.put_short(segment.iova(), len) };
        self.touched |= u64::from(put) << port;
        put
    }

    /// Puts a frame into the lane to a port; false when there is no room.
    ///
    /// # Safety
    /// As [`OutLane::put`].
    #[inline]
    unsafe fn put(&mut self, port: usize, mac: u64, frame: &TxFrame<'_>, bytes: usize) -> Result<bool> {
        let bulk = OutLane::is_bulk(bytes);
        match &mut self.out[port] {
            Some(lane) if lane.peer == mac && (!bulk || lane.has_bulk) => {
                // SAFETY: the caller's promise is the same.
                if unsafe { lane.put(frame.segments, bytes) } {
                    self.touched |= 1 << port;
                    return Ok(true);
                }
                Ok(self.found_full(port))
            }
            _ => {
                self.begin(port, mac, bulk)?;
                // SAFETY: as above.
                unsafe { self.put(port, mac, frame, bytes) }
            }
        }
    }

    /// Opens a lane, or gives it what it needs for long frames.
    #[cold]
    fn begin(&mut self, port: usize, mac: u64, bulk: bool) -> Result<()> {
        if self.out[port].as_ref().is_none_or(|lane| lane.peer != mac) {
            // Acquire: pairs with the owner's Release; the rest of its words are those of this owner.
            self.segment.port_word(port, port::MAC).load(Ordering::Acquire);
            self.segment.provide(port, 0, LANE_BULK_AT)?;
            let map = self.segment.map_lane(self.segment.port(), port)?;
            let (opened, bit) = (self.segment.port_word(port, port::OPENED), 1 << self.segment.port());
            // SeqCst: see `InLane::say_busy`.
            opened.fetch_and(!bit, Ordering::SeqCst);
            self.out[port] = Some(Box::new(OutLane::begin(map, self.own, generation(self.own), mac)));
            // Release: pairs with the receiver's taking it.
            opened.fetch_or(bit, Ordering::SeqCst);
            // There is something to be published, so that who sleeps is woken: it may have to answer.
            self.touched |= 1 << port;
        }
        if let Some(lane) = &mut self.out[port]
            && bulk
        {
            self.segment.provide(port, LANE_BULK_AT, layout::BULK)?;
            lane.has_bulk = true;
        }
        Ok(())
    }

    /// A lane has no room. Whether its frame is to be forgotten: nobody will ever make room, or has not for long.
    #[cold]
    fn found_full(&mut self, port: usize) -> bool {
        // What waits to be published is what it is full of, maybe.
        if self.touched != 0 {
            self.publish();
        }
        let Some(lane) = &mut self.out[port] else { return true };
        let taken = lane.taken();
        match lane.full {
            Some((since, before)) if before == taken => {
                if since.elapsed() < STALL {
                    return false;
                }
                // It may be dead; then this takes the port's address away, and nothing is sent there any more.
                if self.segment.is_alive(port) {
                    tracing::debug!(port, "a frame is dropped: its receiver takes none");
                } else {
                    tracing::debug!(port, "the process of a port is gone");
                    self.out[port] = None;
                }
                true
            }
            _ => {
                lane.full = Some((Instant::now(), taken));
                false
            }
        }
    }

    /// Sends a frame that more than one port may take; false when the one that it is for has no room. Of the others, who
    /// has none does not get it.
    ///
    /// # Safety
    /// As [`OutLane::put`].
    #[cold]
    unsafe fn put_for_many(&mut self, to: u64, frame: &TxFrame<'_>, bytes: usize) -> Result<bool> {
        if let Some(port) = self.port_with(to)
            // SAFETY: the caller's promise is the same.
            && !unsafe { self.put(port, to, frame, bytes)? }
        {
            return Ok(false);
        }
        for port in 0..PORTS {
            let mac = self.segment.port_word(port, port::MAC).load(Ordering::Relaxed);
            if mac == 0 || mac == to || mac == self.own || port_of(mac) != Some(port) {
                continue;
            }
            let filter = self.segment.port_word(port, port::FILTER).load(Ordering::Relaxed);
            let wanted = match to {
                MAC_BITS => true,
                _ if filter & PROMISCUOUS != 0 => true,
                _ => to & GROUP != 0 && filter & ALL_MULTICAST != 0,
            };
            if wanted {
                // SAFETY: the caller's promise is the same.
                unsafe { self.put(port, mac, frame, bytes)? };
            }
        }
        Ok(true)
    }

    /// Publishes what was put, and wakes those who sleep.
    fn publish(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        let all = touched;
        while touched != 0 {
            let port = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            if let Some(lane) = &mut self.out[port] {
                lane.publish();
                lane.full = None;
            }
        }
        armed::after_publishing();
        touched = all;
        while touched != 0 {
            let port = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            if armed::is_armed(self.segment.port_word(port, port::ARMED)) {
                self.wake(port);
            }
        }
        self.statistics.doorbells += 1;
    }

    /// Wakes a port's owner, unless somebody else does.
    #[cold]
    fn wake(&mut self, port: usize) {
        let Some(lane) = &mut self.out[port] else { return };
        if self.segment.port_word(port, port::ARMED).swap(0, Ordering::AcqRel) == 0 {
            return;
        }
        let segment = &self.segment;
        let waker = lane.waker.get_or_insert_with(|| {
            let word = |word| segment.port_word(port, word).load(Ordering::Relaxed);
            let waker = Waker::open(word(port::PID), word(port::PIPE), word(port::PIPE_INODE));
            waker.inspect_err(|e| tracing::warn!(port, "a sleeper cannot be woken: {e}")).ok()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes up the lanes that others have opened.
    #[cold]
    fn adopt(&mut self) -> Result<()> {
        let own = self.segment.port();
        let mut opened = self.segment.port_word(own, port::OPENED).load(Ordering::Relaxed);
        while opened != 0 {
            let from = opened.trailing_zeros() as usize;
            let bit = 1 << from;
            opened &= !bit;
            if self.into[from].is_none() && from != own {
                self.into[from] = Some(InLane::new(self.segment.map_lane(from, own)?));
            }
            let word = self.segment.port_word(own, port::OPENED);
            let Some(lane) = &mut self.into[from] else {
                word.fetch_and(!bit, Ordering::Relaxed);
                continue;
            };
            if lane.peer != 0 && lane.peer == lane.sender() {
                // Who announces itself twice is heard already.
                word.fetch_and(!bit, Ordering::Relaxed);
                continue;
            }
            lane.say_busy();
            self.open &= !bit;
            if word.fetch_and(!bit, Ordering::SeqCst) & bit == 0 {
                continue;
            }
            let sender = lane.sender();
            if port_of(sender) == Some(from) && generation(sender) != 0 {
                lane.listen(generation(sender), sender);
                self.open |= bit;
            }
        }
        Ok(())
    }

    /// Shows up to `budget` frames of one lane; answers how many there were.
    #[inline]
    fn take(&mut self, from: usize, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let Some(Some(lane)) = self.into.get_mut(from) else { return 0 };
        let mut count = 0;
        match lane.take(budget.min(TURN), &mut count, sink) {
            Ok(bytes) => {
                self.statistics.rx_bytes += bytes;
                self.statistics.rx_frames += count as u64;
            }
            Err(Wrong) => self.turn_away(from),
        }
        count
    }

    /// Shows up to `budget` frames, of all lanes in turn; answers how many there were.
    #[inline(never)]
    fn take_from_many(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut count = 0;
        let first = self.first;
        let mut left = self.open.rotate_right(first);
        while left != 0 && count < budget {
            let from = (left.trailing_zeros() + first) as usize % PORTS;
            left &= left - 1;
            let taken = self.take(from, budget - count, sink);
            count += taken;
            if taken != 0 && left != 0 {
                // Who comes next begins the next time.
                self.first = (from as u32 + 1) % PORTS as u32;
            }
        }
        count
    }

    /// What a sender has written cannot be: nothing more is taken from it, until it begins anew.
    #[cold]
    fn turn_away(&mut self, from: usize) {
        tracing::warn!(from, "a port's lane holds what cannot be a frame; it is looked at no more");
        self.open &= !(1 << from);
        self.statistics.rx_errors += 1;
    }
}

impl Nic for MemoryNic {
    fn properties(&self) -> &NicProperties {
        &self.properties
    }

    fn link(&mut self) -> Result<Link> {
        Ok(Link { up: true, speed: None, full_duplex: Some(true) })
    }

    fn ready(&mut self) -> Result<bool> {
        Ok(true)
    }

    #[inline]
    fn transmit(&mut self, frame: &TxFrame<'_>) -> Result<bool> {
        if self.done.len() >= self.properties.tx_slots {
            frame.check(&self.properties)?;
            return Ok(false);
        }
        if let [segment] = frame.segments
            // SAFETY: see `transmit_any`.
            && unsafe { self.put_short(segment) }
        {
            self.sent(frame.token, segment.len() as usize);
            return Ok(true);
        }
        self.transmit_any(frame)
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        if self.touched != 0 {
            self.publish();
        }
        Ok(())
    }

    fn reclaim(&mut self, done: &mut dyn FnMut(u64)) -> Result<usize> {
        if self.touched != 0 && self.done.len() >= self.properties.tx_slots {
            // A ring that is full is told of, also by who does not flush.
            self.publish();
        }
        let count = self.done.len();
        self.done.drain(..).for_each(done);
        Ok(count)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> Result<usize> {
        if self.segment.port_word(self.segment.port(), port::OPENED).load(Ordering::Relaxed) != 0 {
            self.adopt()?;
        }
        if !self.open.is_power_of_two() {
            return Ok(self.take_from_many(budget, sink));
        }
        // One lane, as in most programs: who polls finds nothing there, nearly always, in a few instructions.
        let from = self.open.trailing_zeros() as usize;
        match self.into.get(from) {
            Some(Some(lane)) if lane.has_frame() => Ok(self.take(from, budget, sink)),
            _ => Ok(0),
        }
    }

    fn statistics(&mut self) -> NicStatistics {
        self.statistics
    }

    fn set_filter(&mut self, filter: RxFilter) -> Result<()> {
        let mut bits = 0;
        if filter.promiscuous {
            bits |= PROMISCUOUS;
        }
        if filter.all_multicast {
            bits |= ALL_MULTICAST;
        }
        let own = self.segment.port();
        self.segment.port_word(own, port::FILTER).store(bits, Ordering::Relaxed);
        let watchers = self.segment.control().word(word::WATCHERS);
        match filter.promiscuous {
            true => watchers.fetch_or(1 << own, Ordering::SeqCst),
            false => watchers.fetch_and(!(1 << own), Ordering::SeqCst),
        };
        Ok(())
    }

    fn neighbours(&self) -> Vec<MacAddress> {
        let owners = (0..PORTS)
            .filter(|port| *port != self.segment.port())
            .map(|port| (port, self.segment.port_word(port, port::MAC).load(Ordering::Relaxed)));
        owners
            .filter(|(port, mac)| *mac != 0 && port_of(*mac) == Some(*port) && self.segment.is_alive(*port))
            .map(|(_, mac)| {
                let [a, b, c, d, e, f, ..] = mac.to_le_bytes();
                MacAddress([a, b, c, d, e, f])
            })
            .collect()
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.as_ref().map(Alarm::as_fd)
    }

    fn arm(&mut self, on: bool) -> Result<()> {
        let Some(alarm) = &self.alarm else { return Ok(()) };
        alarm.drain();
        let armed = self.segment.port_word(self.segment.port(), port::ARMED);
        armed::arm(armed, on);
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        self.touched = 0;
        for lane in self.out.iter_mut().flatten() {
            lane.forget();
        }
        self.set_filter(RxFilter::default())?;
        // As with any adapter, what has come and was not taken is gone.
        self.adopt()?;
        for lane in self.into.iter_mut().flatten() {
            let _ = lane.take(ring::SLOTS as usize, &mut 0, &mut |_| ());
        }
        Ok(())
    }
}

impl Drop for MemoryNic {
    fn drop(&mut self) {
        // What was put is sent, as long as there is somebody to take it.
        if self.touched != 0 {
            self.publish();
        }
    }
}
