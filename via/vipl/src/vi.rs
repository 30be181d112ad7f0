//! Virtual interfaces as VIPL has them.

use std::ffi::c_ulong;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use uvia::{ReliabilityLevel, ViState, WorkQueue};

use crate::cq::Cq;
use crate::device::lock;
use crate::handles::{Kind, Table};
use crate::nic::{MAX_DEPTH, Nic, PTAGS, level, level_bit};
use crate::queue::{Head, Queue};
use crate::types::{Descriptor, Handle, Return, ViAttributes};

pub(crate) static VIS: Table<Vi> = Table::new(Kind::Vi);

/// How long a wait sleeps before it looks what other threads have reaped for it.
pub(crate) const SLICE: Duration = Duration::from_millis(2);

/// A virtual interface.
pub(crate) struct Vi {
    handle: usize,
    pub(crate) nic: Arc<Nic>,
    pub(crate) vi: uvia::Vi,
    attributes: Mutex<ViAttributes>,
    most_segments: usize,
    /// Completion queues, and the interface's number there.
    cqs: [Option<(Arc<Cq>, u32)>; 2],
    queues: [Mutex<Queue>; 2],
    /// An error of its own broke the connection: the state is Error until it is disconnected.
    failed: AtomicBool,
    /// It was destroyed: those who wait for it are to go.
    destroyed: AtomicBool,
    /// When a request to a peer was made, how long it has.
    pub(crate) asks: Mutex<Option<Duration>>,
    user_data: AtomicUsize,
}

/// What Done says.
pub(crate) enum Done {
    Empty,
    InProgress,
    Taken(*mut Descriptor, bool),
}

// SAFETY: the pointer is an address in the program's memory.
unsafe impl Send for Done {}

fn index(which: WorkQueue) -> usize {
    match which {
        WorkQueue::Send => 0,
        WorkQueue::Receive => 1,
    }
}

/// What uvia is to make, of what a program asks for.
fn wanted(nic: &Nic, attributes: &ViAttributes) -> Result<uvia::ViAttributes, Return> {
    let reliability = level(attributes.reliability_level)?;
    let most = nic.device.nic.properties().max_transfer_size;
    let size = u32::try_from(attributes.max_transfer_size).ok().filter(|size| (1..=most).contains(size));
    let max_transfer_size = size.ok_or(Return::InvalidMtu)?;
    if !attributes.qos.is_null() {
        return Err(Return::InvalidQos);
    }
    let tag = match attributes.ptag {
        ptag if ptag.is_null() => nic.tag,
        ptag => PTAGS.get(ptag).filter(|tag| tag.nic == nic.handle).ok_or(Return::InvalidPtag)?.tag,
    };
    if attributes.enable_rdma_read != 0 && reliability == ReliabilityLevel::Unreliable {
        return Err(Return::InvalidRdmaRead);
    }
    Ok(uvia::ViAttributes {
        reliability,
        max_transfer_size,
        rdma_write: attributes.enable_rdma_write != 0,
        rdma_read: attributes.enable_rdma_read != 0,
        send_depth: MAX_DEPTH,
        receive_depth: MAX_DEPTH,
        ..uvia::ViAttributes::new(tag)
    })
}

/// What uvia says about attributes.
fn refusal(e: &uvia::Error) -> Return {
    match e {
        uvia::Error::ReliabilityLevel(_) => Return::InvalidReliabilityLevel,
        uvia::Error::TooLong { .. } => Return::InvalidMtu,
        uvia::Error::Resource { .. } => Return::ErrorResource,
        uvia::Error::State(_) => Return::InvalidState,
        uvia::Error::Parameter(_) => Return::InvalidParameter,
        _ => Return::ErrorResource,
    }
}

/// VipCreateVi.
pub(crate) fn create(
    nic: &Arc<Nic>,
    attributes: &ViAttributes,
    cqs: [Option<Arc<Cq>>; 2],
) -> Result<Handle, Return> {
    let wanted = wanted(nic, attributes)?;
    let [send, receive] = &cqs;
    let made = nic
        .own
        .create_vi(&wanted, send.as_ref().map(|cq| &cq.cq), receive.as_ref().map(|cq| &cq.cq))
        .map_err(|e| {
            tracing::warn!("creating a virtual interface: {e}");
            refusal(&e)
        })?;
    let inserted = VIS.insert(|handle| Vi {
        handle: handle.addr(),
        nic: nic.clone(),
        vi: made,
        attributes: Mutex::new(*attributes),
        most_segments: nic.device.nic.properties().max_segments,
        cqs: cqs.map(|cq| {
            cq.map(|cq| {
                let number = cq.join();
                (cq, number)
            })
        }),
        queues: [WorkQueue::Send, WorkQueue::Receive].map(|which| Mutex::new(Queue::new(which, wanted.tag))),
        failed: AtomicBool::new(false),
        destroyed: AtomicBool::new(false),
        asks: Mutex::new(None),
        user_data: AtomicUsize::new(0),
    });
    let (handle, vi) = inserted.ok_or(Return::ErrorResource)?;
    for (cq, number) in vi.cqs.iter().flatten() {
        cq.seat(*number, &vi);
    }
    Ok(handle)
}

/// VipDestroyVi.
pub(crate) fn destroy(handle: Handle) -> Result<(), Return> {
    let vi = VIS.get(handle).ok_or(Return::InvalidParameter)?;
    if vi.state() != ViState::Idle {
        return Err(Return::InvalidState);
    }
    VIS.remove(handle).ok_or(Return::InvalidParameter)?.bury();
    Ok(())
}

/// VipQueryVi: the state, the attributes, and whether the queues are empty.
pub(crate) fn query(vi: &Vi) -> (ViState, ViAttributes, [bool; 2]) {
    let empty = [WorkQueue::Send, WorkQueue::Receive].map(|which| vi.queue(which).len() == 0);
    (vi.state(), *lock(&vi.attributes), empty)
}

/// VipSetViAttributes.
pub(crate) fn set_attributes(vi: &Vi, attributes: &ViAttributes) -> Result<(), Return> {
    let wanted = wanted(&vi.nic, attributes)?;
    if vi.state() != ViState::Idle {
        return Err(Return::InvalidState);
    }
    // Both queues are held, so that nothing is posted in between.
    let (mut send, mut receive) = (vi.queue(WorkQueue::Send), vi.queue(WorkQueue::Receive));
    vi.vi.set_attributes(&wanted).map_err(|e| refusal(&e))?;
    (send.tag, receive.tag) = (wanted.tag, wanted.tag);
    *lock(&vi.attributes) = *attributes;
    Ok(())
}

/// Takes what has completed for any interface of a NIC, so that nothing is held that is done with.
pub(crate) fn collect(nic: &Nic) {
    for handle in VIS.find(|vi| vi.nic.handle == nic.handle) {
        let Some(vi) = VIS.get(handle) else { continue };
        for which in [WorkQueue::Send, WorkQueue::Receive] {
            vi.collect(which);
        }
    }
}

impl Vi {
    pub(crate) fn handle(&self) -> Handle {
        std::ptr::without_provenance_mut(self.handle)
    }

    #[inline]
    pub(crate) fn queue(&self, which: WorkQueue) -> MutexGuard<'_, Queue> {
        lock(&self.queues[index(which)])
    }

    #[inline]
    pub(crate) fn most_segments(&self) -> usize {
        self.most_segments
    }

    pub(crate) fn has_ptag(&self, ptag: Handle) -> bool {
        lock(&self.attributes).ptag == ptag
    }

    pub(crate) fn has_cq(&self, which: WorkQueue) -> bool {
        self.cqs[index(which)].is_some()
    }

    pub(crate) fn uses_cq(&self, cq: &Arc<Cq>) -> bool {
        self.cqs.iter().flatten().any(|(used, _)| Arc::ptr_eq(used, cq))
    }

    /// The upper half of its descriptors' context: its number at the completion queue.
    #[inline]
    pub(crate) fn context(&self, which: WorkQueue) -> u64 {
        self.cqs[index(which)].as_ref().map_or(0, |(_, number)| u64::from(*number) << 32)
    }

    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        // Relaxed: who posts in the moment of the failure is flushed by it.
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn state(&self) -> ViState {
        if self.has_failed() { ViState::Error } else { self.vi.state() }
    }

    /// Whether an error of a descriptor breaks the connection: there is one, and it is reliable.
    pub(crate) fn breaks_by_errors(&self) -> bool {
        self.vi.state() == ViState::Connected
            && self.vi.attributes().reliability != ReliabilityLevel::Unreliable
    }

    pub(crate) fn level_bit(&self) -> u16 {
        level_bit(self.vi.attributes().reliability)
    }

    pub(crate) fn max_transfer_size(&self) -> c_ulong {
        self.vi.attributes().max_transfer_size.into()
    }

    /// Goes on over what is done in a queue, and lets the completion queue know.
    pub(crate) fn settle(self: &Arc<Self>, which: WorkQueue) {
        let broke = match &self.cqs[index(which)] {
            // The completion queue first: its entries come in the order in which things were done.
            Some((cq, _)) => cq.settle(self, which),
            None => self.queue(which).settle().broke,
        };
        if broke {
            self.fail();
        }
    }

    /// A descriptor's error has broken the connection.
    #[cold]
    pub(crate) fn fail(&self) {
        if !self.breaks_by_errors() {
            return;
        }
        self.failed.store(true, Ordering::Relaxed);
        if let Err(e) = self.vi.disconnect() {
            tracing::warn!("leaving a connection that is broken: {e}");
        }
    }

    /// Takes what uvia has finished for a queue that has no completion queue.
    #[inline]
    fn harvest(&self, queue: &mut Queue, which: WorkQueue, patient: bool) -> uvia::Result<bool> {
        let Some(done) = self.vi.done(which, patient)? else { return Ok(false) };
        let number = done.context as u32;
        queue.finish(number, done);
        Ok(true)
    }

    /// Takes all that has completed.
    fn collect(self: &Arc<Self>, which: WorkQueue) {
        match &self.cqs[index(which)] {
            Some((cq, _)) => cq.collect(),
            None => {
                let mut queue = self.queue(which);
                while !queue.is_settled() && self.harvest(&mut queue, which, true).unwrap_or(false) {
                    if queue.settle().broke {
                        drop(queue);
                        self.fail();
                        queue = self.queue(which);
                    }
                }
            }
        }
    }

    /// VipSendDone and VipRecvDone.
    #[inline]
    pub(crate) fn done(self: &Arc<Self>, which: WorkQueue, patient: bool) -> uvia::Result<Done> {
        let mut queue = self.queue(which);
        if let Some(done) = take(&mut queue) {
            return Ok(done);
        }
        match &self.cqs[index(which)] {
            None => {
                self.harvest(&mut queue, which, patient)?;
                let settled = queue.settle();
                let answer = take(&mut queue).unwrap_or(Done::InProgress);
                drop(queue);
                if settled.broke {
                    self.fail();
                }
                Ok(answer)
            }
            Some((cq, _)) => {
                drop(queue);
                cq.harvest(patient)?;
                Ok(take(&mut self.queue(which)).unwrap_or(Done::InProgress))
            }
        }
    }

    /// VipSendWait and VipRecvWait; nothing when the time is over.
    pub(crate) fn wait(
        self: &Arc<Self>,
        which: WorkQueue,
        timeout: Duration,
    ) -> Result<Option<Done>, Return> {
        wait(&self.nic, timeout, |patient| {
            if self.destroyed.load(Ordering::Relaxed) {
                return Ok(Some(Err(Return::InvalidParameter)));
            }
            Ok(match self.done(which, patient)? {
                Done::InProgress => None,
                done => Some(Ok(done)),
            })
        })
    }

    /// VipDisconnect.
    pub(crate) fn disconnect(self: &Arc<Self>) -> Result<(), Return> {
        *lock(&self.asks) = None;
        self.vi.disconnect().map_err(|e| {
            tracing::warn!("disconnecting: {e}");
            Return::ErrorResource
        })?;
        self.failed.store(false, Ordering::Relaxed);
        for which in [WorkQueue::Send, WorkQueue::Receive] {
            self.queue(which).cure();
            self.settle(which);
        }
        Ok(())
    }

    /// It is no more; what was posted and not asked for is the program's again.
    pub(crate) fn bury(self: Arc<Self>) {
        self.destroyed.store(true, Ordering::Relaxed);
        if let Err(e) = self.vi.disconnect() {
            tracing::warn!("disconnecting: {e}");
        }
        for (cq, number) in self.cqs.iter().flatten() {
            cq.leave(*number);
        }
        crate::notify::cancel(self.handle);
    }

    pub(crate) fn set_user_data(&self, data: *mut std::ffi::c_void) {
        self.user_data.store(data.expose_provenance(), Ordering::Relaxed);
    }

    pub(crate) fn user_data(&self) -> *mut std::ffi::c_void {
        std::ptr::with_exposed_provenance_mut(self.user_data.load(Ordering::Relaxed))
    }
}

/// The head, if it is done or there is none.
#[inline]
fn take(queue: &mut Queue) -> Option<Done> {
    match queue.take() {
        Head::Taken(descriptor, good) => Some(Done::Taken(descriptor, good)),
        Head::Empty => Some(Done::Empty),
        Head::InProgress => None,
    }
}

/// Waits for an answer, in slices: another thread may reap what it is about, which wakes nobody.
pub(crate) fn wait<T>(
    nic: &Nic,
    timeout: Duration,
    mut ready: impl FnMut(bool) -> uvia::Result<Option<Result<T, Return>>>,
) -> Result<Option<T>, Return> {
    let start = std::time::Instant::now();
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        let outcome = nic.device.nic.wait_for(left.min(SLICE), &mut ready).map_err(|e| {
            tracing::warn!("waiting: {e}");
            Return::ErrorResource
        })?;
        match outcome {
            Some(answer) => return answer.map(Some),
            None if left <= SLICE => return Ok(None),
            None => {}
        }
    }
}

/// A time-out in milliseconds; what is longer than a century does not end.
pub(crate) fn timeout(millis: c_ulong) -> Duration {
    const CENTURY: u64 = 100 * 365 * 86_400 * 1000;
    Duration::from_millis(millis.min(CENTURY))
}
