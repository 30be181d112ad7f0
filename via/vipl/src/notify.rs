//! Notify: handlers that are called once for a completion each.
//!
//! One thread looks after all of them. It is not the one that drives the NIC, since a handler may take long, and may
//! call any function, also to register again.

use std::ffi::c_int;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use uvia::WorkQueue;

use crate::cq;
use crate::device::lock;
use crate::types::{CqHandler, DescriptorHandler, Handle, Return};
use crate::vi::{self, Done};

/// What is waited for.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    Queue(WorkQueue, DescriptorHandler),
    Cq(CqHandler),
}

/// A registration: one call.
struct Registered {
    number: u64,
    /// The interface or completion queue.
    object: usize,
    context: usize,
    target: Target,
}

#[derive(Default)]
struct Waiting {
    /// In the order in which they came: the first of an object's is called first.
    list: Mutex<(u64, Vec<Registered>)>,
    changed: Condvar,
}

/// How long the thread sleeps while nothing has completed.
const NAP: Duration = Duration::from_micros(500);

fn waiting() -> &'static Waiting {
    static WAITING: OnceLock<Waiting> = OnceLock::new();
    WAITING.get_or_init(Waiting::default)
}

/// Registers a handler.
pub(crate) fn register(object: Handle, context: Handle, target: Target) -> Result<(), Return> {
    static THREAD: OnceLock<bool> = OnceLock::new();
    let running =
        THREAD.get_or_init(|| std::thread::Builder::new().name("vipl-notify".to_owned()).spawn(run).is_ok());
    if !running {
        return Err(Return::ErrorResource);
    }
    let all = waiting();
    let mut list = lock(&all.list);
    list.0 += 1;
    let number = list.0;
    list.1.push(Registered { number, object: object.addr(), context: context.expose_provenance(), target });
    all.changed.notify_one();
    Ok(())
}

/// Forgets the registrations of an object that is gone.
pub(crate) fn cancel(object: usize) {
    lock(&waiting().list).1.retain(|registered| registered.object != object);
}

/// For ever.
fn run() {
    let all = waiting();
    let mut first = Vec::new();
    loop {
        first.clear();
        {
            let mut list = lock(&all.list);
            while list.1.is_empty() {
                list = all.changed.wait(list).unwrap_or_else(PoisonError::into_inner);
            }
            // Of each queue the first: it is to be called before the others.
            for registered in &list.1 {
                let queue = |target: &Target| match target {
                    Target::Queue(which, _) => Some(*which),
                    Target::Cq(_) => None,
                };
                let key = (registered.object, queue(&registered.target));
                if !first.iter().any(|(_, object, _, target)| (*object, queue(target)) == key) {
                    first.push((registered.number, registered.object, registered.context, registered.target));
                }
            }
        }
        let mut called = false;
        for (number, object, context, target) in &first {
            let handle = std::ptr::without_provenance_mut(*object);
            if let Some(call) = due(handle, *target) {
                lock(&all.list).1.retain(|registered| registered.number != *number);
                call(std::ptr::with_exposed_provenance_mut(*context));
                called = true;
            }
        }
        if !called {
            let list = lock(&all.list);
            drop(all.changed.wait_timeout(list, NAP));
        }
    }
}

type Call = Box<dyn FnOnce(Handle)>;

/// What is to be called, if something has completed.
fn due(object: Handle, target: Target) -> Option<Call> {
    match target {
        Target::Queue(which, handler) => {
            let held = vi::hold(object, which).ok()?;
            let nic = std::ptr::without_provenance_mut(held.vi.nic.handle);
            match vi::done(held, false).ok()? {
                Done::Taken(descriptor, _) => Some(Box::new(move |context| {
                    // SAFETY: the program gave this function for such a call; no lock is held.
                    unsafe { handler(context, nic, object, descriptor) }
                })),
                Done::Empty | Done::InProgress => None,
            }
        }
        Target::Cq(handler) => {
            let nic = std::ptr::without_provenance_mut(cq::find(object)?.nic.handle);
            let (vi, receive) = cq::done(object).ok()?.ok()??;
            Some(Box::new(move |context| {
                // SAFETY: as above.
                unsafe { handler(context, nic, vi, c_int::from(receive)) }
            }))
        }
    }
}
