//! What the provider has to do now and then, apart from frames that come and go.

use std::time::Duration;

use uvia_driver::nic::RxFrame;

use super::{BURST, Due, Ethernet, Receiving, nanos};
use crate::Result;
use crate::engine::{Output as _, Time};
use crate::sinks::{Handed, Sinks};

/// How often the adapter is looked after; far below the silence after which a peer is taken for dead.
const LOOK: Duration = Duration::from_millis(500);

impl Ethernet {
    /// Looks now and then whether the adapter is well: one that is not leaves rings as they are, and who polls would
    /// wait for the peer's silence. What it says is told by what comes next.
    #[cold]
    pub(super) fn look_after(&mut self, now: Time) {
        if now < self.look_at {
            return;
        }
        self.look_at = Time(now.0 + nanos(LOOK));
        let well = self.adapter.look_after().map_err(crate::Error::from);
        if let Err(e) = well.and_then(|()| self.port.pio.look_after()) {
            self.port.fails(e);
        }
    }

    /// What comes up seldom; answers how many frames were received by it.
    #[cold]
    pub(super) fn do_chores(&mut self, sinks: &mut Sinks, handed: Handed<'_>) -> Result<usize> {
        let due = self.port.due;
        self.port.due = due & !(Due::ANSWERS | Due::BURIALS | Due::LOOPED);
        let looped = if due.contains(Due::LOOPED) { self.receive_looped(sinks, handed) } else { 0 };
        if due.contains(Due::ANSWERS) {
            self.answer(sinks)?;
        }
        if due.contains(Due::BURIALS) {
            self.bury();
        }
        Ok(looped)
    }

    /// Takes what was sent to our own station before; answers how many frames that were. What comes of them has its turn
    /// the next time.
    fn receive_looped(&mut self, sinks: &mut Sinks, mut handed: Handed<'_>) -> usize {
        let count = self.port.loopback.len().min(BURST);
        for _ in 0..count {
            let Some(frame) = self.port.loopback.take() else { break };
            let mut out = Receiving { port: &mut self.port, sinks, handed: handed.again() };
            self.engine.receive(RxFrame::from_slice(&frame), &mut out);
            self.port.loopback.give_back(frame);
        }
        self.port.due.set(Due::LOOPED, self.port.loopback.len() != 0);
        count
    }

    /// Sends the answers that came up while frames were received; what finds no room is asked for again.
    fn answer(&mut self, sinks: &mut Sinks) -> Result<()> {
        let answers = std::mem::take(&mut self.port.answers);
        let outcome = self.with(sinks, |_, _, out| {
            for frame in answers.frames() {
                out.manage(frame);
            }
        });
        self.port.answers = answers.emptied();
        outcome
    }

    /// Destroys what the adapter refers to no more.
    fn bury(&mut self) {
        let engine = &mut self.engine;
        let port = &mut self.port;
        self.doomed.retain(|vi| {
            let stays = matches!(engine.destroy_vi(*vi), Err(crate::Error::InUse(_)));
            if !stays {
                port.forget(*vi);
            }
            stays
        });
        self.port.due.set(Due::BURIALS, !self.doomed.is_empty());
    }
}
