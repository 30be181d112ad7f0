//! One connection's state.

use std::collections::VecDeque;

use super::control::Control;
use super::long::{EarlyGrant, LongIn, LongOut};
use super::{CONTROL, Options};
use crate::packet::HEADER;
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
    pub(crate) rail: usize,
    pub(crate) flags: u8,
    /// Long pieces of its message up to there.
    pub(crate) longs: u16,
    pub(crate) packet: Packet,
    /// Its bytes of the message.
    pub(crate) bytes: Span,
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

/// All that goes between two ranks on a channel.
pub(crate) struct Connection {
    pub(crate) channel: usize,
    pub(crate) peer: usize,
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
    pub(crate) threshold: usize,

    /// A message to the peer is being packed.
    pub(crate) packing: bool,
    /// The number of the next.
    pub(crate) message_out: u32,
    pub(super) sequence: u32,
    pub(super) data_sent: u16,
    /// As the peer says.
    pub(super) data_done: u16,
    pub(super) control_sent: u16,
    pub(super) control_done: u16,
    pub(super) retained: VecDeque<Retained>,
    /// How many of the retained have yet to go once more, by another rail.
    pub(super) replaying: Option<usize>,
    pub(super) controls: VecDeque<Control>,
    pub(super) longs_out: Vec<LongOut>,
    pub(super) early: Vec<EarlyGrant>,
    pub(super) next_put: u64,
    /// A message of which the receiver takes no more.
    pub(super) refused: Option<u32>,

    /// A message from the peer is being unpacked.
    pub(crate) unpacking: bool,
    pub(crate) message_in: u32,
    pub(super) expected: u32,
    pub(super) data_freed: u16,
    pub(super) control_freed: u16,
    /// What of that the peer was told.
    pub(super) told: (u16, u16, u32),
    pub(super) inbox: VecDeque<Arrived>,
    pub(super) longs_in: Vec<LongIn>,
}

impl Connection {
    pub(super) fn new(channel: usize, peer: usize, rails: usize, options: &Options) -> Self {
        Self {
            channel,
            peer,
            ways: vec![Way::None; rails],
            active: None,
            asked: false,
            failed: None,
            is_stirred: false,
            several: false,
            dead: 0,
            capacity: options.packet_bytes - HEADER,
            window: options.window as u16,
            threshold: options.threshold,
            packing: false,
            message_out: 0,
            sequence: 0,
            data_sent: 0,
            data_done: 0,
            control_sent: 0,
            control_done: 0,
            retained: VecDeque::new(),
            replaying: None,
            controls: VecDeque::new(),
            longs_out: Vec::new(),
            early: Vec::new(),
            next_put: 0,
            refused: None,
            unpacking: false,
            message_in: 0,
            expected: 0,
            data_freed: 0,
            control_freed: 0,
            told: (0, 0, 0),
            inbox: VecDeque::new(),
            longs_in: Vec::new(),
        }
    }

    /// Notes that a rail is being connected.
    pub(super) fn begin(&mut self, rail: usize) {
        if self.ways[rail] == Way::None {
            self.ways[rail] = Way::Asked;
        }
        self.several = self.ways.iter().filter(|way| **way != Way::None).count() > 1;
    }

    /// Whether the peer has room for one more packet with bytes.
    #[inline]
    pub(super) fn has_credit(&self) -> bool {
        self.data_sent.wrapping_sub(self.data_done) < self.window
    }

    /// Whether it has room for one more directive.
    pub(super) fn has_control_credit(&self) -> bool {
        usize::from(self.control_sent.wrapping_sub(self.control_done)) < CONTROL
    }

    /// Whether it is time to tell the peer what has been done here, since nothing else goes there that would.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        let (data, control, expected) = self.told;
        self.data_freed.wrapping_sub(data) >= self.window / 2
            || usize::from(self.control_freed.wrapping_sub(control)) >= CONTROL / 2
            || (self.several && self.expected.wrapping_sub(expected) >= u32::from(self.window / 2))
    }

    /// Rails that are there.
    pub(super) fn up(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ways.len()).filter(|rail| self.ways[*rail] == Way::Up)
    }
}
