//! What the NIC has finished with, and what that means to the layer.

use uvia::{Completion, Descriptor, Status, ViId};

use super::link::{Link, Receive};
use super::{INDEX, ViPort, what};
use crate::port::{Event, LinkId, Packet};
use crate::{Error, Result};

/// What [`ViPort::drive_for`] came to.
pub(crate) enum Driven<'a> {
    /// Nothing has happened that concerns who waits, in so many looks.
    Nothing(u32),
    /// A packet of the link has come: it is the link's to take it, or to take it back.
    Receive(&'a mut Link, Receive),
    /// Something else has happened, and perhaps more: [`ViPort::next`] tells.
    Otherwise,
    /// The port is broken.
    Failed(Box<Error>),
}

impl Driven<'_> {
    #[cold]
    #[inline(never)]
    fn failed(e: Error) -> Self {
        Self::Failed(Box::new(e))
    }
}

impl ViPort {
    /// Drives the NIC; answers whether anything has happened: see [`ViPort::next`].
    #[inline]
    pub(crate) fn drive(&mut self) -> Result<bool> {
        self.cq.poll_into(&mut self.completions)?;
        if self.is_due() {
            // Packets may have come right behind the answer: first the link, then these.
            self.look()?;
        }
        Ok(!self.completions.is_empty() || !self.news.is_empty())
    }

    /// Drives the NIC, if nothing that it has finished with is at hand, for who waits for a packet of that link: until it
    /// has finished with something, up to `most` times, and not on once the session is `wanted`.
    #[inline(always)]
    pub(crate) fn drive_for(&mut self, id: LinkId, most: u32, wanted: impl Fn() -> bool) -> Driven<'_> {
        let mut looks = 0;
        loop {
            if self.completions.is_empty()
                && let Err(e) = self.cq.poll_into(&mut self.completions)
            {
                return Driven::failed(e.into());
            }
            looks += 1;
            if self.is_due() {
                match self.look() {
                    Ok(()) => break,
                    Err(e) => return Driven::failed(e),
                }
            }
            if looks >= most || !self.completions.is_empty() || wanted() {
                break;
            }
        }
        if !self.news.is_empty() {
            return Driven::Otherwise;
        }
        let receive = 'receive: loop {
            let Some(Some(link)) = self.links.get_mut(id as usize) else { return Driven::Otherwise };
            let other = loop {
                let Some(completion) = self.completions.pop() else { return Driven::Nothing(looks) };
                // Not those with immediate data either, which have filled nothing.
                if !link.is_of(completion.vi) || completion.descriptor.status() != Status::DONE {
                    break completion;
                }
                let context = completion.descriptor.context;
                let index = (context >> 32) as u32;
                if index >> 30 == what::RECEIVE as u32 {
                    break 'receive completion.descriptor;
                }
                if index >> 30 != what::SEND as u32 {
                    break completion;
                }
                link.sent(index & INDEX, completion.descriptor);
            };
            if let Some(event) = self.completed(other) {
                // It comes before what is left of the completions, as it has to.
                self.news.push_back(event);
                return Driven::Otherwise;
            }
        };
        match self.links.get_mut(id as usize) {
            Some(Some(link)) => Driven::Receive(link, Receive(receive)),
            _ => Driven::Otherwise,
        }
    }

    /// The next of what has happened.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Event> {
        if !self.news.is_empty() {
            return self.news.pop_front();
        }
        while let Some(completion) = self.completions.pop() {
            let event = self.completed(completion);
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// What the NIC has finished with.
    #[inline(always)]
    pub(super) fn completed(&mut self, completion: Completion) -> Option<Event> {
        let Completion { vi, descriptor, queue } = completion;
        let context = descriptor.context;
        let id = context as LinkId;
        let index = (context >> 32) as u32 & INDEX;
        if let Some(Some(link)) = self.links.get_mut(id as usize)
            && link.is_of(vi)
            && descriptor.status() == Status::DONE
        {
            match context >> 62 {
                what::RECEIVE => return Some(Event::Packet(id, link.received(Receive(descriptor)))),
                what::SEND => {
                    link.sent(index, descriptor);
                    return None;
                }
                _ => {}
            }
        }
        self.completed_otherwise(Completion { vi, queue, descriptor })
    }

    /// A put, word of one, something that failed, or something of a connection that was left.
    #[inline(never)]
    fn completed_otherwise(&mut self, completion: Completion) -> Option<Event> {
        let context = completion.descriptor.context;
        let (id, index) = (context as LinkId, (context >> 32) as u32 & INDEX);
        if context >> 62 == what::OTHER && index & what::INLINE != 0 {
            return self.completed_inline(index & !what::INLINE, completion);
        }
        let Completion { vi, mut descriptor, .. } = completion;
        if context >> 62 == what::OTHER {
            descriptor.segments.clear();
            let status = descriptor.status();
            self.keep_spare(descriptor);
            let id = self.gathered(index, status.is_success())?;
            let link = self.link(id).filter(|link| link.is_of(vi) && !status.is_success())?;
            let why = link.loss(status);
            return Some(self.lose(id, why));
        }
        if descriptor.context >> 62 == what::PUT {
            return self.put_is_over(index, descriptor, vi);
        }
        if descriptor.context >> 62 == what::RECEIVE && descriptor.status().is_success() {
            return self.came_with_more(id, vi, descriptor);
        }
        let link = self.link(id)?;
        if !link.is_of(vi) {
            return None;
        }
        let why = link.loss(descriptor.status());
        Some(self.lose(id, why))
    }

    /// A receive that tells of something else than a packet: a put of the peer's that came with a word.
    fn came_with_more(&mut self, id: LinkId, vi: ViId, descriptor: Box<Descriptor>) -> Option<Event> {
        let is_write = descriptor.status().contains(Status::REMOTE_RDMA_WRITE);
        let word = descriptor.immediate.filter(|_| is_write);
        let link = self.link(id).filter(|link| link.is_of(vi))?;
        let Some(word) = word else {
            return Some(self.lose(id, "it sent a packet with immediate data".to_owned()));
        };
        // The length is that of the put: nothing of the buffer was written.
        let len = descriptor.length() as usize;
        let packet = link.received(Receive(descriptor));
        Some(Event::Word(id, Packet { span: packet.span.first(0), ..packet }, len, word))
    }
}
