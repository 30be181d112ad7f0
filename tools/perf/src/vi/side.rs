//! One end of a connection: an interface with its completion queue and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use uvia::{
    CompletionQueue, Completions, ConnectionLoss, Descriptor, EndpointClass, MemoryAttributes, MemoryRegion,
    Nic, ProtectionTag, ReliabilityLevel, Vi, ViAttributes, ViState, WorkQueue,
};
use uvia_tools::Failure;

use super::executor;
use super::order::Manner;
use crate::cli::{Class, Cq, Level, Wait};
use crate::spin::Spin;

/// Descriptors that are not posted. Boxed, as posting takes them: else every message would allocate.
pub type Idle = Vec<Box<Descriptor>>;

/// A descriptor that the NIC has finished with, and whose it was.
pub struct Done {
    pub queue: WorkQueue,
    pub descriptor: Box<Descriptor>,
}

/// What driving the NIC has brought.
pub enum More {
    /// Completions that [`Side::taken`] has.
    Taken,
    /// One, where they are not taken together.
    One(Done),
    /// None.
    Nothing,
}

/// An interface and what it needs, not connected yet.
pub struct Side {
    pub nic: Nic,
    pub vi: Vi,
    /// None: completions are taken from the work queues.
    cq: Option<CompletionQueue>,
    injects: bool,
    /// Whether to sleep where there is nothing to do, and whether as a task.
    sleeps: bool,
    awaits: bool,
    /// What was taken from the queue and not yet looked at, and what came while asleep.
    taken: Completions,
    woken: Option<Done>,
    tag: ProtectionTag,
    spin: Spin,
    /// How long the other end may keep silent.
    patience: Duration,
    /// Set when the other end turns out to have been gone before its connection was accepted.
    pub gone: Arc<AtomicBool>,
}

impl Side {
    /// Makes an interface for up to `window` messages under way each way.
    ///
    /// # Errors
    /// The class is not to be had, or a limit of the NIC is reached.
    pub fn new(nic: &Nic, manner: &Manner, window: u16, patience: Duration) -> Result<Self, Failure> {
        let tag = nic.create_tag()?;
        let window = usize::from(window);
        let attributes = ViAttributes {
            reliability: match manner.level {
                Level::Unreliable => ReliabilityLevel::Unreliable,
                Level::Delivery => ReliabilityLevel::ReliableDelivery,
                Level::Reception => ReliabilityLevel::ReliableReception,
            },
            class: match manner.class {
                Class::Dma => EndpointClass::Dma,
                Class::Pio => EndpointClass::Pio,
            },
            rdma_read: manner.level != Level::Unreliable,
            send_depth: window + SPARE,
            receive_depth: CREDITS * window + SPARE,
            max_transfer_size: nic.properties().max_transfer_size.min(super::LARGEST as u32),
            ..ViAttributes::new(tag)
        };
        let attributes = match manner.class {
            Class::Dma => attributes,
            Class::Pio => {
                let pio = nic.pio()?;
                ViAttributes {
                    reliability: attributes.reliability,
                    send_depth: attributes.send_depth.min(pio.slots),
                    receive_depth: attributes.receive_depth,
                    ..ViAttributes::pio(tag, &pio)
                }
            }
        };
        let cq = match manner.cq {
            Cq::On => Some(nic.create_cq(attributes.send_depth + attributes.receive_depth)?),
            Cq::Off => None,
        };
        let vi = nic.create_vi(&attributes, cq.as_ref(), cq.as_ref())?;
        Ok(Self {
            nic: nic.clone(),
            vi,
            cq,
            injects: manner.class == Class::Pio,
            sleeps: manner.wait != Wait::Poll,
            awaits: manner.wait == Wait::Async,
            taken: Completions::with_capacity(BATCH),
            woken: None,
            tag,
            spin: Spin::default(),
            patience,
            gone: Arc::default(),
        })
    }

    /// Memory of this end; `remote`: that the peer may write and read.
    ///
    /// # Errors
    /// There is none, or none can be registered.
    pub fn memory(&self, len: usize, remote: bool) -> Result<MemoryRegion, Failure> {
        let attributes = match remote {
            true => MemoryAttributes::remote(self.tag),
            false => MemoryAttributes::local(self.tag),
        };
        Ok(self.nic.allocate(len.max(1), attributes)?)
    }

    /// Posts to the send queue.
    #[inline]
    pub fn send(&self, descriptor: Box<Descriptor>) -> Result<(), Failure> {
        self.vi.post_send(descriptor).map_err(|refused| refused.error.into())
    }

    /// Whether its sends need no registered memory ([`Side::inject`]).
    pub fn injects(&self) -> bool {
        self.injects
    }

    /// Sends bytes that are the caller's again at once.
    #[inline]
    pub fn inject(&self, descriptor: Box<Descriptor>, bytes: &[u8]) -> Result<(), Failure> {
        self.vi.inject(descriptor, bytes).map_err(|refused| refused.error.into())
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
    pub fn poll(&mut self) -> Result<Option<Done>, Failure> {
        if let Some(done) = self.taken()? {
            return Ok(Some(done));
        }
        match self.take_more()? {
            More::Taken => self.taken(),
            More::One(done) => Ok(Some(done)),
            More::Nothing => Ok(None),
        }
    }

    /// The next one of those that were taken from the completion queue already. With [`Side::take_more`] it is
    /// [`Side::poll`] for loops that are measured.
    ///
    /// # Errors
    /// One that tells of a failure.
    #[inline(always)]
    pub fn taken(&mut self) -> Result<Option<Done>, Failure> {
        match self.taken.pop() {
            Some(next) if next.descriptor.status().is_success() => {
                Ok(Some(Done { queue: next.queue, descriptor: next.descriptor }))
            }
            Some(next) => Err(self.broken(&Done { queue: next.queue, descriptor: next.descriptor })),
            None => Ok(None),
        }
    }

    /// Drives the NIC and takes what has completed.
    ///
    /// # Errors
    /// A fault of the adapter; a completion that tells of a failure.
    #[inline(always)]
    pub fn take_more(&mut self) -> Result<More, Failure> {
        match &self.cq {
            Some(cq) if !self.sleeps => Ok(match cq.poll_into(&mut self.taken)? {
                0 => More::Nothing,
                _ => More::Taken,
            }),
            _ => Ok(self.poll_otherwise()?.map_or(More::Nothing, More::One)),
        }
    }

    /// Where there is no completion queue, or something may have come while asleep.
    #[inline(never)]
    fn poll_otherwise(&mut self) -> Result<Option<Done>, Failure> {
        let done = match &self.cq {
            Some(cq) => match self.woken.take() {
                Some(woken) => Some(woken),
                None => {
                    cq.poll_into(&mut self.taken)?;
                    self.taken.pop().map(|next| Done { queue: next.queue, descriptor: next.descriptor })
                }
            },
            None => match self.vi.receive_done()? {
                Some(descriptor) => Some(Done { queue: WorkQueue::Receive, descriptor }),
                None => {
                    let sent = self.vi.send_done()?;
                    sent.map(|descriptor| Done { queue: WorkQueue::Send, descriptor })
                }
            },
        };
        done.map(|done| self.checked(done)).transpose()
    }

    #[inline(always)]
    fn checked(&self, done: Done) -> Result<Done, Failure> {
        if done.descriptor.status().is_success() { Ok(done) } else { Err(self.broken(&done)) }
    }

    #[cold]
    fn broken(&self, done: &Done) -> Failure {
        match self.vi.loss() {
            Some(loss) => self.lost(loss),
            None => {
                Failure::failed(format!("a {:?} completed with {:?}", done.queue, done.descriptor.status()))
            }
        }
    }

    #[cold]
    fn lost(&self, loss: ConnectionLoss) -> Failure {
        if loss == ConnectionLoss::RequesterGone {
            // Relaxed: read by the thread that made it.
            self.gone.store(true, Ordering::Relaxed);
        }
        Failure::failed(format!("the connection was lost: {loss}"))
    }

    /// Sleeps until there is a completion, for a moment at most. What it was comes with the next poll.
    fn sleep(&mut self) -> Result<(), Failure> {
        if let Some(cq) = &self.cq
            && self.woken.is_none()
        {
            let next = match self.awaits {
                true => executor::block_on(cq.next(), NAP).transpose()?,
                false => cq.wait(NAP)?,
            };
            self.woken = next.map(|next| Done { queue: next.queue, descriptor: next.descriptor });
        }
        Ok(())
    }

    /// Drives the NIC until the other end leaves, which in this test is how it ends.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn until_left(&mut self) -> Result<(), Failure> {
        /// Polls between looks at the connection, which cost more.
        const LOOK: u32 = 64;
        let mut idle = 0u32;
        while self.vi.state() == ViState::Connected {
            if self.sleeps {
                self.sleep()?;
                continue;
            }
            for _ in 0..LOOK {
                idle = if self.nic.poll()? > 0 { 0 } else { idle.saturating_add(1) };
                self.spin.after(idle.max(1));
            }
        }
        match self.vi.loss() {
            Some(ConnectionLoss::PeerDisconnected) | None => Ok(()),
            Some(loss) => Err(self.lost(loss)),
        }
    }

    /// Waits until what was sent has arrived or the other end has left, driving the NIC: it may wait for
    /// nothing but an acknowledgement of ours.
    pub fn linger(&self) {
        let start = Instant::now();
        let mut polls = 0;
        while self.vi.state() == ViState::Connected && start.elapsed() < LINGER {
            if self.nic.poll().is_err() {
                return;
            }
            polls += 1;
            self.spin.after(polls);
        }
    }
}

/// The longest sleep: the connection may be lost without a completion.
const NAP: Duration = Duration::from_millis(100);
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
    pub fn tick(&mut self, side: &mut Side) -> Result<(), Failure> {
        const LOOK: u32 = 4096;
        self.polls = self.polls.wrapping_add(1);
        if side.sleeps {
            side.sleep()?;
            return if side.woken.is_some() { Ok(()) } else { self.look(side) };
        }
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
                Some(loss) => side.lost(loss),
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
