//! One end of a connection: an interface with its completion queue and memory.

use std::time::{Duration, Instant};

use uvia::{
    Completion, CompletionQueue, Completions, Descriptor, EndpointClass, MemoryAttributes, MemoryRegion, Nic,
    ProtectionTag, Vi, ViAttributes, ViState,
};
use uvia_tools::Failure;

use crate::cli::Class;
use crate::spin::Spin;

/// Descriptors that are not posted. Boxed, as posting takes them: else every message would allocate.
pub type Idle = Vec<Box<Descriptor>>;

/// An interface and what it needs, not connected yet.
pub struct Side {
    pub nic: Nic,
    pub cq: CompletionQueue,
    pub vi: Vi,
    /// What was taken from the queue and not yet looked at.
    taken: Completions,
    tag: ProtectionTag,
    spin: Spin,
    /// How long the other end may keep silent.
    patience: Duration,
}

impl Side {
    /// Makes an interface for up to `window` messages under way each way.
    ///
    /// # Errors
    /// The class is not to be had, or a limit of the NIC is reached.
    pub fn new(nic: &Nic, class: Class, window: usize, patience: Duration) -> Result<Self, Failure> {
        let tag = nic.create_tag()?;
        let attributes = ViAttributes {
            class: match class {
                Class::Dma => EndpointClass::Dma,
                Class::Pio => EndpointClass::Pio,
            },
            send_depth: window + SPARE,
            receive_depth: CREDITS * window + SPARE,
            max_transfer_size: nic.properties().max_transfer_size.min(super::LARGEST as u32),
            ..ViAttributes::new(tag)
        };
        let cq = nic.create_cq(attributes.send_depth + attributes.receive_depth)?;
        let vi = nic.create_vi(&attributes, Some(&cq), Some(&cq))?;
        Ok(Self {
            nic: nic.clone(),
            cq,
            vi,
            taken: Completions::with_capacity(BATCH),
            tag,
            spin: Spin::default(),
            patience,
        })
    }

    /// Memory of this end; `remote`: that the peer may write.
    ///
    /// # Errors
    /// There is none, or none can be registered.
    pub fn memory(&self, len: usize, remote: bool) -> Result<MemoryRegion, Failure> {
        let attributes = match remote {
            true => MemoryAttributes::remote_write(self.tag),
            false => MemoryAttributes::local(self.tag),
        };
        Ok(self.nic.allocate(len.max(1), attributes)?)
    }

    /// Posts to the send queue.
    #[inline]
    pub fn send(&self, descriptor: Box<Descriptor>) -> Result<(), Failure> {
        self.vi.post_send(descriptor).map_err(|refused| refused.error.into())
    }

    /// Posts to the receive queue.
    #[inline]
    pub fn receive(&self, descriptor: Box<Descriptor>) -> Result<(), Failure> {
        self.vi.post_receive(descriptor).map_err(|refused| refused.error.into())
    }

    /// The next completion, if there is one; driving the NIC.
    ///
    /// # Errors
    /// One that tells of a failure.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Completion>, Failure> {
        if self.taken.is_empty() {
            self.cq.poll_into(&mut self.taken)?;
        }
        match self.taken.pop() {
            Some(completion) if !completion.descriptor.status().is_success() => Err(self.broken(&completion)),
            other => Ok(other),
        }
    }

    #[cold]
    fn broken(&self, completion: &Completion) -> Failure {
        match self.vi.loss() {
            Some(loss) => Failure::failed(format!("the connection was lost: {loss}")),
            None => Failure::failed(format!(
                "a {:?} completed with {:?}",
                completion.queue,
                completion.descriptor.status()
            )),
        }
    }

    /// Waits until what was sent has arrived or the other end has left, driving the NIC: it may wait for
    /// nothing but an acknowledgement of ours.
    pub fn linger(&self) {
        let start = Instant::now();
        let mut polls = 0;
        while self.vi.state() == ViState::Connected && start.elapsed() < LINGER {
            if self.cq.poll().is_err() {
                return;
            }
            polls += 1;
            self.spin.after(polls);
        }
    }
}

/// Completions that are taken at a time.
const BATCH: usize = 32;
/// How long the end that finishes first waits for the other to leave.
const LINGER: Duration = Duration::from_millis(500);
/// Receives posted for each message under way: the other end may send so many windows before it hears that
/// receives were posted again.
pub const CREDITS: usize = 4;
/// Descriptors for what is not measured: handshakes and credits.
pub const SPARE: usize = 16;

/// How long nothing has come. Looks at the clock, and at the connection, only now and then: either costs more
/// than a poll.
#[derive(Default)]
pub struct Idling {
    polls: u32,
    since: Option<Instant>,
}

impl Idling {
    /// One more poll brought nothing.
    ///
    /// # Errors
    /// The connection is lost, or nothing has come for too long.
    #[inline]
    pub fn tick(&mut self, side: &Side) -> Result<(), Failure> {
        const LOOK: u32 = 4096;
        self.polls = self.polls.wrapping_add(1);
        side.spin.after(self.polls);
        if self.polls.is_multiple_of(LOOK) { self.look(side) } else { Ok(()) }
    }

    /// Polls so far.
    pub fn polls(&self) -> u32 {
        self.polls
    }

    #[cold]
    fn look(&mut self, side: &Side) -> Result<(), Failure> {
        if side.vi.state() != ViState::Connected {
            return Err(match side.vi.loss() {
                Some(loss) => Failure::failed(format!("the connection was lost: {loss}")),
                None => Failure::failed("the other end left before the test was done"),
            });
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited > side.patience {
            return Err(Failure::failed(format!(
                "nothing came from the other end for {:.0} s",
                waited.as_secs_f64()
            )));
        }
        Ok(())
    }
}
