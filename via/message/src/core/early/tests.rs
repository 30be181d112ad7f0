//! What both ends do with places that are named ahead, over a port that keeps record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::expected::{Expected, LOOKS, VAIN};
use crate::core::connection::Way;
use crate::core::control::Control;
use crate::core::long::Start;
use crate::core::{Carrier, Core, Intake, LongOut, Options, Rail};
use crate::modules::Thresholds;
use crate::packet::{self, HEADER, Header, flag};
use crate::port::{Buffer, Event, Exposure, Hello, LinkId, Packet, Port, Wake};
use crate::span::Span;
use crate::{Error, Result, SendMode};

const LONG: usize = 1 << 20;
const PEER: usize = 1;

/// A port that keeps record of what is asked of it, and breaks when it is told to.
struct Recorder {
    record: Arc<Mutex<Vec<&'static str>>>,
    is_broken: Arc<AtomicBool>,
    /// The peer sends some packets inline.
    overtakes: bool,
    bytes: Vec<u8>,
}

impl Recorder {
    fn new(record: &Arc<Mutex<Vec<&'static str>>>, is_broken: &Arc<AtomicBool>, overtakes: bool) -> Self {
        let (record, is_broken) = (record.clone(), is_broken.clone());
        Self { record, is_broken, overtakes, bytes: vec![0; 1024] }
    }

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

    fn send(&mut self, link: LinkId, buffer: Buffer, len: usize, _: bool) -> Result<()> {
        if self.is_broken.load(Ordering::Relaxed) && link == PEER as LinkId {
            return Err(Error::Failed);
        }
        // SAFETY: a buffer of ours, that was filled.
        let header = unsafe { packet::Header::read(buffer.span.first(len)) }.expect("a packet has a header");
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

    fn overtakes(&self, _: LinkId) -> bool {
        self.overtakes
    }

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
    let port = Recorder::new(&record, &is_broken, false);
    let options = Options {
        session: "early".to_owned(),
        rank: 0,
        size: 3,
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
        core.expect_long(id, 0, 0, place).unwrap();
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

/// The peer was granted a way for packets that overtake others, and has not heard so when it puts.
#[test]
fn word_may_come_from_a_peer_that_does_not_number_its_packets_yet() {
    let (mut core, record, is_broken) = connected(None);
    core.rails[0].port = Carrier::Other(Box::new(Recorder::new(&record, &is_broken, true)));
    let mut room = vec![0; LONG];
    // SAFETY: nobody writes there: the port is none.
    let id = unsafe { core.await_long(0, PEER, Span::of_mut(&mut room)).unwrap().unwrap() };
    let sequence = core.connection(id).expected;
    // The message behind it has overtaken it.
    let mut bytes = [0; HEADER];
    let (kind, flags) = (packet::kind::DATA, flag::FIRST | flag::LAST);
    let header = Header { kind, flags, sequence: (sequence + 1).into(), ..Header::default() };
    let span = Span::of_mut(&mut bytes);
    // SAFETY: memory of this function's.
    unsafe { header.write(span) };
    core.arrived(0, id, Packet { index: 1, epoch: 0, span }).unwrap();
    assert!(core.connection(id).inbox.is_empty());
    core.arrived_with_word(0, id, Packet { index: 0, epoch: 0, span: Span::NONE }, LONG, 0).unwrap();
    let connection = core.connection(id);
    assert!(connection.failed.is_none() && connection.ahead.is_empty());
    assert_eq!((connection.inbox.len(), connection.expected), (2, sequence + 2));
    assert_eq!(connection.inbox.iter().map(|arrived| arrived.longs).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn a_message_that_has_ended_is_not_given_up_for_what_fails_beside_it() {
    for (start, is_ended) in [(Start::Ended, true), (Start::Whole, false)] {
        let (mut core, ..) = connected(None);
        let id = core.id(0, PEER);
        let mut long = LongOut::new(0, Span::NONE, SendMode::Cheaper, false, None);
        long.start = start;
        core.connection(id).longs_out.push(long);
        let outcome = core.has_looked(id, Err(Error::Failed));
        assert_eq!(matches!(outcome, Ok(Some(Expected::Ended))), is_ended, "{outcome:?}");
        // Somebody is told; and no word goes after all.
        assert!(outcome.is_err() || matches!(core.trouble, Some(Error::Failed)));
        assert_ne!(core.connection(id).longs_out[0].start, Start::Whole);
    }
}

#[test]
fn a_connection_that_cannot_go_on_keeps_no_other_from_it() {
    let (mut core, record, is_broken) = connected(None);
    let ids = [PEER, PEER + 1].map(|rank| core.id(0, rank));
    for id in ids {
        let connection = core.connection(id);
        connection.ways[0] = Way::Up;
        connection.active = Some(0);
        connection.controls.push_back(Control::Refuse { message: 0 });
        core.stir(id);
    }
    is_broken.store(true, Ordering::Relaxed);
    assert!(matches!(core.settle(), Err(Error::Failed)));
    assert_eq!(*record.lock().unwrap(), ["sends another packet"]);
    assert!(core.connection(ids[1]).controls.is_empty());
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
            unsafe { core.expect_long(id, 0, 0, Span::of_mut(&mut room)).unwrap() };
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
        assert_eq!(*record.lock().unwrap(), ["exposes", "names the place", "leaves", "leaves", "conceals"]);
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
