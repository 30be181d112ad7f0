//! Virtual interfaces as VIPL has them.

use std::ffi::c_ulong;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uvia::{Awaited, EndpointClass, ReliabilityLevel, ViState, WorkQueue};

use crate::cq::Cq;
use crate::device::lock;
use crate::handles::Kind;
use crate::lock::{Guard, Lock};
use crate::nic::{MAX_DEPTH, Nic, PTAGS, level, level_bit};
use crate::pio;
use crate::queue::{Head, Queue};
use crate::seats::Seats;
use crate::types::{Descriptor, Handle, Return, ViAttributes};
use crate::waits::wait;

static VIS: Seats<Seat> = Seats::new(Kind::Vi);

/// Where an interface sits: what calls for one of its queues need lies under that queue's lock, so that they take no
/// other. Whoever takes both takes the send queue's first.
#[derive(Default)]
pub(crate) struct Seat {
    halves: [Lock<Half>; 2],
}

/// A work queue of a place.
#[derive(Default)]
pub(crate) struct Half {
    /// The handle, as a number, of the interface that sits here; 0 when none does.
    name: usize,
    occupant: Option<Occupant>,
}

/// An interface's queue, and the interface.
pub(crate) struct Occupant {
    pub(crate) vi: Arc<Vi>,
    pub(crate) queue: Queue,
}

/// A virtual interface.
pub(crate) struct Vi {
    handle: usize,
    seat: &'static Seat,
    pub(crate) nic: Arc<Nic>,
    pub(crate) vi: uvia::Vi,
    attributes: Mutex<ViAttributes>,
    class: EndpointClass,
    most_segments: usize,
    /// Completion queues, and the interface's number there.
    cqs: [Option<(Arc<Cq>, u32)>; 2],
    /// An error of its own broke the connection: the state is Error until it is disconnected.
    failed: AtomicBool,
    /// When a request to a peer was made, how long it has.
    pub(crate) asks: Mutex<Option<Duration>>,
    user_data: AtomicUsize,
}

impl Vi {
    /// Whether its sends lie in an adapter's memory.
    pub(crate) fn is_pio(&self) -> bool {
        self.class == EndpointClass::Pio
    }
}

/// A queue that is held, of an interface that is there.
pub(crate) struct Held(Guard<'static, Half>);

impl std::ops::Deref for Held {
    type Target = Occupant;

    #[inline(always)]
    fn deref(&self) -> &Occupant {
        match &self.0.occupant {
            Some(occupant) => occupant,
            None => unreachable!("{ABSENT}"),
        }
    }
}

impl std::ops::DerefMut for Held {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Occupant {
        match &mut self.0.occupant {
            Some(occupant) => occupant,
            None => unreachable!("{ABSENT}"),
        }
    }
}

/// `Seat::hold` has seen that there is one, and nobody takes it out while the lock is held.
const ABSENT: &str = "a place with a name and without an interface";

impl Seat {
    fn take_both(&'static self) -> [Guard<'static, Half>; 2] {
        let [send, receive] = &self.halves;
        [send.take(), receive.take()]
    }

    #[inline(always)]
    fn hold(&'static self, name: usize, which: WorkQueue) -> Option<Held> {
        let half = self.halves[index(which)].take();
        (half.name == name && half.occupant.is_some()).then_some(Held(half))
    }
}

/// The queue of an interface, if a handle is that of one.
#[inline(always)]
pub(crate) fn hold(handle: Handle, which: WorkQueue) -> Result<Held, Return> {
    VIS.seat(handle).and_then(|seat| seat.hold(handle.addr(), which)).ok_or(Return::InvalidParameter)
}

/// The interface of a handle.
pub(crate) fn find(handle: Handle) -> Option<Arc<Vi>> {
    hold(handle, WorkQueue::Send).ok().map(|held| held.vi.clone())
}

/// All interfaces that are so.
pub(crate) fn all(is_so: impl Fn(&Vi) -> bool) -> Vec<Arc<Vi>> {
    let of = |seat: &Seat| {
        let half = seat.halves[index(WorkQueue::Send)].take();
        half.occupant.as_ref().map(|occupant| occupant.vi.clone())
    };
    VIS.all().filter_map(of).filter(|vi| is_so(vi)).collect()
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
fn wanted(nic: &Nic, attributes: &ViAttributes, class: EndpointClass) -> Result<uvia::ViAttributes, Return> {
    let reliability = level(attributes.reliability_level)?;
    let most = nic.device.nic.properties().max_transfer_size;
    let size = u32::try_from(attributes.max_transfer_size).ok().filter(|size| (1..=most).contains(size));
    let max_transfer_size = size.ok_or(Return::InvalidMtu)?;
    // No call makes one: it is a number that both ends have to agree on, in a handle's place.
    let qos = u8::try_from(attributes.qos.addr()).map_err(|_| Return::InvalidQos)?;
    let tag = match attributes.ptag {
        ptag if ptag.is_null() => nic.tag,
        ptag => PTAGS.get(ptag).filter(|tag| tag.nic == nic.handle).ok_or(Return::InvalidPtag)?.tag,
    };
    if attributes.enable_rdma_read != 0 && reliability == ReliabilityLevel::Unreliable {
        return Err(Return::InvalidRdmaRead);
    }
    let usual = uvia::ViAttributes {
        reliability,
        max_transfer_size,
        qos,
        rdma_write: attributes.enable_rdma_write != 0,
        rdma_read: attributes.enable_rdma_read != 0,
        send_depth: MAX_DEPTH,
        receive_depth: MAX_DEPTH,
        ..uvia::ViAttributes::new(tag)
    };
    if class == EndpointClass::Pio { pio::shaped(nic, usual) } else { Ok(usual) }
}

/// Most descriptors in a queue.
fn depth(attributes: &uvia::ViAttributes, which: WorkQueue) -> usize {
    match which {
        WorkQueue::Send => attributes.send_depth,
        WorkQueue::Receive => attributes.receive_depth,
    }
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
    class: EndpointClass,
) -> Result<Handle, Return> {
    let wanted = wanted(nic, attributes, class)?;
    let [send, receive] = &cqs;
    let made = nic
        .own
        .create_vi(&wanted, send.as_ref().map(|cq| &cq.cq), receive.as_ref().map(|cq| &cq.cq))
        .map_err(|e| {
            tracing::warn!("creating a virtual interface: {e}");
            refusal(&e)
        })?;
    let (handle, seat) = VIS.reserve().ok_or(Return::ErrorResource)?;
    let vi = Arc::new(Vi {
        handle: handle.addr(),
        seat,
        nic: nic.clone(),
        vi: made,
        attributes: Mutex::new(*attributes),
        class,
        most_segments: nic.device.nic.properties().max_segments,
        cqs: cqs.map(|cq| {
            cq.map(|cq| {
                let number = cq.join();
                (cq, number)
            })
        }),
        failed: AtomicBool::new(false),
        asks: Mutex::new(None),
        user_data: AtomicUsize::new(0),
    });
    // Both at once: a handle is that of a whole interface, or of none.
    let mut halves = seat.take_both();
    for (half, which) in halves.iter_mut().zip([WorkQueue::Send, WorkQueue::Receive]) {
        half.occupant =
            Some(Occupant { vi: vi.clone(), queue: Queue::new(which, wanted.tag, depth(&wanted, which)) });
        half.name = handle.addr();
    }
    drop(halves);
    for (cq, number) in vi.cqs.iter().flatten() {
        cq.seat(*number, handle);
    }
    Ok(handle)
}

/// VipDestroyVi.
pub(crate) fn destroy(handle: Handle) -> Result<(), Return> {
    let vi = find(handle).ok_or(Return::InvalidParameter)?;
    if vi.state() != ViState::Idle {
        return Err(Return::InvalidState);
    }
    if vi.bury() { Ok(()) } else { Err(Return::InvalidParameter) }
}

/// VipQueryVi: the state, the attributes, and whether the queues are empty.
pub(crate) fn query(vi: &Vi) -> (ViState, ViAttributes, [bool; 2]) {
    let empty = [WorkQueue::Send, WorkQueue::Receive]
        .map(|which| vi.hold(which).is_none_or(|held| held.queue.len() == 0));
    (vi.state(), *lock(&vi.attributes), empty)
}

/// VipSetViAttributes.
pub(crate) fn set_attributes(vi: &Vi, attributes: &ViAttributes) -> Result<(), Return> {
    let wanted = wanted(&vi.nic, attributes, vi.class)?;
    if vi.state() != ViState::Idle {
        return Err(Return::InvalidState);
    }
    // Both queues are held, so that nothing is posted in between.
    let halves = vi.hold(WorkQueue::Send).zip(vi.hold(WorkQueue::Receive));
    let (mut send, mut receive) = halves.ok_or(Return::InvalidParameter)?;
    vi.vi.set_attributes(&wanted).map_err(|e| refusal(&e))?;
    (send.queue.tag, receive.queue.tag) = (wanted.tag, wanted.tag);
    *lock(&vi.attributes) = *attributes;
    Ok(())
}

/// Takes what has completed for any interface of a NIC, so that nothing is held that is done with.
pub(crate) fn collect(nic: &Nic) {
    for vi in all(|vi| vi.nic.handle == nic.handle) {
        for which in [WorkQueue::Send, WorkQueue::Receive] {
            vi.collect(which);
        }
    }
}

/// Lets go of memory that is known from descriptors that are done. What is posted from now on is looked up.
pub(crate) fn forget_memory(nic: &Nic) {
    for vi in all(|vi| vi.nic.handle == nic.handle) {
        for which in [WorkQueue::Send, WorkQueue::Receive] {
            if let Some(mut held) = vi.hold(which) {
                held.queue.forget_memory();
            }
        }
    }
}

impl Vi {
    pub(crate) fn handle(&self) -> Handle {
        std::ptr::without_provenance_mut(self.handle)
    }

    /// Its queue; none once it was destroyed.
    #[inline]
    pub(crate) fn hold(&self, which: WorkQueue) -> Option<Held> {
        self.seat.hold(self.handle, which)
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

    pub(crate) fn qos(&self) -> u8 {
        self.vi.attributes().qos
    }

    /// Goes on over what is done in a queue, and lets the completion queue know.
    pub(crate) fn settle(&self, which: WorkQueue) {
        let broke = match &self.cqs[index(which)] {
            // The completion queue first: its entries come in the order in which things were done.
            Some((cq, _)) => cq.settle(self, which),
            None => self.hold(which).is_some_and(|mut held| held.queue.settle().broke),
        };
        if broke {
            self.fail();
        }
        self.nic.sleepers.wake();
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

    /// Takes all that has completed.
    fn collect(&self, which: WorkQueue) {
        if let Some((cq, _)) = &self.cqs[index(which)] {
            return cq.collect();
        }
        while let Some(mut held) = self.hold(which) {
            let queue = &mut held.queue;
            if queue.is_settled() || !harvest(&self.vi, queue, true).unwrap_or(false) {
                break;
            }
            let broke = queue.settle().broke;
            drop(held);
            if broke {
                self.fail();
            }
        }
    }

    /// VipSendWait and VipRecvWait; nothing when the time is over.
    pub(crate) fn wait(&self, which: WorkQueue, timeout: Duration) -> Result<Option<Done>, Return> {
        wait(&self.nic, Awaited::Queue(&self.vi, which), timeout, |patient| {
            let Some(held) = self.hold(which) else { return Ok(Some(Err(Return::InvalidParameter))) };
            Ok(match done(held, patient)? {
                Done::InProgress => None,
                done => Some(Ok(done)),
            })
        })
    }

    /// VipDisconnect.
    pub(crate) fn disconnect(&self) -> Result<(), Return> {
        *lock(&self.asks) = None;
        self.vi.disconnect().map_err(|e| {
            tracing::warn!("disconnecting: {e}");
            Return::ErrorResource
        })?;
        self.failed.store(false, Ordering::Relaxed);
        for which in [WorkQueue::Send, WorkQueue::Receive] {
            if let Some(mut held) = self.hold(which) {
                held.queue.cure();
            }
            self.settle(which);
        }
        Ok(())
    }

    /// Ends it; what was posted and not asked for is the program's again. False when another call did so before.
    pub(crate) fn bury(&self) -> bool {
        let mut halves = self.seat.take_both();
        if halves[0].name != self.handle {
            return false;
        }
        let taken = halves.each_mut().map(|half| {
            half.name = 0;
            half.occupant.take()
        });
        drop(halves);
        VIS.free(self.handle());
        if let Err(e) = self.vi.disconnect() {
            tracing::warn!("disconnecting: {e}");
        }
        for (cq, number) in self.cqs.iter().flatten() {
            cq.leave(*number);
        }
        crate::notify::cancel(self.handle);
        self.nic.sleepers.wake();
        // Here no lock is held: the queues may have the last use of things.
        drop(taken);
        true
    }

    pub(crate) fn set_user_data(&self, data: *mut std::ffi::c_void) {
        self.user_data.store(data.expose_provenance(), Ordering::Relaxed);
    }

    pub(crate) fn user_data(&self) -> *mut std::ffi::c_void {
        std::ptr::with_exposed_provenance_mut(self.user_data.load(Ordering::Relaxed))
    }
}

/// Takes what uvia has finished for a queue that has no completion queue.
#[inline]
fn harvest(vi: &uvia::Vi, queue: &mut Queue, patient: bool) -> uvia::Result<bool> {
    let Some(done) = vi.done(queue.which(), patient)? else { return Ok(false) };
    let number = done.context as u32;
    queue.finish(number, done);
    Ok(true)
}

/// VipSendDone and VipRecvDone.
#[inline]
pub(crate) fn done(mut held: Held, patient: bool) -> uvia::Result<Done> {
    let Occupant { vi, queue } = &mut *held;
    if let Some(done) = take(queue) {
        return Ok(done);
    }
    if vi.has_cq(queue.which()) {
        return done_by_cq(held, patient);
    }
    // What was refused is settled when what is before it is done, and when it is posted.
    let Some(done) = vi.vi.done(queue.which(), patient)? else { return Ok(Done::InProgress) };
    let number = done.context as u32;
    let done = match queue.finish_first(number, done) {
        Ok((descriptor, good)) => return Ok(Done::Taken(descriptor, good)),
        Err(done) => done,
    };
    queue.finish(number, done);
    let settled = queue.settle();
    let answer = take(queue).unwrap_or(Done::InProgress);
    if settled.broke {
        let vi = vi.clone();
        drop(held);
        vi.fail();
    }
    Ok(answer)
}

/// As [`done`], for a queue with a completion queue, which was not asked before.
#[cold]
fn done_by_cq(held: Held, patient: bool) -> uvia::Result<Done> {
    let (vi, which) = (held.vi.clone(), held.queue.which());
    drop(held);
    if let Some((cq, _)) = &vi.cqs[index(which)] {
        cq.harvest(patient)?;
    }
    Ok(vi.hold(which).and_then(|mut held| take(&mut held.queue)).unwrap_or(Done::InProgress))
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
