//! Waiting for completions by a file descriptor, and in asynchronous tasks.

use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::cq::Ring;
use crate::sinks::Waiter;
use crate::{Completion, CompletionQueue, Error, Result};

/// A file descriptor that becomes readable when a completion queue has something, for `poll`, `epoll` and the runtimes
/// that stand on them. Made by [`CompletionQueue::event`].
///
/// It is signalled for those who sleep only: [`arm`](Self::arm) asks for one signal. It stays readable until
/// [`consume`](Self::consume). The way to use it is
///
/// 1. [`CompletionQueue::poll`] until there is nothing;
/// 2. [`arm`](Self::arm): where it answers false something has come meanwhile, and it goes on at 1;
/// 3. sleep until it is readable, then [`consume`](Self::consume), and go on at 1.
///
/// With tokio, where nothing but the sleep differs (`via/examples/tokio.rs` is a whole program):
///
/// ```no_run
/// use tokio::io::unix::AsyncFd;
/// use uvia::{Completion, CompletionEvent, CompletionQueue};
///
/// async fn next(
///     queue: &CompletionQueue,
///     event: &AsyncFd<CompletionEvent>, // of `queue.event()?`, whose descriptor lives as long as it does
/// ) -> Result<Completion, Box<dyn std::error::Error>> {
///     loop {
///         if let Some(completion) = queue.poll()? {
///             return Ok(completion);
///         }
///         if event.get_ref().arm()? {
///             let mut ready = event.readable().await?;
///             event.get_ref().consume()?;
///             ready.clear_ready();
///         }
///     }
/// }
/// ```
///
/// Tasks that want no file descriptor use [`CompletionQueue::next`].
pub struct CompletionEvent {
    ring: Arc<Ring>,
    fd: Arc<OwnedFd>,
}

impl CompletionEvent {
    fn new(ring: Arc<Ring>) -> Result<Self> {
        // SAFETY: makes a new file descriptor, or fails.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::Driver(uvia_driver::Error::last_os("eventfd for a completion queue")));
        }
        // SAFETY: it was just made, and nobody else has it.
        let fd = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self { ring, fd })
    }

    /// Asks for a signal with the next completion. False: there is one already; nothing was armed then.
    ///
    /// # Errors
    /// A fault of the adapter.
    pub fn arm(&self) -> Result<bool> {
        let nic = self.ring.nic();
        let mut core = nic.core();
        core.progress()?;
        let armed = core.sinks.arm(self.ring.key(), self.ring.promises(), &self.fd);
        drop(core);
        if armed {
            nic.kick();
        }
        Ok(armed)
    }

    /// Makes it unreadable again. Answers whether it was readable.
    ///
    /// # Errors
    /// The system does not let it be read.
    pub fn consume(&self) -> Result<bool> {
        let mut count = 0u64;
        // SAFETY: 8 bytes of ours are written, as many as an event file descriptor gives.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
        if got == 8 {
            return Ok(true);
        }
        let e = std::io::Error::last_os_error();
        match e.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => Ok(false),
            _ => Err(Error::Driver(uvia_driver::Error::io("reading a completion queue's event", e))),
        }
    }
}

impl AsFd for CompletionEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for CompletionEvent {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for CompletionEvent {
    fn drop(&mut self) {
        self.ring.nic().core().sinks.disarm(self.ring.key(), &self.fd);
    }
}

impl CompletionQueue {
    /// A file descriptor that says when there is something. The NIC's thread is started if there is none, since nobody
    /// drives the NIC while its program sleeps elsewhere.
    ///
    /// # Errors
    /// The system gives no file descriptor or thread.
    pub fn event(&self) -> Result<CompletionEvent> {
        self.ring().nic().start_background()?;
        CompletionEvent::new(self.ring().clone())
    }

    /// The next completion, for an asynchronous task of whatever runtime. Dropping it loses nothing. The NIC's thread is
    /// started, as by [`CompletionQueue::event`].
    ///
    /// # Errors
    /// What comes of it is a fault of the adapter, or that the system gives no thread.
    // Not `async fn`: the type can be named, and is small.
    pub fn next(&self) -> NextCompletion<'_> {
        NextCompletion { queue: self, waiter: None }
    }

    /// Calls `handler` with the next completion, once; at once if there is one already. Several registrations queue up:
    /// each gets one completion, in order, on a thread of the NIC's that is for handlers, one call at a time. It holds no
    /// lock: a handler may call anything, register again, and block. Those not called when the last handle to the queue
    /// goes are dropped; so a handler must not own one (a `Weak` of an `Arc` that the program has is fine).
    ///
    /// The NIC's thread is started, as by [`CompletionQueue::event`].
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn notify(&self, handler: impl FnOnce(Completion) + Send + 'static) -> Result<()> {
        self.ring().notify(Box::new(handler))
    }

    /// Entries that are promised to work queues, or hold a completion of one that is no more. 0: nothing uses it.
    pub fn promised(&self) -> usize {
        self.ring().promises().promised()
    }

    /// Changes the number of entries. Completions that are in it stay.
    ///
    /// # Errors
    /// [`Error::Promised`] for fewer than its work queues were promised, [`Error::Resource`] for more than the NIC
    /// allows, [`Error::Parameter`] for none.
    pub fn resize(&self, entries: usize) -> Result<()> {
        self.ring().nic().check_entries(entries)?;
        let mut core = self.ring().nic().core();
        self.ring().promises().resize(entries)?;
        core.sinks.resize_ring(self.ring().key(), entries);
        Ok(())
    }
}

/// The next completion of a queue ([`CompletionQueue::next`]).
#[must_use = "futures do nothing unless they are awaited"]
pub struct NextCompletion<'a> {
    queue: &'a CompletionQueue,
    /// What it is known by among those to be woken, if it may be.
    waiter: Option<Waiter>,
}

impl Future for NextCompletion<'_> {
    type Output = Result<Completion>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let queue = self.queue;
        let ring = queue.ring();
        match ring.reap(false) {
            Ok(None) => {}
            Ok(Some(completion)) => {
                // All who waited were told when it came.
                self.waiter = None;
                return Poll::Ready(Ok(completion));
            }
            Err(e) => return Poll::Ready(Err(e)),
        }
        if let Err(e) = ring.nic().start_handlers() {
            return Poll::Ready(Err(e));
        }
        // Should something have come since, the task is woken at once.
        let mut core = ring.nic().core();
        let before = core.sinks.wake_for(ring.key(), ring.promises(), &mut self.waiter, context.waker());
        drop(core);
        // It may be the last that holds a task, of which it then is the end.
        drop(before);
        ring.nic().kick();
        Poll::Pending
    }
}

impl Drop for NextCompletion<'_> {
    fn drop(&mut self) {
        // Where nothing comes for long, those who gave up would be kept as long.
        if let Some(waiter) = self.waiter.take() {
            let ring = self.queue.ring();
            let mut core = ring.nic().core();
            let left = core.sinks.wake_no_more(ring.key(), waiter);
            drop(core);
            drop(left);
        }
    }
}
