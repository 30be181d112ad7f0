//! One connection's state.

use std::collections::VecDeque;

use super::control::Control;
use super::early::EarlyGrant;
use super::long::{LongIn, LongOut};
use super::pull::EarlyOffer;
use super::{CONTROL, Options};
use crate::modules::Thresholds;
use crate::modules::choice::{self, Means};
use crate::packet::{self, HEADER, Header, SHORT_HEADER, Short, flag};
use crate::port::Packet;
use crate::span::Span;

/// How far a connection is on one rail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Not used.
    None,
    /// Being connected.
    Asked,
    /// There.
    Up,
    /// Gone, or never came.
    Down,
}

/// A packet that came and was not taken yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub(crate) rail: u8,
    pub(crate) flags: u8,
    /// Long pieces of its message up to there.
    pub(crate) longs: u16,
    /// Bytes of its header.
    head: u32,
    pub(crate) packet: Packet,
}

impl Arrived {
    #[inline]
    pub(super) fn new(rail: usize, header: &Header, packet: Packet) -> Self {
        let (flags, longs) = (header.flags, header.long.get());
        Self { rail: rail as u8, flags, longs, head: HEADER as u32, packet }
    }

    /// The whole of a message, with the short header.
    #[inline]
    pub(super) fn short(rail: usize, packet: Packet) -> Self {
        let flags = flag::FIRST | flag::LAST;
        Self { rail: rail as u8, flags, longs: 0, head: SHORT_HEADER as u32, packet }
    }

    /// The whole of a message that is one long piece, which has come with word of it.
    pub(super) fn word(rail: usize, packet: Packet) -> Self {
        debug_assert!(packet.span.is_empty());
        Self { rail: rail as u8, flags: flag::FIRST | flag::LAST, longs: 1, head: 0, packet }
    }

    /// Its bytes of the message.
    #[inline]
    pub(crate) fn bytes(&self) -> Span {
        // As long as its header it is, as was seen when that was read.
        self.packet.span.behind(self.head as usize)
    }

    /// Whether its bytes go in order, and are meant.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.flags & (flag::LATER | flag::ABANDONED) == 0
    }

    /// Whether it ends a message that has no long pieces.
    #[inline]
    pub(crate) fn is_plain_end(&self) -> bool {
        self.flags & (flag::LAST | flag::ABANDONED) == flag::LAST && self.longs == 0
    }
}

/// A packet that went, until the other end has said that it came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retained {
    pub(super) sequence: u32,
    pub(super) rail: usize,
    pub(super) index: u32,
    /// The packet.
    pub(super) span: Span,
}

/// Packets with bytes, and directives, that one end has done with. Counters go round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(4))] // Both move as one word.
pub(super) struct Counters {
    pub(super) data: u16,
    pub(super) control: u16,
}

/// No rail's number.
pub(super) const NO_RAIL: u8 = u8::MAX;

/// All that goes between two ranks on a channel.
pub(crate) struct Connection {
    pub(crate) channel: usize,
    pub(crate) peer: usize,
    /// The rail by which messages of one packet may take the short way, or [`NO_RAIL`]. Whatever stirs takes it away, and
    /// the long ways find out again (`Core::review`).
    pub(super) plain: u8,
    /// Messages of fewer bytes than this may be sent the short way, or taken by it in one step: 0 where none may.
    pub(super) short_out: usize,
    pub(super) short_in: usize,
    pub(super) ways: Vec<Way>,
    /// The rail of the stream of packets.
    pub(super) active: Option<usize>,
    pub(super) asked: bool,
    /// All ways are gone.
    pub(crate) failed: Option<String>,
    pub(super) is_stirred: bool,
    /// There is or was more than one rail: packets are kept until they are known to have come.
    pub(super) several: bool,
    /// Rails that are not used any more, a bit each.
    pub(super) dead: u8,

    /// Bytes of a message in one packet.
    pub(crate) capacity: usize,
    pub(super) window: u16,
    /// Ours, but `long` is what both agree on.
    pub(crate) thresholds: Thresholds,
    pub(crate) means: Means,
    /// It can read what is offered.
    pub(super) peer_reads: bool,
    /// Pieces of so many bytes or more take the long way: all, where they are described.
    pub(super) limit: usize,
    /// The same of pieces that are packed.
    pub(super) limit_out: usize,

    /// A message to the peer is being packed.
    pub(crate) packing: bool,
    /// The number of the next.
    pub(crate) message_out: u32,
    /// The number of the packet that is expected next.
    pub(super) expected: u32,
    /// The number of the next packet that is counted.
    pub(super) sequence: u32,
    pub(super) data_sent: u16,
    pub(super) control_sent: u16,
    /// As the peer says.
    pub(super) done: Counters,
    pub(super) retained: VecDeque<Retained>,
    /// How many of the retained have yet to go once more, by another rail.
    pub(super) replaying: Option<usize>,
    pub(super) controls: VecDeque<Control>,
    pub(super) longs_out: Vec<LongOut>,
    pub(super) early: Vec<EarlyGrant>,
    /// How often in succession a place was looked for in vain.
    pub(super) in_vain: u8,
    /// How often that takes twice as long.
    pub(super) doublings: u8,
    /// Packets that have overtaken others, until these have come.
    pub(super) ahead: Vec<(u32, usize, Packet)>,
    /// The peer's offers of pieces that are not unpacked yet.
    pub(super) offers: Vec<EarlyOffer>,
    pub(super) next_put: u64,
    /// A message of which the receiver takes no more.
    pub(super) refused: Option<u32>,

    /// A message from the peer is being unpacked.
    pub(crate) unpacking: bool,
    /// It was taken ahead, and nothing of it has come yet.
    pub(super) awaited: bool,
    pub(crate) message_in: u32,
    pub(super) freed: Counters,
    /// What of that the peer was told.
    pub(super) told: Counters,
    pub(super) told_expected: u32,
    pub(super) inbox: VecDeque<Arrived>,
    /// It is among those of which a message has begun to come.
    pub(super) is_ready: bool,
    pub(super) longs_in: Vec<LongIn>,
}

impl Connection {
    pub(super) fn new(channel: usize, peer: usize, rails: usize, options: &Options) -> Self {
        Self {
            channel,
            peer,
            plain: NO_RAIL,
            short_out: 0,
            short_in: 0,
            ways: vec![Way::None; rails],
            active: None,
            asked: false,
            failed: None,
            is_stirred: false,
            several: false,
            dead: 0,
            capacity: options.packet_bytes - HEADER,
            window: options.window as u16,
            thresholds: options.thresholds,
            means: Means::default(),
            peer_reads: false,
            limit: if options.described { 0 } else { options.thresholds.long },
            limit_out: 0,
            packing: false,
            message_out: 0,
            sequence: 0,
            data_sent: 0,
            control_sent: 0,
            done: Counters::default(),
            retained: VecDeque::new(),
            replaying: None,
            controls: VecDeque::new(),
            longs_out: Vec::new(),
            early: Vec::new(),
            in_vain: 0,
            doublings: 0,
            ahead: Vec::new(),
            offers: Vec::new(),
            next_put: 0,
            refused: None,
            unpacking: false,
            awaited: false,
            message_in: 0,
            expected: 0,
            freed: Counters::default(),
            told: Counters::default(),
            told_expected: 0,
            inbox: VecDeque::new(),
            is_ready: false,
            longs_in: Vec::new(),
        }
    }

    /// Notes that a rail is being connected.
    pub(super) fn begin(&mut self, rail: usize) {
        self.set_plain(NO_RAIL);
        if self.ways[rail] == Way::None {
            self.ways[rail] = Way::Asked;
        }
        self.several = self.ways.iter().filter(|way| **way != Way::None).count() > 1;
    }

    /// Says by which rail messages of one packet may take the short way.
    pub(super) fn set_plain(&mut self, rail: u8) {
        self.plain = rail;
        self.set_short();
    }

    /// Finds out which may.
    fn set_short(&mut self) {
        let (out, taken) = (self.limit_out.min(self.capacity + 1), self.limit);
        self.short_out = if self.plain == NO_RAIL || !self.early.is_empty() { 0 } else { out };
        // Others' rails are driven by who takes the long way.
        self.short_in = if self.plain == NO_RAIL || self.ways.len() > 1 { 0 } else { taken };
    }

    /// Keeps a place for a piece that is not packed yet.
    pub(super) fn keep_early(&mut self, early: EarlyGrant) {
        self.early.push(early);
        self.set_short();
    }

    /// Finds out what there is, and which pieces are copied without a question.
    pub(super) fn set_means(&mut self, gathers: bool, reads: bool, described: bool) {
        self.means = Means { gathers: gathers && !self.several, reads: reads && !self.several };
        self.limit_out = if described { 0 } else { choice::copied_below(&self.thresholds, self.means) };
    }

    /// Whether nothing is out of the ordinary, and that rail the only one.
    pub(super) fn is_plain_on(&self, rail: usize) -> bool {
        self.active == Some(rail) && !self.several && self.replaying.is_none() && self.failed.is_none()
    }

    /// Whether a message of the peer's is being unpacked, or has begun to come, or directives wait to be sent.
    #[inline(always)]
    pub(super) fn is_busy_in(&self) -> bool {
        self.unpacking || !self.inbox.is_empty() || !self.controls.is_empty()
    }

    /// Whether the next packet may be the first of a message that is handed over at once.
    #[inline]
    pub(super) fn awaits_message(&self) -> bool {
        self.plain != NO_RAIL && !self.is_busy_in()
    }

    /// Takes over what the peer says it has done.
    #[inline]
    pub(super) fn heard(&mut self, data_freed: u16, control_freed: u16) {
        packet::advance(&mut self.done.data, data_freed);
        packet::advance(&mut self.done.control, control_freed);
    }

    /// The same by a packet that has overtaken none. A peer that counts backwards has fewer credits for it, and no more.
    #[inline(always)]
    pub(super) fn heard_in_order(&mut self, short: Short) {
        self.done = Counters { data: short.data_freed, control: short.control_freed };
    }

    /// What a message that goes the short way tells the peer.
    #[inline(always)]
    pub(super) fn short(&self) -> Short {
        Short { data_freed: self.freed.data, control_freed: self.freed.control }
    }

    /// Counts a message that goes the short way, as one packet that tells the peer what was done here.
    #[inline(always)]
    pub(super) fn count_short(&mut self) {
        self.data_sent = self.data_sent.wrapping_add(1);
        self.sequence = self.sequence.wrapping_add(1);
        self.told = self.freed;
        self.message_out = self.message_out.wrapping_add(1);
    }

    /// Counts word of a message that was put, as a packet that tells the peer what was done here.
    pub(super) fn count_word(&mut self) {
        self.data_sent = self.data_sent.wrapping_add(1);
        self.sequence = self.sequence.wrapping_add(1);
        (self.told, self.told_expected) = (self.freed, self.expected);
    }

    /// The message that was begun, and packed into one packet, is over.
    #[inline]
    pub(super) fn end_short(&mut self) {
        self.packing = false;
        self.forget_early();
    }

    /// Places for pieces of a message that is over are none.
    #[inline(always)]
    fn forget_early(&mut self) {
        if !self.early.is_empty() {
            let next = self.message_out;
            self.early.retain(|early| early.message == next);
            self.set_short();
        }
    }

    /// Counts a message that was one packet and came the short way, all of which was taken.
    #[inline(always)]
    pub(super) fn count_whole(&mut self) {
        self.expected = self.expected.wrapping_add(1);
        self.message_in = self.message_in.wrapping_add(1);
        self.freed.data = self.freed.data.wrapping_add(1);
    }

    /// The message that was packed is over.
    #[inline]
    pub(super) fn end_outgoing(&mut self) {
        self.packing = false;
        self.message_out = self.message_out.wrapping_add(1);
        self.forget_early();
    }

    /// Gives a packet that is counted its number, and answers it.
    #[inline(always)]
    pub(super) fn number(&mut self, header: &mut Header) -> u32 {
        let sequence = self.sequence;
        header.sequence = sequence.into();
        self.sequence = sequence.wrapping_add(1);
        sequence
    }

    /// Writes the header of a packet with `used` bytes behind it, with the counters as they are.
    ///
    /// # Safety
    /// The packet is valid memory with room for a header, and nobody else touches it meanwhile.
    #[inline]
    pub(super) unsafe fn write_header(&mut self, mut header: Header, used: usize, packet: Span) {
        (self.told, self.told_expected) = (self.freed, self.expected);
        header.len = (used as u16).into();
        header.dead = self.dead;
        header.data_freed = self.freed.data.into();
        header.control_freed = self.freed.control.into();
        header.acknowledge = self.expected.into();
        // SAFETY: the caller's promise.
        unsafe { header.write(packet) };
    }

    /// Whether the peer has room for one more packet with bytes.
    #[inline]
    pub(super) fn has_credit(&self) -> bool {
        self.data_sent.wrapping_sub(self.done.data) < self.window
    }

    /// Whether it has room for one more directive.
    pub(super) fn has_control_credit(&self) -> bool {
        usize::from(self.control_sent.wrapping_sub(self.done.control)) < CONTROL
    }

    /// Whether it is time to tell the peer what has been done here, since nothing else goes there that would.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        self.owes_data()
            || usize::from(self.freed.control.wrapping_sub(self.told.control)) >= CONTROL / 2
            || (self.several && self.expected.wrapping_sub(self.told_expected) >= u32::from(self.window / 2))
    }

    /// The same for who has only done with packets of data, on the short way.
    #[inline(always)]
    pub(super) fn owes_data(&self) -> bool {
        self.freed.data.wrapping_sub(self.told.data) >= self.window / 2
    }

    /// Rails that are there.
    pub(super) fn up(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ways.len()).filter(|rail| self.ways[*rail] == Way::Up)
    }
}
