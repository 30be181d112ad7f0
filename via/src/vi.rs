//! Virtual interfaces: the endpoints that programs hold.

mod bulk;
mod inject;
mod template;

pub(crate) use template::Image;
pub use template::Template;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cq::Ring;
use crate::credits::Credits;
use crate::handle::Handle;
use crate::nic::Core;
use crate::sleep;
use crate::turn::Guard;
use crate::{
    Completion, ConnectionLoss, Descriptor, EndpointClass, Error, NetAddress, Operation, Peer, ProtectionTag,
    ReliabilityLevel, Result, Segment, ViAttributes, ViId, ViState, WorkQueue,
};

/// A virtual interface: a pair of work queues, connected to one other. Dropping it disconnects it; what was
/// posted and is not finished comes back flushed to its completion queue, or is dropped with it.
pub struct Vi {
    nic: Handle,
    id: ViId,
    credits: Arc<Credits>,
    /// The tag's word, and the longest transfer: apart from the rest, since every post looks at them. They change while
    /// the interface is idle; relaxed, since they order nothing else.
    tag: AtomicU64,
    max_transfer_size: AtomicU32,
    attributes: Mutex<ViAttributes>,
    /// It is of class Pio.
    pio: bool,
    send: Queue,
    receive: Queue,
}

/// Where completions of a work queue go, and whether others share it.
struct Queue {
    ring: Arc<Ring>,
    shared: bool,
    depth: usize,
}

/// A descriptor that could not be posted, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct PostError {
    /// Why.
    #[source]
    pub error: Error,
    /// The descriptor, as it was given.
    pub descriptor: Box<Descriptor>,
}

impl PostError {
    #[cold]
    #[inline(never)]
    fn new(error: Error, descriptor: Box<Descriptor>) -> Box<Self> {
        Box::new(Self { error, descriptor })
    }
}

impl Vi {
    pub(crate) fn new(
        nic: Handle,
        id: ViId,
        credits: Arc<Credits>,
        attributes: ViAttributes,
        send: (Arc<Ring>, bool),
        receive: (Arc<Ring>, bool),
    ) -> Self {
        let send = Queue { ring: send.0, shared: send.1, depth: attributes.send_depth };
        let receive = Queue { ring: receive.0, shared: receive.1, depth: attributes.receive_depth };
        Self {
            nic,
            id,
            credits,
            tag: AtomicU64::new(attributes.tag.word()),
            max_transfer_size: AtomicU32::new(attributes.max_transfer_size),
            pio: attributes.class == EndpointClass::Pio,
            attributes: Mutex::new(attributes),
            send,
            receive,
        }
    }

    pub(crate) fn belongs_to(&self, nic: &Handle) -> bool {
        self.nic.is(nic)
    }

    pub(crate) fn nic(&self) -> &Handle {
        &self.nic
    }

    /// The ring of a work queue that has one of its own.
    pub(crate) fn own_ring(&self, queue: WorkQueue) -> Result<&Ring> {
        let queue = self.queue(queue);
        if queue.shared { Err(tied()) } else { Ok(&queue.ring) }
    }

    /// Its name in completions.
    pub fn id(&self) -> ViId {
        self.id
    }

    /// Its attributes: what it was created with, or what [`Vi::set_attributes`] made of that.
    pub fn attributes(&self) -> ViAttributes {
        *self.attributes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the attributes of an idle interface: for the next connection, and for what is posted from now on. The
    /// queues' depths and the class stay as they were when it was created.
    ///
    /// # Errors
    /// [`Error::State`] when it is not idle; [`Error::Parameter`] for another depth or class, or a tag of another NIC or
    /// that is no more; else as [`Nic::create_vi`](crate::Nic::create_vi). Nothing is changed then.
    pub fn set_attributes(&self, attributes: &ViAttributes) -> Result<()> {
        let mut core = self.nic.core();
        let mut mine = self.attributes.lock().unwrap_or_else(PoisonError::into_inner);
        attributes.check(self.nic.properties())?;
        core.tags.check(attributes.tag)?;
        let fixed = |a: &ViAttributes| (a.send_depth, a.receive_depth, a.class);
        if fixed(attributes) != fixed(&mine) {
            return Err(Error::Parameter(
                "depths and class of a virtual interface stay as they were when it was created".to_owned(),
            ));
        }
        core.provider.set_vi_attributes(self.id, attributes)?;
        self.tag.store(attributes.tag.word(), Ordering::Relaxed);
        self.max_transfer_size.store(attributes.max_transfer_size, Ordering::Relaxed);
        *mine = *attributes;
        Ok(())
    }

    /// How many descriptors of a work queue are out: posted, and not yet reaped. 0: the queue is empty.
    pub fn outstanding(&self, queue: WorkQueue) -> usize {
        // Those that are turned away just now are counted for a moment.
        self.credits.out(queue).min(self.queue(queue).depth)
    }

    #[inline(always)]
    fn tag(&self) -> ProtectionTag {
        ProtectionTag::from_word(self.tag.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn max_transfer_size(&self) -> u32 {
        self.max_transfer_size.load(Ordering::Relaxed)
    }

    /// Its state.
    pub fn state(&self) -> ViState {
        self.nic.core().provider.state(self.id).unwrap_or(ViState::Error)
    }

    /// Bytes of a message without immediate data that go with one frame to the peer; `None` without a connection. At least
    /// [`NicProperties::native_mtu`](crate::NicProperties::native_mtu) of the end that has less, and more once a message of
    /// several frames was sent on a reliable connection and the network was found to carry longer ones.
    pub fn path_mtu(&self) -> Option<usize> {
        self.nic.core().provider.path_mtu(self.id)
    }

    /// Why its last connection broke, if it did.
    pub fn loss(&self) -> Option<ConnectionLoss> {
        self.nic.core().sinks.loss(self.id)
    }

    /// Posts to the send queue. The memory belongs to the NIC until the descriptor comes back.
    ///
    /// # Errors
    /// The descriptor comes back at once when the queue is full, a segment is of another NIC or tag, or the
    /// message is over the maximum transfer size. In state Error, and in Idle, it is taken and completes
    /// flushed.
    pub fn post_send(&self, descriptor: Box<Descriptor>) -> std::result::Result<(), Box<PostError>> {
        if !self.credits.take(WorkQueue::Send, self.send.depth) {
            // Looks at the descriptor first, and finds the queue full then.
            return self.post_unusual(WorkQueue::Send, descriptor);
        }
        let Some(mut core) = self.nic.take() else { return self.post_counted(None, descriptor) };
        // The descriptor is looked at behind all that synchronises, so that what was read stays known.
        match core.provider.post_short(self.id, self.tag(), descriptor) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.nic.fault_at_post(&mut core);
                Ok(())
            }
            Err(descriptor) => self.post_counted(Some(core), descriptor),
        }
    }

    /// Posts what does not go the short way, with all checks; its credit was taken, and perhaps the NIC.
    #[inline(never)]
    fn post_counted(
        &self,
        core: Option<Guard<'_, Core>>,
        descriptor: Box<Descriptor>,
    ) -> std::result::Result<(), Box<PostError>> {
        let plain = matches!(&descriptor.segments[..], [segment]
            if self.may_use(segment) && segment.len() <= self.max_transfer_size())
            && descriptor.is_plain_send();
        if !plain && let Err(error) = self.check(WorkQueue::Send, &descriptor) {
            self.credits.undo(WorkQueue::Send);
            return Err(PostError::new(error, descriptor));
        }
        match core {
            Some(mut core) => self.nic.post_with(&mut core, self.id, WorkQueue::Send, descriptor),
            None => self.nic.post(self.id, WorkQueue::Send, descriptor),
        }
        Ok(())
    }

    /// Posts to the receive queue; possible before the interface is connected, and wise.
    ///
    /// # Errors
    /// As [`Vi::post_send`].
    pub fn post_receive(&self, descriptor: Box<Descriptor>) -> std::result::Result<(), Box<PostError>> {
        let plain = matches!(&descriptor.segments[..], [segment] if self.may_use(segment))
            && descriptor.operation == Operation::Send;
        if !plain {
            return self.post_unusual(WorkQueue::Receive, descriptor);
        }
        let depth = self.receive.depth;
        if !self.credits.take(WorkQueue::Receive, depth) {
            return Err(self.full(WorkQueue::Receive, descriptor));
        }
        self.nic.post_receive(self.id, descriptor);
        Ok(())
    }

    /// As many descriptors are posted as there may be.
    #[cold]
    #[inline(never)]
    fn full(&self, queue: WorkQueue, descriptor: Box<Descriptor>) -> Box<PostError> {
        let depth = self.queue(queue).depth;
        let error = match queue {
            WorkQueue::Send if self.pio => Error::WouldBlock { credits: depth },
            _ => Error::QueueFull { depth },
        };
        PostError::new(error, descriptor)
    }

    /// Whether a segment's memory is this interface's to use. Bounds were checked when it was made; a tag names its NIC,
    /// so that this is a check of the NIC too.
    #[inline(always)]
    fn may_use(&self, segment: &Segment) -> bool {
        segment.region().tag() == self.tag()
    }

    /// Posts what is not one segment and nothing else, with all checks.
    #[inline(never)]
    fn post_unusual(
        &self,
        queue: WorkQueue,
        descriptor: Box<Descriptor>,
    ) -> std::result::Result<(), Box<PostError>> {
        if let Err(error) = self.check(queue, &descriptor) {
            return Err(PostError::new(error, descriptor));
        }
        let depth = self.queue(queue).depth;
        if !self.credits.take(queue, depth) {
            return Err(self.full(queue, descriptor));
        }
        self.nic.post(self.id, queue, descriptor);
        Ok(())
    }

    #[inline(always)]
    fn queue(&self, queue: WorkQueue) -> &Queue {
        match queue {
            WorkQueue::Send => &self.send,
            WorkQueue::Receive => &self.receive,
        }
    }

    /// Whose memory it is, how much, and whether the operation may be.
    fn check(&self, queue: WorkQueue, descriptor: &Descriptor) -> Result<()> {
        self.check_segments(queue, &descriptor.segments)?;
        if descriptor.operation == Operation::Send {
            return Ok(());
        }
        self.check_rdma(queue == WorkQueue::Send, descriptor)
    }

    fn check_rdma(&self, send: bool, descriptor: &Descriptor) -> Result<()> {
        if !send {
            return Err(Error::Parameter("an RDMA operation cannot be posted to a receive queue".to_owned()));
        }
        if self.pio {
            return Err(Error::NotInClass { class: EndpointClass::Pio, what: "RDMA" });
        }
        if matches!(descriptor.operation, Operation::RdmaRead(_)) {
            if descriptor.immediate.is_some() {
                return Err(Error::Parameter("an RDMA read carries no immediate data".to_owned()));
            }
            if self.attributes().reliability == ReliabilityLevel::Unreliable {
                return Err(Error::ReliabilityLevel(ReliabilityLevel::Unreliable));
            }
        }
        Ok(())
    }

    fn check_segments(&self, queue: WorkQueue, segments: &[Segment]) -> Result<()> {
        let most = self.nic.properties().max_segments;
        if segments.len() > most {
            return Err(Error::Resource { what: "segments of a descriptor", limit: most });
        }
        if let Some(foreign) = segments.iter().find(|segment| !self.may_use(segment)) {
            if foreign.region().is_gone() {
                return Err(foreign.region().gone());
            }
            return Err(Error::Protection {
                handle: foreign.region().handle(),
                why: "it is registered under another tag or with another NIC than the interface",
            });
        }
        let bytes: u64 = segments.iter().map(|segment| u64::from(segment.len())).sum();
        let limit = u64::from(self.max_transfer_size());
        if queue == WorkQueue::Send && bytes > limit {
            return Err(Error::TooLong { length: bytes, limit });
        }
        Ok(())
    }

    /// The next finished descriptor of the send queue, if it is not tied to a completion queue.
    ///
    /// # Errors
    /// [`Error::Parameter`] when it is tied to one; a fault of the adapter.
    #[inline]
    pub fn send_done(&self) -> Result<Option<Box<Descriptor>>> {
        self.done(WorkQueue::Send, false)
    }

    /// The next finished descriptor of the receive queue, if it is not tied to a completion queue.
    ///
    /// # Errors
    /// As [`Vi::send_done`].
    #[inline]
    pub fn receive_done(&self) -> Result<Option<Box<Descriptor>>> {
        self.done(WorkQueue::Receive, false)
    }

    /// As [`Vi::send_done`], waiting up to `timeout`.
    ///
    /// # Errors
    /// As [`Vi::send_done`].
    pub fn send_wait(&self, timeout: Duration) -> Result<Option<Box<Descriptor>>> {
        self.nic.wait(timeout, |patient| self.done(WorkQueue::Send, patient))
    }

    /// As [`Vi::receive_done`], waiting up to `timeout`.
    ///
    /// # Errors
    /// As [`Vi::send_done`].
    pub fn receive_wait(&self, timeout: Duration) -> Result<Option<Box<Descriptor>>> {
        self.nic.wait(timeout, |patient| self.done(WorkQueue::Receive, patient))
    }

    /// The next finished descriptor of either queue, if it is not tied to a completion queue. Who is `patient` waits for
    /// its turn while another thread drives the NIC; otherwise there is none then.
    ///
    /// # Errors
    /// As [`Vi::send_done`].
    pub fn done(&self, queue: WorkQueue, patient: bool) -> Result<Option<Box<Descriptor>>> {
        let queue = self.queue(queue);
        if queue.shared {
            return Err(tied());
        }
        Ok(queue.ring.reap(patient)?.map(|completion| completion.descriptor))
    }

    /// Calls `handler` with the next descriptor of a work queue that completes, once, if the queue is not tied to a
    /// completion queue; as [`CompletionQueue::notify`](crate::CompletionQueue::notify). Those not called when the
    /// interface is dropped are dropped with it.
    ///
    /// # Errors
    /// [`Error::Parameter`] when it is tied to one; the system gives no thread.
    pub fn notify(&self, queue: WorkQueue, handler: impl FnOnce(Completion) + Send + 'static) -> Result<()> {
        let queue = self.queue(queue);
        if queue.shared {
            return Err(tied());
        }
        queue.ring.notify(Box::new(handler))
    }

    /// Asks for a connection, and waits for the answer up to `timeout`.
    ///
    /// # Errors
    /// [`Error::State`] when it is not idle, [`Error::Rejected`], [`Error::NoMatch`], [`Error::Timeout`]; the
    /// interface is idle again.
    pub fn connect(&self, remote: &NetAddress, timeout: Duration, private_data: &[u8]) -> Result<Peer> {
        self.connect_start(remote, timeout, private_data)?;
        // The request ends by itself at its time-out.
        match self.nic.wait(sleep::beyond(timeout), |_| self.connect_done())? {
            Some(peer) => Ok(peer),
            None => Err(Error::Timeout {
                what: format!("connecting to {remote:?}"),
                millis: timeout.as_millis() as u64,
            }),
        }
    }

    /// Asks for a connection without waiting; [`Vi::connect_done`] has the outcome.
    ///
    /// # Errors
    /// [`Error::State`] when it is not idle, [`Error::Parameter`] for a timeout of 0 or too much private data.
    pub fn connect_start(&self, remote: &NetAddress, timeout: Duration, private_data: &[u8]) -> Result<()> {
        self.connect_start_from(&[], remote, timeout, private_data)
    }

    /// As [`Vi::connect_start`], with a discriminator of our own, which the other end sees as part of our address.
    ///
    /// # Errors
    /// As [`Vi::connect_start`]; [`Error::Parameter`] for a discriminator that is too long.
    pub fn connect_start_from(
        &self,
        local: &[u8],
        remote: &NetAddress,
        timeout: Duration,
        private_data: &[u8],
    ) -> Result<()> {
        if timeout.is_zero() {
            return Err(Error::Parameter("a connection request needs a time-out above 0".to_owned()));
        }
        let mut core = self.nic.core();
        let core = &mut *core;
        core.sinks.forget_outcome(self.id);
        core.provider.connect(self.id, local, remote, timeout, private_data, &mut core.sinks)
    }

    /// Asks a peer that asks too, and waits for the two to meet, up to `timeout`. Neither is a server: each names a
    /// discriminator of its own and, in `remote`, the other's.
    ///
    /// # Errors
    /// [`Error::State`] when it is not idle, [`Error::Mismatch`], [`Error::Timeout`]; the interface is idle again.
    pub fn connect_peer(&self, local: &[u8], remote: &NetAddress, timeout: Duration) -> Result<Peer> {
        self.connect_peer_start(local, remote, timeout)?;
        match self.nic.wait(sleep::beyond(timeout), |_| self.connect_done())? {
            Some(peer) => Ok(peer),
            None => Err(Error::Timeout {
                what: format!("meeting {remote:?}"),
                millis: timeout.as_millis() as u64,
            }),
        }
    }

    /// Asks a peer that asks too, without waiting; [`Vi::connect_done`] has the outcome.
    ///
    /// # Errors
    /// [`Error::State`] when it is not idle, [`Error::Parameter`] for a timeout of 0 or a discriminator that is too long.
    pub fn connect_peer_start(&self, local: &[u8], remote: &NetAddress, timeout: Duration) -> Result<()> {
        let mut core = self.nic.core();
        let core = &mut *core;
        core.sinks.forget_outcome(self.id);
        core.provider.connect_peer(self.id, local, remote, timeout, &mut core.sinks)
    }

    /// The outcome of [`Vi::connect_start`] or [`Vi::connect_peer_start`], `None` while there is none; drives the NIC.
    ///
    /// # Errors
    /// As [`Vi::connect`].
    pub fn connect_done(&self) -> Result<Option<Peer>> {
        self.nic.progress()?;
        self.nic.core().sinks.take_outcome(self.id).transpose()
    }

    /// Leaves the connection, if there is one. The interface is idle again; descriptors that are not finished
    /// come back flushed.
    ///
    /// # Errors
    /// A fault of the adapter.
    pub fn disconnect(&self) -> Result<()> {
        {
            let mut core = self.nic.core();
            let core = &mut *core;
            // What was posted while another thread had the engine is flushed too, and not left for the next connection.
            self.nic.drain_posts(core);
            core.provider.disconnect(self.id, &mut core.sinks)?;
        }
        self.nic.progress().map(|_| ())
    }
}

impl Drop for Vi {
    fn drop(&mut self) {
        self.nic.destroy_vi(self.id);
        for which in [WorkQueue::Send, WorkQueue::Receive] {
            // Entries of a shared queue are free again but for those with completions still to be reaped.
            let queue = self.queue(which);
            queue.ring.release(queue.depth.saturating_sub(self.credits.out(which)));
        }
    }
}

#[cold]
fn tied() -> Error {
    Error::Parameter("this work queue is tied to a completion queue: reap that one".to_owned())
}

/// A completion of an interface that is no more is still given to whoever reaps the queue.
impl Completion {
    /// Whether it is of that interface.
    pub fn is_of(&self, vi: &Vi) -> bool {
        self.vi == vi.id
    }
}
