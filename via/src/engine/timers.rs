//! What an interface does when its deadline has come.

use super::core::Core;
use super::endpoint::Endpoint;
use super::{Output, Time};
use crate::wire::control::CloseReason;
use crate::wire::data;
use crate::{ConnectionLoss, ViState};

/// Frames that a connection may send in one turn, before others have theirs.
pub(super) const BURST: u32 = 16;
/// Signs of life that a peer was asked for in vain, at least, when it is taken for dead.
const PROBES: u32 = 3;

impl Endpoint {
    /// Does what is due, and sets the next deadline. Deadlines are not moved when what they were set for happens:
    /// an early look costs less than keeping account of every frame.
    pub(super) fn on_time<O: Output + ?Sized>(&mut self, core: &mut Core, now: Time, out: &mut O) {
        self.deadline = Time::NEVER;
        if !self.tend_handshake(core, now, out) || self.state != ViState::Connected {
            return;
        }
        if self.receiver.ack_at() <= now {
            self.receiver.owe();
        }
        let tuning = &core.config.tuning;
        let (ask, peer_timeout, keep_alive) = match self.sender.timer(tuning) {
            Some(at) => (at, tuning.peer_timeout, tuning.keep_alive),
            None => {
                let quiet = self.last_heard.max(self.probed);
                (quiet.after(tuning.keep_alive), tuning.peer_timeout, tuning.keep_alive)
            }
        };
        if ask <= now {
            if self.probes == 0 {
                self.asked = now;
            }
            let silent = self.probes >= PROBES && now.since(self.asked) >= peer_timeout;
            if silent || self.sender.stalled(now) >= 4 * peer_timeout {
                let loss = ConnectionLoss::PeerSilent;
                return self.break_off(core, now, loss, Some(CloseReason::Silent), out);
            }
            self.probes += 1;
            self.probed = now;
            if self.sender.timer(&core.config.tuning).is_some() {
                self.sender.expire(now);
            } else {
                self.send_ack(core, now, data::NOW, out);
            }
        }
        self.proceed(core, now, out);
        let mut next = self.last_heard.max(self.probed).after(keep_alive);
        if let Some(at) = self.sender.timer(&core.config.tuning) {
            next = at;
        }
        if let Some(handshake) = &self.handshake {
            next = next.min(handshake.next);
        }
        self.wake(core, next.min(self.receiver.ack_at()));
    }
}
