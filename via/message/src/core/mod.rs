//! What the objects of a session share: rails, connections, and what happens on them.
//!
//! A connection is all that goes between two ranks on a channel. Its packets are one numbered stream, which goes by one
//! rail at a time; long pieces go by all rails that are there. See `ARCHITECTURE.md` for why this cannot lock up.

mod arrival;
mod connection;
mod control;
mod early;
mod failover;
mod length;
mod long;
mod pull;
mod rail;
mod short;
mod stream;

use std::collections::VecDeque;
use std::time::Duration;

use connection::NO_RAIL;
pub(crate) use connection::{Arrived, Connection};
pub(crate) use early::Expected;
pub(crate) use long::LongOut;
pub(crate) use rail::{Carrier, Rail};
pub(crate) use short::{Intake, Outset, Whole};
pub(crate) use stream::Open;

use crate::modules::{ModuleCounts, Thresholds};
use crate::port::{Event, Hello, LinkId, Wake};
use crate::span::Span;
use crate::{Error, Result};

/// Directives that may be under way in each direction, on top of the packets with bytes.
pub(crate) const CONTROL: usize = 8;
/// Packets beside: those that carry counters only, of which there are never more than this under way (one for each half
/// of a window of data, of directives, and of both).
pub(crate) const RESERVE: usize = 8;
/// Most rails: each has a bit in a header.
pub(crate) const MAX_RAILS: usize = 8;

/// What a session was opened with.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) session: String,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) packet_bytes: usize,
    pub(crate) window: usize,
    pub(crate) thresholds: Thresholds,
    pub(crate) described: bool,
    pub(crate) patience: Option<Duration>,
}

impl Options {
    pub(crate) fn hello(&self, channel: usize) -> Hello {
        Hello::new(
            &self.session,
            self.rank,
            channel,
            self.packet_bytes,
            self.window,
            self.thresholds.long,
            self.described,
        )
    }
}

/// A channel's part of what is shared.
#[derive(Default)]
struct Channel {
    /// Ranks of which a message has begun to arrive, in the order in which they did.
    ready: VecDeque<usize>,
    /// The rails that it may use; all, where none are named.
    rails: Option<Vec<usize>>,
}

/// What the objects of a session share.
pub(crate) struct Core {
    pub(crate) options: Options,
    rails: Vec<Rail>,
    /// Where each rank is on each rail.
    addresses: Vec<Vec<Option<String>>>,
    connections: Vec<Option<Box<Connection>>>,
    channels: Vec<Channel>,
    events: Vec<Event>,
    /// Connections that could not send what they have to, for want of a buffer or of credits.
    stirred: Vec<LinkId>,
    /// Connections that have failed.
    failures: usize,
    /// Counts what has happened, but for messages that were handed over as they came.
    pub(crate) happenings: u64,
    /// What has gone wrong where nobody could be told: whoever waits next is.
    pub(crate) trouble: Option<Error>,
    /// Bytes that the layer itself has copied, out and in.
    pub(crate) copied: (u64, u64),
    /// How often each module was used.
    modules: ModuleCounts,
}

impl Core {
    pub(crate) fn new(options: Options, rails: Vec<Rail>, addresses: Vec<Vec<Option<String>>>) -> Self {
        Self {
            options,
            rails,
            addresses,
            connections: Vec::new(),
            channels: Vec::new(),
            events: Vec::new(),
            stirred: Vec::new(),
            failures: 0,
            happenings: 0,
            trouble: None,
            copied: (0, 0),
            modules: ModuleCounts::default(),
        }
    }

    /// The number of the connection to a rank on a channel.
    #[inline]
    pub(crate) fn id(&self, channel: usize, rank: usize) -> LinkId {
        (channel * self.options.size + rank) as LinkId
    }

    fn channel(&mut self, channel: usize) -> &mut Channel {
        if self.channels.len() <= channel {
            self.channels.resize_with(channel + 1, Channel::default);
        }
        &mut self.channels[channel]
    }

    /// The rails by those names are those that a channel asks for; all, when there are none.
    pub(crate) fn set_rails(&mut self, channel: usize, names: &[&str]) -> Result<()> {
        let find = |name: &&str| {
            self.rails
                .iter()
                .position(|rail| rail.name == **name)
                .ok_or_else(|| Error::Config(format!("this rank has no rail {name:?}")))
        };
        let rails = names.iter().map(find).collect::<Result<Vec<_>>>()?;
        self.channel(channel).rails = if rails.is_empty() { None } else { Some(rails) };
        Ok(())
    }

    /// A connection, if there is one; the rails are left free beside it.
    #[inline(always)]
    fn lookup(connections: &mut [Option<Box<Connection>>], id: LinkId) -> Option<&mut Connection> {
        match connections.get_mut(id as usize) {
            Some(Some(connection)) => Some(connection),
            _ => None,
        }
    }

    /// A connection; made where there is none, and not connected then.
    #[inline]
    pub(crate) fn connection(&mut self, id: LinkId) -> &mut Connection {
        let at = id as usize;
        if self.connections.get(at).is_none_or(Option::is_none) {
            self.open(at);
        }
        match &mut self.connections[at] {
            Some(connection) => connection,
            None => unreachable!("it was just made"),
        }
    }

    #[cold]
    fn open(&mut self, at: usize) {
        if self.connections.len() <= at {
            self.connections.resize_with(at + 1, || None);
        }
        let (channel, peer) = (at / self.options.size, at % self.options.size);
        self.connections[at] =
            Some(Box::new(Connection::new(channel, peer, self.rails.len(), &self.options)));
    }

    /// Begins to connect, where nobody has; answers whether it is connected.
    pub(crate) fn connect(&mut self, id: LinkId) -> Result<bool> {
        let connection = self.connection(id);
        if connection.active.is_some() {
            return Ok(true);
        }
        if let Some(why) = &connection.failed {
            return Err(Error::Unreachable { rank: connection.peer, why: why.clone() });
        }
        if !connection.asked {
            self.ask(id)?;
        }
        Ok(false)
    }

    /// Asks for links on all rails that both have.
    #[cold]
    fn ask(&mut self, id: LinkId) -> Result<()> {
        let connection = self.connection(id);
        let (channel, peer) = (connection.channel, connection.peer);
        let chosen = self.channel(channel).rails.clone();
        let rails = (0..self.rails.len()).filter(|rail| {
            let has = |rank: usize| {
                self.addresses.get(rank).and_then(|rails| rails.get(*rail)).is_some_and(Option::is_some)
            };
            has(self.options.rank) && has(peer) && chosen.as_ref().is_none_or(|chosen| chosen.contains(rail))
        });
        let rails = rails.fold(0, |rails, rail| rails | 1 << rail);
        if rails == 0 {
            let names: Vec<_> = self.rails.iter().map(|rail| rail.name.as_str()).collect();
            let why = format!("it has none of the rails {}", names.join(", "));
            self.fail(id, &why);
            return Err(Error::Unreachable { rank: peer, why });
        }
        self.ask_for(id, rails)
    }

    /// Asks for links on those rails, a bit each.
    #[cold]
    fn ask_for(&mut self, id: LinkId, rails: u32) -> Result<()> {
        let connection = self.connection(id);
        connection.asked = true;
        let (channel, peer) = (connection.channel, connection.peer);
        let mut hello = self.options.hello(channel);
        hello.rails = rails.into();
        for n in (0..self.rails.len()).filter(|n| rails & 1 << n != 0) {
            let address = self.addresses.get(peer).and_then(|rails| rails.get(n)).and_then(Option::as_ref);
            if let Some(address) = address {
                let address = address.clone();
                hello.reads = u32::from(self.rails[n].port.reads()).into();
                self.connection(id).begin(n);
                if let Err(e) = self.rails[n].port.connect(id, &address, hello) {
                    // The others may lead there.
                    self.down(n, id, e.to_string())?;
                }
            }
        }
        Ok(())
    }

    /// No way to a rank is left on a channel.
    #[cold]
    fn fail(&mut self, id: LinkId, why: &str) {
        let connection = self.connection(id);
        connection.set_plain(NO_RAIL);
        if connection.failed.is_none() {
            connection.failed = Some(why.to_owned());
            self.failures += 1;
        }
    }

    /// Drives all rails, and does what comes of it.
    #[inline]
    pub(crate) fn progress(&mut self) -> Result<()> {
        for n in 0..self.rails.len() {
            match &mut self.rails[n].port {
                Carrier::Vi(port) => {
                    if port.drive()? {
                        self.progress_vi(n)?;
                    }
                }
                Carrier::Other(_) => self.progress_other(n)?,
            }
        }
        if !self.stirred.is_empty() {
            self.settle()?;
        }
        Ok(())
    }

    /// As [`Core::progress`], for who waits: where there is nothing but one rail of virtual interfaces, that is driven until
    /// anything has happened, up to `most` times, and not on once the session is `wanted`. Answers how often.
    #[inline]
    pub(crate) fn progress_for(&mut self, most: u32, wanted: impl Fn() -> bool) -> Result<u32> {
        let mut looks = 1;
        if self.stirred.is_empty()
            && let [rail] = &mut self.rails[..]
            && let Carrier::Vi(port) = &mut rail.port
        {
            while !port.drive()? {
                if looks >= most || wanted() {
                    return Ok(looks);
                }
                looks += 1;
            }
            self.progress_vi(0)?;
            if !self.stirred.is_empty() {
                self.settle()?;
            }
            return Ok(looks);
        }
        self.progress()?;
        Ok(looks)
    }

    /// What has happened at a port on virtual interfaces.
    #[inline]
    fn progress_vi(&mut self, n: usize) -> Result<()> {
        while let Carrier::Vi(port) = &mut self.rails[n].port
            && let Some(event) = port.next()
        {
            self.happened(n, event)?;
        }
        Ok(())
    }

    fn progress_other(&mut self, n: usize) -> Result<()> {
        let mut events = std::mem::take(&mut self.events);
        let mut outcome = self.rails[n].port.poll(&mut events);
        for event in events.drain(..) {
            // One that cannot be dealt with is told of, and takes none of the others along.
            let dealt = self.happened(n, event);
            outcome = outcome.and(dealt);
        }
        self.events = events;
        outcome
    }

    #[inline]
    fn happened(&mut self, rail: usize, event: Event) -> Result<()> {
        self.happenings = self.happenings.wrapping_add(1);
        match event {
            Event::Packet(id, packet) => self.arrived(rail, id, packet),
            Event::Put(id, put) => self.put_is_over(id, put),
            Event::Word(id, packet, len, word) => self.arrived_with_word(rail, id, packet, len, word),
            Event::Up(id, hello) => self.up(rail, id, hello),
            Event::Down(id, why) => self.down(rail, id, why),
            Event::Inline(id) => {
                self.review(id);
                Ok(())
            }
        }
    }

    /// Goes on with what had to wait.
    #[cold]
    fn settle(&mut self) -> Result<()> {
        let mut stirred = std::mem::take(&mut self.stirred);
        let mut outcome = Ok(());
        for id in stirred.drain(..) {
            self.connection(id).is_stirred = false;
            // One that cannot go on is told of, and keeps none of the others from it.
            let went = self.go_on(id);
            outcome = outcome.and(went);
        }
        // What came meanwhile is in the new one.
        stirred.append(&mut self.stirred);
        self.stirred = stirred;
        outcome
    }

    /// Has a connection looked after in the next turn.
    fn stir(&mut self, id: LinkId) {
        let connection = self.connection(id);
        if !connection.is_stirred {
            connection.is_stirred = true;
            self.stirred.push(id);
        }
    }

    /// Sends all that a connection has to send and can.
    fn go_on(&mut self, id: LinkId) -> Result<()> {
        self.replay(id)?;
        self.pump_longs(id)?;
        self.pump_pulls(id)?;
        self.flush_controls(id)?;
        self.tell(id)
    }

    /// The next rank of which a message has begun, or had when it was noted.
    #[inline]
    fn take_ready(&mut self, channel: usize) -> Option<usize> {
        let rank = self.channels.get_mut(channel)?.ready.pop_front()?;
        let id = self.id(channel, rank);
        self.connection(id).is_ready = false;
        Some(rank)
    }

    /// Notes that a message of a rank has begun to come. Who receives from that rank alone does not look there, so that a
    /// note may be out of date; but there is one for each rank at most.
    fn make_ready(&mut self, id: LinkId) {
        let connection = self.connection(id);
        if !connection.is_ready {
            connection.is_ready = true;
            let (channel, peer) = (connection.channel, connection.peer);
            self.channel(channel).ready.push_back(peer);
        }
    }

    /// Begins a message to a rank; `None` while there is no connection.
    pub(crate) fn begin_outgoing(
        &mut self,
        channel: usize,
        peer: usize,
        out: &mut Outset,
    ) -> Result<Option<()>> {
        let id = self.id(channel, peer);
        if !self.connect(id)? {
            return Ok(None);
        }
        let connection = self.connection(id);
        if connection.packing {
            return Err(Error::Busy { rank: peer, way: "to" });
        }
        connection.packing = true;
        (out.id, out.peer, out.over) = (id, peer as u32, false);
        let capacity = connection.capacity;
        out.open = self.open_packet(id)?;
        out.room = out.open.map_or(Span::NONE, |open| open.room(0).first(capacity));
        self.review(id);
        out.limit = self.connection(id).limit_out;
        Ok(Some(()))
    }

    /// Why no message can come on a channel from a rank, or from any; an error where something has gone wrong.
    pub(crate) fn check_incoming(&mut self, channel: usize, from: Option<usize>) -> Result<()> {
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        if let Some(rank) = from {
            let id = self.id(channel, rank);
            if self.connection(id).unpacking {
                return Err(Error::Busy { rank, way: "from" });
            }
        }
        match self.is_hopeless(channel, from) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Finds out whether messages that are one packet may take the short way.
    #[cold]
    pub(super) fn review(&mut self, id: LinkId) {
        let described = self.options.described;
        let connection = self.connection(id);
        connection.set_plain(NO_RAIL);
        let Some(rail) = connection.active else { return };
        let is_plain = connection.is_plain_on(rail);
        let port = &mut self.rails[rail].port;
        let (gathers, reads) = (port.gathers(), port.reads());
        let numbered = port.enable_inline(id);
        let is_vi = matches!(self.rails[rail].port, Carrier::Vi(_));
        let connection = self.connection(id);
        let reads = reads && connection.peer_reads;
        connection.set_means(gathers, reads, described);
        if is_plain && is_vi && !numbered {
            connection.set_plain(rail as u8);
        }
    }

    /// Whether nothing can come on a channel any more from the given rank, or from any; and why.
    #[inline]
    pub(crate) fn is_hopeless(&mut self, channel: usize, from: Option<usize>) -> Option<Error> {
        if self.failures == 0 { None } else { self.find_hopeless(channel, from) }
    }

    #[cold]
    fn find_hopeless(&mut self, channel: usize, from: Option<usize>) -> Option<Error> {
        let (size, own) = (self.options.size, self.options.rank);
        let mut others = (0..size).filter(|rank| *rank != own && from.is_none_or(|wanted| wanted == *rank));
        let mut last = None;
        let connections = &self.connections;
        let all = others.all(|rank| {
            let connection = connections.get(channel * size + rank).and_then(Option::as_ref);
            let failed = connection.and_then(|connection| connection.failed.as_ref());
            last = failed.map(|why| Error::Unreachable { rank, why: why.clone() });
            last.is_some()
        });
        if all { last } else { None }
    }

    /// Whether all that was sent has arrived, or is lost.
    pub(crate) fn is_flushed(&self) -> bool {
        self.connections.iter().enumerate().all(|(id, connection)| match connection {
            Some(connection) => {
                connection.failed.is_some()
                    || (connection.retained.is_empty()
                        // The other end may wait to hear that a piece was read.
                        && connection.controls.is_empty()
                        && self.rails.iter().all(|rail| rail.port.is_flushed(id as LinkId)))
            }
            None => true,
        })
    }

    /// Tells all other ends what has been done here, before this one goes.
    pub(crate) fn tell_all(&mut self) -> Result<()> {
        for id in 0..self.connections.len() {
            if self.connections[id].is_some() {
                self.tell_so(id as LinkId, crate::packet::flag::LEAVING)?;
            }
        }
        Ok(())
    }

    /// Asks all rails to wake a sleeper.
    pub(crate) fn arm(&mut self, sleepers: &mut Vec<std::os::fd::RawFd>) -> Result<Wake> {
        let mut wake = if self.stirred.is_empty() { Wake::Told } else { Wake::Now };
        for rail in &mut self.rails {
            wake = wake.max(rail.port.arm(sleepers)?);
        }
        Ok(wake)
    }

    /// The rails by which a rank is reached now.
    pub(crate) fn rails_up(&mut self, id: LinkId) -> Vec<String> {
        let up: Vec<usize> = self.connection(id).up().collect();
        up.into_iter().map(|rail| self.rails[rail].name.clone()).collect()
    }

    /// Leaves a rail to a rank, as if it had broken.
    pub(crate) fn cut(&mut self, id: LinkId, rail: &str) -> Result<()> {
        let Some(n) = self.rails.iter().position(|candidate| candidate.name == rail) else {
            return Err(Error::Config(format!("this rank has no rail {rail:?}")));
        };
        if !self.connection(id).asked {
            // The others are to be used, and this one is not to come later.
            self.ask(id)?;
        }
        self.rails[n].port.leave(id);
        self.down(n, id, "it was cut".to_owned())
    }

    /// How often each module was used.
    pub(crate) fn module_counts(&self) -> ModuleCounts {
        self.modules
    }

    /// Leaves all ways to a rank on a channel: after this, no port reaches memory for it.
    pub(crate) fn sever(&mut self, id: LinkId, why: &str) {
        for rail in &mut self.rails {
            rail.port.leave(id);
        }
        self.fail(id, why);
        let connection = self.connection(id);
        connection.active = None;
        connection.set_plain(NO_RAIL);
        self.conceal_all(id);
        self.conceal_offers(id);
    }
}
