//! Notify: handlers that are called once for a completion each.
//!
//! One thread looks after all of them, and sleeps while nothing has completed. It is not the one that drives the NIC,
//! since a handler may take long, and may call any function, also to register again.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use uvia::{Awaited, Sleeper, WorkQueue};

use crate::cq;
use crate::device::lock;
use crate::nic::Nic;
use crate::types::{CqHandler, DescriptorHandler, Handle, Return};
use crate::vi::{self, Done};

/// What is waited for.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    Queue(WorkQueue, DescriptorHandler),
    Cq(CqHandler),
}

/// A registration: one call.
#[derive(Clone, Copy)]
struct Registered {
    number: u64,
    /// The interface or completion queue.
    object: usize,
    context: usize,
    target: Target,
}

struct Waiting {
    /// In the order in which they came: the first of an object's is called first.
    list: Mutex<(u64, Vec<Registered>)>,
    /// What the thread sleeps by.
    sleeper: Arc<Sleeper>,
}

/// The longest sleep; it ends when there is something to do.
const LONG: Duration = Duration::from_secs(86_400);

/// Its thread is started with the first registration; none where the system gives none.
fn waiting() -> Option<&'static Waiting> {
    static WAITING: OnceLock<Option<Waiting>> = OnceLock::new();
    let waiting = WAITING.get_or_init(|| {
        let sleeper = Arc::new(Sleeper::new().ok()?);
        Some(Waiting { list: Mutex::default(), sleeper })
    });
    waiting.as_ref()
}

/// Registers a handler, for an object of that NIC.
pub(crate) fn register(nic: &Nic, object: Handle, context: Handle, target: Target) -> Result<(), Return> {
    static THREAD: OnceLock<bool> = OnceLock::new();
    let all = waiting().ok_or(Return::ErrorResource)?;
    let start = || std::thread::Builder::new().name("vipl-notify".to_owned()).spawn(|| run(all)).is_ok();
    if !THREAD.get_or_init(start) {
        return Err(Return::ErrorResource);
    }
    nic.sleepers.join(&all.sleeper);
    let mut list = lock(&all.list);
    list.0 += 1;
    let number = list.0;
    list.1.push(Registered { number, object: object.addr(), context: context.expose_provenance(), target });
    drop(list);
    all.sleeper.wake();
    Ok(())
}

/// Forgets the registrations of an object that is gone.
pub(crate) fn cancel(object: usize) {
    if let Some(all) = waiting() {
        lock(&all.list).1.retain(|registered| registered.object != object);
    }
}

/// For ever.
fn run(all: &Waiting) {
    let mut first: Vec<Registered> = Vec::new();
    loop {
        // Before anything is looked at: what happens from now on ends the sleep.
        all.sleeper.hush();
        first.clear();
        // Of each queue the first: it is to be called before the others.
        for registered in &lock(&all.list).1 {
            if !first.iter().any(|one| one.queue() == registered.queue()) {
                first.push(*registered);
            }
        }
        let mut called = false;
        for Registered { number, object, context, target } in &first {
            let handle = std::ptr::without_provenance_mut(*object);
            if let Some(call) = due(handle, *target) {
                lock(&all.list).1.retain(|registered| registered.number != *number);
                call(std::ptr::with_exposed_provenance_mut(*context));
                called = true;
            }
        }
        if !called && first.iter().all(|registered| registered.ask(&all.sleeper)) {
            sleep(&all.sleeper);
        }
    }
}

fn sleep(sleeper: &Sleeper) {
    if let Err(e) = sleeper.sleep(LONG) {
        tracing::error!("sleeping until something completes: {e}");
        // Not over and over as fast as it goes.
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Registered {
    /// The queue that it is for.
    fn queue(&self) -> (usize, Option<WorkQueue>) {
        let which = match self.target {
            Target::Queue(which, _) => Some(which),
            Target::Cq(_) => None,
        };
        (self.object, which)
    }

    /// Asks that the thread be woken when something completes there; false when something has.
    fn ask(&self, sleeper: &Sleeper) -> bool {
        let object = std::ptr::without_provenance_mut(self.object);
        let asked = match self.target {
            Target::Queue(which, _) => vi::find(object).map(|vi| sleeper.arm(Awaited::Queue(&vi.vi, which))),
            Target::Cq(_) => cq::find(object).map(|cq| sleeper.arm(Awaited::Completions(&cq.cq))),
        };
        match asked {
            Some(Ok(asked)) => asked,
            Some(Err(e)) => {
                tracing::warn!("waiting for a handler's completion: {e}");
                true
            }
            // It was destroyed, and its registrations go with it.
            None => true,
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
