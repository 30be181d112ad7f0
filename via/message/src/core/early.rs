//! Places that are named ahead of the message.
//!
//! Who waits for the next message of a rank, with a long piece as the first that it unpacks, names the place of the piece
//! at once. Its sender mostly knows it then when it comes to the piece, and writes without having asked; and where it has
//! just asked, the answer is under way. Where one rail of virtual interfaces is all there is, such a message has no packet:
//! what puts its last byte brings word that it has come, and the counters that a packet would.
//!
//! **The place is the program's again when nobody can write there any more.** A receive that has named one has the
//! connection's next message to itself, as if that had begun, so that no other receive takes it. It ends with that message,
//! of whatever its sender makes it: from its first packet on all is as it is with a place that was named then. Or, where the
//! wait fails, the connection ends first (`Core::forsake`). So sessions whose waits end by themselves, since they have lost
//! their patience, name no places ahead: a sender that is late would find itself cut off.

use super::connection::{Arrived, Connection, NO_RAIL, Way};
use super::control::Control;
use super::long::{Grants, LongIn, LongOut, Start, last_put};
use super::{Carrier, Core, Intake, Outset};
use crate::packet::{Grant, flag};
use crate::port::LinkId;
use crate::span::Span;
use crate::{Error, Result, SendMode};

/// Looks of a sender for a place that its receiver may be about to name: one for so many bytes of the piece, which take far
/// longer to go, and so many at most, in which a word goes to the other end and back. Who asks in place of them, while the
/// place is under way, gives both ends a packet more to take.
const BYTES: usize = 4096;
const LOOKS: usize = 256;
/// A sender that has looked so often in vain asks at once; of so many messages it looks for the place of as many again.
const VAIN: u8 = 4;
const AGAIN: u8 = 32;
/// How often the looks are doubled at most, for who has asked while the place was under way: where a word takes longer, as
/// with adapters that are emulated.
const DOUBLINGS: u8 = 2;

/// What [`Core::send_expected`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The message has to begin in another way: nothing was done.
    Otherwise,
    /// All of it is under way, its end too.
    Ended,
    /// It has begun, and so perhaps has its piece.
    Begun,
    /// It has begun; the receiver is to be asked for the place of its piece, with a packet.
    Asked,
}

/// A place for a piece that is not packed yet: of the message that is being packed, or of the one behind it.
pub(super) struct EarlyGrant {
    pub(super) message: u32,
    pub(super) number: u16,
    pub(super) grants: Grants,
}

impl Connection {
    /// Whether a message may begin with a long piece of so many bytes, for which no packet has asked.
    fn may_send_expected(&self, len: usize) -> bool {
        len >= self.thresholds.long
            && self.active.is_some()
            && self.failed.is_none()
            && self.replaying.is_none()
            && !self.packing
            && self.has_credit()
            && self.refused != Some(self.message_out)
    }

    /// Where a place is kept for a piece of the message that is being packed.
    pub(super) fn find_early(&self, number: u16) -> Option<usize> {
        self.early.iter().position(|early| early.message == self.message_out && early.number == number)
    }

    /// A place was named for a piece that was packed already, by who had not seen that: the next is looked for longer.
    pub(super) fn has_asked_too_soon(&mut self) {
        self.doublings = (self.doublings + 1).min(DOUBLINGS);
        self.in_vain = 0;
    }

    /// Looks for a place for a piece of so many bytes.
    fn looks(&mut self, len: usize) -> usize {
        if self.in_vain >= VAIN {
            self.doublings = 0;
            return 0;
        }
        (len / BYTES).min(LOOKS) << self.doublings
    }

    /// Whether word of the next message may come now, by a put of so many bytes: its receiver waits and has named the place
    /// of its only piece, nothing of it has come, and the put was one that ends the piece. What else was put, and where, only
    /// the peer knows: its bytes are what it makes of them.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn check_word(&self, len: usize) -> std::result::Result<(), &'static str> {
        let piece = match &self.longs_in[..] {
            [long] if self.awaited && self.inbox.is_empty() && long.pull.is_none() => long.span.len,
            _ => return Err("word of a message that nobody had named a place for"),
        };
        if len == last_put(piece) { Ok(()) } else { Err("word of a message whose end was not put") }
    }

    /// Whether a place may be named ahead for a piece of so many bytes: its message is the next, and nothing of it has come.
    fn may_await(&self, len: usize) -> bool {
        len >= self.thresholds.long
            && self.active.is_some()
            && self.failed.is_none()
            && !self.unpacking
            && self.inbox.is_empty()
    }
}

impl Core {
    /// Takes the next message of a rank before it has begun, and names the place of its first long piece; answers the
    /// connection. `None`: that cannot be, and nothing was done.
    ///
    /// # Safety
    /// The memory is valid and nobody else touches it until the message was unpacked, or [`Core::forsake`] was called.
    pub(crate) unsafe fn await_long(
        &mut self,
        channel: usize,
        peer: usize,
        piece: Span,
    ) -> Result<Option<LinkId>> {
        let id = self.id(channel, peer);
        let is_known = self.connections.get(id as usize).is_some_and(Option::is_some);
        if !is_known || self.options.described || self.options.patience.is_some() {
            return Ok(None);
        }
        let connection = self.connection(id);
        if !connection.may_await(piece.len) {
            return Ok(None);
        }
        let message = connection.message_in;
        connection.longs_in.push(LongIn::new(0, piece));
        if self.expose(id, 0).is_err() {
            // Who asks for it when the message is there is told what is wrong.
            self.conceal_all(id);
            return Ok(None);
        }
        let connection = self.connection(id);
        (connection.unpacking, connection.awaited) = (true, true);
        match self.control(id, Control::Grant { message, long: 0 }) {
            Ok(()) => Ok(Some(id)),
            Err(e) => {
                self.forsake(id);
                Err(e)
            }
        }
    }

    /// Whether a rank can send a message of one piece of so many bytes before any of it is taken, whatever it was told.
    pub(crate) fn has_room_for(&mut self, channel: usize, peer: usize, len: usize) -> bool {
        let id = self.id(channel, peer);
        let described = self.options.described;
        let connection = self.connection(id);
        // It may not have been told of half a window yet.
        let room = connection.capacity * usize::from(connection.window / 2);
        connection.active.is_some() && !described && len <= room && len < connection.thresholds.long
    }

    /// The first packet of a message that was taken ahead. False: it has not come.
    ///
    /// # Errors
    /// It will not come, or something is wrong: [`Core::forsake`] has to follow.
    pub(crate) fn take_awaited(&mut self, id: LinkId, into: &mut Intake) -> Result<bool> {
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        let Some(first) = self.next_packet(id)? else { return Ok(false) };
        let connection = self.connection(id);
        connection.awaited = false;
        into.begin(id, connection, first);
        Ok(true)
    }

    /// Waits for a message no more that was taken ahead: the connection ends, and nobody can reach the place any more.
    #[cold]
    pub(crate) fn forsake(&mut self, id: LinkId) {
        self.sever(id, "a wait for its next message has failed, of which it may have written a part");
        self.end_incoming(id);
    }

    /// Takes a message that was taken ahead, and came as the one long piece that was waited for. False: it is another one;
    /// nothing was done.
    pub(crate) fn end_awaited(&mut self, id: LinkId, packet: Arrived) -> Result<bool> {
        let connection = self.connection(id);
        let is_lone =
            packet.flags == flag::FIRST | flag::LAST && packet.longs == 1 && packet.bytes().is_empty();
        let [long] = &connection.longs_in[..] else { return Ok(false) };
        // What was offered comes when it was read; all else has come before the message ends.
        if !is_lone || long.pull.is_some() {
            return Ok(false);
        }
        self.conceal_all(id);
        self.end_incoming(id);
        self.free_packet(id, packet)?;
        Ok(true)
    }

    /// Whether the place of a lone piece of the next message to a rank is known.
    pub(crate) fn is_expected(&self, channel: usize, peer: usize) -> bool {
        match self.connections.get(self.id(channel, peer) as usize) {
            Some(Some(connection)) => connection.find_early(0).is_some() && !connection.packing,
            _ => false,
        }
    }

    /// Begins a message that is one long piece, and puts that where the receiver has named its place, or is just about to:
    /// then it is posted by whatever brings the place.
    ///
    /// # Errors
    /// A port is broken; the message has begun.
    ///
    /// # Safety
    /// As for [`Core::add_long`], unless this answers [`Expected::Otherwise`].
    pub(crate) unsafe fn send_expected(
        &mut self,
        channel: usize,
        peer: usize,
        piece: Span,
        out: &mut Outset,
    ) -> Result<Expected> {
        let id = self.id(channel, peer);
        let is_known = self.connections.get(id as usize).is_some_and(Option::is_some);
        if !is_known || self.options.described || !self.connection(id).may_send_expected(piece.len) {
            return Ok(Expected::Otherwise);
        }
        let connection = self.connection(id);
        connection.packing = true;
        out.begin(id, peer);
        let mut long = LongOut::new(0, piece, SendMode::Cheaper, false, None);
        // For word of its end the peer has room, and nobody else takes it before this message is over.
        long.start = if connection.plain == NO_RAIL { Start::Place } else { Start::Whole };
        // SAFETY: the caller's promise.
        unsafe { self.add_long(id, long)? };
        if self.looks_for_place(id, piece)? {
            return Ok(Expected::Asked);
        }
        let is_ended = self.connection(id).longs_out.last_mut().is_some_and(|long| {
            long.ends_by_packet();
            long.start == Start::Ended
        });
        if is_ended {
            return Ok(Expected::Ended);
        }
        if self.longs(id, None).behind
            && let Some(open) = self.open_packet(id)?
            // SAFETY: there are no parts.
            && unsafe { self.send_data(id, open, 0, &[], flag::FIRST | flag::LAST, 1)? }
        {
            return Ok(Expected::Ended);
        }
        Ok(Expected::Begun)
    }

    /// Ends a message that went so, once its memory is not read any more; answers whether it is.
    ///
    /// # Errors
    /// It will not come; the message has not ended.
    pub(crate) fn end_expected(&mut self, id: LinkId) -> Result<bool> {
        let connection = self.connection(id);
        if connection.longs_out.iter().all(LongOut::is_put) {
            // None of it was offered.
            connection.longs_out.clear();
            connection.end_outgoing();
            return Ok(true);
        }
        match &connection.failed {
            Some(why) => Err(Error::Unreachable { rank: connection.peer, why: why.clone() }),
            None => Ok(false),
        }
    }

    /// Drives the rails for a moment, in which the receiver may name a place for the piece; answers whether it is to be
    /// asked now.
    fn looks_for_place(&mut self, id: LinkId, piece: Span) -> Result<bool> {
        if self.has_place(id) {
            self.connection(id).in_vain = 0;
            return Ok(false);
        }
        let looks = self.connection(id).looks(piece.len);
        // Now and then it is looked for again.
        let connection = self.connection(id);
        connection.in_vain = (connection.in_vain + 1) % AGAIN;
        self.prepare(id, piece);
        let mut outcome = Ok(true);
        let mut left = looks as u32 + 1;
        while left > 0 {
            match self.progress_for(left, || false) {
                Ok(looks) => left = left.saturating_sub(looks),
                Err(e) => {
                    outcome = Err(e);
                    break;
                }
            }
            if self.has_place(id) {
                self.connection(id).in_vain = 0;
                outcome = Ok(false);
                break;
            }
        }
        if outcome.as_ref().is_ok_and(|asks| *asks)
            && let Some(long) = self.connection(id).longs_out.last_mut()
        {
            long.ends_by_packet();
        }
        outcome
    }

    /// Whether the receiver has named a place for the piece of the message, or wants none.
    fn has_place(&mut self, id: LinkId) -> bool {
        let connection = self.connection(id);
        let ways = &connection.ways;
        let is_up = |grant: &Grant| ways.get(grant.rail.get() as usize) == Some(&Way::Up);
        connection.longs_out.last().is_none_or(|long| long.is_refused() || long.grants.iter().any(is_up))
    }

    /// Has what is put next at hand, while there is nothing else to do.
    fn prepare(&mut self, id: LinkId, piece: Span) {
        let rail = usize::from(self.connection(id).plain);
        if let Some(Carrier::Vi(port)) = self.rails.get_mut(rail).map(|rail| &mut rail.port) {
            // SAFETY: as `add_long` was promised.
            unsafe { port.prepare(piece) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::core::{Carrier, Options, Rail};
    use crate::modules::Thresholds;
    use crate::packet;
    use crate::port::{Buffer, Event, Exposure, Hello, Packet, Port, Wake};

    const LONG: usize = 1 << 20;
    const PEER: usize = 1;

    /// A port that keeps record of what is asked of it, and breaks when it is told to.
    struct Recorder {
        record: Arc<Mutex<Vec<&'static str>>>,
        is_broken: Arc<AtomicBool>,
        bytes: Vec<u8>,
    }

    impl Recorder {
        fn note(&self, what: &'static str) {
            self.record.lock().unwrap().push(what);
        }
    }

    impl Port for Recorder {
        fn address(&self) -> String {
            String::new()
        }

        fn is_ordered(&self) -> bool {
            true
        }

        fn connect(&mut self, _: LinkId, _: &str, _: Hello) -> Result<()> {
            Ok(())
        }

        fn buffer(&mut self, _: LinkId) -> Option<Buffer> {
            Some(Buffer { index: 0, span: Span::of_mut(&mut self.bytes) })
        }

        fn release(&mut self, _: LinkId, _: u32) {}

        fn send(&mut self, _: LinkId, buffer: Buffer, len: usize, _: bool) -> Result<()> {
            // SAFETY: a buffer of ours, that was filled.
            let header =
                unsafe { packet::Header::read(buffer.span.first(len)) }.expect("a packet has a header");
            self.note(if header.kind == packet::kind::GRANT {
                "names the place"
            } else {
                "sends another packet"
            });
            Ok(())
        }

        unsafe fn expose(&mut self, _: LinkId, _: Span) -> Result<Exposure> {
            self.note("exposes");
            Ok(Exposure { id: 7, token: [0; 16] })
        }

        fn conceal(&mut self, _: LinkId, exposure: u64) {
            assert_eq!(exposure, 7);
            self.note("conceals");
        }

        unsafe fn put(&mut self, _: LinkId, _: u64, _: Span, _: &[u8; 16], _: u64) -> Result<bool> {
            Ok(false)
        }

        fn poll(&mut self, _: &mut Vec<Event>) -> Result<()> {
            if self.is_broken.load(Ordering::Relaxed) { Err(Error::Failed) } else { Ok(()) }
        }

        fn give_back(&mut self, _: LinkId, _: Packet) {}

        fn is_flushed(&self, _: LinkId) -> bool {
            true
        }

        fn leave(&mut self, _: LinkId) {
            self.note("leaves");
        }

        fn arm(&mut self, _: &mut Vec<std::os::fd::RawFd>) -> Result<Wake> {
            Ok(Wake::Now)
        }
    }

    /// A core that is connected to one peer, the record of its port, and what breaks that.
    fn connected(patience: Option<Duration>) -> (Core, Arc<Mutex<Vec<&'static str>>>, Arc<AtomicBool>) {
        let (record, is_broken) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let port = Recorder { record: record.clone(), is_broken: is_broken.clone(), bytes: vec![0; 1024] };
        let options = Options {
            session: "early".to_owned(),
            rank: 0,
            size: 2,
            packet_bytes: 1024,
            window: 8,
            thresholds: Thresholds::default(),
            described: false,
            patience,
        };
        let rail = Rail { name: "rail".to_owned(), port: Carrier::Other(Box::new(port)), ordered: true };
        let mut core = Core::new(options, vec![rail], Vec::new());
        let id = core.id(0, PEER);
        let connection = core.connection(id);
        connection.ways[0] = Way::Up;
        connection.active = Some(0);
        (core, record, is_broken)
    }

    #[test]
    fn a_place_is_named_once_and_its_message_is_taken() {
        let (mut core, record, _) = connected(None);
        let mut room = vec![0; LONG];
        let place = Span::of_mut(&mut room);
        // SAFETY: nobody writes there: the port is none.
        unsafe {
            assert_eq!(core.await_long(0, PEER, place.first(100)).unwrap(), None, "it is short");
            let id = core.await_long(0, PEER, place).unwrap().expect("it can be named");
            assert_eq!(core.await_long(0, PEER, place).unwrap(), None, "somebody waits for it");
            core.expect_long(id, 0, place).unwrap();
        }
        assert_eq!(*record.lock().unwrap(), ["exposes", "names the place"]);
        let busy = core.check_incoming(0, Some(PEER));
        assert!(matches!(busy, Err(Error::Busy { rank: PEER, way: "from" })), "{busy:?}");
    }

    #[test]
    fn a_wait_that_fails_leaves_the_connection_and_then_takes_the_place_back() {
        let (mut core, record, is_broken) = connected(None);
        let mut room = vec![0; LONG];
        // SAFETY: nobody writes there: the port is none.
        let id = unsafe { core.await_long(0, PEER, Span::of_mut(&mut room)).unwrap().unwrap() };
        let mut intake = Intake::new();
        assert!(!core.take_awaited(id, &mut intake).unwrap());
        is_broken.store(true, Ordering::Relaxed);
        assert!(core.progress().is_err() && !core.take_awaited(id, &mut intake).unwrap() && intake.over);
        core.forsake(id);
        assert_eq!(*record.lock().unwrap(), ["exposes", "names the place", "leaves", "conceals"]);
        let connection = core.connection(id);
        assert!(connection.failed.is_some() && !connection.unpacking && !connection.awaited);
    }

    /// A peer's word is none, and ends the connection for this reason; nothing is delivered.
    fn refuses_word(core: &mut Core, len: usize, why: &str) {
        let id = core.id(0, PEER);
        let before = core.connection(id).inbox.len();
        let packet = Packet { index: 0, epoch: 0, span: Span::NONE };
        core.arrived_with_word(0, id, packet, len, 0).unwrap();
        let connection = core.connection(id);
        let failed = connection.failed.as_ref().expect("the connection has ended").to_string();
        assert!(failed.contains(why), "{failed}");
        assert_eq!(connection.inbox.len(), before, "{why}");
    }

    #[test]
    fn word_is_taken_once_of_a_piece_whose_place_was_named() {
        let packet = Packet { index: 0, epoch: 0, span: Span::NONE };
        for len in [LONG, (4 << 20) + 1, 8 << 20] {
            let (mut core, ..) = connected(None);
            let mut room = vec![0; len];
            // SAFETY: nobody writes there: the port is none.
            let id = unsafe { core.await_long(0, PEER, Span::of_mut(&mut room)).unwrap().unwrap() };
            let last = if len == LONG { LONG } else { (len - 1) % (4 << 20) + 1 };
            core.arrived_with_word(0, id, packet, last, 0).unwrap();
            assert!(core.connection(id).failed.is_none());
            // Another one has no place, and does not keep the first from being taken.
            refuses_word(&mut core, last, "nobody had named a place");
            let mut intake = Intake::new();
            assert!(core.take_awaited(id, &mut intake).unwrap());
            assert!(core.end_awaited(id, intake.current.unwrap()).unwrap());
        }
    }

    #[test]
    fn word_that_nobody_waits_for_ends_the_connection() {
        let (mut core, record, _) = connected(None);
        refuses_word(&mut core, LONG, "nobody had named a place");
        assert_eq!(*record.lock().unwrap(), ["leaves"]);
        // In the middle of a message: behind its first packet, and with a place for one of its pieces.
        for with_place in [false, true] {
            let (mut core, ..) = connected(None);
            let id = core.id(0, PEER);
            core.connection(id).unpacking = true;
            let mut room = vec![0; LONG];
            if with_place {
                // SAFETY: nobody writes there: the port is none.
                unsafe { core.expect_long(id, 0, Span::of_mut(&mut room)).unwrap() };
            }
            refuses_word(&mut core, LONG, "nobody had named a place");
            assert!(core.next_packet(id).is_err());
        }
    }

    #[test]
    fn word_by_a_put_that_went_elsewhere_ends_the_connection() {
        for len in [0, 1, LONG - 1, LONG + 1, usize::MAX] {
            let (mut core, record, _) = connected(None);
            let mut room = vec![0; LONG];
            // SAFETY: nobody writes there: the port is none.
            let id = unsafe { core.await_long(0, PEER, Span::of_mut(&mut room)).unwrap().unwrap() };
            refuses_word(&mut core, len, "whose end was not put");
            let mut intake = Intake::new();
            assert!(core.take_awaited(id, &mut intake).is_err(), "{len}");
            core.forsake(id);
            assert_eq!(
                *record.lock().unwrap(),
                ["exposes", "names the place", "leaves", "leaves", "conceals"]
            );
        }
    }

    #[test]
    fn who_may_lose_patience_names_none() {
        let (mut core, record, _) = connected(Some(Duration::from_secs(1)));
        let mut room = vec![0; LONG];
        // SAFETY: nobody writes there: the port is none.
        assert_eq!(unsafe { core.await_long(0, PEER, Span::of_mut(&mut room)) }.unwrap(), None);
        assert!(record.lock().unwrap().is_empty());
    }

    #[test]
    fn who_has_asked_too_soon_looks_longer_until_it_was_in_vain() {
        let (mut core, ..) = connected(None);
        let id = core.id(0, PEER);
        let connection = core.connection(id);
        assert_eq!(connection.looks(LONG), LOOKS);
        let longer = [(); 3].map(|()| {
            connection.has_asked_too_soon();
            connection.looks(LONG)
        });
        assert_eq!(longer, [2 * LOOKS, 4 * LOOKS, 4 * LOOKS]);
        connection.in_vain = VAIN;
        assert_eq!(connection.looks(LONG), 0);
        connection.in_vain = 0;
        assert_eq!(connection.looks(LONG), LOOKS);
    }
}
