//! What an interface does when its deadline has come.

use super::core::Core;
use super::endpoint::Endpoint;
use super::{Output, Time, Tuning};
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
        self.stir();
        if !self.tend_handshake(core, now, out) || self.state != ViState::Connected {
            return;
        }
        if self.receiver.ack_at() <= now {
            self.receiver.owe();
        }
        if !self.tend_not_ready(core, now, out) {
            return;
        }
        self.tend_search(core, now, out);
        self.sender.skip(core.gap);
        let tuning = &core.config.tuning;
        let peer_timeout = tuning.peer_timeout;
        let ask = self.sender.timer(tuning).unwrap_or_else(|| self.next_probe(tuning));
        if ask <= now {
            if self.probes == 0 {
                self.asked = now;
            }
            let silent = self.probes >= PROBES && now.since(self.asked) >= peer_timeout;
            if silent || self.sender.stalled(now) >= 4 * peer_timeout {
                self.doubt_path(core);
                let loss = ConnectionLoss::PeerSilent;
                return self.break_off(core, now, loss, Some(CloseReason::Silent), out);
            }
            self.probes += 1;
            self.probed = now;
            if self.sender.timer(&core.config.tuning).is_some() {
                self.sender.expire(now);
                self.look_for_black_hole(core, now, out);
            } else {
                self.send_ack(core, now, data::NOW, out);
            }
        }
        self.proceed(core, now, out);
        let tuning = &core.config.tuning;
        let mut next = self.sender.timer(tuning).unwrap_or_else(|| self.next_probe(tuning));
        if let Some(handshake) = &self.handshake {
            next = next.min(handshake.next);
        }
        self.wake(core, next.min(self.receiver.ack_at()));
        self.settle();
    }

    /// When an idle peer is asked for a sign of life. If it does not answer it is asked more often, and in no
    /// rhythm, since not all frames of a bad wire get lost.
    fn next_probe(&self, tuning: &Tuning) -> Time {
        if self.probes == 0 {
            return self.last_heard.after(tuning.keep_alive);
        }
        let wait = tuning.keep_alive / 4;
        self.probed.after(wait - wait / 32 * (u64::from(self.probes) * 7 % 16))
    }
}
