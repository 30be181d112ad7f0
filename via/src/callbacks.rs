//! Calls of the program's handlers, by a thread of the NIC's own.
//!
//! What happens is noticed under the NIC's lock, by whoever drives it: often a call of the program's, which may hold
//! locks of its own. So handlers run on a thread that holds nothing, and may call anything, and block. The thread is
//! started with the first handler.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;

use crate::rings::RingKey;
use crate::seldom::Seldom;
use crate::{AsyncError, Completion, Error, Result};

/// What is called with a completion, once.
pub(crate) type NotifyHandler = Box<dyn FnOnce(Completion) + Send>;
/// What is called with errors.
pub(crate) type ErrorHandler = Arc<dyn Fn(&AsyncError) + Send + Sync>;

/// Something to call.
enum Call {
    Notify(RingKey, NotifyHandler, Completion),
    Error(u32, AsyncError),
    Wake(Waker),
}

/// The calls of a NIC that are to be made.
#[derive(Default)]
pub(crate) struct Callbacks {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    calls: VecDeque<Call>,
    /// By the number of who opened the NIC.
    handlers: HashMap<u32, ErrorHandler>,
    /// Errors among the calls: one that happens again before it was told is told once.
    untold: HashSet<(u32, AsyncError)>,
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

static UNHANDLED: Seldom = Seldom::new();

impl Callbacks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, if it does not run.
    ///
    /// # Errors
    /// The system gives none.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        let mut state = self.state();
        if state.thread.is_some() || state.ended {
            return Ok(());
        }
        let mine = self.clone();
        let thread = std::thread::Builder::new().name("uvia-handlers".to_owned()).spawn(move || mine.run());
        let failed = |e| Error::Driver(uvia_driver::Error::io("starting a NIC's thread for handlers", e));
        state.thread = Some(thread.map_err(failed)?);
        Ok(())
    }

    fn push(&self, call: Call) {
        let mut state = self.state();
        if !state.ended {
            state.calls.push_back(call);
            self.changed.notify_one();
        }
    }

    /// The handler is to be called with the completion.
    pub(crate) fn notify(&self, ring: RingKey, handler: NotifyHandler, completion: Completion) {
        self.push(Call::Notify(ring, handler, completion));
    }

    /// The task is to be woken.
    pub(crate) fn wake(&self, waker: Waker) {
        self.push(Call::Wake(waker));
    }

    /// Who opened the NIC by that number is to be told of the error; where there is no handler, the log is.
    pub(crate) fn error(&self, open: u32, error: AsyncError) {
        let mut state = self.state();
        if !state.handlers.contains_key(&open) {
            drop(state);
            return unhandled(&error);
        }
        if !state.ended && state.untold.insert((open, error)) {
            state.calls.push_back(Call::Error(open, error));
            self.changed.notify_one();
        }
    }

    /// All who opened the NIC are to be told.
    pub(crate) fn error_of_nic(&self, error: AsyncError) {
        let opens: Vec<u32> = self.state().handlers.keys().copied().collect();
        if opens.is_empty() {
            unhandled(&error);
        }
        opens.into_iter().for_each(|open| self.error(open, error));
    }

    /// Sets or removes a handler of errors; answers the one before, to be dropped where no lock is held.
    pub(crate) fn set_error_handler(&self, open: u32, handler: Option<ErrorHandler>) -> Option<ErrorHandler> {
        let mut state = self.state();
        match handler {
            Some(handler) => state.handlers.insert(open, handler),
            None => state.handlers.remove(&open),
        }
    }

    /// A ring is no more: its handlers are not called any more. Answers what they were to be called with.
    pub(crate) fn cancel(&self, ring: RingKey) -> impl Drop + use<> {
        let mut state = self.state();
        let calls = std::mem::take(&mut state.calls);
        let of_ring = |call: &Call| matches!(call, Call::Notify(key, ..) if *key == ring);
        let (cancelled, kept) = calls.into_iter().partition::<VecDeque<_>, _>(of_ring);
        state.calls = kept;
        cancelled
    }

    /// Makes no more calls; one that is under way is waited for, unless it is where this is called from.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        let left = std::mem::take(&mut *state);
        state.ended = true;
        self.changed.notify_all();
        drop(state);
        let State { thread, calls, handlers, .. } = left;
        drop((calls, handlers));
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("a NIC's thread for handlers has panicked");
        }
    }

    fn run(&self) {
        let mut state = self.state();
        while !state.ended {
            let Some(call) = state.calls.pop_front() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let handler = match &call {
                Call::Error(open, error) => {
                    state.untold.remove(&(*open, *error));
                    state.handlers.get(open).cloned()
                }
                Call::Notify(..) | Call::Wake(_) => None,
            };
            drop(state);
            // A handler's panic is its own.
            if catch_unwind(AssertUnwindSafe(|| make(call, handler))).is_err() {
                tracing::error!("a handler of the program's has panicked");
            }
            state = self.state();
        }
    }
}

fn make(call: Call, handler: Option<ErrorHandler>) {
    match call {
        Call::Notify(_, handler, completion) => handler(completion),
        Call::Wake(waker) => waker.wake(),
        Call::Error(_, error) => match handler {
            Some(handler) => handler(&error),
            None => unhandled(&error),
        },
    }
}

/// What is done about an error where the program has not said.
fn unhandled(error: &AsyncError) {
    if let Some(before) = UNHANDLED.due() {
        tracing::warn!(more = before, "{error}");
    }
}
