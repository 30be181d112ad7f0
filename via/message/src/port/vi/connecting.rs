//! How links come to be, and go.

use uvia::{MemoryAttributes, Request};
use zerocopy::IntoBytes;

use super::link::{Link, State};
use super::{LOOK, ViPort};
use crate::Result;
use crate::port::{Event, Hello, LinkId};

impl ViPort {
    /// Makes an interface with its buffers, and posts the receives.
    pub(super) fn make(&mut self, id: LinkId, state: State) -> Result<Box<Link>> {
        let entries = self.attributes.send_depth + self.attributes.receive_depth;
        self.make_room(entries)?;
        let vi = self.nic.create_vi(&self.attributes, Some(&self.cq), Some(&self.cq))?;
        let stride = self.depth.packet_bytes.next_multiple_of(64);
        let memory = self.nic.allocate(
            (self.depth.packets + self.depth.receives()) * stride,
            MemoryAttributes::local(self.attributes.tag),
        )?;
        self.epochs += 1;
        Link::new(id, self.epochs, vi, memory, stride, self.depth, state).map(Box::new)
    }

    /// Room for so many more completions.
    pub(super) fn make_room(&mut self, entries: usize) -> Result<()> {
        let needed = self.cq.promised() + entries;
        if needed > self.cq.capacity() {
            self.cq.resize(
                needed.max(2 * self.cq.capacity()).min(self.nic.properties().max_cq_entries).max(needed),
            )?;
        }
        Ok(())
    }

    pub(super) fn store(&mut self, id: LinkId, link: Box<Link>) {
        let at = id as usize;
        if self.links.len() <= at {
            self.links.resize_with(at + 1, || None);
        }
        if matches!(link.state, State::Asking { .. }) {
            self.pending += 1;
            self.until_look = 1;
        }
        if let Some(old) = self.links[at].replace(link)
            && matches!(old.state, State::Asking { .. })
        {
            self.pending -= 1;
        }
    }

    /// Looks after connections that are being made.
    #[cold]
    pub(super) fn look(&mut self) -> Result<()> {
        let outcome = self.look_now();
        self.until_look = if self.pending > 0 { 1 } else { LOOK };
        outcome
    }

    fn look_now(&mut self) -> Result<()> {
        while let Some(request) = self.listener.poll()? {
            self.asked(request)?;
        }
        if self.pending == 0 {
            return Ok(());
        }
        for id in 0..self.links.len() {
            let id = id as LinkId;
            let Some(link) = self.link(id) else { continue };
            if link.inline.is_some() {
                self.advance_inline(id);
            }
            let Some(link) = self.link(id) else { continue };
            let Some(outcome) = link.advance() else { continue };
            self.pending -= 1;
            let session = self.session.clone();
            let event = match outcome {
                Ok(peer) => match Hello::read(&peer.private_data, &session) {
                    Some(hello) => {
                        self.ask_inline(id, peer.address.host);
                        Event::Up(id, hello)
                    }
                    None => self.lose(id, "its answer is not of this session".to_owned()),
                },
                Err(e) => self.lose(id, e.to_string()),
            };
            self.news.push_back(event);
        }
        Ok(())
    }

    /// Somebody asks for a connection.
    pub(super) fn asked(&mut self, request: Request) -> Result<()> {
        let Some(hello) = Hello::read(&request.peer().private_data, &self.session) else {
            request.reject(b"another session")?;
            return Ok(());
        };
        let (rank, channel) = (hello.rank.get() as usize, hello.channel.get() as usize);
        if rank >= self.size || rank == self.rank || channel >= crate::MAX_CHANNELS {
            request.reject(b"no such rank or channel")?;
            return Ok(());
        }
        let id = (channel * self.size + rank) as LinkId;
        if hello.inline.get() != 0 {
            return self.asked_inline(request, id, hello.inline.get() as usize);
        }
        let mine = self.rank;
        // Where both ask at once, the request of the lower rank is the one that counts.
        let welcome = match self.link(id).map(|link| &link.state) {
            None => true,
            Some(State::Asking { .. }) => rank < mine,
            Some(State::Up | State::Down) => false,
        };
        if !welcome {
            request.reject(b"connected already")?;
            return Ok(());
        }
        let link = self.make(id, State::Up)?;
        let Some(vi) = &link.vi else { return Ok(()) };
        let mut answer = self.hello;
        answer.channel = hello.channel;
        let remote = request.peer().address.host;
        match request.accept(vi, answer.as_bytes()) {
            Ok(_) => {
                self.store(id, link);
                self.news.push_back(Event::Up(id, hello));
                self.ask_inline(id, remote);
            }
            // It asks again, or gives up.
            Err((request, e)) => {
                tracing::warn!("accepting a connection of rank {rank}: {e}");
                request.reject(b"cannot accept")?;
            }
        }
        Ok(())
    }

    /// A link is gone.
    pub(super) fn lose(&mut self, id: LinkId, why: String) -> Event {
        if let Some(link) = self.link(id) {
            let asking_inline = link.inline.as_ref().is_some_and(|inline| !inline.is_up());
            link.leave();
            self.pending -= usize::from(asking_inline);
        }
        Event::Down(id, why)
    }
}
