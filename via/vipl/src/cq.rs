//! Completion queues as VIPL has them: entries that name an interface and a queue; the descriptor comes by Done.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use uvia::WorkQueue;

use crate::device::lock;
use crate::handles::{Kind, Table};
use crate::nic::Nic;
use crate::types::{Handle, Return};
use crate::vi::{VIS, Vi};

pub(crate) static CQS: Table<Cq> = Table::new(Kind::Cq);

/// A completion queue.
pub(crate) struct Cq {
    handle: usize,
    pub(crate) nic: Arc<Nic>,
    pub(crate) cq: uvia::CompletionQueue,
    inner: Mutex<Inner>,
}

struct Inner {
    /// Interfaces that use it, by their number here.
    members: Vec<Member>,
    /// What is done and was not told yet, in order.
    ready: VecDeque<(u32, WorkQueue)>,
}

enum Member {
    Free,
    /// Its interface is about to come.
    Taken,
    Seated(Weak<Vi>),
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
    let inner = Inner { members: Vec::new(), ready: VecDeque::new() };
    let inserted =
        CQS.insert(|handle| Cq { handle: handle.addr(), nic: nic.clone(), cq, inner: Mutex::new(inner) });
    inserted.map(|(handle, _)| handle).ok_or(Return::ErrorResource)
}

/// VipDestroyCQ. Refused while interfaces use it.
pub(crate) fn destroy(handle: Handle) -> Result<(), Return> {
    let cq = CQS.get(handle).ok_or(Return::InvalidParameter)?;
    if !VIS.find(|vi| vi.uses_cq(&cq)).is_empty() {
        return Err(Return::ErrorResource);
    }
    CQS.remove(handle).ok_or(Return::InvalidParameter)?.bury();
    Ok(())
}

/// VipResizeCQ: what it is asked for is what it can hold already.
pub(crate) fn resize(cq: &Cq, entries: usize) -> Result<(), Return> {
    match entries {
        0 => Err(Return::InvalidParameter),
        n if n > cq.cq.capacity() => Err(Return::ErrorResource),
        _ => Ok(()),
    }
}

impl Cq {
    pub(crate) fn bury(&self) {
        crate::notify::cancel(self.handle);
    }

    /// A number for an interface that will use it.
    pub(crate) fn join(&self) -> u32 {
        let mut inner = lock(&self.inner);
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
    pub(crate) fn seat(&self, number: u32, vi: &Arc<Vi>) {
        if let Some(member) = lock(&self.inner).members.get_mut(number as usize) {
            *member = Member::Seated(Arc::downgrade(vi));
        }
    }

    /// The interface is gone, and so are its entries.
    pub(crate) fn leave(&self, number: u32) {
        let mut inner = lock(&self.inner);
        if let Some(member) = inner.members.get_mut(number as usize) {
            *member = Member::Free;
        }
        inner.ready.retain(|(of, _)| *of != number);
    }

    /// Takes what uvia has finished, one descriptor, and makes entries of it. Answers whether there was one.
    pub(crate) fn harvest(&self, patient: bool) -> uvia::Result<bool> {
        let mut inner = lock(&self.inner);
        let (found, broken) = inner.harvest(&self.cq, patient)?;
        drop(inner);
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
    pub(crate) fn settle(&self, vi: &Arc<Vi>, which: WorkQueue) -> bool {
        let mut inner = lock(&self.inner);
        let number = (vi.context(which) >> 32) as u32;
        inner.settle(vi, number, which)
    }

    /// VipCQDone: the next entry.
    #[inline]
    pub(crate) fn done(&self, patient: bool) -> uvia::Result<Option<(Handle, bool)>> {
        let mut inner = lock(&self.inner);
        if let Some(entry) = inner.pop() {
            return Ok(Some(entry));
        }
        let (_, broken) = inner.harvest(&self.cq, patient)?;
        let entry = inner.pop();
        drop(inner);
        if let Some(vi) = broken {
            vi.fail();
        }
        Ok(entry)
    }

    /// VipCQWait; nothing when the time is over.
    pub(crate) fn wait(&self, timeout: Duration) -> Result<Option<(Handle, bool)>, Return> {
        crate::vi::wait(&self.nic, timeout, |patient| {
            if CQS.get(std::ptr::without_provenance_mut(self.handle)).is_none() {
                return Ok(Some(Err(Return::InvalidParameter)));
            }
            Ok(self.done(patient)?.map(Ok))
        })
    }
}

impl Inner {
    #[inline]
    fn pop(&mut self) -> Option<(Handle, bool)> {
        while let Some((number, which)) = self.ready.pop_front() {
            if let Some(vi) = self.member(number) {
                return Some((vi.handle(), which == WorkQueue::Receive));
            }
        }
        None
    }

    fn member(&self, number: u32) -> Option<Arc<Vi>> {
        match self.members.get(number as usize)? {
            Member::Seated(vi) => vi.upgrade(),
            Member::Free | Member::Taken => None,
        }
    }

    /// Whether there was a completion, and the interface that it has broken.
    #[inline]
    fn harvest(
        &mut self,
        cq: &uvia::CompletionQueue,
        patient: bool,
    ) -> uvia::Result<(bool, Option<Arc<Vi>>)> {
        let completion = if patient { cq.poll_patiently()? } else { cq.poll()? };
        let Some(completion) = completion else { return Ok((false, None)) };
        let context = completion.descriptor.context;
        let number = (context >> 32) as u32;
        // One of an interface that is gone is nobody's.
        let member = self.member(number).filter(|vi| completion.is_of(&vi.vi));
        let Some(vi) = member else { return Ok((true, None)) };
        vi.queue(completion.queue).finish(context as u32, completion.descriptor);
        let broke = self.settle(&vi, number, completion.queue);
        Ok((true, broke.then_some(vi)))
    }

    fn settle(&mut self, vi: &Vi, number: u32, which: WorkQueue) -> bool {
        let settled = vi.queue(which).settle();
        for _ in 0..settled.count {
            self.ready.push_back((number, which));
        }
        settled.broke
    }
}
