//! What time brings: deadlines, and turns of those who found the adapter full.

use super::{Engine, Output, REQUEST_LIFE, Time};
use crate::ViState;

/// Most interfaces whose time has come that one poll looks at.
const TEND_BURST: usize = 64;
/// Most frames that one poll sends for those who wait for the adapter.
const POLL_BURST: u32 = 8;

impl Engine {
    /// Whether [`Engine::poll`] has something to do at the time at which the burst began ([`Engine::begin_burst`]).
    #[inline(always)]
    pub fn wants_poll(&self) -> bool {
        self.core.now >= self.core.poll_at
    }

    /// Timers, acknowledgements that are due, and what found the adapter full.
    #[inline]
    pub fn poll<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {
        self.core.run = None;
        if now >= self.core.next {
            self.core.full = false;
            self.tend(now, out);
        }
        if !self.core.active.is_empty() {
            self.core.full = false;
            self.take_turns(now, out);
        }
        self.core.rest();
    }

    #[cold]
    fn tend<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {
        if self.core.chores <= now {
            self.release_farewells(now);
        }
        let core = &mut self.core;
        core.next = Time::NEVER;
        for _ in 0..TEND_BURST {
            let Some(slot) = core.deadlines.due(now) else { break };
            let endpoint = self.vis.get_mut(slot).and_then(|slot| slot.endpoint.as_deref_mut());
            // A deadline is moved only where it comes earlier: what is found here may be over long since.
            let at = endpoint.as_ref().map_or(Time::NEVER, |endpoint| endpoint.deadline);
            core.deadlines.set(slot, if at > now { at } else { Time::NEVER });
            if let Some(endpoint) = endpoint.filter(|_| at <= now) {
                endpoint.on_time(core, now, out);
            }
        }
        if core.chores <= now {
            core.chores = Time::NEVER;
            core.tend_farewells(now, out);
            self.names.tend(core, now, out);
            let requests = self.listeners.expire(now, REQUEST_LIFE * core.config.tuning.peer_timeout);
            core.wake(requests);
        }
        core.next = core.next.min(core.deadlines.earliest()).min(core.chores);
    }

    /// Lets those send who wait, in turn.
    #[cold]
    fn take_turns<O: Output + ?Sized>(&mut self, now: Time, out: &mut O) {
        let core = &mut self.core;
        for _ in 0..core.active.len().min(POLL_BURST as usize) {
            if core.full {
                break;
            }
            let Some(slot) = core.active.pop_front() else { break };
            let Some(endpoint) =
                self.vis.get_mut(slot as usize).and_then(|slot| slot.endpoint.as_deref_mut())
            else {
                continue;
            };
            endpoint.queued = false;
            // What it waited with may be gone with its connection; what was posted since is only to be flushed.
            if endpoint.state == ViState::Connected {
                endpoint.proceed(core, now, out);
                endpoint.settle();
            }
        }
    }

    /// When [`Engine::poll`] has something to do at the latest; at once, while interfaces wait for their turn.
    pub fn deadline(&self) -> Option<Time> {
        if !self.core.full && !self.core.active.is_empty() {
            return Some(Time(0));
        }
        (self.core.next != Time::NEVER).then_some(self.core.next)
    }
}
