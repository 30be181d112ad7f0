//! Completion queues as VIPL has them: entries that name an interface and a queue; the descriptor comes by Done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use uvia::{Awaited, WorkQueue};

use crate::handles::Kind;
use crate::lock::{Guard, Lock};
use crate::nic::Nic;
use crate::seats::Seats;
use crate::types::{Handle, Return};
use crate::vi::{self, Vi};
use crate::waits::wait;

static CQS: Seats<Seat> = Seats::new(Kind::Cq);

/// Where a completion queue sits. Its lock comes before those of interfaces.
type Seat = Lock<Place>;

#[derive(Default)]
pub(crate) struct Place {
    /// The handle, as a number, of the completion queue that sits here; 0 when none does.
    name: usize,
    occupant: Option<Inner>,
}

/// A completion queue.
pub(crate) struct Cq {
    handle: usize,
    seat: &'static Seat,
    pub(crate) nic: Arc<Nic>,
    pub(crate) cq: uvia::CompletionQueue,
}

/// What of it is under its lock.
struct Inner {
    own: Arc<Cq>,
    /// Interfaces that use it, by their number here.
    members: Vec<Member>,
    /// What is done and was not told yet, in order.
    ready: VecDeque<(u32, WorkQueue)>,
}

enum Member {
    Free,
    /// Its interface is about to come.
    Taken,
    /// By its handle.
    Seated(usize),
}

/// A completion queue that is held, and is there.
struct Held(Guard<'static, Place>);

impl std::ops::Deref for Held {
    type Target = Inner;

    #[inline(always)]
    fn deref(&self) -> &Inner {
        match &self.0.occupant {
            Some(inner) => inner,
            None => unreachable!("{ABSENT}"),
        }
    }
}

impl std::ops::DerefMut for Held {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Inner {
        match &mut self.0.occupant {
            Some(inner) => inner,
            None => unreachable!("{ABSENT}"),
        }
    }
}

/// `hold` has seen that there is one, and nobody takes it out while the lock is held.
const ABSENT: &str = "a place with a name and without a completion queue";

#[inline(always)]
fn hold(seat: &'static Seat, name: usize) -> Option<Held> {
    let place = seat.take();
    (place.name == name && place.occupant.is_some()).then_some(Held(place))
}

/// The completion queue of a handle.
pub(crate) fn find(handle: Handle) -> Option<Arc<Cq>> {
    hold(CQS.seat(handle)?, handle.addr()).map(|held| held.own.clone())
}

/// All completion queues that are so.
pub(crate) fn all(is_so: impl Fn(&Cq) -> bool) -> Vec<Arc<Cq>> {
    let of = |seat: &Seat| seat.take().occupant.as_ref().map(|inner| inner.own.clone());
    CQS.all().filter_map(of).filter(|cq| is_so(cq)).collect()
}

/// VipCreateCQ.
pub(crate) fn create(nic: &Arc<Nic>, entries: usize) -> Result<Handle, Return> {
    let most = nic.device.nic.properties().max_cq_entries;
    if entries == 0 {
        return Err(Return::InvalidParameter);
    }
    if entries > most {
        return Err(Return::ErrorResource);
    }
    // Work queues are promised as many entries as they are deep, which is more than programs of old reckon with.
    let cq = nic.device.nic.create_cq(most).map_err(|_| Return::ErrorResource)?;
    let (handle, seat) = CQS.reserve().ok_or(Return::ErrorResource)?;
    let own = Arc::new(Cq { handle: handle.addr(), seat, nic: nic.clone(), cq });
    let inner = Inner { own, members: Vec::new(), ready: VecDeque::new() };
    *seat.take() = Place { name: handle.addr(), occupant: Some(inner) };
    Ok(handle)
}

/// VipDestroyCQ. Refused while interfaces use it.
pub(crate) fn destroy(handle: Handle) -> Result<(), Return> {
    let cq = find(handle).ok_or(Return::InvalidParameter)?;
    if !vi::all(|vi| vi.uses_cq(&cq)).is_empty() {
        return Err(Return::ErrorResource);
    }
    if cq.bury() { Ok(()) } else { Err(Return::InvalidParameter) }
}

/// VipResizeCQ: what it is asked for is what it can hold already.
pub(crate) fn resize(cq: &Cq, entries: usize) -> Result<(), Return> {
    match entries {
        0 => Err(Return::InvalidParameter),
        n if n > cq.cq.capacity() => Err(Return::ErrorResource),
        _ => Ok(()),
    }
}

/// VipCQDone: the next entry.
#[inline]
pub(crate) fn done(handle: Handle) -> Result<uvia::Result<Option<(Handle, bool)>>, Return> {
    let held = CQS.seat(handle).and_then(|seat| hold(seat, handle.addr()));
    Ok(next(held.ok_or(Return::InvalidParameter)?, false))
}

#[inline]
fn next(mut held: Held, patient: bool) -> uvia::Result<Option<(Handle, bool)>> {
    if let Some(entry) = held.pop() {
        return Ok(Some(entry));
    }
    let (_, broken) = held.harvest(patient)?;
    let entry = held.pop();
    drop(held);
    if let Some(vi) = broken {
        vi.fail();
    }
    Ok(entry)
}

impl Cq {
    fn hold(&self) -> Option<Held> {
        hold(self.seat, self.handle)
    }

    /// Ends it. False when another call did so before.
    pub(crate) fn bury(&self) -> bool {
        let Some(mut held) = self.hold() else { return false };
        held.0.name = 0;
        let inner = held.0.occupant.take();
        drop(held);
        // Here no lock is held: it may have the last use of things.
        drop(inner);
        CQS.free(std::ptr::without_provenance_mut(self.handle));
        crate::notify::cancel(self.handle);
        self.nic.sleepers.wake();
        true
    }

    /// A number for an interface that will use it.
    pub(crate) fn join(&self) -> u32 {
        let Some(mut inner) = self.hold() else { return 0 };
        let number = match inner.members.iter().position(|member| matches!(member, Member::Free)) {
            Some(number) => number,
            None => {
                inner.members.push(Member::Free);
                inner.members.len() - 1
            }
        };
        inner.members[number] = Member::Taken;
        number as u32
    }

    /// The interface is there.
    pub(crate) fn seat(&self, number: u32, vi: Handle) {
        let Some(mut inner) = self.hold() else { return };
        if let Some(member) = inner.members.get_mut(number as usize) {
            *member = Member::Seated(vi.addr());
        }
    }

    /// The interface is gone, and so are its entries.
    pub(crate) fn leave(&self, number: u32) {
        let Some(mut inner) = self.hold() else { return };
        if let Some(member) = inner.members.get_mut(number as usize) {
            *member = Member::Free;
        }
        inner.ready.retain(|(of, _)| *of != number);
    }

    /// Takes what uvia has finished, one descriptor, and makes entries of it. Answers whether there was one.
    pub(crate) fn harvest(&self, patient: bool) -> uvia::Result<bool> {
        let Some(mut held) = self.hold() else { return Ok(false) };
        let (found, broken) = held.harvest(patient)?;
        drop(held);
        if let Some(vi) = broken {
            vi.fail();
        }
        Ok(found)
    }

    /// Takes all that has completed.
    pub(crate) fn collect(&self) {
        while self.harvest(true).unwrap_or(false) {}
    }

    /// Makes entries of what is done in an interface's queue; answers whether an error of its own broke it.
    pub(crate) fn settle(&self, vi: &Vi, which: WorkQueue) -> bool {
        let Some(mut inner) = self.hold() else { return false };
        let Some(mut held) = vi.hold(which) else { return false };
        inner.settle(&mut held, (vi.context(which) >> 32) as u32)
    }

    /// VipCQWait; nothing when the time is over.
    pub(crate) fn wait(&self, timeout: Duration) -> Result<Option<(Handle, bool)>, Return> {
        wait(&self.nic, Awaited::Completions(&self.cq), timeout, |patient| {
            let Some(held) = self.hold() else { return Ok(Some(Err(Return::InvalidParameter))) };
            Ok(next(held, patient)?.map(Ok))
        })
    }
}

impl Inner {
    #[inline]
    fn pop(&mut self) -> Option<(Handle, bool)> {
        while let Some((number, which)) = self.ready.pop_front() {
            if let Some(vi) = self.member(number) {
                return Some((vi, which == WorkQueue::Receive));
            }
        }
        None
    }

    #[inline]
    fn member(&self, number: u32) -> Option<Handle> {
        match self.members.get(number as usize)? {
            Member::Seated(vi) => Some(std::ptr::without_provenance_mut(*vi)),
            Member::Free | Member::Taken => None,
        }
    }

    /// Whether there was a completion, and the interface that it has broken.
    #[inline]
    fn harvest(&mut self, patient: bool) -> uvia::Result<(bool, Option<Arc<Vi>>)> {
        let cq = &self.own.cq;
        let completion = if patient { cq.poll_patiently()? } else { cq.poll()? };
        let Some(completion) = completion else { return Ok((false, None)) };
        let context = completion.descriptor.context;
        let number = (context >> 32) as u32;
        // One of an interface that is gone is nobody's.
        let member = self.member(number).and_then(|vi| vi::hold(vi, completion.queue).ok());
        let Some(mut held) = member.filter(|held| completion.is_of(&held.vi.vi)) else {
            return Ok((true, None));
        };
        held.queue.finish(context as u32, completion.descriptor);
        let broke = self.settle(&mut held, number);
        Ok((true, broke.then(|| held.vi.clone())))
    }

    #[inline]
    fn settle(&mut self, held: &mut vi::Held, number: u32) -> bool {
        let settled = held.queue.settle();
        for _ in 0..settled.count {
            self.ready.push_back((number, held.queue.which()));
        }
        settled.broke
    }
}
