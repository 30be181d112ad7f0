//! The sending half of a connection: descriptors are cut into frames, and frames are sent until acknowledged.

mod calm;
mod long;
mod parts;
mod span;

use super::congestion::{Timeout, Window};
use super::core::{Core, Gap};
use super::endpoint::{Endpoint, SendWork};
use super::hold::Stage;
use super::{EngineConfig, FrameToken, Output, PayloadPart, Sent, Time, Tuning};
use crate::wire::control::Offer;
use crate::wire::data::{self, Extensions, Fixed, Remote};
use crate::wire::{ETHERNET, FIXED, crc, put_u32};
use crate::{Operation, Segment};
use calm::Calm;
use parts::Parts;
use span::{Span, Way};

/// Most frames in flight: what a selective acknowledgement can tell apart.
pub(super) const WINDOW: usize = 64;
/// Gather entries that a frame's payload takes at most.
const MAX_PARTS: usize = 16;
/// The round trip is measured on one frame in so many, at most.
const MEASURED: u32 = 8;
/// Frames that must have arrived of those sent later, for one to be taken for lost.
const REORDERING: u32 = 3;
/// Frames from which on a message is so long that its end asks for an acknowledgement: who waits for its memory is told at
/// once, and that is no more than all streams are acknowledged.
const LONG: u32 = 16;

/// Where in a descriptor's segments a frame's payload begins.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    segment: u32,
    within: u32,
}

/// A frame that was sent and not yet acknowledged, or one that is about to be sent.
#[derive(Debug, Clone, Copy, Default)]
struct Flight {
    work: u32,
    message: u32,
    offset: u32,
    len: u32,
    place: Place,
    /// Frames of this connection that were sent before it, retransmissions counted.
    order: u32,
    /// Whether `work` is the number of an answer to a read, and not of what was posted.
    answer: bool,
}

pub(super) struct Sender {
    /// All frames before it are acknowledged.
    una: u32,
    /// The sequence number of the next new frame.
    pub(super) next: u32,
    /// What the peer takes unacknowledged.
    pub(super) peer_window: u32,
    /// What is kept while the interface is calm.
    calm: Calm,
    /// Bits from `una` on: arrived, by selective acknowledgement.
    sacked: u64,
    /// Bits from `una` on: taken for lost, to be sent again.
    lost: u64,
    /// The next new frame.
    cursor: Flight,
    /// The next new frame of an answer.
    answering: Flight,
    order: u32,
    /// The latest `order` that is known to have arrived.
    arrived: u32,
    /// Losses before it were answered by a smaller window already.
    recovery: u32,
    recovering: bool,
    /// The first frame since the peer was asked to answer.
    asked_up_to: u32,
    measuring: bool,
    /// The frame on which the round trip is measured next; one that has gone by, while it is measured.
    measure_at: u32,
    measured: u32,
    measured_from: Time,
    timer_from: Time,
    /// Once the time-out has run out: from when on it was counted the first time.
    progress: Time,
    /// Payload of a frame without extensions.
    pub(super) room: u32,
    /// How long frames may be.
    span: Span,
    way: Way,
    parts: Parts,
    /// When it is looked for a longer one, if a message wants it.
    pub(super) look_at: Time,
    window: Window,
    timeout: Timeout,
    flights: Box<[Flight; WINDOW]>,
}

impl Sender {
    pub(super) fn new(tuning: &Tuning) -> Self {
        Self {
            una: 0,
            next: 0,
            peer_window: 0,
            calm: Calm::default(),
            sacked: 0,
            lost: 0,
            cursor: Flight::default(),
            answering: Flight { answer: true, ..Flight::default() },
            order: 0,
            arrived: 0,
            recovery: 0,
            recovering: false,
            asked_up_to: 0,
            measuring: false,
            measure_at: 0,
            measured: 0,
            measured_from: Time(0),
            timer_from: Time(0),
            progress: Time(0),
            room: 0,
            span: Span::default(),
            way: Way::Sure,
            parts: Parts::default(),
            look_at: Time::NEVER,
            window: Window::new(tuning.window),
            timeout: Timeout::new(tuning),
            flights: Box::new([Flight::default(); WINDOW]),
        }
    }

    /// Chooses the number of the first frame of the connection to come.
    pub(super) fn begin(&mut self, first: u32) {
        self.una = first;
        self.next = first;
    }

    /// The peer is known.
    pub(super) fn establish(
        &mut self,
        config: &EngineConfig,
        theirs: &Offer<'_>,
        integrity: bool,
        max_transfer_size: u32,
        [work, answer]: [u32; 2],
    ) {
        self.span = Span::new(config, theirs.mtu, integrity);
        self.room = self.span.room(self.span.sure);
        self.way = Way::Sure;
        // Never more than at the beginning: it may grow, and comes back to this.
        self.calm = Calm::new(self.room.min(max_transfer_size));
        self.peer_window = u32::from(theirs.window);
        self.sacked = 0;
        self.lost = 0;
        self.cursor = Flight { work, message: self.next, ..Flight::default() };
        self.answering = Flight { work: answer, answer: true, ..Flight::default() };
        self.order = 0;
        self.arrived = 0;
        self.recovering = false;
        self.asked_up_to = self.next;
        self.measuring = false;
        self.measure_at = self.next;
        self.window = Window::new(config.tuning.window);
        self.timeout = Timeout::new(&config.tuning);
    }

    /// There are never more frames than these in flight, since there are no more credits: the peer is asked for an
    /// acknowledgement when they end, as when a window does.
    pub(super) fn limit(&mut self, frames: usize) {
        self.window = Window::new((frames as u32).min(self.window.size));
    }

    /// The connection is no more: nothing is in flight, nothing to be sent.
    pub(super) fn abandon(&mut self, work: u32, answer: u32) {
        self.sacked = 0;
        self.lost = 0;
        self.cursor.work = work;
        self.answering.work = answer;
        self.next = self.una;
    }

    #[inline]
    pub(super) fn has_acknowledged(&self, end: u32) -> bool {
        self.una.wrapping_sub(end) as i32 >= 0
    }

    /// All frames before it are acknowledged.
    #[inline(always)]
    pub(super) fn acknowledged(&self) -> u32 {
        self.una
    }

    /// Whether nothing that was posted waits to be sent.
    pub(super) fn has_begun_all(&self, tail: u32) -> bool {
        self.cursor.work == tail
    }

    /// Whether no frame is known to be lost, or to have arrived before its turn, and no loss is being got over.
    pub(super) fn has_no_gap(&self) -> bool {
        self.lost | self.sacked == 0 && !self.recovering
    }

    /// Frames since the peer was asked to answer, with the next one; 0 when that asks again, having found no room.
    #[inline]
    fn unasked(&self) -> u32 {
        self.next.wrapping_add(1).wrapping_sub(self.asked_up_to)
    }

    #[inline(always)]
    fn outstanding(&self) -> u32 {
        self.next.wrapping_sub(self.una)
    }

    /// Bits of the frames in flight, from `una` on.
    #[inline]
    fn in_flight(&self) -> u64 {
        match self.outstanding() {
            0 => 0,
            n => u64::MAX >> (64 - n),
        }
    }

    /// Frames that are on their way, as far as we know.
    #[inline]
    fn pipe(&self) -> u32 {
        let gone = self.sacked | self.lost;
        if gone == 0 { self.outstanding() } else { self.outstanding() - gone.count_ones() }
    }

    #[inline]
    fn may_send(&self) -> bool {
        self.outstanding() < self.peer_window.min(WINDOW as u32) && self.pipe() < self.window.size
    }

    /// What was posted while the engine was not driven counts from when it is again, once: nothing could be heard before.
    pub(super) fn skip(&mut self, gap: Gap) {
        if self.timer_from == gap.from {
            self.timer_from = gap.to;
        }
    }

    /// When a frame will be taken for lost because nothing was heard.
    pub(super) fn timer(&self, tuning: &Tuning) -> Option<Time> {
        (self.outstanding() != 0).then(|| self.timeout.at(self.timer_from, tuning))
    }

    /// How long nothing new was acknowledged, though it was asked for again and again.
    pub(super) fn stalled(&self, now: Time) -> u64 {
        if self.outstanding() != 0 && self.timeout.expiries() > 5 { now.since(self.progress) } else { 0 }
    }

    /// Nothing was heard for too long: all that has not arrived is sent again.
    pub(super) fn expire(&mut self, now: Time) {
        if self.timeout.expiries() == 0 {
            self.progress = self.timer_from;
        }
        self.timer_from = now;
        if self.lost != 0 && self.pipe() == 0 {
            // The last time-out's frames still wait for the adapter.
            return;
        }
        self.timeout.expired();
        self.window.timed_out();
        self.lost = self.in_flight() & !self.sacked;
        self.recovery = self.next;
        self.recovering = true;
        self.stop_measuring();
    }

    /// The round trip is measured on this frame, which is being sent for the first time.
    #[inline]
    fn measure(&mut self, sequence: u32, now: Time) {
        self.measuring = true;
        self.calm.attend();
        self.measured = sequence;
        self.measured_from = now;
    }

    /// The measurement is of no use: the next frame is measured.
    fn stop_measuring(&mut self) {
        self.measuring = false;
        self.measure_at = self.next;
    }

    /// The peer has what is next, and no receive for it: frames are not lost, and it is asked again soon.
    #[cold]
    pub(super) fn peer_not_ready(&mut self, now: Time) {
        self.timeout.progress();
        self.progress = now;
        self.window.excused();
    }

    /// Takes an acknowledgement. Answers whether it is news.
    pub(super) fn acknowledge(&mut self, ack: u32, sack: u64, now: Time, tuning: &Tuning) -> bool {
        let advance = ack.wrapping_sub(self.una);
        if advance == 0 && sack == 0 {
            return false;
        }
        if advance > self.outstanding() {
            // Older than what we know, or of frames that were never sent.
            return false;
        }
        if advance != 0 {
            self.close_gaps(advance);
            self.timeout.progress();
            self.advance(advance, now, tuning);
            if self.recovering && self.una.wrapping_sub(self.recovery) as i32 >= 0 {
                self.recovering = false;
            }
        }
        if sack != 0 {
            self.select(sack, tuning);
        }
        true
    }

    fn advance(&mut self, frames: u32, now: Time, tuning: &Tuning) {
        if self.measuring && self.measured.wrapping_sub(self.una) < frames {
            self.measuring = false;
            self.measure_at = self.next.wrapping_add(MEASURED - 1);
            self.timeout.measured(now.since(self.measured_from), tuning);
        }
        self.una = self.una.wrapping_add(frames);
        self.timer_from = now;
        if self.window.is_open() {
            return;
        }
        self.window.acknowledged(frames);
        self.widen_reach();
    }

    /// So many frames are no longer in flight.
    fn close_gaps(&mut self, frames: u32) {
        for n in 0..frames {
            self.saw(self.una.wrapping_add(n));
        }
        self.sacked = self.sacked.checked_shr(frames).unwrap_or(0);
        self.lost = self.lost.checked_shr(frames).unwrap_or(0);
    }

    /// A frame is known to have arrived.
    #[inline]
    fn saw(&mut self, sequence: u32) {
        let order = self.flights[sequence as usize % WINDOW].order;
        if order.wrapping_sub(self.arrived) as i32 > 0 {
            self.arrived = order;
        }
    }

    /// Frames behind a gap have arrived. What was sent well before them, and has not, is lost.
    #[cold]
    fn select(&mut self, sack: u64, _tuning: &Tuning) {
        let mut news = (sack << 1) & self.in_flight() & !self.sacked;
        self.sacked |= news;
        self.lost &= !self.sacked;
        while news != 0 {
            self.saw(self.una.wrapping_add(news.trailing_zeros()));
            news &= news - 1;
        }
        let mut missing = self.in_flight() & !self.sacked & !self.lost;
        let mut found = false;
        while missing != 0 {
            let n = missing.trailing_zeros();
            missing &= missing - 1;
            let order = self.flights[self.una.wrapping_add(n) as usize % WINDOW].order;
            if self.arrived.wrapping_sub(order) as i32 >= REORDERING as i32 {
                self.lost |= 1 << n;
                found = true;
            }
        }
        if found && !self.recovering {
            self.recovering = true;
            self.recovery = self.next;
            self.window.lost();
        }
        if found {
            self.stop_measuring();
        }
    }
}

impl Endpoint {
    /// Whether something can be sent.
    #[inline(always)]
    pub(super) fn has_work(&self) -> bool {
        self.receiver.owes_now()
            || self.sender.lost != 0
            || self.has_answers_to_send() && self.sender.may_send()
            || self.may_go_on()
    }

    /// Whether frames of answers to reads were not sent yet.
    #[inline(always)]
    pub(super) fn has_answers_to_send(&self) -> bool {
        self.sender.answering.work != self.reads.answers.tail()
    }

    /// Whether the next new frame may be sent: there is one, the window is open, and it is not to wait for reads.
    #[inline(always)]
    pub(super) fn may_go_on(&self) -> bool {
        self.sender.cursor.work != self.sends.tail() && self.sender.may_send() && self.may_begin()
    }

    #[inline(never)]
    fn may_begin(&self) -> bool {
        let cursor = &self.sender.cursor;
        cursor.offset != 0 || self.sends.get(cursor.work).is_none_or(|work| self.reads.may_begin(work))
    }

    /// Whether the next new frame is of a message that takes several: of what was posted, or of an answer.
    #[inline(never)]
    fn wants_longer_frames(&self, answer: bool) -> bool {
        let (works, cursor) = if answer {
            (&self.reads.answers, &self.sender.answering)
        } else {
            (&self.sends, &self.sender.cursor)
        };
        works.get(cursor.work).is_some_and(|work| work.outgoing() > self.sender.room)
    }

    /// Whether the next new frame is one of an answer: they go first, but not into the middle of a message.
    fn answers_next(&self) -> bool {
        let sender = &self.sender;
        self.has_answers_to_send()
            && sender.may_send()
            && (sender.answering.offset != 0 || sender.cursor.offset == 0)
    }

    /// Posts to the send queue of a connected interface, in all other cases.
    #[inline(never)]
    pub(super) fn post_any<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        descriptor: Box<crate::Descriptor>,
        out: &mut O,
    ) {
        self.stir();
        let mut total = 0;
        for segment in &descriptor.segments {
            total += segment.len();
        }
        self.sends.push(SendWork::new(descriptor, total));
        self.wary = self.wary && core.regions.has_lost();
        if core.busy {
            self.enqueue(core);
        } else {
            self.pump(core, now, WINDOW as u32, out);
        }
        self.settle();
    }

    /// Sends what may be sent: `budget` frames at most, the rest has to wait for the next turn.
    #[inline(never)]
    pub(super) fn pump<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, budget: u32, out: &mut O) {
        let mut left = budget;
        while left != 0 {
            // Answers go first, but not into the middle of a message.
            let answers = self.answers_next();
            if (answers || self.may_go_on()) && self.sender.lost == 0 {
                if now >= self.sender.look_at && self.wants_longer_frames(answers) {
                    self.look_for_path(core, now, out);
                }
                let sent = self.send_long(core, now, answers, left, out);
                left -= sent;
                if sent != 0 {
                    continue;
                }
            }
            let sent = if self.sender.lost != 0 && self.sender.pipe() < self.sender.again_window() {
                self.send_again(core, now, out)
            } else if answers {
                self.send_next(core, now, true, out)
            } else if self.may_go_on() {
                self.send_next(core, now, false, out)
            } else {
                break;
            };
            if !sent {
                if self.mislaid {
                    return self.lose_memory(core, now, out);
                }
                core.found_full(now);
                self.enqueue(core);
                break;
            }
            left -= 1;
        }
        if self.is_unreliable() {
            self.complete_sends(out);
        }
        if self.receiver.owes_now() {
            self.send_ack(core, now, 0, out);
        }
        if left == 0 && self.has_work() {
            self.enqueue(core);
        }
    }

    /// Sends the next new frame; false when the adapter has no room.
    #[inline]
    fn send_next<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        answer: bool,
        out: &mut O,
    ) -> bool {
        let sender = &self.sender;
        let mut flight = if answer { sender.answering } else { sender.cursor };
        flight.order = sender.order.wrapping_add(1);
        let works = if answer { &self.reads.answers } else { &self.sends };
        let Some(work) = works.get(flight.work) else { return true };
        let operation = work.descriptor.operation;
        let write = matches!(operation, Operation::RdmaWrite(_));
        let read = matches!(operation, Operation::RdmaRead(_));
        let immediate = work.descriptor.immediate.is_some();
        let room = sender.room - if write { 16 } else { 0 } - if immediate { 4 } else { 0 };
        let total = work.outgoing();
        flight.len = long::portion(total - flight.offset, room);
        if answer {
            flight.message = work.descriptor.context as u32;
        }
        let consumes = immediate || !(write || read || answer);

        let outstanding = sender.outstanding() + 1;
        let limit = sender.peer_window.min(sender.window.size).min(WINDOW as u32);
        let last_work = flight.work.wrapping_add(1) == works.tail();
        let mut flags = 0;
        if last_work && flight.offset + flight.len == total {
            flags |= data::DRY;
        }
        let ends_long = flight.offset >= LONG * room && flight.offset + flight.len == total;
        if outstanding >= limit && sender.unasked() * 4 >= limit || ends_long {
            flags |= data::NOW;
        }
        let sequence = sender.next;
        let Some(next) = self.transmit(core, &mut flight, sequence, flags, out) else { return false };

        let sender = &mut self.sender;
        if flags & data::NOW != 0 {
            sender.asked_up_to = sequence.wrapping_add(1);
        }
        sender.order = flight.order;
        sender.flights[sequence as usize % WINDOW] = flight;
        if sequence == sender.una {
            sender.timer_from = now;
        }
        sender.next = sequence.wrapping_add(1);
        if sequence == sender.measure_at {
            sender.measure(sequence, now);
        }
        let cursor = if answer { &mut sender.answering } else { &mut sender.cursor };
        if flight.offset + flight.len == total {
            cursor.work = flight.work.wrapping_add(1);
            cursor.offset = 0;
            cursor.place = Place::default();
            if consumes {
                cursor.message = cursor.message.wrapping_add(1);
            }
            let end = sender.next;
            let works = if answer { &mut self.reads.answers } else { &mut self.sends };
            if let Some(work) = works.get_mut(flight.work) {
                work.hold.set_stage(Stage::Sent);
                work.end = end;
                if read {
                    work.hold.ask();
                    self.reads.asked(flight.work);
                }
            }
        } else {
            cursor.offset += flight.len;
            cursor.place = next;
        }
        if self.is_unreliable() {
            // Nobody will say that it has arrived.
            self.sender.una = self.sender.next;
            self.sender.stop_measuring();
            return true;
        }
        let at = self.sender.timeout.at(self.sender.timer_from, &core.config.tuning);
        self.wake(core, at);
        true
    }

    /// Sends the first frame that was lost once more; false when the adapter has no room.
    #[cold]
    fn send_again<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) -> bool {
        let n = self.sender.lost.trailing_zeros();
        let sequence = self.sender.una.wrapping_add(n);
        let mut flight = self.sender.flights[sequence as usize % WINDOW];
        flight.order = self.sender.order.wrapping_add(1);
        let sent = match self.sender.part_room(&flight) {
            None => self.transmit(core, &mut flight, sequence, data::NOW, out).is_some(),
            Some(room) => self.send_parts(core, &flight, sequence, room, out),
        };
        if !sent {
            return false;
        }
        let sender = &mut self.sender;
        sender.order = flight.order;
        sender.flights[sequence as usize % WINDOW] = flight;
        sender.lost &= !(1 << n);
        // An answer could be to either copy (Karn).
        sender.stop_measuring();
        if n == 0 {
            sender.timer_from = now;
        }
        let at = sender.timeout.at(sender.timer_from, &core.config.tuning);
        self.wake(core, at);
        true
    }

    /// Offers a frame to the adapter. `flight.len` is what the frame has room for, and becomes what it got.
    /// Answers where the payload of the next frame begins; none when there is no room.
    #[inline]
    fn transmit<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        flight: &mut Flight,
        sequence: u32,
        mut flags: u16,
        out: &mut O,
    ) -> Option<Place> {
        let mut token = self.token | u64::from(flight.work);
        let works = if flight.answer {
            token |= super::ANSWER;
            &mut self.reads.answers
        } else {
            &mut self.sends
        };
        let token = FrameToken(token);
        let work = works.get_mut(flight.work)?;
        let segments = &work.descriptor.segments[..];
        let mut parts_room;
        let mut single;
        let mut next = flight.place;
        let parts: &[PayloadPart<'_>] = match segments.get(flight.place.segment as usize) {
            Some(segment) if segment.len() - flight.place.within >= flight.len && flight.len != 0 => {
                single = PayloadPart {
                    region: segment.region(),
                    offset: segment.offset() + flight.place.within as usize,
                    len: flight.len as usize,
                };
                next.within += flight.len;
                std::slice::from_mut(&mut single)
            }
            Some(segment) if flight.len != 0 => {
                let empty = PayloadPart { region: segment.region(), offset: 0, len: 0 };
                parts_room = [empty; MAX_PARTS];
                let limit = core.config.max_segments.min(MAX_PARTS);
                let count = gather(segments, &mut next, &mut flight.len, &mut parts_room[..limit]);
                &parts_room[..count]
            }
            _ => &[],
        };

        let mut extensions = Extensions::default();
        if flight.answer {
            flags |= data::ANSWER;
        }
        if flight.offset + flight.len == work.outgoing() {
            flags |= data::LAST;
            if let Some(immediate) = work.descriptor.immediate {
                flags |= data::IMMEDIATE;
                extensions.immediate = immediate;
            }
        } else {
            flags &= !data::DRY;
        }
        let remote = match work.descriptor.operation {
            Operation::Send => None,
            Operation::RdmaWrite(remote) => Some((data::WRITE, remote)),
            Operation::RdmaRead(remote) => Some((data::READ, remote)),
        };
        if let Some((flag, remote)) = remote {
            flags |= flag;
            extensions.remote =
                Remote { address: remote.address, handle: remote.handle.0, total: work.total() };
        }
        if self.integrity {
            flags |= data::CRC;
        }
        if self.receiver.has_gap() {
            let room = self.sender.room as usize + FIXED - ETHERNET + if self.integrity { 4 } else { 0 };
            let taken = FIXED - ETHERNET + data::extension_bytes(flags) + flight.len as usize;
            if taken + 8 <= room {
                flags |= data::SACK;
                extensions.sack = self.receiver.selective();
            }
        }
        let fixed = Fixed {
            flags,
            slot: 0,
            payload: flight.len as u16,
            window: core.share,
            identity: 0,
            sequence,
            ack: self.receiver.next,
            message: flight.message,
            offset: flight.offset,
        };
        let mut header = fixed.header(&self.route, data::DATA);
        let len = extensions.put(&mut header, flags);
        if self.integrity {
            let check = crc::of_parts(&header[..len], parts);
            put_u32(&mut header, len - 4, check);
        }
        match out.transmit(&header[..len], parts, token) {
            Sent::Full => return None,
            Sent::Copied => {}
            Sent::Referenced => work.hold.refer(),
            Sent::Gone => {
                self.mislay(flight.work, flight.answer, out);
                return None;
            }
        }
        self.receiver.acknowledged(flags & data::SACK != 0);
        Some(next)
    }

    /// Sends an acknowledgement alone; when the adapter has no room it is owed still.
    #[cold]
    pub(super) fn send_ack<O: Output + ?Sized>(
        &mut self,
        core: &mut Core,
        now: Time,
        mut flags: u16,
        out: &mut O,
    ) {
        if core.full {
            return self.enqueue(core);
        }
        if self.is_starved() {
            flags |= data::NOT_READY;
        }
        let mut extensions = Extensions::default();
        if self.receiver.has_gap() {
            flags |= data::SACK;
            extensions.sack = self.receiver.selective();
        }
        if self.integrity {
            flags |= data::CRC;
        }
        let fixed = Fixed {
            flags,
            slot: 0,
            payload: 0,
            window: core.share,
            identity: 0,
            sequence: self.sender.next,
            ack: self.receiver.next,
            message: 0,
            offset: 0,
        };
        let mut header = fixed.header(&self.route, data::ACK);
        let len = extensions.put(&mut header, flags);
        if self.integrity {
            let check = crc::of_parts(&header[..len], &[]);
            put_u32(&mut header, len - 4, check);
        }
        if out.transmit(&header[..len], &[], FrameToken::NO_MEMORY) == Sent::Full {
            core.found_full(now);
            self.enqueue(core);
        } else {
            self.receiver.acknowledged(true);
        }
    }
}

/// Collects the parts of a frame from `next` on, `len` bytes or as many as fit into `parts`.
fn gather<'a>(
    segments: &'a [Segment],
    next: &mut Place,
    len: &mut u32,
    parts: &mut [PayloadPart<'a>],
) -> usize {
    let mut count = 0;
    let mut got = 0;
    while let Some(segment) = segments.get(next.segment as usize) {
        let here = (segment.len() - next.within).min(*len - got);
        if here != 0 {
            let Some(part) = parts.get_mut(count) else { break };
            *part = PayloadPart {
                region: segment.region(),
                offset: segment.offset() + next.within as usize,
                len: here as usize,
            };
            count += 1;
            got += here;
            next.within += here;
        }
        if got == *len {
            break;
        }
        next.segment += 1;
        next.within = 0;
    }
    *len = got;
    count
}

impl Sender {
    /// Whether one frame has room for so many bytes, whatever extensions it has.
    pub(super) fn fits(&self, len: usize) -> bool {
        len + (data::MAX_SEND_HEADER - FIXED) <= self.room as usize
    }
}

#[cfg(test)]
impl Sender {
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding() == 0 && self.lost == 0 && self.sacked == 0
    }
}
