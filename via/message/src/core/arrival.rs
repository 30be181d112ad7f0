//! The stream of packets, on its way in.

use super::Core;
use super::connection::{Arrived, Way};
use crate::packet::{self, HEADER, Header, Short, flag, kind};
use crate::port::{Hello, LinkId, Packet};
use crate::{Error, Result};

impl Core {
    /// A packet has come.
    #[inline]
    pub(super) fn arrived(&mut self, rail: usize, id: LinkId, packet: Packet) -> Result<()> {
        if self.arrived_shortly(rail, id, packet) {
            return Ok(());
        }
        self.arrived_somehow(rail, id, packet)
    }

    /// A packet has come that is not simply the whole of the next message.
    #[inline(never)]
    fn arrived_somehow(&mut self, rail: usize, id: LinkId, packet: Packet) -> Result<()> {
        self.arrived_numbered(rail, id, packet)?;
        self.arrived_ahead(id)
    }

    /// Those that have overtaken what has just come are next.
    fn arrived_ahead(&mut self, id: LinkId) -> Result<()> {
        loop {
            let connection = self.connection(id);
            let expected = connection.expected;
            let Some(at) = connection.ahead.iter().position(|(sequence, ..)| *sequence == expected) else {
                return Ok(());
            };
            let (_, rail, packet) = connection.ahead.swap_remove(at);
            self.arrived_numbered(rail, id, packet)?;
        }
    }

    fn arrived_numbered(&mut self, rail: usize, id: LinkId, packet: Packet) -> Result<()> {
        // SAFETY: the port gave us the packet, which is nobody else's until it is given back.
        let (header, short) = unsafe { (Header::read(packet.span), Short::read(packet.span)) };
        if let Some(short) = short {
            return self.arrived_short(rail, id, packet, short);
        }
        let Some(header) = header else {
            self.rails[rail].port.give_back(id, packet);
            return self.broke(rail, id, "a packet without a header, or with another length than it says");
        };
        let connection = self.connection(id);
        connection.heard(header.data_freed.get(), header.control_freed.get());
        // Otherwise it has one rail, which has not gone, and nothing to send that has waited for what was just heard.
        let is_plain = !connection.several && header.dead == 0 && connection.controls.is_empty();
        if !is_plain {
            self.heard_otherwise(id, &header)?;
        }
        if header.kind == kind::COUNTERS {
            self.rails[rail].port.give_back(id, packet);
            // Who leaves keeps what it does not know to have come, and would wait for us to owe it more.
            return if header.flags & flag::LEAVING != 0 { self.tell_now(id) } else { Ok(()) };
        }
        let connection = self.connection(id);
        let sequence = header.sequence.get();
        if sequence != connection.expected {
            return self.arrived_out_of_order(rail, id, packet, sequence);
        }
        connection.expected = sequence.wrapping_add(1);
        if header.kind == kind::DATA {
            return self.arrived_data(rail, id, Arrived::new(rail, &header, packet));
        }
        let outcome = self.directive(id, &header, packet.span.skip(HEADER));
        self.rails[rail].port.give_back(id, packet);
        let connection = self.connection(id);
        connection.freed.control = connection.freed.control.wrapping_add(1);
        match outcome {
            // It is all that has changed.
            Ok(()) if is_plain && header.kind == kind::GRANT => {
                self.pump_longs(id)?;
                self.tell(id)
            }
            Ok(()) => self.go_on(id),
            Err(what) => self.broke(rail, id, what),
        }
    }

    /// What a header says beside the counters.
    #[cold]
    #[inline(never)]
    fn heard_otherwise(&mut self, id: LinkId, header: &Header) -> Result<()> {
        if header.dead & !self.connection(id).dead != 0 {
            self.peer_left(id, header.dead)?;
        }
        if self.connection(id).several {
            self.acknowledged(id, header.acknowledge.get());
        }
        if !self.connection(id).controls.is_empty() {
            self.stir(id);
        }
        Ok(())
    }

    /// A packet has come that is not the next.
    #[cold]
    #[inline(never)]
    fn arrived_out_of_order(&mut self, rail: usize, id: LinkId, packet: Packet, sequence: u32) -> Result<()> {
        let overtakes = self.rails[rail].port.overtakes(id);
        let connection = self.connection(id);
        let is_before = packet::is_before(sequence, connection.expected);
        if !is_before && overtakes {
            return self.keep_ahead(rail, id, packet, sequence);
        }
        let again = is_before && connection.several;
        self.rails[rail].port.give_back(id, packet);
        // It came by another rail already.
        if again { Ok(()) } else { self.broke(rail, id, "a packet was left out") }
    }

    /// Keeps a packet until those that it has overtaken have come.
    fn keep_ahead(&mut self, rail: usize, id: LinkId, packet: Packet, sequence: u32) -> Result<()> {
        let connection = self.connection(id);
        // There are no more packets under way than that; and of each number one, by whichever rail.
        let most = usize::from(connection.window) + super::CONTROL;
        let far = sequence.wrapping_sub(connection.expected) as usize > most;
        if far || connection.ahead.iter().any(|(known, ..)| *known == sequence) {
            self.rails[rail].port.give_back(id, packet);
            return if far { self.broke(rail, id, "a packet was left out") } else { Ok(()) };
        }
        connection.ahead.push((sequence, rail, packet));
        Ok(())
    }

    /// A packet of the short form has come in the middle of something.
    fn arrived_short(&mut self, rail: usize, id: LinkId, packet: Packet, short: Short) -> Result<()> {
        let connection = self.connection(id);
        connection.heard(short.data_freed, short.control_freed);
        connection.expected = connection.expected.wrapping_add(1);
        if !connection.controls.is_empty() {
            self.stir(id);
        }
        self.review(id);
        self.arrived_data(rail, id, Arrived::short(rail, packet))
    }

    /// Word has come of a message that is one long piece, the last `len` bytes of which came with it. The peer is not taken
    /// at its word: without a place for that piece nothing can have come.
    pub(super) fn arrived_with_word(
        &mut self,
        rail: usize,
        id: LinkId,
        packet: Packet,
        len: usize,
        word: u32,
    ) -> Result<()> {
        let connection = self.connection(id);
        if connection.several {
            self.rails[rail].port.give_back(id, packet);
            return self.broke(rail, id, "word of a message without a number, where all have one");
        }
        if let Err(what) = connection.check_word(len) {
            self.rails[rail].port.give_back(id, packet);
            return self.broke(rail, id, what);
        }
        let short = Short::from(word);
        connection.heard(short.data_freed, short.control_freed);
        connection.expected = connection.expected.wrapping_add(1);
        if !connection.controls.is_empty() {
            self.stir(id);
        }
        self.arrived_data(rail, id, Arrived::word(rail, packet))?;
        // Packets may overtake it that went when the peer had just been granted a way for that: those have numbers, and
        // what went before has none.
        self.arrived_ahead(id)
    }

    fn arrived_data(&mut self, rail: usize, id: LinkId, arrived: Arrived) -> Result<()> {
        let connection = self.connection(id);
        let unpacking = connection.unpacking;
        let first = connection.inbox.is_empty() && (!unpacking || connection.awaited);
        connection.inbox.push_back(arrived);
        if first {
            if arrived.flags & flag::FIRST == 0 {
                return self.broke(rail, id, "a message has no beginning");
            }
            if !unpacking {
                self.make_ready(id);
            }
        }
        // Where packets are kept at the sender, it waits to hear of them.
        if self.connection(id).several { self.tell(id) } else { Ok(()) }
    }

    /// Packets before that number have come: they need not be kept.
    fn acknowledged(&mut self, id: LinkId, before: u32) {
        let connection = match self.connections.get_mut(id as usize) {
            Some(Some(connection)) => connection,
            _ => return,
        };
        if packet::is_before(connection.sequence, before) {
            return; // It cannot have what never went.
        }
        while let Some(retained) = connection.retained.front().copied()
            && packet::is_before(retained.sequence, before)
        {
            connection.retained.pop_front();
            if let Some(left) = &mut connection.replaying {
                *left = (*left).min(connection.retained.len());
            }
            self.rails[retained.rail].port.release(id, retained.index);
        }
    }

    /// The next packet of the message that is being unpacked, if it has come.
    #[inline]
    pub(crate) fn next_packet(&mut self, id: LinkId) -> Result<Option<Arrived>> {
        let connection = self.connection(id);
        match connection.inbox.pop_front() {
            Some(arrived) => Ok(Some(arrived)),
            None => match &connection.failed {
                Some(why) => Err(Error::Unreachable { rank: connection.peer, why: why.clone() }),
                None => Ok(None),
            },
        }
    }

    /// The packet that ends the message that is being unpacked, if it has come.
    pub(crate) fn find_last(&mut self, id: LinkId) -> Option<Arrived> {
        self.connection(id).inbox.iter().find(|arrived| arrived.flags & flag::LAST != 0).copied()
    }

    /// Whether the next packet has bytes that go in order.
    pub(crate) fn has_early_packet(&mut self, id: LinkId) -> bool {
        self.connection(id).inbox.front().is_some_and(|arrived| arrived.flags & flag::LATER == 0)
    }

    /// A packet's bytes were taken: its buffer is free for the next.
    #[inline]
    pub(crate) fn free_packet(&mut self, id: LinkId, arrived: Arrived) -> Result<()> {
        self.rails[usize::from(arrived.rail)].port.give_back(id, arrived.packet);
        let connection = self.connection(id);
        connection.freed.data = connection.freed.data.wrapping_add(1);
        self.tell(id)
    }

    /// A message was unpacked; the next may be taken.
    #[inline]
    pub(crate) fn end_incoming(&mut self, id: LinkId) {
        let connection = self.connection(id);
        (connection.unpacking, connection.awaited) = (false, false);
        connection.message_in = connection.message_in.wrapping_add(1);
        if !connection.inbox.is_empty() {
            self.make_ready(id);
        }
    }

    /// A link is there.
    #[cold]
    pub(super) fn up(&mut self, rail: usize, id: LinkId, hello: Hello) -> Result<()> {
        let described = self.options.described;
        let connection = self.connection(id);
        if hello.rank.get() as usize != connection.peer || hello.channel.get() as usize != connection.channel
        {
            return self.broke(rail, id, "it is another rank than the one that was asked");
        }
        if (hello.described.get() != 0) != described {
            let rank = connection.peer;
            self.sever(id, "one end describes messages, and the other does not");
            return Err(Error::Options { rank, what: "only one of the two describes messages" });
        }
        connection.begin(rail);
        let others = if connection.asked { 0 } else { hello.rails.get() & !(1 << rail) };
        connection.asked = true;
        connection.ways[rail] = Way::Up;
        let capacity = (hello.packet_bytes.get() as usize).saturating_sub(HEADER);
        if capacity < 64 || hello.window.get() < 2 {
            return self.broke(rail, id, "its packets are too small, or too few");
        }
        connection.capacity = connection.capacity.min(capacity);
        connection.window = connection.window.min(hello.window.get().min(1024) as u16);
        let long = connection.thresholds.long.min((hello.threshold.get() as usize).max(1));
        connection.thresholds.long = long;
        connection.limit = if described { 0 } else { long };
        connection.peer_reads = hello.reads.get() != 0;
        if connection.active.is_none() && connection.failed.is_none() {
            connection.active = Some(rail);
        }
        if others != 0 {
            // Asked for from here too: so both ends know of each rail whether it may yet come.
            self.ask_for(id, others)?;
        }
        self.review(id);
        self.go_on(id)
    }

    /// The peer breaks the protocol: that rail is left.
    #[cold]
    pub(super) fn broke(&mut self, rail: usize, id: LinkId, what: &'static str) -> Result<()> {
        self.rails[rail].port.leave(id);
        self.down(rail, id, format!("it broke the protocol: {what}"))
    }
}
